/* SPDX-License-Identifier: Apache-2.0
 *
 * golden_check TABLE < STREAM: whether what golden_emit wrote, here or on another machine, has the frozen digests.
 * Each backend of the stream must have given every tensor of the table.  Exit 0: all alike; 1: not; 2: unusable.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nettle/sha2.h>

#include "golden_table.h"

typedef struct header {
  char backend[64], path[16], tensor[32], line[4096];
  unsigned long bytes;
} header;

/* 1 = read, 0 = the stream ended, -1 = malformed. */
static int read_header(header *h) {
  char text[4400];
  int used = 0;
  if (!fgets(text, sizeof text, stdin)) return 0;
  if (sscanf(text, "golden %63s %15s %31s %lu %n", h->backend, h->path, h->tensor, &h->bytes, &used) != 4 || !used)
    return -1;
  snprintf(h->line, sizeof h->line, "%.4090s", text + used);
  h->line[strcspn(h->line, "\n")] = 0;
  return 1;
}

static int digest_of(unsigned long bytes, char hex[GOLDEN_HEX + 1]) {
  unsigned char piece[4096];
  uint8_t sum[SHA256_DIGEST_SIZE];
  struct sha256_ctx sha;
  sha256_init(&sha);
  while (bytes) {
    const size_t n = bytes < sizeof piece ? (size_t)bytes : sizeof piece;
    if (fread(piece, 1, n, stdin) != n) return -1;
    sha256_update(&sha, n, piece);
    bytes -= (unsigned long)n;
  }
  sha256_digest(&sha, sizeof sum, sum);
  for (size_t i = 0; i < sizeof sum; i++) sprintf(hex + 2 * i, "%02x", sum[i]);
  return 0;
}

/* A backend's part of the stream has ended: was every row there? */
static int finish(golden_table *table, const char *backend, int tensors) {
  int missing = 0;
  for (int i = 0; i < table->count; i++) {
    if (!table->row[i].seen && missing++ < 5)
      printf("FAIL golden %s: no %s of %s\n", backend, table->row[i].tensor, table->row[i].line);
    table->row[i].seen = false;
  }
  printf("golden %s: %d tensors, %d rows missing\n", backend, tensors, missing);
  return missing;
}

int main(int argc, char **argv) {
  static header h;
  golden_table table;
  char backend[64] = "", hex[GOLDEN_HEX + 1];
  int failed = 0, tensors = 0, more = 0;
  if (argc != 2 || !golden_read(argv[1], &table)) {
    fprintf(stderr, "usage: golden_check TABLE < STREAM\n");
    return 2;
  }
  while ((more = read_header(&h)) > 0) {
    if (strcmp(backend, h.backend) != 0) {
      if (*backend) failed += finish(&table, backend, tensors);
      memcpy(backend, h.backend, sizeof backend);
      tensors = 0;
    }
    if (digest_of(h.bytes, hex)) {
      more = -1;
      break;
    }
    golden_row *row = golden_find(&table, h.line, h.tensor);
    if (!row || strcmp(row->digest, hex) != 0) {
      if (failed++ < 20)
        printf("FAIL golden %s (%s) %s of %s\n  want %s\n  got  %s\n", h.backend, h.path, h.tensor, h.line,
               row ? row->digest : "no such row", hex);
    }
    if (row) row->seen = true;
    tensors++;
  }
  if (*backend) failed += finish(&table, backend, tensors);
  if (more < 0) printf("FAIL golden: the stream is malformed or ends early\n");
  if (!*backend) printf("FAIL golden: the stream is empty\n");
  golden_free(&table);
  return failed || more < 0 || !*backend;
}
