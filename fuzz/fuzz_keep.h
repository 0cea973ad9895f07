/* SPDX-License-Identifier: Apache-2.0
 *
 * From a case to a line of the regression list, which conform's level regression runs everywhere.
 */
#ifndef M3IDX_FUZZ_KEEP_H
#define M3IDX_FUZZ_KEEP_H

#include "case.h"

/* The case line that generates the inputs of a case in memory: its own where that is still true, else one of zeros and
 * single elements.  malloc'd; NULL and why where no line is long enough. */
char *fuzz_line_of(const case_file *file, char *why);

/* Appends "# reason" and the line to a list; a line that it has already is not added.  0, 1 = it was there, or -1. */
int fuzz_keep(const char *list, const char *line, const char *reason, char *why);

#endif
