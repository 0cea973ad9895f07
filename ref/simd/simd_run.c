/* SPDX-License-Identifier: Apache-2.0
 *
 * Units and threads.  Tiles are cut into page ranges only as far as the threads need it, so a lone long request
 * uses every core and a large batch pays for no merging; units are dealt out as threads become free.
 */
#include "simd_run.h"

#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { UNITS_PER_THREAD = 4, NARROW = 128 };

int simd_threads(const m3idx_context *ctx) {
#ifdef _OPENMP
  if (omp_in_parallel()) return 1;
  return ctx->num_threads > 0 ? ctx->num_threads : omp_get_max_threads();
#else
  (void)ctx;
  return 1;
#endif
}

static int tile_lanes(const simd_call *call, int64_t room) {
  int64_t lanes = call->dim > SIMD_MAX_DIM / 2 ? SIMD_TILE_LANES / 2 : SIMD_TILE_LANES;
  while (lanes * room > SIMD_SHORT_KEYS) lanes /= 2;
  return (int)lanes;
}

/* Blocks that the last lane of a tile sees, the most of its lanes (S2.3). */
static int64_t blocks_of(const m3idx_batch *batch, int64_t request, int64_t row) {
  const int64_t seq_len = batch->seq_lens[request];
  const int64_t first = batch->mode == M3IDX_PREFILL ? batch->prefix_lens[request] : seq_len - batch->decode_query_len;
  int64_t keys = first + row + 1;
  keys = keys < 0 ? 0 : keys > seq_len ? seq_len : keys;
  return (keys + batch->block_size - 1) / batch->block_size;
}

/* Of a tile, in steps of half a group. */
static int64_t cost(int lanes, int64_t pages) { return ((int64_t)lanes + 15) / 16 * pages + 1; }

typedef struct cutting {
  simd_plan *plan;
  int64_t total, largest; /* cost of everything, and of a unit at most; 0 = do not cut */
} cutting;

/* Calls step() for every tile. */
typedef void tile_fn(cutting *cut, const simd_unit *tile);

static void each_tile(const simd_call *call, const simd_plan *plan, tile_fn *step, cutting *cut) {
  const m3idx_batch *batch = call->batch;
  const int most = plan->tile;
  for (int64_t r = 0; r < batch->num_requests; r++) {
    const int prefill = batch->mode == M3IDX_PREFILL;
    const int64_t first = prefill ? batch->cu_seqlens[r] : r * batch->decode_query_len;
    const int64_t rows = prefill ? batch->cu_seqlens[r + 1] - first : batch->decode_query_len;
    for (int64_t lane = 0; lane < rows * call->heads; lane += most) {
      const int64_t left = rows * call->heads - lane;
      simd_unit tile = {.request = r, .first_row = first, .first_lane = lane, .lanes = left < most ? (int)left : most};
      tile.pages = blocks_of(batch, r, (lane + tile.lanes - 1) / call->heads);
      step(cut, &tile);
    }
  }
}

static int64_t range_of(const cutting *cut, const simd_unit *tile) {
  const int64_t all = cost(tile->lanes, tile->pages);
  if (!cut->largest || all <= cut->largest) return tile->pages ? tile->pages : 1;
  const int64_t parts = (all + cut->largest - 1) / cut->largest, pages = (tile->pages + parts - 1) / parts;
  return (pages + SIMD_RANGE - 1) / SIMD_RANGE * SIMD_RANGE;
}

static void add_cost(cutting *cut, const simd_unit *tile) { cut->total += cost(tile->lanes, tile->pages); }

static void count_units(cutting *cut, const simd_unit *tile) {
  const int64_t range = range_of(cut, tile);
  cut->plan->count += tile->pages ? (tile->pages + range - 1) / range : 1;
}

static void add_units(cutting *cut, const simd_unit *tile) {
  const int64_t range = range_of(cut, tile), parts = tile->pages ? (tile->pages + range - 1) / range : 1;
  for (int64_t part = 0; part < parts; part++) {
    simd_unit *unit = &cut->plan->unit[cut->plan->count++];
    *unit = *tile;
    unit->part = (int)part;
    unit->parts = (int)parts;
    unit->begin = part * range;
    unit->end = part + 1 < parts ? unit->begin + range : tile->pages;
    unit->slot = cut->plan->lanes;
    cut->plan->lanes += tile->lanes;
  }
}

static int64_t units_of(cutting *cut, const simd_call *call) {
  cut->plan->count = 0;
  each_tile(call, cut->plan, count_units, cut);
  return cut->plan->count;
}

/* Enough units to keep the threads busy to the end.  Each packs its groups once and loads its pages once for all of
 * them, and its selection begins anew, so that ranges are rather long and tiles rather narrow: sixteen pages or more a
 * group. Where even narrow tiles get short ranges, a selection (`room`) gets fewer units; where there is not enough
 * work for those, tiles become narrower still.  Scores begin nothing anew: three pages a group pay for its packing. */
