/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode scores (S3): what the launchers of score and topk share, and how a program finds its blocks.
 */
#ifndef M3IDX_HIP_SCORE_H
#define M3IDX_HIP_SCORE_H

#include "geometry.h"
#include "hip_format.h"
#include "hip_key.h"
#include "hip_ops.h"
#include "hip_rows.h"

namespace hipk {

constexpr int SCORE_WAVES = 4, SCORE_THREADS = SCORE_WAVES * WAVE;
constexpr int SCORE_ROWS = 16;    /* rows and heads of one request that a program scores together */
constexpr int SCORE_TOKENS = 128; /* the largest block */
constexpr int SCORE_MAX_DIM = 256;

struct score_view {
  rows_view batch;
  int32_t heads, dim,
      request_rows; /* request_rows: decode_query_len * heads; row j of them is (j / heads, j % heads) */
  const void *q, *keys;
  format_view q_format, k_format;
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

/* The request and blocks of a program; empty past the work. */
HIPK_DEVICE m3idx_work work_of(const score_view &v, int32_t program) {
  const int32_t block_size = 1 << v.batch.block_shift;
  if (v.budget) {
    const int32_t each = m3idx_blocks_per_program(v.batch.seq_lens, v.batch.requests, block_size, v.budget);
    return m3idx_balanced_work(v.batch.seq_lens, v.batch.requests, block_size, each, program);
  }
  m3idx_work work;
  work.request = program / v.chunks;
  const int32_t blocks = m3idx_request_blocks(global(v.batch.seq_lens)[work.request], block_size);
  work.blocks = m3idx_score_part(blocks, v.chunks, program % v.chunks);
  return work;
}

} // namespace hipk

#endif
