/* SPDX-License-Identifier: Apache-2.0
 *
 * The exact score of single blocks by one wave (S3), for any format and strides: where the matrix kernels do not reach,
 * and for the few pairs of row and block that they leave open.  The filter is hip_filter.h's, the rest as in decode.
 */
#ifndef M3IDX_HIP_BLOCK_H
#define M3IDX_HIP_BLOCK_H

#include "hip_exact.h"
#include "hip_filter.h"
#include "hip_prefill.h"

namespace hipk {

/* One row's queries as binary32 in a wave's q[F::DIM]; returns A = sum |q|, enlarged. */
template <class F> HIPK_DEVICE float wave_query(const score_view &v, int32_t head, int32_t row, lds<float> q) {
  const gptr<const unsigned char> from = global(static_cast<const unsigned char *>(v.q));
  const int64_t base = row * v.q_stride_row + head * v.q_stride_head;
  double size = 0;
  for (int d = lane_index(); d < F::DIM; d += WAVE) {
    const float x =
        d < v.dim ? decode_as(load_code(from, base + d * v.q_stride_dim, v.q_format.bytes), v.q_format) : 0.0f;
    q[d] = x;
    size += magnitude(x);
  }
  size = team_sum(size);
  if constexpr (WAVE == 64) size += shuffle_xor<WAVE / 2>(size);
  size += shuffle_xor<16>(size);
  wave_sync();
  return static_cast<float>(size * (1 + 0x1p-20));
}

/* The approximate dots of a row's tokens from..end-1 in `groups` that matter, one bit for each of a lane's tokens lane
 * + 16 i. */
HIPK_DEVICE uint32_t near_best(lds<float> dots, int from, int end, uint32_t groups, double error) {
  float value[SCORE_TOKENS / TEAM], best = bits_float(BITS_MINUS_INF);
  HIPK_UNROLL
  for (int i = 0; i < SCORE_TOKENS / TEAM; i++) {
    const int token = i * TEAM + team_lane();
    value[i] = 0;
    if (token >= from && token < end && (groups >> token / MATRIX_GROUP & 1)) {
      value[i] = dots[token];
      if (value[i] - value[i] == 0) best = larger(best, value[i]);
    }
  }
  best = team_max(best);
  const double least = static_cast<double>(best) - 2.0001 * error;
  uint32_t mask = 0;
  HIPK_UNROLL
  for (int i = 0; i < SCORE_TOKENS / TEAM; i++) {
    const int token = i * TEAM + team_lane();
    const bool out = value[i] - value[i] == 0 && static_cast<double>(value[i]) < least;
    if (token >= from && token < end && (groups >> token / MATRIX_GROUP & 1) && !out) mask |= 1u << i;
  }
  return mask;
}

/* The largest exact dot of the team's candidates, rounded, not scaled; NaN if none is a number. */
template <class F>
HIPK_DEVICE uint32_t exact_best(const score_view &v, lds<float> q, int row, uint32_t mask,
                                gptr<const unsigned char> page) {
  float query[F::TEAM_ELEMS], best = bits_float(BITS_MINUS_INF);
  bool any = false;
  F::query_team(q, row, team_lane(), v, query);
  while (ballot(mask != 0)) {
    const uint32_t team = team_ballot(mask != 0);
    const int source = team ? lowest_bit(team) : 0;
    const uint32_t bits = shuffle(mask, team_base() + source);
    float key[F::TEAM_ELEMS];
    if (team) {
      F::fetch_team(v, page, lowest_bit(bits) * TEAM + source, team_lane(), key);
    } else {
      HIPK_UNROLL
      for (int e = 0; e < F::TEAM_ELEMS; e++) key[e] = 0;
    }
    const team_dot_result dot = team_dot(query, key, v.exact_ratio);
    if (team && !dot.nan) {
      any = true;
      best = larger(best, dot.value);
    }
    if (team_lane() == source) mask &= mask - 1;
  }
  return any ? float_bits(best) : BITS_NAN;
}

HIPK_DEVICE uint32_t larger_score(uint32_t a, uint32_t b) {
  return a == BITS_NAN || (b != BITS_NAN && bits_float(b) > bits_float(a)) ? b : a;
}

/* S3.5, S3.4. */
HIPK_DEVICE uint32_t scaled_score(uint32_t bits, float scale) {
  if (bits == BITS_NAN) return bits;
  const float x = scale == 1.0f ? bits_float(bits) : bits_float(bits) * scale;
  return x == 0 ? 0 : float_bits(x);
}

/* The score of the row in q for the first `tokens` tokens of a page, 1 or more, of which those outside `groups` are
 * known not to matter; the same in all lanes.  The wave's teams share the tokens. */
template <class F>
HIPK_DEVICE uint32_t block_score(const score_view &v, lds<float> q, float q_size, lds<float> dots,
                                 gptr<const unsigned char> page, int tokens, uint32_t groups) {
  constexpr int SHARE = SCORE_TOKENS / (WAVE / TEAM);
  float peak = 0;
  HIPK_ROLLED
  for (int begin = 0; begin < tokens; begin += MATRIX_GROUP)
    if (groups >> begin / MATRIX_GROUP & 1)
      peak = larger(peak, F::template dots<1>(v, q, 0, dots, page, begin, m3idx_min_i32(tokens, begin + MATRIX_GROUP)));
  peak = wave_max(peak);
  wave_sync();
  const int from = lane_index() / TEAM * SHARE;
  const double error = F::GROWTH * static_cast<double>(q_size) * static_cast<double>(peak) + v.dim * 0x1p-149;
  const uint32_t mask = near_best(dots, from, m3idx_min_i32(tokens, from + SHARE), groups, error);
  uint32_t best = exact_best<F>(v, q, 0, mask, page);
  if constexpr (WAVE == 64) best = larger_score(best, shuffle_xor<WAVE / 2>(best));
  best = larger_score(best, shuffle_xor<16>(best));
  wave_sync(); /* the dots have been read */
  return scaled_score(best, v.scale);
}

} // namespace hipk

#endif
