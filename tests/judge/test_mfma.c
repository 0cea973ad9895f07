/* SPDX-License-Identifier: Apache-2.0
 *
 * The gfx942 model: values published with MMA-Sim (arXiv 2511.10909), each a probe of one step of the algorithm, and
 * what follows from its text by hand.
 */
#include "mfma.h"

#include <check.h>
#include <math.h>
#include <string.h>

#include "unit.h"

enum { K = 32 };

static judge_number number(double value, m3idx_dtype dtype) {
  for (uint32_t code = 0; code < 1u << 8 * m3idx_dtype_bytes(dtype); code++) {
    judge_number x = judge_decode(code, dtype);
    if (x.value == value && signbit(x.value) == signbit(value)) return x;
  }
  ck_abort_msg("%g is no %s", value, m3idx_dtype_name(dtype));
  return (judge_number){0};
}

/* The dot of a and b (count of them, then zeros up to K) added to c, as a pattern. */
static uint32_t dot(m3idx_dtype dtype, int k_block, int count, const double *a, const double *b, float c) {
  char why[CASE_MESSAGE_BYTES];
  judge_number x[K], y[K];
  mfma_unit unit;
  ck_assert_int_eq(mfma_unit_of(dtype, dtype, k_block, &unit, why), 0);
  for (int i = 0; i < K; i++) {
    x[i] = number(i < count ? a[i] : 0, dtype);
    y[i] = number(i < count ? b[i] : 0, dtype);
  }
  float value = mfma_dot(&unit, x, y, K, c);
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static const struct probe {
  const char *name;
  m3idx_dtype dtype;
  int k_block, count;
  double a[8], b[8];
  float c;
  uint32_t want;
} probes[] = {
    {"1 - 2^-149", M3IDX_BF16, 8, 1, {1}, {1}, -0x1p-149f, 0x3f7fffff},
    {"1 + 2^-149", M3IDX_BF16, 8, 1, {1}, {1}, 0x1p-149f, 0x3f800000},
    {"C = 2^23", M3IDX_BF16, 8, 4, {-0x1p13, -.5, -.25, -.125}, {0x1p10, 1, 1, 1}, 0x1p23f, 0xbf000000},
    {"2^-133 * 1", M3IDX_BF16, 8, 1, {0x1p-133}, {1}, 0, 0x00010000},
    {"2^128 - 2^128", M3IDX_BF16, 8, 2, {0x1p64, 0x1p64}, {0x1p64, -0x1p64}, 0, 0x7fc00000},
    {"1 - 2^-25", M3IDX_BF16, 8, 2, {1, -0x1p-25}, {1, 1}, 0, 0x3f800000},
    {"1 - 2^-24", M3IDX_BF16, 8, 2, {1, -0x1p-24}, {1, 1}, 0, 0x3f7fffff},
    {"fp8, 1 - 2^-149", M3IDX_E4M3FNUZ, 16, 1, {1}, {1}, -0x1p-149f, 0x3f800000},
    {"fp8, 1 - 2^-25", M3IDX_E4M3FNUZ, 16, 1, {1}, {1}, -0x1p-25f, 0x3f7fffff},
    {"fp8, 1 - 2^-26", M3IDX_E4M3FNUZ, 16, 1, {1}, {1}, -0x1p-26f, 0x3f800000},
    {"e5m2fnuz, 1 - 2^-25", M3IDX_E5M2FNUZ, 16, 1, {1}, {1}, -0x1p-25f, 0x3f7fffff},
    /* By hand: 1.5 * 1.5 keeps exponent 0, so that 2^-24 is not cut off under 2.25. */
    {"1.5 * 1.5 + 2^-24 - 2.25", M3IDX_BF16, 8, 3, {1.5, 0x1p-24, -1.125}, {1.5, 1, 2}, 0, 0},
    /* The third product has exponent 1: everything is cut at 2^-23.  With -2.25 as -1.5 * 1.5 nothing is. */
    {"1.5 * 1.5 + 2^-24 - 1.5 * 1.5", M3IDX_BF16, 8, 3, {1.5, 0x1p-24, -1.5}, {1.5, 1, 1.5}, 0, 0x33800000},
    {"inf", M3IDX_BF16, 8, 2, {INFINITY, 1}, {2, 1}, 0, 0x7f800000},
    {"inf * 0", M3IDX_BF16, 8, 1, {INFINITY}, {0}, 0, 0x7fc00000},
    {"inf - inf with C", M3IDX_F16, 8, 1, {INFINITY}, {1}, -INFINITY, 0x7fc00000},
    {"overflow at the end", M3IDX_BF16, 8, 2, {0x1p127, 0x1p127}, {1, 1}, 0, 0x7f800000},
    /* Zero products and C = -0: -0 only if all products are -0 too; zeros behind the count are +0. */
    {"-0 + products +0", M3IDX_BF16, 8, 0, {0}, {0}, -0.0f, 0x00000000},
};

START_TEST(probe) {
  const struct probe *p = &probes[_i];
  uint32_t got = dot(p->dtype, p->k_block, p->count, p->a, p->b, p->c);
  bool nan = (p->want & 0x7fffffff) > 0x7f800000 && (got & 0x7fffffff) > 0x7f800000; /* payloads are not modelled */
  ck_assert_msg(nan || got == p->want, "%s: want 0x%08x, got 0x%08x", p->name, (unsigned)p->want, (unsigned)got);
}
END_TEST

/* Ones, 2^30 at k 0 and -2^30 at k j: what was added before 2^30 has gone is lost, a block at a time. */
START_TEST(ones_between_large_terms) {
  static const struct {
    int j;
    float want;
  } at[] = {{1, 24}, {4, 24}, {8, 16}, {16, 8}, {24, 0}, {31, 0}};
  double a[K], b[K];
  for (int i = 0; i < K; i++) a[i] = b[i] = 1;
  a[0] = 0x1p30;
  a[at[_i].j] = -0x1p30;
  ck_assert_uint_eq(dot(M3IDX_BF16, 8, K, a, b, 0), bits_of(at[_i].want));
}
END_TEST

/* f32 is a chain of fused multiply-adds in ascending k. */
START_TEST(f32_chain) {
  char why[CASE_MESSAGE_BYTES];
  mfma_unit unit;
  judge_number a[2] = {judge_decode(0x3f800001, M3IDX_F32), judge_decode(0x3f800000, M3IDX_F32)};
  judge_number b[2] = {judge_decode(0x3f800001, M3IDX_F32), judge_decode(0xbf800002, M3IDX_F32)};
  ck_assert_int_eq(mfma_unit_of(M3IDX_F32, M3IDX_F32, 0, &unit, why), 0);
  /* (1 + 2^-23)^2 rounds to 1 + 2^-22, and 1 + 2^-22 is taken away. */
  ck_assert(mfma_dot(&unit, a, b, 2, 0) == 0);
  /* The other way round the first product is fused: 2^-46 stays. */
  judge_number c[2] = {a[1], a[0]}, d[2] = {b[1], b[0]};
  ck_assert(mfma_dot(&unit, c, d, 2, 0) == 0x1p-46f);
}
END_TEST

START_TEST(units_refused) {
  char why[CASE_MESSAGE_BYTES];
  mfma_unit unit;
  ck_assert_int_ne(mfma_unit_of(M3IDX_BF16, M3IDX_F16, 0, &unit, why), 0);
  ck_assert_int_ne(mfma_unit_of(M3IDX_E4M3FN, M3IDX_E4M3FN, 16, &unit, why), 0);
  ck_assert_int_ne(mfma_unit_of(M3IDX_BF16, M3IDX_BF16, 16, &unit, why), 0);
  ck_assert_int_ne(mfma_unit_of(M3IDX_BF16, M3IDX_BF16, 9, &unit, why), 0);
  ck_assert_int_ne(mfma_unit_of(M3IDX_F32, M3IDX_BF16, 8, &unit, why), 0);
  ck_assert_int_eq(mfma_unit_of(M3IDX_E4M3FNUZ, M3IDX_E5M2FNUZ, 0, &unit, why), 0);
  ck_assert_int_eq(unit.kind, MFMA_BLOCKS_16);
  ck_assert_int_eq(mfma_unit_of(M3IDX_E4M3FNUZ, M3IDX_E5M2FNUZ, 8, &unit, why), 0);
  ck_assert_int_eq(unit.kind, MFMA_BLOCKS_8);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("mfma");
  TCase *model = tcase_create("model");
  tcase_add_loop_test(model, probe, 0, sizeof probes / sizeof *probes);
  tcase_add_loop_test(model, ones_between_large_terms, 0, 6);
  tcase_add_test(model, f32_chain);
  tcase_add_test(model, units_refused);
  suite_add_tcase(suite, model);
  return unit_run(suite);
}
