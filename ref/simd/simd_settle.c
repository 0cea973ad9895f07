/* SPDX-License-Identifier: Apache-2.0
 *
 * The filter's verdict and the exact stage (S3): candidates in double with a rounding test, and what that cannot
 * decide in the reference's wide integers.  docs/CERTIFIED-FILTER.md has the proofs.
 */
#include <float.h>
#include <math.h>

#include "ref_format.h"
#include "ref_key.h"
#include "ref_score.h"
#include "simd_convert.h"
#include "simd_tile.h"

/* No partial sum of a filter overflows while sum * peak is below this. */
#define SAFE 0x1p126

static int is_wild(const simd_page *page, int t) { return (int)(page->wild[t / 64] >> t % 64 & 1); }

/* Lanes that see something here, and those that the bound does not speak about. */
static void sort_lanes(const simd_group *group, const simd_page *page, int64_t first_key, simd_found *found) {
  found->active = found->whole = 0;
  for (int l = 0; l < SIMD_LANES; l++) {
    int64_t see = group->keys[l] - first_key;
    if (see < 0) see = 0;
    if (see > page->tokens) see = page->tokens;
    found->visible[l] = (int32_t)see;
    found->active |= (uint32_t)(see > 0) << l;
    found->whole |= (uint32_t)(group->sum[l] * (double)page->peak >= SAFE) << l;
    found->error[l] = group->slope[l] * page->peak + group->offset[l];
  }
  found->whole = (found->whole | group->wild) & found->active;
}

void simd_find(const simd_call *call, const simd_group *group, const simd_page *page, int64_t first_key,
               simd_work *work, simd_found *found) {
  const simd_filter *filter = call->form == SIMD_BF16 ? &call->isa->bf16 : &call->isa->f32;
  sort_lanes(group, page, first_key, found);
  const int all = group->min_keys >= first_key + page->tokens;
  int tokens = page->tokens;
  if (group->max_keys - first_key < tokens) tokens = (int)(group->max_keys - first_key);
  filter->run(group->q, page->keys, page->stride_bytes, tokens, group->lanes, group->padded_dim, work->score);
  for (int t = 0; page->any_wild && t < tokens; t++)
    if (is_wild(page, t))
      for (int l = 0; l < SIMD_LANES; l++) work->score[t * SIMD_LANES + l] = -INFINITY;
  call->isa->peak(work->score, tokens, all ? NULL : found->visible, found->most);
}

/* The candidates of `lanes`, and for `every` lane all its visible tokens. */
static int candidates(const simd_call *call, const simd_page *page, const simd_found *found, simd_work *work,
                      uint32_t lanes) {
  const uint32_t bounded = lanes & ~found->whole;
  float least[SIMD_LANES];
  int count = 0, tokens = 0;
  for (int l = 0; l < SIMD_LANES; l++) {
    const int wanted = (bounded >> l & 1) && found->most[l] > -INFINITY;
    least[l] = wanted ? found->most[l] - 2 * found->error[l] : NAN;
    if ((lanes >> l & 1) && found->visible[l] > tokens) tokens = found->visible[l];
  }
  if (bounded) count = call->isa->pick(work->score, tokens, least, work->list);
  if (!page->any_wild && bounded == lanes) return count;
  for (int t = 0; t < tokens; t++)
    for (int l = 0; l < SIMD_LANES; l++)
      if ((lanes >> l & 1) && t < found->visible[l] && ((found->whole >> l & 1) || is_wild(page, t)))
        work->list[count++] = (uint16_t)(t << 8 | l);
  return count;
}

/* The largest of the lane's candidates that may be the block's maximum, each in wide integers.  `least` = below it a
 * candidate cannot be. */
static uint32_t wide(const simd_call *call, const simd_group *group, const simd_work *work, int count, int lane,
                     double least, int64_t first_row, int64_t id) {
  const int64_t row = first_row + (group->first_lane + lane) / call->heads;
  const int64_t head = (group->first_lane + lane) % call->heads;
  uint32_t best = SIMD_NAN_BITS;
  for (int i = 0; i < count; i++) {
    if ((work->list[i] & 0xff) != lane || work->dot[i] < least) continue;
    m3idx_tensor key = *call->index_k;
    key.data = ref_element(call->index_k, id, work->list[i] >> 8, 0);
    const uint32_t bits = ref_block_score(call->q, &key, row, head, 0, 1, 1.0f);
    if (bits != SIMD_NAN_BITS && (best == SIMD_NAN_BITS || ref_ordered(bits) > ref_ordered(best))) best = bits;
  }
  return best;
}

void simd_settle(const simd_call *call, const simd_group *group, const simd_page *page, const simd_found *found,
                 simd_work *work, uint32_t lanes, int64_t first_row, int64_t id, uint32_t *bits) {
  /* Theorem 3: a dot in double is at most unit * sum * peak away from the exact one. */
  const double unit = (double)(group->dim + 8) * (0x1p-53 * (1.0 + 0x1p-10)) * (double)page->peak;
  const int count = candidates(call, page, found, work, lanes);
  double best[SIMD_LANES];
  uint32_t numbers = 0;
  for (int l = 0; l < SIMD_LANES; l++) best[l] = -INFINITY;
  call->isa->dots(group, page, work->list, count, work->dot);
  for (int i = 0; i < count; i++) {
    const int l = work->list[i] & 0xff;
    const double dot = work->dot[i];
    numbers |= (uint32_t)(dot >= -INFINITY) << l; /* S3.3: NaN dots do not count */
    best[l] = dot > best[l] ? dot : best[l];
  }
  for (int l = 0; l < SIMD_LANES; l++) {
    if (!(lanes >> l & 1)) continue;
    if (!(numbers >> l & 1)) {
      bits[l] = SIMD_NAN_BITS;
      continue;
    }
    const double error = unit * group->sum[l];
    const float low = (float)(best[l] - error), high = (float)(best[l] + error);
    float score = low + 0.0f; /* S3.4: -0 becomes +0 */
    if (low != high) {
      const uint32_t exact = wide(call, group, work, count, l, best[l] - 2 * error, first_row, id);
      score = simd_float(exact);
    }
    bits[l] = simd_bits(call->scale == 1.0f ? score : score * call->scale + 0.0f);
  }
}
