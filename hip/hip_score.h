/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode scores (S3): what the launchers of score and topk share, and how a program finds its blocks.
 */
#ifndef M3IDX_HIP_SCORE_H
#define M3IDX_HIP_SCORE_H

#include "geometry.h"
#include "hip_bound.h"
#include "hip_format.h"
#include "hip_key.h"
#include "hip_ops.h"
#include "hip_rows.h"

namespace hipk {

constexpr int SCORE_WAVES = 4, SCORE_THREADS = SCORE_WAVES * WAVE;
constexpr int SCORE_ROWS = 16;    /* rows and heads of one request that a program scores together */
constexpr int SCORE_TOKENS = 128; /* the largest block */
constexpr int SCORE_MAX_DIM = 256;
/* Rows of a wave's table of approximate dots; the odd 16 keeps teams that read different rows on different banks. */
constexpr int DOT_PITCH = SCORE_TOKENS + 16;

struct score_view {
  rows_view batch;
  int32_t heads, dim,
      request_rows; /* request_rows: decode_query_len * heads; row j of them is (j / heads, j % heads) */
  const void *q, *keys;
  format_view q_format, k_format;
  bool matrix;        /* the device's matrix steps may be used */
  matrix_bound bound; /* of their error */
  double exact_ratio; /* 2^(52 - b), b significant bits of a product (hip_exact.h) */
  int64_t q_stride_row, q_stride_head, q_stride_dim, k_stride_page, k_stride_token, k_stride_dim; /* elements */
  const int32_t *block_table;
  int64_t block_table_stride;
  float scale;
  forced_blocks forced;
  float *score;
  int64_t score_stride_head, score_stride_row;
  int32_t max_block;
  bool fill;              /* write -inf from the request's last block to max_block */
  int32_t budget, chunks; /* S8.3 if budget != 0, else S8.4 */
  int32_t row_groups;     /* of SCORE_ROWS rows a request */
};

score_view view_score(const hipk_device *device, const m3idx_batch *batch, const m3idx_tensor *q,
                      const m3idx_tensor *index_k);
/* M3IDX_OK, or a sentence why these shapes are not for the decode scorer. */
m3idx_status score_supported(m3idx_context *ctx, const char *op, const score_view &view, const m3idx_batch *batch);
void run_score(const hipk_launch *at, const score_view &view, m3idx_dtype k_dtype);

/* The tokens from..end-1 of a page; none where end <= from. */
struct key_span {
  gptr<const unsigned char> page;
  int from, end;
};

/* Element 0 of a request's row of queries. */
HIPK_DEVICE int64_t query_at(const score_view &v, int32_t request, int32_t index) {
  const int64_t step = index / v.heads, head = index % v.heads;
  return (static_cast<int64_t>(request) * v.batch.decode_query_len + step) * v.q_stride_row + head * v.q_stride_head;
}

/* m3idx_balanced_work with a lane a request, all lanes of the wave together: the lengths are read at once instead of
 * one after the other.  A budget is given to MOST_BALANCED requests at most (S8.3). */
constexpr int MOST_BALANCED = 16;
HIPK_DEVICE m3idx_work balanced_work(const score_view &v, int32_t program) {
  const int lane = lane_index();
  int32_t blocks = 0;
  if (lane < v.batch.requests) blocks = m3idx_request_blocks(global(v.batch.seq_lens)[lane], 1 << v.batch.block_shift);
  uint32_t sum = static_cast<uint32_t>(blocks); /* below 16 * 2^27: a block has 16 tokens or more */
  sum += shuffle_xor<8>(sum);
  sum += shuffle_xor<4>(sum);
  sum += shuffle_xor<2>(sum);
  sum += shuffle_xor<1>(sum);
  sum = shuffle(sum, 0);
  const uint32_t budget = static_cast<uint32_t>(v.budget), share = (sum + budget - 1) / budget;
  const int32_t each = share ? static_cast<int32_t>(share) : 1,
                programs = each == 1 ? blocks : m3idx_ceil_div(blocks, each);
  int32_t end = programs; /* of the request's programs, counted from the first request's */
  HIPK_UNROLL
  for (int step = 1; step < MOST_BALANCED; step *= 2) {
    const int32_t below = shuffle(end, lane >= step ? lane - step : lane);
    end += lane >= step ? below : 0;
  }
  const uint64_t later = ballot(lane < v.batch.requests && program < end);
  m3idx_work work = {-1, {0, 0}};
  const int of = later ? lowest_bit(later) : 0;
  program -= shuffle(end - programs, of);
  blocks = shuffle(blocks, of);
  if (later) {
    work.request = of;
    work.blocks.begin = program * each;
    work.blocks.end = m3idx_min_i32(each, blocks - work.blocks.begin) + work.blocks.begin;
  }
  return work;
}

/* The request and blocks of a program; empty past the work. */
HIPK_DEVICE m3idx_work work_of(const score_view &v, int32_t program) {
  if (v.budget) return balanced_work(v, program);
  m3idx_work work;
  work.request = program / v.chunks;
  const int32_t blocks = m3idx_request_blocks(global(v.batch.seq_lens)[work.request], 1 << v.batch.block_shift);
  work.blocks = m3idx_score_part(blocks, v.chunks, program % v.chunks);
  return work;
}

} // namespace hipk

#endif
