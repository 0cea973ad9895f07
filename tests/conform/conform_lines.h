/* SPDX-License-Identifier: Apache-2.0
 *
 * Where case lines come from: files of lines, and a grammar for the full level.
 */
#ifndef M3IDX_CONFORM_LINES_H
#define M3IDX_CONFORM_LINES_H

#include <stdbool.h>
#include <stddef.h>

/* Malloc'd lines, freed by conform_lines_free(). */
typedef struct conform_lines {
  char **line;
  int count;
} conform_lines;

/* Adds the lines of a file, less comments (#) and blanks; -1 = cannot be read. */
int conform_lines_read(conform_lines *lines, const char *path);
void conform_lines_add(conform_lines *lines, const char *line);
/* Adds the lines of the grammar: the same on every host. */
void conform_lines_grammar(conform_lines *lines);
void conform_lines_free(conform_lines *lines);

#endif
