/* SPDX-License-Identifier: Apache-2.0
 *
 * Dots that broke scorers (S3), on every backend: rounding, cancellation, special codes.  Each block of a call holds
 * one key, so each expected value is the rounding of one dot.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "public_bugs.h"

enum { D = 16 };
static const uint32_t plus_inf = 0x7f800000, quiet_nan = 0x7fc00000, one_bits = 0x3f800000;

/* f32 queries and keys given as doubles that f32 holds. */
static void expect_dots(m3idx_context *ctx, const float q[D], float (*keys)[D], int64_t blocks, const uint32_t *want) {
  bug_dots dots = {.q_dtype = M3IDX_F32, .k_dtype = M3IDX_F32, .q = q, .keys = keys, .dim = D, .blocks = blocks};
  bug_score_expect(ctx, &dots, want);
}

/* 2^30, -2^30 and 2^-20 at every three places. */
START_TEST(cancel) {
  enum { PLACES = D * (D - 1) * (D - 2) };
  m3idx_context *ctx = bug_open(_i);
  float q[D], (*keys)[D] = calloc(PLACES, sizeof *keys);
  uint32_t *want = calloc(PLACES, sizeof *want);
  ck_assert(keys && want);
  int n = 0;
  for (int i = 0; i < D; i++) {
    q[i] = ldexpf(1, 12);
    for (int j = 0; j < D; j++)
      for (int k = 0; k < D; k++) {
        if (i == j || j == k || k == i) continue;
        keys[n][i] = ldexpf(1, 18);
        keys[n][j] = ldexpf(-1, 18);
        keys[n][k] = ldexpf(1, -32);
        want[n++] = bug_bits(ldexpf(1, -20));
      }
  }
  ck_assert_int_eq(n, PLACES);
  expect_dots(ctx, q, keys, n, want);
  free(want);
  free(keys);
  m3idx_close(ctx);
}
END_TEST

/* Blocks 0 and 1: 1 + 2^-23 / 4 and 1, both 1 in binary32, so block 0 comes first; 2 and 3 the other way round.
 * Block 4 with 1 + 2^-23 is the best, 5 to 7 hold 0. */
START_TEST(tie_round) {
  enum { N = 8 };
  m3idx_context *ctx = bug_open(_i);
  float q[D], keys[N][D] = {{0}};
  for (int d = 0; d < D; d++) q[d] = 1;
  for (int b = 0; b < 4; b++) keys[b][0] = 1;
  keys[0][5] = ldexpf(1, -25);
  keys[3][5] = ldexpf(1, -25);
  keys[4][0] = 1 + ldexpf(1, -23);
  const uint32_t want[N] = {one_bits, one_bits, one_bits, one_bits, one_bits + 1};
  expect_dots(ctx, q, keys, N, want);

  float cache[N][16][D];
  int32_t table[N], seq_len = N * 16, ids[6];
  const int32_t want_ids[6] = {4, 0, 1, 2, 3, 5};
  for (int b = 0; b < N; b++) {
    table[b] = b;
    for (int t = 0; t < 16; t++) memcpy(cache[b][t], keys[b], sizeof keys[b]);
  }
  m3idx_batch batch = {.mode = M3IDX_DECODE,
                       .num_requests = 1,
                       .num_rows = 1,
                       .max_block = N,
                       .block_size = 16,
                       .decode_query_len = 1,
                       .seq_lens = &seq_len};
  m3idx_topk_args args = {.batch = &batch,
                          .q = {q, M3IDX_F32, {1, 1, D}, {0, 0, 0}},
                          .index_k = {cache, M3IDX_F32, {N, 16, D}, {0, 0, 0}},
                          .block_table = table,
                          .topk = 6,
                          .topk_idx = ids};
  if (bug_ok(ctx, m3idx_topk(ctx, &args))) bug_expect(want_ids, ids, 6, "ids");
  m3idx_close(ctx);
}
END_TEST

