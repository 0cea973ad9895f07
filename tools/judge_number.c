/* SPDX-License-Identifier: Apache-2.0
 *
 * Codes to exact numbers (S2.2) and wide integers (S3.2) for m3idx judge.
 */
#include "judge_number.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
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

judge_number judge_decode(uint32_t code, m3idx_dtype dtype) {
  const struct format *f = &formats[dtype];
  judge_number number = {.low = JUDGE_NO_BITS};
  uint32_t sign = code >> (f->exponent_bits + f->fraction_bits) & 1;
  uint32_t field = code >> f->fraction_bits & ((1u << f->exponent_bits) - 1);
  uint32_t fraction = code & ((1u << f->fraction_bits) - 1);
  bool top = field == (1u << f->exponent_bits) - 1;
  if ((f->specials == IEEE && top && fraction) ||
      (f->specials == FN && top && fraction + 1 == 1u << f->fraction_bits) ||
      (f->specials == FNUZ && sign && !field && !fraction)) {
    number.value = NAN;
    return number;
  }
  if (f->specials == IEEE && top) {
    number.value = sign ? -INFINITY : INFINITY;
    return number;
  }
  uint32_t m = field ? fraction | 1u << f->fraction_bits : fraction;
  if (!m) {
    number.value = sign ? -0.0 : 0.0;
    return number;
  }
  number.exponent = (field ? (int)field : 1) - f->bias;
  number.subnormal = !field;
  number.low = number.exponent - f->fraction_bits;
  for (; !(m & 1); m >>= 1) number.low++;
  number.value = ldexp(sign ? -(double)m : (double)m, number.low);
  return number;
}

uint32_t judge_code(const void *data, int64_t index, m3idx_dtype dtype) {
  uint16_t u16;
  uint32_t u32;
  switch (formats[dtype].bytes) {
  case 1: return ((const uint8_t *)data)[index];
  case 2: memcpy(&u16, (const char *)data + 2 * index, sizeof u16); return u16;
  default: memcpy(&u32, (const char *)data + 4 * index, sizeof u32); return u32;
  }
}

int judge_codec_open(judge_codec *codec, m3idx_dtype dtype) {
  *codec = (judge_codec){.dtype = dtype};
  if (formats[dtype].bytes > 2) return 0;
  uint32_t codes = 1u << 8 * formats[dtype].bytes;
  codec->table = malloc(codes * sizeof *codec->table);
  if (!codec->table) return -1;
  for (uint32_t code = 0; code < codes; code++) codec->table[code] = judge_decode(code, dtype);
  return 0;
}

void judge_codec_close(judge_codec *codec) {
  free(codec->table);
  codec->table = NULL;
}

void judge_wide_zero(judge_wide *w) { memset(w, 0, sizeof *w); }

void judge_wide_add(judge_wide *w, int sign, uint64_t m, int exponent) {
  int position = exponent - JUDGE_WIDE_LEAST, at = position / 32, shift = position % 32;
  uint64_t low = (m & UINT32_MAX) << shift, high = ((m >> 32) << shift) + (low >> 32);
  w->digit[at] += sign * (int64_t)(low & UINT32_MAX);
  w->digit[at + 1] += sign * (int64_t)(high & UINT32_MAX);
  w->digit[at + 2] += sign * (int64_t)(high >> 32);
}

/* sum - 2^32 * carry is in 0..2^32-1. */
static int64_t carry_of(int64_t sum, int64_t *digit) {
  *digit = (int64_t)((uint64_t)sum & UINT32_MAX);
  return (sum - *digit) / (INT64_C(1) << 32);
}

void judge_wide_carry(judge_wide *w) {
  int64_t carry = 0;
  for (int i = 0; i + 1 < JUDGE_WIDE_DIGITS; i++) carry = carry_of(w->digit[i] + carry, &w->digit[i]);
  w->digit[JUDGE_WIDE_DIGITS - 1] += carry;
}

void judge_wide_add_times(judge_wide *w, const judge_wide *from, int64_t factor, bool shifted) {
  int64_t carry = 0;
  for (int i = 0; i + 1 < JUDGE_WIDE_DIGITS; i++)
    carry = carry_of(w->digit[i] + factor * from->digit[i + shifted] + carry, &w->digit[i]);
  w->digit[JUDGE_WIDE_DIGITS - 1] += carry + (shifted ? 0 : factor * from->digit[JUDGE_WIDE_DIGITS - 1]);
}

static uint32_t bit(const judge_wide *w, int position) {
  return (uint32_t)(w->digit[position / 32] >> position % 32 & 1);
}

float judge_wide_float(const judge_wide *wide, bool up) {
  judge_wide w = *wide;
  bool negative = w.digit[JUDGE_WIDE_DIGITS - 1] < 0;
  if (negative) {
    for (int i = 0; i < JUDGE_WIDE_DIGITS; i++) w.digit[i] = -w.digit[i];
    judge_wide_carry(&w);
  }
  int top = 32 * JUDGE_WIDE_DIGITS - 1;
  while (top >= 0 && !bit(&w, top)) top--;
  if (top < 0) return 0;
  bool away = up != negative;
  int exponent = top + JUDGE_WIDE_LEAST, quantum = exponent - 23 < -149 ? -149 : exponent - 23;
  if (exponent > 127) {
    float most = away ? INFINITY : FLT_MAX;
    return negative ? -most : most;
  }
  uint32_t kept = 0;
  bool rest = false;
  for (int p = top; p >= quantum - JUDGE_WIDE_LEAST; p--) kept = kept << 1 | bit(&w, p);
  for (int p = quantum - JUDGE_WIDE_LEAST - 1; p >= 0 && !rest; p--) rest = bit(&w, p);
  float magnitude = ldexpf((float)(kept + (away && rest)), quantum); /* at most 2^24 steps: exact, or infinity */
  return negative ? -magnitude : magnitude;
}
