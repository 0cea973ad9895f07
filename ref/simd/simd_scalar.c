/* SPDX-License-Identifier: Apache-2.0
 *
 * The portable instruction set: plain C in the shape that compilers vectorize.
 */
#include "simd_plain.h"

enum { STRIP = 8 }; /* lanes side by side */

static int present(void) { return 1; }

static int roundings(int dim) { return dim; }

/* Two tokens against eight lanes at a time. */
static void filter(const void *q, const void *keys, int64_t stride_bytes, int tokens, int lanes, int padded_dim,
                   float *score) {
  for (int t = 0; t < tokens; t += 2) {
    const float *k0 = (const float *)(const void *)((const unsigned char *)keys + t * stride_bytes);
    const float *k1 = (const float *)(const void *)((const unsigned char *)keys + (t + 1) * stride_bytes);
    for (int l = 0; l < lanes; l += STRIP) {
      const float *lane = (const float *)q + l;
      float a[STRIP] = {0}, b[STRIP] = {0};
      for (int d = 0; d < padded_dim; d++, lane += SIMD_LANES)
        for (int i = 0; i < STRIP; i++) {
          a[i] += lane[i] * k0[d];
          b[i] += lane[i] * k1[d];
        }
      memcpy(score + t * SIMD_LANES + l, a, sizeof a);
      memcpy(score + (t + 1) * SIMD_LANES + l, b, sizeof b);
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

static void dots(const simd_group *group, const simd_page *page, const uint16_t *list, int count, double *dot) {
  simd_plain_dots(group, page, list, count, dot);
}

const simd_isa simd_scalar = {
    .name = "scalar",
    .what = "portable C",
    .present = present,
    .f32 = {filter, roundings, 0},
    .load = load,
    .peak = peak,
    .pick = pick,
    .dots = dots,
};
