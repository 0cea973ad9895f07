/* SPDX-License-Identifier: Apache-2.0
 *
 * The wide accumulator: exact sums of products (S3.2), rounded once (S3.3, S3.4).  Schoolbook digits of
 * 32 bits, no floating point, and no case but the general one.
 */
#include "ref_wide.h"

#include <string.h>

/* The highest product must end inside the highest digit. */
_Static_assert((REF_WIDE_MAX_EXPONENT - REF_WIDE_MIN_EXPONENT) / 32 + 2 < REF_WIDE_DIGITS, "too few digits");

void ref_wide_zero(ref_wide *wide) { memset(wide, 0, sizeof *wide); }

void ref_wide_add_product(ref_wide *wide, ref_number a, ref_number b) {
  uint64_t product = (uint64_t)a.significand * b.significand; /* < 2^48 */
  int position = a.exponent + b.exponent - REF_WIDE_MIN_EXPONENT;
  int first = position / 32, shift = position % 32;
  /* product << shift has up to 79 bits: three digits. */
  uint64_t low = (product & UINT32_MAX) << shift;
  uint64_t high = ((product >> 32) << shift) + (low >> 32);
  int64_t sign = a.negative == b.negative ? 1 : -1;
  wide->digit[first] += sign * (int64_t)(low & UINT32_MAX);
  wide->digit[first + 1] += sign * (int64_t)(high & UINT32_MAX);
  wide->digit[first + 2] += sign * (int64_t)(high >> 32);
}

/* Carry, so that every digit lies in 0..2^32-1; returns the carry out of the top, -1 iff the sum is negative. */
static int64_t carry_out(const ref_wide *wide, int64_t sign, uint32_t digit[REF_WIDE_DIGITS]) {
  int64_t carry = 0;
  for (int i = 0; i < REF_WIDE_DIGITS; i++) {
    int64_t sum = sign * wide->digit[i] + carry;
    digit[i] = (uint32_t)((uint64_t)sum & UINT32_MAX);
    carry = (sum - (int64_t)digit[i]) / (INT64_C(1) << 32); /* exact: the difference is a multiple of 2^32 */
  }
  return carry;
}

static uint32_t bit(const uint32_t *digit, int position) { return digit[position / 32] >> (position % 32) & 1; }

uint32_t ref_wide_round(const ref_wide *wide) {
  uint32_t digit[REF_WIDE_DIGITS], sign_bit = 0;
  if (carry_out(wide, 1, digit) < 0) {
    carry_out(wide, -1, digit);
    sign_bit = UINT32_C(1) << 31;
  }

  int top = REF_WIDE_DIGITS * 32 - 1; /* position of the leading bit */
  while (top >= 0 && !bit(digit, top)) top--;
  if (top < 0) return 0;
  int exponent = top + REF_WIDE_MIN_EXPONENT; /* magnitude in [2^exponent, 2^(exponent + 1)) */
  if (exponent > 127) return sign_bit | UINT32_C(0x7f800000);

  /* The result is a multiple of 2^quantum: 24 bits of the leading binade, or what subnormals have. */
  int quantum = exponent - 23 < -149 ? -149 : exponent - 23;
  int last = quantum - REF_WIDE_MIN_EXPONENT; /* position of the last kept bit, at least 149 */
  uint32_t kept = 0;
  for (int p = top; p >= last; p--) kept = kept << 1 | bit(digit, p);
  uint32_t half = bit(digit, last - 1), sticky = 0;
  for (int p = last - 2; p >= 0; p--) sticky |= bit(digit, p);
  if (half && (sticky || (kept & 1))) kept++;
  /* Adding `kept` puts its hidden bit, and a carry out of the rounding, into the exponent field; a carry
   * out of the largest binade gives the pattern of infinity. */
  uint32_t magnitude = ((uint32_t)(quantum + 149) << 23) + kept;
  return magnitude ? sign_bit | magnitude : 0;
}
