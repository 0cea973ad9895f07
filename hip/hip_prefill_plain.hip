/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill without matrix steps, exact (S3): scores of any formats, strides and shapes, and the settling of scores that
 * the matrix kernels left open.  Correct first: a wave reads a block's keys for four rows.
 */
#include "hip_block.h"
#include "hip_by_format.h"

namespace hipk {

/* Queries of the group's rows as binary32, missing rows as zeros, and A = sum |q| of each. */
template <class F>
HIPK_DEVICE void stage_rows(const prefill_view &v, const prefill_tile &t, int32_t head, lds<float> q,
                            lds<float> q_size) {
  for (int i = 0; i < PLAIN_WAVE_ROWS; i++) {
    const int slot = wave_index() * PLAIN_WAVE_ROWS + i, row = t.rows.begin + slot;
    if (row < t.rows.end) {
      const float size = wave_query<F>(v.s, head, row, q + slot * F::DIM);
      if (lane_index() == 0) q_size[slot] = size;
    } else {
      for (int d = lane_index(); d < F::DIM; d += WAVE) q[slot * F::DIM + d] = 0.0f;
      if (lane_index() == 0) q_size[slot] = 0.0f;
    }
  }
  wave_sync();
}

template <class F> HIPK_KERNEL(PLAIN_WAVES *WAVE) prefill_plain(prefill_view v) {
  HIPK_LDS(float, q, PLAIN_ROWS *F::DIM);
  HIPK_LDS(float, q_size, PLAIN_ROWS);
  HIPK_LDS(float, dots, PLAIN_ROWS *DOT_PITCH);
  constexpr int WAVE_TEAMS = WAVE / TEAM;
  const prefill_group g = group_of(v);
  const prefill_tile t = place_tile(v, g.tile);
  if (t.rows.begin == t.rows.end) return;
  fill_columns(v, t, g, PLAIN_WAVES * WAVE);
  stage_rows<F>(v, t, g.head, q, q_size);
  const int first = wave_index() * PLAIN_WAVE_ROWS, rows = t.rows.end - t.rows.begin;
  if (first >= rows) return;

  const int last = m3idx_min_i32(rows, first + PLAIN_WAVE_ROWS) - 1, block_size = 1 << v.s.batch.block_shift;
  const int32_t most_keys = keys_seen(t.position + last, t.seq_len);
  const m3idx_range part = m3idx_score_part(t.blocks, v.splits, g.split);
  const lds<float> out = dots + first * DOT_PITCH;
  HIPK_ROLLED
  for (int32_t block = part.begin; block < part.end; block++) {
    const gptr<const unsigned char> page = prefill_page(v.s, t.request, block);
    const int end = m3idx_max_i32(0, m3idx_min_i32(block_size, most_keys - block * block_size));
    const float peak = wave_max(F::template dots<PLAIN_WAVE_ROWS>(v.s, q, first, out, page, 0, end));
    wave_sync();
    HIPK_ROLLED
    for (int turn = 0; turn < PLAIN_WAVE_ROWS; turn += WAVE_TEAMS) {
      const int slot = turn + lane_index() / TEAM, row = first + slot;
      const int32_t keys = keys_seen(t.position + row, t.seq_len);
      const int visible = row < rows ? m3idx_max_i32(0, m3idx_min_i32(block_size, keys - block * block_size)) : 0;
      const double error =
          F::GROWTH * static_cast<double>(q_size[row]) * static_cast<double>(peak) + v.s.dim * 0x1p-149;
      const uint32_t mask = near_best(out + slot * DOT_PITCH, 0, visible, ALL_GROUPS, error);
      const uint32_t best = exact_best<F>(v.s, q, row, mask, page);
      if (row < rows && team_lane() == 0)
        score_of(v, g.head, t.rows.begin + row)[block] =
            bits_float(visible > 0 ? scaled_score(best, v.s.scale) : BITS_MINUS_INF);
    }
    wave_sync(); /* the dots have been read */
  }
}

/* A wave a row: settle what is open in it. */
template <class F> HIPK_KERNEL(PLAIN_WAVES *WAVE) prefill_settle(prefill_view v) {
  HIPK_LDS(float, q, PLAIN_WAVES *F::DIM);
  HIPK_LDS(float, dots, PLAIN_WAVES *DOT_PITCH);
  if (global(static_cast<const uint32_t *>(v.open))[0] == 0) return;
  const int wave = wave_index();
  const int64_t pick = static_cast<int64_t>(group_index()) * PLAIN_WAVES + wave;
  if (pick >= static_cast<int64_t>(v.s.heads) * (v.end - v.begin)) return;
  const int32_t head = static_cast<int32_t>(pick / (v.end - v.begin));
  const int32_t row = v.begin + static_cast<int32_t>(pick % (v.end - v.begin));
  const row_place place = place_row(v.s.batch, row);
  const gptr<float> score = score_of(v, head, row);
  bool staged = false;
  float size = 0;
  HIPK_ROLLED
  for (int32_t base = 0; base < place.blocks; base += WAVE) {
    const int32_t column = base + lane_index();
    uint64_t open = ballot(column < place.blocks && float_bits(score[column]) == BITS_OPEN);
    while (open) {
      const int32_t block = base + lowest_bit(open);
      open &= open - 1;
      if (!staged) size = wave_query<F>(v.s, head, row, q + wave * F::DIM);
      staged = true;
      const int tokens = m3idx_min_i32(1 << v.s.batch.block_shift, place.keys - (block << v.s.batch.block_shift));
      const uint32_t bits = block_score<F>(v.s, q + wave * F::DIM, size, dots + wave * DOT_PITCH,
                                           prefill_page(v.s, place.request, block), tokens, ALL_GROUPS);
      if (lane_index() == 0) score[block] = bits_float(bits);
    }
  }
}

struct plain_launch {
  const hipk_launch *at;
  const prefill_view &v;
  template <class F> void run() const {
    const int64_t groups = static_cast<int64_t>(v.tiles) * v.s.heads * v.splits;
    launch(prefill_plain<F>, groups, PLAIN_WAVES * WAVE, at->stream, v);
  }
};
void launch_plain(const hipk_launch *at, const prefill_view &v) {
  const plain_launch go = {at, v};
  if (v.s.k_format.bytes == 1) return go.run<plain_filter<uint8_t>>();
  if (v.s.k_format.bytes == 2) return go.run<plain_filter<uint16_t>>();
  go.run<plain_filter<uint32_t>>();
}

struct settle_launch {
  const hipk_launch *at;
  const prefill_view &v;
  template <m3idx_dtype T> void run() const {
    const int64_t picks = static_cast<int64_t>(v.s.heads) * (v.end - v.begin);
    launch(prefill_settle<chunk_filter<T>>, (picks + PLAIN_WAVES - 1) / PLAIN_WAVES, PLAIN_WAVES * WAVE, at->stream, v);
  }
};
void launch_settle(const hipk_launch *at, const prefill_view &v, m3idx_dtype k) {
  by_matrix_format(k, settle_launch{at, v});
}

} // namespace hipk
