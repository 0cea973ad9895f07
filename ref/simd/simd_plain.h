/* SPDX-License-Identifier: Apache-2.0
 *
 * Peak, pick and dots in plain C: what simd.h asks of an instruction set, for the sets that need no better.
 */
#ifndef M3IDX_SIMD_PLAIN_H
#define M3IDX_SIMD_PLAIN_H

#include <math.h>

#include "simd_convert.h"

/* Cache lines for each of `parts` calls of simd_fetch(). */
static inline int simd_fetch_share(const simd_next *next, int parts) { return (next->lines + parts - 1) / parts; }

static inline void simd_fetch(simd_next *next, int lines) {
  for (; lines > 0 && next->rows > 0; lines--) {
#if defined(__GNUC__)
    __builtin_prefetch(next->row + next->at, 0, 2);
#endif
    next->at += 64;
    if (next->at < next->bytes) continue;
    next->at = 0;
    if (--next->rows > 0) next->row += next->stride_bytes;
  }
}

static inline void simd_plain_peak(float *score, int tokens, const int32_t *visible, float *most) {
  float m[SIMD_LANES];
  for (int l = 0; l < SIMD_LANES; l++) m[l] = -INFINITY;
  for (int t = 0; t < tokens; t++) {
    float *row = score + t * SIMD_LANES;
    if (visible)
      for (int l = 0; l < SIMD_LANES; l++) row[l] = t < visible[l] ? row[l] : -INFINITY;
    for (int l = 0; l < SIMD_LANES; l++) m[l] = row[l] > m[l] ? row[l] : m[l];
  }
  for (int l = 0; l < SIMD_LANES; l++) most[l] = m[l];
}

static inline int simd_plain_pick(const float *score, int tokens, const float *least, uint16_t *list) {
  int count = 0;
  for (int t = 0; t < tokens; t++)
    for (int l = 0; l < SIMD_LANES; l++) {
      list[count] = (uint16_t)(t << 8 | l);
      count += score[t * SIMD_LANES + l] >= least[l];
    }
  return count;
}

/* The list of simd.h's pick() from a mask of lanes a token.  `some`: bit t is set iff mask[t] != 0.  Walking set bits
 * keeps the branches predictable where a test of every token would not be. */
static inline int simd_list(const uint32_t *mask, const uint64_t some[SIMD_TOKENS / 64], uint16_t *list) {
  int count = 0;
  for (int w = 0; w < SIMD_TOKENS / 64; w++)
    for (uint64_t tokens = some[w]; tokens; tokens &= tokens - 1) {
      const int t = w * 64 + __builtin_ctzll(tokens);
      if (mask[t] == UINT32_MAX) { /* rows that tie all along */
        for (int l = 0; l < SIMD_LANES; l++) list[count + l] = (uint16_t)(t << 8 | l);
        count += SIMD_LANES;
        continue;
      }
      for (uint32_t lanes = mask[t]; lanes; lanes &= lanes - 1) list[count++] = (uint16_t)(t << 8 | simd_lowest(lanes));
    }
  return count;
}

static inline uint32_t simd_plain_ends(const double *best, const double *sum, double unit, double tiny, float *low) {
  int32_t differ[SIMD_LANES], any = 0;
  uint32_t lanes = 0;
  for (int l = 0; l < SIMD_LANES; l++) {
    const double reach = unit * sum[l] + tiny;
    low[l] = (float)(best[l] - reach);
    differ[l] = low[l] != (float)(best[l] + reach);
  }
  for (int l = 0; l < SIMD_LANES; l++) any |= differ[l];
  for (int l = 0; any && l < SIMD_LANES; l++) lanes |= (uint32_t)differ[l] << l;
  return lanes;
}

static inline uint32_t simd_plain_bounds(const float *most, const float *error, float scale, const float *floor,
                                         float *low, float *high) {
  int32_t open[SIMD_LANES], any = 0;
  uint32_t lanes = 0;
  for (int l = 0; l < SIMD_LANES; l++) {
    low[l] = (most[l] - error[l]) * scale + 0.0f;
    high[l] = (most[l] + error[l]) * scale + 0.0f;
    open[l] = !(high[l] < floor[l]);
  }
  for (int l = 0; l < SIMD_LANES; l++) any |= open[l];
  for (int l = 0; any && l < SIMD_LANES; l++) lanes |= (uint32_t)open[l] << l;
  return lanes;
}

/* Whether the next four candidates are of one token: rows that tie all along are worth their own loop. */
static inline int simd_four_alike(const uint16_t *list, int left) {
  return left >= 4 && list[0] >> 8 == list[1] >> 8 && list[0] >> 8 == list[2] >> 8 && list[0] >> 8 == list[3] >> 8;
}

/* A key in double; dim is a multiple of 16.  Sets without a bf16 filter and without `few` have float pages only. */
static inline void simd_plain_widen(const void *key, int dim, double *to) {
  for (int d = 0; d < dim; d += 8) {
    uint32_t bits[8];
    memcpy(bits, (const uint32_t *)key + d, sizeof bits);
    for (int i = 0; i < 8; i++) to[d + i] = (double)simd_float(bits[i]);
  }
}

/* Eight chains. */
static inline double simd_plain_dot(const double *q, const double *key, int dim) {
  double sum[8] = {0};
  for (int d = 0; d < dim; d += 8)
    for (int i = 0; i < 8; i++) sum[i] += q[d + i] * key[d + i];
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static inline void simd_plain_dots(const simd_group *group, const simd_page *page, const uint16_t *list, int count,
                                   const double *doubles, double *dot) {
  double key[SIMD_MAX_DIM], row[SIMD_MAX_DIM];
  int token = -1;
  for (int i = 0; i < count; i++) {
    const int lane = list[i] & 0xff, dim = group->dim;
    if (list[i] >> 8 != token) {
      token = list[i] >> 8;
      simd_plain_widen((const unsigned char *)page->keys + token * page->stride_bytes, dim, key);
    }
    if (!doubles) simd_plain_widen(group->row + lane * dim, dim, row);
    dot[i] = simd_plain_dot(doubles ? doubles + lane * dim : row, key, dim);
  }
}

#endif
