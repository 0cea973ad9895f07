/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx fuzz as a program may have it with backends of its own: the test build's fuzz_simt and fuzz_liars do.
 */
#ifndef M3IDX_TOOL_VERB_FUZZ_H
#define M3IDX_TOOL_VERB_FUZZ_H

#include <stdbool.h>

struct conform_backend;

/* argv[0] is what a person types; light: lines small enough for backends a thousand times slower than a machine. */
int verb_fuzz_with(int argc, const char **argv, const struct conform_backend *extra, int num_extra, bool light);

#endif
