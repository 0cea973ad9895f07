/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches, pages and tables that broke kernels (S2.3, S3.6, S5, S6), on every backend.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "public_bugs.h"

enum { D = 16 };

/* Query heads are unit vectors, and block b holds one key e_(b mod 4): head h scores 1 at h, h + 4, ..., else 0. */
START_TEST(per_head) {
  enum { H = 4, N = 16, K = 5, B = 128 };
  static float cache[N][B][D];
  m3idx_context *ctx = bug_open(_i);
  float q[H][D] = {{0}}, score[H][N];
  int32_t table[N], seq_len = N * B, ids[H][K], want_ids[H][K];
  uint32_t want[H][N], got[H][N];
  for (int b = 0; b < N; b++) {
    table[b] = b;
    memset(cache[b], 0, sizeof cache[b]);
    cache[b][(37 * b) % B][b % H] = 1;
  }
  for (int h = 0; h < H; h++) {
    q[h][h] = 1;
    for (int b = 0; b < N; b++) want[h][b] = bug_bits(b % H == h ? 1.0f : 0.0f);
    for (int i = 0; i < K; i++) want_ids[h][i] = i < 4 ? h + 4 * i : h == 0; /* then the lowest id that scores 0 */
  }
  m3idx_batch batch = {.mode = M3IDX_DECODE,
                       .num_requests = 1,
                       .num_rows = 1,
                       .max_block = N,
                       .decode_query_len = 1,
                       .seq_lens = &seq_len};
  m3idx_score_args args = {.batch = &batch,
                           .q = {q, M3IDX_F32, {1, H, D}, {0, 0, 0}},
                           .index_k = {cache, M3IDX_F32, {N, B, D}, {0, 0, 0}},
                           .block_table = table,
                           .score = score[0]};
  if (bug_ok(ctx, m3idx_score(ctx, &args))) {
    memcpy(got, score, sizeof got);
    bug_expect((int32_t *)want, (int32_t *)got, H * N, "score");
  }
  m3idx_topk_args fused = {
      .batch = &batch, .q = args.q, .index_k = args.index_k, .block_table = table, .topk = K, .topk_idx = ids[0]};
  if (bug_ok(ctx, m3idx_topk(ctx, &fused))) bug_expect(want_ids[0], ids[0], H * K, "ids");
  m3idx_close(ctx);
}
END_TEST

/* A chunk of a request of 200 keys.  Key t is t + 1, so a row at position p scores min(p + 1, 128) in block 0 and
 * p + 1 in block 1 where it sees that, whatever the prefix before the chunk. */
START_TEST(left_pad) {
  enum { KEYS = 200, M = 2, B = 128 };
  static float cache[M][B][D], q[KEYS][D];
  m3idx_context *ctx = bug_open(_i);
  const int32_t table[M] = {1, 0}, seq_len = KEYS; /* the pages lie the other way round */
  for (int t = 0; t < M * B; t++) cache[1 - t / B][t % B][3] = (float)(t + 1);
  for (int i = 0; i < KEYS; i++) q[i][3] = 1;
  for (int32_t prefix = 0; prefix <= 127; prefix++) {
    int32_t rows = KEYS - prefix, cu[2] = {0, rows}, *got = bug_poisoned(KEYS * M), *want = bug_poisoned(KEYS * M);
    m3idx_batch batch = {.mode = M3IDX_PREFILL,
                         .num_requests = 1,
                         .num_rows = rows,
                         .max_block = M,
                         .seq_lens = &seq_len,
                         .cu_seqlens = cu,
                         .prefix_lens = &prefix};
    m3idx_score_args args = {.batch = &batch,
                             .q = {q, M3IDX_F32, {rows, 1, D}, {0, 0, 0}},
                             .index_k = {cache, M3IDX_F32, {M, B, D}, {0, 0, 0}},
                             .block_table = table,
                             .score = (float *)(void *)got};
    for (int32_t i = 0; i < rows; i++) {
      int32_t sees = prefix + i + 1;
      want[i * M] = (int32_t)bug_bits((float)(sees < B ? sees : B));
      want[i * M + 1] = (int32_t)(sees > B ? bug_bits((float)sees) : 0xff800000);
    }
    if (bug_ok(ctx, m3idx_score(ctx, &args))) bug_expect(want, got, KEYS * M, "score");
    free(want);
    free(got);
  }
  m3idx_close(ctx);
}
END_TEST

