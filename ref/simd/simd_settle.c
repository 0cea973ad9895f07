/* SPDX-License-Identifier: Apache-2.0
 *
 * The filter's verdict and the exact stage (S3): candidates in double with a rounding test, and what that cannot
 * decide in the reference's wide integers.  docs/CERTIFIED-FILTER.md has the proofs.
 */
#include <float.h>
#include <math.h>
#include <string.h>

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
  const uint32_t lanes = UINT32_MAX >> (SIMD_LANES - group->lanes);
  found->active = lanes;
  if (group->min_keys < first_key + page->tokens)
    for (int l = 0; l < SIMD_LANES; l++) {
      int64_t see = group->keys[l] - first_key;
      if (see < 0) see = 0;
      if (see > page->tokens) see = page->tokens;
      found->visible[l] = (int32_t)see;
      if (see == 0) found->active &= ~(UINT32_C(1) << l);
    }
  else
    for (int l = 0; l < SIMD_LANES; l++) found->visible[l] = page->tokens;
  found->whole = group->wild;
  if (group->most_sum * (double)page->peak >= SAFE)
    for (int l = 0; l < SIMD_LANES; l++) found->whole |= (uint32_t)(group->sum[l] * (double)page->peak >= SAFE) << l;
  found->whole &= found->active;
  for (int l = 0; l < SIMD_LANES; l++) found->error[l] = group->slope[l] * page->peak + group->offset[l];
}

void simd_find(const simd_call *call, const simd_group *group, simd_page *page, int64_t first_key, int keep,
               simd_work *work, simd_later *later, simd_found *found) {
  const simd_filter *filter = call->form == SIMD_BF16 ? &call->isa->bf16 : &call->isa->f32;
  const int all = group->min_keys >= first_key + page->tokens;
  int tokens = page->tokens;
  if (group->max_keys - first_key < tokens) tokens = (int)(group->max_keys - first_key);
  found->tokens = tokens;
  if (page->few) /* a tile of few lanes is one group, which sees all the tokens of the page */
    simd_page_judge(call, page,
                    call->isa->few(group, page->keys, page->stride_bytes, tokens, work->score, &page->next));
  sort_lanes(group, page, first_key, found);
  found->scanned = filter->scan && all && !page->few && !page->any_wild && !found->whole &&
                   group->lanes > SIMD_LANES / 2 && tokens % SIMD_STRIP_STEP == 0;
  if (found->scanned) {
    float reach[SIMD_LANES];
    for (int l = 0; l < SIMD_LANES; l++) reach[l] = 2 * found->error[l];
    filter->scan(group, page, tokens, &(simd_scan){work->score, found->most, keep ? &work->near : NULL, reach, later});
    return;
  }
  if (!page->few)
    filter->run(group->q, page->keys, page->stride_bytes, tokens, group->lanes, group->padded_dim, work->score,
                &page->next);
  for (int t = 0; page->any_wild && t < tokens; t++)
    if (is_wild(page, t))
      for (int l = 0; l < SIMD_LANES; l++) work->score[t * SIMD_LANES + l] = -INFINITY;
  call->isa->peak(work->score, tokens, all ? NULL : found->visible, found->most);
}

/* The tokens that could be the maximum of one of `lanes`.  one_each: one for every lane, and by lanes. */
static int candidates(const simd_call *call, const simd_page *page, const simd_found *found, simd_work *work,
                      uint32_t lanes, int *one_each) {
  const uint32_t bounded = lanes & ~found->whole;
  float least[SIMD_LANES];
  int count = 0;
  for (int l = 0; l < SIMD_LANES; l++) least[l] = found->most[l] - 2 * found->error[l];
  for (uint32_t left = ~bounded; left; left &= left - 1) least[simd_lowest(left)] = NAN;
  *one_each = 0;
  if (found->scanned) return call->isa->sift(&work->near, least, work->list, one_each);
  if (page->any_wild)
    for (int l = 0; l < SIMD_LANES; l++)
      if (!(found->most[l] > -INFINITY)) least[l] = NAN; /* every token is wild */
  if (bounded) count = call->isa->pick(work->score, found->tokens, least, work->list);
  if (!page->any_wild && bounded == lanes) return count;
  for (int t = 0; t < found->tokens; t++)
    for (uint32_t left = is_wild(page, t) ? lanes : lanes & found->whole; left; left &= left - 1) {
      const int l = simd_lowest(left);
      if (t < found->visible[l]) work->list[count++] = (uint16_t)(t << 8 | l);
    }
  return count;
}

/* A power of two that divides every element of the token. */
static double token_grid(const simd_call *call, const simd_page *page, int token) {
  const void *row = (const unsigned char *)page->keys + token * page->stride_bytes;
  return simd_grid(row, page->form, (int)call->dim, call->index_k->dtype);
}

