/* SPDX-License-Identifier: Apache-2.0
 *
 * golden.tsv in memory: case lines, the tensors each gives, and the frozen SHA-256 of each tensor (docs/CASES.md,
 * "Digests").  Tensors of a line: score, topk_idx, sparse_block_table and sparse_context_lens as m3idx run names them,
 * keys (U64 [H][T][K], S4.4), cache ([P][B][D], S6, of the insertion that conform_insert_make() derives), and "inputs",
 * which is all generated tensors one after another in the order of the case.
 */
#ifndef GOLDEN_TABLE_H
#define GOLDEN_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum { GOLDEN_HEX = 64 };

typedef struct golden_row {
  char *line; /* the case line */
  char tensor[32], digest[GOLDEN_HEX + 1];
  bool seen;
} golden_row;

typedef struct golden_table {
  golden_row *row;
  int count;
  char *comments; /* the lines that begin with #, in order, one after another */
} golden_table;

/* False and a message on standard error: not readable or malformed. */
bool golden_read(const char *path, golden_table *out);
void golden_free(golden_table *table);
/* Whether row i begins a case line. */
bool golden_begins(const golden_table *table, int i);
golden_row *golden_find(golden_table *table, const char *line, const char *tensor); /* NULL = absent */

#endif
