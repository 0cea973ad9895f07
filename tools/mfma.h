/* SPDX-License-Identifier: Apache-2.0
 *
 * A bit model of gfx942's matrix instructions, after the measurements published as MMA-Sim (arXiv 2511.10909); the
 * arithmetic "cdna3-mfma" of docs/JUDGE.md.  It is something that can be judged, not the definition.
 *
 * Not known from hardware: the signs of zeros in blocks of zeros, and NaN payloads, which are canonical here.  No
 * model of gfx950, whose internals are not published.
 */
#ifndef M3IDX_MFMA_H
#define M3IDX_MFMA_H

#include "case.h"
#include "judge_number.h"

/* What multiplies: blocks of 8 consecutive k (bf16, f16), of 16 (e4m3fnuz, e5m2fnuz), or FMAs one by one (f32). */
typedef enum mfma_kind { MFMA_BLOCKS_8, MFMA_BLOCKS_16, MFMA_CHAIN } mfma_kind;
typedef struct mfma_unit {
  mfma_kind kind;
  int least_exponent; /* MFMA_BLOCKS_8: that of the format both operands are converted to, exactly */
} mfma_unit;

/* The unit for queries and keys of these formats.  k_block: 8, 16, or 0 for 16 where both formats allow it, else 8.
 * 0, or -1 and why there is none. */
int mfma_unit_of(m3idx_dtype q, m3idx_dtype k, int k_block, mfma_unit *out, char *why);

/* c plus the products of n numbers, k ascending; n a multiple of the unit's block. */
float mfma_dot(const mfma_unit *unit, const judge_number *a, const judge_number *b, int n, float c);

/* Put the scores that this arithmetic gives, and what they select, into file (mfma_run.c).  Returns the library's
 * status, the sentence in why; file is unchanged unless M3IDX_OK. */
m3idx_status mfma_run(case_file *file, int k_block, char *why);

#endif
