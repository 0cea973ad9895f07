/* SPDX-License-Identifier: Apache-2.0
 *
 * The total order of a selection as one unsigned 64-bit key (S4.3), and the K best of a stream of keys.
 */
#ifndef M3IDX_REF_KEY_H
#define M3IDX_REF_KEY_H

#include <stdint.h>

#include "m3idx.h"

#define REF_MAX_TOPK 128

/* The pattern of a float, read without an arithmetic register. */
uint32_t ref_float_bits(float value);
/* Binary32 patterns in the order of their values, as unsigned integers. */
uint32_t ref_ordered(uint32_t bits);
/* The value that a forced block takes (S3.7): local over init over `bits`.  block < blocks. */
uint32_t ref_forced(uint32_t bits, int64_t block, int64_t blocks, int64_t init_blocks, int64_t local_blocks);
/* The key of a candidate; never 0.  0 <= id < 2^31. */
uint64_t ref_key(uint32_t score_bits, int64_t id, const m3idx_contract *contract);
/* The id in a key that is not 0. */
int32_t ref_key_id(uint64_t key, const m3idx_contract *contract);

/* The K largest keys offered so far, descending; 0 = empty slot. */
typedef struct ref_best {
  int64_t topk;
  uint64_t key[REF_MAX_TOPK];
} ref_best;

void ref_best_clear(ref_best *best, int64_t topk);
void ref_best_offer(ref_best *best, uint64_t key);
/* The ids in the contract's order, then -1 (S4.1, S4.2). */
void ref_best_ids(const ref_best *best, const m3idx_contract *contract, int32_t *ids);

#endif
