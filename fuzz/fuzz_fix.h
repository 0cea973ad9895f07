/* SPDX-License-Identifier: Apache-2.0
 *
 * Options that every drawn line is to have, for backends and programs that know only some cases.
 */
#ifndef M3IDX_FUZZ_FIX_H
#define M3IDX_FUZZ_FIX_H

#include "fuzz_draw.h"

/* 0 if `fix` is a list of options of case lines, each once, with a value; else -1 and why. */
int fuzz_fix_check(const char *fix, char *why);

/* The line with the options of `fix` that its op has in place of its own; what then contradicts them (capacity, the
 * sparse table, single elements) is taken back.  false = no such line can be, or only one that is far larger than was
 * drawn, and the line is to be passed over. */
bool fuzz_fix_line(fuzz_line *line, const char *fix);

#endif
