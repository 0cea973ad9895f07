/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2 and FMA: sixteen lanes (two vectors) against six keys at a time, keys broadcast.
 */
#include <immintrin.h>

#include "simd_plain.h"
#include "simd_x86.h"

enum { VECTORS = 2, STRIP = 8 * VECTORS, KEYS = 6, REST = 4 };

static int present(void) { return simd_x86_has(SIMD_X86_AVX2); }

static int roundings(int dim) { return dim; }

static inline __attribute__((always_inline)) void keys_by_lanes(const float *q, const char *key, int64_t stride,
                                                                int dim, float *score, const int keys) {
  const char *third = key + 3 * stride;
  __m256 sum[KEYS][VECTORS];
  SIMD_UNROLL
  for (int t = 0; t < keys; t++) sum[t][0] = sum[t][1] = _mm256_setzero_ps();
  for (int d = 0; d < dim; d++, q += SIMD_LANES, key += 4, third += 4) {
    const __m256 q0 = _mm256_load_ps(q), q1 = _mm256_load_ps(q + 8);
    SIMD_UNROLL
    for (int t = 0; t < keys; t++) {
      const char *at = t < 3 ? key + t * stride : third + (t - 3) * stride;
      const __m256 k = _mm256_broadcast_ss((const float *)(const void *)at);
      sum[t][0] = _mm256_fmadd_ps(k, q0, sum[t][0]);
      sum[t][1] = _mm256_fmadd_ps(k, q1, sum[t][1]);
    }
  }
  SIMD_UNROLL
  for (int t = 0; t < keys; t++) {
    _mm256_store_ps(score + t * SIMD_LANES, sum[t][0]);
    _mm256_store_ps(score + t * SIMD_LANES + 8, sum[t][1]);
  }
}

/* Any even number of keys from 4 on is a sum of sixes and at most two fours. */
static void filter(const void *q, const void *keys, int64_t stride_bytes, int tokens, int lanes, int padded_dim,
                   float *score, simd_next *next) {
  const int share = simd_fetch_share(next, (tokens + REST) / KEYS + 1);
  const int even = tokens <= REST ? REST : (tokens + 1) & ~1, fours = even % KEYS == 0 ? 0 : even % KEYS == 4 ? 1 : 2;
  const char *key = keys;
  for (int t = 0; t < even;) {
    const int sixes = t + KEYS <= even - fours * REST, step = sixes ? KEYS : REST;
    simd_fetch(next, share);
    for (int l = 0; l < lanes; l += STRIP)
      if (sixes)
        keys_by_lanes((const float *)q + l, key, stride_bytes, padded_dim, score + l, KEYS);
      else
        keys_by_lanes((const float *)q + l, key, stride_bytes, padded_dim, score + l, REST);
    t += step;
    key += step * stride_bytes;
    score += step * SIMD_LANES;
  }
}

/* Dense bf16 rows to f32. */
static uint32_t widen(const char *from, int64_t row_bytes, int tokens, int dim, char *to, int64_t to_bytes) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  uint32_t each[8], all = 0;
  for (int t = 0; t < tokens; t++, from += row_bytes, to += to_bytes)
    for (int d = 0; d < dim; d += 8) {
      const __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(from + 2 * d));
      const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
      most = _mm256_max_epu32(most, _mm256_and_si256(bits, magnitude));
      _mm256_storeu_si256((__m256i *)(void *)(to + 4 * d), bits);
    }
  _mm256_storeu_si256((__m256i *)(void *)each, most);
  for (int i = 0; i < 8; i++) all = simd_max(all, each[i]);
  return all;
}

/* Dense bf16 rows that need no copy: only the largest magnitude is wanted. */
static uint32_t look(const char *from, int64_t row_bytes, int tokens, int dim) {
  const __m256i magnitude = _mm256_set1_epi16(0x7fff);
  __m256i most = _mm256_setzero_si256();
  uint16_t each[16], all = 0;
  for (int t = 0; t < tokens; t++, from += row_bytes)
    for (int d = 0; d < dim; d += 16) {
      const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(from + 2 * d));
      most = _mm256_max_epu16(most, _mm256_and_si256(bits, magnitude));
    }
  _mm256_storeu_si256((__m256i *)(void *)each, most);
  for (int i = 0; i < 16; i++) all = each[i] > all ? each[i] : all;
  return (uint32_t)all << 16;
}

static uint32_t load(m3idx_dtype dtype, const void *from, int64_t row_bytes, int64_t stride, int tokens, int dim,
                     simd_form form, void *to, int64_t to_bytes) {
  if (!to && dtype == M3IDX_BF16 && stride == 1) return look(from, row_bytes, tokens, dim);
  if (to && dtype == M3IDX_BF16 && stride == 1 && form == SIMD_F32)
    return widen(from, row_bytes, tokens, dim, to, to_bytes);
  return simd_load_rows(dtype, from, row_bytes, stride, tokens, dim, form, to, to_bytes);
}

