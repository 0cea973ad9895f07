/* SPDX-License-Identifier: Apache-2.0
 *
 * Case files: safetensors in and out (docs/CASES.md).  The only room that needs a JSON library; built as
 * its own target so that libm3idx does not.
 */
#ifndef M3IDX_CASEFILE_H
#define M3IDX_CASEFILE_H

#include "case.h"

/* Read a whole file; nothing in it is trusted.  0, or -1 and why (names the file, the field, the bound). */
int casefile_read(const char *path, case_file *out, char *why);
/* Parse the same bytes from memory (for fuzzing). */
int casefile_parse(const void *bytes, size_t size, case_file *out, char *why);
/* Write to a temporary file beside path, flush, rename: path is whole or untouched. */
int casefile_write(const char *path, const case_file *file, char *why);

#endif
