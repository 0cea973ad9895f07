/* SPDX-License-Identifier: Apache-2.0
 *
 * The door for slot mappings (S6.1): every live slot inside the cache, and no slot named twice, since two rows
 * for one slot would make the result depend on order.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "check_parts.h"

typedef struct slot_row {
  int64_t slot, row;
} slot_row;

static int by_slot_then_row(const void *x, const void *y) {
  const slot_row *a = x, *b = y;
  if (a->slot != b->slot) return a->slot < b->slot ? -1 : 1;
  return (a->row > b->row) - (a->row < b->row);
}

/* Sorted copies bring equal slots together; needed only where the mapping does not already ascend. */
static m3idx_status unique(m3idx_context *ctx, const int64_t *slots, int64_t count) {
  size_t live = 0;
  slot_row *sorted = malloc((size_t)count * sizeof *sorted);
  if (!sorted) return m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory to check %" PRId64 " slots", count);
  for (int64_t i = 0; i < count; i++)
    if (slots[i] >= 0) sorted[live++] = (slot_row){slots[i], i};
  qsort(sorted, live, sizeof *sorted, by_slot_then_row);
  m3idx_status status = M3IDX_OK;
  for (size_t i = 1; i < live && !status; i++)
    if (sorted[i].slot == sorted[i - 1].slot)
      status =
          m3idx_fail(ctx, M3IDX_INVALID, "slot_mapping[%" PRId64 "] = %" PRId64 " repeats slot_mapping[%" PRId64 "]",
                     sorted[i].row, sorted[i].slot, sorted[i - 1].row);
  free(sorted);
  return status;
}

m3idx_status check_slots(m3idx_context *ctx, const int64_t *slots, int64_t count, int64_t bound) {
  int64_t highest = -1;
  bool ascending = true;
  for (int64_t i = 0; i < count; i++) {
    if (slots[i] < 0) continue;
    if (slots[i] >= bound)
      return m3idx_fail(ctx, M3IDX_INVALID,
                        "slot_mapping[%" PRId64 "] = %" PRId64
                        " is not below cache.shape[0] * cache.shape[1] = %" PRId64,
                        i, slots[i], bound);
    ascending = ascending && slots[i] > highest;
    highest = slots[i];
  }
  return ascending ? M3IDX_OK : unique(ctx, slots, count);
}
