/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a row stands and what it sees (S2.3).
 */
#ifndef M3IDX_REF_ROWS_H
#define M3IDX_REF_ROWS_H

#include <stdint.h>

#include "m3idx.h"

typedef struct ref_row {
  int64_t request;
  int64_t position; /* p, negative in a padded row */
  int64_t keys;     /* n: token t is visible iff t < n */
  int64_t blocks;   /* N */
} ref_row;

ref_row ref_row_of(const m3idx_batch *batch, int64_t row);
/* Visible tokens of one of the row's blocks: 1..B. */
int64_t ref_row_tokens(const m3idx_batch *batch, ref_row row, int64_t block);

#endif