/* In each of some binades and for both signs: even and odd significands, the midpoint above them, and 2^-80 of it
 * to either side. */
START_TEST(midpoint) {
  static const int exponents[] = {-60, -1, 0, 1, 100, 127};
  enum { BINADES = 6, N = BINADES * 2 * 2 * 3 };
  m3idx_context *ctx = bug_open(_i);
  float q[D], keys[N][D] = {{0}};
  uint32_t want[N];
  int n = 0;
  for (int d = 0; d < D; d++) q[d] = 1;
  for (int e = 0; e < BINADES; e++)
    for (int negative = 0; negative <= 1; negative++)
      for (uint32_t odd = 0; odd <= 1; odd++)
        for (int side = -1; side <= 1; side++, n++) {
          float sign = negative ? -1 : 1, x = sign * ldexpf((float)(0x800006 + odd), exponents[e] - 23);
          keys[n][15] = x;
          keys[n][1] = sign * ldexpf(1, exponents[e] - 24);
          keys[n][7] = sign * ldexpf((float)side, exponents[e] - 80);
          /* Below: down.  Above: up.  On it: to the even one, which is x or the next. */
          want[n] = bug_bits(x) + (side > 0 || (side == 0 && odd) ? 1 : 0);
        }
  ck_assert_int_eq(n, N);
  expect_dots(ctx, q, keys, N, want);
  m3idx_close(ctx);
}
END_TEST

/* Products of 2^-100 and a power of two, in units of 2^-149 (u). */
START_TEST(subnormal) {
  enum { N = 12 };
  m3idx_context *ctx = bug_open(_i);
  float q[D], keys[N][D] = {{0}};
  for (int d = 0; d < D; d++) q[d] = ldexpf(1, -100);
  const float u = ldexpf(1, -49);
  keys[0][0] = u / 2;                                          /* u / 2, to even: 0 */
  keys[1][0] = u / 2, keys[1][9] = ldexpf(u, -40);             /* just above: u */
  keys[2][0] = u / 2, keys[2][9] = -ldexpf(u, -40);            /* just below: 0 */
  keys[3][0] = -u / 2;                                         /* to even: 0, written +0 */
  keys[4][0] = -u / 2, keys[4][9] = -ldexpf(u, -40);           /* -u */
  keys[5][0] = 3 * u / 2;                                      /* 1.5 u, to even: 2 u */
  keys[6][0] = 5 * u / 2;                                      /* 2.5 u, to even: 2 u */
  keys[7][0] = ldexpf(u, 23), keys[7][3] = -u;                 /* 2^-126 - 2^-149 */
  keys[8][0] = ldexpf(u, 23), keys[8][3] = -u / 2;             /* between the last subnormal and 2^-126: even */
  keys[9][0] = ldexpf(u, 23), keys[9][3] = -ldexpf(3, -2) * u; /* nearer to the subnormal */
  keys[10][0] = ldexpf(u, -49);                                /* far below: 0 */
  keys[11][0] = -ldexpf(u, -49);                               /* and +0 */
  const uint32_t want[N] = {0, 1, 0, 0, 0x80000001, 2, 2, 0x007fffff, 0x00800000, 0x007fffff, 0, 0};
  expect_dots(ctx, q, keys, N, want);
  m3idx_close(ctx);
}
END_TEST

/* 128 products of 2^120 are 2^127, which binary32 holds; of 2^121, or of (2^120)^2, they are past it.  The largest
 * float is (2^24 - 1) 2^104, half a unit more is a tie with 2^128, and rounds to +inf. */
