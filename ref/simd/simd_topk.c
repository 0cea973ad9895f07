/* SPDX-License-Identifier: Apache-2.0
 *
 * The fused operation of the cpu backend: queries and keys to selected blocks (S3, S4, S5).  A lane keeps its K
 * best keys; a block whose upper bound is below the K-th score is never settled.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref_key.h"
#include "ref_ops.h"
#include "simd_convert.h"
#include "simd_run.h"

typedef struct fused {
  const m3idx_topk_args *args;
  uint64_t *parts; /* [lanes of all units][K], for tiles of several units */
} fused;

/* The score that a key holds after the contract's NaN and zero rules; -inf while the floor is 0. */
static float floor_score(uint64_t floor) {
  const uint32_t ordered = (uint32_t)(floor >> 32);
  if (!floor) return -INFINITY;
  return simd_float(ordered ^ (ordered & 0x80000000u ? 0x80000000u : 0xffffffffu));
}

/* Lanes whose selection this block could change, by its upper bound (docs/CERTIFIED-FILTER.md, "Skipping"). */
static uint32_t undecided(const simd_call *call, const simd_page *page, const simd_found *found, const float *floor) {
  int32_t open[SIMD_LANES], any = 0;
  uint32_t lanes = 0;
  if (page->any_wild) return found->active;
  for (int l = 0; l < SIMD_LANES; l++) open[l] = !((found->most[l] + found->error[l]) * call->scale < floor[l]);
  for (int l = 0; l < SIMD_LANES; l++) any |= open[l];
  for (int l = 0; any && l < SIMD_LANES; l++) lanes |= (uint32_t)open[l] << l;
  return (lanes | found->whole) & found->active;
}

static void offer(simd_best *best, float *floor, uint64_t key) {
  simd_best_offer(best, key);
  *floor = floor_score(best->floor);
}

/* S3.7, in both modes: lanes where the block is forced take its value without a look at the keys. */
static uint32_t force(const simd_call *call, const simd_group *group, const m3idx_contract *contract, int64_t block,
                      simd_best *best, float *floor) {
  uint32_t lanes = 0;
  if (!simd_may_force(call, group, block)) return 0;
  for (int l = 0; l < group->lanes; l++) {
    const int64_t blocks = group->blocks[l];
    if (block >= blocks || (block >= call->init_blocks && block < blocks - call->local_blocks)) continue;
    const uint32_t bits = ref_forced(0, block, blocks, call->init_blocks, call->local_blocks);
    lanes |= UINT32_C(1) << l;
    offer(&best[l], &floor[l], ref_key(bits, block, contract));
  }
  return lanes;
}

static void offer_group(const simd_call *call, const simd_group *group, simd_page *page, const simd_unit *unit,
                        const m3idx_contract *contract, simd_work *work, int64_t block, int64_t id, simd_best *best,
                        float *floor) {
  uint32_t bits[SIMD_LANES];
  simd_found found;
  const uint32_t forced = force(call, group, contract, block, best, floor);
  simd_find(call, group, page, block * call->batch->block_size, work, &found);
  uint32_t lanes = undecided(call, page, &found, floor) & ~forced;
  if (!lanes) return;
  simd_settle(call, group, page, &found, work, lanes, unit->first_row, id, bits);
  for (; lanes; lanes &= lanes - 1) {
    const int l = simd_lowest(lanes);
    offer(&best[l], &floor[l], ref_key(bits[l], block, contract));
  }
}

/* The lane's row of topk_idx, and of the sparse table. */
static void write_lane(const simd_call *call, const m3idx_topk_args *args, const simd_unit *unit, int lane,
                       const uint64_t *key) {
  const int64_t at = unit->first_lane + lane, row = unit->first_row + at / call->heads, head = at % call->heads;
  int32_t *ids = args->topk_idx + head * args->topk_stride_head + row * args->topk_stride_row;
  ref_best best = {.topk = args->topk};
  memcpy(best.key, key, (size_t)args->topk * sizeof *key);
  ref_best_ids(&best, &args->contract, ids);
  if (args->sparse) ref_sparse_row(args->batch, args->sparse, row, head, call->heads, ids, args->topk);
}

