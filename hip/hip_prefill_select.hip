/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused prefill selection (S4): a wave a row.
 *
 * From exact scores: the K best keys.  From approximate maxima (hip_prefill_tiles.hip): a block's score lies between
 * what m - E and m + E round and scale to (S3.3, S3.5; both steps are monotone), so its place in the contract's order
 * lies between two places.  At least K blocks reach the K-th largest lower place; a block whose upper place is below it
 * is not selected.  Of the others, usually K or K + 1, those whose ranges meet another's are evaluated exactly (a
 * range of one place), and then any two are in order: both exact, or ranges apart.  A contract that writes ids in
 * ascending order needs no order among exactly K.  Where more blocks are left than a list holds, as when everything
 * ties, the row is selected tile by tile with every block evaluated that can still enter: slow, and never wrong.
 */
#include "hip_block.h"
#include "hip_by_format.h"

namespace hipk {

constexpr int PICK_WAVES = 4, PICK_TILE = 128, CONTENDERS = MAX_TOPK + 64;
constexpr uint32_t FIRST_PLACE = 0xffffffffu; /* places: ordered_bits(), S4.3 */

struct place_range {
  uint32_t low, high;
};

struct select_row {
  row_place place;
  int32_t head, row;
  norm_grid norm;
};

HIPK_DEVICE uint64_t key_at(uint32_t place, int32_t id, m3idx_contract contract) {
  return static_cast<uint64_t>(place) << 32 | static_cast<uint32_t>(block_key(0, id, contract));
}

/* What is known of the place of a block. */
HIPK_DEVICE place_range range_of(const prefill_view &v, const select_view &select, const select_row &r,
                                 gptr<float> score, gptr<const norm_grid> norms, int32_t id) {
  const m3idx_contract contract = select.pick.contract;
  const uint32_t forced = forced_bits(BITS_OPEN, id, r.place.blocks, select.forced);
  if (forced != BITS_OPEN) return {ordered_bits(forced, contract), ordered_bits(forced, contract)};
  const uint32_t bits = float_bits(score[id]);
  if (bits == BITS_OPEN) return {0, FIRST_PLACE};
  const float best = best_of(bits);
  const norm_grid block = norms[id];
  const block_bound bound = bound_of_block(v.bound, block.norm);
  /* What best_of() is off, and the roundings of best -+ error. */
  const float error = bound.slope * r.norm.norm + bound.offset + magnitude(best) * (0x1p-16f + 0x1p-20f) + 0x1p-140f;
  float low = (best - error) * v.s.scale, high = (best + error) * v.s.scale;
  if (low == 0) low = 0.0f;
  if (high == 0) high = 0.0f;
  return {ordered_bits(float_bits(low), contract), ordered_bits(float_bits(high), contract)};
}

/* The exact place of a block. */
template <class F>
HIPK_DEVICE uint32_t place_of_block(const prefill_view &v, const select_view &select, const select_row &r, int32_t id,
                                    uint32_t kept, lds<float> q, float size, lds<float> dots) {
  const int tokens = m3idx_min_i32(PREFILL_BLOCK, r.place.keys - id * PREFILL_BLOCK);
  const uint32_t bits = block_score<F>(v.s, q, size, dots, prefill_page(v.s, r.place.request, id), tokens,
                                       kept == BITS_OPEN ? ALL_GROUPS : groups_of(kept));
  return ordered_bits(bits, select.pick.contract);
}

struct select_params {
  prefill_view prefill;
  select_view select;
};

/* The row that this wave selects; row < 0 past the last. */
HIPK_DEVICE select_row own_row(const prefill_view &v) {
  const int32_t rows = v.end - v.begin;
  const int64_t pick = static_cast<int64_t>(group_index()) * PICK_WAVES + wave_index();
  select_row r = {};
  r.row = -1;
  if (pick >= static_cast<int64_t>(v.s.heads) * rows) return r;
  r.head = static_cast<int32_t>(pick / rows);
  r.row = v.begin + static_cast<int32_t>(pick % rows);
  r.place = place_row(v.s.batch, r.row);
  return r;
}

/* From exact scores. */
HIPK_KERNEL(PICK_WAVES *WAVE) prefill_select_exact(select_params p) {
  using list = best_list<PICK_TILE, MAX_TOPK>;
  HIPK_LDS(uint64_t, keys, PICK_WAVES * list::ROOM);
  HIPK_LDS(int32_t, ids, PICK_WAVES * MAX_TOPK);
  const select_row r = own_row(p.prefill);
  if (r.row < 0) return;
  const select_view &v = p.select;
  const gptr<float> score = score_of(p.prefill, r.head, r.row);
  list best;
  best.begin(keys + wave_index() * list::ROOM, v.pick.width);
  HIPK_ROLLED
  for (int32_t tile = 0; tile < r.place.blocks; tile += PICK_TILE)
    best.offer(r.place.blocks - tile, [&](int i) {
      const int32_t id = tile + i;
      return block_key(forced_bits(float_bits(score[id]), id, r.place.blocks, v.forced), id, v.pick.contract);
    });
  best.end();
  write_pick(v.pick, best.keys, ids + wave_index() * MAX_TOPK, r.head, r.row, r.place);
}

/* From intervals. */
template <m3idx_dtype T> HIPK_KERNEL(PICK_WAVES *WAVE) prefill_select(select_params p) {
  using list = best_list<PICK_TILE, MAX_TOPK>;
  using F = chunk_filter<T>;
  HIPK_LDS(uint64_t, keys, PICK_WAVES * list::ROOM);
  HIPK_LDS(int32_t, all_ids, PICK_WAVES * CONTENDERS);
  HIPK_LDS(uint32_t, all_lows, PICK_WAVES * CONTENDERS);
  HIPK_LDS(uint32_t, all_highs, PICK_WAVES * CONTENDERS);
  HIPK_LDS(float, all_q, PICK_WAVES *F::DIM);
  HIPK_LDS(float, all_dots, PICK_WAVES *DOT_PITCH);
  const prefill_view &v = p.prefill;
  const select_view &s = p.select;
  const int wave = wave_index();
  const lds<int32_t> ids = all_ids + wave * CONTENDERS;
  const lds<uint32_t> lows = all_lows + wave * CONTENDERS, highs = all_highs + wave * CONTENDERS;
  const lds<float> q = all_q + wave * F::DIM, dots = all_dots + wave * DOT_PITCH;
  select_row r = own_row(v);
  if (r.row < 0) return;
  r.norm = global(v.rows)[static_cast<int64_t>(r.head) * (v.end - v.begin) + (r.row - v.begin)];
  const gptr<float> score = score_of(v, r.head, r.row);
  const gptr<const norm_grid> norms =
      global(static_cast<const norm_grid *>(v.blocks)) + static_cast<int64_t>(r.place.request) * v.s.max_block;
  const int32_t blocks = r.place.blocks;
  const m3idx_contract contract = s.pick.contract;

  /* The K-th largest lower place. */
  list best;
  best.begin(keys + wave * list::ROOM, s.pick.width);
  uint32_t least = 0;
  if (blocks > s.pick.topk) {
    HIPK_ROLLED
    for (int32_t tile = 0; tile < blocks; tile += PICK_TILE)
      best.offer(blocks - tile,
                 [&](int i) { return key_at(range_of(v, s, r, score, norms, tile + i).low, tile + i, contract); });
    best.end();
    least = static_cast<uint32_t>(best.keys[s.pick.topk - 1] >> 32);
    wave_sync();
  }

  /* Who can be selected. */
  int count = 0;
  HIPK_ROLLED
  for (int32_t base = 0; base < blocks && count <= CONTENDERS; base += WAVE) {
    const int32_t id = base + lane_index();
    place_range range = {};
    if (id < blocks) range = range_of(v, s, r, score, norms, id);
    const uint64_t in = ballot(id < blocks && range.high >= least);
    const int at = count + count_bits(in & ((uint64_t{1} << lane_index()) - 1));
    if ((in >> lane_index() & 1) && at < CONTENDERS) {
      ids[at] = id;
      lows[at] = range.low;
      highs[at] = range.high;
    }
    count += count_bits(in);
  }
  wave_sync();

  bool staged = false;
  float size = 0;
  best.begin(keys + wave * list::ROOM, s.pick.width);
  if (count <= CONTENDERS) {
    const bool order_matters = count > s.pick.topk || contract.order != M3IDX_ORDER_ID;
    HIPK_ROLLED
    for (int base = 0; base < count && order_matters; base += WAVE) {
      const int mine = base + lane_index();
      bool unsure = false;
      if (mine < count) {
        const uint32_t low = lows[mine], high = highs[mine];
        HIPK_ROLLED
        for (int i = 0; i < count; i++) unsure = unsure || (i != mine && low <= highs[i] && lows[i] <= high);
        unsure = unsure && low != high;
      }
      /* Lows and highs stay as they are until all have been compared. */
      if (mine < count && unsure) ids[mine] = ~ids[mine];
    }
    wave_sync();
    HIPK_ROLLED
    for (int base = 0; base < count; base += WAVE) {
      const int mine = base + lane_index();
      uint64_t unsure = ballot(mine < count && ids[mine < count ? mine : 0] < 0);
      while (unsure) {
        const int at = base + lowest_bit(unsure);
        unsure &= unsure - 1;
        if (!staged) size = wave_query<F>(v.s, r.head, r.row, q);
        staged = true;
        const int32_t id = ~ids[at];
        const uint32_t place = place_of_block<F>(v, s, r, id, float_bits(score[id]), q, size, dots);
        if (lane_index() == 0) {
          ids[at] = id;
          lows[at] = place;
        }
        wave_sync();
      }
    }
    HIPK_ROLLED
    for (int base = 0; base < count; base += PICK_TILE)
      best.offer(count - base, [&](int i) { return key_at(lows[base + i], ids[base + i], contract); });
  } else {
    /* A tile of columns at a time, their places in lows; a column below `least`, or below the K-th key, is left out. */
    HIPK_ROLLED
    for (int32_t tile = 0; tile < blocks; tile += PICK_TILE) {
      HIPK_ROLLED
      for (int32_t base = tile; base < tile + PICK_TILE && base < blocks; base += WAVE) {
        const int32_t id = base + lane_index();
        place_range range = {};
        if (id < blocks) range = range_of(v, s, r, score, norms, id);
        const bool in = id < blocks && range.high >= least;
        uint64_t unsure = ballot(in && range.low != range.high);
        lows[base - tile + lane_index()] = in ? range.high : 0u;
        wave_sync();
        highs[base - tile + lane_index()] = in ? 1u : 0u;
        while (unsure) {
          const int32_t open = base + lowest_bit(unsure);
          unsure &= unsure - 1;
          if (!staged) size = wave_query<F>(v.s, r.head, r.row, q);
          staged = true;
          const uint32_t place = place_of_block<F>(v, s, r, open, float_bits(score[open]), q, size, dots);
          if (lane_index() == 0) lows[open - tile] = place;
          wave_sync();
        }
      }
      wave_sync();
      best.offer(blocks - tile, [&](int i) { return highs[i] ? key_at(lows[i], tile + i, contract) : uint64_t{0}; });
      if (best.held == s.pick.width) {
        const uint32_t last = static_cast<uint32_t>(best.keys[s.pick.topk - 1] >> 32);
        least = last > least ? last : least;
      }
      wave_sync();
    }
  }
  best.end();
  write_pick(s.pick, best.keys, ids, r.head, r.row, r.place);
}

struct select_launch {
  const hipk_launch *at;
  const select_params &p;
  int64_t groups;
  template <m3idx_dtype T> void run() const { launch(prefill_select<T>, groups, PICK_WAVES * WAVE, at->stream, p); }
};
void launch_prefill_select(const hipk_launch *at, const prefill_view &v, const select_view &select, bool intervals,
                           m3idx_dtype k) {
  const select_params p = {v, select};
  const int64_t groups = (static_cast<int64_t>(v.s.heads) * (v.end - v.begin) + PICK_WAVES - 1) / PICK_WAVES;
  if (intervals)
    by_matrix_format(k, select_launch{at, p, groups});
  else
    launch(prefill_select_exact, groups, PICK_WAVES * WAVE, at->stream, p);
}

} // namespace hipk
