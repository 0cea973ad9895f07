/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of m3idx verify: whether two files hold one case, and what kind of difference a selection has.
 */
#ifndef M3IDX_VERIFY_H
#define M3IDX_VERIFY_H

#include "case.h"

/* 0 if the inputs are the same, else -1 and a sentence that names the first that is not. */
int verify_inputs(const case_file *golden, const m3idx_case *g, const case_file *other, const m3idx_case *o, char *why);

/* m3idx verify on two files in memory, whose names are shown: an exit status.  Output goes to standard output. */
int verify_files(const char *verb, const char *const path[2], const case_file file[2], bool quiet);

/* How one row of topk_idx differs from the golden's, mildest first. */
typedef enum row_class {
  ROW_SAME,
  ROW_TIE,      /* other ids whose scores the contract holds equal */
  ROW_ORDER,    /* the same ids in another order */
  ROW_ROUNDING, /* ids whose scores are at most 1 ulp from the right ones */
  ROW_UNKNOWN,  /* other valid ids, and no score to weigh them by */
  ROW_WRONG,
  ROW_CLASSES
} row_class;

/* Judge row t of head h.  score is [H][T][M] as the golden has it, or NULL.  For ROW_WRONG `why` (CASE_MESSAGE_BYTES)
 * says how. */
row_class verify_row(const m3idx_case *c, const float *score, int64_t h, int64_t t, const int32_t *want,
                     const int32_t *got, char *why);

/* Distance of two floats that are no NaN in representable values, -0 and +0 being the same. */
int64_t verify_ulps(float a, float b);

#endif
