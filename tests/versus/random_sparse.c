/* SPDX-License-Identifier: Apache-2.0
 *
 * oracle_random: one random case of m3idx_sparse_table (S5).
 */
#include "oracle_random.h"

m3idx_sparse_out random_sparse_out(trial *t, const m3idx_batch *b, int64_t heads, int64_t topk, output outputs[2]) {
  static const int64_t page_strides[] = {0, 8, 16};
  m3idx_sparse_out s = {.page_stride = page_strides[random_below(t, 3)]};
  int64_t rows = b->num_rows * heads, width = 8 * topk;
  int64_t stride = width + (one_in(t, 2) ? random_below(t, 5) : 0);
  s.table_stride = stride == width && one_in(t, 2) ? 0 : stride;
  int32_t most = INT32_MAX / (16 * (int32_t)heads) - 1;
  s.block_table = random_block_table(t, b, one_in(t, 2) ? most : 1000, &s.block_table_stride);
  outputs[0] = make_output(t, "sparse table", rows ? (rows - 1) * stride + width : 0, 4);
  outputs[1] = make_output(t, "context_lens", rows, 4);
  s.table = outputs[0].got;
  s.context_lens = outputs[1].got;
  return s;
}

void want_sparse(const random_batch *rb, const m3idx_sparse_out *s, int64_t heads, int64_t topk,
                 const int32_t *topk_idx, int64_t stride_head, int64_t stride_row, output outputs[2]) {
  int64_t stride = s->table_stride ? s->table_stride : 8 * topk;
  int64_t table_stride = s->block_table_stride ? s->block_table_stride : rb->batch.max_block;
  int32_t *table = outputs[0].want, *context_lens = outputs[1].want;
  for (int64_t row = 0; row < rb->batch.num_rows; row++)
    for (int64_t h = 0; h < heads; h++)
      oracle_sparse(topk_idx + h * stride_head + row * stride_row, topk, rb->rows[row].position,
                    s->block_table + rb->request[row] * table_stride, s->page_stride ? s->page_stride : 8, heads, h,
                    table + (row * heads + h) * stride, context_lens + row * heads + h);
}

/* Ids in and out of range, in random order; in some rows ids stand more than once (S5.2). */
static void random_ids(trial *t, int64_t topk, int64_t blocks, int32_t *ids) {
  static const int32_t bad[] = {-1, -1, -2, INT32_MIN, INT32_MAX};
  int64_t pool = blocks + 3, start = random_below(t, pool), step = 1 + random_below(t, 2);
  bool repeats = one_in(t, 4);
  for (int64_t i = 0; i < topk; i++)
    ids[i] = repeats ? (int32_t)random_below(t, blocks + 1) : i < pool ? (int32_t)((start + i * step) % pool) : -1;
  for (int64_t i = 0; i < topk; i++) {
    int64_t j = random_below(t, topk);
    int32_t swap = ids[i];
    ids[i] = ids[j];
    ids[j] = swap;
  }
  for (int64_t i = 0; i < topk; i++)
    if (one_in(t, 8)) ids[i] = bad[random_below(t, (int64_t)(sizeof bad / sizeof *bad))];
}

verdict random_sparse_table(trial *t) {
  random_batch rb = make_batch(t, 128, one_in(t, 2) ? 700 : 4000);
  const m3idx_batch *b = &rb.batch;
  m3idx_sparse_table_args args = {.batch = b, .num_heads = random_in(t, 1, 4)};
  args.topk = random_topk(t);
  strides s = random_strides(t, args.num_heads, b->num_rows, args.topk);
  int32_t *ids = trial_alloc(t, (size_t)s.elements * sizeof *ids);
  for (int64_t h = 0; h < args.num_heads; h++)
    for (int64_t row = 0; row < b->num_rows; row++)
      random_ids(t, args.topk, rb.rows[row].blocks, ids + h * s.head + row * s.row);
  args.topk_idx = ids;
  args.topk_stride_head = s.told_head;
  args.topk_stride_row = s.told_row;
  output outputs[2];
  args.sparse = random_sparse_out(t, b, args.num_heads, args.topk, outputs);
  want_sparse(&rb, &args.sparse, args.num_heads, args.topk, ids, s.head, s.row, outputs);
  return conclude(t, m3idx_sparse_table(t->ctx, &args), "sparse_table", outputs, 2);
}