START_TEST(overflow) {
  enum { DIM = 128, N = 8 };
  m3idx_context *ctx = bug_open(_i);
  float q[DIM], keys[N][DIM] = {{0}};
  for (int d = 0; d < DIM; d++) {
    q[d] = ldexpf(1, 60);
    keys[0][d] = ldexpf(1, 60);
    keys[1][d] = ldexpf(1, 61);
    keys[2][d] = -ldexpf(1, 61);
    keys[3][d] = ldexpf(d % 2 ? -1 : 1, 120); /* partial sums overflow, the sum does not */
  }
  const float largest = ldexpf(16777215, 44), half = ldexpf(1, 43);
  keys[3][0] = ldexpf(1, 120) + ldexpf(1, 97);
  keys[4][0] = largest, keys[4][77] = half;
  keys[5][0] = largest, keys[5][77] = half, keys[5][78] = -ldexpf(1, -60);
  keys[6][0] = -largest, keys[6][77] = -half;
  keys[7][0] = largest;
  /* keys[3]: what is left is 2^97 2^60 = 2^157. */
  const uint32_t want[N] = {0x7f000000, plus_inf,   plus_inf | 0x80000000, plus_inf,
                            plus_inf,   0x7f7fffff, plus_inf | 0x80000000, 0x7f7fffff};
  bug_dots dots = {.q_dtype = M3IDX_F32, .k_dtype = M3IDX_F32, .q = q, .keys = keys, .dim = DIM, .blocks = N};
  bug_score_expect(ctx, &dots, want);

  /* Operands of 2^120 in bf16, and a sum that comes back below the edge. */
  uint16_t big_q[DIM], big_keys[2][DIM];
  for (int d = 0; d < DIM; d++) {
    big_q[d] = big_keys[0][d] = 0x7b80;       /* 2^120 */
    big_keys[1][d] = d % 2 ? 0x7b80 : 0xfb80; /* +-2^240, in all 0 */
  }
  const uint32_t big_want[2] = {plus_inf, 0};
  dots =
      (bug_dots){.q_dtype = M3IDX_BF16, .k_dtype = M3IDX_BF16, .q = big_q, .keys = big_keys, .dim = DIM, .blocks = 2};
  bug_score_expect(ctx, &dots, big_want);
  m3idx_close(ctx);
}
END_TEST

/* q = 1, 0, ..., key c, 0, ...: the score is the code's value. */
static void expect_codes(m3idx_context *ctx, m3idx_dtype dtype, const uint32_t want[4]) {
  static const uint8_t codes[4] = {0x80, 0x7f, 0xff, 0x7e};
  const float q[D] = {1};
  uint8_t keys[4][D] = {{0}};
  for (int b = 0; b < 4; b++) keys[b][0] = codes[b];
  bug_dots dots = {.q_dtype = M3IDX_F32, .k_dtype = dtype, .q = q, .keys = keys, .dim = D, .blocks = 4};
  bug_score_expect(ctx, &dots, want);
}

START_TEST(fp8_0x80) {
  m3idx_context *ctx = bug_open(_i);
  /* e4m3fn: -0, which scores +0; NaN; NaN; 448.  e4m3fnuz: NaN; 240; -240; 224, half of 448. */
  expect_codes(ctx, M3IDX_E4M3FN, (const uint32_t[]){0, quiet_nan, quiet_nan, bug_bits(448)});
  expect_codes(ctx, M3IDX_E4M3FNUZ, (const uint32_t[]){quiet_nan, bug_bits(240), bug_bits(-240), bug_bits(224)});
  /* e5m2: -0, NaN, NaN, NaN.  e5m2fnuz: NaN; 1.75 * 2^15; its negative; 1.5 * 2^15. */
  expect_codes(ctx, M3IDX_E5M2, (const uint32_t[]){0, quiet_nan, quiet_nan, quiet_nan});
  expect_codes(ctx, M3IDX_E5M2FNUZ, (const uint32_t[]){quiet_nan, bug_bits(57344), bug_bits(-57344), bug_bits(49152)});
  m3idx_close(ctx);
}
END_TEST

int main(void) {
  const bug bugs[] = {
      {"cancel", cancel},       {"tie-round", tie_round}, {"midpoint", midpoint},
      {"subnormal", subnormal}, {"overflow", overflow},   {"fp8-0x80", fp8_0x80},
  };
  return bug_main("public bugs: score", bugs, sizeof bugs / sizeof *bugs);
}
