/* SPDX-License-Identifier: Apache-2.0
 *
 * The score operation of the cpu backend (S3): every block of every lane settled.
 */
#include <stdlib.h>
#include <string.h>

#include "ref_key.h"
#include "simd_run.h"

/* S3.6: -inf from N on; the unit that has the tile's last pages does it. */
static void fill(const simd_call *call, const m3idx_score_args *args, const simd_unit *unit,
                 const simd_scratch *scratch) {
  const uint32_t minus_inf = SIMD_MINUS_INF_BITS;
  for (int lane = 0; lane < unit->lanes; lane++) {
    float *row = simd_score_row(call, args, unit, lane);
    for (int64_t b = scratch->group[lane / SIMD_LANES].blocks[lane % SIMD_LANES]; b < args->batch->max_block; b++)
      memcpy(row + b, &minus_inf, sizeof minus_inf);
  }
}

/* The second half of a step: into row block % SIMD_RANGE of the stage. */
static void finish(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, void *user) {
  simd_half *half = &scratch->half;
  simd_group *group = &scratch->group[half->g];
  uint32_t *bits = &scratch->stage[half->block % SIMD_RANGE][half->g * SIMD_LANES];
  if (!half->any) return;
  half->any = 0;
  simd_settle_end(call, group, &half->page, &half->found, &scratch->work, &half->exact, unit->first_row,
                  simd_page_id(call, unit, half->block), bits);
  /* S3.7: prefill leaves the score pure */
  if (call->batch->mode == M3IDX_DECODE && simd_may_force(call, group, half->block))
    for (int l = 0; l < group->lanes; l++)
      bits[l] = ref_forced(bits[l], half->block, group->blocks[l], call->init_blocks, call->local_blocks);
  if (half->g + 1 == scratch->groups) simd_flush(call, user, unit, scratch, half->block);
}

/* The filter, with what the step before left to do, and the first half of the exact stage.  A page that lies in the
 * scratch memory does not outlive its last step. */
static void score_step(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, int g, simd_page *page,
                       int64_t block, void *user) {
  simd_half *half = &scratch->half;
  simd_found found;
  simd_find(call, &scratch->group[g], page, block * call->batch->block_size, 1, &scratch->work,
            half->any ? &half->exact.dots : NULL, &found);
  finish(call, unit, scratch, user);
  half->any = 1;
  half->g = g;
  half->block = block;
  half->page = *page;
  half->found = found;
  const int may_wait = simd_settle_begin(call, &scratch->group[g], &half->page, &half->found, &scratch->work,
                                         found.active, &half->exact);
  if (!may_wait || (g + 1 == scratch->groups && page->keys == scratch->page_copy)) finish(call, unit, scratch, user);
}

static void score_unit(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, void *user) {
  simd_tile_pack(call, unit, scratch);
  scratch->half.any = 0;
  simd_walk(call, unit, scratch, 0, scratch->groups, score_step, user);
  finish(call, unit, scratch, user);
  if (unit->part + 1 == unit->parts) fill(call, user, unit, scratch);
}

m3idx_status simd_score(m3idx_context *ctx, const m3idx_score_args *args) {
  simd_state *state = ctx->state;
  simd_call call = simd_call_of(state->isa, args->batch, &args->q, &args->index_k);
  call.block_table = args->block_table;
  call.block_table_stride = args->block_table_stride;
  call.scale = args->scale;
  call.init_blocks = args->init_blocks;
  call.local_blocks = args->local_blocks;
  const int threads = simd_threads(ctx);
  simd_plan plan;
  m3idx_score_args copy = *args;
  if (simd_plan_make(&plan, &call, threads, 0)) return m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory for the work list");
  const int failed = simd_run(state, &call, &plan, threads, score_unit, &copy);
  free(plan.unit);
  return failed ? m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory for %d threads", threads) : M3IDX_OK;
}
