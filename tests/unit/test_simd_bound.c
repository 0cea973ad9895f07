/* SPDX-License-Identifier: Apache-2.0
 *
 * docs/CERTIFIED-FILTER.md, Theorem 1, attacked: |fast - exact| against the bound for every filter of this machine.
 * The difference is taken in the reference's integers and rounded once, so "not above the bound" survives it.
 */
#include <stdio.h>
#include <string.h>

#include "ref_wide.h"
#include "simd_convert.h"
#include "simd_tile.h"
#include "unit.h"

/* A build has the sets of its architecture. */
static const simd_isa *const isas[] = {
    &simd_scalar,
#if defined(__x86_64__)
    &simd_avx2,   &simd_avx512, &simd_avx512bf16, &simd_amx,
#elif defined(__aarch64__)
    &simd_neon,
#endif
};
enum { ISAS = sizeof isas / sizeof *isas, ROWS = 3, DIM_MAX = SIMD_MAX_DIM };

typedef struct problem {
  int dim;
  float q[ROWS][DIM_MAX], k[SIMD_TOKENS][DIM_MAX]; /* values that `dtype` holds */
  m3idx_dtype dtype;
} problem;

static uint64_t state;

static uint32_t draw(void) {
  state += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = (state ^ state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  return (uint32_t)((z ^ z >> 27) * UINT64_C(0x94d049bb133111eb) >> 32);
}

/* |fast - exact| as a float. */
static float distance(const float *q, const float *k, int dim, float fast) {
  ref_wide sum;
  ref_wide_zero(&sum);
  for (int d = 0; d < dim; d++)
    ref_wide_add_product(&sum, ref_decode(simd_bits(q[d]), M3IDX_F32), ref_decode(simd_bits(k[d]), M3IDX_F32));
  ref_wide negative = sum; /* less fast * 1, digit by digit */
  ref_wide product;
  ref_wide_zero(&product);
  ref_wide_add_product(&product, ref_decode(simd_bits(fast), M3IDX_F32), ref_decode(simd_bits(1.0f), M3IDX_F32));
  for (int i = 0; i < REF_WIDE_DIGITS; i++) negative.digit[i] -= product.digit[i];
  return fabsf(simd_float(ref_wide_round(&negative)));
}

static void store(void *to, const float *values, int n, m3idx_dtype dtype) {
  for (int i = 0; i < n; i++) {
    const uint32_t bits = simd_bits(values[i]);
    const uint16_t half = (uint16_t)(bits >> 16);
    if (dtype == M3IDX_F32)
      memcpy((uint32_t *)to + i, &bits, sizeof bits);
    else
      memcpy((uint16_t *)to + i, &half, sizeof half);
  }
}

/* The largest |fast - exact| / bound over the rows and tokens of p; fails if one is above 1.  With few, by
 * simd_isa.few. */
static double worst(const problem *p, const simd_isa *isa, simd_form form, int few) {
  static _Alignas(64) unsigned char q[ROWS * DIM_MAX * 4], k[SIMD_TOKENS * DIM_MAX * 4],
      copy[SIMD_TOKENS * DIM_MAX * 4];
  static _Alignas(64) unsigned char lanes[SIMD_LANES * DIM_MAX * 4], row[SIMD_LANES * DIM_MAX * 4];
  static _Alignas(64) float score[SIMD_TOKENS * SIMD_LANES];
  static simd_work work;
  static simd_group group;
  const size_t bytes = m3idx_dtype_bytes(p->dtype);
  const int32_t len = SIMD_TOKENS + ROWS;
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = 1,
                             .num_rows = ROWS,
                             .max_block = 2,
                             .block_size = SIMD_TOKENS,
                             .decode_query_len = ROWS,
                             .seq_lens = &len};
  for (int r = 0; r < ROWS; r++) store(q + (size_t)(r * p->dim) * bytes, p->q[r], p->dim, p->dtype);
  for (int t = 0; t < SIMD_TOKENS; t++) store(k + (size_t)(t * p->dim) * bytes, p->k[t], p->dim, p->dtype);
  const m3idx_tensor tq = {q, p->dtype, {ROWS, 1, p->dim}, {p->dim, p->dim, 1}};
  const m3idx_tensor tk = {k, p->dtype, {1, SIMD_TOKENS, p->dim}, {SIMD_TOKENS * p->dim, p->dim, 1}};
  const simd_call call = {
      .isa = isa, .form = form, .batch = &batch, .q = &tq, .index_k = &tk, .scale = 1, .heads = 1, .dim = p->dim};
  simd_page page;
  simd_found found;
  double most = 0;
  work.score = score;
  group.q = lanes;
  group.row = (void *)row;
  if (isa->enter) isa->enter();
  simd_group_pack(&call, &group, 0, 0, 0, ROWS);
  simd_page_load(&call, &page, 0, SIMD_TOKENS, few, copy);
  simd_find(&call, &group, &page, 0, 1, &work, NULL, &found);
  if (isa->leave) isa->leave();
  ck_assert_uint_eq(found.active, (1u << ROWS) - 1);
  for (int r = 0; r < ROWS; r++)
    for (int t = 0; t < SIMD_TOKENS && !(found.whole >> r & 1); t++) {
      const float fast = score[t * SIMD_LANES + r], off = distance(p->q[r], p->k[t], p->dim, fast);
      ck_assert_msg(off <= found.error[r], "%s dim %d: row %d token %d: off by %a, bound %a", isa->name, p->dim, r, t,
                    (double)off, (double)found.error[r]);
      if (off > 0 && (double)off / (double)found.error[r] > most) most = (double)off / (double)found.error[r];
    }
  return most;
}

