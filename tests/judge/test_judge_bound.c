/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge's sets against MPFR: for random blocks of every format the ends of a set are the ends of docs/JUDGE.md's
 * interval, rounded inward, float for float; honest dots of every kind fall inside; what overflows is what may.
 */
#include <float.h>
#include <math.h>
#include <mpfr.h>
#include <string.h>

/* After mpfr.h */
#include "foreign.h"
#include "mfma.h"
#include "unit.h"

enum { D = 32, TOKENS = 16, BITS = 1400 };

typedef struct block {
  m3idx_dtype q_dtype, k_dtype;
  judge_codec codec[2];
  unsigned char q[D * 4], k[TOKENS * D * 4];
  judge_query query;
  judge_tile tile;
} block;

static const m3idx_dtype formats[][2] = {
    {M3IDX_BF16, M3IDX_BF16},         {M3IDX_F16, M3IDX_F16},     {M3IDX_BF16, M3IDX_E4M3FN}, {M3IDX_F32, M3IDX_F32},
    {M3IDX_E4M3FNUZ, M3IDX_E5M2FNUZ}, {M3IDX_E5M2, M3IDX_E4M3FN}, {M3IDX_F16, M3IDX_E5M2}};
enum { FORMATS = sizeof formats / sizeof *formats };

static void put_code(unsigned char *at, size_t bytes, uint32_t code) {
  uint8_t u8 = (uint8_t)code;
  uint16_t u16 = (uint16_t)code;
  memcpy(at, bytes == 1 ? (void *)&u8 : bytes == 2 ? (void *)&u16 : (void *)&code, bytes);
}

/* A finite code of magnitude up to `most`, or, where the format has little down there, of its subnormals; one in four
 * is anything below that. */
static uint32_t draw(m3idx_dtype dtype, double most, uint64_t *state) {
  bool small = most < 1 && dtype != M3IDX_F32 && dtype != M3IDX_BF16;
  for (;;) {
    uint32_t code = (uint32_t)foreign_random(state);
    if (m3idx_dtype_bytes(dtype) < 4) code &= (1u << 8 * m3idx_dtype_bytes(dtype)) - 1;
    double x = judge_decode(code, dtype).value;
    if (small && fabs(x) > 0x1p-4) continue;
    if (!small && !(fabs(x) <= most)) continue;
    if (isnan(x) || (most >= 1 && x != 0 && fabs(x) < 0x1p-6 && foreign_random(state) % 4)) continue;
    return code;
  }
}

static void start(block *b, int format) {
  b->q_dtype = formats[format][0];
  b->k_dtype = formats[format][1];
  ck_assert_int_eq(judge_codec_open(&b->codec[0], b->q_dtype) | judge_codec_open(&b->codec[1], b->k_dtype), 0);
}

static void fill(block *b, double most, uint64_t *state) {
  size_t qb = m3idx_dtype_bytes(b->q_dtype), kb = m3idx_dtype_bytes(b->k_dtype);
  for (size_t i = 0; i < D; i++) put_code(b->q + i * qb, qb, draw(b->q_dtype, most, state));
  for (size_t i = 0; i < D * TOKENS; i++) put_code(b->k + i * kb, kb, draw(b->k_dtype, most, state));
  judge_query_load(&b->query, &b->codec[0], b->q, 0, D);
  judge_tile_load(&b->tile, &b->codec[1], b->k, 0, TOKENS, D);
}

static void finish(block *b) {
  judge_codec_close(&b->codec[0]);
  judge_codec_close(&b->codec[1]);
}

