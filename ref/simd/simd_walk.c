/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk of a unit: its lanes packed into groups, its pages loaded one after another, every group that sees a page
 * handed to a step.  While a page is worked on, the next one is brought closer.
 */
#include <string.h>

#include "ref_format.h"
#include "simd_run.h"

static void pack(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, int g, int64_t lane, int lanes) {
  const size_t elements = (size_t)(call->dim + SIMD_DIM_STEP - 1) / SIMD_DIM_STEP * SIMD_DIM_STEP * SIMD_LANES;
  simd_group *group = &scratch->group[g];
  group->q = (unsigned char *)scratch->group[0].q + (size_t)g * elements * 2 * sizeof(float);
  group->row = (float *)group->q + elements;
  simd_group_pack(call, group, unit->request, unit->first_row, unit->first_lane + lane, lanes);
}

void simd_tile_pack(const simd_call *call, const simd_unit *unit, simd_scratch *scratch) {
  scratch->groups = (unit->lanes + SIMD_LANES - 1) / SIMD_LANES;
  for (int g = 0; g < scratch->groups; g++) {
    const int left = unit->lanes - g * SIMD_LANES;
    pack(call, unit, scratch, g, g * SIMD_LANES, left < SIMD_LANES ? left : SIMD_LANES);
  }
}

void simd_lane_pack(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, int64_t lane) {
  pack(call, unit, scratch, 0, lane, 1);
}

int64_t simd_page_id(const simd_call *call, const simd_unit *unit, int64_t block) {
  return call->block_table[unit->request * call->block_table_stride + block];
}

/* The rows of a page whose elements lie side by side, for `runs` runs of a filter. */
static simd_next ahead(const simd_call *call, int64_t id, int runs) {
  const m3idx_tensor *k = call->index_k;
  const int64_t size = call->batch->block_size, bytes = (int64_t)m3idx_dtype_bytes(k->dtype);
  const int64_t lines = size * ((call->dim * bytes + 63) / 64);
  return (simd_next){.row = ref_element(k, id, 0, 0),
                     .stride_bytes = k->stride[1] * bytes,
                     .rows = k->stride[2] == 1 ? (int)size : 0,
                     .bytes = (int)(call->dim * bytes),
                     .lines = (int)((lines + runs - 1) / runs)};
}

void simd_walk(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, int first, int groups,
               simd_step_fn *step, void *user) {
  const int64_t size = call->batch->block_size;
  const simd_group *last = &scratch->group[first + groups - 1];
  const int few = simd_takes_few(call, unit->lanes);
  for (int64_t block = unit->begin; block < unit->end && block * size < last->max_keys; block++) {
    const int64_t id = simd_page_id(call, unit, block), see = last->max_keys - block * size;
    simd_page page;
    simd_page_load(call, &page, id, (int)(see < size ? see : size), few, scratch->page_copy);
    if (block + 1 < unit->end) page.next = ahead(call, simd_page_id(call, unit, block + 1), groups);
    for (int g = 0; g < groups; g++)
      if (scratch->group[first + g].max_keys > block * size) step(call, unit, scratch, first + g, &page, block, user);
  }
}

void simd_flush(const simd_call *call, const m3idx_score_args *args, const simd_unit *unit, const simd_scratch *scratch,
                int64_t block) {
  if ((block + 1) % SIMD_RANGE != 0 && block + 1 != unit->end) return;
  const int64_t first = block / SIMD_RANGE * SIMD_RANGE, count = block - first + 1;
  for (int lane = 0; lane < unit->lanes; lane++) {
    int64_t n = scratch->group[lane / SIMD_LANES].blocks[lane % SIMD_LANES] - first;
    if (n > count) n = count;
    float *row = simd_score_row(call, args, unit, lane) + first;
    for (int64_t i = 0; i < n; i++) memcpy(row + i, &scratch->stage[i][lane], sizeof *row);
  }
}

float *simd_score_row(const simd_call *call, const m3idx_score_args *args, const simd_unit *unit, int64_t lane) {
  const int64_t at = unit->first_lane + lane, row = unit->first_row + at / call->heads, head = at % call->heads;
  return args->score + head * args->score_stride_head + row * args->score_stride_row;
}
