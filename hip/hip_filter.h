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

HIPK_DEVICE float wave_max(float x) {
  if constexpr (WAVE == 64) x = larger(x, shuffle_xor<WAVE / 2>(x));
  x = larger(x, shuffle_xor<16>(x));
  x = larger(x, shuffle_xor<8>(x));
  x = larger(x, shuffle_xor<4>(x));
  x = larger(x, shuffle_xor<2>(x));
  return larger(x, shuffle_xor<1>(x));
}

/* Queries as binary32, Dim a row, missing rows up to a multiple of 4 as zeros. */
template <int Dim>
HIPK_DEVICE void stage_floats(const score_view &v, int32_t request, int32_t first, int rows, lds<float> q) {
  const gptr<const unsigned char> from = global(static_cast<const unsigned char *>(v.q));
  for (int i = thread_index(); i < (rows + 3) / 4 * 4 * Dim; i += SCORE_THREADS) {
    const int row = i / Dim, d = i % Dim;
    float x = 0;
    if (row < rows && d < v.dim) {
      const int64_t at = query_at(v, request, first + row) + d * v.q_stride_dim;
      x = decode_as(load_code(from, at, v.q_format.bytes), v.q_format);
    }
    q[i] = x;
  }
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
  static constexpr int LANES = DIM / CHUNK;               /* lanes a key: a team */
  static constexpr int AT_ONCE = WAVE / LANES;            /* keys of one load of a wave */
  static constexpr double GROWTH = (CHUNK + 5) * 0x1p-24; /* > L u / (1 - L u) for L = CHUNK + log2(LANES) */
  static constexpr int TEAM_ELEMS = CHUNK;
  static constexpr int GROUPS = 4;
  using query_store = float;
  static constexpr int QUERY_STORES = DIM;

  static HIPK_DEVICE void stage(const score_view &v, int32_t request, int32_t first, int rows, lds<float> q) {
    stage_floats<DIM>(v, request, first, rows, q);
  }
  static HIPK_DEVICE double error(const score_view &v, float size, float peak) {
    return GROWTH * size * static_cast<double>(peak) + v.dim * 0x1p-149;
  }

  /* The keys of one turn of the loop in dots(), on their way: fewer where the rows' sums take the registers, so that
   * more waves hide the latency. */
  template <int Rows> struct turn {
    static constexpr int LOADS = Rows == 1 ? 8 : 4;
    chunk<T> raw[LOADS];
  };
  template <class Turn>
  static HIPK_DEVICE void fetch(const score_view &v, Turn &keys, gptr<const unsigned char> page, int base, int end) {
    const int part = lane_index() % LANES, key_of = lane_index() / LANES;
    const int64_t token_bytes = v.k_stride_token * bytes_of(T);
    HIPK_UNROLL
    for (int j = 0; j < Turn::LOADS; j++) {
      const int token = base + j * AT_ONCE + key_of;
      keys.raw[j] = chunk<T>{};
      if (token < end) keys.raw[j] = load<chunk<T>>(page, token * token_bytes + part * CHUNK * bytes_of(T));
    }
  }

  /* Dots of rows row..row+Rows-1 of q with the tokens of a span, by one wave, into out[r * DOT_PITCH + token]; `keys`
   * was fetched where the span begins, and is fetched at the next one's.  Returns M.  Entries up to the next multiple
   * of 32 past the span's first may be written too. */
  template <int Rows>
  static HIPK_DEVICE float dots(const score_view &v, lds<float> q, int row, int, lds<float> out, turn<Rows> &keys,
                                const key_span &span, const key_span &next) {
    constexpr int LOADS = turn<Rows>::LOADS, STEP = LOADS * AT_ONCE;
    const int part = lane_index() % LANES, key_of = lane_index() / LANES;
    float query[Rows][CHUNK], largest = 0;
    HIPK_UNROLL
    for (int r = 0; r < Rows; r++) {
      HIPK_UNROLL
      for (int e = 0; e < CHUNK; e++) query[r][e] = q[(row + r) * DIM + part * CHUNK + e];
    }
    int base = span.from;
    bool more;
    HIPK_ROLLED
    do {
      float sum[Rows][LOADS];
      HIPK_UNROLL
      for (int j = 0; j < LOADS; j++) {
        float key[CHUNK];
        decode_chunk<T>(keys.raw[j], key);
        HIPK_UNROLL
        for (int r = 0; r < Rows; r++) sum[r][j] = 0;
        HIPK_UNROLL
        for (int e = 0; e < CHUNK; e++) {
          largest = larger(largest, magnitude(key[e]));
          HIPK_UNROLL
          for (int r = 0; r < Rows; r++) sum[r][j] = fused(query[r][e], key[e], sum[r][j]);
        }
      }
      const int mine = base + part * LOADS / LANES * AT_ONCE + key_of;
      HIPK_UNROLL
      for (int r = 0; r < Rows; r++) {
        fold_lanes<LOADS, LANES / 2>(sum[r]);
        if (part % (LANES / LOADS) == 0) out[r * DOT_PITCH + mine] = sum[r][0];
      }
      base += STEP;
      more = base < span.end;
      fetch(v, keys, more ? span.page : next.page, more ? base : next.from, more ? span.end : next.end);
    } while (more);
    return wave_max(largest);
  }

  /* One span by itself. */
  template <int Rows>
  static HIPK_DEVICE float dots(const score_view &v, lds<float> q, int row, lds<float> out,
                                gptr<const unsigned char> page, int from, int end) {
    turn<Rows> keys;
    fetch(v, keys, page, from, end);
    return dots<Rows>(v, q, row, 0, out, keys, key_span{page, from, end}, key_span{page, 0, 0});
  }

  /* This lane's share of a key, as its team of 16 evaluates it. */
  static HIPK_DEVICE void fetch_team(const score_view &v, gptr<const unsigned char> page, int token, int lane,
                                     float (&key)[TEAM_ELEMS]) {
    decode_chunk<T>(load<chunk<T>>(page, (token * v.k_stride_token + lane * CHUNK) * bytes_of(T)), key);
  }
  static HIPK_DEVICE void query_team(lds<float> q, int row, int lane, const score_view &, float (&query)[TEAM_ELEMS]) {
    HIPK_UNROLL
    for (int e = 0; e < TEAM_ELEMS; e++) query[e] = q[row * DIM + lane * TEAM_ELEMS + e];
  }
};

