/* SPDX-License-Identifier: Apache-2.0
 *
 * The seven formats (S2.2) to binary32 or bf16 rows, exact, as loops that a compiler turns into vectors.
 * Included by each instruction set's file, so that each gets its own code.  bf16 is the upper half of
 * binary32, and every fp8 value is a bf16 value; f16 and f32 are not and never come here as bf16.
 */
#ifndef M3IDX_SIMD_CONVERT_H
#define M3IDX_SIMD_CONVERT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "simd.h"

/* Before a loop of few, constant turns whose arrays are to live in registers. */
#if defined(__clang__)
#define SIMD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SIMD_UNROLL _Pragma("GCC unroll 16")
#endif

static inline float simd_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t simd_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* A power of two that divides every value of a row of `form`, all of them from `dtype`: the smallest magnitude but
 * zero has the finest grid.  Infinite for a row of zeros. */
static inline double simd_grid(const void *row, simd_form form, int dim, m3idx_dtype dtype) {
  static const int fraction_bits[M3IDX_DTYPE_COUNT] = {
#define M3IDX_DTYPE(name, value, text, bytes, ebits, fbits, bias, specials) [value] = (fbits),
#include "dtype.def"
#undef M3IDX_DTYPE
  };
  uint32_t least = UINT32_MAX; /* a zero wraps to the largest */
  if (form == SIMD_BF16) {
    uint16_t half[SIMD_MAX_DIM], least_half = UINT16_MAX;
    memcpy(half, row, (size_t)dim * sizeof *half);
    for (int d = 0; d < dim; d++) {
      const uint16_t below = (uint16_t)((half[d] & 0x7fff) - 1);
      least_half = below < least_half ? below : least_half;
    }
    if (least_half != UINT16_MAX) least = (uint32_t)(least_half + 1) << 16;
  } else {
    uint32_t bits[SIMD_MAX_DIM];
    memcpy(bits, row, (size_t)dim * sizeof *bits);
    for (int d = 0; d < dim; d++) {
      const uint32_t below = (bits[d] & 0x7fffffffu) - 1;
      least = below < least ? below : least;
    }
    if (least != UINT32_MAX) least++;
  }
  if (least == UINT32_MAX) return INFINITY;
  const uint32_t exponent = least >> 23 ? least >> 23 : 1; /* biased; subnormals share the grid of 1 */
  const uint64_t power = (uint64_t)(1023 - 127 + (int)exponent - fraction_bits[dtype]) << 52;
  double unit;
  memcpy(&unit, &power, sizeof unit);
  return unit;
}

typedef enum simd_specials { SIMD_IEEE, SIMD_FN, SIMD_FNUZ } simd_specials;

/* The binary32 pattern of a narrow code.  A subnormal is read as if its exponent were 1, which adds 2^(1 - bias)
 * too much; taking that off again is exact. */
static inline uint32_t simd_widen(uint32_t code, int ebits, int fbits, int bias, simd_specials specials) {
  const uint32_t sign = code >> (ebits + fbits), magnitude = code & ((1u << (ebits + fbits)) - 1);
  const uint32_t fraction = magnitude << (23 - fbits), one = (uint32_t)(128 - bias) << 23;
  const uint32_t normal = fraction + ((uint32_t)(127 - bias) << 23);
  const uint32_t subnormal = simd_bits(simd_float(fraction + one) - simd_float(one));
  uint32_t bits = magnitude >> fbits ? normal : subnormal;
  if (specials == SIMD_IEEE) bits = magnitude >> fbits == (1u << ebits) - 1 ? fraction | 0x7f800000u : bits;
  if (specials == SIMD_FN) bits = magnitude == (1u << (ebits + fbits)) - 1 ? 0x7fc00000u : bits;
  if (specials == SIMD_FNUZ) bits = code == 1u << (ebits + fbits) ? 0x7fc00000u : bits;
  return bits | sign << 31;
}

static inline uint32_t simd_load_code(const unsigned char *from, size_t bytes) {
  uint8_t byte;
  uint16_t half;
  uint32_t word;
  switch (bytes) {
  case 1: memcpy(&byte, from, sizeof byte); return byte;
  case 2: memcpy(&half, from, sizeof half); return half;
  default: memcpy(&word, from, sizeof word); return word;
  }
}

static inline uint32_t simd_max(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* One row; every argument after `n` is a constant where this is inlined. */
static inline uint32_t simd_row(const unsigned char *from, int64_t stride, int n, void *to, int to_bf16, size_t bytes,
                                int ebits, int fbits, int bias, simd_specials specials) {
  uint32_t most = 0;
  uint16_t *to16 = to;
  uint32_t *to32 = to;
  for (int d = 0; d < n; d++) {
    const uint32_t code = simd_load_code(from + (size_t)((int64_t)d * stride) * bytes, bytes);
    const uint32_t bits = fbits == 23 ? code : ebits == 8 ? code << 16 : simd_widen(code, ebits, fbits, bias, specials);
    most = simd_max(most, bits & 0x7fffffffu);
    if (to && to_bf16) to16[d] = (uint16_t)(bits >> 16);
    if (to && !to_bf16) to32[d] = bits;
  }
  return most;
}

/* The constants of each case are a row of dtype.def; stride 1 gets its own loop. */
static inline uint32_t simd_row_of(m3idx_dtype dtype, const unsigned char *from, int64_t stride, int n, void *to,
                                   int to_bf16) {
  switch (dtype) {
#define M3IDX_DTYPE(name, value, text, bytes, ebits, fbits, bias, specials)                            \
  case M3IDX_##name:                                                                                   \
    return stride == 1 ? simd_row(from, 1, n, to, to_bf16, bytes, ebits, fbits, bias, SIMD_##specials) \
                       : simd_row(from, stride, n, to, to_bf16, bytes, ebits, fbits, bias, SIMD_##specials);
#include "dtype.def"
#undef M3IDX_DTYPE
  default: return 0;
  }
}

static inline uint32_t simd_load_rows(m3idx_dtype dtype, const void *from, int64_t row_bytes, int64_t stride,
                                      int tokens, int dim, simd_form form, void *to, int64_t to_bytes) {
  uint32_t most = 0;
  for (int t = 0; t < tokens; t++) {
    const unsigned char *row = (const unsigned char *)from + (int64_t)t * row_bytes;
    void *row_to = to ? (unsigned char *)to + (int64_t)t * to_bytes : NULL;
    most = simd_max(most, form == SIMD_BF16 ? simd_row_of(dtype, row, stride, dim, row_to, 1)
                                            : simd_row_of(dtype, row, stride, dim, row_to, 0));
  }
  return most;
}

#endif
