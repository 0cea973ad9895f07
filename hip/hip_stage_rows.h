/* SPDX-License-Identifier: Apache-2.0
 *
 * What both scorers begin with: queries into group memory, and the columns that no program owns.
 */
#ifndef M3IDX_HIP_STAGE_ROWS_H
#define M3IDX_HIP_STAGE_ROWS_H

#include "hip_exact.h"
#include "hip_filter.h"

namespace hipk {

/* Queries of the program's rows as binary32, one team a row, missing rows as zeros, and A = sum |q| of each.  To be
 * followed by a barrier. */
template <class F>
HIPK_DEVICE void stage_queries(const score_view &v, int32_t request, int32_t first, int rows, lds<float> q,
                               lds<float> q_size) {
  static_assert(SCORE_THREADS == SCORE_ROWS * TEAM, "a team is a row");
  const gptr<const unsigned char> from = global(static_cast<const unsigned char *>(v.q));
  const int row = thread_index() / TEAM;
  const int64_t step = (first + row) / v.heads, head = (first + row) % v.heads;
  const int64_t at =
      (static_cast<int64_t>(request) * v.batch.decode_query_len + step) * v.q_stride_row + head * v.q_stride_head;
  uint32_t codes[F::TEAM_ELEMS]; /* all on the way before the first is looked at */
  HIPK_UNROLL
  for (int e = 0; e < F::TEAM_ELEMS; e++) {
    const int d = e * TEAM + team_lane();
    codes[e] = 0;
    if (row < rows && d < v.dim) codes[e] = load_code(from, at + d * v.q_stride_dim, v.q_format.bytes);
  }
  double size = 0;
  HIPK_UNROLL
  for (int e = 0; e < F::TEAM_ELEMS; e++) {
    const float x = decode_as(codes[e], v.q_format);
    q[row * F::DIM + e * TEAM + team_lane()] = x;
    size += magnitude(x);
  }
  size = team_sum(size);
  /* 20 roundings of binary64 and one of binary32, all made good by the factor. */
  if (team_lane() == 0) q_size[row] = static_cast<float>(size * (1 + 0x1p-20));
}

/* Columns past the last block of every request, dealt to all programs. */
HIPK_DEVICE void fill_tail(const score_view &v) {
  constexpr int SPAN = 1024;
  const int32_t spans = m3idx_ceil_div(v.max_block, SPAN);
  const int64_t items = static_cast<int64_t>(v.batch.rows) * v.heads * spans;
  for (int64_t item = group_index(); item < items; item += group_count()) {
    const int32_t begin = static_cast<int32_t>(item % spans) * SPAN;
    const int64_t pick = item / spans, row = pick / v.heads, head = pick % v.heads;
    const int32_t request = static_cast<int32_t>(row / v.batch.decode_query_len);
    const int32_t live = m3idx_request_blocks(global(v.batch.seq_lens)[request], 1 << v.batch.block_shift);
    const int32_t end = m3idx_min_i32(begin + SPAN, v.max_block);
    const gptr<float> score = global(v.score) + (head * v.score_stride_head + row * v.score_stride_row);
    for (int32_t c = m3idx_max_i32(begin, live) + thread_index(); c < end; c += SCORE_THREADS)
      score[c] = bits_float(BITS_MINUS_INF);
  }
}

/* What is written for a row's block: `best` of its dots, NaN if it has none (S3.3 to S3.5), forced or masked. */
HIPK_DEVICE float block_score(const score_view &v, float best, int32_t block, int32_t blocks) {
  if (block >= blocks) return bits_float(BITS_MINUS_INF);
  float score = v.scale == 1.0f ? best : best * v.scale;
  if (score == 0) score = 0.0f; /* S3.4 */
  return bits_float(forced_bits(best == best ? float_bits(score) : BITS_NAN, block, blocks, v.forced));
}

} // namespace hipk

#endif
