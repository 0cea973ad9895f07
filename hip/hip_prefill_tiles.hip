/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill scores on the matrix cores (S3, S8.5), exact.
 *
 * A workgroup owns a tile of query rows and a range of blocks.  A wave keeps the codes of its rows in registers for
 * the whole loop; keys pass through group memory, half a block at a time, in a ring of halves: while one half is
 * multiplied the next is on its way, and both halves of a block are still there when it is settled.  Of a half's
 * approximate dots each row keeps the largest and which tokens the bound (hip_bound.h) does not exclude: the
 * candidates.  When both halves are known, the lanes that share a row evaluate them in binary64, from the same
 * registers and group memory, in as many rounds as there are candidates.  What binary64 cannot round, or what is not
 * tame (hip_prefill.h), is written as open and settled by a later launch.
 *
 * A product of two bf16 numbers has 16 significant bits, so binary32 holds it unless it underflows, which needs a
 * product that 2^-149 does not divide.
 */
#include "hip_by_format.h"
#include "hip_prefill.h"
#include "hip_prefill_tile.h"

namespace hipk {

constexpr int HALF_UNITS = HALF_TOKENS * MATRIX_UNITS;
template <bool Exact> constexpr int RING = Exact ? 3 : 2; /* halves of a block: exact dots want both again */

/* Eight codes of a format whose numbers are bf16 numbers, as bf16. */
template <m3idx_dtype T> HIPK_DEVICE u32x4 as_bf16(const chunk<T> &raw) {
  if constexpr (T == M3IDX_BF16) {
    return raw;
  } else {
    float x[CHUNK];
    decode_chunk<T>(raw, x);
    const auto pair = [](float low, float high) { return float_bits(low) >> 16 | (float_bits(high) & 0xffff0000u); };
    return u32x4{pair(x[0], x[1]), pair(x[2], x[3]), pair(x[4], x[5]), pair(x[6], x[7])};
  }
}

/* Half a block of keys on its way into group memory. */
template <m3idx_dtype T, int Threads> struct key_stage {
  static constexpr int EACH = HALF_UNITS / Threads;
  static constexpr bool ASYNC = ASYNC_COPY && T == M3IDX_BF16;
  chunk<T> raw[ASYNC ? 1 : EACH];

  static HIPK_DEVICE int token(int i) { return (i * Threads + thread_index()) / MATRIX_UNITS; }
  static HIPK_DEVICE int unit(int) { return thread_index() % MATRIX_UNITS; } /* Threads is a multiple of 16 */

  HIPK_DEVICE void begin(const score_view &v, gptr<const unsigned char> page, int half, lds<u32x4> to) {
    const int64_t token_bytes = v.k_stride_token * bytes_of(T), from = half * HALF_TOKENS * token_bytes;
    HIPK_UNROLL
    for (int i = 0; i < EACH; i++) {
      const int64_t byte = from + token(i) * token_bytes + unit(i) * CHUNK * bytes_of(T);
      if constexpr (ASYNC)
        copy_async(to + matrix_place(token(i), unit(i)), page, byte);
      else
        raw[i] = load<chunk<T>>(page, byte);
    }
  }
  /* The half is in place for this lane; for the others after a barrier. */
  HIPK_DEVICE void land(lds<u32x4> to) {
    if constexpr (ASYNC) {
      copies_done();
    } else {
      HIPK_UNROLL
      for (int i = 0; i < EACH; i++) to[matrix_place(token(i), unit(i))] = as_bf16<T>(raw[i]);
    }
  }
};

/* What a lane knows of the wave's rows. */
struct tile_rows {
  roles::query codes[FRAGMENTS][STEPS];
  float norm[SLOTS];
  int32_t first, keys_first, seq_len; /* row 0 of the wave in the tile; keys that it sees if nothing limits them */
  norm_grid own;                      /* of the row whose score this lane writes */
};

HIPK_DEVICE int32_t keys_of(const tile_rows &r, int row) {
  return r.keys_first + row < r.seq_len ? r.keys_first + row : r.seq_len;
}

using half_acc = matrix_acc[FRAGMENTS][HALF_TILES];

/* Dots of the wave's rows with half a block. */
HIPK_DEVICE void multiply(const tile_rows &r, lds<u32x4> keys, half_acc &acc) {
  HIPK_UNROLL
  for (int f = 0; f < FRAGMENTS; f++) {
    HIPK_UNROLL
    for (int k = 0; k < HALF_TILES; k++) acc[f][k] = matrix_acc{};
  }
  HIPK_UNROLL
  for (int unit = 0; unit < LANE_UNITS; unit++) {
    HIPK_UNROLL
    for (int k = 0; k < HALF_TILES; k++) {
      HIPK_UNROLL
      for (int step = unit * matrix::UNIT_STEPS; step < (unit + 1) * matrix::UNIT_STEPS; step++) {
        const roles::key key = roles::load_key(keys, k * roles::KEYS, step);
        HIPK_UNROLL
        for (int f = 0; f < FRAGMENTS; f++) roles::step(r.codes[f][step], key, acc[f][k]);
      }
    }
  }
}

/* Accumulator i of a slot, i < HALF_LANE_TOKENS. */
HIPK_DEVICE float dot_of(const half_acc &acc, int slot, int i) {
  return acc[slot / roles::SUBS][i / roles::EACH].v[roles::element(slot % roles::SUBS, i % roles::EACH)];
}
HIPK_DEVICE void drop_dot(half_acc &acc, int slot, int i) {
  acc[slot / roles::SUBS][i / roles::EACH].v[roles::element(slot % roles::SUBS, i % roles::EACH)] =
      bits_float(BITS_MINUS_INF);
}

/* This lane's share of the dot of a slot's row with a key, in binary64. */
HIPK_DEVICE double share_of_dot(const tile_rows &r, int slot, lds<u32x4> keys, int token) {
  double low = 0, high = 0;
  HIPK_UNROLL
  for (int i = 0; i < LANE_UNITS; i++) {
    const u32x4 unit = keys[matrix_place(token, roles::unit_of(i))];
    const uint32_t words[4] = {unit.x, unit.y, unit.z, unit.w};
    HIPK_UNROLL
    for (int w = 0; w < 4; w++) {
      const roles::query &codes = r.codes[slot / roles::SUBS][i * matrix::UNIT_STEPS + w / roles::WORDS];
      const uint32_t q = roles::query_word(codes, slot % roles::SUBS, w % roles::WORDS), k = words[w];
      low += static_cast<double>(bits_float(q << 16) * bits_float(k << 16));
      high += static_cast<double>(bits_float(q & 0xffff0000u) * bits_float(k & 0xffff0000u));
    }
  }
  return low + high;
}

/* The largest dot, in binary64, rounded; open if that is not certain. */
HIPK_DEVICE uint32_t round_dot(double sum, const norm_grid &row, const norm_grid &block) {
  const double error = error_of_sum(row, block);
  const float low = static_cast<float>(sum - error), high = static_cast<float>(sum + error);
  return low == high ? float_bits(low) : BITS_OPEN;
}

HIPK_DEVICE bool is_tame(float row_norm, const norm_grid &block) { return row_norm * block.norm < 0x1p100f; }

/* What a lane knows of a block's dots, of each slot. */
struct block_rows {
  float best[SLOTS];      /* the largest dot of the row, in all its lanes */
  token_mask near[SLOTS]; /* what may hold the largest exact dot: a bit a token of this lane, or a group of EACH */
};

/* One bit for each number that is not below `least`: signs of differences, shifted in from the last on. */
template <int Count, class Number> HIPK_DEVICE token_mask not_below(float least, Number number) {
  static_assert(Count <= 32, "one word");
  uint32_t below = 0;
  HIPK_UNROLL
  for (int i = Count - 1; i >= 0; i--) below = below << 1 | float_bits(number(i) - least) >> 31;
  return ~below & (Count < 32 ? (1u << Count % 32) - 1 : ~0u);
}

/* Take in the dots of half a block; what a row does not see becomes -inf.  Half 0 is judged by its own largest dot, so
 * that it may keep more than both together would. */
template <bool Exact, int Half>
HIPK_DEVICE void take_half(const prefill_view &v, const tile_rows &r, int32_t block, bool whole, const norm_grid &norm,
                           half_acc &acc, block_rows &rows) {
  const block_bound bound = bound_of_block(v.bound, norm.norm);
  HIPK_UNROLL
  for (int s = 0; s < SLOTS; s++) {
    if (!whole) {
      const int visible = keys_of(r, r.first + roles::row_of(s)) - block * TILE_TOKENS;
      HIPK_UNROLL
      for (int i = 0; i < HALF_LANE_TOKENS; i++)
        if (roles::token_of(Half * HALF_LANE_TOKENS + i) >= visible) drop_dot(acc, s, i);
    }
    float group[HALF_TILES], best = bits_float(BITS_MINUS_INF);
    HIPK_UNROLL
    for (int k = 0; k < HALF_TILES; k++) {
      group[k] = dot_of(acc, s, k * roles::EACH);
      HIPK_UNROLL
      for (int i = 1; i < roles::EACH; i++) group[k] = larger(group[k], dot_of(acc, s, k * roles::EACH + i));
      best = larger(best, group[k]);
    }
    best = roles::over_team(best, [](float a, float b) { return larger(a, b); });
    if (Half == 1) best = larger(best, rows.best[s]);
    float least = least_of(bound, best, r.norm[s]);
    /* A row that sees nothing of the block, and what is left open anyway, have no candidates. */
    if (!is_tame(r.norm[s], norm) || best == bits_float(BITS_MINUS_INF)) least = bits_float(BITS_INF);
    if (Half == 0 || rows.best[s] < least) rows.near[s] = 0;
    rows.best[s] = best;
    if constexpr (Exact)
      rows.near[s] |= not_below<HALF_LANE_TOKENS>(least, [&](int i) { return dot_of(acc, s, i); })
                      << Half * HALF_LANE_TOKENS;
    else if (!v.bare)
      rows.near[s] |= not_below<HALF_TILES>(least, [&](int k) { return group[k]; }) << Half * HALF_TILES;
  }
}

/* The largest exact dot of the candidates of the row that this lane writes. */
HIPK_DEVICE double exact_dot(const tile_rows &r, lds<u32x4> ring, int half0, int half1, token_mask (&mask)[SLOTS]) {
  double best = -0x1p1023;
  const auto some = [&] {
    token_mask any = 0;
    HIPK_UNROLL
    for (int s = 0; s < SLOTS; s++) any |= mask[s];
    return ballot(any != 0) != 0;
  };
  do { /* every row has a candidate, few have two */
    double sum[SLOTS];
    bool counts = false;
    HIPK_UNROLL
    for (int s = 0; s < SLOTS; s++) {
      const int mine = mask[s] ? roles::token_of(lowest_bit(mask[s])) : TILE_TOKENS;
      const int token = roles::over_team(mine, [](int a, int b) { return a < b ? a : b; });
      if (mine == token) mask[s] &= mask[s] - 1;
      if (s == roles::own_slot()) counts = token < TILE_TOKENS;
      const int row = token % HALF_TOKENS + (token & HALF_TOKENS ? half1 : half0);
      sum[s] = share_of_dot(r, s, ring, row);
    }
    const double own = roles::fold(sum);
    if (counts && own > best) best = own;
  } while (some());
  return best;
}

/* Write the block's numbers of the wave's rows; its halves begin at rows half0 and half1 of the ring. */
template <bool Exact>
HIPK_DEVICE void finish_block(const prefill_view &v, const prefill_tile &t, int32_t head, const tile_rows &r,
                              int32_t block, const norm_grid &norm, lds<u32x4> ring, int half0, int half1,
                              block_rows &rows) {
  uint32_t bits = BITS_OPEN;
  if constexpr (Exact) {
    const double sum = exact_dot(r, ring, half0, half1, rows.near);
    if (is_tame(r.own.norm, norm) && r.own.grid + norm.grid >= -149) bits = round_dot(sum, r.own, norm);
  } else {
    HIPK_UNROLL
    for (int s = 0; s < SLOTS; s++) {
      uint32_t kept = float_bits(rows.best[s]);
      if (!v.bare) {
        const uint32_t near = static_cast<uint32_t>(rows.near[s]);
        kept = with_groups(rows.best[s], roles::over_team(near, [](uint32_t a, uint32_t b) { return a | b; }));
      }
      if (s == roles::own_slot() && is_tame(r.own.norm, norm)) bits = kept;
    }
  }
  const int32_t row = r.first + roles::row_of(roles::own_slot());
  if (bits != BITS_OPEN && Exact) {
    const float x = v.s.scale == 1.0f ? bits_float(bits) : bits_float(bits) * v.s.scale;
    bits = x == 0 ? 0 : float_bits(x); /* S3.4 */
  }
  if (keys_of(r, row) <= block * TILE_TOKENS) bits = BITS_MINUS_INF;
  if (!roles::writes() || row >= t.rows.end - t.rows.begin) return;
  score_of(v, head, t.rows.begin + row)[block] = bits_float(bits);
  if (Exact && bits == BITS_OPEN) raise(global(v.open));
}

/* The wave's rows into registers, by way of the ring. */
template <int Waves>
HIPK_DEVICE void load_rows(const prefill_view &v, const prefill_tile &t, int32_t head, lds<u32x4> ring, tile_rows &r) {
  const int64_t base = static_cast<int64_t>(head) * (v.end - v.begin) + (t.rows.begin - v.begin);
  const int rows = t.rows.end - t.rows.begin;
  const gptr<const unsigned char> queries = global(reinterpret_cast<const unsigned char *>(v.queries));
  for (int i = thread_index(); i < Waves * WAVE_ROWS * MATRIX_UNITS; i += Waves * WAVE) {
    const int row = i / MATRIX_UNITS, unit = i % MATRIX_UNITS;
    u32x4 codes = u32x4{};
    if (row < rows) codes = load<u32x4>(queries, (base * MATRIX_UNITS + i) * static_cast<int64_t>(sizeof codes));
    ring[matrix_place(row, unit)] = codes;
  }
  r.first = wave_index() * WAVE_ROWS;
  r.seq_len = t.seq_len;
  r.keys_first = static_cast<int32_t>(t.position) + 1;
  const gptr<const norm_grid> norms = global(static_cast<const norm_grid *>(v.rows));
  r.own = norm_grid{0, 0};
  HIPK_UNROLL
  for (int s = 0; s < SLOTS; s++) {
    const int row = r.first + roles::row_of(s);
    norm_grid norm = {bits_float(BITS_INF), 0}; /* of no row: not tame, so it costs no exact dot */
    if (row < rows) norm = norms[base + row];
    r.norm[s] = norm.norm;
    if (s == roles::own_slot()) r.own = norm;
  }
  barrier();
  HIPK_UNROLL
  for (int f = 0; f < FRAGMENTS; f++) {
    HIPK_UNROLL
    for (int step = 0; step < STEPS; step++)
      r.codes[f][step] = roles::load_query(ring, r.first + f * roles::QUERIES, step);
  }
  barrier(); /* the ring is free */
}

template <m3idx_dtype T, int Waves, bool Exact>
HIPK_MATRIX_KERNEL(Waves *WAVE, 8 / Waves, !Exact)
prefill_tiles(prefill_view v) {
  HIPK_LDS(u32x4, ring, RING<Exact> * HALF_UNITS);
  const prefill_group g = group_of(v);
  const prefill_tile t = place_tile(v, g.tile);
  if (t.rows.begin == t.rows.end) return;
  fill_columns(v, t, g, Waves * WAVE);
  const m3idx_range part = m3idx_score_part(t.blocks, v.splits, g.split);
  if (part.begin == part.end) return;
  tile_rows r;
  load_rows<Waves>(v, t, g.head, ring, r);

  const gptr<const norm_grid> norms =
      global(static_cast<const norm_grid *>(v.blocks)) + static_cast<int64_t>(t.request) * v.s.max_block;
  key_stage<T, Waves * WAVE> stage;
  gptr<const unsigned char> page = prefill_page(v.s, t.request, part.begin);
  int slot = 0;
  stage.begin(v.s, page, 0, ring);
  HIPK_ROLLED
  for (int32_t block = part.begin; block < part.end; block++) {
    const bool whole = t.position + 1 >= static_cast<int64_t>(block + 1) * TILE_TOKENS;
    half_acc acc;
    block_rows rows;
    const norm_grid norm = norms[block];
    const int half0 = slot * HALF_TOKENS;
    stage.land(ring + half0 * MATRIX_UNITS);
    barrier();
    slot = slot + 1 < RING<Exact> ? slot + 1 : 0;
    const int half1 = slot * HALF_TOKENS;
    stage.begin(v.s, page, 1, ring + half1 * MATRIX_UNITS);
    multiply(r, ring + half0 * MATRIX_UNITS, acc);
    take_half<Exact, 0>(v, r, block, whole, norm, acc, rows);

    stage.land(ring + half1 * MATRIX_UNITS);
    barrier();
    slot = slot + 1 < RING<Exact> ? slot + 1 : 0;
    if (block + 1 < part.end) {
      page = prefill_page(v.s, t.request, block + 1);
      stage.begin(v.s, page, 0, ring + slot * HALF_UNITS);
    }
    multiply(r, ring + half1 * MATRIX_UNITS, acc);
    take_half<Exact, 1>(v, r, block, whole, norm, acc, rows);
    finish_block<Exact>(v, t, g.head, r, block, norm, ring, half0, half1, rows);
  }
}

struct tiles_launch {
  const hipk_launch *at;
  const prefill_view &v;
  bool exact;
  template <m3idx_dtype T> void run() const {
    const int64_t groups = static_cast<int64_t>(v.tiles) * v.s.heads * v.splits;
    const int threads = v.block_q / WAVE_ROWS * WAVE;
    constexpr int SMALL = 64 / WAVE_ROWS, LARGE = 128 / WAVE_ROWS;
    if (v.block_q == 128)
      launch(exact ? prefill_tiles<T, LARGE, true> : prefill_tiles<T, LARGE, false>, groups, threads, at->stream, v);
    else
      launch(exact ? prefill_tiles<T, SMALL, true> : prefill_tiles<T, SMALL, false>, groups, threads, at->stream, v);
  }
};
void launch_tiles(const hipk_launch *at, const prefill_view &v, bool exact, m3idx_dtype k) {
  by_matrix_format(k, tiles_launch{at, v, exact});
}

} // namespace hipk
