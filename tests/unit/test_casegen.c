/* SPDX-License-Identifier: Apache-2.0
 *
 * Generated cases (common/casegen.c, casedata.c): the generator and the encoder against published and hand-made
 * values, the promises of every data kind, page tables, poison, and digests that hold on every host.
 */
#include <math.h>
#include <string.h>

#include "case.h"
#include "casedata.h"
#include "unit.h"

static case_file generated(const char *line) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_spec spec;
  case_file file;
  ck_assert_msg(!case_spec_parse_line(line, &spec, why), "%s: %s", line, why);
  ck_assert_msg(!case_generate(&spec, &file, why), "%s: %s", line, why);
  case_spec_free(&spec);
  return file;
}

/* ---- the generator: SplitMix64 from 1234567, the first five words as widely published ---- */

START_TEST(splitmix64_vector) {
  static const uint64_t want[5] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                   4593380528125082431u, 16408922859458223821u};
  ck_assert_uint_eq(case_word(1234567, (uint64_t)_i), want[_i]);
}
END_TEST

/* ---- the encoder: value m * 2^e, code worked out by hand from the formats' definitions (S2.2) ---- */

static const struct {
  m3idx_dtype dtype;
  bool negative;
  uint64_t m;
  int e;
  uint32_t want;
} codes[] = {
    {M3IDX_F32, false, 1, 0, 0x3f800000},
    {M3IDX_F32, true, 3, -1, 0xbfc00000},
    {M3IDX_F32, false, (1u << 24) + 1, -24, 0x3f800000}, /* a tie goes to even */
    {M3IDX_F32, false, (1u << 24) + 3, -24, 0x3f800002}, /* and up where that is even */
    {M3IDX_F32, false, (1u << 25) - 1, -25, 0x3f800000}, /* carries into the exponent */
    {M3IDX_F32, false, 1, -149, 1},
    {M3IDX_F32, false, 1, -150, 0},
    {M3IDX_F32, false, 3, -151, 1},
    {M3IDX_F32, true, 1, -200, 0x80000000},
    {M3IDX_F32, false, 1, 200, 0x7f7fffff}, /* saturates */
    {M3IDX_F32, true, 0, 0, 0x80000000},
    {M3IDX_F16, false, 1, -24, 1},
    {M3IDX_F16, false, 65504, 0, 0x7bff},
    {M3IDX_F16, false, 65520, 0, 0x7bff},
    {M3IDX_BF16, false, 0x181, -8, 0x3fc0}, /* 1.50390625: a tie, to even */
    {M3IDX_BF16, false, 0x183, -8, 0x3fc2},
    {M3IDX_E4M3FN, false, 448, 0, 0x7e},
    {M3IDX_E4M3FN, true, 480, 0, 0xfe}, /* 0x7f would be NaN */
    {M3IDX_E4M3FN, false, 1, -9, 1},
    {M3IDX_E4M3FN, false, 1, -10, 0},
    {M3IDX_E4M3FN, true, 1, -10, 0x80},
    {M3IDX_E4M3FNUZ, true, 1, -12, 0}, /* there is no -0 */
    {M3IDX_E4M3FNUZ, false, 1, -10, 1},
    {M3IDX_E4M3FNUZ, false, 1, 0, 0x40},
    {M3IDX_E4M3FNUZ, false, 300, 0, 0x7f},
    {M3IDX_E5M2, false, 57344, 0, 0x7b},
    {M3IDX_E5M2, false, 1, 16, 0x7b}, /* 0x7c would be inf */
    {M3IDX_E5M2, true, 1, -16, 0x81},
    {M3IDX_E5M2FNUZ, false, 1, 0, 0x40},
    {M3IDX_E5M2FNUZ, true, 57344, 0, 0xff},
    {M3IDX_E5M2FNUZ, false, 1, -17, 1},
};

START_TEST(encoder) {
  ck_assert_uint_eq(case_encode(codes[_i].dtype, codes[_i].negative, codes[_i].m, codes[_i].e), codes[_i].want);
}
END_TEST

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

