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

/* Into column block % SIMD_RANGE of the stage. */
static void score_step(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, int g, simd_page *page,
                       int64_t block, void *user) {
  simd_group *group = &scratch->group[g];
  uint32_t bits[SIMD_LANES];
  simd_found found;
  simd_find(call, group, page, block * call->batch->block_size, 1, &scratch->work, &found);
  simd_settle(call, group, page, &found, &scratch->work, found.active, unit->first_row, simd_page_id(call, unit, block),
              bits);
  /* S3.7: prefill leaves the score pure */
  if (call->batch->mode == M3IDX_DECODE && simd_may_force(call, group, block))
    for (int l = 0; l < group->lanes; l++)
      bits[l] = ref_forced(bits[l], block, group->blocks[l], call->init_blocks, call->local_blocks);
  for (int l = 0; l < group->lanes; l++) scratch->stage[g * SIMD_LANES + l][block % SIMD_RANGE] = bits[l];
  if (g + 1 == scratch->groups) simd_flush(call, user, unit, scratch, block);
}

static void score_unit(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, void *user) {
  simd_tile_pack(call, unit, scratch);
  simd_walk(call, unit, scratch, 0, scratch->groups, score_step, user);
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
