/* SPDX-License-Identifier: Apache-2.0
 *
 * An integer wide enough to hold any dot product exactly (S3.2), and the one rounding to binary32 (S3.3).
 *
 * A product of two numbers is an integer below 2^48 times 2^e, e in -298..208 (ref_number).  A sum of up
 * to 2^8 of them is therefore an integer multiple of 2^-298 below 2^(208 + 48 + 8) in magnitude, and fits
 * in REF_WIDE_BITS bits and a sign.
 */
#ifndef M3IDX_REF_WIDE_H
#define M3IDX_REF_WIDE_H

#include <stdint.h>

#include "ref_format.h"

#define REF_WIDE_MIN_EXPONENT (2 * (1 - 127 - 23))   /* -298: the square of the smallest subnormal */
#define REF_WIDE_MAX_EXPONENT (2 * (254 - 127 - 23)) /* 208: the square of a number in the top binade */
#define REF_WIDE_BITS (REF_WIDE_MAX_EXPONENT + 2 * 24 + 8 - REF_WIDE_MIN_EXPONENT) /* 562 */
#define REF_WIDE_DIGITS ((REF_WIDE_BITS + 31) / 32)                                /* 18 */

/* The sum over i of digit[i] * 2^(32 i + REF_WIDE_MIN_EXPONENT).  Digits are signed and may exceed 32 bits
 * while products are added (a digit takes at most 32 bits from each, so 2^8 of them stay below 2^40);
 * carries wait until the sum is rounded. */
typedef struct ref_wide {
  int64_t digit[REF_WIDE_DIGITS];
} ref_wide;

void ref_wide_zero(ref_wide *wide);
/* wide += a * b; both finite.  At most 256 times after zeroing. */
void ref_wide_add_product(ref_wide *wide, ref_number a, ref_number b);
/* The binary32 pattern nearest to the sum, ties to even, gradual underflow, overflow to infinity; any zero
 * result is +0 (S3.4).  Rounding is monotone: of two sums the larger never rounds to the smaller float, so
 * a maximum may be taken after rounding and wide integers are never compared. */
uint32_t ref_wide_round(const ref_wide *wide);

#endif
