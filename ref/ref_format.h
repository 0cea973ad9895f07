/* SPDX-License-Identifier: Apache-2.0
 *
 * The seven number formats, read and written bit by bit (S2.2, S6.2).  Integers only.
 */
#ifndef M3IDX_REF_FORMAT_H
#define M3IDX_REF_FORMAT_H

#include <stdint.h>

#include "m3idx.h"

typedef enum ref_class { REF_FINITE, REF_INF, REF_NAN } ref_class;

/* A decoded code.  REF_FINITE is (-1)^negative * significand * 2^exponent with significand < 2^24 and
 * exponent in -149..104: every format is a subset of binary32, so all share its grid.
 * For REF_INF only the sign means something, for REF_NAN nothing more does. */
typedef struct ref_number {
  ref_class class;
  int negative;         /* 0 or 1 */
  uint32_t significand; /* 0 for a zero of either sign */
  int exponent;
} ref_number;

/* The code stored at `at` (unaligned is fine), as the low bits of the result. */
uint32_t ref_load(const void *at, m3idx_dtype dtype);
/* What `code` means in `dtype`. */
ref_number ref_decode(uint32_t code, m3idx_dtype dtype);

/* Where element [i][j][k] of a tensor lies; its strides are resolved.  64-bit all the way (S2.1). */
void *ref_element(const m3idx_tensor *tensor, int64_t i, int64_t j, int64_t k);

/* 1 for the four one-byte formats. */
int ref_is_fp8(m3idx_dtype dtype);
/* S6.2: the fp8 code nearest to `number`, ties to even, saturating (infinities too) to the largest finite
 * value; NaN gives 0x7f, or 0x80 in fnuz, whatever its sign; fnuz has no -0.  `dtype` is one of the four
 * fp8 formats and `number` comes from f32, f16 or bf16. */
uint8_t ref_encode_fp8(ref_number number, m3idx_dtype dtype);

#endif
