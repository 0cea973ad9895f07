/* SPDX-License-Identifier: Apache-2.0
 *
 * The bit model of gfx942's matrix instructions.  Doubles hold every number here exactly; what is rounded is rounded
 * by name.
 */
#include "mfma.h"

#include <math.h>
#include <string.h>

#include "casefail.h"

enum { NO_EXPONENT = -999, LEAST = -126 };

static bool is_fp8(m3idx_dtype dtype) { return m3idx_dtype_bytes(dtype) == 1; }
static bool is_fnuz(m3idx_dtype dtype) { return dtype == M3IDX_E4M3FNUZ || dtype == M3IDX_E5M2FNUZ; }

int mfma_unit_of(m3idx_dtype q, m3idx_dtype k, int k_block, mfma_unit *out, char *why) {
  bool native = is_fnuz(q) && is_fnuz(k);
  *out = (mfma_unit){.kind = MFMA_BLOCKS_8, .least_exponent = LEAST};
  if (k_block != 0 && k_block != 8 && k_block != 16) return case_fail(why, "--k-block %d: must be 8 or 16", k_block);
  if (k_block == 16 && !native)
    return case_fail(why,
                     "--k-block 16: only e4m3fnuz and e5m2fnuz have blocks of 16 products, q is %s and keys are %s",
                     m3idx_dtype_name(q), m3idx_dtype_name(k));
  if (q == M3IDX_F32 || k == M3IDX_F32) {
    if (k_block) return case_fail(why, "--k-block %d: f32 is multiplied and added one by one", k_block);
    out->kind = MFMA_CHAIN;
  } else if (native && k_block != 8) {
    out->kind = MFMA_BLOCKS_16;
  } else if (q == M3IDX_F16 || k == M3IDX_F16) {
    if (q == M3IDX_BF16 || k == M3IDX_BF16)
      return case_fail(why, "cdna3-mfma: no unit takes f16 with bf16 without a rounding");
    out->least_exponent = -14;
  } else if (q != M3IDX_BF16 && k != M3IDX_BF16 && !(is_fp8(q) && is_fp8(k))) {
    return case_fail(why, "cdna3-mfma: no unit takes %s with %s", m3idx_dtype_name(q), m3idx_dtype_name(k));
  }
  return 0;
}

/* The field of a finite number's exponent in a format whose least normal exponent is `least`. */
static int exponent_of(double value, int least) {
  int exponent = value == 0 ? least : ilogb(value);
  return exponent < least ? least : exponent;
}

/* Sum of n products, `step` apart, each cut toward zero to 24 fraction bits under the largest exponent, *e. */
static int64_t sum_aligned(const mfma_unit *unit, const judge_number *a, const judge_number *b, int n, int step,
                           int *e) {
  int exponent[16];
  int64_t sum = 0;
  *e = NO_EXPONENT;
  for (int i = 0; i < n; i += step) {
    bool own = unit->kind == MFMA_BLOCKS_16;
    exponent[i] = own ? a[i].exponent + b[i].exponent
                      : exponent_of(a[i].value, unit->least_exponent) + exponent_of(b[i].value, unit->least_exponent);
    if (a[i].value * b[i].value != 0 && exponent[i] > *e) *e = exponent[i];
  }
  for (int i = 0; i < n; i += step)
    if (a[i].value * b[i].value != 0) sum += (int64_t)trunc(ldexp(a[i].value * b[i].value, 24 - *e));
  return sum;
}

/* NaN and infinities among products and d: true and *out where there are any. */
static bool special(const judge_number *a, const judge_number *b, int n, float d, float *out) {
  bool nan = isnan(d), plus = isinf(d) && d > 0, minus = isinf(d) && d < 0;
  for (int i = 0; i < n; i++) {
    double p = a[i].value * b[i].value;
    nan |= isnan(p);
    plus |= p >= 0x1p128;
    minus |= p <= -0x1p128;
  }
  *out = nan || (plus && minus) ? NAN : plus ? INFINITY : -INFINITY;
  return nan || plus || minus;
}

/* S units of 2^(e - 32), cut to 31 bits below its leading one by floor, then rounded to nearest. */
static float finish(int64_t s, int e) {
  int exponent = ilogb((double)s) + e - 32;
  if (exponent < LEAST) exponent = LEAST;
  int drop = exponent - 31 - (e - 32);
  double value = (double)s;
  if (drop > 0) value = ldexp(floor(ldexp(value, -drop)), drop);
  return (float)ldexp(value, e - 32);
}

static float add_block(const mfma_unit *unit, const judge_number *a, const judge_number *b, float d) {
  bool pairs = unit->kind == MFMA_BLOCKS_16, minus_zero = d == 0 && signbit(d) != 0;
  int n = pairs ? 16 : 8, e_dot, e0, e1;
  int64_t t;
  float out;
  if (special(a, b, n, d, &out)) return out;
  if (pairs) {
    int64_t t0 = sum_aligned(unit, a, b, n, 2, &e0), t1 = sum_aligned(unit, a + 1, b + 1, n - 1, 2, &e1);
    e_dot = e0 > e1 ? e0 : e1;
    t = (int64_t)(floor(ldexp((double)t0, e0 - e_dot)) + floor(ldexp((double)t1, e1 - e_dot)));
  } else {
    t = sum_aligned(unit, a, b, n, 1, &e_dot);
  }
  int e_d = exponent_of((double)d, LEAST), e = e_dot > e_d ? e_dot : e_d;
  double sum = floor(ldexp((double)t, 8 + e_dot - e));
  if (!pairs || e_d >= e - 25) sum += 256 * floor(ldexp((double)d, 24 - e));
  if (sum != 0) return finish((int64_t)sum, e);
  for (int i = 0; i < n; i++)
    minus_zero = minus_zero && signbit(a[i].value * b[i].value) && a[i].value * b[i].value == 0;
  return minus_zero ? -0.0f : 0.0f;
}

float mfma_dot(const mfma_unit *unit, const judge_number *a, const judge_number *b, int n, float c) {
  int block = unit->kind == MFMA_CHAIN ? 1 : unit->kind == MFMA_BLOCKS_16 ? 16 : 8;
  for (int k = 0; k < n; k += block)
    c = block == 1 ? fmaf((float)a[k].value, (float)b[k].value, c) : add_block(unit, a + k, b + k, c);
  return c;
}
