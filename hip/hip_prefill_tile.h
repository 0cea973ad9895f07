/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds what while a wave multiplies its queries with keys: which operand is which, so that a lane's
 * accumulators belong to few queries and many keys, and how the TEAM lanes that share a query work together.  A lane
 * serves SLOTS queries; bit i of a mask stands for the i-th accumulator of a slot, in the order of hip_layout.h.
 */
#ifndef M3IDX_HIP_PREFILL_TILE_H
#define M3IDX_HIP_PREFILL_TILE_H

#include "hip_arch.h"

namespace hipk {

/* 32 rows a wave: with 16 and twice the waves, keys are read from group memory twice as often, and that costs more than
 * the waves hide (docs/SILICON.md). */
constexpr int WAVE_ROWS = 32, TILE_TOKENS = 128, HALF_TOKENS = TILE_TOKENS / 2, STEPS = MATRIX_DIM / matrix::K;

/* Waves of 64: keys are rows of the accumulators, queries columns; lanes l and l + 32 share a query. */
struct wide_roles {
  using query = matrix_b;
  using key = matrix_a;
  static constexpr int QUERIES = 32, KEYS = 32;             /* of a fragment */
  static constexpr int SUBS = 1, TEAM_LANES = 2, EACH = 16; /* slots of a query fragment; its accumulators of a slot */
  static constexpr int WORDS = 4;                           /* of two codes, that a lane holds of a query and step */
  static HIPK_DEVICE query load_query(lds<u32x4> rows, int row, int step) { return load_b(rows, row, step); }
  static HIPK_DEVICE key load_key(lds<u32x4> rows, int row, int step) { return load_a(rows, row, step); }
  static HIPK_DEVICE void step(const query &q, const key &k, matrix_acc &acc) { matrix_step(k, q, acc); }
  static HIPK_DEVICE int row_of(int) { return lane_index() % 32; }
  static constexpr int element(int, int i) { return i; }
  static HIPK_DEVICE int token_of(int bit) { return bit / 4 * 8 + bit % 4 + lane_index() / 32 * 4; }
  static HIPK_DEVICE uint32_t query_word(const query &q, int, int w) { return fragment_word(q, w); }
  static HIPK_DEVICE int unit_of(int i) { return 2 * i + lane_index() / 32; }
  template <class T, class Pick> static HIPK_DEVICE T over_team(T x, Pick pick) { return pick(x, shuffle_xor<32>(x)); }
  /* Sum each slot over its team; the sum of slot own_slot() is returned. */
  static HIPK_DEVICE double fold(const double (&x)[1]) { return x[0] + shuffle_xor<32>(x[0]); }
  static HIPK_DEVICE int own_slot() { return 0; }
  static HIPK_DEVICE bool writes() { return lane_index() < 32; }
};

/* Waves of 32: queries are rows, keys columns; the four lanes of a quad share the queries q and q + 8 of a fragment. */
struct narrow_roles {
  using query = matrix_a;
  using key = matrix_b;
  static constexpr int QUERIES = 16, KEYS = 16, SUBS = 2, TEAM_LANES = 4, EACH = 4, WORDS = 2;
  static HIPK_DEVICE query load_query(lds<u32x4> rows, int row, int step) { return load_a(rows, row, step); }
  static HIPK_DEVICE key load_key(lds<u32x4> rows, int row, int step) { return load_b(rows, row, step); }
  static HIPK_DEVICE void step(const query &q, const key &k, matrix_acc &acc) { matrix_step(q, k, acc); }
  static HIPK_DEVICE int row_of(int slot) { return slot * 8 + lane_index() / 4; }
  static constexpr int element(int sub, int i) { return 2 * sub + i % 2 + i / 2 * 4; }
  static HIPK_DEVICE int token_of(int bit) { return bit / 2 * 8 + bit % 2 + lane_index() % 4 * 2; }
  static HIPK_DEVICE uint32_t query_word(const query &q, int sub, int w) { return fragment_word(q, sub + 2 * w); }
  static HIPK_DEVICE int unit_of(int i) { return 4 * i + lane_index() % 4; }
  template <class T, class Pick> static HIPK_DEVICE T over_team(T x, Pick pick) {
    x = pick(x, shuffle_xor<1>(x));
    return pick(x, shuffle_xor<2>(x));
  }
  static HIPK_DEVICE double fold(const double (&x)[4]) {
    const bool upper = (lane_index() & 2) != 0, odd = (lane_index() & 1) != 0;
    const double low = (upper ? x[2] : x[0]) + shuffle_xor<2>(upper ? x[0] : x[2]);
    const double high = (upper ? x[3] : x[1]) + shuffle_xor<2>(upper ? x[1] : x[3]);
    return (odd ? high : low) + shuffle_xor<1>(odd ? low : high);
  }
  static HIPK_DEVICE int own_slot() { return lane_index() % 4; }
  static HIPK_DEVICE bool writes() { return true; }
};

template <int Wave> struct roles_of;
template <> struct roles_of<64> { using type = wide_roles; };
template <> struct roles_of<32> { using type = narrow_roles; };
using roles = roles_of<WAVE>::type;

constexpr int FRAGMENTS = WAVE_ROWS / roles::QUERIES, SLOTS = FRAGMENTS * roles::SUBS;
constexpr int KEY_TILES = TILE_TOKENS / roles::KEYS, LANE_TOKENS = TILE_TOKENS / roles::TEAM_LANES;
constexpr int HALF_TILES = KEY_TILES / 2, HALF_LANE_TOKENS = LANE_TOKENS / 2; /* of half a block */
/* Units of 16 bytes that a lane holds of a query's row, and of a key's in the same places. */
constexpr int LANE_UNITS = MATRIX_UNITS / roles::TEAM_LANES;

/* One bit for each of a lane's tokens of a slot. */
template <int Bits> struct mask_of { using type = uint64_t; };
template <> struct mask_of<32> { using type = uint32_t; };
using token_mask = mask_of<LANE_TOKENS>::type;

} // namespace hipk

#endif
