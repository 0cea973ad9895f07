/* SPDX-License-Identifier: Apache-2.0
 *
 * The K best keys (S4.3) of a stream, with a floor that rises as they come: what the fused path asks of selection.
 */
#ifndef M3IDX_SIMD_SELECT_H
#define M3IDX_SIMD_SELECT_H

#include <stdint.h>

typedef struct simd_best {
  int64_t topk;
  uint64_t floor; /* a key at or below it changes nothing: 0 until K keys are held, then the least of them */
  uint64_t *key;  /* room of the caller */
} simd_best;

/* Keys that simd_best needs room for. */
int64_t simd_best_room(int64_t topk);
void simd_best_clear(simd_best *best, uint64_t *room, int64_t topk);
/* key != 0, and no key twice.  Any order of offers gives the same K. */
void simd_best_offer(simd_best *best, uint64_t key);
/* The K best, descending, 0 = empty slot, in best->key[0 .. topk - 1]. */
void simd_best_finish(simd_best *best);

#endif
