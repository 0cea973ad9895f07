/* SPDX-License-Identifier: Apache-2.0
 *
 * What this x86-64 processor and its operating system offer.
 */
#ifndef M3IDX_SIMD_X86_H
#define M3IDX_SIMD_X86_H

typedef enum simd_x86_set {
  SIMD_X86_AVX2,   /* AVX2, FMA, F16C, BMI */
  SIMD_X86_AVX512, /* F, BW, DQ, VL, VBMI not needed */
  SIMD_X86_AVX512BF16,
  SIMD_X86_AMX /* tile and bf16; asks Linux for the tile state */
} simd_x86_set;

/* 1 if instructions of the set (and of those before it) may be executed. */
int simd_x86_has(simd_x86_set set);
int simd_x86_is_intel(void);

#endif
