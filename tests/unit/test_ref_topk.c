/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused selection of the reference: the same ids, table and lengths as its stages in sequence (S1.1), and
 * cases by hand.
 */
#include <string.h>

#include "m3idx.h"
#include "unit.h"

enum { D = 16, H = 3, R = 3, PAGES = 4, M = 4, K = 3, MAX_T = 9 };

static m3idx_context *ctx;
static uint8_t q[MAX_T][H][D], k[PAGES][128][D];

static const int32_t decode_seq[R] = {2, 500, 129}, prefill_seq[R] = {2, 500, 131};
static const int32_t cu[R + 1] = {0, 2, 2, 9}, prefix[R] = {0, 0, 124};
static const int32_t block_table[R][M] = {{1, -1, -1, -1}, {3, 2, 1, 0}, {0, 3, -1, -1}};
static const m3idx_batch batches[2] = {{.mode = M3IDX_DECODE,
                                        .num_requests = R,
                                        .num_rows = 9,
                                        .max_block = M,
                                        .decode_query_len = 3,
                                        .seq_lens = decode_seq},
                                       {.mode = M3IDX_PREFILL,
                                        .num_requests = R,
                                        .num_rows = 9,
                                        .max_block = M,
                                        .seq_lens = prefill_seq,
                                        .cu_seqlens = cu,
                                        .prefix_lens = prefix}};

/* Bytes with many equal and some special values, from a small generator. */
static void fill(uint8_t *bytes, size_t n, uint32_t seed) {
  static const uint8_t palette[16] = {0x00, 0x80, 0x38, 0xb8, 0x40, 0xc0, 0x01, 0x81,
                                      0x30, 0x28, 0x38, 0x3a, 0xb4, 0x7e, 0x00, 0x39};
  for (size_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    bytes[i] = seed >> 20 & 0xfff ? palette[seed >> 28] : 0x7f; /* a NaN now and then */
  }
}

START_TEST(fused_equals_stages) {
  static const char *const contracts[] = {"vllm", "aiter", "atom", "sglang", "flashinfer"};
  const m3idx_batch *batch = &batches[_i / 5];
  static float score[H][MAX_T][M];
  static int32_t want[H][MAX_T][K], got[H][MAX_T][K], want_table[MAX_T][H][8 * K], got_table[MAX_T][H][8 * K];
  static int32_t want_context[MAX_T][H], got_context[MAX_T][H];
  m3idx_contract contract;
  ck_assert_int_eq(m3idx_contract_by_name(contracts[_i % 5], &contract), M3IDX_OK);
  fill(q[0][0], sizeof q, 7 + (uint32_t)_i);
  fill(k[0][0], sizeof k, 1 + (uint32_t)_i);
  m3idx_sparse_out sparse = {.block_table = block_table[0], .table = want_table[0][0], .context_lens = want_context[0]};

  m3idx_score_args score_args = {.batch = batch, .block_table = block_table[0], .scale = 0.375f, .score = score[0][0]};
  score_args.q = (m3idx_tensor){q, M3IDX_E4M3FN, {batch->num_rows, H, D}, {0}};
  score_args.index_k = (m3idx_tensor){k, M3IDX_E5M2, {PAGES, 128, D}, {0}};
  ck_assert_msg(m3idx_score(ctx, &score_args) == M3IDX_OK, "%s", m3idx_message(ctx));
  m3idx_select_args select = {.batch = batch,
                              .num_heads = H,
                              .num_rows = batch->num_rows,
                              .max_block = M,
                              .score = score[0][0],
                              .init_blocks = 1,
                              .local_blocks = 1,
                              .topk = K,
                              .contract = contract,
                              .topk_idx = want[0][0]};
  ck_assert_msg(m3idx_select(ctx, &select) == M3IDX_OK, "%s", m3idx_message(ctx));
  m3idx_sparse_table_args table = {.batch = batch, .num_heads = H, .topk = K, .topk_idx = want[0][0], .sparse = sparse};
  ck_assert_msg(m3idx_sparse_table(ctx, &table) == M3IDX_OK, "%s", m3idx_message(ctx));

  sparse.table = got_table[0][0];
  sparse.context_lens = got_context[0];
  m3idx_topk_args fused = {.batch = batch,
                           .q = score_args.q,
                           .index_k = score_args.index_k,
                           .block_table = block_table[0],
                           .scale = 0.375f,
                           .init_blocks = 1,
                           .local_blocks = 1,
                           .topk = K,
                           .contract = contract,
                           .topk_idx = got[0][0],
                           .sparse = &sparse};
  ck_assert_msg(m3idx_topk(ctx, &fused) == M3IDX_OK, "%s", m3idx_message(ctx));
  ck_assert_mem_eq(got, want, sizeof want);
  ck_assert_mem_eq(got_table, want_table, sizeof want_table);
  ck_assert_mem_eq(got_context, want_context, sizeof want_context);
}
END_TEST

/* per-head: q of head h is e_h, block b holds one key e_(b mod 3): head 0 finds blocks 0 and 3, others one;
 * ids go into a view and nothing around it is written. */
START_TEST(per_head) {
  static const int32_t seq = 500, want[H][K] = {{0, 3, 1}, {1, 0, 2}, {2, 0, 1}};
  int32_t ids[H][2][K + 1];
  const m3idx_batch batch = {
      .mode = M3IDX_DECODE, .num_requests = 1, .num_rows = 1, .max_block = M, .decode_query_len = 1, .seq_lens = &seq};
  memset(q, 0, sizeof q);
  memset(k, 0, sizeof k);
  for (int h = 0; h < H; h++) q[0][h][h] = 0x38;
  for (int b = 0; b < 4; b++) k[block_table[1][b]][100][b % 3] = 0x38;
  memset(ids, 0x5a, sizeof ids);
  m3idx_topk_args args = {.batch = &batch,
                          .block_table = block_table[1],
                          .topk = K,
                          .topk_idx = ids[0][0],
                          .topk_stride_head = 2 * (K + 1),
                          .topk_stride_row = K + 1};
  args.q = (m3idx_tensor){q, M3IDX_E4M3FN, {1, H, D}, {0}};
  args.index_k = (m3idx_tensor){k, M3IDX_E4M3FN, {PAGES, 128, D}, {0}};
  ck_assert_msg(m3idx_topk(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  for (int i = 0; i < H * 2 * (K + 1); i++) {
    int h = i / 2 / (K + 1), t = i / (K + 1) % 2, slot = i % (K + 1);
    ck_assert_int_eq(ids[h][t][slot], t == 0 && slot < K ? want[h][slot] : 0x5a5a5a5a);
  }
}
END_TEST

int main(void) {
  const m3idx_options options = {.backend = "ref"};
  if (m3idx_open(&ctx, &options, NULL, 0) != M3IDX_OK) return EXIT_FAILURE;
  Suite *suite = suite_create("ref_topk");
  TCase *tcase = tcase_create("ref_topk");
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, fused_equals_stages, 0, 10);
  tcase_add_test(tcase, per_head);
  int status = unit_run(suite);
  m3idx_close(ctx);
  return status;
}
