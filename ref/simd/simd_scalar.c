/* SPDX-License-Identifier: Apache-2.0
 *
 * The portable instruction set: plain C in the shape that compilers vectorize.
 */
#include "simd_plain.h"

enum { STRIP = 8 }; /* lanes side by side */

static int present(void) { return 1; }

static int roundings(int dim) { return dim; }

/* One step of four tokens' chains in eight lanes.  The pragma keeps compilers from unrolling the loop away and then
 * vectorizing the one around it, over d, by shuffles. */
static inline void step(float sum[4][STRIP], const float *lane, const float k[4]) {
#pragma omp simd
  for (int i = 0; i < STRIP; i++) {
    sum[0][i] += lane[i] * k[0];
    sum[1][i] += lane[i] * k[1];
    sum[2][i] += lane[i] * k[2];
    sum[3][i] += lane[i] * k[3];
  }
}

static void filter(const void *q, const void *keys, int64_t stride_bytes, int tokens, int lanes, int padded_dim,
                   float *score, simd_next *next) {
  const int share = simd_fetch_share(next, (tokens + 3) / 4);
  for (int t = 0; t < tokens; t += 4) {
    simd_fetch(next, share);
    for (int l = 0; l < lanes; l += STRIP) {
      const float *lane = (const float *)q + l, *key[4];
      float sum[4][STRIP] = {{0}};
      for (int i = 0; i < 4; i++) key[i] = (const float *)(const void *)((const char *)keys + (t + i) * stride_bytes);
      for (int d = 0; d < padded_dim; d++, lane += SIMD_LANES) {
        const float k[4] = {key[0][d], key[1][d], key[2][d], key[3][d]};
        step(sum, lane, k);
      }
      for (int i = 0; i < 4; i++) memcpy(score + (t + i) * SIMD_LANES + l, sum[i], sizeof sum[i]);
    }
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

const simd_isa simd_scalar = {
    .name = "scalar",
    .what = "portable C",
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