/* The same for every filter that this machine has and that takes the data; `least` of AMX and of the others. */
static void attack(const problem *p, double least_of_chain, double least_of_amx, int only_flushing) {
  for (int i = 0; i < ISAS; i++)
    for (int form = SIMD_F32; form <= SIMD_BF16; form++) {
      const simd_filter *filter = form == SIMD_BF16 ? &isas[i]->bf16 : &isas[i]->f32;
      if (!filter->run || !isas[i]->present() || (form == SIMD_BF16 && p->dtype == M3IDX_F32)) continue;
      if (only_flushing && !filter->flushes) continue;
      if (isas[i]->few && p->dtype == M3IDX_BF16) worst(p, isas[i], (simd_form)form, 1);
      const double got = worst(p, isas[i], (simd_form)form, 0);
      const double least = isas[i] == isas[ISAS - 1] && form == SIMD_BF16 ? least_of_amx : least_of_chain;
      ck_assert_msg(got >= least, "%s form %d dim %d: reaches %g of the bound, not %g: it could be tighter",
                    isas[i]->name, form, p->dim, got, least);
    }
}

static void set_all(problem *p, float q, float k) {
  for (int d = 0; d < p->dim; d++) {
    for (int r = 0; r < ROWS; r++) p->q[r][d] = q;
    for (int t = 0; t < SIMD_TOKENS; t++) p->k[t][d] = k;
  }
}

static const int dims[] = {16, 32, 48, 128, 176, 256};
enum { DIMS = sizeof dims / sizeof *dims };

static float random_value(int kind, m3idx_dtype dtype) {
  const uint32_t a = draw(), b = draw();
  float value = 0;
  switch (kind) {
  case 0: value = ((float)a - 0x1p31f) * 0x1p-31f; break;                              /* one binade mostly */
  case 1: value = simd_float((a & 0x80ffffffu) | (100u + b % 50u) << 23); break;       /* 50 binades */
  case 2: value = simd_float((a & 0x807fffffu) | b % 254u << 23); break;               /* everything finite */
  case 3: value = simd_float((a & 0x807fffffu) | b % 70u << 23); break;                /* products underflow */
  case 4: value = (float)(int)(a % 5u) - 2.0f; break;                                  /* exact sums */
  default: value = (b & 1 ? 1.0f : -1.0f) * (1.0f + (float)(a % 3u) * 0x1p-7f); break; /* cancellation */
  }
  return simd_float(simd_bits(value) & (dtype == M3IDX_BF16 ? 0xffff0000u : 0xffffffffu));
}

START_TEST(test_random) {
  static problem p;
  const int kind = _i % 6;
  p.dtype = _i / 6 % 2 ? M3IDX_BF16 : M3IDX_F32;
  state = (uint64_t)_i;
  for (int i = 0; i < DIMS; i++) {
    p.dim = dims[i];
    for (int d = 0; d < p.dim; d++) {
      for (int r = 0; r < ROWS; r++) p.q[r][d] = random_value(kind, p.dtype);
      for (int t = 0; t < SIMD_TOKENS; t++) p.k[t][d] = random_value(kind, p.dtype);
    }
    attack(&p, 0, 0, 0);
  }
}
END_TEST

