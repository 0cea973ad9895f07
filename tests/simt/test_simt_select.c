/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection, merging and the sparse table under the SIMT executor, byte for byte against ref (S4, S5, S8.1, S8.2).
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simt_backend.h"
#include "simt_harness.h"

/* Kinds of score arrays; the selector takes any (S4.6). */
enum kind { NORMAL, TIES, SPECIALS, RAMP_UP, RAMP_DOWN, ALL_NAN, KINDS };

static float score_of(enum kind kind, int64_t column, simt_rng *rng) {
  static const uint32_t special[] = {0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000, 0,          0x80000000,
                                     0xf149f2ca, 0x7149f2ca, 0x6fa18f08, 1,          0x80000001, 0xffffffff};
  float value = 0;
  uint32_t bits;
  switch (kind) {
  case NORMAL: return (float)(int32_t)(simt_random(rng) >> 32) * 0x1p-27f;
  case TIES: return (float)simt_below(rng, 4);
  case RAMP_UP: return (float)column;
  case RAMP_DOWN: return (float)-column;
  case ALL_NAN: bits = 0x7fc00000; break;
  default:
    bits = special[simt_below(rng, 12)];
    if (simt_below(rng, 3) == 0) bits = (uint32_t)simt_random(rng);
    break;
  }
  memcpy(&value, &bits, sizeof value);
  return value;
}

typedef struct problem {
  int64_t rows, heads, max_block, topk, init, local, first_block;
  const int32_t *num_blocks;
  m3idx_contract contract;
  enum kind kind;
  bool want_keys, want_ids;
  uint64_t seed;
} problem;

static void describe(const problem *p, const char *arch, char *text, size_t bytes) {
  char contract[64];
  m3idx_contract_name(&p->contract, contract, sizeof contract);
  int used = snprintf(text, bytes,
                      "%s rows %lld heads %lld max_block %lld topk %lld init %lld local %lld first %lld %s "
                      "kind %d seed %llu num_blocks",
                      arch, (long long)p->rows, (long long)p->heads, (long long)p->max_block, (long long)p->topk,
                      (long long)p->init, (long long)p->local, (long long)p->first_block, contract, (int)p->kind,
                      (unsigned long long)p->seed);
  for (int64_t r = 0; r < p->rows && used > 0 && (size_t)used < bytes; r++)
    used += snprintf(text + used, bytes - (size_t)used, "%c%d", r ? ',' : ' ', p->num_blocks[r]);
}

/* One selection by ref and by every machine: rows padded by 3 columns, poison everywhere else. */
static void check_select(const problem *p, const char *only) {
  const int64_t row_stride = p->max_block + 3, head_stride = p->rows * row_stride + 5;
  const int64_t picks = p->rows * p->heads, idx_row = p->topk + 1, idx_head = p->rows * idx_row + 2;
  const size_t score_count = (size_t)(p->heads * head_stride), idx_bytes = (size_t)(p->heads * idx_head) * 4;
  const size_t key_bytes = (size_t)(picks * p->topk) * 8;
  simt_rng rng = {p->seed};
  float *score = malloc((score_count ? score_count : 1) * sizeof *score);
  ck_assert_ptr_nonnull(score);
  memset(score, 0x7f, score_count * sizeof *score); /* columns past N hold what would win */
  for (int64_t h = 0; h < p->heads; h++)
    for (int64_t r = 0; r < p->rows; r++)
      for (int64_t c = 0; c < p->max_block && p->first_block + c < p->num_blocks[r]; c++)
        score[h * head_stride + r * row_stride + c] = score_of(p->kind, c, &rng);

  void *idx[1 + SIMT_ARCHS] = {0}, *keys[1 + SIMT_ARCHS] = {0};
  for (int i = 0; i <= SIMT_ARCHS; i++) {
    const char *arch = i ? simt_archs[i - 1] : "ref";
    char run[4096];
    if (i && only && strcmp(only, arch) != 0) continue;
    describe(p, arch, run, sizeof run);
    idx[i] = simt_buffer(idx_bytes);
    keys[i] = simt_buffer(key_bytes);
    m3idx_select_args args = {.num_blocks = p->num_blocks,
                              .num_heads = p->heads,
                              .num_rows = p->rows,
                              .max_block = p->max_block,
                              .score = score,
                              .score_stride_head = head_stride,
                              .score_stride_row = row_stride,
                              .init_blocks = p->init,
                              .local_blocks = p->local,
                              .topk = p->topk,
                              .contract = p->contract,
                              .first_block = p->first_block,
                              .topk_idx = p->want_ids ? idx[i] : NULL,
                              .topk_stride_head = idx_head,
                              .topk_stride_row = idx_row,
                              .keys = p->want_keys ? keys[i] : NULL};
    m3idx_context *ctx = simt_open(arch);
    m3idx_status status = m3idx_select(ctx, &args);
    ck_assert_msg(status == M3IDX_OK, "%s\n  %s", m3idx_message(ctx), run);
    ck_assert(simt_same("topk_idx", run, idx[0], idx[i], idx_bytes, 4));
    ck_assert(simt_same("keys", run, keys[0], keys[i], key_bytes, 8));
    simt_close(ctx);
  }
  for (int i = 0; i <= SIMT_ARCHS; i++) {
    if (!idx[i]) continue;
    ck_assert(simt_buffer_free(idx[i], idx_bytes));
    ck_assert(simt_buffer_free(keys[i], key_bytes));
  }
  free(score);
}

