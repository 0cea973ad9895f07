/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading golden.tsv: case line, tensor and digest between tabs.
 */
#include "golden_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *copied(const char *text) {
  char *copy = malloc(strlen(text) + 1);
  return copy ? strcpy(copy, text) : NULL;
}

static bool add_comment(golden_table *t, const char *text) {
  const size_t before = t->comments ? strlen(t->comments) : 0;
  char *grown = realloc(t->comments, before + strlen(text) + 2);
  if (!grown) return false;
  t->comments = grown;
  sprintf(grown + before, "%s\n", text);
  return true;
}

/* A row may end after the line or the tensor: its digest is then empty, to be frozen. */
static bool add_row(golden_table *t, char *text) {
  golden_row row = {.seen = false};
  char *tensor = strchr(text, '\t'), *digest = tensor ? strchr(tensor + 1, '\t') : NULL;
  if (tensor) *tensor++ = 0;
  if (digest) *digest++ = 0;
  golden_row *grown = realloc(t->row, (size_t)(t->count + 1) * sizeof *grown);
  if (!grown) return false;
  t->row = grown;
  if ((tensor && strlen(tensor) >= sizeof row.tensor) || (digest && strlen(digest) != GOLDEN_HEX)) return false;
  if (tensor) strcpy(row.tensor, tensor);
  if (digest) strcpy(row.digest, digest);
  if (!(row.line = copied(text))) return false;
  t->row[t->count++] = row;
  return true;
}

bool golden_read(const char *path, golden_table *out) {
  char text[4096];
  *out = (golden_table){.row = NULL};
  FILE *in = fopen(path, "r");
  bool good = in != NULL;
  while (good && fgets(text, sizeof text, in)) {
    text[strcspn(text, "\r\n")] = 0;
    good = !*text || (*text == '#' ? add_comment(out, text) : add_row(out, text));
    if (!good) fprintf(stderr, "%s: malformed: %.200s\n", path, text);
  }
  if (!in) fprintf(stderr, "%s: cannot be read\n", path);
  if (good && !out->count) fprintf(stderr, "%s: has no rows\n", path);
  if (in) fclose(in);
  return good && out->count;
}

void golden_free(golden_table *table) {
  for (int i = 0; i < table->count; i++) free(table->row[i].line);
  free(table->row);
  free(table->comments);
  *table = (golden_table){.row = NULL};
}

bool golden_begins(const golden_table *table, int i) {
  return i == 0 || strcmp(table->row[i].line, table->row[i - 1].line) != 0;
}

golden_row *golden_find(golden_table *table, const char *line, const char *tensor) {
  for (int i = 0; i < table->count; i++)
    if (!strcmp(table->row[i].tensor, tensor) && !strcmp(table->row[i].line, line)) return &table->row[i];
  return NULL;
}