/* x - E or x + E of one token, exactly; the terms as docs/JUDGE.md has them. */
static void end_of(mpfr_t out, const block *b, const judge_bound *bound, int t, int sign) {
  mpfr_t x, a, lost, p;
  mpfr_inits2(BITS, x, a, lost, p, (mpfr_ptr)NULL);
  mpfr_set_zero(x, 1);
  mpfr_set_zero(a, 1);
  mpfr_set_zero(lost, 1);
  int low = 10000;
  for (int d = 0; d < D; d++) {
    judge_number q = judge_at(&b->codec[0], b->q, d), k = judge_at(&b->codec[1], b->k, t * D + d);
    mpfr_set_d(p, q.value, MPFR_RNDN);
    mpfr_mul_d(p, p, k.value, MPFR_RNDN);
    if (mpfr_zero_p(p)) continue;
    mpfr_add(x, x, p, MPFR_RNDN);
    mpfr_abs(p, p, MPFR_RNDN);
    mpfr_add(a, a, p, MPFR_RNDN);
    if ((q.subnormal || k.subnormal) && bound->flush) mpfr_add(lost, lost, p, MPFR_RNDN);
    if ((q.subnormal || k.subnormal) && bound->exponents) {
      mpfr_set_ui_2exp(p, 1, q.exponent + k.exponent, MPFR_RNDN);
      mpfr_add(a, a, p, MPFR_RNDN); /* A + X */
    }
  }
  for (int d = 0; d < D; d++) { /* theorem 3's grid */
    judge_number k = judge_at(&b->codec[1], b->k, t * D + d);
    if (k.low < low) low = k.low;
  }
  low += b->query.low;
  mpfr_set_ui_2exp(p, 1, low + 23, MPFR_RNDN);
  if (low >= (bound->flush ? -126 : -149) && mpfr_zero_p(lost) && mpfr_cmp(a, p) <= 0) {
    mpfr_set(out, x, MPFR_RNDN);
  } else {
    mpfr_mul_si(a, a, (long)bound->e, MPFR_RNDN);
    mpfr_div_2ui(a, a, 32, MPFR_RNDN);
    mpfr_add(a, a, lost, MPFR_RNDN);
    mpfr_set_ui_2exp(p, 4 * D, bound->flush ? -126 : -149, MPFR_RNDN);
    mpfr_add(a, a, p, MPFR_RNDN);
    mpfr_mul_si(a, a, sign, MPFR_RNDN);
    mpfr_add(out, x, a, MPFR_RNDN);
  }
  mpfr_clears(x, a, lost, p, (mpfr_ptr)NULL);
}

static float largest_end(const block *b, const judge_bound *bound, int sign) {
  mpfr_t end, best;
  mpfr_inits2(BITS, end, best, (mpfr_ptr)NULL);
  mpfr_set_inf(best, -1);
  for (int t = 0; t < TOKENS; t++) {
    end_of(end, b, bound, t, sign);
    mpfr_max(best, best, end, MPFR_RNDN);
  }
  float value = mpfr_get_flt(best, sign > 0 ? MPFR_RNDD : MPFR_RNDU);
  mpfr_clears(end, best, (mpfr_ptr)NULL);
  return value;
}

static const struct {
  judge_arith arith;
  bool flush;
  int k_block;
} declared[] = {{JUDGE_F32, false, 0},        {JUDGE_F32, true, 0},       {JUDGE_BF16_MMA, false, 0},
                {JUDGE_BF16_MMA, true, 0},    {JUDGE_BF16_MMA, false, 8}, {JUDGE_CDNA3_MFMA, false, 0},
                {JUDGE_CDNA3_MFMA, false, 16}};
enum { DECLARED = sizeof declared / sizeof *declared, BLOCKS = 12 };

START_TEST(ends_are_exact) {
  int format = _i / DECLARED, how = _i % DECLARED;
  uint64_t state = (uint64_t)_i;
  static block b;
  judge_bound bound;
  char why[CASE_MESSAGE_BYTES];
  if (judge_bound_of(declared[how].arith, declared[how].flush, declared[how].k_block, D, formats[format][0],
                     formats[format][1], &bound, why))
    return; /* no unit has these operands: test_mfma and the table say which */
  start(&b, format);
  for (int i = 0; i < BLOCKS; i++) {
    fill(&b, i % 4 == 3 ? 0x1p-60 : 0x1p20, &state);
    judge_set set = judge_block(&bound, &b.query, &b.tile, TOKENS);
    ck_assert(set.finite && !set.nan && !set.plus_inf && !set.minus_inf);
    float low = largest_end(&b, &bound, -1), high = largest_end(&b, &bound, 1);
    ck_assert_msg(set.low == low && set.high == high, "%s %s: want %a..%a, got %a..%a", m3idx_dtype_name(b.q_dtype),
                  judge_arith_name(bound.arith), (double)low, (double)high, (double)set.low, (double)set.high);
  }
  finish(&b);
}
END_TEST