/* 1, then addends of half a unit in the last place of 1: to nearest even, a chain never moves.  Exact: 1 + (D-1) u. */
START_TEST(test_chain) {
  static problem p;
  p.dtype = M3IDX_BF16; /* every filter takes these values */
  p.dim = dims[_i];
  set_all(&p, 0x1p-24f, 1.0f);
  for (int r = 0; r < ROWS; r++) p.q[r][0] = 1.0f;
  attack(&p, p.dim >= 32 ? 0.9 : 0.8, 0, 0);
}
END_TEST

/* For AMX: both chains of the first instruction start at 1/2 and lose 15 addends of 2^-25; each later instruction
 * adds 2^-24 to 1 and loses it. */
START_TEST(test_tile_chain) {
  static problem p;
  p.dtype = M3IDX_BF16;
  p.dim = dims[_i];
  set_all(&p, 0x1p-29f, 1.0f);
  for (int d = 0; d < 32 && d < p.dim; d++)
    for (int r = 0; r < ROWS; r++) p.q[r][d] = d < 2 ? 0.5f : 0x1p-25f;
  if (p.dim >= 32) attack(&p, 0, 0.65, 0);
}
END_TEST

/* Largest subnormals of bf16, in the query: all of |q.k| is lost where the unit reads them as zero. */
START_TEST(test_flushed_queries) {
  static problem p;
  p.dtype = M3IDX_BF16;
  p.dim = dims[_i];
  set_all(&p, simd_float(0x007f0000u), 0x1p20f);
  attack(&p, 0.9, 0.9, 1);
}
END_TEST

/* The same in the keys: the query's sum carries the bound, and the peak is as small. */
START_TEST(test_flushed_keys) {
  static problem p;
  p.dtype = M3IDX_BF16;
  p.dim = dims[_i];
  set_all(&p, 0x1p20f, simd_float(0x007f0000u));
  attack(&p, 0.9, 0.9, 1);
}
END_TEST

/* Products just below 2^-126: every result is flushed, and no sum ever starts. */
START_TEST(test_flushed_sums) {
  static problem p;
  p.dtype = M3IDX_BF16;
  p.dim = dims[_i];
  set_all(&p, 0x1p-63f, simd_float(0x1fff0000u)); /* 2^-64 (2 - 2^-7) */
  attack(&p, 0.7, 0.7, 1);
}
END_TEST

/* |x - exact| as a float, of a double. */
static float distance_of_double(const float *q, const float *k, int dim, double x) {
  ref_wide sum;
  ref_wide_zero(&sum);
  for (int d = 0; d < dim; d++)
    ref_wide_add_product(&sum, ref_decode(simd_bits(q[d]), M3IDX_F32), ref_decode(simd_bits(k[d]), M3IDX_F32));
  while (x != 0) { /* in three floats at most */
    const float part = (float)x;
    ref_wide_add_product(&sum, ref_decode(simd_bits(-part), M3IDX_F32), ref_decode(simd_bits(1.0f), M3IDX_F32));
    x -= (double)part;
  }
  return fabsf(simd_float(ref_wide_round(&sum)));
}

