/* SPDX-License-Identifier: Apache-2.0
 *
 * What the matrix kernels know of rows and blocks beforehand (hip_prefill.h): norms, powers of two that divide all
 * elements, and the rows' codes as bf16, dense.
 */
#include "hip_by_format.h"
#include "hip_exact.h"
#include "hip_filter.h"
#include "hip_prefill.h"

namespace hipk {

constexpr int NORM_WAVES = 4, NORM_THREADS = NORM_WAVES * WAVE, NORM_TEAMS = NORM_THREADS / TEAM;

/* A lane's eight elements: their squares' sum, and the least magnitude but zero. */
struct measure {
  float squares, least;
};
HIPK_DEVICE measure measure_chunk(const float (&x)[CHUNK]) {
  measure m = {0, bits_float(BITS_INF)};
  HIPK_UNROLL
  for (int e = 0; e < CHUNK; e++) {
    m.squares += x[e] * x[e];
    const float size = magnitude(x[e]);
    if (size != 0 && size < m.least) m.least = size;
  }
  return m;
}

/* From the largest sum of squares and the least magnitude of bf16 numbers.  Roundings are below 2^-16; squares below
 * 2^-149 vanish, which 2^-60 pays for. */
HIPK_DEVICE norm_grid norm_of(const measure &m) {
  norm_grid n;
  n.norm = square_root(m.squares) * (1 + 0x1p-10f) + 0x1p-60f;
  if (!(n.norm < bits_float(BITS_INF))) n.norm = bits_float(BITS_INF);
  const int field = static_cast<int>(float_bits(m.least) >> 23);
  n.grid = (field > 1 ? field : 1) - 127 - 7;
  return n;
}

HIPK_DEVICE float team_least(float x) { return -team_max(-x); }

/* A team a row of one head. */
HIPK_KERNEL(NORM_THREADS) prefill_row_norms(prefill_view v) {
  const int32_t rows = v.end - v.begin;
  if (group_index() == 0 && thread_index() == 0) reset(global(v.open));
  const int64_t pick = static_cast<int64_t>(group_index()) * NORM_TEAMS + thread_index() / TEAM;
  const bool live = pick < static_cast<int64_t>(v.s.heads) * rows;
  const int64_t head = live ? pick / rows : 0, row = v.begin + (live ? pick % rows : 0);
  const gptr<const unsigned char> from = global(static_cast<const unsigned char *>(v.s.q));
  const int64_t base = row * v.s.q_stride_row + head * v.s.q_stride_head;
  float x[CHUNK];
  HIPK_UNROLL
  for (int e = 0; e < CHUNK; e++) {
    const int64_t at = base + (team_lane() * CHUNK + e) * v.s.q_stride_dim;
    x[e] = decode_as(load_code(from, at, v.s.q_format.bytes), v.s.q_format);
  }
  measure m = measure_chunk(x);
  m.squares = team_sum(m.squares);
  m.least = team_least(m.least);
  if (!live) return;
  const auto pair = [&](int e) { return float_bits(x[e]) >> 16 | (float_bits(x[e + 1]) & 0xffff0000u); };
  global(v.queries)[pick * MATRIX_UNITS + team_lane()] = u32x4{pair(0), pair(2), pair(4), pair(6)};
  if (team_lane() == 0) global(v.rows)[pick] = norm_of(m);
}

/* A group a block of a request: the largest norm of its tokens. */
template <m3idx_dtype T> HIPK_KERNEL(NORM_THREADS) prefill_block_norms(prefill_view v) {
  HIPK_LDS(float, squares, NORM_TEAMS);
  HIPK_LDS(float, least, NORM_TEAMS);
  const int32_t request = group_index() / v.s.max_block, block = group_index() % v.s.max_block;
  const int64_t rest =
      static_cast<int64_t>(global(v.s.batch.seq_lens)[request]) - static_cast<int64_t>(block) * PREFILL_BLOCK;
  if (rest <= 0) return;
  const int tokens = rest < PREFILL_BLOCK ? static_cast<int>(rest) : PREFILL_BLOCK;
  const gptr<const unsigned char> page = prefill_page(v.s, request, block);
  const int team = thread_index() / TEAM;
  measure all = {0, bits_float(BITS_INF)};
  HIPK_UNROLL
  for (int i = 0; i < PREFILL_BLOCK / NORM_TEAMS; i++) {
    const int token = i * NORM_TEAMS + team;
    chunk<T> raw = {};
    if (token < tokens) raw = load<chunk<T>>(page, (token * v.s.k_stride_token + team_lane() * CHUNK) * bytes_of(T));
    float x[CHUNK];
    decode_chunk<T>(raw, x);
    const measure m = measure_chunk(x);
    const float sum = team_sum(m.squares);
    all.squares = sum > all.squares || sum != sum ? sum : all.squares; /* a NaN stays: sum > NaN is false */
    all.least = m.least < all.least ? m.least : all.least;
  }
  all.least = team_least(all.least);
  if (team_lane() == 0) {
    squares[team] = all.squares;
    least[team] = all.least;
  }
  barrier();
  if (thread_index() != 0) return;
  HIPK_ROLLED
  for (int i = 1; i < NORM_TEAMS; i++) {
    const float sum = squares[i], small = least[i];
    all.squares = sum > all.squares || sum != sum ? sum : all.squares;
    all.least = small < all.least ? small : all.least;
  }
  global(v.blocks)[static_cast<int64_t>(request) * v.s.max_block + block] = norm_of(all);
}

struct norms_launch {
  const hipk_launch *at;
  const prefill_view &v;
  template <m3idx_dtype T> void run() const {
    launch(prefill_block_norms<T>, static_cast<int64_t>(v.s.batch.requests) * v.s.max_block, NORM_THREADS, at->stream,
           v);
  }
};
void launch_norms(const hipk_launch *at, const prefill_view &v, bool blocks, m3idx_dtype k) {
  if (blocks) by_matrix_format(k, norms_launch{at, v});
  const int64_t picks = static_cast<int64_t>(v.s.heads) * (v.end - v.begin);
  launch(prefill_row_norms, (picks + NORM_TEAMS - 1) / NORM_TEAMS, NORM_THREADS, at->stream, v);
}

} // namespace hipk