template <class Code> struct plain_filter {
  static constexpr int DIM = SCORE_MAX_DIM;
  static constexpr double GROWTH = (SCORE_MAX_DIM + 1) * 0x1p-24; /* > L u / (1 - L u), L = 256 */
  static constexpr int TEAM_ELEMS = SCORE_MAX_DIM / 16;
  static constexpr int GROUPS = 3;
  using query_store = float;
  static constexpr int QUERY_STORES = DIM;

  static HIPK_DEVICE void stage(const score_view &v, int32_t request, int32_t first, int rows, lds<float> q) {
    stage_floats<DIM>(v, request, first, rows, q);
  }
  static HIPK_DEVICE double error(const score_view &v, float size, float peak) {
    return GROWTH * size * static_cast<double>(peak) + v.dim * 0x1p-149;
  }

  static HIPK_DEVICE float element(const score_view &v, gptr<const unsigned char> page, int token, int d) {
    const int64_t at = token * v.k_stride_token + d * v.k_stride_dim;
    return decode_as(load<Code>(page, at * static_cast<int64_t>(sizeof(Code))), v.k_format);
  }

  /* Dots of rows row..row+Rows-1 of q with the tokens from..end-1 of a page, by one wave, into out[r * DOT_PITCH +
   * token].  Returns this lane's part of M. */
  template <int Rows>
  static HIPK_DEVICE float dots(const score_view &v, lds<float> q, int row, lds<float> out,
                                gptr<const unsigned char> page, int from, int end) {
    float largest = 0;
    for (int token = from + lane_index(); token < end; token += WAVE) {
      float sum[Rows] = {};
      for (int d = 0; d < v.dim; d++) {
        const float key = element(v, page, token, d);
        largest = larger(largest, magnitude(key));
        HIPK_UNROLL
        for (int r = 0; r < Rows; r++) sum[r] = fused(static_cast<float>(q[(row + r) * DIM + d]), key, sum[r]);
      }
      HIPK_UNROLL
      for (int r = 0; r < Rows; r++) out[r * DOT_PITCH + token] = sum[r];
    }
    return largest;
  }

  /* The same as the other filters give them; nothing is fetched ahead. */
  template <int> struct turn {};
  template <class Turn>
  static HIPK_DEVICE void fetch(const score_view &, Turn &, gptr<const unsigned char>, int, int) {}
  template <int Rows>
  static HIPK_DEVICE float dots(const score_view &v, lds<float> q, int row, int, lds<float> out, turn<Rows> &,
                                const key_span &span, const key_span &) {
    return wave_max(dots<Rows>(v, q, row, out, span.page, span.from, span.end));
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