/* The same for all tame tokens, looked for once. */
static double page_grid(const simd_call *call, simd_page *page) {
  if (page->grid > 0) return page->grid;
  page->grid = INFINITY;
  for (int t = 0; t < page->tokens; t++) {
    const double grid = is_wild(page, t) ? INFINITY : token_grid(call, page, t);
    page->grid = grid < page->grid ? grid : page->grid;
  }
  return page->grid;
}

/* Theorem 4: the lane's double dots with keys on this grid are exact in any order.  Sums of short formats often are,
 * and then may well lie on the midpoint of two floats, where no error bound decides. */
static int dots_are_exact(const simd_call *call, simd_group *group, const simd_page *page, int lane, double grid) {
  if (group->grid[lane] == 0)
    group->grid[lane] = simd_grid(group->row + lane * group->dim, SIMD_F32, group->dim, call->q->dtype);
  const double unit = grid * group->grid[lane];
  return unit >= 0x1p-149 && group->sum[lane] * (double)page->peak <= 0x1p53 * unit;
}

/* A lane that the rounding test leaves open: the largest of its candidates, rounded.  `best` is the largest double
 * dot; below `least` a candidate cannot be the maximum. */
static uint32_t decide(const simd_call *call, simd_group *group, simd_page *page, const simd_work *work, int count,
                       int lane, double best, double least, int64_t first_row, int64_t id) {
  enum { FEW = 4 }; /* more candidates than that pay for a look at the page */
  const int64_t row = first_row + (group->first_lane + lane) / call->heads;
  const int64_t head = (group->first_lane + lane) % call->heads;
  uint32_t most = SIMD_NAN_BITS;
  int open = 0;
  for (int i = 0; i < count; i++) {
    const int token = work->list[i] >> 8;
    if ((work->list[i] & 0xff) != lane || !(work->dot[i] >= least)) continue;
    if (++open > FEW && dots_are_exact(call, group, page, lane, page_grid(call, page)))
      return simd_bits((float)best + 0.0f);
    uint32_t bits;
    if (dots_are_exact(call, group, page, lane, token_grid(call, page, token))) {
      bits = simd_bits((float)work->dot[i] + 0.0f);
    } else {
      m3idx_tensor key = *call->index_k;
      key.data = ref_element(call->index_k, id, token, 0);
      bits = ref_block_score(call->q, &key, row, head, 0, 1, 1.0f);
    }
    if (most == SIMD_NAN_BITS || ref_ordered(bits) > ref_ordered(most)) most = bits;
  }
  return most;
}

/* With many candidates a query is wanted many times over. */
static const double *doubles_of(const simd_group *group, int count, simd_work *work) {
  if (count < 8 * SIMD_LANES) return NULL;
  for (int i = 0; i < group->lanes * group->dim; i++) work->doubles[i] = (double)group->row[i];
  return work->doubles;
}

/* S3.3: NaN dots do not count. */
static uint32_t lanes_with_numbers(const simd_work *work, int count) {
  uint32_t lanes = 0;
  for (int i = 0; i < count; i++) lanes |= (uint32_t)(work->dot[i] >= -INFINITY) << (work->list[i] & 0xff);
  return lanes;
}

/* Largest double dot of each lane. */
static void best_of(const simd_work *work, int count, double *best) {
  for (int l = 0; l < SIMD_LANES; l++) best[l] = -INFINITY;
  for (int i = 0; i < count; i++) {
    const int l = work->list[i] & 0xff;
    best[l] = work->dot[i] > best[l] ? work->dot[i] : best[l];
  }
}

/* The candidates of `lanes` that could still be the maximum. */
static int keep(simd_work *work, int count, uint32_t lanes, const double *best, const double *sum, double unit,
                double tiny) {
  double least[SIMD_LANES];
  int kept = 0;
  for (int l = 0; l < SIMD_LANES; l++) least[l] = best[l] - 2 * (unit * sum[l] + tiny);
  for (int i = 0; i < count; i++) {
    const int l = work->list[i] & 0xff;
    if (!(lanes >> l & 1) || !(work->dot[i] >= least[l])) continue;
    work->list[kept++] = work->list[i];
  }
  return kept;
}

/* The same where every lane has one. */
static int keep_own(simd_work *work, uint32_t lanes) {
  int kept = 0;
  for (; lanes; lanes &= lanes - 1) work->list[kept++] = work->list[simd_lowest(lanes)];
  return kept;
}

/* best and low of `lanes` alone, which often are one; those that are still open. */
static uint32_t closer(const simd_work *work, int count, uint32_t lanes, const double *sum, double unit, double tiny,
                       double *best, float *low) {
  uint32_t open = 0;
  for (uint32_t left = lanes; left; left &= left - 1) best[simd_lowest(left)] = -INFINITY;
  for (int i = 0; i < count; i++) {
    const int l = work->list[i] & 0xff;
    best[l] = work->dot[i] > best[l] ? work->dot[i] : best[l];
  }
  for (; lanes; lanes &= lanes - 1) {
    const int l = simd_lowest(lanes);
    const double reach = unit * sum[l] + tiny;
    low[l] = (float)(best[l] - reach);
    if (low[l] != (float)(best[l] + reach)) open |= UINT32_C(1) << l;
  }
  return open;
}

