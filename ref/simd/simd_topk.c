/* SPDX-License-Identifier: Apache-2.0
 *
 * The fused operation of the cpu backend: queries and keys to selected blocks (S3, S4, S5).  A lane keeps a shortlist
 * of blocks by the intervals that the filter proves their scores to lie in; only where two of those meet and the
 * selection or its order hangs on it are they settled.
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
  /* Shortlists of all units, for tiles of several: [lanes][simd_short_kept(K)] */
  uint64_t *keys;
  uint32_t *high;
} fused;

/* A step's user. */
typedef struct pass {
  const m3idx_topk_args *args;
  int at_once; /* every block that may matter is settled where it is seen */
} pass;

/* ref_ordered(), here for the sake of speed. */
static inline uint32_t ordered(uint32_t bits) { return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u); }

/* The score that a key holds after the contract's NaN and zero rules; -inf while the floor is 0. */
static float floor_score(uint64_t floor) {
  const uint32_t ordered = (uint32_t)(floor >> 32);
  if (!floor) return -INFINITY;
  return simd_float(ordered ^ (ordered & 0x80000000u ? 0x80000000u : 0xffffffffu));
}

static void offer(const simd_call *call, simd_short *list, float *floor, uint64_t key, uint32_t high) {
  if (simd_short_offer(list, key, high, call->isa->rank)) *floor = floor_score(list->floor);
}

static void offer_exact(const simd_call *call, simd_short *list, float *floor, uint64_t key) {
  offer(call, list, floor, key, (uint32_t)(key >> 32));
}

/* S3.7, in both modes: lanes where the block is forced take its value without a look at the keys. */
static uint32_t force(const simd_call *call, const simd_group *group, const m3idx_contract *contract, int64_t block,
                      simd_short *list, float *floor) {
  uint32_t lanes = 0;
  if (!simd_may_force(call, group, block)) return 0;
  for (int l = 0; l < group->lanes; l++) {
    const int64_t blocks = group->blocks[l];
    if (block >= blocks || (block >= call->init_blocks && block < blocks - call->local_blocks)) continue;
    const uint32_t bits = ref_forced(0, block, blocks, call->init_blocks, call->local_blocks);
    lanes |= UINT32_C(1) << l;
    offer_exact(call, &list[l], &floor[l], ref_key(bits, block, contract));
  }
  return lanes;
}

/* The lanes' intervals.  A number other than -0 is its own pattern in every order (S4.2). */
static void offer_intervals(const simd_call *call, uint32_t lanes, const float *low, const float *high,
                            const m3idx_contract *contract, int64_t block, simd_short *list, float *floor) {
  const uint64_t tie = ref_key(0, block, contract) & UINT32_MAX;
  for (; lanes; lanes &= lanes - 1) {
    const int l = simd_lowest(lanes);
    offer(call, &list[l], &floor[l], (uint64_t)ordered(simd_bits(low[l])) << 32 | tie, ordered(simd_bits(high[l])));
  }
}

static void topk_step(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, int g, simd_page *page,
                      int64_t block, void *user) {
  const pass *pass = user;
  const m3idx_contract *contract = &pass->args->contract;
  simd_group *group = &scratch->group[g];
  simd_short *list = &scratch->list[g * SIMD_LANES];
  float *floor = &scratch->floor[g * SIMD_LANES];
  uint32_t bits[SIMD_LANES];
  float low[SIMD_LANES], high[SIMD_LANES];
  simd_found found;
  const uint32_t forced = force(call, group, contract, block, list, floor);
  simd_find(call, group, page, block * call->batch->block_size, pass->at_once, &scratch->work, NULL, &found);
  /* Lanes whose selection this block could change, by its upper bound (docs/CERTIFIED-FILTER.md, "Skipping"). */
  uint32_t lanes = call->isa->bounds(found.most, found.error, call->scale, floor, low, high) | found.whole;
  if (page->any_wild) lanes = UINT32_MAX;
  lanes &= found.active & ~forced;
  uint32_t exact = pass->at_once || page->any_wild ? lanes : lanes & found.whole;
  if (!lanes) return;
  offer_intervals(call, lanes & ~exact, low, high, contract, block, list, floor);
  if (!exact) return;
  simd_settle(call, group, page, &found, &scratch->work, exact, unit->first_row, simd_page_id(call, unit, block), bits);
  for (; exact; exact &= exact - 1) {
    const int l = simd_lowest(exact);
    offer_exact(call, &list[l], &floor[l], ref_key(bits[l], block, contract));
  }
}

