/* SPDX-License-Identifier: Apache-2.0
 *
 * The page-16 sparse table and context lengths (S5) from selected blocks of 128 tokens.
 */
#include "ref_ops.h"
#include "ref_parallel.h"
#include "ref_rows.h"

enum { BLOCK_TOKENS = 128, PAGES_PER_BLOCK = 8 };

/* The eight attention pages of one selected block, head-minor (S5.1, S5.5). */
static void write_block(int32_t *pages, int64_t block_page, int64_t page_stride, int64_t head, int64_t heads) {
  for (int64_t j = 0; j < PAGES_PER_BLOCK; j++) pages[j] = (int32_t)((block_page * page_stride + j) * heads + head);
}

void ref_sparse_row(const m3idx_batch *batch, const m3idx_sparse_out *out, int64_t row, int64_t head, int64_t heads,
                    const int32_t *ids, int64_t topk) {
  ref_row at = ref_row_of(batch, row);
  const int64_t pages_at = at.request * out->block_table_stride; /* the table may be NULL where no row has a block */
  int32_t *table = out->table + (row * heads + head) * out->table_stride;
  int64_t causal = at.position + 1 > 0 ? at.position + 1 : 0;
  int64_t self = causal > 0 ? at.position / BLOCK_TOKENS : -1; /* S5.4: a padded row has no valid id */
  int64_t full = 0, tail = 0;                                  /* S5.2: any other id is invalid and skipped */

  for (int64_t k = 0; k < topk; k++) {
    if (ids[k] >= 0 && ids[k] < self) {
      write_block(table + full * PAGES_PER_BLOCK, out->block_table[pages_at + ids[k]], out->page_stride, head, heads);
      full++;
    } else if (ids[k] >= 0 && ids[k] == self) {
      tail = 1;
    }
  }
  if (tail)
    write_block(table + full * PAGES_PER_BLOCK, out->block_table[pages_at + self], out->page_stride, head, heads);
  for (int64_t slot = (full + tail) * PAGES_PER_BLOCK; slot < topk * PAGES_PER_BLOCK; slot++) table[slot] = 0;

  int64_t context = BLOCK_TOKENS * full; /* S5.3 */
  if (tail)
    context += causal - BLOCK_TOKENS * self;
  else if (context > causal)
    context = causal;
  out->context_lens[row * heads + head] = (int32_t)context;
}

m3idx_status ref_sparse_table(m3idx_context *ctx, const m3idx_sparse_table_args *args) {
  int64_t heads = args->num_heads, rows = args->batch->num_rows;
  REF_PARALLEL_FOR(ctx)
  for (int64_t i = 0; i < rows * heads; i++) {
    int64_t row = i / heads, head = i % heads;
    const int32_t *ids = args->topk_idx + head * args->topk_stride_head + row * args->topk_stride_row;
    ref_sparse_row(args->batch, &args->sparse, row, head, heads, ids, args->topk);
  }
  return M3IDX_OK;
}