/* One case a format: q in format i, keys in format 6 - i, so that all pairs of widths meet. */
static m3idx_dtype other(m3idx_dtype d) { return (m3idx_dtype)(M3IDX_DTYPE_COUNT - 1 - d); }

static case_file in_format(int i, const char *data, const char *more) {
  char line[512];
  snprintf(line, sizeof line,
           "--op decode --seq-lens 1024,1,300 --decode-query-len 4 --heads 3 --head-dim 32 --q-dtype %s --k-dtype %s "
           "--data %s --seed 5 %s",
           formats[i].name, formats[other((m3idx_dtype)i)].name, data, more);
  return generated(line);
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

/* ---- select ---- */

START_TEST(select_scores) {
  static const char *const kinds[] = {"normal", "ties", "specials", "wide", "near", "drift"};
  char line[128];
  snprintf(line, sizeof line, "--op select --num-blocks 0,74,2000 --heads 2 --max-block 2001 --data %s", kinds[_i]);
  case_file file = generated(line);
  const case_tensor *score = case_find(&file, "score"), *num_blocks = case_find(&file, "num_blocks");
  const uint32_t *bits = score->data;
  const int32_t want[3] = {0, 74, 2000};
  ck_assert_int_eq(score->shape[0], 2);
  ck_assert_int_eq(score->shape[1], 3);
  ck_assert_int_eq(score->shape[2], 2001);
  ck_assert_mem_eq(num_blocks->data, want, sizeof want);
  int64_t specials = 0, near = 0;
  for (int64_t row = 0; row < 6; row++) {
    for (int64_t b = want[row % 3]; b < 2001; b++) /* S4.6: poison past N */
      ck_assert_uint_eq(bits[row * 2001 + b], b & 1 ? 0x7f800000u : 0x7fc00000u);
    for (int64_t b = 0; b < want[row % 3]; b++) {
      uint32_t magnitude = bits[row * 2001 + b] & 0x7fffffff;
      specials += magnitude >= 0x7f800000 || magnitude == 0;
      near += (_i == 5 ? magnitude : bits[row * 2001 + b]) - 0x3f800000u < 8;
    }
  }
  if (_i == 2) ck_assert_int_gt(specials, 2 * 2074 / 25);
  if (_i == 0 || _i >= 3) ck_assert_int_eq(specials, 0);
  if (_i >= 4) ck_assert_int_eq(near, 2 * 2074);
  case_file_free(&file);
}
END_TEST

/* ---- pages and tables ---- */

/* Each page is live exactly once, in an order that is not the identity; what is dead is poison. */
START_TEST(tables) {
  case_file file = generated("--op prefill --q-lens 3,4,0 --prefix-lens 1000,0,5 --seq-lens 1003,300,5 --heads 2 "
                             "--max-block 12 --sparse-table 1 --attention-table 1");
  ck_assert_int_eq(case_find(&file, "index_k")->shape[0], 8 + 3 + 1);
  const char *const names[] = {"block_table", "attention_block_table"};
  const int64_t live[3] = {8, 3, 1};
  for (int i = 0; i < 2; i++) {
    const case_tensor *t = case_find(&file, names[i]);
    const int32_t *table = t->data;
    int seen[12] = {0}, in_order = 0;
    ck_assert_int_ge(t->shape[1], 12);
    for (int64_t r = 0; r < 3; r++)
      for (int64_t b = 0; b < t->shape[1]; b++) {
        int32_t page = table[r * t->shape[1] + b];
        if (b < live[r]) {
          ck_assert(page >= 0 && page < 12);
          seen[page]++;
          in_order += page == b;
        } else {
          ck_assert(page == -1 || page == INT32_MAX);
        }
      }
    for (int p = 0; p < 12; p++) ck_assert_int_eq(seen[p], 1);
    ck_assert_int_lt(in_order, 8);
  }
  ck_assert(memcmp(case_find(&file, names[0])->data, case_find(&file, names[1])->data, 8 * sizeof(int32_t)) != 0);
  const int32_t cu[4] = {0, 3, 7, 7}, seq[3] = {1003, 300, 5}, prefix[3] = {1000, 0, 5};
  ck_assert_mem_eq(case_find(&file, "cu_seqlens")->data, cu, sizeof cu);
  ck_assert_mem_eq(case_find(&file, "seq_lens")->data, seq, sizeof seq);
  ck_assert_mem_eq(case_find(&file, "prefix_lens")->data, prefix, sizeof prefix);
  case_file_free(&file);
}
END_TEST

START_TEST(shared_and_spare_pages) {
  static const int64_t pages[] = {1, 5, 40};
  char line[128];
  snprintf(line, sizeof line, "--op decode --seq-lens 1024x3 --num-pages %d", (int)pages[_i]);
  case_file file = generated(line);
  const case_tensor *t = case_find(&file, "block_table");
  int uses[40] = {0};
  ck_assert_int_eq(case_find(&file, "index_k")->shape[0], pages[_i]);
  for (int64_t r = 0; r < 3; r++)
    for (int64_t b = 0; b < 8; b++) {
      int32_t page = ((const int32_t *)t->data)[r * t->shape[1] + b];
      ck_assert(page >= 0 && page < pages[_i]);
      uses[page]++;
    }
  for (int p = 0; p < pages[_i]; p++) { /* shared evenly */
    ck_assert_int_ge(uses[p], (int)(24 / pages[_i]));
    ck_assert_int_le(uses[p], (int)((24 + pages[_i] - 1) / pages[_i]));
  }
  case_file_free(&file);
}
END_TEST

/* random: some request names a page twice, and two requests name one; prefix: block b is one page for all. */
START_TEST(drawn_and_common_pages) {
  case_file file = generated("--op decode --seq-lens 2048x2,1024 --table random --seed 1");
  const case_tensor *t = case_find(&file, "block_table");
  const int32_t *table = t->data;
  int twice = 0, shared = 0;
  ck_assert_int_eq(case_find(&file, "index_k")->shape[0], 16 + 16 + 8);
  for (int64_t a = 0; a < 16; a++)
    for (int64_t b = 0; b < 16; b++) {
      ck_assert(table[a] >= 0 && table[a] < 40);
      twice += a < b && table[a] == table[b];
      shared += table[a] == table[t->shape[1] + b];
    }
  ck_assert_int_gt(twice, 0);
  ck_assert_int_gt(shared, 0);
  case_file_free(&file);
  file = generated("--op decode --seq-lens 2048x2,1024 --num-pages 18 --table prefix --seed 1");
  t = case_find(&file, "block_table");
  table = t->data;
  for (int64_t b = 0; b < 16; b++) {
    ck_assert_int_eq(table[b], table[t->shape[1] + b]);
    if (b < 8) ck_assert_int_eq(table[b], table[2 * t->shape[1] + b]);
    for (int64_t a = 0; a < b; a++) ck_assert_int_ne(table[a], table[b]);
  }
  ck_assert_int_eq(table[2 * t->shape[1] + 8], INT32_MAX); /* dead */
  case_file_free(&file);
}
END_TEST

/* mixed: each query row, page, and run of 16 scores is the very one that a case of its kind has, and all five occur. */
START_TEST(mixed_is_of_the_five) {
  static const char *const kinds[] = {"normal", "ties", "specials", "wide", "near", "drift"};
  static const struct {
    const char *line, *tensor;
    size_t piece;
  } rows[] = {{"--op decode --seq-lens 512x16 --heads 3 --head-dim 32 --k-dtype e5m2 --seed 6", "q", 32 * 2},
              {"--op decode --seq-lens 512x16 --heads 3 --head-dim 32 --k-dtype e5m2 --seed 6", "index_k", 128 * 32},
              {"--op select --num-blocks 64x20 --heads 2 --seed 6", "score", 16 * 4}};
  case_file of[5], mixed;
  char line[256];
  for (int i = 0; i < 5; i++) {
    snprintf(line, sizeof line, "%s --data %s", rows[_i].line, kinds[i]);
    of[i] = generated(line);
  }
  snprintf(line, sizeof line, "%s --data mixed", rows[_i].line);
  mixed = generated(line);
  const case_tensor *t = case_find(&mixed, rows[_i].tensor);
  int64_t seen[5] = {0}, pieces = (int64_t)(t->bytes / rows[_i].piece);
  for (int64_t p = 0; p < pieces; p++) {
    int found = 0;
    for (int i = 0; i < 5; i++) {
      const case_tensor *k = case_find(&of[i], rows[_i].tensor);
      const size_t at = (size_t)p * rows[_i].piece;
      if (memcmp((const char *)t->data + at, (const char *)k->data + at, rows[_i].piece) != 0) continue;
      seen[i]++;
      found++;
    }
    ck_assert_int_ge(found, 1);
  }
  for (int i = 0; i < 5; i++) ck_assert_int_gt(seen[i], pieces / 20);
  for (int i = 0; i < 5; i++) case_file_free(&of[i]);
  case_file_free(&mixed);
}
END_TEST

/* zeros: +0 everywhere, but for what is put. */
START_TEST(zeros_and_puts) {
  case_file file = generated("--op decode --seq-lens 130 --heads 2 --head-dim 16 --q-dtype f32 --k-dtype e4m3fnuz "
                             "--data zeros --put q:31=7fc00001,index_k:4095=80,block_table:0=0,block_table:1=0");
  const case_tensor *q = case_find(&file, "q"), *k = case_find(&file, "index_k"), *t = case_find(&file, "block_table");
  for (int64_t i = 0; i < 31; i++) ck_assert_uint_eq(((const uint32_t *)q->data)[i], 0);
  ck_assert_uint_eq(((const uint32_t *)q->data)[31], 0x7fc00001u);
  for (int64_t i = 0; i < 4095; i++) ck_assert_uint_eq(((const uint8_t *)k->data)[i], 0);
  ck_assert_uint_eq(((const uint8_t *)k->data)[4095], 0x80);
  ck_assert_int_eq(((const int32_t *)t->data)[0], 0);
  ck_assert_int_eq(((const int32_t *)t->data)[1], 0);
  case_file_free(&file);
  file = generated("--op select --num-blocks 3 --data zeros --put score:1=ff800000,score:1=80000000");
  const uint32_t *score = case_find(&file, "score")->data;
  ck_assert(score[0] == 0 && score[1] == 0x80000000u && score[2] == 0); /* the last one holds */
  case_file_free(&file);
}
END_TEST

START_TEST(wrong_puts) {
  static const struct {
    const char *line, *want;
  } rows[] = {
      {"--op select --num-blocks 3 --put q:0=0", "--put q:0: the case has no such tensor"},
      {"--op decode --seq-lens 3 --head-dim 16 --put q:16=0", "--put q:16: must be below 16, its elements"},
      {"--op decode --seq-lens 3 --put q:0=12345", "--put q:0=12345: its elements have 16 bits"},
      {"--op decode --seq-lens 3 --k-dtype e5m2 --put index_k:0=100", "--put index_k:0=100: its elements have 8 bits"},
  };
  case_spec spec;
  case_file file;
  char why[CASE_MESSAGE_BYTES] = "";
  ck_assert_msg(!case_spec_parse_line(rows[_i].line, &spec, why), "%s", why);
  ck_assert_int_eq(case_generate(&spec, &file, why), M3IDX_INVALID);
  ck_assert_str_eq(why, rows[_i].want);
  case_spec_free(&spec);
}
END_TEST

START_TEST(nothing_live) {
  case_file file = generated("--op decode --seq-lens 0x3 --data near");
  ck_assert_int_eq(case_find(&file, "index_k")->shape[0], 0);
  ck_assert_str_eq(case_metadata(&file, "max_block"), "0");
  m3idx_case view;
  char why[CASE_MESSAGE_BYTES];
  ck_assert_msg(!case_view(&file, &view, why), "%s", why);
  case_file_free(&file);
}
END_TEST

/* Cases that there is no memory or no number for are refused by name before anything is filled. */
START_TEST(too_large) {
  static const struct {
    const char *line, *want;
  } rows[] = {
      {"--op decode --seq-lens 2147483632x127 --head-dim 256 --k-dtype f32", "tensor index_k: no memory"},
      {"--op decode --seq-lens 2147483632x64 --block-size 16", "--seq-lens: 8589934528 live blocks"},
      {"--op decode --seq-lens 1 --num-pages 2147483647 --sparse-table 1", "--num-pages: 2147483647 pages"},
      {"--op decode --seq-lens 1 --heads 4096 --num-pages 65537 --sparse-table 1", "--num-pages: 65537 pages"},
      {"--op select --num-blocks 134217727x4096 --heads 4096", "tensor score: no memory"},
  };
  case_spec spec;
  case_file file;
  char why[CASE_MESSAGE_BYTES] = "";
  ck_assert_msg(!case_spec_parse_line(rows[_i].line, &spec, why), "%s", why);
  ck_assert_int_eq(case_generate(&spec, &file, why),
                   strstr(rows[_i].want, "no memory") ? M3IDX_NO_MEMORY : M3IDX_INVALID);
  ck_assert_msg(strstr(why, rows[_i].want) == why, "want \"%s...\", got \"%s\"", rows[_i].want, why);
  ck_assert_int_eq(file.num_tensors, 0);
  case_spec_free(&spec);
}
END_TEST

/* The line in the metadata makes the same case again. */
START_TEST(line_is_a_repro) {
  case_file file = in_format(_i, (const char *const[]){"normal", "ties", "specials", "wide", "near"}[_i % 5],
                             "--sparse-table 1 --contract atom");
  case_file again = generated(case_metadata(&file, "case_line"));
  ck_assert_int_eq(file.num_tensors, again.num_tensors);
  for (int64_t i = 0; i < file.num_tensors; i++) {
    ck_assert_str_eq(file.tensors[i].name, again.tensors[i].name);
    ck_assert_uint_eq(file.tensors[i].bytes, again.tensors[i].bytes);
    ck_assert_mem_eq(file.tensors[i].data, again.tensors[i].data, file.tensors[i].bytes);
  }
  ck_assert_int_eq(file.num_metadata, again.num_metadata);
  for (int64_t i = 0; i < file.num_metadata; i++) ck_assert_str_eq(file.metadata[i].value, again.metadata[i].value);
  case_file_free(&again);
  case_file_free(&file);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("casegen");
  TCase *tcase = tcase_create("casegen");
  suite_add_tcase(suite, tcase);
  tcase_set_timeout(tcase, 60);
  tcase_add_loop_test(tcase, splitmix64_vector, 0, 5);
  tcase_add_loop_test(tcase, encoder, 0, sizeof codes / sizeof *codes);
  tcase_add_loop_test(tcase, normal, 0, M3IDX_DTYPE_COUNT);
  tcase_add_loop_test(tcase, ties, 0, M3IDX_DTYPE_COUNT);
  tcase_add_loop_test(tcase, specials, 0, M3IDX_DTYPE_COUNT);
  tcase_add_loop_test(tcase, wide, 0, M3IDX_DTYPE_COUNT);
  tcase_add_loop_test(tcase, near_orders_below_an_ulp, 0, 3 * sizeof near_pairs / sizeof *near_pairs);
  tcase_add_test(tcase, near_defeats_float_sums);
  tcase_add_loop_test(tcase, near_fits_every_pair, 0, M3IDX_DTYPE_COUNT * M3IDX_DTYPE_COUNT);
  tcase_add_loop_test(tcase, drift_needs_the_whole_bound, 0, sizeof drift_pairs / sizeof *drift_pairs);
  tcase_add_loop_test(tcase, drift_fits_every_pair, 0, M3IDX_DTYPE_COUNT * M3IDX_DTYPE_COUNT);
  tcase_add_loop_test(tcase, select_scores, 0, 6);
  tcase_add_test(tcase, tables);
  tcase_add_loop_test(tcase, shared_and_spare_pages, 0, 3);
  tcase_add_test(tcase, drawn_and_common_pages);
  tcase_add_loop_test(tcase, mixed_is_of_the_five, 0, 3);
  tcase_add_test(tcase, zeros_and_puts);
  tcase_add_loop_test(tcase, wrong_puts, 0, 4);
  tcase_add_test(tcase, nothing_live);
  tcase_add_loop_test(tcase, too_large, 0, 5);
  tcase_add_loop_test(tcase, line_is_a_repro, 0, M3IDX_DTYPE_COUNT);
  return unit_run(suite);
}
