/* SPDX-License-Identifier: Apache-2.0
 *
 * The seven number formats, from the fields that common/dtype.def lists (S2.2), and the conversion to
 * fp8 that cache insertion uses (S6.2).  Does not round to binary32: that is ref_wide.c.
 */
#include "ref_format.h"

#include <string.h>

enum specials { IEEE, FN, FNUZ };

static const struct format {
  int bytes, exponent_bits, fraction_bits, bias;
  enum specials specials;
} formats[M3IDX_DTYPE_COUNT] = {
#define M3IDX_DTYPE(name, value, text, bytes, ebits, fbits, bias, specials) \
  [value] = {bytes, ebits, fbits, bias, specials},
#include "dtype.def"
#undef M3IDX_DTYPE
};

/* ref_number promises that every format lies on binary32's grid: no finer quantum, no larger exponent. */
#define M3IDX_DTYPE(name, value, text, bytes, ebits, fbits, bias, specials) \
  _Static_assert((bias) <= 127 && (1 << (ebits)) - 1 - (bias) <= 128 && (fbits) <= 23, text);
#include "dtype.def"
#undef M3IDX_DTYPE

uint32_t ref_load(const void *at, m3idx_dtype dtype) {
  uint8_t u8;
  uint16_t u16;
  uint32_t u32;
  switch (formats[dtype].bytes) {
  case 1: memcpy(&u8, at, sizeof u8); return u8;
  case 2: memcpy(&u16, at, sizeof u16); return u16;
  default: memcpy(&u32, at, sizeof u32); return u32;
  }
}

ref_number ref_decode(uint32_t code, m3idx_dtype dtype) {
  const struct format *f = &formats[dtype];
  uint32_t sign_bit = UINT32_C(1) << (f->exponent_bits + f->fraction_bits);
  uint32_t hidden_bit = UINT32_C(1) << f->fraction_bits;
  uint32_t exponent_ones = (UINT32_C(1) << f->exponent_bits) - 1;
  uint32_t exponent = (code & (sign_bit - 1)) >> f->fraction_bits;
  uint32_t fraction = code & (hidden_bit - 1);
  ref_number number = {REF_FINITE, (code & sign_bit) != 0, 0, 0};

  if (f->specials == IEEE && exponent == exponent_ones) {
    number.class = fraction ? REF_NAN : REF_INF;
    return number;
  }
  if ((f->specials == FN && exponent == exponent_ones && fraction == hidden_bit - 1) ||
      (f->specials == FNUZ && code == sign_bit)) {
    number.class = REF_NAN;
    return number;
  }
  /* A subnormal has no hidden bit and the exponent of the smallest normal.  The shift places the binary
   * point of all formats alike, 23 bits below the hidden bit. */
  number.significand = (exponent ? hidden_bit | fraction : fraction) << (23 - f->fraction_bits);
  number.exponent = (exponent ? (int)exponent : 1) - f->bias - 23;
  return number;
}

void *ref_element(const m3idx_tensor *tensor, int64_t i, int64_t j, int64_t k) {
  int64_t offset_elems = i * tensor->stride[0] + j * tensor->stride[1] + k * tensor->stride[2];
  return (char *)tensor->data + offset_elems * formats[tensor->dtype].bytes;
}

int ref_is_fp8(m3idx_dtype dtype) { return formats[dtype].bytes == 1; }

uint8_t ref_encode_fp8(ref_number number, m3idx_dtype dtype) {
  const struct format *f = &formats[dtype];
  /* The largest finite code: all ones, less the codes that IEEE and FN set aside at the top. */
  uint32_t largest = f->specials == FNUZ ? 0x7f : f->specials == FN ? 0x7e : 0x7f - (1u << f->fraction_bits);
  uint32_t magnitude;

  if (number.class == REF_NAN) return f->specials == FNUZ ? 0x80 : 0x7f;
  if (number.class == REF_INF) {
    magnitude = largest;
  } else if (number.significand == 0) {
    magnitude = 0;
  } else {
    /* f16's subnormals can be normal in e5m2fnuz, so start from the leading bit, not from the hidden one. */
    while (!(number.significand & (UINT32_C(1) << 23))) {
      number.significand <<= 1;
      number.exponent--;
    }
    /* The quantum 2^q of the codes around the number: its own binade's, but not below the subnormals'. */
    int least_q = 1 - f->bias - f->fraction_bits;
    int q = number.exponent + 23 - f->fraction_bits;
    if (q < least_q) q = least_q;
    /* At least 23 - fraction_bits bits go.  Past 25 all is less than half a quantum, as it is at 25. */
    int dropped = q - number.exponent;
    if (dropped > 25) dropped = 25;
    uint32_t kept = number.significand >> dropped;
    uint32_t rest = number.significand & ((UINT32_C(1) << dropped) - 1);
    uint32_t half = UINT32_C(1) << (dropped - 1);
    if (rest > half || (rest == half && (kept & 1))) kept++;
    /* Adding `kept` puts its hidden bit, and a carry out of the rounding, into the exponent field. */
    magnitude = ((uint32_t)(q - least_q) << f->fraction_bits) + kept;
    if (magnitude > largest) magnitude = largest;
  }
  if (magnitude == 0 && f->specials == FNUZ) return 0; /* S6.2: no -0 */
  return (uint8_t)(magnitude | (number.negative ? 0x80u : 0u));
}
