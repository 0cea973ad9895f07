/* SPDX-License-Identifier: Apache-2.0
 *
 * The shortlist of the fused path (S4): intervals by their lower ends.  Knows nothing of how they were found.
 */
#include "simd_short.h"

#include <string.h>

#include "ref_key.h"

int64_t simd_short_room(int64_t topk) { return topk + SIMD_SPARE; }

void simd_short_clear(simd_short *list, uint64_t *keys, uint32_t *high, int64_t topk) {
  simd_best_clear(&list->best, keys, simd_short_room(topk));
  list->high = high;
  list->dropped = 0;
}

void simd_short_offer(simd_short *list, uint64_t key, uint32_t high) {
  simd_best *best = &list->best;
  const int full = best->held == best->topk, enters = key > best->floor;
  const int64_t at = full ? best->least : best->held;
  const uint32_t out = !enters ? high : full ? list->high[at] : 0;
  if (out > list->dropped) list->dropped = out;
  if (!enters) return;
  list->high[at] = high;
  simd_best_offer(best, key);
}

/* By counting how many are above each: no branch depends on a key.  No key is twice here. */
void simd_short_sort(simd_short *list) {
  const int64_t held = list->best.held;
  uint64_t key[REF_MAX_TOPK + SIMD_SPARE];
  uint32_t high[REF_MAX_TOPK + SIMD_SPARE];
  memcpy(key, list->best.key, (size_t)held * sizeof *key);
  memcpy(high, list->high, (size_t)held * sizeof *high);
  for (int64_t i = 0; i < held; i++) {
    int64_t above = 0;
    for (int64_t j = 0; j < held; j++) above += key[j] > key[i];
    list->best.key[above] = key[i];
    list->high[above] = high[i];
  }
}

static uint32_t low(const simd_short *list, int64_t i) { return (uint32_t)(list->best.key[i] >> 32); }

/* The K-th lower end is a bound of the K-th score: K scores are at least that. */
int simd_short_lost(const simd_short *list, int64_t topk) {
  return list->best.held == list->best.topk && list->dropped >= low(list, topk - 1);
}

/* Entry i meets one before it if it reaches the least of their lower ends, its neighbour's, and one after it if the
 * highest of their upper ends reaches it.  A meeting of entries beyond the K best decides nothing. */
int simd_short_open(const simd_short *list, int64_t topk, uint8_t *open) {
  const int64_t kth = topk - 1;
  uint32_t highest = 0;
  int any = 0;
  for (int64_t i = list->best.held - 1; i >= 0; i--) {
    const uint32_t from = low(list, i), to = list->high[i];
    const int before = i > 0 && to >= low(list, i <= kth ? i - 1 : kth), after = i <= kth && highest >= from;
    open[i] = (uint8_t)((before | after) & (to != from)); /* an exact score is not open */
    any |= open[i];
    highest = to > highest ? to : highest;
  }
  return any;
}
