/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a row of a case stands and what it sees (S2.3).
 */
#ifndef M3IDX_TOOL_ROWS_H
#define M3IDX_TOOL_ROWS_H

#include "case.h"

typedef struct tool_row {
  int64_t request; /* 0 for op select */
  int64_t keys;    /* n; 0 for op select */
  int64_t blocks;  /* N, at most M, so that no file can point past the scores */
} tool_row;

tool_row tool_row_of(const m3idx_case *c, int64_t t);

#endif
