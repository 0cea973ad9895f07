/* SPDX-License-Identifier: Apache-2.0
 *
 * Files as another implementation would write them: a case, its golden, and outputs computed in another arithmetic.
 */
#ifndef M3IDX_FOREIGN_H
#define M3IDX_FOREIGN_H

#include "judge.h"

typedef enum foreign_kind {
  FOREIGN_EXACT,    /* the golden's own outputs */
  FOREIGN_F32,      /* d ascending, products rounded */
  FOREIGN_FMA_DOWN, /* d descending, fused */
  FOREIGN_PAIRWISE, /* a balanced tree */
  FOREIGN_SPLIT,    /* four chains, then their sum */
  FOREIGN_RANDOM,   /* a random tree, each product rounded or fused by chance */
  FOREIGN_PERMUTED, /* a chain in a random order of d that all dots share */
  FOREIGN_FLUSH,    /* FOREIGN_F32, subnormals read and written as zero */
  FOREIGN_MMA,      /* blocks of `block` exact products cut to 24 bits under the largest, results cut too */
  FOREIGN_MFMA,     /* gfx942's model, k ascending */
  FOREIGN_MFMA_PERMUTED,
  FOREIGN_HALF /* every sum rounded to bf16: honest by no declaration here */
} foreign_kind;

/* How an implementation differs from an honest one in what it reads. */
typedef struct foreign_faults {
  int skip_last_d;     /* the last element of every dot is left out */
  int tokens_more;     /* tokens seen past, or (negative) short of, the visible ones */
  int token_shift;     /* blocks begin so many tokens late */
  bool other_encoding; /* keys read as the fn twin of their fnuz format, or the reverse */
  bool no_scale;
} foreign_faults;

typedef struct foreign {
  case_file golden, theirs;
  m3idx_case view; /* of theirs */
  float *score;    /* [H][T][M] of theirs; NULL for op select */
  int32_t *topk_idx;
} foreign;

/* A file whose scores are of `kind`, and its selection by the case's contract.  Ends the program where it cannot. */
void foreign_make(foreign *f, const char *line, foreign_kind kind, int block, uint64_t seed,
                  const foreign_faults *faults);
/* Select again from theirs->score (select: the case's) under a contract, as if rows saw at most `cut` blocks. */
void foreign_select(foreign *f, const m3idx_contract *contract, int64_t cut);
void foreign_free(foreign *f);

/* Deterministic random numbers. */
uint64_t foreign_random(uint64_t *state);
/* One dot of `n` numbers in an arithmetic; order is a permutation of 0..n-1. */
float foreign_dot(foreign_kind kind, int block, const judge_number *q, const judge_number *k, const int *order, int n,
                  uint64_t *state);

#endif
