/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused prefill selection from ranges (hip_prefill_range.h) of the rows that prefill_select leaves, and of all where K
 * is larger than it takes.  Scores come from the path that knows infinities and NaN (hip_block.h).  Where more blocks
 * can be selected than a list holds, as when everything ties, the row is selected tile by tile with every block
 * evaluated that can still enter: slow, and never wrong.
 */
#include "hip_block.h"
#include "hip_by_format.h"
#include "hip_prefill_range.h"

namespace hipk {

constexpr int PICK_TILE = 128, CONTENDERS = MAX_TOPK + 64;
constexpr int SPARSE_ROWS = 8; /* that a wave looks through where few are left */

struct rest_params {
  select_params p;
  bool all;     /* rows, whatever prefill_select says */
  int32_t each; /* rows a wave looks through */
};

using rest_list = best_list<PICK_TILE, MAX_TOPK>;

/* A wave's group memory, and whether q holds the row. */
struct rest_room {
  lds<uint64_t> keys;
  lds<int32_t> ids;
  lds<uint32_t> lows, highs;
  lds<float> q, dots;
  float size; /* of q */
  bool staged;
};

HIPK_DEVICE place_range range_at(const select_params &p, const select_row &r, int32_t id) {
  const norm_grid block = r.norms[id];
  return range_of(p, r, float_bits(r.score[id]), block.norm, id);
}

/* The exact place of a block. */
template <class F>
HIPK_DEVICE uint32_t place_of_block(const select_params &p, const select_row &r, int32_t id, rest_room &room) {
  const score_view &v = p.prefill.s;
  if (!room.staged) room.size = wave_query<F>(v, r.head, r.row, room.q);
  room.staged = true;
  const uint32_t kept = float_bits(r.score[id]);
  const int tokens = m3idx_min_i32(PREFILL_BLOCK, r.place.keys - id * PREFILL_BLOCK);
  const uint32_t bits = block_score<F>(v, room.q, room.size, room.dots, prefill_page(v, r.place.request, id), tokens,
                                       kept == BITS_OPEN ? ALL_GROUPS : groups_of(kept));
  return ordered_bits(bits, p.select.pick.contract);
}

/* The K-th largest lower place; 0 where there are no more than K. */
HIPK_DEVICE uint32_t kth_place(const select_params &p, const select_row &r, rest_list &best) {
  const pick_view &pick = p.select.pick;
  if (r.place.blocks <= pick.topk) return 0;
  HIPK_ROLLED
  for (int32_t tile = 0; tile < r.place.blocks; tile += PICK_TILE)
    best.offer(r.place.blocks - tile,
               [&](int i) { return key_at(range_at(p, r, tile + i).low, tile + i, pick.contract); });
  best.end();
  const uint32_t least = static_cast<uint32_t>(best.keys[pick.topk - 1] >> 32);
  wave_sync();
  return least;
}

/* The contenders into the lists; returns how many there are, or more than CONTENDERS. */
HIPK_DEVICE int list_all(const select_params &p, const select_row &r, uint32_t least, const rest_room &room) {
  int count = 0;
  HIPK_ROLLED
  for (int32_t base = 0; base < r.place.blocks && count <= CONTENDERS; base += WAVE) {
    const int32_t id = base + lane_index();
    place_range range = {};
    if (id < r.place.blocks) range = range_at(p, r, id);
    const uint64_t in = ballot(id < r.place.blocks && range.high >= least);
    const int at = count + count_bits(in & ((uint64_t{1} << lane_index()) - 1));
    if ((in >> lane_index() & 1) && at < CONTENDERS) {
      room.ids[at] = id;
      room.lows[at] = range.low;
      room.highs[at] = range.high;
    }
    count += count_bits(in);
  }
  wave_sync();
  return count;
}

/* The best of `count` listed contenders. */
template <class F>
HIPK_DEVICE void select_listed(const select_params &p, const select_row &r, int count, rest_room &room,
                               rest_list &best) {
  const lds<int32_t> ids = room.ids;
  const lds<uint32_t> lows = room.lows, highs = room.highs;
  const m3idx_contract contract = p.select.pick.contract;
  const bool order_matters = count > p.select.pick.topk || contract.order != M3IDX_ORDER_ID;
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
      const int32_t id = ~ids[at];
      const uint32_t place = place_of_block<F>(p, r, id, room);
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
}

/* The best of all, a tile of columns at a time, their places in lows; a column below `least`, or below the K-th key, is
 * left out. */
template <class F>
HIPK_DEVICE void select_by_tiles(const select_params &p, const select_row &r, uint32_t least, rest_room &room,
                                 rest_list &best) {
  const lds<uint32_t> lows = room.lows, highs = room.highs;
  const int32_t blocks = r.place.blocks;
  HIPK_ROLLED
  for (int32_t tile = 0; tile < blocks; tile += PICK_TILE) {
    HIPK_ROLLED
    for (int32_t base = tile; base < tile + PICK_TILE && base < blocks; base += WAVE) {
      const int32_t id = base + lane_index();
      place_range range = {};
      if (id < blocks) range = range_at(p, r, id);
      const bool in = id < blocks && range.high >= least;
      uint64_t unsure = ballot(in && range.low != range.high);
      lows[base - tile + lane_index()] = in ? range.high : 0u;
      highs[base - tile + lane_index()] = in ? 1u : 0u;
      wave_sync();
      while (unsure) {
        const int32_t open = base + lowest_bit(unsure);
        unsure &= unsure - 1;
        const uint32_t place = place_of_block<F>(p, r, open, room);
        if (lane_index() == 0) lows[open - tile] = place;
        wave_sync();
      }
    }
    wave_sync();
    best.offer(blocks - tile,
               [&](int i) { return highs[i] ? key_at(lows[i], tile + i, p.select.pick.contract) : uint64_t{0}; });
    if (best.held == p.select.pick.width) {
      const uint32_t last = static_cast<uint32_t>(best.keys[p.select.pick.topk - 1] >> 32);
      least = last > least ? last : least;
    }
    wave_sync();
  }
}

template <class F> HIPK_DEVICE void select_rest(const select_params &p, int32_t pick, rest_room &room) {
  const select_row r = interval_row(p.prefill, pick);
  rest_list best;
  best.begin(room.keys, p.select.pick.width);
  const uint32_t least = kth_place(p, r, best);
  const int count = list_all(p, r, least, room);
  room.staged = false;
  best.begin(room.keys, p.select.pick.width);
  if (count <= CONTENDERS)
    select_listed<F>(p, r, count, room, best);
  else
    select_by_tiles<F>(p, r, least, room, best);
  best.end();
  write_pick(p.select.pick, best.keys, room.ids, r.head, r.row, r.place);
}

template <m3idx_dtype T> HIPK_KERNEL(PICK_WAVES *WAVE) prefill_select_rest(rest_params rest) {
  using F = chunk_filter<T>;
  HIPK_LDS(uint64_t, keys, PICK_WAVES * rest_list::ROOM);
  HIPK_LDS(int32_t, ids, PICK_WAVES * CONTENDERS);
  HIPK_LDS(uint32_t, lows, PICK_WAVES * CONTENDERS);
  HIPK_LDS(uint32_t, highs, PICK_WAVES * CONTENDERS);
  HIPK_LDS(float, q, PICK_WAVES *F::DIM);
  HIPK_LDS(float, dots, PICK_WAVES *DOT_PITCH);
  const int wave = wave_index();
  const int64_t first = (static_cast<int64_t>(group_index()) * PICK_WAVES + wave) * rest.each,
                pick = first + lane_index();
  bool mine = lane_index() < rest.each && pick < picks_of(rest.p.prefill);
  if (mine && !rest.all) mine = global(rest.p.prefill.left)[pick] != 0;
  uint64_t todo = ballot(mine);
  if (!todo) return;
  rest_room room = {keys + wave * rest_list::ROOM,
                    ids + wave * CONTENDERS,
                    lows + wave * CONTENDERS,
                    highs + wave * CONTENDERS,
                    q + wave * F::DIM,
                    dots + wave * DOT_PITCH,
                    0,
                    false};
  HIPK_ROLLED
  do {
    select_rest<F>(reread(rest).p, static_cast<int32_t>(first) + lowest_bit(todo), room);
    todo &= todo - 1;
    wave_sync();
  } while (todo);
}

struct rest_launch {
  const hipk_launch *at;
  const rest_params &p;
  int64_t groups;
  template <m3idx_dtype T> void run() const {
    launch(prefill_select_rest<T>, groups, PICK_WAVES * WAVE, at->stream, p);
  }
};
void launch_select_rest(const hipk_launch *at, const select_params &p, bool all, m3idx_dtype k) {
  const rest_params rest = {p, all, all ? 1 : SPARSE_ROWS};
  const int64_t rows = PICK_WAVES * rest.each;
  by_matrix_format(k, rest_launch{at, rest, (int64_t{picks_of(p.prefill)} + rows - 1) / rows});
}

} // namespace hipk
