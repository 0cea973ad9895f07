/* SPDX-License-Identifier: Apache-2.0
 *
 * What the simt tests share: contexts, random data, poisoned outputs, and the comparison with ref.
 */
#ifndef M3IDX_SIMT_HARNESS_H
#define M3IDX_SIMT_HARNESS_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend.h"

#define SIMT_ARCHS 3
extern const char *const simt_archs[SIMT_ARCHS];

/* A context whose backend is simt_backend(arch), or ref for "ref".  NULL never comes back: the program ends. */
m3idx_context *simt_open(const char *arch);
void simt_close(m3idx_context *ctx);

typedef struct simt_rng {
  uint64_t state;
} simt_rng;
uint64_t simt_random(simt_rng *rng);
int64_t simt_below(simt_rng *rng, int64_t bound); /* 0..bound-1 */

/* Outputs come between guards, and everything starts as SIMT_POISON. */
enum { SIMT_GUARD = 64, SIMT_POISON = 0xdb };
void *simt_buffer(size_t bytes); /* poisoned; simt_buffer_free checks the guards */
bool simt_buffer_free(void *buffer, size_t bytes);

/* True when equal; otherwise the first difference and the line that repeats the run go to standard error. */
bool simt_same(const char *what, const char *run, const void *want, const void *got, size_t bytes, size_t element);

/* Full coverage was asked for: environment M3IDX_SIMT_FULL=1. */
bool simt_full(void);

/* Run and free the suite; the program's exit status, which is 1 as well where no kernel ran. */
int simt_run(Suite *suite);

#endif
