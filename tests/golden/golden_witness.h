/* SPDX-License-Identifier: Apache-2.0
 *
 * The second witness: every tensor of a case computed by the oracle (tests/oracle) and never by the library, S2.3 to
 * S6. What cannot be computed ends the program with a sentence and exit 2.
 */
#ifndef M3IDX_GOLDEN_WITNESS_H
#define M3IDX_GOLDEN_WITNESS_H

#include "conform_case.h"
#include "golden_table.h"
#include "oracle.h"

enum { GOLDEN_TENSORS = 7, GOLDEN_INPUTS = 0 };
extern const char *const golden_tensors[GOLDEN_TENSORS];

typedef struct witness {
  const char *line; /* the case line, or the name of the file */
  case_spec spec;   /* of a case line */
  case_file file, out;
  m3idx_case c;
  int64_t *request;
  oracle_row *rows;
} witness;

/* Generate the case of w->line and compute all its tensors. */
void golden_witness_line(witness *w);
/* Compute those of the case in w->file, but for cache insertion, whose keys and slots a case line gives. */
void golden_witness_case(witness *w);
void golden_witness_free(witness *w);

/* Of tensor i of golden_tensors; false = the case has none. */
bool golden_witness_digest(const witness *w, int i, char hex[GOLDEN_HEX + 1]);

#endif
