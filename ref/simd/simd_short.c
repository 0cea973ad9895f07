/* SPDX-License-Identifier: Apache-2.0
 *
 * The shortlist of the fused path (S4): intervals by their lower ends.  Knows nothing of how they were found.
 */
#include "simd_short.h"

#include <string.h>

int64_t simd_short_kept(int64_t topk) { return topk + SIMD_SPARE; }

/* A sort costs a square: half as many again are worth one, but not fewer than twelve. */
int64_t simd_short_room(int64_t topk) {
  const int64_t kept = simd_short_kept(topk);
  return kept + (kept < 24 ? 12 : kept / 2);
}

void simd_short_clear(simd_short *list, uint64_t *keys, uint32_t *high, int64_t topk) {
  *list = (simd_short){.keep = simd_short_kept(topk), .room = simd_short_room(topk), .key = keys, .high = high};
}

/* By counting how many are above each: no branch depends on a key.  No key is twice here. */
void simd_short_sort(simd_short *list, simd_rank_fn *rank) {
  const int64_t held = list->held, keep = list->keep;
  uint64_t key[SIMD_SHORT_LONGEST], above[SIMD_SHORT_LONGEST + 8];
  uint32_t high[SIMD_SHORT_LONGEST];
  rank(list->key, held, above);
  memcpy(key, list->key, (size_t)held * sizeof *key);
  memcpy(high, list->high, (size_t)held * sizeof *high);
  for (int64_t i = 0; i < held; i++) {
    list->key[above[i]] = key[i];
    list->high[above[i]] = high[i];
  }
  for (int64_t i = held; i < keep; i++) list->key[i] = 0;
  for (int64_t i = keep; i < held; i++) list->dropped = list->high[i] > list->dropped ? list->high[i] : list->dropped;
  if (held >= keep) list->floor = list->key[keep - 1];
  list->held = held < keep ? held : keep;
}

static uint32_t low(const simd_short *list, int64_t i) { return (uint32_t)(list->key[i] >> 32); }

/* The K-th lower end is a bound of the K-th score: K scores are at least that. */
int simd_short_lost(const simd_short *list, int64_t topk) {
  return list->held == list->keep && list->dropped >= low(list, topk - 1);
}

/* Entry i meets one before it if it reaches the least of their lower ends, its neighbour's, and one after it if the
 * highest of their upper ends reaches it.  A meeting of entries beyond the K best decides nothing. */
int simd_short_open(const simd_short *list, int64_t topk, uint8_t *open) {
  const int64_t kth = topk - 1;
  uint32_t highest = 0;
  int any = 0;
  for (int64_t i = list->held - 1; i >= 0; i--) {
    const uint32_t from = low(list, i), to = list->high[i];
    const int before = i > 0 && to >= low(list, i <= kth ? i - 1 : kth), after = i <= kth && highest >= from;
    open[i] = (uint8_t)((before | after) & (to != from)); /* an exact score is not open */
    any |= open[i];
    highest = to > highest ? to : highest;
  }
  return any;
}