/* Honest dots of one token each, of all kinds: inside.  One float past either end is outside by definition of a set. */
START_TEST(honest_dots_are_inside) {
  static const struct {
    foreign_kind kind;
    int block, how;
  } kinds[] = {{FOREIGN_F32, 0, 0},    {FOREIGN_FMA_DOWN, 0, 0}, {FOREIGN_PAIRWISE, 0, 0},
               {FOREIGN_RANDOM, 0, 0}, {FOREIGN_FLUSH, 0, 1},    {FOREIGN_MMA, 1, 2},
               {FOREIGN_MMA, 4, 2},    {FOREIGN_MMA, 32, 2},     {FOREIGN_MMA, 8, 4}};
  int format = _i, order[D];
  uint64_t state = (uint64_t)_i + 1000;
  static block b;
  char why[CASE_MESSAGE_BYTES];
  for (int d = 0; d < D; d++) order[d] = d;
  start(&b, format);
  for (int i = 0; i < 100; i++) {
    fill(&b, i % 4 == 3 ? 0x1p-60 : i % 4 == 2 ? 0x1p127 : 0x1p20, &state);
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
      judge_bound bound;
      judge_number q[D], k[D];
      int how = kinds[n].how;
      if (judge_bound_of(declared[how].arith, declared[how].flush, declared[how].k_block, D, b.q_dtype, b.k_dtype,
                         &bound, why))
        continue;
      for (int d = 0; d < D; d++) {
        q[d] = judge_at(&b.codec[0], b.q, d);
        k[d] = judge_at(&b.codec[1], b.k, d);
      }
      float got = foreign_dot(kinds[n].kind, kinds[n].block, q, k, order, D, &state);
      judge_set set = judge_block(&bound, &b.query, &b.tile, 1);
      ck_assert_msg(judge_set_has(&set, got), "%s with %s, kind %d: %a is not in %a..%a", m3idx_dtype_name(b.q_dtype),
                    m3idx_dtype_name(b.k_dtype), kinds[n].kind, (double)got, (double)set.low, (double)set.high);
    }
  }
  finish(&b);
}
END_TEST

/* The model itself, on inputs with subnormals: where the published 40 * 2^-24 sum |ab| would not hold. */
START_TEST(model_is_inside_its_bound) {
  int format = _i;
  uint64_t state = (uint64_t)_i + 2000;
  static block b;
  char why[CASE_MESSAGE_BYTES];
  mfma_unit unit;
  judge_bound bound;
  if (mfma_unit_of(formats[format][0], formats[format][1], 0, &unit, why)) return;
  int k_block = unit.kind == MFMA_BLOCKS_16 ? 16 : 0;
  ck_assert_int_eq(
      judge_bound_of(JUDGE_CDNA3_MFMA, false, k_block, D, formats[format][0], formats[format][1], &bound, why), 0);
  start(&b, format);
  for (int i = 0; i < 300; i++) {
    judge_number q[D], k[D];
    fill(&b, i % 4 == 3 ? 0x1p-60 : i % 4 == 2 ? 0x1p127 : 0x1p20, &state);
    for (int d = 0; d < D; d++) {
      q[d] = judge_at(&b.codec[0], b.q, d);
      k[d] = judge_at(&b.codec[1], b.k, d);
    }
    float got = mfma_dot(&unit, q, k, D, 0);
    judge_set set = judge_block(&bound, &b.query, &b.tile, 1);
    ck_assert_msg(judge_set_has(&set, got), "%s: %a is not in %a..%a", m3idx_dtype_name(b.q_dtype), (double)got,
                  (double)set.low, (double)set.high);
  }
  finish(&b);
}
END_TEST

/* ---- the bounds are reached ---- */

/* The share of the bound that an honest dot of ones with k uses up when it loses what it can lose. */
static double share_lost(judge_arith arith, int k_block, foreign_kind kind, const float *k, int n) {
  static judge_query query;
  static judge_tile tile;
  judge_codec codec;
  judge_bound bound;
  mfma_unit unit;
  uint16_t ones[D], codes[D];
  judge_number a[D], b[D];
  int order[D];
  uint64_t state = 0;
  char why[CASE_MESSAGE_BYTES];
  double exact = 0;
  ck_assert_int_eq(judge_codec_open(&codec, M3IDX_BF16), 0);
  for (int d = 0; d < n; d++) {
    uint32_t bits;
    memcpy(&bits, &k[d], sizeof bits);
    ck_assert_uint_eq(bits & 0xffff, 0); /* a bf16 number */
    ones[d] = 0x3f80;
    codes[d] = (uint16_t)(bits >> 16);
    a[d] = judge_decode(ones[d], M3IDX_BF16);
    b[d] = judge_decode(codes[d], M3IDX_BF16);
    order[d] = d;
    exact += b[d].value;
  }
  ck_assert_int_eq(judge_bound_of(arith, false, k_block, n, M3IDX_BF16, M3IDX_BF16, &bound, why), 0);
  ck_assert_int_eq(mfma_unit_of(M3IDX_BF16, M3IDX_BF16, 8, &unit, why), 0);
  judge_query_load(&query, &codec, ones, 0, n);
  judge_tile_load(&tile, &codec, codes, 0, 1, n);
  judge_set set = judge_block(&bound, &query, &tile, 1);
  float got =
      arith == JUDGE_CDNA3_MFMA ? mfma_dot(&unit, a, b, n, 0) : foreign_dot(kind, k_block, a, b, order, n, &state);
  judge_codec_close(&codec);
  ck_assert(got == 1 && judge_set_has(&set, got));
  /* docs/JUDGE.md: A is the exact sum here, as all products are positive. */
  return (exact - (double)got) / ((double)bound.e * 0x1p-32 * exact);
}

