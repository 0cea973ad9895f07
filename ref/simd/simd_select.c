/* SPDX-License-Identifier: Apache-2.0
 *
 * The running selection of simd_select.h, by insertion into a descending list.
 */
#include "simd_select.h"

#include <string.h>

int64_t simd_best_room(int64_t topk) { return topk; }

void simd_best_clear(simd_best *best, uint64_t *room, int64_t topk) {
  best->topk = topk;
  best->floor = 0;
  best->key = room;
  memset(room, 0, (size_t)topk * sizeof *room);
}

void simd_best_offer(simd_best *best, uint64_t key) {
  int64_t at = best->topk - 1;
  if (key <= best->floor) return;
  for (; at > 0 && best->key[at - 1] < key; at--) best->key[at] = best->key[at - 1];
  best->key[at] = key;
  best->floor = best->key[best->topk - 1];
}

void simd_best_finish(simd_best *best) { (void)best; }