/* The key of one block of one lane, anew.  Takes the place of the packed group 0. */
static uint64_t key_of(const simd_call *call, const m3idx_contract *contract, const simd_unit *unit,
                       simd_scratch *scratch, int64_t lane, int64_t block) {
  simd_group *group = &scratch->group[0];
  const int64_t id = simd_page_id(call, unit, block), first_key = block * call->batch->block_size;
  uint32_t bits[SIMD_LANES];
  simd_found found;
  simd_page page;
  simd_lane_pack(call, unit, scratch, lane);
  const int64_t see = group->max_keys - first_key, size = call->batch->block_size;
  simd_page_load(call, &page, id, (int)(see < size ? see : size), simd_takes_few(call, 1), scratch->page_copy);
  simd_find(call, group, &page, first_key, 1, &scratch->work, NULL, &found);
  simd_settle(call, group, &page, &found, &scratch->work, 1, unit->first_row, id, bits);
  return ref_key(bits[0], block, contract);
}

/* The lane's K best, exact where that matters, from a sorted list; with `every`, each entry exact. */
static void resolve(const simd_call *call, const m3idx_topk_args *args, const simd_unit *unit, simd_scratch *scratch,
                    int64_t lane, simd_short *list, int every) {
  uint8_t open[SIMD_SHORT_LONGEST];
  if (!simd_short_open(list, args->topk, open) && !every) return;
  for (int64_t i = 0; every && i < list->held; i++) open[i] = list->high[i] != list->key[i] >> 32;
  for (int64_t i = 0; i < list->held; i++) {
    if (!open[i]) continue;
    const int64_t block = ref_key_id(list->key[i], &args->contract);
    list->key[i] = key_of(call, &args->contract, unit, scratch, lane, block);
    list->high[i] = (uint32_t)(list->key[i] >> 32);
  }
  simd_short_sort(list, call->isa->rank);
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

static void clear(simd_scratch *scratch, int first, int groups, int64_t topk) {
  const int64_t room = simd_short_room(topk);
  uint32_t *high = (uint32_t *)(void *)(scratch->key_room + SIMD_SHORT_KEYS);
  for (int lane = first * SIMD_LANES; lane < (first + groups) * SIMD_LANES; lane++) {
    simd_short_clear(&scratch->list[lane], scratch->key_room + lane * room, high + lane * room, topk);
    scratch->floor[lane] = floor_score(0);
  }
}

/* A shortlist that was too short, as where many blocks tie: the group once more, every block exact. */
static void again_if_lost(const simd_call *call, const m3idx_topk_args *args, const simd_unit *unit,
                          simd_scratch *scratch, int g) {
  pass exact = {.args = args, .at_once = 1};
  int lost = 0;
  for (int l = 0; l < scratch->group[g].lanes; l++)
    lost |= simd_short_lost(&scratch->list[g * SIMD_LANES + l], args->topk);
  if (!lost) return;
  clear(scratch, g, 1, args->topk);
  simd_walk(call, unit, scratch, g, 1, topk_step, &exact);
  for (int l = 0; l < scratch->group[g].lanes; l++) {
    simd_short_sort(&scratch->list[g * SIMD_LANES + l], call->isa->rank);
    scratch->list[g * SIMD_LANES + l].dropped = 0; /* what is left out of exact scores is not missed */
  }
}

static void topk_unit(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, void *user) {
  const fused *fused = user;
  const m3idx_topk_args *args = fused->args;
  const int64_t kept = simd_short_kept(args->topk);
  pass pass = {.args = args};
  simd_tile_pack(call, unit, scratch);
  clear(scratch, 0, scratch->groups, args->topk);
  simd_walk(call, unit, scratch, 0, scratch->groups, topk_step, &pass);
  for (int lane = 0; lane < unit->lanes; lane++) simd_short_sort(&scratch->list[lane], call->isa->rank);
  for (int g = 0; g < scratch->groups; g++) again_if_lost(call, args, unit, scratch, g);
  for (int lane = 0; lane < unit->lanes; lane++) {
    simd_short *list = &scratch->list[lane];
    if (unit->parts == 1) {
      resolve(call, args, unit, scratch, lane, list, 0);
      write_lane(call, args, unit, lane, list->key);
    } else {
      memcpy(fused->keys + (unit->slot + lane) * kept, list->key, (size_t)kept * sizeof *list->key);
      memcpy(fused->high + (unit->slot + lane) * kept, list->high, (size_t)kept * sizeof *list->high);
    }
  }
}

/* S4.5: the tile's parts, lane by lane; each of its units merges a share.  None of them lost anything; where their
 * union is too long for one list, all of it is made exact. */
static void merge_lane(const simd_call *call, const fused *fused, const simd_unit *unit, simd_scratch *scratch,
                       int lane, simd_short *list, int every) {
  const int64_t topk = fused->args->topk, kept = simd_short_kept(topk);
  clear(scratch, 0, 1, topk);
  for (int part = 0; part < unit->parts; part++) {
    const int64_t at = (unit->slot + (int64_t)(part - unit->part) * unit->lanes + lane) * kept;
    simd_short one = {.keep = kept, .room = kept, .key = fused->keys + at, .high = fused->high + at};
    while (one.held < kept && one.key[one.held]) one.held++;
    if (every) resolve(call, fused->args, unit, scratch, lane, &one, 1);
    for (int64_t i = 0; i < one.held; i++) simd_short_offer(list, one.key[i], one.high[i], call->isa->rank);
  }
  simd_short_sort(list, call->isa->rank);
}

static void merge_tile(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, void *user) {
  const fused *fused = user;
  simd_short *list = &scratch->list[0];
  if (unit->parts == 1) return;
  for (int lane = unit->lanes * unit->part / unit->parts; lane < unit->lanes * (unit->part + 1) / unit->parts; lane++) {
    merge_lane(call, fused, unit, scratch, lane, list, 0);
    if (simd_short_lost(list, fused->args->topk)) merge_lane(call, fused, unit, scratch, lane, list, 1);
    resolve(call, fused->args, unit, scratch, lane, list, 0);
    write_lane(call, fused->args, unit, lane, list->key);
  }
}

static int needs_merge(const simd_plan *plan) {
  for (int64_t i = 0; i < plan->count; i++)
    if (plan->unit[i].parts > 1) return 1;
  return 0;
}

static int run(simd_state *state, const simd_call *call, const m3idx_topk_args *args, simd_plan *plan, int threads) {
  const int64_t kept = simd_short_kept(args->topk);
  fused fused = {.args = args};
  if (simd_plan_make(plan, call, threads, simd_short_room(args->topk))) return -1;
  const int merge = needs_merge(plan);
  if (merge) {
    fused.keys = malloc((size_t)(plan->lanes * kept) * (sizeof *fused.keys + sizeof *fused.high));
    if (!fused.keys) return -1;
    fused.high = (uint32_t *)(void *)(fused.keys + plan->lanes * kept);
  }
  int failed = simd_run(state, call, plan, threads, topk_unit, &fused);
  if (!failed && merge) failed = simd_run(state, call, plan, threads, merge_tile, &fused);
  free(fused.keys);
  return failed;
}

m3idx_status simd_topk(m3idx_context *ctx, const m3idx_topk_args *args) {
  simd_state *state = ctx->state;
  simd_call call = simd_call_of(state->isa, args->batch, &args->q, &args->index_k);
  call.block_table = args->block_table;
  call.block_table_stride = args->block_table_stride;
  call.scale = args->scale;
  call.init_blocks = args->init_blocks;
  call.local_blocks = args->local_blocks;
  const int threads = simd_threads(ctx);
  simd_plan plan = {0};
  const int failed = run(state, &call, args, &plan, threads);
  free(plan.unit);
  return failed ? m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory for the work list or for %d threads", threads) : M3IDX_OK;
}