/* S2.1: pages 1993 and 1994 begin past 2^31 bytes.  Only touched pages of the mapping take memory. */
START_TEST(page_far) {
  enum { B = 128, DIM = 128, P = 1995, M = 2 };
  const int64_t stride = 1077120 / 2; /* bf16 */
  if (sizeof(size_t) < 8) {
    printf("SKIP page-far: a mapping of 2 GiB needs 64-bit addresses\n");
    return;
  }
  m3idx_context *ctx = bug_open(_i);
  size_t bytes = (size_t)(P * stride) * 2;
  FILE *file = tmpfile(); /* a hole of that size */
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(fseek(file, (long)bytes - 1, SEEK_SET), 0);
  ck_assert_int_eq(fputc(0, file), 0);
  ck_assert_int_eq(fflush(file), 0);
  uint16_t *cache = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
  ck_assert_ptr_ne(cache, MAP_FAILED);
  uint16_t q[DIM] = {0}, keys[2][DIM];
  q[5] = 0x3f80;                                 /* 1 */
  cache[1993 * stride + 127 * DIM + 5] = 0x4000; /* 2 */
  cache[1994 * stride + 3 * DIM + 5] = 0x4040;   /* 3 */
  const int32_t table[M] = {1994, 1993}, seq_len = M * B;
  const int32_t want[M] = {(int32_t)bug_bits(3), (int32_t)bug_bits(2)};
  int32_t *got = bug_poisoned(M);
  m3idx_batch batch = {.mode = M3IDX_DECODE,
                       .num_requests = 1,
                       .num_rows = 1,
                       .max_block = M,
                       .decode_query_len = 1,
                       .seq_lens = &seq_len};
  m3idx_score_args args = {.batch = &batch,
                           .q = {q, M3IDX_BF16, {1, 1, DIM}, {0, 0, 0}},
                           .index_k = {cache, M3IDX_BF16, {P, B, DIM}, {stride, DIM, 1}},
                           .block_table = table,
                           .score = (float *)(void *)got};
  if (bug_ok(ctx, m3idx_score(ctx, &args))) bug_expect(want, got, M, "score");

  /* The same pages for an insert: slots 1993 * 128 + 1 and 1994 * 128 + 2. */
  int64_t slots[2] = {1993 * B + 1, 1994 * B + 2};
  for (int i = 0; i < 2; i++)
    for (int d = 0; d < DIM; d++) keys[i][d] = (uint16_t)(0x1000 * (i + 1) + d);
  m3idx_cache_insert_args insert = {
      .key = {keys, M3IDX_BF16, {1, 2, DIM}, {0, 0, 0}}, .slot_mapping = slots, .cache = args.index_k};
  if (bug_ok(ctx, m3idx_cache_insert(ctx, &insert))) {
    ck_assert_int_eq(memcmp(cache + 1993 * stride + 1 * DIM, keys[0], sizeof keys[0]), 0);
    ck_assert_int_eq(memcmp(cache + 1994 * stride + 2 * DIM, keys[1], sizeof keys[1]), 0);
  }
  free(got);
  munmap(cache, bytes);
  fclose(file);
  m3idx_close(ctx);
}
END_TEST

