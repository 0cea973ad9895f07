/* SPDX-License-Identifier: Apache-2.0
 *
 * The oracle's number formats and fp8 conversion (S2.2, S6.2).
 *
 * Every fp8 value and every midpoint of two neighbours has at most 5 significant bits and lies well inside
 * the range of double, as does every f32, f16 and bf16 value: double compares them exactly, and conversion
 * needs no other operation.
 */
#include "oracle.h"

#include <math.h>

/* What a code with all exponent bits set means, and whether -0 exists. */
typedef enum rule { IEEE, ONLY_ALL_ONES_IS_NAN, ONLY_MINUS_ZERO_IS_NAN } rule;

typedef struct layout {
  int bits, fraction, bias;
  rule rule;
} layout;

static const layout layouts[ORACLE_FORMATS] = {
    [ORACLE_F32] = {32, 23, 127, IEEE},
    [ORACLE_F16] = {16, 10, 15, IEEE},
    [ORACLE_BF16] = {16, 7, 127, IEEE},
    [ORACLE_E4M3FN] = {8, 3, 7, ONLY_ALL_ONES_IS_NAN},
    [ORACLE_E4M3FNUZ] = {8, 3, 8, ONLY_MINUS_ZERO_IS_NAN},
    [ORACLE_E5M2] = {8, 2, 15, IEEE},
    [ORACLE_E5M2FNUZ] = {8, 2, 16, ONLY_MINUS_ZERO_IS_NAN},
};

int oracle_code_bits(oracle_format format) { return layouts[format].bits; }

oracle_kind oracle_decode(oracle_format format, uint32_t code, long *mantissa, long *exponent) {
  layout l = layouts[format];
  uint32_t fraction = code % (1u << l.fraction);
  uint32_t biased = code / (1u << l.fraction) % (1u << (l.bits - 1 - l.fraction));
  bool negative = code / (1u << (l.bits - 1)) % 2 == 1;
  uint32_t top = (1u << (l.bits - 1 - l.fraction)) - 1;

  if (l.rule == IEEE && biased == top)
    return fraction != 0 ? ORACLE_NAN : negative ? ORACLE_MINUS_INF : ORACLE_PLUS_INF;
  if (l.rule == ONLY_ALL_ONES_IS_NAN && biased == top && fraction == (1u << l.fraction) - 1) return ORACLE_NAN;
  if (l.rule == ONLY_MINUS_ZERO_IS_NAN && negative && biased == 0 && fraction == 0) return ORACLE_NAN;

  /* Subnormals have the exponent of the smallest normal and no hidden bit. */
  long m = biased == 0 ? (long)fraction : (long)(fraction + (1u << l.fraction));
  *mantissa = negative ? -m : m;
  *exponent = (biased == 0 ? 1 : (long)biased) - l.bias - l.fraction;
  return ORACLE_FINITE;
}

/* A finite code as a double; NaN and infinities as themselves. */
static double value_of(oracle_format format, uint32_t code) {
  long m, e;
  switch (oracle_decode(format, code, &m, &e)) {
  case ORACLE_FINITE: return ldexp((double)m, (int)e);
  case ORACLE_PLUS_INF: return (double)INFINITY;
  case ORACLE_MINUS_INF: return -(double)INFINITY;
  case ORACLE_NAN: break;
  }
  return (double)NAN;
}

/* S6.2: one NaN per format, whatever the source's sign and payload. */
static uint32_t nan_of(oracle_format to) { return layouts[to].rule == ONLY_MINUS_ZERO_IS_NAN ? 0x80 : 0x7f; }

/* boundaries(to)[c]: the midpoint between the values of codes c - 1 and c, +inf past the largest finite code. */
static const double *boundaries(oracle_format to) {
  static double table[ORACLE_FORMATS][0x80];
  if (table[to][1] != 0) return table[to];
  for (uint32_t code = 1; code < 0x80; code++) {
    double below = value_of(to, code - 1), above = value_of(to, code);
    table[to][code] = isfinite(above) ? (below + above) / 2 : (double)INFINITY;
  }
  return table[to];
}

uint32_t oracle_convert(oracle_format from, uint32_t code, oracle_format to) {
  bool negative = code >> (oracle_code_bits(from) - 1) & 1;
  double x = value_of(from, code);
  if (isnan(x)) return nan_of(to);
  x = fabs(x);

  /* Codes 0, 1, ... rise up to the largest finite one: go up while x is past the midpoint to the next. */
  const double *midpoint = boundaries(to);
  uint32_t best = 0;
  while (best + 1 < 0x80 && isfinite(midpoint[best + 1])) {
    bool tie_to_next = x == midpoint[best + 1] && (best + 1) % 2 == 0;
    if (!(x > midpoint[best + 1]) && !tie_to_next) break;
    best++;
  }
  if (best == 0 && layouts[to].rule == ONLY_MINUS_ZERO_IS_NAN) return 0;
  return negative ? best + 0x80 : best;
}