START_TEST(bounds_are_reached) {
  float k[D] = {1};
  /* Each addend is just below half an ulp of 1: lost 15 times, of 16 roundings allowed. */
  for (int d = 1; d < 16; d++) k[d] = 0x1.fep-25f;
  double share = share_lost(JUDGE_F32, 0, FOREIGN_F32, k, 16);
  ck_assert_msg(share > 0.93 && share < 0.94, "%g", share);
  /* One operation cuts 31 addends just below its unit; allowed are 32, and the results of two operations twice. */
  for (int d = 1; d < 32; d++) k[d] = 0x1.fep-24f;
  share = share_lost(JUDGE_BF16_MMA, 32, FOREIGN_MMA, k, 32);
  ck_assert_msg(share > 0.85 && share < 0.87, "%g", share);
  /* gfx942: seven cut in the first block, then one rounded away in each of three; 8 and 2 a block are allowed. */
  for (int d = 1; d < 32; d++) k[d] = d < 8 || d % 8 == 0 ? 0x1.fep-25f : 0;
  share = share_lost(JUDGE_CDNA3_MFMA, 8, FOREIGN_MFMA, k, 32);
  ck_assert_msg(share > 0.61 && share < 0.63, "%g", share);
}
END_TEST

/* A subnormal operand aligns its block by its exponent field: 2^-133 * 2^100 is 2^-33, but cuts its neighbours at
 * 2^-50. Seven of them just below that are lost, 56 times what a bound by sum |q k| alone allows; X makes the
 * difference. */
START_TEST(subnormal_operands_cut_their_neighbours) {
  static judge_query query;
  static judge_tile tile;
  judge_codec codec;
  judge_bound bound;
  mfma_unit unit;
  judge_number a[D], b[D];
  uint16_t q[D] = {0x0001}, k[D] = {0x7180}; /* 2^-133, 2^100 */
  char why[CASE_MESSAGE_BYTES];
  ck_assert_int_eq(judge_codec_open(&codec, M3IDX_BF16), 0);
  for (int d = 1; d < 8; d++) {
    q[d] = 0x32ff; /* 0x1.fep-26 */
    k[d] = 0x3300; /* 2^-25 */
  }
  for (int d = 0; d < D; d++) {
    a[d] = judge_decode(q[d], M3IDX_BF16);
    b[d] = judge_decode(k[d], M3IDX_BF16);
  }
  ck_assert(a[0].value == 0x1p-133 && b[0].value == 0x1p100 && a[1].value == 0x1.fep-26 && b[1].value == 0x1p-25);
  ck_assert_int_eq(mfma_unit_of(M3IDX_BF16, M3IDX_BF16, 8, &unit, why), 0);
  ck_assert_int_eq(judge_bound_of(JUDGE_CDNA3_MFMA, false, 8, D, M3IDX_BF16, M3IDX_BF16, &bound, why), 0);
  judge_query_load(&query, &codec, q, 0, D);
  judge_tile_load(&tile, &codec, k, 0, 1, D);
  judge_set set = judge_block(&bound, &query, &tile, 1);
  float got = mfma_dot(&unit, a, b, D, 0);
  judge_codec_close(&codec);
  ck_assert(got == 0x1p-33f && judge_set_has(&set, got));
}
END_TEST

/* ---- what is no number ---- */

static judge_set set_of_f32(const float *q, const float *k, int tokens, bool flush) {
  static judge_query query;
  static judge_tile tile;
  judge_codec codec;
  judge_bound bound;
  char why[CASE_MESSAGE_BYTES];
  ck_assert_int_eq(judge_codec_open(&codec, M3IDX_F32), 0);
  ck_assert_int_eq(judge_bound_of(JUDGE_F32, flush, 0, 16, M3IDX_F32, M3IDX_F32, &bound, why), 0);
  judge_query_load(&query, &codec, q, 0, 16);
  judge_tile_load(&tile, &codec, k, 0, tokens, 16);
  return judge_block(&bound, &query, &tile, tokens);
}

