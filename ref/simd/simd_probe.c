/* SPDX-License-Identifier: Apache-2.0
 *
 * The filter of the cpu backend without its exact stage, for the benchmark: the same walk over lanes and pages as
 * simd_score.c, each block's largest fast dot.  Built into the benchmark, not into the library.
 */
#include <stdlib.h>
#include <string.h>

#include "simd_run.h"

static void probe_step(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, int g, simd_page *page,
                       int64_t block, void *user) {
  const simd_group *group = &scratch->group[g];
  simd_found found;
  simd_find(call, group, page, block * call->batch->block_size, 1, &scratch->work, NULL, &found);
  memcpy(&scratch->stage[block % SIMD_RANGE][g * SIMD_LANES], found.most, sizeof found.most);
  if (g + 1 == scratch->groups) simd_flush(call, user, unit, scratch, block);
}

static void probe_unit(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, void *user) {
  simd_tile_pack(call, unit, scratch);
  simd_walk(call, unit, scratch, 0, scratch->groups, probe_step, user);
}

m3idx_status m3idx_probe_filter(m3idx_context *ctx, const m3idx_score_args *args) {
  simd_state *state = ctx->state;
  simd_call call = simd_call_of(state->isa, args->batch, &args->q, &args->index_k);
  call.block_table = args->block_table;
  call.block_table_stride = args->block_table_stride;
  const int threads = simd_threads(ctx);
  simd_plan plan;
  m3idx_score_args copy = *args;
  if (simd_plan_make(&plan, &call, threads, 0)) return m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory for the work list");
  const int failed = simd_run(state, &call, &plan, threads, probe_unit, &copy);
  free(plan.unit);
  return failed ? m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory for %d threads", threads) : M3IDX_OK;
}