static const char *const contracts[] = {"vllm", "aiter", "atom", "sglang", "flashinfer"};
enum { CONTRACTS = 5 };

static m3idx_contract contract_at(int i) {
  m3idx_contract c;
  ck_assert(m3idx_contract_by_name(contracts[i % CONTRACTS], &c) == M3IDX_OK);
  return c;
}

/* S8.1's table: each geometry with full, partial and empty rows. */
static const struct {
  int64_t max_block, rows, heads, topk;
} policy_rows[] = {{0, 24, 1, 16},    {1, 1, 1, 16},      {74, 4, 1, 16},   {128, 4, 1, 16},  {129, 4, 1, 16},
                   {512, 4, 1, 16},   {513, 24, 4, 16},   {2760, 5, 2, 16}, {8192, 4, 1, 16}, {8193, 4, 1, 16},
                   {8193, 16, 1, 16}, {20000, 64, 1, 16}, {513, 16, 1, 13}, {513, 16, 4, 16}, {8193, 1, 1, 16}};
START_TEST(policy_row) {
  int32_t n[64];
  simt_rng rng = {(uint64_t)_i};
  problem p = {.rows = policy_rows[_i].rows,
               .heads = policy_rows[_i].heads,
               .max_block = policy_rows[_i].max_block,
               .topk = policy_rows[_i].topk,
               .local = 1,
               .num_blocks = n,
               .contract = contract_at(_i),
               .kind = _i % 2 ? TIES : NORMAL,
               .want_ids = true,
               .want_keys = true,
               .seed = (uint64_t)_i + 1};
  if (!simt_full() && p.rows * p.max_block > 20000) p.rows = 3, p.heads = 1;
  for (int64_t r = 0; r < p.rows; r++)
    n[r] = (int32_t)(r == 0 ? p.max_block : r == 1 ? 0 : simt_below(&rng, p.max_block + 1));
  check_select(&p, NULL);
}
END_TEST

/* Live block counts around every width the kernels know, under each capacity that gives a geometry. */
static const int32_t edges[] = {0,   1,   15,  16,  17,  31,  32,  33,   63,   64,   65,   127,  128, 129,
                                130, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 8191, 8192, 8193};
enum { EDGES = sizeof edges / sizeof *edges };
START_TEST(edge) {
  const int32_t n = edges[_i];
  const int64_t capacities[] = {128, 129, 8192, 8193, 16500};
  for (int c = 0; c < 5; c++) {
    if (capacities[c] < n || (!simt_full() && n > 2000 && capacities[c] > 10000)) continue;
    int32_t rows[2] = {n, n > 0 ? n - 1 : 0};
    problem p = {.rows = 2,
                 .heads = 1,
                 .max_block = capacities[c],
                 .topk = 16,
                 .local = 1,
                 .num_blocks = rows,
                 .contract = contract_at(_i + c),
                 .kind = (enum kind)((_i + c) % KINDS),
                 .want_ids = true,
                 .want_keys = true,
                 .seed = (uint64_t)(100 + _i)};
    check_select(&p, NULL);
    p.topk = (_i % 3) ? 13 : 128; /* off the special geometries */
    if (n <= 1025 || simt_full()) check_select(&p, simt_archs[_i % SIMT_ARCHS]);
  }
}
END_TEST

