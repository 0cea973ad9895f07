/* SPDX-License-Identifier: Apache-2.0
 *
 * The filter of the cpu backend without its exact stage, for the benchmark: the same walk over lanes and pages as
 * simd_score.c, each block's largest fast dot.  Built into the benchmark, not into the library.
 */
#include <stdlib.h>
#include <string.h>

#include "simd_run.h"

static void flush(const simd_call *call, const m3idx_score_args *args, const simd_unit *unit,
                  const simd_scratch *scratch, int64_t first, int64_t count) {
  for (int i = 0; i < unit->lanes; i++) {
    const int64_t lane = unit->first_lane + i, row = unit->first_row + lane / call->heads, head = lane % call->heads;
    memcpy(args->score + head * args->score_stride_head + row * args->score_stride_row + first, scratch->stage[i],
           (size_t)count * sizeof(float));
  }
}

static void probe_unit(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, void *user) {
  const m3idx_score_args *args = user;
  const int64_t size = call->batch->block_size;
  const int few = simd_takes_few(call, unit->lanes);
  simd_tile_pack(call, unit, scratch);
  for (int64_t block = unit->begin; block < unit->end; block++) {
    const int64_t id = call->block_table[unit->request * call->block_table_stride + block];
    const int64_t see = scratch->group[scratch->groups - 1].max_keys - block * size;
    simd_page page;
    simd_page_load(call, &page, id, (int)(see < size ? see : size), few, scratch->page_copy);
    for (int g = 0; g < scratch->groups; g++) {
      const simd_group *group = &scratch->group[g];
      simd_found found;
      if (group->max_keys <= block * size) continue;
      simd_find(call, group, &page, block * size, &scratch->work, &found);
      for (int l = 0; l < group->lanes; l++)
        memcpy(&scratch->stage[g * SIMD_LANES + l][block % SIMD_RANGE], &found.most[l], sizeof(float));
    }
    if ((block + 1) % SIMD_RANGE == 0 || block + 1 == unit->end)
      flush(call, args, unit, scratch, block / SIMD_RANGE * SIMD_RANGE, block % SIMD_RANGE + 1);
  }
}

m3idx_status m3idx_probe_filter(m3idx_context *ctx, const m3idx_score_args *args) {
  simd_state *state = ctx->state;
  const simd_call call = {.isa = state->isa,
                          .form = simd_form_of(state->isa, args->q.dtype, args->index_k.dtype),
                          .narrow = simd_products_narrow(args->q.dtype, args->index_k.dtype),
                          .batch = args->batch,
                          .q = &args->q,
                          .index_k = &args->index_k,
                          .block_table = args->block_table,
                          .block_table_stride = args->block_table_stride,
                          .scale = 1,
                          .heads = args->q.shape[1],
                          .dim = args->q.shape[2]};
  const int threads = simd_threads(ctx);
  simd_plan plan;
  m3idx_score_args copy = *args;
  if (simd_plan_make(&plan, &call, threads, 0)) return m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory for the work list");
  const int failed = simd_run(state, &call, &plan, threads, probe_unit, &copy);
  free(plan.unit);
  return failed ? m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory for %d threads", threads) : M3IDX_OK;
}
