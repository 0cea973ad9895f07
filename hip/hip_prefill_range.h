/* SPDX-License-Identifier: Apache-2.0
 *
 * What fused prefill selection (S4) knows of a block before anyone evaluates it.  From the approximate maximum m that
 * hip_prefill_tiles.hip keeps, its score lies between what m - E and m + E round and scale to (S3.3, S3.5; both steps
 * are monotone), so its place in the contract's order lies between two places.
 *
 * At least K blocks reach the K-th largest lower place, and any number with K lower places at or above it will do: a
 * block whose upper place is below is not selected.  Of the others, the contenders, those whose ranges meet another's
 * are evaluated exactly (a range of one place); then any two are in order, both exact or ranges apart.  A contract that
 * writes ids in ascending order needs no order among exactly K.
 */
#ifndef M3IDX_HIP_PREFILL_RANGE_H
#define M3IDX_HIP_PREFILL_RANGE_H

#include "hip_prefill.h"

namespace hipk {

constexpr int PICK_WAVES = 4;
constexpr uint32_t FIRST_PLACE = 0xffffffffu; /* places: ordered_bits(), S4.3 */

struct select_params {
  prefill_view prefill;
  select_view select;
};

struct place_range {
  uint32_t low, high;
};

/* A row of a head of the window, and what is known of its blocks. */
struct select_row {
  int32_t pick; /* of all of the window's: head * rows + row */
  int32_t head, row;
  row_place place;
  norm_grid norm;
  block_bound bound; /* as a line over |k|: the bound does not tell q from k */
  gptr<float> score;
  gptr<const norm_grid> norms;
};

M3IDX_FN int32_t picks_of(const prefill_view &v) { return v.s.heads * (v.end - v.begin); }

/* pick < picks_of(v). */
HIPK_DEVICE select_row place_pick(const prefill_view &v, int32_t pick) {
  select_row r;
  const int32_t rows = v.end - v.begin;
  r.pick = pick;
  r.head = pick / rows;
  r.row = v.begin + pick % rows;
  r.place = place_row(v.s.batch, r.row);
  r.score = score_of(v, r.head, r.row);
  return r;
}
HIPK_DEVICE select_row interval_row(const prefill_view &v, int32_t pick) {
  select_row r = place_pick(v, pick);
  r.norm = global(v.rows)[pick];
  r.bound = bound_of_block(v.bound, r.norm.norm);
  r.norms = global(static_cast<const norm_grid *>(v.blocks)) + static_cast<int64_t>(r.place.request) * v.s.max_block;
  return r;
}

HIPK_DEVICE uint64_t key_at(uint32_t place, int32_t id, m3idx_contract contract) {
  return static_cast<uint64_t>(place) << 32 | static_cast<uint32_t>(block_key(0, id, contract));
}

/* The place of a score that is no NaN; no contract tells such apart (S4.2), as a zero is +0 (S3.4). */
HIPK_DEVICE uint32_t place_of_score(float score) {
  const uint32_t bits = float_bits(score + 0.0f);
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}

/* What is known of the place of block `id`, of which `bits` are kept, `norm` the largest of its keys'. */
HIPK_DEVICE place_range range_of(const select_params &p, const select_row &r, uint32_t bits, float norm, int32_t id) {
  const float best = best_of(bits), scale = p.prefill.s.scale;
  /* What best_of() is off, and the roundings of best -+ error; the norms pay for those of the line. */
  const float error =
      fused(magnitude(best), 0x1p-16f + 0x1p-20f, fused(r.bound.slope, norm, r.bound.offset) + 0x1p-140f);
  place_range range = {place_of_score((best - error) * scale), place_of_score((best + error) * scale)};
  if (bits == BITS_OPEN) range = {0, FIRST_PLACE};
  const uint32_t forced = forced_bits(BITS_OPEN, id, r.place.blocks, p.select.forced);
  if (forced != BITS_OPEN) range.low = range.high = place_of_score(bits_float(forced));
  return range;
}

/* Rows that prefill_select leaves to it, or all. */
void launch_select_rest(const hipk_launch *at, const select_params &p, bool all, m3idx_dtype k);

} // namespace hipk

#endif
