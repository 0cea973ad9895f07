/* SPDX-License-Identifier: Apache-2.0
 *
 * Merge of partial selections by key (S4.5): any number of parts, any order inside a part.
 */
#include <string.h>

#include "ref_key.h"
#include "ref_ops.h"
#include "ref_parallel.h"

m3idx_status ref_merge(m3idx_context *ctx, const m3idx_merge_args *args) {
  int64_t rows = args->num_rows, topk = args->topk;
  REF_PARALLEL_FOR(ctx)
  for (int64_t i = 0; i < args->num_heads * rows; i++) {
    int64_t head = i / rows, row = i % rows;
    ref_best best;
    ref_best_clear(&best, topk);
    for (int64_t part = 0; part < args->num_parts; part++)
      for (int64_t k = 0; k < topk; k++)
        ref_best_offer(&best, args->keys[part * args->keys_stride_part + i * topk + k]);
    if (args->topk_idx)
      ref_best_ids(&best, &args->contract,
                   args->topk_idx + head * args->topk_stride_head + row * args->topk_stride_row);
    if (args->merged_keys) memcpy(args->merged_keys + i * topk, best.key, (size_t)topk * sizeof *best.key);
  }
  return M3IDX_OK;
}
