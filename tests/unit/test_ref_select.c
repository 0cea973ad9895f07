/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection and merge of the reference (S3.7, S4).  Expected ids are derived by hand from the contracts.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "m3idx.h"
#include "unit.h"

#define POISON INT32_C(-559038737)

static m3idx_context *ctx;

static m3idx_contract contract_named(const char *name) {
  m3idx_contract contract;
  ck_assert_int_eq(m3idx_contract_by_name(name, &contract), M3IDX_OK);
  return contract;
}

/* S4.1.  One row, one head: ids of the K best of `blocks` scores. */
static void select_ids(const float *score, int32_t blocks, m3idx_contract contract, int64_t init, int64_t local,
                       int64_t topk, int32_t *ids) {
  m3idx_select_args args = {.num_blocks = &blocks,
                            .num_heads = 1,
                            .num_rows = 1,
                            .max_block = blocks,
                            .score = score,
                            .init_blocks = init,
                            .local_blocks = local,
                            .topk = topk,
                            .contract = contract,
                            .topk_idx = ids};
  ck_assert_msg(m3idx_select(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
}

static void expect_ids(const char *what, const int32_t *got, const int32_t *want, int64_t topk) {
  for (int64_t k = 0; k < topk; k++)
    ck_assert_msg(got[k] == want[k], "%s: slot %d: want %d got %d", what, (int)k, want[k], got[k]);
}

/* Id    0   1     2      3      4     5    6   7     8 */
static const uint32_t mixed[] = {
    0x3f800000, /* 0: 1 */
    0x7fc00000, /* 1: NaN */
    0xff800000, /* 2: -inf */
    0xf149f2ca, /* 3: -1e30 */
    0x7f800000, /* 4: +inf */
    0x80000000, /* 5: -0 */
    0x00000000, /* 6: +0 */
    0xffc00001, /* 7: -NaN */
    0x7f800001, /* 8: NaN, signalling */
};
enum { MIXED = sizeof mixed / sizeof *mixed };

static const struct {
  const char *contract;
  int32_t want[MIXED + 1];
} mixed_orders[] = {
    {"vllm", {4, 0, 5, 6, 1, 3, 7, 8, 2, -1}},
    {"aiter", {4, 0, 6, 5, 3, 8, 7, 2, 1, -1}},
    {"atom", {4, 0, 6, 5, 3, 2, 8, 7, 1, -1}},
    {"sglang", {0, 1, 2, 3, 4, 5, 6, 7, 8, -1}},
    {"flashinfer", {0, 1, 2, 3, 4, 5, 6, 7, 8, -1}},
    {"tie=lower,nan=-inf,zero=equal,order=score", {4, 0, 5, 6, 3, 1, 2, 7, 8, -1}},
    {"tie=lower,nan=bits,zero=signed,order=score", {1, 8, 4, 0, 6, 5, 3, 2, 7, -1}},
    {"tie=higher,nan=bits,zero=equal,order=score", {1, 8, 4, 0, 6, 5, 3, 2, 7, -1}},
    {"tie=lower,nan=below,zero=signed,order=score", {4, 0, 6, 5, 3, 2, 1, 7, 8, -1}},
    {"tie=higher,nan=-1e30,zero=signed,order=score", {4, 0, 6, 5, 8, 7, 3, 1, 2, -1}},
};

/* All nine, and the first K of them for every smaller K (by id: the first K by rank, then sorted). */
START_TEST(contracts) {
  float score[MIXED];
  int32_t got[MIXED + 1];
  m3idx_contract contract = contract_named(mixed_orders[_i].contract);
  memcpy(score, mixed, sizeof score);
  select_ids(score, MIXED, contract, 0, 0, MIXED + 1, got);
  expect_ids(mixed_orders[_i].contract, got, mixed_orders[_i].want, MIXED + 1);
  if (contract.order == M3IDX_ORDER_SCORE)
    for (int64_t topk = 1; topk < MIXED; topk++) {
      select_ids(score, MIXED, contract, 0, 0, topk, got);
      expect_ids(mixed_orders[_i].contract, got, mixed_orders[_i].want, topk);
    }
}
END_TEST

/* The two contracts that list ids, at K = 4: the four best by rank. */
START_TEST(order_by_id) {
  static const int32_t sglang[] = {0, 4, 5, 6}, flashinfer[] = {0, 1, 4, 8};
  float score[MIXED];
  int32_t got[4];
  memcpy(score, mixed, sizeof score);
  select_ids(score, MIXED, contract_named("sglang"), 0, 0, 4, got);
  expect_ids("sglang", got, sglang, 4);
  select_ids(score, MIXED, contract_named("flashinfer"), 0, 0, 4, got);
  expect_ids("flashinfer", got, flashinfer, 4);
}
END_TEST

/* S3.7 at selection.  Scores are 0 but for those named. */
static const struct {
  const char *what;
  int32_t blocks;
  int64_t init, local, topk;
  struct {
    int32_t id;
    float score;
  } named[3];
  int32_t want[17];
} forced[] = {
    {"all-equal", 300, 0, 1, 16, {{0, 0}}, {299, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}},
    {"init-eats-local", 40, 16, 1, 16, {{0, 0}}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
    {"overlap", 2, 2, 3, 3, {{0, 0}}, {0, 1, -1}},
    {"overlap in part", 4, 2, 3, 4, {{0, 0}}, {0, 1, 2, 3}},
    {"outrank", 20, 1, 1, 5, {{7, 1e31f}, {9, 2e29f}, {3, 5}}, {7, 0, 9, 19, 3}},
    {"tied with a forced value", 9, 1, 1, 4, {{4, 1e30f}, {5, 1e29f}, {6, -1}}, {0, 4, 5, 8}},
    {"NaN and -inf forced", 3, 1, 1, 3, {{0, NAN}, {2, -INFINITY}, {1, 9}}, {0, 2, 1}},
};

START_TEST(forced_blocks) {
  float score[300] = {0};
  int32_t got[17];
  for (int i = 0; i < 3; i++) score[forced[_i].named[i].id] = forced[_i].named[i].score;
  select_ids(score, forced[_i].blocks, contract_named("vllm"), forced[_i].init, forced[_i].local, forced[_i].topk, got);
  expect_ids(forced[_i].what, got, forced[_i].want, forced[_i].topk);
}
END_TEST

/* nan-vs-sentinel: N = 5 and block 1 is NaN, -inf or -1e30: all five ids, it last. */
START_TEST(nan_vs_sentinel) {
  static const float values[] = {NAN, -INFINITY, -1e30f};
  static const int32_t want[] = {4, 3, 2, 0, 1, -1, -1};
  for (int i = 0; i < 3; i++) {
    float score[] = {1, 0, 2, 3, 4};
    int32_t got[7];
    score[1] = values[i];
    select_ids(score, 5, contract_named("vllm"), 0, 0, 7, got);
    expect_ids("nan-vs-sentinel", got, want, 7);
  }
}
END_TEST

/* Rows of 0..3 blocks of 3 columns, strided input and output, two heads; columns at or past N hold what would
 * win (dirty-tail), and nothing but the K slots is written (out-stride). */
START_TEST(rows_and_strides) {
  enum { T = 4, M = 3, K = 2, IN = 5, OUT = 3, OUT_HEAD = 20 };
  static const int32_t blocks[T] = {0, 1, 2, 3};
  static const int32_t want[2][T][K] = {{{-1, -1}, {0, -1}, {1, 0}, {2, 1}}, {{-1, -1}, {0, -1}, {0, 1}, {0, 1}}};
  float score[2][T][IN];
  int32_t ids[2 * OUT_HEAD];
  for (int h = 0; h < 2; h++)
    for (int t = 0; t < T; t++)
      for (int b = 0; b < IN; b++) score[h][t][b] = b >= blocks[t] ? INFINITY : h ? (float)-b : (float)b;
  for (int i = 0; i < 2 * OUT_HEAD; i++) ids[i] = POISON;
  m3idx_select_args args = {.num_blocks = blocks,
                            .num_heads = 2,
                            .num_rows = T,
                            .max_block = M,
                            .score = score[0][0],
                            .score_stride_row = IN,
                            .topk = K,
                            .topk_idx = ids,
                            .topk_stride_head = OUT_HEAD,
                            .topk_stride_row = OUT};
  ck_assert_msg(m3idx_select(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  for (int i = 0; i < 2 * OUT_HEAD; i++) {
    int h = i / OUT_HEAD, t = i % OUT_HEAD / OUT, k = i % OUT_HEAD % OUT;
    ck_assert_int_eq(ids[i], t < T && k < K ? want[h][t][k] : POISON);
  }
}
END_TEST

/* N from a batch: keys -1, 0, 15, 16 and 17 seen over blocks of 16. */
START_TEST(blocks_from_batch) {
  static const int32_t seq[] = {1, 17};
  static const float score[4][2] = {{1, 2}, {1, 2}, {1, 2}, {1, 2}};
  static const int32_t want[4][2] = {{-1, -1}, {0, -1}, {0, -1}, {1, 0}};
  int32_t ids[4][2];
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = 2,
                             .num_rows = 4,
                             .max_block = 2,
                             .block_size = 16,
                             .decode_query_len = 2,
                             .seq_lens = seq};
  m3idx_select_args args = {
      .batch = &batch, .num_heads = 1, .num_rows = 4, .max_block = 2, .score = score[0], .topk = 2, .topk_idx = ids[0]};
  ck_assert_msg(m3idx_select(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  ck_assert_mem_eq(ids, want, sizeof want);
}
END_TEST

/* Keys written out from S4.3: scores 2, 3 for ids 0, 1; an unused slot is 0. */
START_TEST(keys_of_a_row) {
  static const float score[] = {2, 3};
  static const uint64_t want[] = {UINT64_C(0xc0400000fffffffe), UINT64_C(0xc0000000ffffffff), 0};
  int32_t blocks = 2, ids[3];
  uint64_t keys[3];
  m3idx_select_args args = {.num_blocks = &blocks,
                            .num_heads = 1,
                            .num_rows = 1,
                            .max_block = 2,
                            .score = score,
                            .topk = 3,
                            .topk_idx = ids,
                            .keys = keys};
  ck_assert_int_eq(m3idx_select(ctx, &args), M3IDX_OK);
  ck_assert_mem_eq(keys, want, sizeof want);
  ck_assert_int_eq(ids[0], 1);
  args.contract.order = M3IDX_ORDER_ID; /* keys stay descending */
  memset(keys, 0, sizeof keys);
  ck_assert_int_eq(m3idx_select(ctx, &args), M3IDX_OK);
  ck_assert_mem_eq(keys, want, sizeof want);
  ck_assert_int_eq(ids[0], 0);
  /* The same two columns as ids 5 and 6 of a row of N = 6: only id 5 exists. */
  blocks = 6;
  args.first_block = 5;
  args.topk_idx = NULL;
  ck_assert_msg(m3idx_select(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  ck_assert_uint_eq(keys[0], UINT64_C(0xc0000000fffffffa));
  ck_assert_uint_eq(keys[1], 0);
}
END_TEST

/* S4.5: parts of every width, in reverse order, empty ones included, merge to the whole; forced blocks follow
 * global ids.  The whole is judged by the tests above. */
static const char *const presets[] = {"vllm", "aiter", "atom", "sglang", "flashinfer"};
enum { N = 50, K = 7 };

START_TEST(parts_merge_to_the_whole) {
  static const uint32_t palette[] = {0x7fc00000, 0xffc00000, 0xff800000, 0x80000000, 0, 0x3f800000, 0xf149f2ca, 1};
  m3idx_contract contract = contract_named(presets[_i]);
  float score[N];
  int32_t whole[K], merged[K], blocks = N;
  uint64_t whole_keys[K], keys[N + 1][K], merged_keys[K];
  for (int b = 0; b < N; b++) memcpy(&score[b], &palette[b * 29 % 31 % 8], sizeof *score);
  m3idx_select_args args = {.num_blocks = &blocks,
                            .num_heads = 1,
                            .num_rows = 1,
                            .max_block = N,
                            .score = score,
                            .init_blocks = 1,
                            .local_blocks = 2,
                            .topk = K,
                            .contract = contract,
                            .topk_idx = whole,
                            .keys = whole_keys};
  ck_assert_int_eq(m3idx_select(ctx, &args), M3IDX_OK);
  for (int width = 1; width <= N; width += 6) {
    int parts = N / width + 1; /* the last holds the rest, perhaps nothing */
    args.topk_idx = NULL;
    args.max_block = width;
    args.score_stride_head = args.score_stride_row = 0;
    for (int part = 0; part < parts; part++) {
      float columns[N];
      for (int b = 0; b < width; b++) columns[b] = part * width + b < N ? score[part * width + b] : INFINITY;
      args.score = columns;
      args.first_block = part * width;
      args.keys = keys[parts - 1 - part];
      ck_assert_msg(m3idx_select(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
    }
    m3idx_merge_args merge = {.num_parts = parts,
                              .num_heads = 1,
                              .num_rows = 1,
                              .topk = K,
                              .contract = contract,
                              .keys = keys[0],
                              .topk_idx = merged,
                              .merged_keys = merged_keys};
    ck_assert_msg(m3idx_merge(ctx, &merge) == M3IDX_OK, "%s", m3idx_message(ctx));
    ck_assert_mem_eq(merged, whole, sizeof whole);
    ck_assert_mem_eq(merged_keys, whole_keys, sizeof whole_keys);
  }
}
END_TEST

/* Two heads, two rows, parts in a stride, ids in a view, each output alone; tie lower: id = ~low half. */
START_TEST(merge_layout) {
  enum { PART = 10 };
  static const uint64_t keys[2][PART] = {{UINT64_C(0x9ffffffff), 0, 0, 0, 0, UINT64_C(0x1fffffff0), 0, 0},
                                         {UINT64_C(0xafffffffe), 0, 0, 0, UINT64_C(0x8fffffff1), 0, 0, 0}};
  static const int32_t want[2][2][2] = {{{1, 0}, {-1, -1}}, {{14, 15}, {-1, -1}}};
  static const uint64_t want_keys[8] = {UINT64_C(0xafffffffe), UINT64_C(0x9ffffffff), 0, 0,
                                        UINT64_C(0x8fffffff1), UINT64_C(0x1fffffff0), 0, 0};
  int32_t ids[2][3][3];
  uint64_t merged[8];
  for (int i = 0; i < 18; i++) ids[i / 9][i / 3 % 3][i % 3] = POISON;
  m3idx_merge_args args = {.num_parts = 2,
                           .num_heads = 2,
                           .num_rows = 2,
                           .topk = 2,
                           .keys = keys[0],
                           .keys_stride_part = PART,
                           .topk_idx = ids[0][0],
                           .topk_stride_head = 9,
                           .topk_stride_row = 3};
  ck_assert_msg(m3idx_merge(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  for (int i = 0; i < 18; i++) {
    int h = i / 9, t = i / 3 % 3, k = i % 3;
    ck_assert_int_eq(ids[h][t][k], t < 2 && k < 2 ? want[h][t][k] : POISON);
  }
  args.topk_idx = NULL;
  args.topk_stride_head = args.topk_stride_row = 0;
  args.merged_keys = merged;
  ck_assert_msg(m3idx_merge(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  ck_assert_mem_eq(merged, want_keys, sizeof want_keys);
}
END_TEST

int main(void) {
  const m3idx_options options = {.backend = "ref"};
  if (m3idx_open(&ctx, &options, NULL, 0) != M3IDX_OK) return EXIT_FAILURE;
  Suite *suite = suite_create("ref_select");
  TCase *tcase = tcase_create("ref_select");
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, contracts, 0, sizeof mixed_orders / sizeof *mixed_orders);
  tcase_add_test(tcase, order_by_id);
  tcase_add_loop_test(tcase, forced_blocks, 0, sizeof forced / sizeof *forced);
  tcase_add_test(tcase, nan_vs_sentinel);
  tcase_add_test(tcase, rows_and_strides);
  tcase_add_test(tcase, blocks_from_batch);
  tcase_add_test(tcase, keys_of_a_row);
  tcase_add_loop_test(tcase, parts_merge_to_the_whole, 0, sizeof presets / sizeof *presets);
  tcase_add_test(tcase, merge_layout);
  int status = unit_run(suite);
  m3idx_close(ctx);
  return status;
}
