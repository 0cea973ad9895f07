/* SPDX-License-Identifier: Apache-2.0
 *
 * The page-16 sparse table and context lengths (S5), by hand.
 */
#include <stdint.h>
#include <string.h>

#include "m3idx.h"
#include "unit.h"

enum { K = 4, WIDTH = 8 * K, PADDED = WIDTH + 3 };
#define POISON INT32_C(-559038737)

static m3idx_context *ctx;

/* One decode row of `seq_len` keys at position seq_len - 1; page of block b is 10 + b.  A block's eight
 * entries begin at want * page_stride: want lists the pages, 0 ends. */
static const struct {
  const char *what;
  int32_t seq_len, ids[K], want[K], context;
} rows[] = {
    {"full blocks in their order, tail last", 600, {4, 2, 0, 3}, {12, 10, 13, 14}, 128 * 3 + 600 - 512},
    {"tail of one token", 513, {1, 4, -1, -1}, {11, 14}, 128 + 1},
    {"tail of 128 tokens", 640, {4, -1, -1, -1}, {14}, 128},
    {"no tail", 600, {1, 0, -1, -1}, {11, 10}, 256},
    {"no tail, all visible", 512, {2, 1, 0, -1}, {12, 11, 10}, 384},
    {"ids past self are invalid", 200, {2, 1, 0, 4}, {10, 11}, 128 + 72},
    {"only invalid", 100, {3, 1, -1, -7}, {0}, 0},
    {"the first token", 1, {0, -1, -1, -1}, {10}, 1},
    {"a -1 between", 300, {-1, 0, -1, 2}, {10, 12}, 128 + 44},
    {"a full id twice counts twice, the tail once", 600, {4, 1, 4, 1}, {11, 11, 14}, 256 + 88},
    {"without a tail never past causal", 129, {0, 0, -1, -1}, {10, 10}, 129},
    {"an empty request", 0, {0, 1, -1, -1}, {0}, 0},
};

START_TEST(one_row) {
  static const int32_t block_table[5] = {10, 11, 12, 13, 14};
  for (int32_t stride = 8; stride <= 16; stride += 8) {
    int32_t table[PADDED], context = POISON;
    const m3idx_batch batch = {.mode = M3IDX_DECODE,
                               .num_requests = 1,
                               .num_rows = 1,
                               .max_block = 5,
                               .decode_query_len = 1,
                               .seq_lens = &rows[_i].seq_len};
    m3idx_sparse_table_args args = {.batch = &batch,
                                    .num_heads = 1,
                                    .topk = K,
                                    .topk_idx = rows[_i].ids,
                                    .sparse = {.block_table = block_table,
                                               .page_stride = stride == 8 ? 0 : stride,
                                               .table = table,
                                               .table_stride = PADDED,
                                               .context_lens = &context}};
    for (int i = 0; i < PADDED; i++) table[i] = POISON;
    ck_assert_msg(m3idx_sparse_table(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
    ck_assert_msg(context == rows[_i].context, "%s: want ctx %d got %d", rows[_i].what, rows[_i].context, context);
    for (int i = 0; i < PADDED; i++) {
      int32_t page = i < WIDTH ? rows[_i].want[i / 8] : 0;
      int32_t want = i >= WIDTH ? POISON : page ? page * stride + i % 8 : 0;
      ck_assert_msg(table[i] == want, "%s: entry %d: want %d got %d", rows[_i].what, i, want, table[i]);
    }
  }
}
END_TEST

/* S5.4, S5.5: two heads, head-minor; two requests of one live row each and one row before its first key. */
START_TEST(head_minor_prefill_and_padded) {
  enum { H = 2, T = 4 };
  static const int32_t seq[] = {1, 200}, block_table[2][3] = {{5, 77, 77}, {6, 7, 77}};
  /* Rows 0 and 1: positions -1 and 0; rows 2 and 3: 198 and 199.  [H][T][K = 2] in rows of 3. */
  static const int32_t ids[H][T][3] = {{{0, -1, 9}, {0, -1, 9}, {1, 0, 9}, {0, -1, 9}},
                                       {{0, -1, 9}, {-1, -1, 9}, {0, 1, 9}, {1, -1, 9}}};
  static const int32_t want_context[T][H] = {{0, 0}, {1, 0}, {128 + 71, 128 + 71}, {128, 72}};
  static const int32_t want_pages[T][H][2] = {{{0, 0}, {0, 0}}, {{5, 0}, {0, 0}}, {{6, 7}, {6, 7}}, {{6, 0}, {7, 0}}};
  int32_t table[T][H][16], context[T][H];
  const m3idx_batch batch = {
      .mode = M3IDX_DECODE, .num_requests = 2, .num_rows = T, .max_block = 2, .decode_query_len = 2, .seq_lens = seq};
  m3idx_sparse_table_args args = {
      .batch = &batch,
      .num_heads = H,
      .topk = 2,
      .topk_idx = ids[0][0],
      .topk_stride_row = 3,
      .sparse = {
          .block_table = block_table[0], .block_table_stride = 3, .table = table[0][0], .context_lens = context[0]}};
  memset(table, 0x5a, sizeof table);
  ck_assert_msg(m3idx_sparse_table(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  for (int i = 0; i < T * H * 16; i++) {
    int t = i / 16 / H, h = i / 16 % H, slot = i % 16, page = want_pages[t][h][slot / 8];
    ck_assert_int_eq(table[t][h][slot], page ? (page * 8 + slot % 8) * H + h : 0);
    ck_assert_int_eq(context[t][h], want_context[t][h]);
  }

  /* The same rows as a prefill chunk whose first request is empty. */
  static const int32_t cu[] = {0, 0, 2}, prefix[] = {0, 198}, prefill_seq[] = {0, 200};
  const m3idx_batch prefill = {.mode = M3IDX_PREFILL,
                               .num_requests = 2,
                               .num_rows = 2,
                               .max_block = 2,
                               .seq_lens = prefill_seq,
                               .cu_seqlens = cu,
                               .prefix_lens = prefix};
  args.batch = &prefill;
  args.topk_idx = ids[0][2];
  args.topk_stride_head = T * 3;
  memset(table, 0x5a, sizeof table);
  ck_assert_msg(m3idx_sparse_table(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  for (int i = 0; i < 2 * H * 16; i++) {
    int t = i / 16 / H, h = i / 16 % H, slot = i % 16, page = want_pages[t + 2][h][slot / 8];
    ck_assert_int_eq(table[t][h][slot], page ? (page * 8 + slot % 8) * H + h : 0);
    ck_assert_int_eq(context[t][h], want_context[t + 2][h]);
  }
}
END_TEST

int main(void) {
  const m3idx_options options = {.backend = "ref"};
  if (m3idx_open(&ctx, &options, NULL, 0) != M3IDX_OK) return EXIT_FAILURE;
  Suite *suite = suite_create("ref_sparse");
  TCase *tcase = tcase_create("ref_sparse");
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, one_row, 0, sizeof rows / sizeof *rows);
  tcase_add_test(tcase, head_minor_prefill_and_padded);
  int status = unit_run(suite);
  m3idx_close(ctx);
  return status;
}
