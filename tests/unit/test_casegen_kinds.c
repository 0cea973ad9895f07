/* SPDX-License-Identifier: Apache-2.0
 *
 * The promises of every data kind of generated cases (common/casedata.c), in every format.
 */
#include <math.h>

#include "casedata.h"
#include "unit_casegen.h"

/* ---- reading numbers back: the definition in dtype.def, in double, which holds all seven formats ---- */

static const struct {
  const char *name;
  int bytes, ebits, fbits, bias;
  enum { IEEE, FN, FNUZ } specials;
} formats[M3IDX_DTYPE_COUNT] = {
#define M3IDX_DTYPE(name, value, text, bytes, ebits, fbits, bias, specials) \
  [value] = {text, bytes, ebits, fbits, bias, specials},
#include "dtype.def"
#undef M3IDX_DTYPE
};

static uint32_t code_at(const case_tensor *t, m3idx_dtype d, int64_t i) {
  if (formats[d].bytes == 4) return ((const uint32_t *)t->data)[i];
  if (formats[d].bytes == 2) return ((const uint16_t *)t->data)[i];
  return ((const uint8_t *)t->data)[i];
}

static double value_of(m3idx_dtype d, uint32_t code) {
  int sign = (int)(code >> (formats[d].ebits + formats[d].fbits));
  int32_t E = (int32_t)(code >> formats[d].fbits & ((1u << formats[d].ebits) - 1));
  uint32_t F = code & ((1u << formats[d].fbits) - 1);
  int top = (1 << formats[d].ebits) - 1;
  if (formats[d].specials == FNUZ && sign && !E && !F) return NAN;
  if (formats[d].specials == FN && E == top && F == (1u << formats[d].fbits) - 1) return NAN;
  if (formats[d].specials == IEEE && E == top) return F ? NAN : sign ? -INFINITY : INFINITY;
  double m = E ? (double)(F + (1u << formats[d].fbits)) : (double)F;
  double v = ldexp(m, (E ? E : 1) - formats[d].bias - formats[d].fbits);
  return sign ? -v : v;
}

typedef struct census {
  int64_t count, nans, infs, zeros, minus_zeros, subnormals, largest, negatives;
  double sum, squares;
} census;

static census count_up(const case_tensor *t, m3idx_dtype d) {
  census c = {.count = (int64_t)t->bytes / formats[d].bytes};
  double smallest_normal = ldexp(1, 1 - formats[d].bias);
  double largest = value_of(d, case_encode(d, false, 1, 900));
  for (int64_t i = 0; i < c.count; i++) {
    double v = value_of(d, code_at(t, d, i));
    c.negatives += !isnan(v) && signbit(v);
    if (isnan(v)) {
      c.nans++;
    } else if (isinf(v)) {
      c.infs++;
    } else {
      c.zeros += v == 0;
      c.minus_zeros += v == 0 && signbit(v);
      c.subnormals += v != 0 && fabs(v) < smallest_normal;
      c.largest += fabs(v) == largest;
      c.sum += v;
      c.squares += v * v;
    }
  }
  return c;
}

/* Normal: finite, mean 0 and variance 1 within six standard errors of 45056 samples, which the fixed seed makes
 * a fact and not a chance. */
START_TEST(normal) {
  m3idx_dtype d = other((m3idx_dtype)_i);
  case_file file = in_format(_i, "normal", "");
  census c = count_up(case_find(&file, "index_k"), d);
  ck_assert_int_eq(c.count, 12 * 128 * 32);
  ck_assert_int_eq(c.nans + c.infs, 0);
  double n = (double)c.count, mean = c.sum / n, variance = c.squares / n - mean * mean;
  ck_assert_double_lt(fabs(mean), 6 / sqrt(n));
  ck_assert_double_lt(fabs(variance - 1), 6 * sqrt(2 / n) + (formats[d].fbits < 4 ? 0.01 : 0));
  case_file_free(&file);
}
END_TEST

START_TEST(ties) {
  case_file file = in_format(_i, "ties", "");
  const case_tensor *k = case_find(&file, "index_k");
  int64_t seen[3] = {0};
  for (int64_t i = 0; i < 12 * 128 * 32; i++) {
    double v = value_of(other((m3idx_dtype)_i), code_at(k, other((m3idx_dtype)_i), i));
    ck_assert(v == -1 || v == 0 || v == 1);
    seen[(int)v + 1]++;
  }
  for (int v = 0; v < 3; v++) ck_assert_int_gt(seen[v], 12 * 128 * 32 / 4);
  ck_assert_int_eq(count_up(k, other((m3idx_dtype)_i)).minus_zeros, 0);
  case_file_free(&file);
}
END_TEST

