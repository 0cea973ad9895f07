/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries and keys straight to selected blocks (S1.1: S3, S4 and S5 fused).  A row keeps K keys and no scores.
 */
#include "ref_key.h"
#include "ref_ops.h"
#include "ref_parallel.h"
#include "ref_rows.h"
#include "ref_score.h"

/* One output row: every visible block scored, forced (S3.7, in both modes) and offered. */
static void topk_row(const m3idx_topk_args *args, int64_t head, int64_t row, ref_best *best) {
  ref_row at = ref_row_of(args->batch, row);
  ref_best_clear(best, args->topk);
  for (int64_t block = 0; block < at.blocks; block++) {
    int64_t page = args->block_table[at.request * args->block_table_stride + block];
    int64_t tokens = ref_row_tokens(args->batch, at, block);
    uint32_t bits = ref_block_score(&args->q, &args->index_k, row, head, page, tokens, args->scale);
    bits = ref_forced(bits, block, at.blocks, args->init_blocks, args->local_blocks);
    ref_best_offer(best, ref_key(bits, block, &args->contract));
  }
}

m3idx_status ref_topk(m3idx_context *ctx, const m3idx_topk_args *args) {
  int64_t heads = args->q.shape[1], rows = args->batch->num_rows;
  REF_PARALLEL_FOR(ctx)
  for (int64_t i = 0; i < heads * rows; i++) {
    int64_t head = i / rows, row = i % rows;
    int32_t *ids = args->topk_idx + head * args->topk_stride_head + row * args->topk_stride_row;
    ref_best best;
    topk_row(args, head, row, &best);
    ref_best_ids(&best, &args->contract, ids);
    if (args->sparse) ref_sparse_row(args->batch, args->sparse, row, head, heads, ids, args->topk);
  }
  return M3IDX_OK;
}