static void cut_up(cutting *cut, const simd_call *call, int threads, int64_t room) {
  enum { SHORT = 64 };
  const int pages_per_group = room ? 16 : 3;
  simd_plan *plan = cut->plan;
  int64_t enough = (int64_t)threads * UNITS_PER_THREAD;
  each_tile(call, plan, add_cost, cut);
  if (room && cut->total / enough / cost(NARROW, 1) < SHORT) enough /= 2;
  cut->largest = cut->total / enough + 1;
  while (plan->tile > NARROW && cut->largest / cost(plan->tile, 1) < pages_per_group * plan->tile / SIMD_LANES)
    plan->tile /= 2;
  while (plan->tile > SIMD_LANES && units_of(cut, call) < enough / 2) plan->tile /= 2;
}

int simd_plan_make(simd_plan *plan, const simd_call *call, int threads, int64_t room) {
  cutting cut = {.plan = plan};
  memset(plan, 0, sizeof *plan);
  plan->tile = tile_lanes(call, room);
  if (threads > 1) cut_up(&cut, call, threads, room);
  plan->unit = malloc((size_t)(units_of(&cut, call) + 1) * sizeof *plan->unit);
  if (!plan->unit) return -1;
  plan->count = 0;
  each_tile(call, plan, add_units, &cut);
  return 0;
}

/* What a thread has beside the packed page. */
_Static_assert(sizeof(simd_scratch) + sizeof(uint64_t) * SIMD_SHORT_KEYS + sizeof(float) * SIMD_TOKENS * SIMD_LANES +
                       2 * sizeof(float) * SIMD_TILE_LANES * SIMD_MAX_DIM / 2 <=
                   1 << 20,
               "more than a thread may use");

/* One block a thread, touched first by the thread that uses it. */
static simd_scratch *scratch_make(void) {
  const size_t lane_elements = (size_t)SIMD_LANES * SIMD_MAX_DIM / 2; /* of 128 dims */
  const size_t head = (sizeof(simd_scratch) + 63) / 64 * 64;
  const size_t queries = SIMD_TILE_GROUPS * lane_elements * 2 * sizeof(float);
  const size_t score = sizeof(float) * SIMD_TOKENS * SIMD_LANES, page = sizeof(float) * SIMD_TOKENS * SIMD_MAX_DIM;
  const size_t best = (sizeof(uint64_t) + sizeof(uint32_t)) * SIMD_SHORT_KEYS;
  unsigned char *at = aligned_alloc(64, head + queries + score + page + best);
  simd_scratch *scratch = (void *)at;
  if (!at) return NULL;
  scratch->work.score = (void *)(at + head + queries);
  memset(scratch->work.score, 0, score); /* lanes that a group lacks are compared too, and never chosen */
  scratch->page_copy = at + head + queries + score;
  scratch->key_room = (void *)(at + head + queries + score + page);
  scratch->group[0].q = at + head;
  return scratch;
}

void simd_scratch_free(simd_state *state) {
  for (int i = 0; i < state->threads; i++) free(state->scratch[i]);
  free(state->scratch);
  state->scratch = NULL;
  state->threads = 0;
}

/* For all threads before one of them begins, so that a call without memory has written nothing (S7.2). */
static int scratch_reserve(simd_state *state, int threads) {
  if (threads <= state->threads) return 0;
  simd_scratch **more = realloc(state->scratch, (size_t)threads * sizeof(simd_scratch *));
  if (!more) return -1;
  state->scratch = more;
  for (; state->threads < threads; state->threads++)
    if (!(state->scratch[state->threads] = scratch_make())) return -1;
  return 0;
}

/* The floating-point environment is the thread's; the caller may have changed it, the bounds want the default. */
static void run_units(const simd_call *call, const simd_plan *plan, simd_scratch *scratch, simd_unit_fn *run,
                      void *user) {
  fenv_t env;
  fegetenv(&env);
  fesetenv(FE_DFL_ENV);
  if (call->isa->enter) call->isa->enter();
#pragma omp for schedule(dynamic)
  for (int64_t i = 0; i < plan->count; i++) run(call, &plan->unit[i], scratch, user);
  if (call->isa->leave) call->isa->leave();
  fesetenv(&env);
}

static int thread_number(void) {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

int simd_run(simd_state *state, const simd_call *call, const simd_plan *plan, int threads, simd_unit_fn *run,
             void *user) {
  if (threads > plan->count) threads = plan->count > 0 ? (int)plan->count : 1;
  if (scratch_reserve(state, threads)) return -1;
#pragma omp parallel num_threads(threads)
  run_units(call, plan, state->scratch[thread_number()], run, user);
  return 0;
}
