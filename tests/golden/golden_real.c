/* SPDX-License-Identifier: Apache-2.0
 *
 * golden_real DIRECTORY TABLE [--freeze]: case files with data of a real model (tests/data) as conformance cases.  The
 * oracle computes what each must give; its digests must be the table's, and the scores (S3) and selections (S4) of
 * every host backend, cpu once under each instruction set, staged and fused, must be its bytes.  --freeze prints the
 * table of the oracle anew.
 */
#include <stdio.h>
#include <string.h>

#include "casefile.h"
#include "conform_backends.h"
#include "golden_witness.h"

static int failed;

static void judge_digests(const witness *w, golden_table *table, bool freeze) {
  char hex[GOLDEN_HEX + 1];
  for (int i = 0; i < GOLDEN_TENSORS; i++) {
    if (!golden_witness_digest(w, i, hex)) continue;
    const golden_row *row = golden_find(table, w->line, golden_tensors[i]);
    if (freeze) printf("%s\t%s\t%s\n", w->line, golden_tensors[i], hex);
    if (freeze || (row && !strcmp(row->digest, hex))) continue;
    failed++;
    printf("FAIL golden_real: %s of %s\n  oracle %s\n  table  %s\n", golden_tensors[i], w->line, hex,
           row ? row->digest : "has none");
  }
}

static void judge_tensor(const witness *w, const char *backend, const char *path, const char *name) {
  const case_tensor *want = case_find(&w->out, name), *got = case_find(&w->file, name);
  size_t at = 0;
  if (!got || got->bytes != want->bytes) {
    failed++;
    printf("FAIL golden_real: %s, %s: no %s of the oracle's size\n", backend, path, name);
    return;
  }
  while (at < want->bytes && ((const char *)want->data)[at] == ((const char *)got->data)[at]) at++;
  if (at == want->bytes) return;
  failed++;
  printf("FAIL golden_real: %s, %s: %s[%lu] of %s differs from the oracle's\n", backend, path, name,
         (unsigned long)(at / case_dtype_bytes(want->dtype)), w->line);
}

static void judge_backend(witness *w, const conform_opened *b) {
  char why[CASE_MESSAGE_BYTES];
  for (int staged = 1; staged >= 0; staged--) {
    const char *path = staged ? "staged" : "fused";
    case_remove_tensor(&w->file, "topk_idx");
    if (case_run(b->ctx, &w->file, staged, why) != M3IDX_OK) {
      failed++;
      printf("FAIL golden_real: %s, %s: %s\n", b->name, path, why);
      continue;
    }
    if (staged) judge_tensor(w, b->name, path, "score");
    judge_tensor(w, b->name, path, "topk_idx");
  }
}

static void judge_file(const char *directory, const char *name, golden_table *table, bool freeze,
                       const conform_opened *backends, int count) {
  witness w = {.line = name};
  char path[4096], why[CASE_MESSAGE_BYTES];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  if (casefile_read(path, &w.file, why)) {
    failed++;
    printf("FAIL golden_real: %s\n", why);
    return;
  }
  golden_witness_case(&w);
  judge_digests(&w, table, freeze);
  for (int b = 0; !freeze && b < count; b++)
    if (backends[b].ctx) judge_backend(&w, &backends[b]);
  golden_witness_free(&w);
}

int main(int argc, char **argv) {
  const bool freeze = argc == 4 && !strcmp(argv[3], "--freeze");
  golden_table table;
  conform_opened *backends;
  int ran = 0, files = 0;
  if ((argc != 3 && !freeze) || !golden_read(argv[2], &table)) {
    fprintf(stderr, "usage: golden_real DIRECTORY TABLE [--freeze]\n");
    return 2;
  }
  const int count = conform_open_all("all", 0, NULL, 0, &backends);
  for (int b = 0; b < count; b++) {
    ran += backends[b].ctx != NULL;
    if (!freeze) printf("backend %s: %s\n", backends[b].name, backends[b].ctx ? "runs" : backends[b].reason);
  }
  if (freeze && table.comments) printf("%s", table.comments);
  for (int i = 0; i < table.count; i++)
    if (golden_begins(&table, i)) judge_file(argv[1], table.row[i].line, &table, freeze, backends, count), files++;
  if (!freeze) printf("golden_real: %d files, %d backends, %d failed\n", files, ran, failed);
  conform_close_all(backends, count);
  golden_free(&table);
  return failed || !ran || !files;
}