static void topk_unit(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, void *user) {
  const fused *fused = user;
  const m3idx_topk_args *args = fused->args;
  const int64_t size = call->batch->block_size, topk = args->topk;
  const int few = simd_takes_few(call, unit->lanes);
  simd_tile_pack(call, unit, scratch);
  for (int lane = 0; lane < scratch->groups * SIMD_LANES; lane++) {
    simd_best_clear(&scratch->best[lane], scratch->best_room + lane * simd_best_room(topk), topk);
    scratch->floor[lane] = floor_score(0);
  }
  for (int64_t block = unit->begin; block < unit->end; block++) {
    const int64_t id = call->block_table[unit->request * call->block_table_stride + block];
    const int64_t see = scratch->group[scratch->groups - 1].max_keys - block * size;
    simd_page page;
    simd_page_load(call, &page, id, (int)(see < size ? see : size), few, scratch->page_copy);
    for (int g = 0; g < scratch->groups; g++)
      if (scratch->group[g].max_keys > block * size)
        offer_group(call, &scratch->group[g], &page, unit, &args->contract, &scratch->work, block, id,
                    &scratch->best[g * SIMD_LANES], &scratch->floor[g * SIMD_LANES]);
  }
  for (int lane = 0; lane < unit->lanes; lane++) {
    simd_best_finish(&scratch->best[lane]);
    if (unit->parts == 1)
      write_lane(call, args, unit, lane, scratch->best[lane].key);
    else
      memcpy(fused->parts + (unit->slot + lane) * topk, scratch->best[lane].key, (size_t)topk * sizeof(uint64_t));
  }
}

/* S4.5: the tile's parts, lane by lane. */
static void merge_tile(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, void *user) {
  const fused *fused = user;
  const int64_t topk = fused->args->topk;
  if (unit->part > 0 || unit->parts == 1) return;
  for (int lane = 0; lane < unit->lanes; lane++) {
    simd_best *best = &scratch->best[0];
    simd_best_clear(best, scratch->best_room, topk);
    for (int part = 0; part < unit->parts; part++) {
      const uint64_t *key = fused->parts + (unit->slot + (int64_t)part * unit->lanes + lane) * topk;
      for (int64_t i = 0; i < topk && key[i]; i++) simd_best_offer(best, key[i]);
    }
    simd_best_finish(best);
    write_lane(call, fused->args, unit, lane, best->key);
  }
}

static int needs_merge(const simd_plan *plan) {
  for (int64_t i = 0; i < plan->count; i++)
    if (plan->unit[i].parts > 1) return 1;
  return 0;
}

static int run(simd_state *state, const simd_call *call, const m3idx_topk_args *args, simd_plan *plan, int threads) {
  fused fused = {.args = args};
  if (simd_plan_make(plan, call, threads, simd_best_room(args->topk))) return -1;
  const int merge = needs_merge(plan);
  if (merge && !(fused.parts = malloc((size_t)(plan->lanes * args->topk) * sizeof(uint64_t)))) return -1;
  int failed = simd_run(state, call, plan, threads, topk_unit, &fused);
  if (!failed && merge) failed = simd_run(state, call, plan, threads, merge_tile, &fused);
  free(fused.parts);
  return failed;
}

m3idx_status simd_topk(m3idx_context *ctx, const m3idx_topk_args *args) {
  simd_state *state = ctx->state;
  const simd_call call = {.isa = state->isa,
                          .form = simd_form_of(state->isa, args->q.dtype, args->index_k.dtype),
                          .narrow = simd_products_narrow(args->q.dtype, args->index_k.dtype),
                          .batch = args->batch,
                          .q = &args->q,
                          .index_k = &args->index_k,
                          .block_table = args->block_table,
                          .block_table_stride = args->block_table_stride,
                          .scale = args->scale,
                          .init_blocks = args->init_blocks,
                          .local_blocks = args->local_blocks,
                          .heads = args->q.shape[1],
                          .dim = args->q.shape[2]};
  const int threads = simd_threads(ctx);
  simd_plan plan = {0};
  const int failed = run(state, &call, args, &plan, threads);
  free(plan.unit);
  return failed ? m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory for the work list or for %d threads", threads) : M3IDX_OK;
}