/* Theorem 5 for every row and token of p; whether some dot is inexact. */
static int attack_split(const problem *p, const simd_isa *isa, simd_form form) {
  static _Alignas(64) unsigned char q[ROWS * DIM_MAX * 4], k[SIMD_TOKENS * DIM_MAX * 4],
      copy[SIMD_TOKENS * DIM_MAX * 4];
  static _Alignas(64) unsigned char lanes[SIMD_LANES * DIM_MAX * 4], row[SIMD_LANES * DIM_MAX * 4];
  static simd_group group;
  const int32_t len = SIMD_TOKENS + ROWS;
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = 1,
                             .num_rows = ROWS,
                             .max_block = 2,
                             .block_size = SIMD_TOKENS,
                             .decode_query_len = ROWS,
                             .seq_lens = &len};
  for (int r = 0; r < ROWS; r++) store(q + r * p->dim * 2, p->q[r], p->dim, M3IDX_BF16);
  for (int t = 0; t < SIMD_TOKENS; t++) store(k + t * p->dim * 2, p->k[t], p->dim, M3IDX_BF16);
  const m3idx_tensor tq = {q, M3IDX_BF16, {ROWS, 1, p->dim}, {p->dim, p->dim, 1}};
  const m3idx_tensor tk = {k, M3IDX_BF16, {1, SIMD_TOKENS, p->dim}, {SIMD_TOKENS * p->dim, p->dim, 1}};
  const simd_call call = {
      .isa = isa, .form = form, .batch = &batch, .q = &tq, .index_k = &tk, .scale = 1, .heads = 1, .dim = p->dim};
  simd_page page;
  uint16_t list[ROWS * SIMD_TOKENS];
  double dot[ROWS * SIMD_TOKENS], unit;
  float center[SIMD_LANES];
  int count = 0, inexact = 0;
  group.q = lanes;
  group.row = (void *)row;
  simd_group_pack(&call, &group, 0, 0, 0, ROWS);
  simd_page_load(&call, &page, 0, SIMD_TOKENS, 0, copy);
  if (!simd_split(isa, &group, &page, center, &unit)) return 0;
  for (int t = 0; t < SIMD_TOKENS; t++)
    for (int r = 0; r < ROWS; r++) list[count++] = (uint16_t)(t << 8 | r);
  isa->dots(&group, &page, list, count, SIMD_SPLIT, center, NULL, dot);
  for (int i = 0; i < count; i++) {
    const int t = list[i] >> 8, r = list[i] & 0xff;
    const double off = (double)distance_of_double(p->q[r], p->k[t], p->dim, dot[i]);
    const double reach = unit * group.sum[r] + p->dim * 0x1p-149;
    ck_assert_msg(off <= reach, "%s dim %d: row %d token %d: off by %a, bound %a", isa->name, p->dim, r, t, off, reach);
    inexact |= off > 0;
  }
  return inexact;
}

START_TEST(test_split) {
  static problem p;
  const int kind = _i;
  int inexact = 0;
  state = (uint64_t)_i;
  for (int i = 0; i < DIMS; i++) {
    p.dim = dims[i];
    for (int d = 0; d < p.dim; d++) {
      for (int r = 0; r < ROWS; r++) p.q[r][d] = random_value(kind, M3IDX_BF16);
      for (int t = 0; t < SIMD_TOKENS; t++) p.k[t][d] = random_value(kind, M3IDX_BF16);
    }
    for (int j = 0; j < ISAS; j++)
      for (int form = SIMD_F32; form <= SIMD_BF16 && isas[j]->present(); form++)
        if (form == SIMD_F32 || isas[j]->bf16.run) inexact |= attack_split(&p, isas[j], (simd_form)form);
  }
#if defined(__x86_64__)
  /* Of numbers that far apart a split sum is not exact. */
  if (kind == 1 && isas[1]->present()) ck_assert_int_eq(inexact, 1);
#endif
  (void)inexact;
}
END_TEST

/* A slope below the normal floats is rounded up, not to nearest: one of 2^-157 would become 0. */
START_TEST(test_tiny_slope) {
  static _Alignas(64) float lanes[SIMD_LANES * DIM_MAX];
  static float row[SIMD_LANES * DIM_MAX];
  static simd_group group = {.q = lanes, .row = row};
  const int32_t len = 1;
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = 1,
                             .num_rows = 1,
                             .decode_query_len = 1,
                             .block_size = 128,
                             .seq_lens = &len};
  for (uint32_t m = 1; m < 3000; m += 7) {
    float q[16] = {simd_float(m)};
    const m3idx_tensor tensor = {q, M3IDX_F32, {1, 1, 16}, {16, 16, 1}};
    const simd_call call = {.isa = &simd_scalar, .batch = &batch, .q = &tensor, .heads = 1, .dim = 16};
    simd_group_pack(&call, &group, 0, 0, 0, 1);
    ck_assert((double)group.slope[0] >= (16 + 2) * 0x1p-24 * (double)simd_float(m));
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("simd_bound");
  TCase *tcase = tcase_create("simd_bound");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, test_random, 0, 12);
  tcase_add_loop_test(tcase, test_chain, 0, DIMS);
  tcase_add_loop_test(tcase, test_tile_chain, 0, DIMS);
  tcase_add_loop_test(tcase, test_flushed_queries, 0, DIMS);
  tcase_add_loop_test(tcase, test_flushed_keys, 0, DIMS);
  tcase_add_loop_test(tcase, test_flushed_sums, 0, DIMS);
  tcase_add_loop_test(tcase, test_split, 0, 6);
  tcase_add_test(tcase, test_tiny_slope);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