/* Every contract on every kind, K from 1 to 128, forced blocks of every overlap. */
START_TEST(contract_kind) {
  static const int64_t topks[] = {1, 2, 3, 16, 16, 17, 64, 128};
  static const int64_t forced[][2] = {{0, 0}, {0, 1}, {2, 3}, {16, 1}, {1, 600}, {INT64_MAX, INT64_MAX}};
  const int contract = _i % CONTRACTS, kind = _i / CONTRACTS;
  for (int i = 0; i < (simt_full() ? 48 : 8); i++) {
    int32_t n[3] = {300, 40, 2};
    problem p = {.rows = 3,
                 .heads = 2,
                 .max_block = i % 4 ? 300 : 9000,
                 .topk = topks[i % 8],
                 .num_blocks = n,
                 .init = forced[(i + _i) % 6][0],
                 .local = forced[(i + _i) % 6][1],
                 .contract = contract_at(contract),
                 .kind = (enum kind)kind,
                 .want_ids = i % 5 != 4,
                 .want_keys = i % 3 != 1 || i % 5 == 4,
                 .seed = (uint64_t)(1000 * _i + i)};
    check_select(&p, simt_full() ? NULL : simt_archs[(i + _i) % SIMT_ARCHS]);
  }
}
END_TEST

/* Orders of arrival: one problem, many seeds of the executor. */
START_TEST(arrival_order) {
  int32_t n[4] = {700, 513, 129, 2048};
  for (uint64_t seed = 1; seed <= (simt_full() ? 100u : 10u); seed++) {
    simt_backend_seed(seed);
    problem p = {.rows = 4,
                 .heads = 1,
                 .max_block = 2048,
                 .topk = 16,
                 .local = 1,
                 .num_blocks = n,
                 .contract = contract_at(_i),
                 .kind = TIES,
                 .want_ids = true,
                 .want_keys = true,
                 .seed = 5};
    check_select(&p, simt_archs[(int)seed % SIMT_ARCHS]);
    p.max_block = 20000;
    p.topk = 20;
    check_select(&p, simt_archs[(int)seed % SIMT_ARCHS]);
  }
  simt_backend_seed(1);
}
END_TEST

/* A part begins at any block, and parts merge to the whole (S4.4, S4.5). */
START_TEST(parts_merge) {
  enum { ROWS = 3, HEADS = 2, BLOCKS = 700 };
  const int64_t topk = (int64_t[]){1, 5, 16, 100, 128}[_i], cuts = 1 + _i * 3;
  const m3idx_contract contract = contract_at(_i + 1);
  int32_t n[ROWS] = {BLOCKS, 333, 1};
  static float score[HEADS * ROWS * BLOCKS];
  simt_rng rng = {(uint64_t)_i};
  for (int i = 0; i < HEADS * ROWS * BLOCKS; i++) score[i] = score_of(_i % 2 ? TIES : SPECIALS, i, &rng);
  const size_t row_keys = (size_t)(HEADS * ROWS * topk);
  uint64_t *parts = malloc((size_t)cuts * row_keys * sizeof *parts);
  int32_t *ids[2] = {simt_buffer(row_keys * 4), simt_buffer(row_keys * 4)};
  uint64_t *keys[2] = {simt_buffer(row_keys * 8), simt_buffer(row_keys * 8)};
  m3idx_select_args whole = {.num_blocks = n,
                             .num_heads = HEADS,
                             .num_rows = ROWS,
                             .max_block = BLOCKS,
                             .score = score,
                             .init_blocks = 2,
                             .local_blocks = 1,
                             .topk = topk,
                             .contract = contract,
                             .topk_idx = ids[0],
                             .keys = keys[0]};
  m3idx_context *ref = simt_open("ref");
  ck_assert_int_eq(m3idx_select(ref, &whole), M3IDX_OK);
  for (int a = 0; a < SIMT_ARCHS; a++) {
    m3idx_context *ctx = simt_open(simt_archs[a]);
    for (int64_t c = 0; c < cuts; c++) {
      m3idx_select_args part = whole;
      part.first_block = BLOCKS * c / cuts;
      part.max_block = BLOCKS * (c + 1) / cuts - part.first_block;
      part.score = score + part.first_block;
      part.score_stride_row = BLOCKS;
      part.score_stride_head = ROWS * BLOCKS;
      part.topk_idx = NULL;
      part.keys = parts + (size_t)c * row_keys;
      ck_assert_msg(m3idx_select(ctx, &part) == M3IDX_OK, "%s", m3idx_message(ctx));
    }
    m3idx_merge_args merge = {.num_parts = cuts,
                              .num_heads = HEADS,
                              .num_rows = ROWS,
                              .topk = topk,
                              .contract = contract,
                              .keys = parts,
                              .topk_idx = ids[1],
                              .merged_keys = keys[1]};
    ck_assert_msg(m3idx_merge(ctx, &merge) == M3IDX_OK, "%s", m3idx_message(ctx));
    ck_assert(simt_same("merged topk_idx", simt_archs[a], ids[0], ids[1], row_keys * 4, 4));
    ck_assert(simt_same("merged keys", simt_archs[a], keys[0], keys[1], row_keys * 8, 8));
    simt_close(ctx);
  }
  simt_close(ref);
  for (int i = 0; i < 2; i++)
    ck_assert(simt_buffer_free(ids[i], row_keys * 4) && simt_buffer_free(keys[i], row_keys * 8));
  free(parts);
}
END_TEST