/* Specials: each sort appears where the format has it, and none crowds out the numbers. */
START_TEST(specials) {
  m3idx_dtype d = (m3idx_dtype)_i;
  char line[256];
  snprintf(line, sizeof line,
           "--op decode --seq-lens 32768 --decode-query-len 512 --q-dtype %s --k-dtype %s "
           "--head-dim 16 --data specials --seed 1",
           formats[d].name, formats[d].name);
  case_file file = generated(line);
  const char *const names[] = {"q", "index_k"};
  for (int i = 0; i < 2; i++) {
    census c = count_up(case_find(&file, names[i]), d);
    ck_assert_int_gt(c.nans, 0);
    ck_assert_int_gt(c.largest, 0);
    ck_assert_int_gt(c.zeros, 0);
    ck_assert_int_gt(c.subnormals, 0);
    ck_assert((c.infs > 0) == (formats[d].specials == IEEE));
    ck_assert((c.minus_zeros > 0) == (formats[d].specials != FNUZ));
    ck_assert_int_lt(c.nans + c.infs, c.count / 50);
  }
  case_file_free(&file);
}
END_TEST

/* Wide: finite, both signs, and every exponent field of the format from subnormal to the last. */
START_TEST(wide) {
  m3idx_dtype d = (m3idx_dtype)_i;
  char line[256];
  snprintf(line, sizeof line,
           "--op decode --seq-lens 65536 --decode-query-len 4096 --q-dtype %s --k-dtype %s "
           "--head-dim 16 --data wide --seed 1",
           formats[d].name, formats[d].name);
  case_file file = generated(line);
  const char *const names[] = {"q", "index_k"};
  for (int i = 0; i < 2; i++) {
    const case_tensor *t = case_find(&file, names[i]);
    census c = count_up(t, d);
    int64_t seen[256] = {0};
    for (int64_t e = 0; e < c.count; e++) seen[code_at(t, d, e) >> formats[d].fbits & ((1u << formats[d].ebits) - 1)]++;
    int last = (1 << formats[d].ebits) - (formats[d].specials == IEEE ? 2 : 1);
    for (int E = 0; E <= last; E++) ck_assert_msg(seen[E] > 0, "%s %s: exponent %d", names[i], formats[d].name, E);
    ck_assert_int_eq(c.nans + c.infs, 0);
    ck_assert_int_gt(c.negatives, c.count / 3);
    ck_assert_int_lt(c.negatives, c.count * 2 / 3);
  }
  case_file_free(&file);
}
END_TEST

/* ---- near: block maxima of fp8, whose dots double holds exactly: products are integers times 2^-20 (least
 * values 2^-10 each) below 2^16, so a sum of 256 takes at most 44 bits ---- */

static double exact_dot(const case_tensor *q, const case_tensor *k, m3idx_dtype dq, m3idx_dtype dk, int64_t row,
                        int64_t token, int64_t D) {
  double sum = 0;
  for (int64_t d = 0; d < D; d++)
    sum += value_of(dq, code_at(q, dq, row * D + d)) * value_of(dk, code_at(k, dk, token * D + d));
  return sum;
}

static const m3idx_dtype near_pairs[][2] = {{M3IDX_E4M3FN, M3IDX_E4M3FN},
                                            {M3IDX_E4M3FN, M3IDX_E4M3FNUZ},
                                            {M3IDX_E4M3FNUZ, M3IDX_E4M3FN},
                                            {M3IDX_E4M3FNUZ, M3IDX_E4M3FNUZ}};

/* Every row: the blocks' maxima lie within 8 ulps of each other, all of them distinct but for few, yet some round
 * to the same float: their order, and the ties, are lost to anything that rounds on the way. */
