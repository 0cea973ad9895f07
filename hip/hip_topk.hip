/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries and keys straight to selected blocks.  Decode: the scorer writes a dense array of scores into the
 * workspace, the selector reads it, applies forced blocks and writes ids and, on request, the page-16 table.
 * Prefill is hip_prefill.hip's.
 *
 * Two launches, not one: a row's blocks are spread over programs that also serve other rows, so one launch would
 * need each program to keep a list for 16 rows and a second arrival protocol, while the array costs one float
 * for every 128 keys, 1/64 of what the keys themselves cost to read in bf16 for one row.
 */
#include "hip_prefill.h"

namespace hipk {

struct topk_launches {
  score_view score;
  select_view select;
  size_t score_bytes;
};

static topk_launches view_topk(const hipk_device *device, const m3idx_topk_args *args) {
  topk_launches t = {};
  const int64_t rows = args->batch->num_rows, heads = args->q.shape[1], columns = args->batch->max_block;
  t.score = view_score(device, args->batch, &args->q, &args->index_k);
  t.score.block_table = args->block_table;
  t.score.block_table_stride = args->block_table_stride;
  t.score.scale = args->scale;
  t.score.score_stride_row = columns;
  t.score.score_stride_head = rows * columns;
  t.score.fill = false; /* the selector reads no column past N */
  m3idx_select_args select = {};
  select.batch = args->batch;
  select.num_heads = heads;
  select.num_rows = rows;
  select.max_block = columns;
  select.score_stride_row = columns;
  select.score_stride_head = rows * columns;
  select.init_blocks = args->init_blocks;
  select.local_blocks = args->local_blocks;
  select.topk = args->topk;
  select.contract = args->contract;
  select.topk_idx = args->topk_idx;
  select.topk_stride_head = args->topk_stride_head;
  select.topk_stride_row = args->topk_stride_row;
  t.select = view_select(&select, args->sparse);
  t.score_bytes = (static_cast<size_t>(rows * heads * columns) * sizeof(float) + 255) / 256 * 256;
  return t;
}

} // namespace hipk

m3idx_status hipk_topk_plan(m3idx_context *ctx, const hipk_device *device, const m3idx_topk_args *args,
                            size_t *scratch_bytes) {
  const hipk::topk_launches t = hipk::view_topk(device, args);
  if (args->batch->mode == M3IDX_PREFILL) {
    const hipk::prefill_plan plan = hipk::plan_prefill(device, t.score, args->q.dtype, args->index_k.dtype, true);
    *scratch_bytes = plan.bytes;
    return hipk::prefill_supported(ctx, "topk", t.score, plan);
  }
  const m3idx_status status = hipk::score_supported(ctx, "topk", t.score, args->batch);
  if (status) return status;
  *scratch_bytes = t.score_bytes + hipk::select_scratch_bytes(device, t.select);
  return M3IDX_OK;
}

void hipk_topk_launch(const hipk_launch *at, const m3idx_topk_args *args) {
  hipk::topk_launches t = hipk::view_topk(at->device, args);
  if (args->batch->mode == M3IDX_PREFILL) {
    const hipk::prefill_plan plan = hipk::plan_prefill(at->device, t.score, args->q.dtype, args->index_k.dtype, true);
    return hipk::run_prefill_topk(at, t.score, t.select, plan, args->index_k.dtype);
  }
  float *score = static_cast<float *>(at->scratch);
  t.score.score = score;
  t.select.score = score;
  hipk::run_score(at, t.score, args->index_k.dtype);
  hipk::run_select(at, t.select, static_cast<unsigned char *>(at->scratch) + t.score_bytes);
}
