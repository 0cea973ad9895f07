/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU path on operands that case lines do not make: strided views, guarded outputs, values built against its
 * bounds, a foreign floating-point environment, a caller's parallel region.  Expected values are the reference's or
 * derived by hand, as each test says.
 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend.h"
#include "ref_format.h"
#include "simd_convert.h"
#include "unit.h"

static const char *const isas[] = {"scalar", "avx2", "avx512", "avx512bf16", "amx", "neon"};
enum { ISAS = sizeof isas / sizeof *isas };

static uint64_t state;

static uint32_t draw(uint32_t below) {
  state += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = (state ^ state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  return (uint32_t)((z ^ z >> 27) * UINT64_C(0x94d049bb133111eb) >> 32) % below;
}

/* NULL = this machine lacks it.  "ref" opens the reference. */
static m3idx_context *open_isa(const char *isa) {
  char why[M3IDX_MESSAGE_BYTES];
  m3idx_context *ctx = NULL;
  const m3idx_options options = {.backend = strcmp(isa, "ref") != 0 ? "cpu" : "ref", .num_threads = 2};
  setenv("M3IDX_ISA", isa, 1);
  const m3idx_status status = m3idx_open(&ctx, &options, why, sizeof why);
  unsetenv("M3IDX_ISA");
  ck_assert_msg(status == M3IDX_OK || status == M3IDX_UNAVAILABLE, "%s: %s", isa, why);
  return ctx;
}

/* ---- conversions ---- */

START_TEST(test_load) {
  static const m3idx_dtype dtypes[] = {M3IDX_F16, M3IDX_BF16, M3IDX_E4M3FN, M3IDX_E4M3FNUZ, M3IDX_E5M2, M3IDX_E5M2FNUZ};
  const simd_isa *all[] = {
    &simd_scalar,
#if defined(__x86_64__)
    &simd_avx2,
    &simd_avx512,
#elif defined(__aarch64__)
    &simd_neon,
#endif
  };
  enum { N = 256 };
  const m3idx_dtype dtype = dtypes[_i];
  const size_t bytes = m3idx_dtype_bytes(dtype);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    for (uint32_t first = 0; first < (bytes == 1 ? 256u : 65536u) && all[i]->present(); first += N)
      for (int stride = 1; stride <= 3; stride += 2) {
        unsigned char from[2 * 3 * N];
        uint32_t to[N], most = 0;
        uint16_t to16[N];
        for (uint32_t c = 0; c < N; c++) {
          const uint16_t code = (uint16_t)(first + c);
          const uint8_t byte = (uint8_t)code;
          memcpy(from + c * (uint32_t)stride * bytes, bytes == 1 ? (const void *)&byte : (const void *)&code, bytes);
        }
        const uint32_t got = all[i]->load(dtype, from, 0, stride, 1, N, SIMD_F32, to, 0);
        if (dtype != M3IDX_F16) all[i]->load(dtype, from, 0, stride, 1, N, SIMD_BF16, to16, 0);
        /* A look only: the largest magnitude, and nothing converted. */
        ck_assert_uint_eq(got, all[i]->load(dtype, from, 0, stride, 1, N, SIMD_F32, NULL, 0));
        for (uint32_t c = 0; c < N; c++) {
          const ref_number want = ref_decode(first + c, dtype);
          const float value = simd_float(to[c]);
          if (want.class == REF_FINITE) /* exact: every format is a subset of binary32 */
            ck_assert_uint_eq(
                simd_bits((want.negative ? -1.0f : 1.0f) * ldexpf((float)want.significand, want.exponent)), to[c]);
          else if (want.class == REF_NAN)
            ck_assert(value != value);
          else
            ck_assert(value == (want.negative ? -INFINITY : INFINITY));
          if (dtype != M3IDX_F16) ck_assert_uint_eq(to[c], (uint32_t)to16[c] << 16);
          most = simd_max(most, to[c] & 0x7fffffffu);
        }
        ck_assert_uint_eq(most, got);
      }
}
END_TEST

/* ---- strided views ---- */

enum { R = 2, SIZE = 16, PAGES = 7, COLUMNS = 5, ROOM = 1 << 16 };

/* A view of `bytes` with random strides that stay inside it. */
static m3idx_tensor view(void *bytes, m3idx_dtype dtype, int64_t a, int64_t b, int64_t c) {
  m3idx_tensor t = {bytes, dtype, {a, b, c}, {0}};
  int order[3] = {0, 1, 2};
  int64_t stride = 1 + draw(2);
  for (int i = 2; i > 0; i--) {
    const int j = (int)draw((uint32_t)i + 1), swap = order[i];
    order[i] = order[j];
    order[j] = swap;
  }
  for (int i = 0; i < 3; i++) { /* the innermost axis is a random one */
    t.stride[order[i]] = stride;
    stride = stride * t.shape[order[i]] + draw(3);
  }
  if (draw(4) == 0) t.stride[0] = 0; /* one row or page, repeated */
  return t;
}

START_TEST(test_strides) {
  static uint32_t q[ROOM], k[ROOM];
  static float want[ROOM], got[ROOM];
  state = (uint64_t)_i;
  const int64_t heads = 1 + draw(3), dim = 16 * (1 + draw(4)), rows = 1 + draw(5);
  const m3idx_dtype dq = (m3idx_dtype)draw(M3IDX_DTYPE_COUNT), dk = (m3idx_dtype)draw(M3IDX_DTYPE_COUNT);
  for (int i = 0; i < ROOM; i++) q[i] = draw(UINT32_MAX) & 0xbf7fbf7fu, k[i] = draw(UINT32_MAX) & 0xbf7fbf7fu;
  const int32_t lens[R] = {(int32_t)(1 + draw(SIZE * COLUMNS)), (int32_t)draw(SIZE * COLUMNS)};
  int32_t table[R * (COLUMNS + 1)];
  for (int i = 0; i < R * (COLUMNS + 1); i++) table[i] = (int32_t)draw(PAGES);
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = R,
                             .num_rows = R * rows,
                             .max_block = COLUMNS,
                             .block_size = SIZE,
                             .decode_query_len = rows,
                             .seq_lens = lens};
  m3idx_score_args args = {.batch = &batch,
                           .q = view(q, dq, R * rows, heads, dim),
                           .index_k = view(k, dk, PAGES, SIZE, dim),
                           .block_table = table,
                           .block_table_stride = COLUMNS + 1,
                           .scale = draw(2) ? 0 : 0.3f,
                           .local_blocks = draw(2),
                           .score_stride_row = COLUMNS + draw(4)};
  args.score_stride_head = R * rows * args.score_stride_row + draw(9);
  m3idx_context *ref = open_isa("ref");
  memset(want, 0x5a, sizeof want);
  args.score = want;
  ck_assert_msg(m3idx_score(ref, &args) == M3IDX_OK, "%s", m3idx_message(ref));
  m3idx_close(ref);
  for (int i = 0; i < ISAS; i++) {
    m3idx_context *ctx = open_isa(isas[i]);
    if (!ctx) continue;
    memset(got, 0x5a, sizeof got); /* S3.6: padding and everything around keeps it */
    args.score = got;
    ck_assert_msg(m3idx_score(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
    ck_assert_msg(!memcmp(want, got, sizeof got), "%s, seed %d", isas[i], _i);
    m3idx_close(ctx);
  }
}
END_TEST

/* ---- values against the bounds: one row, D = 128, two blocks of 16 tokens ---- */

enum { D = 128 };

typedef struct duel {
  float q[D], k[2][SIZE][D];
  m3idx_dtype dtype; /* f32, or bf16 where that holds every value */
} duel;

/* The upper halves of n floats, in place of `room`. */
static void *narrow(const float *values, size_t n, uint16_t *room) {
  for (size_t i = 0; i < n; i++) room[i] = (uint16_t)(simd_bits(values[i]) >> 16);
  return room;
}

/* The scores of the two blocks, and the better one of K = 1. */
static void run(const duel *duel, const char *isa, uint32_t score[2], int32_t *id) {
  const int32_t len = 2 * SIZE, table[2] = {0, 1};
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = 1,
                             .num_rows = 1,
                             .max_block = 2,
                             .block_size = SIZE,
                             .decode_query_len = 1,
                             .seq_lens = &len};
  float out[2];
  m3idx_context *ctx = open_isa(isa);
  score[0] = score[1] = 0;
  *id = -1;
  if (!ctx) return;
  m3idx_score_args args = {.batch = &batch, .block_table = table, .score = out};
  static uint16_t half_q[D], half_k[2 * SIZE * D];
  const int half = duel->dtype == M3IDX_BF16;
  void *q = half ? narrow(duel->q, D, half_q) : (void *)(uintptr_t)duel->q;
  void *k = half ? narrow(&duel->k[0][0][0], 2 * SIZE * D, half_k) : (void *)(uintptr_t)duel->k;
  args.q = (m3idx_tensor){q, duel->dtype, {1, 1, D}, {0}};
  args.index_k = (m3idx_tensor){k, duel->dtype, {2, SIZE, D}, {0}};
  m3idx_topk_args topk = {.batch = &batch, .q = args.q, .index_k = args.index_k, .block_table = table, .topk = 1};
  topk.topk_idx = id;
  ck_assert_msg(m3idx_score(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  ck_assert_msg(m3idx_topk(ctx, &topk) == M3IDX_OK, "%s", m3idx_message(ctx));
  memcpy(score, out, sizeof out);
  m3idx_close(ctx);
}

static void check(const duel *duel, uint32_t want0, uint32_t want1, int32_t want_id) {
  for (int i = 0; i < ISAS; i++) {
    m3idx_context *ctx = open_isa(isas[i]);
    uint32_t score[2];
    int32_t id;
    if (!ctx) continue;
    m3idx_close(ctx);
    run(duel, isas[i], score, &id);
    ck_assert_msg(score[0] == want0 && score[1] == want1 && id == want_id,
                  "%s: want %08x %08x id %d, got %08x %08x id %d", isas[i], want0, want1, want_id, score[0], score[1],
                  id);
  }
}

/* With u = 2^-24 and q = (1, u, u, ...), a chain of roundings loses all of a's addends and doubles all of b's:
 *   a = (1 + 8u, 1, 1, ...)          exact 1 + 135 u, fast 1 + 8 u
 *   b = (1, 1 + 2^-7, 1 + 2^-7, ...) exact 1 + (127 + 127/128) u, fast 1 + 254 u
 * E is 130 u and little more: a wins though its fast dot is nearly 2E below b's.  An odd number of u above 1 is a
 * midpoint and rounds to even: 135 u to 136 u.  b lies just below 128 u. */
static void set_pair(duel *duel, int block_of_a) {
  memset(duel, 0, sizeof *duel);
  for (int d = 0; d < D; d++) {
    duel->q[d] = d ? 0x1p-24f : 1.0f;
    duel->k[0][3][d] = d ? 1.0f + 0x1p-7f : 1.0f;
    duel->k[block_of_a][9][d] = d ? 1.0f : 1.0f + 0x1p-21f;
  }
}

#define A_BITS (0x3f800000u + 68u) /* 1 + 136 u */
#define B_BITS (0x3f800000u + 64u) /* 1 + 128 u */

/* Both in one block: only candidates as low as m - 2E include a. */
START_TEST(test_candidates) {
  static duel duel;
  set_pair(&duel, 0);
  check(&duel, A_BITS, 0, 0);
}
END_TEST

/* In two: the fused selection may skip a's block only by its bound. */
START_TEST(test_skipping) {
  static duel duel;
  set_pair(&duel, 1);
  check(&duel, B_BITS, A_BITS, 1);
}
END_TEST

/* The midpoint of 1 and its neighbour, and 2^-80 to either side, which a double does not hold.  In block 1 it is
 * negative and there is no other token: hidden ones are zero and would win. */
START_TEST(test_midpoints) {
  static duel duel;
  const float off = _i == 0 ? 0.0f : _i == 1 ? 0x1p-40f : -0x1p-40f;
  memset(&duel, 0, sizeof duel);
  duel.q[5] = 1.0f;
  duel.q[70] = 1.0f;
  duel.q[100] = 0x1p-40f;
  for (int t = 0; t < SIZE; t++) {
    duel.k[0][t][5] = 1.0f;
    duel.k[0][t][70] = 0x1p-24f;
    duel.k[0][t][100] = t == 7 ? off : -0x1p-30f;
    duel.k[1][t][5] = -1.0f;
    duel.k[1][t][70] = -0x1p-24f;
    duel.k[1][t][100] = t == 7 ? off : -0x1p-30f;
  }
  const uint32_t one = 0x3f800000u;
  check(&duel, _i == 1 ? one + 1 : one, (_i == 2 ? one + 1 : one) | 0x80000000u, 0);
}
END_TEST

/* 2^30 - 2^30 + 2^-20 with its terms in every order: 2^-20. */
START_TEST(test_cancel) {
  static duel duel;
  static const int places[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  memset(&duel, 0, sizeof duel);
  for (int d = 0; d < 3; d++) duel.q[40 * d + 3] = 1.0f;
  for (int t = 0; t < SIZE; t++) {
    duel.k[0][t][40 * places[_i][0] + 3] = 0x1p30f;
    duel.k[0][t][40 * places[_i][1] + 3] = -0x1p30f;
    duel.k[0][t][40 * places[_i][2] + 3] = t == 11 ? 0x1p-20f : -0x1p-20f;
  }
  check(&duel, 0x35800000u, 0, 0);
}
END_TEST

/* Every token on a midpoint, which the format lets a double hold: 1 + u and 1 + 3 u, to even. */
START_TEST(test_tied_midpoints) {
  static duel duel;
  memset(&duel, 0, sizeof duel);
  duel.dtype = M3IDX_BF16;
  duel.q[0] = 1.0f;
  duel.q[9] = duel.q[70] = 0x1p-12f;
  for (int t = 0; t < SIZE; t++) {
    duel.k[0][t][0] = duel.k[1][t][0] = 1.0f;
    duel.k[0][t][9] = duel.k[1][t][9] = 0x1p-12f;
    duel.k[1][t][70] = 0x1p-11f;
  }
  check(&duel, 0x3f800000u, 0x3f800002u, 1);
}
END_TEST

/* 1 + 2^-24 + 2^-54, which a double rounds to the midpoint below: the dot is a multiple of 2^-54, so a double holds
 * it exactly only if it is not above 1/2. */
START_TEST(test_inexact_double) {
  static duel duel;
  memset(&duel, 0, sizeof duel);
  duel.dtype = M3IDX_BF16;
  duel.q[0] = 1.0f;
  duel.q[9] = 0x1p-12f;
  duel.q[50] = 0x1.02p-20f;
  duel.q[99] = 0x1p-20f;
  for (int t = 0; t < SIZE; t++) {
    duel.k[0][t][0] = 1.0f;
    duel.k[0][t][9] = 0x1p-12f;
    duel.k[0][t][50] = 0x1.02p-20f;  /* product 2^-40 + 2^-46 + 2^-54 */
    duel.k[0][t][99] = -0x1.04p-20f; /* product -2^-40 - 2^-46 */
  }
  check(&duel, 0x3f800001u, 0, 0);
}
END_TEST

/* Exact 2^124, but a chain in binary32 is at -inf after its first product. */
START_TEST(test_overflow) {
  static duel duel;
  memset(&duel, 0, sizeof duel);
  for (int d = 0; d < 3; d++) duel.q[d] = 0x1p64f;
  for (int t = 0; t < SIZE; t++) {
    duel.k[0][t][0] = 0x1p-64f;
    duel.k[1][t][0] = -0x1p65f;
    duel.k[1][t][1] = 0x1p65f;
    duel.k[1][t][2] = 0x1p60f;
  }
  check(&duel, 0x3f800000u, 0x7d800000u, 1);
}
END_TEST

/* ---- the caller's world ---- */

/* A caller that rounds upward gets the same bytes (1 + 2^-26 is 1), and its direction back. */
START_TEST(test_environment) {
  static duel duel;
  memset(&duel, 0, sizeof duel);
  duel.q[0] = duel.q[1] = 1.0f;
  for (int t = 0; t < SIZE; t++) {
    duel.k[0][t][0] = 1.0f;
    duel.k[0][t][1] = 0x1p-26f;
  }
  fesetround(FE_UPWARD);
  check(&duel, 0x3f800000u, 0, 0);
  ck_assert_int_eq(fegetround(), FE_UPWARD);
  fesetround(FE_TONEAREST);
}
END_TEST

/* Contexts inside a caller's threads. */
START_TEST(test_parallel) {
  static duel duel;
  uint32_t score[4][2];
  int32_t id[4];
  set_pair(&duel, 1);
  setenv("M3IDX_ISA", "scalar", 1);
#pragma omp parallel for num_threads(4)
  for (int i = 0; i < 4; i++) {
    const int32_t len = 2 * SIZE, table[2] = {0, 1};
    const m3idx_batch batch = {.mode = M3IDX_DECODE,
                               .num_requests = 1,
                               .num_rows = 1,
                               .max_block = 2,
                               .block_size = SIZE,
                               .decode_query_len = 1,
                               .seq_lens = &len};
    m3idx_context *ctx = NULL;
    const m3idx_options options = {.backend = "cpu", .num_threads = 3};
    m3idx_topk_args args = {.batch = &batch, .block_table = table, .topk = 1, .topk_idx = &id[i]};
    m3idx_score_args score_args = {.batch = &batch, .block_table = table, .score = (float *)score[i]};
    args.q = score_args.q = (m3idx_tensor){duel.q, M3IDX_F32, {1, 1, D}, {0}};
    args.index_k = score_args.index_k = (m3idx_tensor){duel.k, M3IDX_F32, {2, SIZE, D}, {0}};
    if (m3idx_open(&ctx, &options, NULL, 0) || m3idx_topk(ctx, &args) || m3idx_score(ctx, &score_args)) id[i] = -2;
    m3idx_close(ctx);
  }
  unsetenv("M3IDX_ISA");
  for (int i = 0; i < 4; i++) {
    ck_assert_int_eq(1, id[i]);
    ck_assert_uint_eq(B_BITS, score[i][0]);
    ck_assert_uint_eq(A_BITS, score[i][1]);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("simd_views");
  TCase *tcase = tcase_create("simd_views");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, test_load, 0, 6);
  tcase_add_loop_test(tcase, test_strides, 0, 60);
  tcase_add_test(tcase, test_candidates);
  tcase_add_test(tcase, test_skipping);
  tcase_add_loop_test(tcase, test_midpoints, 0, 3);
  tcase_add_loop_test(tcase, test_cancel, 0, 6);
  tcase_add_test(tcase, test_tied_midpoints);
  tcase_add_test(tcase, test_inexact_double);
  tcase_add_test(tcase, test_overflow);
  tcase_add_test(tcase, test_environment);
  tcase_add_test(tcase, test_parallel);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
