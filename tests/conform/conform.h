/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance harness (S2 to S7.2): case lines run on every backend, each output byte compared with ref's.
 *
 * One loop.  A case line gives inputs and, by ref on one thread, what every operation must write.  Each call is then
 * made on each backend: outputs poisoned, guards around every buffer, inputs read-only with an unreadable page at
 * their end, strides padded.  All bytes are compared, those that nobody may write too, and a difference is explained.
 * Backends with memory of their own run again in that memory with a lent workspace.
 *
 * It does not look at bad input (S7.1), launch policies (S8) or speed, and believes ref: the oracle judges that one.
 */
#ifndef M3IDX_CONFORM_H
#define M3IDX_CONFORM_H

#include "backend.h"

/* A backend that is no part of the library: the host executor of kernels, or one that lies on purpose. */
typedef struct conform_backend {
  const char *name;
  const m3idx_backend *table;
} conform_backend;

/* The program: `argv` as main() has it, extra backends joined to the library's own.  Exit status: 0 every call
 * compared is right and there was at least one; 1 a difference, or nothing compared; 2 bad usage. */
int conform_main(int argc, const char *const *argv, const conform_backend *extra, int num_extra);

#endif
