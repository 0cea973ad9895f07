/* SPDX-License-Identifier: Apache-2.0
 *
 * A case that is being made smaller: its line's options, and its single elements by where they stand in the problem, so
 * that they stay with their row, head, page or block when something else goes.
 */
#ifndef M3IDX_FUZZ_SMALL_H
#define M3IDX_FUZZ_SMALL_H

#include "case.h"

/* An element: of q [row, head, d], index_k [page, token, d], score [row, head, block], a table [request, block, 0]. */
typedef struct fuzz_point {
  case_put_tensor tensor;
  int64_t at[3];
  uint32_t bits;
} fuzz_point;

typedef struct fuzz_small {
  case_spec spec; /* without its puts */
  int64_t num_points;
  fuzz_point *points;
} fuzz_small;

/* All return 0, or -1 for no memory; what they give is freed by fuzz_small_free(). */
int fuzz_small_from(const case_spec *spec, fuzz_small *out);
int fuzz_small_copy(const fuzz_small *from, fuzz_small *out);
void fuzz_small_free(fuzz_small *small);
/* As a case line's meaning again; points that no longer exist are left out.  Frees by case_spec_free(). */
int fuzz_small_spec(const fuzz_small *small, case_spec *out);

/* Every element that generation gives and that is not +0, and every live entry of the tables, as points of a case of
 * zeros; -1 also where there would be more than `most`. */
int fuzz_small_pin(const fuzz_small *from, int64_t most, fuzz_small *out);

/* ---- edits; points follow ---- */

/* Requests of prefill and decode, rows of select. */
int64_t fuzz_small_parts(const fuzz_small *small);
void fuzz_small_drop_parts(fuzz_small *small, int64_t first, int64_t count);
/* Query rows of request r that are dropped from its front or its back; decode: of every request, from the front. */
void fuzz_small_drop_rows(fuzz_small *small, int64_t r, int64_t count, bool front);
void fuzz_small_drop_head(fuzz_small *small);   /* the first */
void fuzz_small_drop_dims(fuzz_small *small);   /* the first 16 */
void fuzz_small_drop_column(fuzz_small *small); /* select: block 0 of every row */
/* The first block of every request, with what it holds: keys move up by one block. */
void fuzz_small_drop_block(fuzz_small *small);

#endif