static void check_flags(judge_set set, bool finite, bool plus, bool minus, bool nan) {
  ck_assert_int_eq(set.finite, finite);
  ck_assert_int_eq(set.plus_inf, plus);
  ck_assert_int_eq(set.minus_inf, minus);
  ck_assert_int_eq(set.nan, nan);
}

START_TEST(overflow_and_specials) {
  float q[16] = {1, 1, 1, 1}, k[32] = {0};
  /* 2^127 twice: +inf only; the exact sum is past every float. */
  k[0] = k[1] = 0x1p127f;
  check_flags(set_of_f32(q, k, 1, false), false, true, false, false);
  /* 2^127 + 2^127 - 2^127: exactly 2^127, or +inf by the order; never -inf, never NaN. */
  k[2] = -0x1p127f;
  judge_set set = set_of_f32(q, k, 1, false);
  check_flags(set, true, true, false, false);
  ck_assert(judge_set_has(&set, 0x1p127f) && !judge_set_has(&set, 0x1p126f));
  /* And once more -2^127: each infinity and so NaN can come out. */
  k[3] = -0x1p127f;
  check_flags(set_of_f32(q, k, 1, false), true, true, true, true);
  /* A second token of 1 is no NaN: a maximum over both is at least 1. */
  k[16] = 1;
  set = set_of_f32(q, k, 2, false);
  check_flags(set, true, true, false, false);
  ck_assert(judge_set_has(&set, 1) && !judge_set_has(&set, 0.5f) && !judge_set_has(&set, NAN));
  /* S3.1: a NaN operand, inf * 0, inf - inf: NaN, whatever the order; NaN is left out of a maximum. */
  memset(k, 0, sizeof k);
  k[0] = NAN;
  check_flags(set_of_f32(q, k, 1, false), false, false, false, true);
  k[0] = INFINITY;
  k[1] = -INFINITY;
  check_flags(set_of_f32(q, k, 1, false), false, false, false, true);
  k[1] = 0;
  check_flags(set_of_f32(q, k, 1, false), false, true, false, false);
  k[0] = 0;
  k[5] = INFINITY; /* q[5] is 0 */
  check_flags(set_of_f32(q, k, 1, false), false, false, false, true);
  k[16] = -3;
  set = set_of_f32(q, k, 2, false);
  check_flags(set, true, false, false, false);
  ck_assert(set.low == -3 && set.high == -3);
  /* An infinity and products that can pass the largest float the other way: NaN too. */
  memset(k, 0, sizeof k);
  k[0] = INFINITY;
  k[1] = k[2] = -0x1p127f;
  check_flags(set_of_f32(q, k, 1, false), false, true, false, true);
  /* An infinity and a subnormal that may be read as zero. */
  q[0] = 0x1p-140f;
  k[1] = k[2] = 0;
  check_flags(set_of_f32(q, k, 1, false), false, true, false, false);
  check_flags(set_of_f32(q, k, 1, true), false, true, false, true);
}
END_TEST

START_TEST(scale_rounds_once_more) {
  judge_set set = judge_set_point(3);
  judge_set_scale(&set, 0.1f, false);
  ck_assert(set.low == 3 * 0.1f && set.high == 3 * 0.1f);
  set = judge_set_point(FLT_MAX);
  judge_set_scale(&set, 2, false);
  check_flags(set, false, true, false, false);
  set = judge_set_point(0x1p-126f);
  judge_set_scale(&set, 0.5f, false);
  ck_assert(judge_set_has(&set, 0x1p-127f) && !judge_set_has(&set, 0));
  set = judge_set_point(0x1p-126f);
  judge_set_scale(&set, 0.5f, true);
  ck_assert(judge_set_has(&set, 0x1p-127f) && judge_set_has(&set, 0));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("judge bound");
  TCase *bound = tcase_create("bound");
  tcase_set_timeout(bound, 0);
  tcase_add_loop_test(bound, ends_are_exact, 0, FORMATS * DECLARED);
  tcase_add_loop_test(bound, honest_dots_are_inside, 0, FORMATS);
  tcase_add_loop_test(bound, model_is_inside_its_bound, 0, FORMATS);
  tcase_add_test(bound, bounds_are_reached);
  tcase_add_test(bound, subnormal_operands_cut_their_neighbours);
  tcase_add_test(bound, overflow_and_specials);
  tcase_add_test(bound, scale_rounds_once_more);
  suite_add_tcase(suite, bound);
  int status = unit_run(suite);
  mpfr_free_cache();
  return status;
}
