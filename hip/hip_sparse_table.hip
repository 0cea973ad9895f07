/* SPDX-License-Identifier: Apache-2.0
 *
 * Page-16 tables and context lengths (S5) from selected blocks in device memory: a wave is a row.
 */
#include "hip_ops.h"
#include "hip_pick.h"

namespace hipk {

constexpr int TABLE_WAVES = 4;

struct table_view {
  rows_view batch;
  int32_t heads, topk;
  const int32_t *topk_idx;
  int64_t topk_stride_head, topk_stride_row;
  sparse_view sparse;
};

HIPK_KERNEL(TABLE_WAVES *WAVE) table_rows(table_view v) {
  HIPK_LDS(int32_t, all_ids, TABLE_WAVES * MAX_TOPK);
  const int64_t pick = static_cast<int64_t>(group_index()) * TABLE_WAVES + wave_index();
  if (pick >= static_cast<int64_t>(v.heads) * v.batch.rows) return;
  const int32_t row = static_cast<int32_t>(pick / v.heads), head = static_cast<int32_t>(pick % v.heads);
  const lds<int32_t> ids = all_ids + wave_index() * MAX_TOPK;
  const gptr<const int32_t> from = global(v.topk_idx) + (head * v.topk_stride_head + row * v.topk_stride_row);
  for (int k = lane_index(); k < v.topk; k += WAVE) ids[k] = static_cast<int32_t>(from[k]);
  wave_sync();
  write_sparse_row(v.sparse, place_row(v.batch, row), row, head, v.heads, ids, v.topk);
}

} // namespace hipk

m3idx_status hipk_sparse_table_plan(m3idx_context *ctx, const hipk_device *, const m3idx_sparse_table_args *args,
                                    size_t *scratch_bytes) {
  if (args->batch->num_rows > INT32_MAX / args->num_heads)
    return m3idx_fail(ctx, M3IDX_UNSUPPORTED, "sparse_table: %lld rows of %lld heads are more than a launch holds",
                      static_cast<long long>(args->batch->num_rows), static_cast<long long>(args->num_heads));
  *scratch_bytes = 0;
  return M3IDX_OK;
}

void hipk_sparse_table_launch(const hipk_launch *at, const m3idx_sparse_table_args *args) {
  hipk::table_view v = {};
  v.batch = hipk::view_rows(args->batch);
  v.heads = static_cast<int32_t>(args->num_heads);
  v.topk = static_cast<int32_t>(args->topk);
  v.topk_idx = args->topk_idx;
  v.topk_stride_head = args->topk_stride_head;
  v.topk_stride_row = args->topk_stride_row;
  v.sparse = hipk::view_sparse(&args->sparse);
  const int64_t picks = args->num_heads * args->batch->num_rows;
  if (picks == 0) return;
  hipk::launch(hipk::table_rows, (picks + hipk::TABLE_WAVES - 1) / hipk::TABLE_WAVES, hipk::TABLE_WAVES * hipk::WAVE,
               at->stream, v);
}