/* Theorem 5: 6 * 2^floor(log2(sum * peak)), in the middle of a binade that no chain leaves; 0 for a query of zeros. */
int simd_split(const simd_isa *isa, const simd_group *group, const simd_page *page, float *center, double *unit) {
  const uint32_t least = 0x12800000u; /* 2^-90 */
  uint32_t bits[SIMD_LANES], small = 0;
  for (int l = 0; l < SIMD_LANES; l++) bits[l] = simd_bits((float)(group->sum[l] * (double)page->peak));
  for (int l = 0; l < SIMD_LANES; l++) small |= (uint32_t)(bits[l] - 1 < least - 1);
  for (int l = 0; l < SIMD_LANES; l++) center[l] = 6 * simd_float(bits[l] & 0x7f800000u);
  *unit = (group->dim / isa->chains + 4) * group->dim * (0x1p-46 * (1.0 + 0x1p-9)) * (double)page->peak;
  return !small && group->most_sum * (double)page->peak < 0x1p120;
}

int simd_settle_begin(const simd_call *call, const simd_group *group, const simd_page *page, const simd_found *found,
                      simd_work *work, uint32_t lanes, simd_exact *exact) {
  const int narrow = call->narrow && !found->whole && !page->any_wild; /* Theorem 3: then no product overflows */
  const int count = candidates(call, page, found, work, lanes, &exact->one_each);
  exact->lanes = lanes;
  exact->doubles = doubles_of(group, count, work);
  exact->split = 0;
  exact->sum = SIMD_DOUBLE;
  if (narrow) exact->sum = SIMD_NARROW;
  if (narrow && !exact->doubles && simd_split(call->isa, group, page, exact->center, &exact->split))
    exact->sum = SIMD_SPLIT;
  exact->dots = (simd_later){group, page, work->list, exact->center, work->dot, count, 0};
  return exact->sum == SIMD_SPLIT;
}

void simd_settle_end(const simd_call *call, simd_group *group, simd_page *page, const simd_found *found,
                     simd_work *work, simd_exact *exact, int64_t first_row, int64_t id, uint32_t *bits) {
  /* A dot in double is at most unit * sum + tiny away from the exact one (Theorem 3), a split one split * sum + tiny.
   */
  const double unit = (double)(group->dim + 8) * (0x1p-53 * (1.0 + 0x1p-10)) * (double)page->peak;
  const double tiny = exact->sum == SIMD_DOUBLE ? 0.0 : (double)group->dim * 0x1p-149;
  const int done = exact->dots.done;
  float low[SIMD_LANES];
  double best[SIMD_LANES];
  uint32_t numbers = exact->lanes;
  int count = exact->dots.count;
  call->isa->dots(group, page, work->list + done, count - done, exact->sum, exact->center, exact->doubles,
                  work->dot + done);
  if (exact->one_each)
    memcpy(best, work->dot, sizeof best);
  else
    best_of(work, count, best);
  if (found->whole || page->any_wild) numbers = lanes_with_numbers(work, count);
  uint32_t open = call->isa->ends(best, group->sum, exact->sum == SIMD_SPLIT ? exact->split : unit, tiny, low);
  open &= exact->lanes & numbers;
  if (open && exact->sum == SIMD_SPLIT) {
    count = exact->one_each ? keep_own(work, open) : keep(work, count, open, best, group->sum, exact->split, tiny);
    call->isa->dots(group, page, work->list, count, SIMD_NARROW, NULL, NULL, work->dot);
    open = closer(work, count, open, group->sum, unit, tiny, best, low);
  }
  for (; open; open &= open - 1) {
    const int l = simd_lowest(open);
    const double least = best[l] - 2 * (unit * group->sum[l] + tiny);
    low[l] = simd_float(decide(call, group, page, work, count, l, best[l], least, first_row, id));
  }
  if (call->scale != 1.0f) /* S3.5 */
    for (int l = 0; l < SIMD_LANES; l++) low[l] *= call->scale;
  for (int l = 0; l < SIMD_LANES; l++) bits[l] = simd_bits(low[l] + 0.0f); /* S3.4: -0 becomes +0 */
  for (uint32_t left = exact->lanes & ~numbers; left; left &= left - 1) bits[simd_lowest(left)] = SIMD_NAN_BITS;
}

void simd_settle(const simd_call *call, simd_group *group, simd_page *page, const simd_found *found, simd_work *work,
                 uint32_t lanes, int64_t first_row, int64_t id, uint32_t *bits) {
  simd_exact exact;
  simd_settle_begin(call, group, page, found, work, lanes, &exact);
  simd_settle_end(call, group, page, found, work, &exact, first_row, id, bits);
}