/* Batches instead of num_blocks: decode with padded requests and rows before the sequence, and prefill. */
START_TEST(from_batch) {
  static const int32_t decode_seq[] = {0, 2, 4, 70000, 127, 128, 129}, prefill_seq[] = {0, 300, 66000, 5},
                       cu[] = {0, 0, 40, 73, 78}, prefix[] = {0, 260, 65967, 0};
  const bool prefill = _i % 2;
  m3idx_batch batch = {.mode = prefill ? M3IDX_PREFILL : M3IDX_DECODE,
                       .num_requests = prefill ? 4 : 7,
                       .num_rows = prefill ? 78 : 28,
                       .max_block = 600,
                       .decode_query_len = prefill ? 0 : 4,
                       .block_size = 128,
                       .seq_lens = prefill ? prefill_seq : decode_seq,
                       .cu_seqlens = prefill ? cu : NULL,
                       .prefix_lens = prefill ? prefix : NULL};
  const int64_t heads = 2, topk = (int64_t[]){16, 40, 64, 128}[_i / 2];
  const size_t scores = (size_t)(heads * batch.num_rows * batch.max_block);
  const size_t idx_bytes = (size_t)(heads * batch.num_rows * topk) * 4;
  const size_t table_bytes = idx_bytes * 8, ctx_bytes = (size_t)(heads * batch.num_rows) * 4;
  float *score = malloc(scores * sizeof *score);
  simt_rng rng = {(uint64_t)_i};
  for (size_t i = 0; i < scores; i++) score[i] = score_of(_i / 4 ? SPECIALS : NORMAL, 0, &rng);
  int32_t *pages = malloc(sizeof *pages * (size_t)(batch.num_requests * batch.max_block));
  for (int64_t i = 0; i < batch.num_requests * batch.max_block; i++) pages[i] = (int32_t)simt_below(&rng, 1 << 20);
  int32_t *idx[2], *table[2], *context[2];
  for (int i = 0; i < 2; i++) {
    idx[i] = simt_buffer(idx_bytes);
    table[i] = simt_buffer(table_bytes);
    context[i] = simt_buffer(ctx_bytes);
  }
  for (int a = -1; a < SIMT_ARCHS; a++) {
    const char *arch = a < 0 ? "ref" : simt_archs[a];
    const int to = a >= 0;
    m3idx_context *ctx = simt_open(arch);
    m3idx_select_args args = {.batch = &batch,
                              .num_heads = heads,
                              .num_rows = batch.num_rows,
                              .max_block = batch.max_block,
                              .score = score,
                              .local_blocks = 1,
                              .topk = topk,
                              .contract = contract_at(_i),
                              .topk_idx = idx[to]};
    ck_assert_msg(m3idx_select(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
    m3idx_sparse_table_args sparse = {
        .batch = &batch,
        .num_heads = heads,
        .topk = topk,
        .topk_idx = idx[to],
        .sparse = {
            .block_table = pages, .page_stride = _i % 3 ? 8 : 16, .table = table[to], .context_lens = context[to]}};
    ck_assert_msg(m3idx_sparse_table(ctx, &sparse) == M3IDX_OK, "%s", m3idx_message(ctx));
    ck_assert(simt_same("topk_idx", arch, idx[0], idx[to], idx_bytes, 4));
    ck_assert(simt_same("table", arch, table[0], table[to], table_bytes, 4));
    ck_assert(simt_same("context_lens", arch, context[0], context[to], ctx_bytes, 4));
    simt_close(ctx);
  }
  for (int i = 0; i < 2; i++)
    ck_assert(simt_buffer_free(idx[i], idx_bytes) && simt_buffer_free(table[i], table_bytes) &&
              simt_buffer_free(context[i], ctx_bytes));
  free(pages);
  free(score);
}
END_TEST

/* Ids that no selection gives.  Those past the row's own block are invalid (S5.2) wherever they stand: before, after
 * and without the row's own.  Repeated ones fill the table each time, and the context length is clamped (S5.3). */
START_TEST(odd_ids) {
  enum { ROWS = 6, TOPK = 6, M = 7 };
  static const int32_t seq_lens[ROWS] = {300, 300, 300, 1, 0, 130},
                       idx[ROWS * TOPK] = {5, 1, 2, 0,  3,  -1, /* self is 2 */
                                           0, 6, 1, 4,  -1, 3,  /* no tail: context is that of the full ones */
                                           4, 3, 5, 6,  -1, -1, /* nothing valid */
                                           1, 0, 2, -1, 3,  -1, /* self is 0 */
                                           0, 2, 1, -1, 4,  3,  /* padded */
                                           0, 0, 2, 0,  -1, 0}; /* no tail, block 0 four times */
  static int32_t pages[ROWS * M];
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = ROWS,
                             .num_rows = ROWS,
                             .max_block = M,
                             .decode_query_len = 1,
                             .block_size = 128,
                             .seq_lens = seq_lens};
  const size_t table_bytes = sizeof(int32_t) * ROWS * TOPK * 8, context_bytes = sizeof(int32_t) * ROWS;
  for (int i = 0; i < ROWS * M; i++) pages[i] = 1000 + 17 * i;
  int32_t *table[1 + SIMT_ARCHS], *context[1 + SIMT_ARCHS];
  for (int a = 0; a <= SIMT_ARCHS; a++) {
    const char *arch = a ? simt_archs[a - 1] : "ref";
    m3idx_context *ctx = simt_open(arch);
    table[a] = simt_buffer(table_bytes);
    context[a] = simt_buffer(context_bytes);
    const m3idx_sparse_table_args args = {
        .batch = &batch,
        .num_heads = 1,
        .topk = TOPK,
        .topk_idx = idx,
        .sparse = {.block_table = pages, .page_stride = 8, .table = table[a], .context_lens = context[a]}};
    ck_assert_msg(m3idx_sparse_table(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
    ck_assert(simt_same("table", arch, table[0], table[a], table_bytes, 4));
    ck_assert(simt_same("context_lens", arch, context[0], context[a], context_bytes, 4));
    /* By hand: full blocks 1 and 0, then 44 tokens of block 2. */
    ck_assert_int_eq(table[a][0], pages[1] * 8);
    ck_assert_int_eq(table[a][16], pages[2] * 8);
    ck_assert_int_eq(table[a][24], 0);
    ck_assert_int_eq(context[a][0], 2 * 128 + 44);
    ck_assert_int_eq(context[a][1], 2 * 128);
    ck_assert_int_eq(context[a][2], 0);
    ck_assert_int_eq(context[a][5], 130);
    simt_close(ctx);
  }
  for (int a = 0; a <= SIMT_ARCHS; a++)
    ck_assert(simt_buffer_free(table[a], table_bytes) && simt_buffer_free(context[a], context_bytes));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("simt_select");
  TCase *tcase = tcase_create("select");
  tcase_set_timeout(tcase, 0);
  tcase_add_test(tcase, odd_ids);
  tcase_add_loop_test(tcase, policy_row, 0, (int)(sizeof policy_rows / sizeof *policy_rows));
  tcase_add_loop_test(tcase, edge, 0, EDGES);
  tcase_add_loop_test(tcase, contract_kind, 0, CONTRACTS * KINDS);
  tcase_add_loop_test(tcase, arrival_order, 0, CONTRACTS);
  tcase_add_loop_test(tcase, parts_merge, 0, 5);
  tcase_add_loop_test(tcase, from_batch, 0, 8);
  suite_add_tcase(suite, tcase);
  return simt_run(suite);
}