/* seq_len 2 and four rows: positions -2, -1, 0, 1 see 0, 0, 1, 2 keys of block 0, which lies in page 1. */
START_TEST(qlen_past_seq) {
  enum { T = 4, K = 3, P = 2, B = 128 };
  static float cache[P][B][D], q[T][D];
  m3idx_context *ctx = bug_open(_i);
  const int32_t seq_len = 2, table = 1, want_ids[T][K] = {{-1, -1, -1}, {-1, -1, -1}, {0, -1, -1}, {0, -1, -1}};
  const int32_t want_ctx[T] = {0, 0, 1, 2};
  int32_t ids[T][K], sparse_table[T][8 * K], ctx_lens[T], want_table[T][8 * K] = {{0}}, score[T];
  for (int j = 0; j < 8; j++) want_table[2][j] = want_table[3][j] = 8 + j;
  m3idx_batch batch = {.mode = M3IDX_DECODE,
                       .num_requests = 1,
                       .num_rows = T,
                       .max_block = 1,
                       .decode_query_len = T,
                       .seq_lens = &seq_len};
  for (int t = 0; t < T; t++) q[t][0] = 1;
  for (int t = 0; t < B; t++) cache[1][t][0] = t < 2 ? -(float)(1 + t) : 77;
  m3idx_sparse_out sparse = {.block_table = &table, .table = sparse_table[0], .context_lens = ctx_lens};
  m3idx_topk_args args = {.batch = &batch,
                          .q = {q, M3IDX_F32, {T, 1, D}, {0, 0, 0}},
                          .index_k = {cache, M3IDX_F32, {P, B, D}, {0, 0, 0}},
                          .block_table = &table,
                          .local_blocks = 1,
                          .topk = K,
                          .topk_idx = ids[0],
                          .sparse = &sparse};
  if (bug_ok(ctx, m3idx_topk(ctx, &args))) {
    bug_expect(want_ids[0], ids[0], T * K, "ids");
    bug_expect(want_table[0], sparse_table[0], T * 8 * K, "sparse table");
    bug_expect(want_ctx, ctx_lens, T, "context_lens");
  }
  m3idx_score_args score_args = {
      .batch = &batch, .q = args.q, .index_k = args.index_k, .block_table = &table, .score = (float *)(void *)score};
  const uint32_t want_score[T] = {0xff800000, 0xff800000, 0xbf800000, 0xbf800000}; /* -inf, -inf, -1, -1 */
  if (bug_ok(ctx, m3idx_score(ctx, &score_args))) bug_expect((const int32_t *)want_score, score, T, "score");
  m3idx_close(ctx);
}
END_TEST

/* Request 1 of three is padded: its block table is poison that no page id may come from. */
START_TEST(pad_request) {
  enum { R = 3, K = 2, M = 2, B = 16, P = 4 };
  static float cache[P][B][D], q[R][D];
  m3idx_context *ctx = bug_open(_i);
  const int32_t seq_lens[R] = {20, 0, 32}, table[R][M] = {{3, 1}, {INT32_MAX, -1}, {0, 2}};
  const int32_t want[R][K] = {{1, 0}, {-1, -1}, {1, 0}}; /* keys of page p are p + 1, of 0 and 3 negative */
  int32_t ids[R][K];
  for (int p = 0; p < P; p++)
    for (int t = 0; t < B; t++) cache[p][t][0] = (float)(p % 3 ? p + 1 : -p - 1);
  for (int r = 0; r < R; r++) q[r][0] = 1;
  m3idx_batch batch = {.mode = M3IDX_DECODE,
                       .num_requests = R,
                       .num_rows = R,
                       .max_block = M,
                       .block_size = B,
                       .decode_query_len = 1,
                       .seq_lens = seq_lens};
  m3idx_topk_args args = {.batch = &batch,
                          .q = {q, M3IDX_F32, {R, 1, D}, {0, 0, 0}},
                          .index_k = {cache, M3IDX_F32, {P, B, D}, {0, 0, 0}},
                          .block_table = table[0],
                          .topk = K,
                          .topk_idx = ids[0]};
  if (bug_ok(ctx, m3idx_topk(ctx, &args))) bug_expect(want[0], ids[0], R * K, "ids");
  m3idx_close(ctx);
}
END_TEST