START_TEST(near_orders_below_an_ulp) {
  m3idx_dtype dq = near_pairs[_i / 3][0], dk = near_pairs[_i / 3][1];
  const int64_t D = (int64_t[]){16, 128, 256}[_i % 3], blocks = 24, rows = 12;
  char line[256];
  snprintf(line, sizeof line,
           "--op decode --seq-lens %d --decode-query-len %d --head-dim %d --q-dtype %s --k-dtype %s "
           "--data near --seed 2",
           (int)blocks * 128, (int)rows, (int)D, formats[dq].name, formats[dk].name);
  case_file file = generated(line);
  const case_tensor *q = case_find(&file, "q"), *k = case_find(&file, "index_k");
  int64_t hidden = 0, tied = 0;
  for (int64_t row = 0; row < rows; row++) {
    double max[24], low = INFINITY, high = -INFINITY;
    for (int64_t b = 0; b < blocks; b++) {
      max[b] = -INFINITY;
      for (int64_t t = 0; t < 128; t++) max[b] = fmax(max[b], exact_dot(q, k, dq, dk, row, b * 128 + t, D));
      low = fmin(low, max[b]);
      high = fmax(high, max[b]);
    }
    int exponent;
    frexp(fabs(low), &exponent);
    double ulp = ldexp(1, exponent - 24);
    ck_assert_double_lt(high - low, 8 * ulp);
    bool found = false;
    for (int64_t a = 0; a < blocks; a++)
      for (int64_t b = 0; b < a; b++) {
        if (max[a] == max[b])
          tied++;
        else if ((float)max[a] == (float)max[b])
          found = true;
      }
    hidden += found;
  }
  ck_assert_int_eq(hidden, rows);
  ck_assert_int_lt(tied, rows * blocks * (blocks - 1) / 2 / 8);
  case_file_free(&file);
}
END_TEST

/* The same sums in binary32, left to right, are wrong in most rows: that is what the kind is for. */
START_TEST(near_defeats_float_sums) {
  case_file file = generated("--op decode --seq-lens 3072 --decode-query-len 16 --head-dim 128 --q-dtype e4m3fn "
                             "--k-dtype e4m3fn --data near --seed 4");
  const case_tensor *q = case_find(&file, "q"), *k = case_find(&file, "index_k");
  const m3idx_dtype d = M3IDX_E4M3FN;
  int64_t wrong = 0;
  for (int64_t row = 0; row < 16; row++)
    for (int64_t token = 0; token < 3072; token += 16) {
      volatile float sum = 0;
      for (int64_t i = 0; i < 128; i++) {
        volatile float product =
            (float)(value_of(d, code_at(q, d, row * 128 + i)) * value_of(d, code_at(k, d, token * 128 + i)));
        sum = sum + product;
      }
      wrong += (double)sum != (double)(float)exact_dot(q, k, d, d, row, token, 128);
    }
  ck_assert_int_gt(wrong, 16 * 192 / 8);
  case_file_free(&file);
}
END_TEST

/* Every pair of formats stays finite, and no tiny coordinate is lost on the way into its format. */
START_TEST(near_fits_every_pair) {
  m3idx_dtype dq = (m3idx_dtype)(_i / M3IDX_DTYPE_COUNT), dk = (m3idx_dtype)(_i % M3IDX_DTYPE_COUNT);
  char line[256];
  snprintf(line, sizeof line,
           "--op decode --seq-lens 512 --decode-query-len 64 --head-dim %d --q-dtype %s "
           "--k-dtype %s --data near --seed 2",
           _i & 1 ? 16 : 256, formats[dq].name, formats[dk].name);
  case_file file = generated(line);
  census q = count_up(case_find(&file, "q"), dq), k = count_up(case_find(&file, "index_k"), dk);
  ck_assert_int_eq(q.nans + q.infs + k.nans + k.infs, 0);
  ck_assert_int_eq(q.zeros, 0);
  case_file_free(&file);
}
END_TEST

/* ---- drift ---- */

static const m3idx_dtype drift_pairs[][2] = {
    {M3IDX_F32, M3IDX_F32}, {M3IDX_BF16, M3IDX_BF16}, {M3IDX_E4M3FN, M3IDX_E4M3FNUZ}, {M3IDX_E5M2, M3IDX_F16}};

/* Drift is there to tell a bound of E from one of 2 E, E = (D + 2) * 2^-24 * sum |q| * max |k|
 * (docs/CERTIFIED-FILTER.md): somewhere the token with the largest dot is more than E below another one in a running
 * sum of floats.  In double these dots are exact: 24 bits to half an ulp of X, five below it. */
