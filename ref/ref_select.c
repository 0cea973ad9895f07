/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection of the K best blocks of any float array (S4.6), or of their keys (S4.4).
 */
#include <string.h>

#include "ref_key.h"
#include "ref_ops.h"
#include "ref_parallel.h"
#include "ref_rows.h"

/* One output row: the best of the ids that this call sees, first_block <= id < N, N from the live length (S4.7). */
static void select_row(const m3idx_select_args *args, int64_t head, int64_t row, ref_best *best) {
  int64_t blocks = args->batch ? ref_row_of(args->batch, row).blocks : args->num_blocks[row];
  const int64_t first = head * args->score_stride_head + row * args->score_stride_row; /* score may be NULL if empty */
  ref_best_clear(best, args->topk);
  for (int64_t column = 0; column < args->max_block && args->first_block + column < blocks; column++) {
    int64_t id = args->first_block + column;
    uint32_t bits;
    memcpy(&bits, &args->score[first + column], sizeof bits);
    bits = ref_forced(bits, id, blocks, args->init_blocks, args->local_blocks);
    ref_best_offer(best, ref_key(bits, id, &args->contract));
  }
}

m3idx_status ref_select(m3idx_context *ctx, const m3idx_select_args *args) {
  int64_t rows = args->num_rows, topk = args->topk;
  REF_PARALLEL_FOR(ctx)
  for (int64_t i = 0; i < args->num_heads * rows; i++) {
    int64_t head = i / rows, row = i % rows;
    ref_best best;
    select_row(args, head, row, &best);
    if (args->topk_idx)
      ref_best_ids(&best, &args->contract,
                   args->topk_idx + head * args->topk_stride_head + row * args->topk_stride_row);
    if (args->keys) memcpy(args->keys + i * topk, best.key, (size_t)topk * sizeof *best.key);
  }
  return M3IDX_OK;
}
