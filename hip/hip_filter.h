/* SPDX-License-Identifier: Apache-2.0
 *
 * The cheap half of scoring: approximate dots of a tile of keys with bounded error, in binary32.
 *
 * A filter puts s(row, token) into group memory and the tile's largest |key element| M beside it.  With
 * A = sum |q| of the row, sum |q k| <= A M.  A dot of n products runs through at most L roundings in sequence
 * (fused multiply-adds, then sums over lanes), each relative u = 2^-24, or absolute 2^-150 where a result is
 * subnormal, which at most n do.  So for finite s
 *     |s - exact| <= L u / (1 - L u) A M + n 2^-149 = E.
 * A token that has not s >= max(s) - 2E cannot hold the block's largest dot.  A NaN or infinite s (a special
 * operand, or an overflow) says nothing and is always looked at.  hip_exact.h decides among what remains.
 *
 * chunk_filter  keys in rows of chunks of 8: 16 lanes side by side load one key, L = 8 + 4
 * plain_filter  any strides, formats and block size: a lane is a token, L = dim
 */
#ifndef M3IDX_HIP_FILTER_H
#define M3IDX_HIP_FILTER_H

#include "hip_score.h"

namespace hipk {

/* Rows of the table of approximate dots; the odd 16 keeps teams that read different rows on different banks. */
constexpr int DOT_PITCH = SCORE_TOKENS + 16;

/* E, from `growth` >= L u / (1 - L u), A and M. */
HIPK_DEVICE double filter_error(double growth, float q_size, float largest, int dim) {
  return growth * static_cast<double>(q_size) * static_cast<double>(largest) + dim * 0x1p-149;
}

HIPK_DEVICE float wave_max(float x) {
  if constexpr (WAVE == 64) x = larger(x, shuffle_xor<WAVE / 2>(x));
  x = larger(x, shuffle_xor<16>(x));
  x = larger(x, shuffle_xor<8>(x));
  x = larger(x, shuffle_xor<4>(x));
  x = larger(x, shuffle_xor<2>(x));
  return larger(x, shuffle_xor<1>(x));
}

/* Sum v[0..Count) over the 2 * Mask lanes that differ in the bits up to Mask.  Each step halves the values a lane
 * keeps: lane bits from Mask down say which, so v[0] ends as the sum of value (lane & (2 * Mask - 1)) * Count / (2 *
 * Mask). */
template <int Count, int Mask, int Size> HIPK_DEVICE void fold_lanes(float (&v)[Size]) {
  if constexpr (Mask > 0) {
    if constexpr (Count > 1) {
      const bool upper = (lane_index() & Mask) != 0;
      HIPK_UNROLL
      for (int i = 0; i < Count / 2; i++) {
        const float keep = upper ? v[i + Count / 2] : v[i], give = upper ? v[i] : v[i + Count / 2];
        v[i] = keep + shuffle_xor<Mask>(give);
      }
      fold_lanes<Count / 2, Mask / 2>(v);
    } else {
      v[0] += shuffle_xor<Mask>(v[0]);
      fold_lanes<1, Mask / 2>(v);
    }
  }
}

/* Keys of D = 128 and B = 128 in a format of 1 or 2 bytes, each key contiguous and aligned to a chunk. */
template <m3idx_dtype T> struct chunk_filter {
  static constexpr int DIM = 128;
  static constexpr int LANES = DIM / CHUNK;    /* lanes a key: a team */
  static constexpr int AT_ONCE = WAVE / LANES; /* keys of one load of a wave */
  static constexpr int WAVE_KEYS = SCORE_TOKENS / SCORE_WAVES;
  static constexpr int LOADS = WAVE_KEYS / AT_ONCE;       /* 8 */
  static constexpr double GROWTH = (CHUNK + 5) * 0x1p-24; /* > L u / (1 - L u) for L = CHUNK + log2(LANES) */
  static constexpr int TEAM_ELEMS = CHUNK;

  chunk<T> raw[LOADS];

  static HIPK_DEVICE int token_of(int load) { return wave_index() * WAVE_KEYS + load * AT_ONCE + lane_index() / LANES; }

  HIPK_DEVICE void fetch(const score_view &v, gptr<const unsigned char> page, int tokens) {
    HIPK_UNROLL
    for (int j = 0; j < LOADS; j++) {
      const int token = token_of(j);
      raw[j] = chunk<T>{};
      if (token < tokens)
        raw[j] = load<chunk<T>>(page, (token * v.k_stride_token + lane_index() % LANES * CHUNK) * bytes_of(T));
    }
  }

  /* Dots of rows row..row+Rows-1 of q with the wave's tokens, into dots[row][token], and the largest finite one that
   * the row sees into bests[row]; lane r mod 16 brings `rest`, the tokens of this tile that row r sees.  With Measure
   * it returns this lane's part of M, else 0. */
  template <int Rows, bool Measure>
  HIPK_DEVICE float filter(lds<float> q, lds<float> dots, lds<float> bests, int row, int32_t rest) const {
    float query[Rows][CHUNK], sum[Rows][LOADS], largest = 0;
    HIPK_UNROLL
    for (int r = 0; r < Rows; r++) {
      HIPK_UNROLL
      for (int e = 0; e < CHUNK; e++) query[r][e] = q[(row + r) * DIM + lane_index() % LANES * CHUNK + e];
    }
    HIPK_UNROLL
    for (int j = 0; j < LOADS; j++) {
      chunk<T> bits = raw[j];
      forget(bits); /* or all keys of the tile would be decoded, and held, once for all rows */
      float key[CHUNK];
      decode_chunk<T>(bits, key);
      HIPK_UNROLL
      for (int r = 0; r < Rows; r++) sum[r][j] = 0;
      HIPK_UNROLL
      for (int e = 0; e < CHUNK; e++) {
        if (Measure) largest = larger(largest, magnitude(key[e]));
        HIPK_UNROLL
        for (int r = 0; r < Rows; r++) sum[r][j] = fused(query[r][e], key[e], sum[r][j]);
      }
    }
    const int token = token_of((lane_index() & (LANES - 1)) * LOADS / LANES);
    HIPK_UNROLL
    for (int r = 0; r < Rows; r++) {
      fold_lanes<LOADS, LANES / 2>(sum[r]); /* lanes 2 i and 2 i + 1 have the same */
      const float dot = sum[r][0];
      const bool counts = token < shuffle(rest, row + r) && dot - dot == 0;
      const float best = wave_max(counts ? dot : bits_float(BITS_MINUS_INF));
      if ((lane_index() & 1) == 0) dots[(row + r) * DOT_PITCH + token] = dot;
      if (lane_index() == 0) bests[row + r] = best;
    }
    return largest;
  }

  /* Two rows at a time: of more, the sums and queries of one pass would take the registers of another group. */
  HIPK_DEVICE float run(lds<float> q, lds<float> dots, lds<float> bests, int rows, int32_t rest) const {
    if (rows == 1) return filter<1, true>(q, dots, bests, 0, rest);
    const float largest = filter<2, true>(q, dots, bests, 0, rest);
    HIPK_ROLLED
    for (int row = 2; row < rows; row += 2) filter<2, false>(q, dots, bests, row, rest);
    return largest;
  }

  /* This lane's chunk of the key that its team loaded with `load`, the same in all lanes. */
  HIPK_DEVICE void key_of(int load, float (&key)[CHUNK]) const {
    chunk<T> bits = raw[0];
    HIPK_UNROLL
    for (int j = 1; j < LOADS; j++)
      if (load == j) bits = raw[j];
    decode_chunk<T>(bits, key);
  }
  static HIPK_DEVICE void query_team(lds<float> q, int row, int lane, float (&query)[CHUNK]) {
    HIPK_UNROLL
    for (int e = 0; e < CHUNK; e++) query[e] = q[row * DIM + lane * CHUNK + e];
  }
};

template <class Code> struct plain_filter {
  static constexpr int DIM = SCORE_MAX_DIM;
  static constexpr double GROWTH = (SCORE_MAX_DIM + 1) * 0x1p-24; /* > L u / (1 - L u), L = 256 */
  static constexpr int TEAM_ELEMS = SCORE_MAX_DIM / 16;

  static HIPK_DEVICE float element(const score_view &v, gptr<const unsigned char> page, int token, int d) {
    const int64_t at = token * v.k_stride_token + d * v.k_stride_dim;
    return decode_as(load<Code>(page, at * static_cast<int64_t>(sizeof(Code))), v.k_format);
  }

  /* The rows' dots with all of the tile's tokens, dealt to the group; returns this lane's part of M. */
  static HIPK_DEVICE float run(const score_view &v, lds<float> q, lds<float> out, int rows,
                               gptr<const unsigned char> page, int tokens) {
    const int token = thread_index() % SCORE_TOKENS;
    float largest = 0;
    if (token >= tokens) return largest;
    for (int row = thread_index() / SCORE_TOKENS * 4; row < rows; row += SCORE_THREADS / SCORE_TOKENS * 4) {
      float sum[4] = {0, 0, 0, 0};
      for (int d = 0; d < v.dim; d++) {
        const float key = element(v, page, token, d);
        largest = larger(largest, magnitude(key));
        HIPK_UNROLL
        for (int r = 0; r < 4; r++) sum[r] = fused(static_cast<float>(q[(row + r) * DIM + d]), key, sum[r]);
      }
      HIPK_UNROLL
      for (int r = 0; r < 4; r++) out[(row + r) * DOT_PITCH + token] = sum[r];
    }
    return largest;
  }

  static HIPK_DEVICE void fetch_team(const score_view &v, gptr<const unsigned char> page, int token, int lane,
                                     float (&key)[TEAM_ELEMS]) {
    HIPK_UNROLL
    for (int e = 0; e < TEAM_ELEMS; e++) {
      const int d = e * 16 + lane;
      key[e] = d < v.dim ? element(v, page, token, d) : 0.0f;
    }
  }
  static HIPK_DEVICE void query_team(lds<float> q, int row, int lane, const score_view &v, float (&query)[TEAM_ELEMS]) {
    HIPK_UNROLL
    for (int e = 0; e < TEAM_ELEMS; e++) {
      const int d = e * 16 + lane;
      query[e] = d < v.dim ? static_cast<float>(q[row * DIM + d]) : 0.0f;
    }
  }
};

} // namespace hipk

#endif