static void peak(float *score, int tokens, const int32_t *visible, float *most) {
  if (visible || tokens % 2) {
    simd_plain_peak(score, tokens, visible, most);
    return;
  }
  __m256 m[2][4]; /* one chain of maxima would wait for itself */
  SIMD_UNROLL
  for (int v = 0; v < 4; v++) m[0][v] = m[1][v] = _mm256_set1_ps(-INFINITY);
  for (int t = 0; t < tokens; t += 2, score += 2 * SIMD_LANES) {
    SIMD_UNROLL
    for (int v = 0; v < 4; v++) {
      m[0][v] = _mm256_max_ps(_mm256_load_ps(score + 8 * v), m[0][v]);
      m[1][v] = _mm256_max_ps(_mm256_load_ps(score + SIMD_LANES + 8 * v), m[1][v]);
    }
  }
  SIMD_UNROLL
  for (int v = 0; v < 4; v++) _mm256_storeu_ps(most + 8 * v, _mm256_max_ps(m[0][v], m[1][v]));
}

/* Lanes 0..31 of a comparison, from its four vectors. */
static inline uint32_t lanes_of(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256i low = _mm256_packs_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b));
  const __m256i high = _mm256_packs_epi32(_mm256_castps_si256(c), _mm256_castps_si256(d));
  const __m256i mixed = _mm256_packs_epi16(low, high); /* dwords of lanes 0-3, 8-11, 16-19, 24-27, 4-7, ... */
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return (uint32_t)_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(mixed, order));
}

static int pick(const float *score, int tokens, const float *least, uint16_t *list) {
  const __m256 a = _mm256_loadu_ps(least), b = _mm256_loadu_ps(least + 8), c = _mm256_loadu_ps(least + 16),
               d = _mm256_loadu_ps(least + 24);
  uint32_t mask[SIMD_TOKENS];
  uint64_t some[SIMD_TOKENS / 64] = {0};
  for (int t = 0; t < tokens; t++, score += SIMD_LANES)
    mask[t] = lanes_of(_mm256_cmp_ps(_mm256_load_ps(score), a, _CMP_GE_OQ),
                       _mm256_cmp_ps(_mm256_load_ps(score + 8), b, _CMP_GE_OQ),
                       _mm256_cmp_ps(_mm256_load_ps(score + 16), c, _CMP_GE_OQ),
                       _mm256_cmp_ps(_mm256_load_ps(score + 24), d, _CMP_GE_OQ));
  for (int t = tokens; t < SIMD_TOKENS; t++) mask[t] = 0;
  for (int t = 0; t < SIMD_TOKENS; t += 8) {
    const __m256i none =
        _mm256_cmpeq_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(mask + t)), _mm256_setzero_si256());
    some[t / 64] |= (uint64_t)(~_mm256_movemask_ps(_mm256_castsi256_ps(none)) & 0xff) << t % 64;
  }
  return simd_list(mask, some, list);
}

/* Eight elements of a key. */
static inline __m256 eight(const void *key, simd_form form, int d) {
  if (form == SIMD_F32) return _mm256_loadu_ps((const float *)key + d);
  const __m128i half = _mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)key + d));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

static inline float sum_of(__m256 x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* Some keys at a time along d, so that a lone chain of FMAs does not wait for itself. */
static inline __attribute__((always_inline)) uint32_t few_of(const simd_group *group, const char *key, int64_t stride,
                                                             int tokens, float *score, simd_next *next, const int keys,
                                                             const int lanes) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  const int dim = group->dim, share = simd_fetch_share(next, tokens / keys * (dim / 32) + 1);
  __m256i most = _mm256_setzero_si256();
  uint32_t each[8], all = 0;
  for (int t = 0; t < tokens; t += keys, key += keys * stride, score += keys * SIMD_LANES) {
    __m256 sum[4][SIMD_FEW];
    SIMD_UNROLL
    for (int i = 0; i < keys; i++) {
      SIMD_UNROLL
      for (int l = 0; l < lanes; l++) sum[i][l] = _mm256_setzero_ps();
    }
    for (int d = 0; d < dim; d += 8) {
      if (d % 32 == 0) simd_fetch(next, share);
      SIMD_UNROLL
      for (int i = 0; i < keys; i++) {
        const __m256 k = eight(key + i * stride, SIMD_BF16, d);
        most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(k), magnitude));
        SIMD_UNROLL
        for (int l = 0; l < lanes; l++)
          sum[i][l] = _mm256_fmadd_ps(k, _mm256_loadu_ps(group->row + l * dim + d), sum[i][l]);
      }
    }
    SIMD_UNROLL
    for (int i = 0; i < keys; i++) {
      SIMD_UNROLL
      for (int l = 0; l < lanes; l++) score[i * SIMD_LANES + l] = sum_of(sum[i][l]);
    }
  }
  _mm256_storeu_si256((__m256i *)(void *)each, most);
  for (int i = 0; i < 8; i++) all = simd_max(all, each[i]);
  return all;
}

