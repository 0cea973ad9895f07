/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused prefill selection (S4): a wave a row, from exact scores or from ranges (hip_prefill_range.h).
 *
 * From ranges it takes two sweeps over a row's maxima.  The first keeps each lane's largest lower place; K lanes reach
 * the K-th largest of them, so it will do for a bound.  The second lists what reaches that: two dozen blocks, whatever
 * the row's length.  Counting how many of these are surely before and surely after each one gives the places of all
 * whose ranges meet none, and shows who is to be evaluated: in binary64, all tokens at once that can hold the maximum.
 *
 * Rows where that is not enough are left to hip_prefill_rest.hip: a list that overflows, a block whose maximum is not
 * known (hip_prefill.h), and a sum that binary64 does not round with certainty.  So this kernel needs few registers,
 * and a multiprocessor holds many of its waves.
 */
#include "hip_by_format.h"
#include "hip_filter.h"
#include "hip_prefill_range.h"

namespace hipk {

constexpr int PICK_TILE = 128;
constexpr int SHORT_TOPK = 16, LIST = 64, LIST_EACH = LIST / WAVE; /* SHORT_TOPK: half the lanes or fewer */
constexpr int STRIP = 256 / WAVE;           /* blocks of a lane whose loads are under way at once */
constexpr int KEY_PARTS = MATRIX_UNITS / 2; /* units of a key that each of two lanes takes */

/* From exact scores. */
HIPK_KERNEL(PICK_WAVES *WAVE) prefill_select_exact(select_params p) {
  using list = best_list<PICK_TILE, MAX_TOPK>;
  HIPK_LDS(uint64_t, keys, PICK_WAVES * list::ROOM);
  HIPK_LDS(int32_t, ids, PICK_WAVES * MAX_TOPK);
  const int64_t pick = static_cast<int64_t>(group_index()) * PICK_WAVES + wave_index();
  if (pick >= picks_of(p.prefill)) return;
  const select_row r = place_pick(p.prefill, static_cast<int32_t>(pick));
  const select_view &v = p.select;
  list best;
  best.begin(keys + wave_index() * list::ROOM, v.pick.width);
  HIPK_ROLLED
  for (int32_t tile = 0; tile < r.place.blocks; tile += PICK_TILE)
    best.offer(r.place.blocks - tile, [&](int i) {
      const int32_t id = tile + i;
      return block_key(forced_bits(float_bits(r.score[id]), id, r.place.blocks, v.forced), id, v.pick.contract);
    });
  best.end();
  write_pick(v.pick, best.keys, ids + wave_index() * MAX_TOPK, r.head, r.row, r.place);
}

/* each(id, range) for the row's blocks, a lane each; with id < 0 past the last.  All lanes come together. */
template <class Each> HIPK_DEVICE void sweep(const select_params &p, const select_row &r, Each each) {
  HIPK_ROLLED
  for (int32_t base = 0; base < r.place.blocks; base += STRIP * WAVE) {
    uint32_t bits[STRIP];
    float norm[STRIP];
    HIPK_UNROLL
    for (int i = 0; i < STRIP; i++) {
      const int32_t id = base + i * WAVE + lane_index();
      bits[i] = 0;
      norm[i] = 0;
      if (id < r.place.blocks) {
        const norm_grid block = r.norms[id];
        bits[i] = float_bits(r.score[id]);
        norm[i] = block.norm;
      }
    }
    HIPK_UNROLL
    for (int i = 0; i < STRIP; i++) {
      const int32_t id = base + i * WAVE + lane_index();
      each(id < r.place.blocks ? id : -1, range_of(p, r, bits[i], norm[i], id));
    }
  }
}

/* A place that K lower places reach, for more than K blocks.  Of two equal lanes the last bits tell which is first. */
HIPK_DEVICE uint32_t reached_place(const select_params &p, const select_row &r, lds<uint32_t> peaks) {
  uint32_t peak = 0;
  sweep(p, r, [&](int32_t id, const place_range &range) { peak = id >= 0 && range.low > peak ? range.low : peak; });
  peak = (peak & ~static_cast<uint32_t>(WAVE - 1)) | static_cast<uint32_t>(lane_index());
  peaks[lane_index()] = peak;
  wave_sync();
  int before = 0;
  HIPK_UNROLL
  for (int i = 0; i < WAVE; i++) before += peaks[i] > peak;
  const uint64_t last = ballot(before == p.select.pick.topk - 1);
  wave_sync();
  return shuffle(peak, lowest_bit(last)) & ~static_cast<uint32_t>(WAVE - 1);
}

/* The row's contenders, in group memory. */
struct contenders {
  lds<int32_t> ids;
  lds<uint32_t> lows, highs;
  int count; /* more than LIST: not all of them are here */
};

HIPK_DEVICE void list_contenders(const select_params &p, const select_row &r, uint32_t least, contenders &c) {
  const uint64_t lanes_below = (uint64_t{1} << lane_index()) - 1;
  c.count = 0;
  sweep(p, r, [&](int32_t id, const place_range &range) {
    const bool in = id >= 0 && range.high >= least;
    const uint64_t all = ballot(in);
    const int at = c.count + count_bits(all & lanes_below);
    if (in && at < LIST) {
      c.ids[at] = id;
      c.lows[at] = range.low;
      c.highs[at] = range.high;
    }
    c.count += count_bits(all);
  });
  wave_sync();
}

/* One bit for each contender, and what a lane knows of its own ones, lane + WAVE i. */
struct standing {
  uint64_t kept, mixed; /* can be selected; its range meets another's */
  int before[LIST_EACH];
};

/* Those that are surely before and after each contender, counted. */
HIPK_DEVICE standing compare(const contenders &c, int topk) {
  standing s = {};
  HIPK_UNROLL
  for (int e = 0; e < LIST_EACH; e++) {
    const int mine = e * WAVE + lane_index();
    s.before[e] = 0;
    if (e * WAVE >= c.count) break;
    const int own = mine < c.count ? mine : 0;
    const uint32_t low = c.lows[own], high = c.highs[own];
    int after = 0;
    HIPK_UNROLL_4
    for (int i = 0; i < c.count; i++) {
      s.before[e] += c.lows[i] > high;
      after += c.highs[i] < low;
    }
    const bool kept = mine < c.count && s.before[e] < topk;
    s.kept |= ballot(kept) << e * WAVE;
    s.mixed |= ballot(kept && s.before[e] + after + 1 < c.count) << e * WAVE;
  }
  return s;
}

/* What is read of a block before it is evaluated. */
struct open_block {
  uint32_t bits;
  int32_t page;
  norm_grid norm;
};

HIPK_DEVICE open_block look_up(const select_params &p, const select_row &r, int32_t id) {
  const score_view &v = p.prefill.s;
  return {float_bits(r.score[id]), global(v.block_table)[r.place.request * v.block_table_stride + id], r.norms[id]};
}

/* The one that contender `at` has. */
template <class T> HIPK_DEVICE T of_contender(const T (&own)[LIST_EACH], int at) {
  T x = shuffle(own[0], at & (WAVE - 1));
  HIPK_UNROLL
  for (int e = 1; e < LIST_EACH; e++) {
    const T other = shuffle(own[e], at & (WAVE - 1));
    if (at >= e * WAVE) x = other;
  }
  return x;
}

/* The place of block `id`, whose largest dot is among the tokens of its groups, into `place`; false if binary64 does
 * not tell.  Two lanes share a token, q holds the row.  Products are exact. */
template <m3idx_dtype T>
HIPK_DEVICE bool evaluate(const select_params &p, const select_row &r, int32_t id, const open_block &block,
                          lds<double> q, uint32_t &place) {
  const score_view &v = p.prefill.s;
  const gptr<const unsigned char> page =
      global(static_cast<const unsigned char *>(v.keys)) + block.page * (v.k_stride_page * bytes_of(T));
  const double error = error_of_sum(r.norm, block.norm);
  const int tokens = r.place.keys - id * PREFILL_BLOCK, part = lane_index() % 2;
  float low = bits_float(BITS_MINUS_INF), high = low;
  HIPK_ROLLED
  for (uint32_t groups = groups_of(block.bits); groups; groups &= groups - 1) {
    const int token = lowest_bit(groups) * MATRIX_GROUP + lane_index() / 2;
    chunk<T> raw[KEY_PARTS];
    HIPK_UNROLL
    for (int c = 0; c < KEY_PARTS; c++) {
      raw[c] = chunk<T>{};
      if (token < tokens)
        raw[c] = load<chunk<T>>(page, (token * v.k_stride_token + (2 * c + part) * CHUNK) * bytes_of(T));
    }
    uint32_t own = static_cast<uint32_t>(part * CHUNK);
    forget(own); /* else the row's queries fill the registers before the loop */
    double sum[4] = {};
    HIPK_UNROLL
    for (int c = 0; c < KEY_PARTS; c++) {
      float key[CHUNK];
      decode_chunk<T>(raw[c], key);
      HIPK_UNROLL
      for (int e = 0; e < CHUNK; e++)
        sum[e % 4] = fused(static_cast<double>(q[static_cast<int>(own) + 2 * c * CHUNK + e]),
                           static_cast<double>(key[e]), sum[e % 4]);
    }
    double dot = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    dot += shuffle_xor<1>(dot);
    if (token < tokens) {
      low = larger(low, static_cast<float>(dot - error));
      high = larger(high, static_cast<float>(dot + error));
    }
  }
  low = wave_max(low);
  high = wave_max(high);
  place = place_of_score(v.scale == 1.0f ? low : low * v.scale);
  return low == high;
}

/* The row's queries in binary64. */
HIPK_DEVICE void load_query(const prefill_view &v, int32_t pick, lds<double> q) {
  if (lane_index() < MATRIX_UNITS) {
    float x[CHUNK];
    decode_chunk<M3IDX_BF16>(
        load<u32x4>(global(reinterpret_cast<const unsigned char *>(v.queries)),
                    (static_cast<int64_t>(pick) * MATRIX_UNITS + lane_index()) * static_cast<int64_t>(sizeof(u32x4))),
        x);
    HIPK_UNROLL
    for (int e = 0; e < CHUNK; e++) q[lane_index() * CHUNK + e] = static_cast<double>(x[e]);
  }
  wave_sync();
}

/* Where ranges meet: evaluates what must be, then counts keys.  False if something stays unknown. */
template <m3idx_dtype T>
HIPK_DEVICE bool settle(const select_params &p, const select_row &r, const contenders &c, lds<double> q, standing &s) {
  const m3idx_contract contract = p.select.pick.contract;
  if (contract.order != M3IDX_ORDER_ID || count_bits(s.kept) > p.select.pick.topk) {
    uint64_t unsure = 0;
    uint32_t bits[LIST_EACH];
    int32_t page[LIST_EACH], grid[LIST_EACH];
    float norm[LIST_EACH];
    HIPK_UNROLL
    for (int e = 0; e < LIST_EACH; e++) {
      const int mine = e * WAVE + lane_index();
      bool meets = false;
      open_block own = {};
      if (s.mixed >> mine & 1) {
        const uint32_t low = c.lows[mine], high = c.highs[mine];
        HIPK_UNROLL_4
        for (int i = 0; i < c.count; i++)
          meets = meets || (i != mine && (s.kept >> i & 1) && low <= c.highs[i] && c.lows[i] <= high);
        meets = meets && low != high;
        if (meets) own = look_up(p, r, c.ids[mine]); /* all lanes' at once */
      }
      unsure |= ballot(meets) << e * WAVE;
      if (ballot(meets && own.bits == BITS_OPEN)) return false;
      bits[e] = own.bits;
      page[e] = own.page;
      norm[e] = own.norm.norm;
      grid[e] = own.norm.grid;
    }
    if (unsure) load_query(p.prefill, r.pick, q);
    while (unsure) {
      const int at = lowest_bit(unsure);
      unsure &= unsure - 1;
      const open_block block = {
          of_contender(bits, at), of_contender(page, at), {of_contender(norm, at), of_contender(grid, at)}};
      uint32_t place;
      if (!evaluate<T>(p, r, c.ids[at], block, q, place)) return false;
      if (lane_index() == 0) c.lows[at] = place;
    }
    wave_sync();
  }
  HIPK_UNROLL
  for (int e = 0; e < LIST_EACH; e++) {
    const int mine = e * WAVE + lane_index();
    s.before[e] = 0;
    if (!(s.kept >> mine & 1)) continue;
    const uint64_t key = key_at(c.lows[mine], c.ids[mine], contract);
    HIPK_UNROLL_4
    for (int i = 0; i < c.count; i++)
      s.before[e] += static_cast<bool>(s.kept >> i & 1) & (key_at(c.lows[i], c.ids[i], contract) > key);
  }
  return true;
}

/* From ranges, K <= SHORT_TOPK.  Held to fewer registers it is slower (docs/SILICON.md). */
template <m3idx_dtype T> HIPK_KERNEL_AT(PICK_WAVES *WAVE, 6) prefill_select(select_params p) {
  HIPK_LDS(uint64_t, all_keys, PICK_WAVES * SHORT_TOPK);
  HIPK_LDS(int32_t, all_ids, PICK_WAVES * LIST);
  HIPK_LDS(uint32_t, all_lows, PICK_WAVES * LIST);
  HIPK_LDS(uint32_t, all_highs, PICK_WAVES * LIST);
  HIPK_LDS(double, all_q, PICK_WAVES *PREFILL_DIM);
  const int wave = wave_index();
  const int64_t pick = static_cast<int64_t>(group_index()) * PICK_WAVES + wave;
  if (pick >= picks_of(p.prefill)) return;
  const select_row r = interval_row(p.prefill, static_cast<int32_t>(pick));
  const pick_view &v = p.select.pick;
  contenders c = {all_ids + wave * LIST, all_lows + wave * LIST, all_highs + wave * LIST, 0};
  list_contenders(p, r, r.place.blocks > v.topk ? reached_place(p, r, c.lows) : 0, c);
  bool left = c.count > LIST;
  standing s = {};
  if (!left) {
    s = compare(c, v.topk);
    if (s.mixed) left = !settle<T>(p, r, c, all_q + wave * PREFILL_DIM, s);
  }
  if (lane_index() == 0) global(p.prefill.left)[pick] = left ? 1 : 0;
  if (left) return;
  const lds<uint64_t> keys = all_keys + wave * SHORT_TOPK;
  if (lane_index() < v.width) keys[lane_index()] = 0;
  wave_sync();
  HIPK_UNROLL
  for (int e = 0; e < LIST_EACH; e++) {
    const int mine = e * WAVE + lane_index();
    if ((s.kept >> mine & 1) && s.before[e] < v.topk) keys[s.before[e]] = key_at(c.lows[mine], c.ids[mine], v.contract);
  }
  wave_sync();
  write_pick(v, keys, c.ids, r.head, r.row, r.place);
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
  const int64_t groups = (static_cast<int64_t>(picks_of(v)) + PICK_WAVES - 1) / PICK_WAVES;
  if (!intervals) return launch(prefill_select_exact, groups, PICK_WAVES * WAVE, at->stream, p);
  const bool few = select.pick.topk <= SHORT_TOPK;
  if (few) by_matrix_format(k, select_launch{at, p, groups});
  launch_select_rest(at, p, !few, k);
}

} // namespace hipk
