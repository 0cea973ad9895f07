/* SPDX-License-Identifier: Apache-2.0
 *
 * golden_oracle TABLE [--freeze]: the goldens by the second witness.  Every tensor of every case line is computed from
 * the line's inputs by the oracle (golden_witness.h), never by the library (the inputs by the generator, which is
 * common/'s), and its digest compared with the table; the lines must cover every operation, format, contract field and
 * data kind.  --freeze prints the table anew: a manual verb (./dev golden-freeze), because frozen digests move only
 * with a line in CHANGELOG.md.
 */
#include <stdio.h>
#include <string.h>

#include "golden_witness.h"

/* What the lines of the table have shown, by value. */
typedef struct coverage {
  int op[3], q[M3IDX_DTYPE_COUNT], k[M3IDX_DTYPE_COUNT], tie[2], nan[4], zero[2], order[2], data[CASE_ZEROS + 1],
      block_size[129];
  int tensors[GOLDEN_TENSORS];
} coverage;

static void cover(coverage *v, const witness *w) {
  const m3idx_case *c = &w->c;
  v->op[c->op]++;
  v->data[w->spec.data]++;
  v->tie[c->contract.tie]++;
  v->nan[c->contract.nan]++;
  v->zero[c->contract.zero]++;
  v->order[c->contract.order]++;
  for (int i = 0; i < GOLDEN_TENSORS; i++) v->tensors[i] += i == GOLDEN_INPUTS || case_find(&w->out, golden_tensors[i]);
  if (c->op == CASE_SELECT) return;
  v->q[c->q_dtype]++;
  v->k[c->k_dtype]++;
  v->block_size[c->B]++;
}

static int holes(const char *what, const int *count, int n) {
  int missing = 0;
  for (int i = 0; i < n; i++)
    if (!count[i]) printf("FAIL golden_oracle: no line has %s number %d\n", what, i), missing++;
  return missing;
}

static int uncovered(const coverage *v) {
  const int sizes[] = {v->block_size[16], v->block_size[32], v->block_size[64], v->block_size[128]};
  return holes("op", v->op, 3) + holes("queries of format", v->q, M3IDX_DTYPE_COUNT) +
         holes("keys of format", v->k, M3IDX_DTYPE_COUNT) + holes("tie", v->tie, 2) + holes("nan", v->nan, 4) +
         holes("zero", v->zero, 2) + holes("order", v->order, 2) + holes("data kind", v->data, CASE_ZEROS + 1) +
         holes("tensor", v->tensors, GOLDEN_TENSORS) + holes("block size", sizes, 4);
}

static int judge_line(golden_table *table, const char *line, bool freeze, coverage *seen) {
  witness w = {.line = line};
  char hex[GOLDEN_HEX + 1];
  int failed = 0;
  golden_witness_line(&w);
  cover(seen, &w);
  for (int i = 0; i < GOLDEN_TENSORS; i++) {
    const golden_row *row = golden_find(table, line, golden_tensors[i]);
    const bool has = golden_witness_digest(&w, i, hex);
    if (has && freeze) printf("%s\t%s\t%s\n", line, golden_tensors[i], hex);
    if (freeze || (!has && !row)) continue;
    if (has && row && !strcmp(row->digest, hex)) continue;
    failed++;
    printf("FAIL golden_oracle: %s of %s\n  oracle %s\n  table  %s\n", golden_tensors[i], line, has ? hex : "has none",
           row ? row->digest : "has none");
  }
  golden_witness_free(&w);
  return failed;
}

int main(int argc, char **argv) {
  golden_table table;
  static coverage seen;
  const bool freeze = argc == 3 && !strcmp(argv[2], "--freeze");
  int failed = 0, lines = 0;
  if ((argc != 2 && !freeze) || !golden_read(argv[1], &table)) {
    fprintf(stderr, "usage: golden_oracle TABLE [--freeze]\n");
    return 2;
  }
  if (freeze && table.comments) printf("%s", table.comments);
  for (int i = 0; i < table.count; i++) {
    if (!golden_begins(&table, i)) continue;
    failed += judge_line(&table, table.row[i].line, freeze, &seen);
    lines++;
  }
  failed += freeze ? 0 : uncovered(&seen);
  if (!freeze) printf("golden_oracle: %d lines, %d rows, %d failed\n", lines, table.count, failed);
  golden_free(&table);
  return failed != 0;
}