START_TEST(drift_needs_the_whole_bound) {
  const m3idx_dtype dq = drift_pairs[_i][0], dk = drift_pairs[_i][1];
  enum { D = 16, TOKENS = 128, PAGES = 8, SEEDS = 16 };
  int64_t beyond = 0;
  for (int seed = 0; seed < SEEDS; seed++) {
    char line[256];
    snprintf(line, sizeof line,
             "--op decode --seq-lens %d --head-dim %d --q-dtype %s --k-dtype %s --data drift --seed %d", PAGES * TOKENS,
             D, formats[dq].name, formats[dk].name, seed);
    case_file file = generated(line);
    const case_tensor *q = case_find(&file, "q"), *k = case_find(&file, "index_k");
    for (int64_t page = 0; page < PAGES; page++) {
      double best = -INFINITY, peak = 0, size = 0, of_best = 0, most = -INFINITY;
      for (int64_t i = 0; i < D; i++) size += fabs(value_of(dq, code_at(q, dq, i)));
      for (int64_t t = page * TOKENS; t < (page + 1) * TOKENS; t++) {
        volatile float sum = 0;
        for (int64_t i = 0; i < D; i++) {
          const double key = value_of(dk, code_at(k, dk, t * D + i));
          volatile float product = (float)(value_of(dq, code_at(q, dq, i)) * key);
          sum = sum + product;
          peak = fmax(peak, fabs(key));
        }
        const double exact = exact_dot(q, k, dq, dk, 0, t, D);
        of_best = exact > best ? (double)sum : of_best;
        best = fmax(best, exact);
        most = fmax(most, (double)sum);
      }
      beyond += most - of_best > (D + 2) * 0x1p-24 * size * peak;
    }
    case_file_free(&file);
  }
  ck_assert_int_ge(beyond, SEEDS / 4);
}
END_TEST

/* Every pair of formats stays finite, holds its tip and its whisker, and has midpoints of floats. */
START_TEST(drift_fits_every_pair) {
  m3idx_dtype dq = (m3idx_dtype)(_i / M3IDX_DTYPE_COUNT), dk = (m3idx_dtype)(_i % M3IDX_DTYPE_COUNT);
  int64_t midpoints = 0;
  for (int seed = 0; seed < 8; seed++) {
    char line[256];
    snprintf(line, sizeof line,
             "--op decode --seq-lens 512 --decode-query-len 4 --head-dim %d --block-size 64 --q-dtype %s "
             "--k-dtype %s --data drift --seed %d",
             seed & 1 ? 16 : 256, formats[dq].name, formats[dk].name, seed);
    case_file file = generated(line);
    const case_tensor *q = case_find(&file, "q"), *k = case_find(&file, "index_k");
    census cq = count_up(q, dq), ck = count_up(k, dk);
    ck_assert_int_eq(cq.nans + cq.infs + ck.nans + ck.infs, 0);
    ck_assert_int_eq(cq.zeros, 0);
    for (int64_t t = 0; t < 512; t++) {
      const double dot = exact_dot(q, k, dq, dk, 0, t, seed & 1 ? 16 : 256);
      const float near = (float)dot;
      midpoints += (double)near != dot && fabs((double)nextafterf(near, dot > (double)near ? INFINITY : -INFINITY) -
                                               dot) == fabs((double)near - dot);
    }
    case_file_free(&file);
  }
  ck_assert_int_gt(midpoints, 8);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("casegen_kinds");
  TCase *tcase = tcase_create("casegen_kinds");
  suite_add_tcase(suite, tcase);
  tcase_set_timeout(tcase, 60);
  tcase_add_loop_test(tcase, normal, 0, M3IDX_DTYPE_COUNT);
  tcase_add_loop_test(tcase, ties, 0, M3IDX_DTYPE_COUNT);
  tcase_add_loop_test(tcase, specials, 0, M3IDX_DTYPE_COUNT);
  tcase_add_loop_test(tcase, wide, 0, M3IDX_DTYPE_COUNT);
  tcase_add_loop_test(tcase, near_orders_below_an_ulp, 0, 3 * sizeof near_pairs / sizeof *near_pairs);
  tcase_add_test(tcase, near_defeats_float_sums);
  tcase_add_loop_test(tcase, near_fits_every_pair, 0, M3IDX_DTYPE_COUNT * M3IDX_DTYPE_COUNT);
  tcase_add_loop_test(tcase, drift_needs_the_whole_bound, 0, sizeof drift_pairs / sizeof *drift_pairs);
  tcase_add_loop_test(tcase, drift_fits_every_pair, 0, M3IDX_DTYPE_COUNT * M3IDX_DTYPE_COUNT);
  return unit_run(suite);
}