static uint32_t few(const simd_group *group, const void *keys, int64_t stride_bytes, int tokens, float *score,
                    simd_next *next) {
  switch (group->lanes) {
  case 1: return few_of(group, keys, stride_bytes, tokens, score, next, 4, 1);
  case 2: return few_of(group, keys, stride_bytes, tokens, score, next, 4, 2);
  default: /* of three lanes the fourth is zero, and nobody reads its dots */
    return few_of(group, keys, stride_bytes, tokens, score, next, 2, SIMD_FEW);
  }
}

static inline __m256d low(__m256 x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }

static inline __m256d high(__m256 x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }

static inline __attribute__((always_inline)) double dot_of(const float *q, const void *key, const simd_form form,
                                                           const int narrow, int dim) {
  __m256d sum[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};
  for (int d = 0; d < dim; d += 16) {
    SIMD_UNROLL
    for (int i = 0; i < 4; i += 2) {
      const __m256 k = eight(key, form, d + 4 * i), lane = _mm256_loadu_ps(q + d + 4 * i);
      if (narrow) {
        const __m256 product = _mm256_mul_ps(k, lane);
        sum[i] = _mm256_add_pd(sum[i], low(product));
        sum[i + 1] = _mm256_add_pd(sum[i + 1], high(product));
      } else {
        sum[i] = _mm256_fmadd_pd(low(k), low(lane), sum[i]);
        sum[i + 1] = _mm256_fmadd_pd(high(k), high(lane), sum[i + 1]);
      }
    }
  }
  const __m256d all = _mm256_add_pd(_mm256_add_pd(sum[0], sum[1]), _mm256_add_pd(sum[2], sum[3]));
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(all), _mm256_extractf128_pd(all, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

/* One key and four queries: the key is widened once. */
static void four_dots(const double *const q[4], const void *key, simd_form form, int dim, double *dot) {
  __m256d sum[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};
  for (int d = 0; d < dim; d += 8) {
    const __m256 k = eight(key, form, d);
    const __m256d k0 = low(k), k1 = high(k);
    SIMD_UNROLL
    for (int i = 0; i < 4; i++) {
      sum[i] = _mm256_fmadd_pd(_mm256_loadu_pd(q[i] + d), k0, sum[i]);
      sum[i] = _mm256_fmadd_pd(_mm256_loadu_pd(q[i] + d + 4), k1, sum[i]);
    }
  }
  for (int i = 0; i < 4; i += 2) {
    const __m256d pairs = _mm256_hadd_pd(sum[i], sum[i + 1]);
    _mm_storeu_pd(dot + i, _mm_add_pd(_mm256_castpd256_pd128(pairs), _mm256_extractf128_pd(pairs, 1)));
  }
}

/* The sums of four vectors. */
static inline __m128 sums_of(const __m256 x[4]) {
  const __m256 a = _mm256_hadd_ps(x[0], x[1]), b = _mm256_hadd_ps(x[2], x[3]), c = _mm256_hadd_ps(a, b);
  return _mm_add_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1));
}

/* q * k cut at the grid of the center: h what the chain at the center took of it, the rest summed beside. */
static inline __attribute__((always_inline)) void four_split(const float *const q[4], const void *const key[4],
                                                             const float center[4], const simd_form form, int dim,
                                                             double *dot) {
  __m256 h[4], l[4];
  SIMD_UNROLL
  for (int i = 0; i < 4; i++) {
    h[i] = _mm256_set1_ps(center[i]);
    l[i] = _mm256_setzero_ps();
  }
  for (int d = 0; d < dim; d += 8) {
    SIMD_UNROLL
    for (int i = 0; i < 4; i++) {
      const __m256 k = eight(key[i], form, d), lane = _mm256_loadu_ps(q[i] + d), next = _mm256_fmadd_ps(k, lane, h[i]);
      l[i] = _mm256_add_ps(l[i], _mm256_fmadd_ps(k, lane, _mm256_sub_ps(h[i], next)));
      h[i] = next;
    }
  }
  SIMD_UNROLL
  for (int i = 0; i < 4; i++) h[i] = _mm256_sub_ps(h[i], _mm256_set1_ps(center[i]));
  _mm256_storeu_pd(dot, _mm256_add_pd(_mm256_cvtps_pd(sums_of(h)), _mm256_cvtps_pd(sums_of(l))));
}

#include "simd_x86_dots.inc"

static uint32_t ends(const double *best, const double *sum, double unit, double tiny, float *low) {
  return simd_plain_ends(best, sum, unit, tiny, low);
}

static uint32_t bounds(const float *most, const float *error, float scale, const float *floor, float *low,
                       float *high) {
  return simd_plain_bounds(most, error, scale, floor, low, high);
}

const simd_isa simd_avx2 = {
    .name = "avx2",
    .what = "AVX2 and FMA",
    .present = present,
    .f32 = {filter, roundings, 0, NULL},
    .few = few,
    .load = load,
    .peak = peak,
    .pick = pick,
    .chains = 8,
    .dots = dots,
    .ends = ends,
    .bounds = bounds,
    .select = simd_select_avx2,
    .rank = simd_rank_avx2,
};