/* A live request past the capacity: refused by every operation that scores, with its outputs as they were. */
START_TEST(over_capacity_batch) {
  enum { M = 2, B = 16 };
  static float cache[4][B][D], q[1][D];
  m3idx_context *ctx = bug_open(_i);
  const int32_t seq_len = M * B + 1, table[M + 1] = {0, 1, 2}, untouched[M] = {BUG_POISON, BUG_POISON};
  int32_t *got = bug_poisoned(M);
  m3idx_batch batch = {.mode = M3IDX_DECODE,
                       .num_requests = 1,
                       .num_rows = 1,
                       .max_block = M,
                       .block_size = B,
                       .decode_query_len = 1,
                       .seq_lens = &seq_len};
  m3idx_score_args score = {.batch = &batch,
                            .q = {q, M3IDX_F32, {1, 1, D}, {0, 0, 0}},
                            .index_k = {cache, M3IDX_F32, {4, B, D}, {0, 0, 0}},
                            .block_table = table,
                            .block_table_stride = M + 1,
                            .score = (float *)(void *)got};
  m3idx_topk_args topk = {.batch = &batch,
                          .q = score.q,
                          .index_k = score.index_k,
                          .block_table = table,
                          .block_table_stride = M + 1,
                          .topk = M,
                          .topk_idx = got};
  ck_assert_int_eq(m3idx_score(ctx, &score), M3IDX_INVALID);
  ck_assert_ptr_nonnull(strstr(m3idx_message(ctx), "33")); /* S7.3: the value */
  ck_assert_int_eq(m3idx_topk(ctx, &topk), M3IDX_INVALID);
  bug_expect(untouched, got, M, "output");
  free(got);
  m3idx_close(ctx);
}
END_TEST

/* Two of five columns are visible; padding of every row is poison, and stays. */
START_TEST(dirty_tail_score) {
  enum { M = 5, STRIDE = 9, B = 16, T = 2 };
  static float cache[2][B][D], q[T][D];
  m3idx_context *ctx = bug_open(_i);
  const int32_t seq_len = 18, table[M] = {0, 1, -1, INT32_MAX, -1};
  int32_t *got = bug_poisoned(T * STRIDE), *want = bug_poisoned(T * STRIDE);
  for (int t = 0; t < T; t++) q[t][0] = 1;
  for (int t = 0; t < B; t++) cache[0][t][0] = 2, cache[1][t][0] = t < 2 ? 3 : 1e9f;
  for (int t = 0; t < T; t++)
    for (int b = 0; b < M; b++)
      want[t * STRIDE + b] = (int32_t)(b == 0 ? bug_bits(2) : b == 1 ? bug_bits(3) : 0xff800000);
  m3idx_batch batch = {.mode = M3IDX_DECODE,
                       .num_requests = 1,
                       .num_rows = T,
                       .max_block = M,
                       .block_size = B,
                       .decode_query_len = T,
                       .seq_lens = &seq_len};
  m3idx_score_args args = {.batch = &batch,
                           .q = {q, M3IDX_F32, {T, 1, D}, {0, 0, 0}},
                           .index_k = {cache, M3IDX_F32, {2, B, D}, {0, 0, 0}},
                           .block_table = table,
                           .score = (float *)(void *)got,
                           .score_stride_row = STRIDE};
  if (bug_ok(ctx, m3idx_score(ctx, &args))) bug_expect(want, got, T * STRIDE + 1, "score");
  free(want);
  free(got);
  m3idx_close(ctx);
}
END_TEST

/* bf16 values, and the codes that S6.2 gives them, worked out by hand; the negatives differ in the sign bit. */
static const struct {
  uint16_t bf16;
  uint8_t e4m3fn, e4m3fnuz, e5m2, e5m2fnuz;
} stores[] = {
    {0x461c, 0x7e, 0x7f, 0x71, 0x75}, /* 9984, bf16's 1e4: saturates; e5m2 10240 = 1.25 * 2^13 */
    {0x43e0, 0x7e, 0x7f, 0x5f, 0x63}, /* 448 = 1.75 * 2^8 */
    {0x43e8, 0x7e, 0x7f, 0x5f, 0x63}, /* 464: half way to the missing 480 in e4m3fn; nearer 448 than 512 in e5m2 */
    {0x4370, 0x77, 0x7f, 0x5c, 0x60}, /* 240 = 1.875 * 2^7; e5m2: a tie of 224 and 256, to even 256 */
    {0x4378, 0x78, 0x7f, 0x5c, 0x60}, /* 248: a tie of 240 and 256, to even 256; saturates in e4m3fnuz */
    {0x3a80, 0x00, 0x01, 0x14, 0x18}, /* 2^-10: a tie of 0 and 2^-9, to even 0; the least of e4m3fnuz */
    {0x0000, 0x00, 0x00, 0x00, 0x00},
};
enum { STORES = sizeof stores / sizeof *stores };

