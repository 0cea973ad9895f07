/* SPDX-License-Identifier: Apache-2.0
 *
 * NEON (AArch64): sixteen lanes (four vectors) against four keys at a time, keys by lane of a vector.
 */
#include <arm_neon.h>

#include "simd_plain.h"

enum { VECTORS = 4, STRIP = 4 * VECTORS, KEYS = 4 };

static int present(void) { return 1; /* part of AArch64 */ }

static int roundings(int dim) { return dim; }

/* sum[v] += q[v] * (element `i` of k) */
static inline void step(float32x4_t sum[VECTORS], const float32x4_t q[VECTORS], float32x4_t k, const int i) {
  for (int v = 0; v < VECTORS; v++) switch (i) {
    case 0: sum[v] = vfmaq_laneq_f32(sum[v], q[v], k, 0); break;
    case 1: sum[v] = vfmaq_laneq_f32(sum[v], q[v], k, 1); break;
    case 2: sum[v] = vfmaq_laneq_f32(sum[v], q[v], k, 2); break;
    default: sum[v] = vfmaq_laneq_f32(sum[v], q[v], k, 3);
    }
}

static void four_keys(const float *q, const char *key, int64_t stride, int dim, float *score) {
  float32x4_t sum[KEYS][VECTORS];
  for (int t = 0; t < KEYS; t++)
    for (int v = 0; v < VECTORS; v++) sum[t][v] = vdupq_n_f32(0);
  for (int d = 0; d < dim; d += 4) {
    float32x4_t k[KEYS];
    for (int t = 0; t < KEYS; t++) k[t] = vld1q_f32((const float *)(const void *)(key + t * stride) + d);
    SIMD_UNROLL
    for (int i = 0; i < 4; i++, q += SIMD_LANES) {
      float32x4_t lane[VECTORS];
      for (int v = 0; v < VECTORS; v++) lane[v] = vld1q_f32(q + 4 * v);
      for (int t = 0; t < KEYS; t++) step(sum[t], lane, k[t], i);
    }
  }
  for (int t = 0; t < KEYS; t++)
    for (int v = 0; v < VECTORS; v++) vst1q_f32(score + t * SIMD_LANES + 4 * v, sum[t][v]);
}

static void filter(const void *q, const void *keys, int64_t stride_bytes, int tokens, int lanes, int padded_dim,
                   float *score, simd_next *next) {
  const int share = simd_fetch_share(next, (tokens + KEYS - 1) / KEYS);
  for (int t = 0; t < tokens; t += KEYS) {
    simd_fetch(next, share);
    for (int l = 0; l < lanes; l += STRIP)
      four_keys((const float *)q + l, (const char *)keys + t * stride_bytes, stride_bytes, padded_dim,
                score + t * SIMD_LANES + l);
  }
}

static uint32_t load(m3idx_dtype dtype, const void *from, int64_t row_bytes, int64_t stride, int tokens, int dim,
                     simd_form form, void *to, int64_t to_bytes) {
  return simd_load_rows(dtype, from, row_bytes, stride, tokens, dim, form, to, to_bytes);
}

static void peak(float *score, int tokens, const int32_t *visible, float *most) {
  simd_plain_peak(score, tokens, visible, most);
}

static int pick(const float *score, int tokens, const float *least, uint16_t *list) {
  return simd_plain_pick(score, tokens, least, list);
}

static void dots(const simd_group *group, const simd_page *page, const uint16_t *list, int count, simd_sum sum,
                 const float *center, const double *doubles, double *dot) {
  (void)sum;
  (void)center;
  simd_plain_dots(group, page, list, count, doubles, dot);
}

static uint32_t ends(const double *best, const double *sum, double unit, double tiny, float *low) {
  return simd_plain_ends(best, sum, unit, tiny, low);
}

static uint32_t bounds(const float *most, const float *error, float scale, const float *floor, float *low,
                       float *high) {
  return simd_plain_bounds(most, error, scale, floor, low, high);
}

const simd_isa simd_neon = {
    .name = "neon",
    .what = "Advanced SIMD",
    .present = present,
    .f32 = {filter, roundings, 0, NULL},
    .load = load,
    .peak = peak,
    .pick = pick,
    .chains = 16,
    .dots = dots,
    .ends = ends,
    .bounds = bounds,
    .select = simd_select_plain,
    .rank = simd_rank_plain,
};
