/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection on the CPU path (S4): the K best keys of a stream, which the fused path and every long row of the select
 * operation keep alike, and the scan of a row that decides which keys come so far.
 */
#ifndef M3IDX_SIMD_SELECT_H
#define M3IDX_SIMD_SELECT_H

#include <stddef.h>
#include <stdint.h>

#include "m3idx.h"

/* ---- the K best keys (S4.3), with a floor that rises as they come ---- */

typedef struct simd_best {
  int64_t topk;
  uint64_t floor;      /* a key at or below it changes nothing: 0 until K keys are held, then the least of them */
  uint64_t *key;       /* room of the caller; in no order before simd_best_finish() */
  int64_t held, least; /* keys, and once they are K the place of the floor */
} simd_best;

/* room: topk keys. */
void simd_best_clear(simd_best *best, uint64_t *room, int64_t topk);
/* key != 0, and no key twice.  Any order of offers gives the same K. */
void simd_best_offer(simd_best *best, uint64_t key);
/* The K best, descending, 0 = empty slot, in best->key[0 .. topk - 1]. */
void simd_best_finish(simd_best *best);

/* ---- one row ---- */

/* Columns begin .. end - 1 of a row of scores, with ids first_id + column, forced as blocks of N. */
typedef struct simd_array {
  const float *score;
  int64_t begin, end, first_id, blocks;
  int64_t init_blocks, local_blocks;
} simd_array;

/* best, cleared, becomes the K best of the columns, finished.  Part of an instruction set (simd_select_row.inc). */
typedef void simd_select_fn(const simd_array *row, const m3idx_contract *contract, simd_best *best);
simd_select_fn simd_select_plain;
simd_select_fn simd_select_avx2, simd_select_avx512; /* x86-64 builds */

/* above[i] = how many of key[0 .. count - 1] are greater than key[i]; also writes up to the next multiple of 8.  Part
 * of an instruction set. */
typedef void simd_rank_fn(const uint64_t *key, int64_t count, uint64_t *above);
simd_rank_fn simd_rank_plain;
simd_rank_fn simd_rank_avx2, simd_rank_avx512; /* x86-64 builds */

m3idx_status simd_select(m3idx_context *ctx, const m3idx_select_args *args);

#endif