static void expect_stores(m3idx_context *ctx, m3idx_dtype dtype) {
  uint16_t keys[2][D] = {{0}};
  uint8_t cache[1][16][D], want[1][16][D];
  const int64_t slots[2] = {9, 4};
  memset(cache, 0xa5, sizeof cache);
  memset(want, 0xa5, sizeof want);
  for (int negative = 0; negative <= 1; negative++)
    for (int d = 0; d < D; d++) {
      int i = d % STORES;
      bool fnuz = dtype == M3IDX_E4M3FNUZ || dtype == M3IDX_E5M2FNUZ;
      uint8_t code = dtype == M3IDX_E4M3FN     ? stores[i].e4m3fn
                     : dtype == M3IDX_E4M3FNUZ ? stores[i].e4m3fnuz
                     : dtype == M3IDX_E5M2     ? stores[i].e5m2
                                               : stores[i].e5m2fnuz;
      keys[negative][d] = (uint16_t)(stores[i].bf16 | (negative ? 0x8000 : 0));
      want[0][slots[negative]][d] = negative && (code || !fnuz) ? code | 0x80 : code; /* fnuz has no -0 */
    }
  m3idx_cache_insert_args args = {.key = {keys, M3IDX_BF16, {1, 2, D}, {0, 0, 0}},
                                  .slot_mapping = slots,
                                  .cache = {cache, dtype, {1, 16, D}, {0, 0, 0}}};
  if (!bug_ok(ctx, m3idx_cache_insert(ctx, &args))) return;
  for (int t = 0; t < 16; t++)
    for (int d = 0; d < D; d++)
      ck_assert_msg(want[0][t][d] == cache[0][t][d], "%s: row %d element %d: want 0x%02x got 0x%02x",
                    m3idx_dtype_name(dtype), t, d, want[0][t][d], cache[0][t][d]);
}

START_TEST(fp8_store) {
  m3idx_context *ctx = bug_open(_i);
  expect_stores(ctx, M3IDX_E4M3FN);
  expect_stores(ctx, M3IDX_E4M3FNUZ);
  expect_stores(ctx, M3IDX_E5M2);
  expect_stores(ctx, M3IDX_E5M2FNUZ);
  m3idx_close(ctx);
}
END_TEST

/* Slots -1, 0, 129, -1: only page 0 row 0 and page 1 row 1 change. */
START_TEST(slot_neg) {
  enum { P = 3, B = 128, N = 4 };
  static uint16_t cache[P][B][D], want[P][B][D];
  m3idx_context *ctx = bug_open(_i);
  uint16_t keys[N][D];
  const int64_t slots[N] = {-1, 0, 129, -1};
  memset(cache, 0x5a, sizeof cache);
  memset(want, 0x5a, sizeof want);
  for (int i = 0; i < N; i++)
    for (int d = 0; d < D; d++) keys[i][d] = (uint16_t)(100 * i + d);
  memcpy(want[0][0], keys[1], sizeof keys[1]);
  memcpy(want[1][1], keys[2], sizeof keys[2]);
  m3idx_cache_insert_args args = {.key = {keys, M3IDX_BF16, {1, N, D}, {0, 0, 0}},
                                  .slot_mapping = slots,
                                  .cache = {cache, M3IDX_BF16, {P, B, D}, {0, 0, 0}}};
  if (bug_ok(ctx, m3idx_cache_insert(ctx, &args))) ck_assert_int_eq(memcmp(want, cache, sizeof want), 0);
  m3idx_close(ctx);
}
END_TEST

int main(void) {
  const bug bugs[] = {
      {"per-head", per_head},
      {"left-pad", left_pad},
      {"page-far", page_far},
      {"qlen-past-seq", qlen_past_seq},
      {"pad-request", pad_request},
      {"over-capacity (batch)", over_capacity_batch},
      {"dirty-tail (score)", dirty_tail_score},
      {"fp8-store", fp8_store},
      {"slot-neg", slot_neg},
  };
  return bug_main("public bugs: pages", bugs, sizeof bugs / sizeof *bugs);
}
