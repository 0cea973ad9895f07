/* SPDX-License-Identifier: Apache-2.0
 *
 * A shortlist: the blocks of a lane that may be among its K best, each by an interval that its score lies in, so that
 * most are chosen and ordered without their exact scores (docs/CERTIFIED-FILTER.md, "Skipping").
 */
#ifndef M3IDX_SIMD_SHORT_H
#define M3IDX_SIMD_SHORT_H

#include "ref_key.h"
#include "simd_select.h"

enum {
  SIMD_SPARE = 4, /* blocks beyond K that are kept because they could still pass the K-th */
  SIMD_SHORT_LONGEST = (REF_MAX_TOPK + SIMD_SPARE) * 3 / 2
};

typedef struct simd_short {
  int64_t keep; /* K + SPARE: as many blocks, those with the best lower ends, outlive a sort */
  int64_t held, room;
  uint64_t floor;   /* the key of the last of `keep` at the latest sort; 0 = fewer were seen */
  uint64_t *key;    /* of the lower ends (S4.3) */
  uint32_t *high;   /* upper ends, as ordered scores (S4.3); that of an exact score is its lower end */
  uint32_t dropped; /* the largest upper end that was left out */
} simd_short;

/* Keys, and upper ends, that a shortlist needs room for: it is sorted when that is full. */
int64_t simd_short_room(int64_t topk);
/* Of those, as many are left at the end. */
int64_t simd_short_kept(int64_t topk);
void simd_short_clear(simd_short *list, uint64_t *keys, uint32_t *high, int64_t topk);
/* By falling keys, and what is beyond `keep` left out; the keys that it lacks become 0. */
void simd_short_sort(simd_short *list, simd_rank_fn *rank);
/* A block between key != 0, of its lower end, and high.  Whether the floor may have changed. */
static inline int simd_short_offer(simd_short *list, uint64_t key, uint32_t high, simd_rank_fn *rank) {
  if (key <= list->floor) {
    list->dropped = high > list->dropped ? high : list->dropped;
    return 0;
  }
  list->key[list->held] = key;
  list->high[list->held++] = high;
  if (list->held < list->room) return 0;
  simd_short_sort(list, rank);
  return 1;
}
/* After the sort: whether a block that was left out may belong to the K best.  Not if all offers were exact. */
int simd_short_lost(const simd_short *list, int64_t topk);
/* After the sort: open[i] = whether the K best and their order depend on where in its interval the score of entry i
 * lies.  Whether any does. */
int simd_short_open(const simd_short *list, int64_t topk, uint8_t *open);

#endif
