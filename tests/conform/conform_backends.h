/* SPDX-License-Identifier: Apache-2.0
 *
 * The backends of a run: the library's, with cpu once for each instruction set, and those a program adds.
 */
#ifndef M3IDX_CONFORM_BACKENDS_H
#define M3IDX_CONFORM_BACKENDS_H

#include "conform.h"

typedef struct conform_opened {
  char name[64];
  m3idx_context *ctx; /* NULL = cannot run here */
  char reason[M3IDX_MESSAGE_BYTES];
} conform_opened;

/* Those that `wanted` names: "all", a backend, or cpu:ISA.  Returns how many; the list is malloc'd. */
int conform_open_all(const char *wanted, int num_threads, const conform_backend *extra, int num_extra,
                     conform_opened **out);
void conform_close_all(conform_opened *list, int count);

#endif
