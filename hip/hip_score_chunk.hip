/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode scores of every visible block (S3), exact, for keys that lie in chunks (hip_filter.h): D = 128, B = 128.
 *
 * A program (workgroup) owns blocks of one request (S8.3 or S8.4) and scores each key tile for all of the
 * request's rows and heads, 16 at a time.  The tile's keys are in registers, the next tile's on the way, and no
 * other load is waited for inside the loop.  A wave filters its own tokens (hip_filter.h) and tells the group its
 * best; after the one barrier of a tile it looks for tokens that the bound leaves among its own, whose keys the
 * right team of lanes still holds, and evaluates them exactly (hip_exact.h).  The waves' results of a tile are put
 * together after the next tile's barrier.
 */
#include "hip_stage_rows.h"

namespace hipk {

/* What lane r knows of row r (r = lane mod 16). */
struct lane_row {
  int32_t keys, blocks; /* n and N (S2.3); 0 for a missing row */
  int64_t score;        /* element offset of its scores */
};

HIPK_DEVICE lane_row place_lane(const score_view &v, int32_t request, int32_t first, int rows, int32_t seq_len) {
  const int row = team_lane();
  const int32_t step = (first + row) / v.heads, head = (first + row) % v.heads;
  lane_row at;
  at.keys = row < rows ? keys_seen(static_cast<int64_t>(seq_len) - v.batch.decode_query_len + step, seq_len) : 0;
  at.blocks = blocks_of(at.keys, v.batch.block_shift);
  at.score = head * v.score_stride_head +
             (static_cast<int64_t>(request) * v.batch.decode_query_len + step) * v.score_stride_row;
  return at;
}

/* The largest of a wave's per-team values; NaN stands for none. */
HIPK_DEVICE float over_teams(float x) {
  x = larger(x, shuffle_xor<16>(x));
  if constexpr (WAVE == 64) x = larger(x, shuffle_xor<WAVE / 2>(x));
  return x;
}

/* The largest exact dot, rounded, among the wave's tokens that matter for a row; NaN if none is a number. */
template <class F>
HIPK_DEVICE float resolve_wave(const F &tile, lds<float> q, lds<float> dots, int row, int32_t rest, double least) {
  const int token = wave_index() * F::WAVE_KEYS + lane_index();
  bool matters = false;
  if (lane_index() < F::WAVE_KEYS && token < rest) {
    const float dot = dots[row * DOT_PITCH + token];
    matters = !(dot - dot == 0 && static_cast<double>(dot) < least);
  }
  uint64_t left = ballot(matters);
  float best = bits_float(BITS_NAN);
  while (left) {
    const int load = lowest_bit(left) / F::AT_ONCE, shift = load * F::AT_ONCE;
    float query[CHUNK], key[CHUNK];
    F::query_team(q, row, team_lane(), query);
    tile.key_of(load, key);
    const team_dot_result dot = team_dot(query, key);
    const bool ours = (left >> (shift + lane_index() / TEAM) & 1) != 0;
    best = larger(best, over_teams(ours && !dot.nan ? dot.value : bits_float(BITS_NAN)));
    left &= ~(((uint64_t{1} << F::AT_ONCE) - 1) << shift);
  }
  return best;
}

/* One wave puts the waves' results of a block together, a lane a row. */
HIPK_DEVICE void write_block(const score_view &v, const lane_row &mine, int rows, int32_t block, lds<float> results) {
  if (lane_index() >= rows) return;
  float best = bits_float(BITS_NAN);
  for (int w = 0; w < SCORE_WAVES; w++) best = larger(best, results[w * SCORE_ROWS + lane_index()]);
  (global(v.score) + mine.score)[block] = block_score(v, best, block, mine.blocks);
}

template <m3idx_dtype T> HIPK_KERNEL_PAIR(SCORE_THREADS) score_chunks(score_view v) {
  using F = chunk_filter<T>;
  constexpr int PARTS = SCORE_WAVES * SCORE_ROWS;
  HIPK_LDS(float, q, SCORE_ROWS *F::DIM);
  HIPK_LDS(float, q_size, SCORE_ROWS);
  HIPK_LDS(float, dots, SCORE_ROWS *DOT_PITCH); /* a wave reads the tokens it wrote */
  HIPK_LDS(float, wave_best, 2 * PARTS);
  HIPK_LDS(float, results, 2 * PARTS);
  HIPK_LDS(float, key_size, 2 * SCORE_WAVES);

  const m3idx_work work = work_of(v, group_index() / v.row_groups);
  if (v.fill) fill_tail(reread(v));
  if (work.blocks.begin >= work.blocks.end) return;
  const int32_t first = group_index() % v.row_groups * SCORE_ROWS, begin = work.blocks.begin;
  const int rows = m3idx_min_i32(SCORE_ROWS, v.request_rows - first), wave = wave_index();
  const int32_t seq_len = global(v.batch.seq_lens)[work.request];
  const gptr<const int32_t> table = global(v.block_table) + work.request * v.block_table_stride;
  const gptr<const unsigned char> keys = global(static_cast<const unsigned char *>(v.keys));
  const int64_t page_bytes = v.k_stride_page * v.k_format.bytes;

  /* Keys are on the way one tile ahead, page numbers two. */
  F tile;
  tile.fetch(v, keys + table[begin] * page_bytes, seq_len - begin * SCORE_TOKENS);
  int32_t ahead = begin + 1 < work.blocks.end ? static_cast<int32_t>(table[begin + 1]) : 0;
  stage_queries<F>(reread(v), work.request, first, rows, q, q_size);
  const lane_row mine = place_lane(reread(v), work.request, first, rows, seq_len);
  barrier();

  int32_t block = begin;
  for (; block < work.blocks.end; block++) {
    const int buffer = (block - begin) & 1;
    const lds<float> bests = wave_best + buffer * PARTS, sizes = key_size + buffer * SCORE_WAVES;
    const F held = tile;
    if (block + 1 < work.blocks.end) {
      tile.fetch(v, keys + ahead * page_bytes, seq_len - (block + 1) * SCORE_TOKENS);
      if (block + 2 < work.blocks.end) ahead = table[block + 2];
    }
    const int32_t rest = mine.keys - block * SCORE_TOKENS;
    const float size = wave_max(held.run(q, dots, bests + wave * SCORE_ROWS, rows, rest));
    if (lane_index() == 0) sizes[wave] = size;
    barrier();

    float best = bits_float(BITS_MINUS_INF), largest = 0;
    double least = 0;
    if (team_lane() < rows) {
      for (int w = 0; w < SCORE_WAVES; w++) {
        best = larger(best, bests[w * SCORE_ROWS + team_lane()]);
        largest = larger(largest, sizes[w]);
      }
      least = best - 2.0001 * filter_error(F::GROWTH, q_size[team_lane()], largest, F::DIM);
    }
    HIPK_ROLLED
    for (int row = 0; row < rows; row++) {
      const float found = resolve_wave(held, q, dots, row, shuffle(rest, row), shuffle(least, row));
      if (lane_index() == 0) results[buffer * PARTS + wave * SCORE_ROWS + row] = found;
    }
    if (block > begin && wave == block % SCORE_WAVES)
      write_block(reread(v), mine, rows, block - 1, results + (1 - buffer) * PARTS);
    wave_sync(); /* the next tile's dots take the place of these */
  }
  barrier();
  if (wave == 0) write_block(reread(v), mine, rows, block - 1, results + ((block - 1 - begin) & 1) * PARTS);
}

void launch_chunk_score(const hipk_launch *at, const score_view &v, int64_t groups, m3idx_dtype k_dtype) {
  switch (k_dtype) {
  case M3IDX_F16: return launch(score_chunks<M3IDX_F16>, groups, SCORE_THREADS, at->stream, v);
  case M3IDX_BF16: return launch(score_chunks<M3IDX_BF16>, groups, SCORE_THREADS, at->stream, v);
  case M3IDX_E4M3FN: return launch(score_chunks<M3IDX_E4M3FN>, groups, SCORE_THREADS, at->stream, v);
  case M3IDX_E4M3FNUZ: return launch(score_chunks<M3IDX_E4M3FNUZ>, groups, SCORE_THREADS, at->stream, v);
  case M3IDX_E5M2: return launch(score_chunks<M3IDX_E5M2>, groups, SCORE_THREADS, at->stream, v);
  default: return launch(score_chunks<M3IDX_E5M2FNUZ>, groups, SCORE_THREADS, at->stream, v);
  }
}

} // namespace hipk
