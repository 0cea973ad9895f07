/* SPDX-License-Identifier: Apache-2.0
 *
 * The score operation of the cpu backend (S3): every block of every lane settled.
 */
#include <stdlib.h>
#include <string.h>

#include "ref_key.h"
#include "simd_run.h"

static float *row_of(const simd_call *call, const m3idx_score_args *args, const simd_unit *unit, int64_t lane) {
  const int64_t at = unit->first_lane + lane, row = unit->first_row + at / call->heads, head = at % call->heads;
  return args->score + head * args->score_stride_head + row * args->score_stride_row;
}

/* Columns first .. first + count - 1 of every lane that sees them. */
static void flush(const simd_call *call, const m3idx_score_args *args, const simd_unit *unit,
                  const simd_scratch *scratch, int64_t first, int64_t count) {
  for (int lane = 0; lane < unit->lanes; lane++) {
    int64_t n = scratch->group[lane / SIMD_LANES].blocks[lane % SIMD_LANES] - first;
    if (n > count) n = count;
    if (n > 0) memcpy(row_of(call, args, unit, lane) + first, scratch->stage[lane], (size_t)n * sizeof(float));
  }
}

/* S3.6: -inf from N on; the unit that has the tile's last pages does it. */
static void fill(const simd_call *call, const m3idx_score_args *args, const simd_unit *unit,
                 const simd_scratch *scratch) {
  const uint32_t minus_inf = SIMD_MINUS_INF_BITS;
  for (int lane = 0; lane < unit->lanes; lane++) {
    float *row = row_of(call, args, unit, lane);
    for (int64_t b = scratch->group[lane / SIMD_LANES].blocks[lane % SIMD_LANES]; b < args->batch->max_block; b++)
      memcpy(row + b, &minus_inf, sizeof minus_inf);
  }
}

/* One page of one group, into column `column` of the stage. */
static void score_group(const simd_call *call, const simd_group *group, simd_page *page, const simd_unit *unit,
                        simd_work *work, int64_t block, int64_t id, uint32_t (*stage)[SIMD_RANGE]) {
  uint32_t bits[SIMD_LANES];
  simd_found found;
  simd_find(call, group, page, block * call->batch->block_size, work, &found);
  simd_settle(call, group, page, &found, work, found.active, unit->first_row, id, bits);
  /* S3.7: prefill leaves the score pure */
  if (call->batch->mode == M3IDX_DECODE && simd_may_force(call, group, block))
    for (int l = 0; l < group->lanes; l++)
      bits[l] = ref_forced(bits[l], block, group->blocks[l], call->init_blocks, call->local_blocks);
  for (int l = 0; l < group->lanes; l++) stage[l][block % SIMD_RANGE] = bits[l]; /* flush() leaves out blocks >= N */
}

static void score_unit(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, void *user) {
  const m3idx_score_args *args = user;
  const int64_t size = call->batch->block_size;
  const int few = simd_takes_few(call, unit->lanes);
  simd_tile_pack(call, unit, scratch);
  for (int64_t block = unit->begin; block < unit->end; block++) {
    const int64_t id = call->block_table[unit->request * call->block_table_stride + block];
    const int64_t see = scratch->group[scratch->groups - 1].max_keys - block * size;
    simd_page page;
    simd_page_load(call, &page, id, (int)(see < size ? see : size), few, scratch->page_copy);
    for (int g = 0; g < scratch->groups; g++)
      if (scratch->group[g].max_keys > block * size)
        score_group(call, &scratch->group[g], &page, unit, &scratch->work, block, id, &scratch->stage[g * SIMD_LANES]);
    if ((block + 1) % SIMD_RANGE == 0 || block + 1 == unit->end)
      flush(call, args, unit, scratch, block / SIMD_RANGE * SIMD_RANGE, block % SIMD_RANGE + 1);
  }
  if (unit->part + 1 == unit->parts) fill(call, args, unit, scratch);
}

m3idx_status simd_score(m3idx_context *ctx, const m3idx_score_args *args) {
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
  simd_plan plan;
  m3idx_score_args copy = *args;
  if (simd_plan_make(&plan, &call, threads, 0)) return m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory for the work list");
  const int failed = simd_run(state, &call, &plan, threads, score_unit, &copy);
  free(plan.unit);
  return failed ? m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory for %d threads", threads) : M3IDX_OK;
}
