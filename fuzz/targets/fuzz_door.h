/* SPDX-License-Identifier: Apache-2.0
 *
 * A second door (S7.1): what the six calls must accept and refuse, written anew from SEMANTICS and m3idx.h, without
 * sentences, statuses or anything of common/check*.c.
 */
#ifndef M3IDX_FUZZ_DOOR_H
#define M3IDX_FUZZ_DOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "m3idx.h"

typedef struct door_buffer {
  uintptr_t begin;
  long double bytes; /* exact below 2^64, and large where it is larger */
  bool output;
} door_buffer;

typedef struct door_view {
  int count; /* buffers of the call that are not empty */
  door_buffer at[16];
} door_view;

/* All but contents: false = the call must be refused; else the call's buffers. */
bool door_shapes(m3idx_op op, const void *args, door_view *view);
/* Contents, after door_shapes() was true: lengths, pages, slots, keys. */
bool door_contents(m3idx_op op, const void *args);

#endif
