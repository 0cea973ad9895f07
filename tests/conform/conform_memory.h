/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the harness: inputs that cannot be written or read past, and the poison of everything else.
 */
#ifndef M3IDX_CONFORM_MEMORY_H
#define M3IDX_CONFORM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What outputs, padding and guards hold before a call.  As a score it is a NaN other than the one that S3.3 allows,
 * as an id or page it is beyond any case, and as a key it names no block: nobody computes it. */
#define CONFORM_POISON UINT32_C(0x7fa5a5a5)
enum { CONFORM_GUARD_BYTES = 64 };

/* Never NULL: without memory the program ends with status 2. */
void *conform_alloc(size_t bytes);
/* Elements below four bytes are all alike, so that the poison of one does not depend on its place. */
void conform_poison(void *to, size_t bytes, size_t element_bytes);

/* A read-only input.  Its last byte is followed by a page that cannot be read. */
typedef struct conform_input {
  const char *name;
  const unsigned char *data;
  size_t bytes;
  unsigned char *map;
  size_t map_bytes, page_bytes;
} conform_input;

/* A writable place for `bytes` (poisoned) that conform_input_seal() makes read-only. */
unsigned char *conform_input_make(conform_input *input, const char *name, size_t bytes);
void conform_input_seal(conform_input *input);
void conform_input_copy(conform_input *input, const char *name, const void *from, size_t bytes);
void conform_input_free(conform_input *input); /* a zeroed one: nothing */

/* From now on a write to an input, or a read past one, prints what conform_memory_note() said last with the name of the
 * input, and ends the program with status 1. */
void conform_memory_watch(void);
void conform_memory_note(const char *headline, const char *repeat);

#endif
