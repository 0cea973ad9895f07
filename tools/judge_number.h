/* SPDX-License-Identifier: Apache-2.0
 *
 * What m3idx judge computes with: codes of the seven formats as exact numbers (S2.2), and integers wide enough for
 * exact sums of their products (S3.2), written here a second time so that the judge does not lean on the judged.
 */
#ifndef M3IDX_JUDGE_NUMBER_H
#define M3IDX_JUDGE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "m3idx.h"

/* A decoded code.  Finite and not zero: |value| is an odd integer below 2^24 times 2^low, and `exponent` is what the
 * exponent field says (for a subnormal that of the least normal number).  Zero, infinity, NaN: low JUDGE_NO_BITS. */
typedef struct judge_number {
  double value;
  int low, exponent;
  bool subnormal;
} judge_number;

enum { JUDGE_NO_BITS = 1 << 20 };

judge_number judge_decode(uint32_t code, m3idx_dtype dtype);
uint32_t judge_code(const void *data, int64_t index, m3idx_dtype dtype);

/* The number at data[index].  `table` has every code of a format of one or two bytes, and is NULL for f32. */
typedef struct judge_codec {
  m3idx_dtype dtype;
  judge_number *table;
} judge_codec;
int judge_codec_open(judge_codec *codec, m3idx_dtype dtype); /* -1 = no memory */
void judge_codec_close(judge_codec *codec);
static inline judge_number judge_at(const judge_codec *codec, const void *data, int64_t index) {
  uint32_t code = judge_code(data, index, codec->dtype);
  return codec->table ? codec->table[code] : judge_decode(code, codec->dtype);
}

/* sum of digit[i] * 2^(32 i + JUDGE_WIDE_LEAST).  Sums of products are multiples of 2^-298, so digit 0 of one is 0 and
 * 2^-32 times it can be held too.  256 products of binary32 numbers stay below 2^264. */
enum { JUDGE_WIDE_DIGITS = 21, JUDGE_WIDE_LEAST = -298 - 32 };
typedef struct judge_wide {
  int64_t digit[JUDGE_WIDE_DIGITS];
} judge_wide;

void judge_wide_zero(judge_wide *w);
/* w += sign * m * 2^exponent, m < 2^48, exponent >= -298; at most 2^10 times before judge_wide_carry(). */
void judge_wide_add(judge_wide *w, int sign, uint64_t m, int exponent);
/* Bring every digit but the last into 0..2^32-1; the last then has the sign. */
void judge_wide_carry(judge_wide *w);
/* w += factor * from, or with `shifted` factor * 2^-32 * from; |factor| < 2^30; both carried before and after. */
void judge_wide_add_times(judge_wide *w, const judge_wide *from, int64_t factor, bool shifted);
/* The least float at or above w (up), or the largest at or below it; past the largest float the infinity where the
 * direction leads there, else the largest float. */
float judge_wide_float(const judge_wide *w, bool up);

#endif
