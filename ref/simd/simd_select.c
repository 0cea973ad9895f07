/* SPDX-License-Identifier: Apache-2.0
 *
 * The select operation of the cpu backend (S4), and the accumulator that it shares with the fused path.  Threads take
 * rows; where there are fewer rows than threads and the rows are long, ranges of columns, merged by key (S4.5).
 */
#include "simd_select.h"

#include <stdlib.h>
#include <string.h>

#include "ref_key.h"
#include "ref_rows.h"
#include "simd_run.h"

/* ---- the accumulator: K keys in no order, of which the least is known ----
 * A key that enters takes the place of the least, without a branch that depends on where it ranks. */

void simd_best_clear(simd_best *best, uint64_t *room, int64_t topk) {
  *best = (simd_best){.topk = topk, .key = room};
  memset(room, 0, (size_t)topk * sizeof *room);
}

static void find_least(simd_best *best) {
  uint64_t least[2] = {UINT64_MAX, UINT64_MAX};
  int64_t at[2] = {0, 0}; /* two chains, for the processor's sake */
  for (int64_t i = 0; i + 2 <= best->topk; i += 2)
    for (int j = 0; j < 2; j++) {
      const int less = best->key[i + j] < least[j];
      least[j] = less ? best->key[i + j] : least[j];
      at[j] = less ? i + j : at[j];
    }
  if (best->topk % 2 && best->key[best->topk - 1] < least[0]) {
    least[0] = best->key[best->topk - 1];
    at[0] = best->topk - 1;
  }
  best->least = least[1] < least[0] ? at[1] : at[0];
  best->floor = best->key[best->least];
}

void simd_best_offer(simd_best *best, uint64_t key) {
  if (key <= best->floor) return;
  if (best->held < best->topk) {
    best->key[best->held++] = key;
    if (best->held == best->topk) find_least(best);
    return;
  }
  best->key[best->least] = key;
  find_least(best);
}

void simd_best_finish(simd_best *best) {
  for (int64_t i = 1; i < best->held; i++) {
    const uint64_t key = best->key[i];
    int64_t at = i;
    for (; at > 0 && best->key[at - 1] < key; at--) best->key[at] = best->key[at - 1];
    best->key[at] = key;
  }
}

/* ---- the operation ---- */

enum { LONG_RANGE = 8192 }; /* columns that are worth a thread of their own */

static simd_array row_of(const m3idx_select_args *args, int64_t head, int64_t at) {
  const int64_t blocks = args->batch ? ref_row_of(args->batch, at).blocks : args->num_blocks[at];
  const int64_t see = blocks - args->first_block, first = head * args->score_stride_head + at * args->score_stride_row;
  const int64_t end = see < 0 ? 0 : see < args->max_block ? see : args->max_block;
  return (simd_array){.score = end ? args->score + first : NULL, /* score may be NULL if it is empty */
                      .end = end,
                      .first_id = args->first_block,
                      .blocks = blocks,
                      .init_blocks = args->init_blocks,
                      .local_blocks = args->local_blocks};
}

static void write_row(const m3idx_select_args *args, int64_t head, int64_t at, const ref_best *best) {
  const int64_t topk = args->topk;
  if (args->topk_idx)
    ref_best_ids(best, &args->contract, args->topk_idx + head * args->topk_stride_head + at * args->topk_stride_row);
  if (args->keys) memcpy(args->keys + (head * args->num_rows + at) * topk, best->key, (size_t)topk * sizeof *best->key);
}

static void select_rows(simd_select_fn *select, const m3idx_select_args *args, int threads) {
  const int64_t lanes = args->num_heads * args->num_rows, share = lanes / ((int64_t)threads * 8) + 1;
  (void)share; /* where there is no OpenMP */
#pragma omp parallel for schedule(dynamic, share) num_threads(threads) if (threads > 1)
  for (int64_t lane = 0; lane < lanes; lane++) {
    const int64_t head = lane / args->num_rows, at = lane - head * args->num_rows;
    const simd_array row = row_of(args, head, at);
    ref_best list;
    simd_best best;
    list.topk = args->topk;
    simd_best_clear(&best, list.key, args->topk);
    select(&row, &args->contract, &best);
    write_row(args, head, at, &list);
  }
}

/* Ranges of each row into keys[lane][part][topk], then their merge. */
static void select_ranges(simd_select_fn *select, const m3idx_select_args *args, int threads, int parts,
                          uint64_t *keys) {
  const int64_t rows = args->num_rows, lanes = args->num_heads * rows, topk = args->topk;
  (void)threads;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int64_t i = 0; i < lanes * parts; i++) {
    simd_array row = row_of(args, i / parts / rows, i / parts % rows);
    const int64_t end = row.end, range = (end + parts - 1) / parts;
    simd_best best;
    row.begin = i % parts * range;
    row.end = row.begin + range < end ? row.begin + range : end;
    simd_best_clear(&best, keys + i * topk, topk);
    select(&row, &args->contract, &best);
  }
  for (int64_t lane = 0; lane < lanes; lane++) {
    ref_best list;
    simd_best best;
    list.topk = topk;
    simd_best_clear(&best, list.key, topk);
    for (int64_t k = 0; k < parts * topk; k++)
      if (keys[lane * parts * topk + k]) simd_best_offer(&best, keys[lane * parts * topk + k]);
    simd_best_finish(&best);
    write_row(args, lane / rows, lane % rows, &list);
  }
}

m3idx_status simd_select(m3idx_context *ctx, const m3idx_select_args *args) {
  const simd_state *state = ctx->state;
  const int64_t lanes = args->num_heads * args->num_rows, ranges = args->max_block / LONG_RANGE;
  const int threads = simd_threads(ctx);
  if (lanes >= threads || ranges < 2) {
    select_rows(state->isa->select, args, lanes < threads ? (int)lanes : threads);
    return M3IDX_OK;
  }
  const int parts = ranges < threads ? (int)ranges : threads;
  uint64_t *keys = malloc((size_t)(lanes * parts * args->topk) * sizeof *keys);
  if (!keys) return m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory for the selections of %d ranges", parts);
  select_ranges(state->isa->select, args, threads, parts, keys);
  free(keys);
  return M3IDX_OK;
}
