/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512: up to 32 lanes (two vectors) against twelve keys at a time, keys broadcast.
 */
#include "simd_avx512.h"

#include <immintrin.h>
#include <math.h>

#include "simd_plain.h"
#include "simd_x86.h"

enum { KEYS = 12, REST = 4, MAX_VECTORS = SIMD_LANES / 16 };

static int present(void) { return simd_x86_has(SIMD_X86_AVX512); }

int simd_avx512_roundings(int dim) { return dim; }

/* Key t lies at base[t / 4] + (t % 4) * stride: three pointers and two strides reach all twelve. */
static inline __attribute__((always_inline)) void keys_by_lanes(const float *q, const char *key, int64_t stride,
                                                                int dim, simd_next *next, int share, const int keys,
                                                                const int vectors, __m512 sum[KEYS][MAX_VECTORS]) {
  const char *base[3] = {key, key + 4 * stride, key + 8 * stride};
  SIMD_UNROLL
  for (int t = 0; t < keys; t++) {
    SIMD_UNROLL
    for (int v = 0; v < vectors; v++) sum[t][v] = _mm512_setzero_ps();
  }
  for (int d = 0; d < dim; d += SIMD_DIM_UNIT) {
    simd_fetch(next, share);
    for (int i = 0; i < SIMD_DIM_UNIT; i++, q += SIMD_LANES) {
      __m512 lane[MAX_VECTORS];
      SIMD_UNROLL
      for (int v = 0; v < vectors; v++) lane[v] = _mm512_load_ps(q + 16 * v);
      SIMD_UNROLL
      for (int t = 0; t < keys; t++) {
        const __m512 k = _mm512_set1_ps(*(const float *)(const void *)(base[t / 4] + (t % 4) * stride));
        SIMD_UNROLL
        for (int v = 0; v < vectors; v++) sum[t][v] = _mm512_fmadd_ps(k, lane[v], sum[t][v]);
      }
      SIMD_UNROLL
      for (int b = 0; b < keys / 4; b++) base[b] += 4;
    }
  }
}

static inline __attribute__((always_inline)) void keep_block(const float *q, const char *key, int64_t stride, int dim,
                                                             float *score, simd_next *next, int share, const int keys,
                                                             const int vectors) {
  __m512 sum[KEYS][MAX_VECTORS];
  keys_by_lanes(q, key, stride, dim, next, share, keys, vectors, sum);
  SIMD_UNROLL
  for (int t = 0; t < keys; t++) {
    SIMD_UNROLL
    for (int v = 0; v < vectors; v++) _mm512_store_ps(score + t * SIMD_LANES + 16 * v, sum[t][v]);
  }
}

static inline __attribute__((always_inline)) void filter(const float *q, const char *key, int64_t stride, int tokens,
                                                         int dim, float *score, simd_next *next, const int vectors) {
  const int share = simd_fetch_share(next, (tokens / KEYS + 1) * (dim / SIMD_DIM_UNIT));
  int t = 0;
  for (; t + KEYS <= tokens; t += KEYS, key += KEYS * stride, score += KEYS * SIMD_LANES)
    keep_block(q, key, stride, dim, score, next, share, KEYS, vectors);
  for (; t + 8 <= tokens; t += 8, key += 8 * stride, score += 8 * SIMD_LANES)
    keep_block(q, key, stride, dim, score, next, share, 8, vectors);
  for (; t < tokens; t += REST, key += REST * stride, score += REST * SIMD_LANES)
    keep_block(q, key, stride, dim, score, next, share, REST, vectors);
}

void simd_avx512_filter(const void *q, const void *keys, int64_t stride_bytes, int tokens, int lanes, int padded_dim,
                        float *score, simd_next *next) {
  if (lanes > 16)
    filter(q, keys, stride_bytes, tokens, padded_dim, score, next, 2);
  else
    filter(q, keys, stride_bytes, tokens, padded_dim, score, next, 1);
}

/* A block of keys, a strip, judged while its dots are in registers. */
static inline __attribute__((always_inline)) void scan_block(const float *q, const char *key, int64_t stride, int dim,
                                                             simd_next *next, int share, const int keys, int first,
                                                             const simd_scan *scan) {
  simd_near *near = scan->near;
  float *most = scan->most;
  __m512 sum[KEYS][MAX_VECTORS];
  keys_by_lanes(q, key, stride, dim, next, share, keys, MAX_VECTORS, sum);
  SIMD_UNROLL
  for (int v = 0; v < MAX_VECTORS; v++) {
    __m512 of_strip = sum[0][v], second = sum[1][v];
    SIMD_UNROLL
    for (int t = 2; t < keys; t += 2) {
      of_strip = _mm512_max_ps(of_strip, sum[t][v]);
      second = _mm512_max_ps(second, sum[t + 1][v]);
    }
    of_strip = _mm512_max_ps(of_strip, second);
    _mm512_storeu_ps(most + 16 * v, _mm512_max_ps(_mm512_loadu_ps(most + 16 * v), of_strip));
    if (!near) continue;
    const __m512 least = _mm512_sub_ps(of_strip, _mm512_loadu_ps(scan->reach + 16 * v));
    __m512i bits = _mm512_setzero_si512();
    SIMD_UNROLL
    for (int t = 0; t < keys; t++)
      bits =
          _mm512_mask_or_epi32(bits, _mm512_cmp_ps_mask(sum[t][v], least, _CMP_GE_OQ), bits, _mm512_set1_epi32(1 << t));
    _mm512_storeu_ps(near->most[near->strips] + 16 * v, of_strip);
    _mm512_storeu_si512(near->bits[near->strips] + 16 * v, bits);
  }
  if (near) near->first[near->strips++] = first;
}

void simd_avx512_scan(const simd_group *group, simd_page *page, int tokens, const simd_scan *scan) {
  const int64_t stride = page->stride_bytes;
  const int dim = group->padded_dim, share = simd_fetch_share(&page->next, (tokens / KEYS + 1) * (dim / SIMD_DIM_UNIT));
  const char *key = page->keys;
  int t = 0;
  for (int l = 0; l < SIMD_LANES; l++) scan->most[l] = -INFINITY;
  if (scan->near) scan->near->strips = 0;
  for (; t + KEYS <= tokens; t += KEYS, key += KEYS * stride)
    scan_block(group->q, key, stride, dim, &page->next, share, KEYS, t, scan);
  for (; t + 8 <= tokens; t += 8, key += 8 * stride)
    scan_block(group->q, key, stride, dim, &page->next, share, 8, t, scan);
  for (; t < tokens; t += REST, key += REST * stride)
    scan_block(group->q, key, stride, dim, &page->next, share, REST, t, scan);
}

/* The largest of 32 bf16 magnitudes, as a binary32 pattern. */
static inline uint32_t highest_of_halves(__m512i most) {
  const __m512i high = _mm512_srli_epi32(most, 16), low = _mm512_and_si512(most, _mm512_set1_epi32(0xffff));
  return _mm512_reduce_max_epu32(_mm512_max_epu32(high, low)) << 16;
}

/* Dense bf16 or f32 rows that need no copy: only the largest magnitude is wanted. */
static uint32_t look(const void *from, int64_t row_bytes, int tokens, int dim, const uint32_t keep, const int bf16) {
  const __m512i mask = _mm512_set1_epi32((int)keep);
  __m512i most = _mm512_setzero_si512();
  for (int t = 0; t < tokens; t++) {
    const char *row = (const char *)from + t * row_bytes;
    for (int64_t at = 0; at < dim * (bf16 ? 2 : 4); at += 64) {
      const __m512i bits = _mm512_and_si512(_mm512_loadu_si512(row + at), mask);
      most = bf16 ? _mm512_max_epu16(most, bits) : _mm512_max_epu32(most, bits);
    }
  }
  return bf16 ? highest_of_halves(most) : _mm512_reduce_max_epu32(most);
}

/* Dense bf16 rows to f32. */
static uint32_t widen(const char *from, int64_t row_bytes, int tokens, int dim, char *to, int64_t to_bytes) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i most = _mm512_setzero_si512();
  for (int t = 0; t < tokens; t++, from += row_bytes, to += to_bytes)
    for (int d = 0; d < dim; d += 16) {
      const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)(from + 2 * d));
      const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
      most = _mm512_max_epu32(most, _mm512_and_si512(bits, magnitude));
      _mm512_storeu_si512(to + 4 * d, bits);
    }
  return _mm512_reduce_max_epu32(most);
}

uint32_t simd_avx512_load(m3idx_dtype dtype, const void *from, int64_t row_bytes, int64_t stride, int tokens, int dim,
                          simd_form form, void *to, int64_t to_bytes) {
  if (!to && stride == 1 && dtype == M3IDX_BF16 && dim % 32 == 0)
    return look(from, row_bytes, tokens, dim, 0x7fff7fffu, 1);
  if (!to && stride == 1 && dtype == M3IDX_F32) return look(from, row_bytes, tokens, dim, 0x7fffffffu, 0);
  if (to && stride == 1 && dtype == M3IDX_BF16 && form == SIMD_F32)
    return widen(from, row_bytes, tokens, dim, to, to_bytes);
  return simd_load_rows(dtype, from, row_bytes, stride, tokens, dim, form, to, to_bytes);
}

void simd_avx512_peak(float *score, int tokens, const int32_t *visible, float *most) {
  __m512 a = _mm512_set1_ps(-INFINITY), b = a;
  if (!visible) {
    __m512 m[4][2] = {{a, a}, {a, a}, {a, a}, {a, a}}; /* one chain of maxima would wait for itself */
    int t = 0;
    for (; t + 4 <= tokens; t += 4, score += 4 * SIMD_LANES) {
      SIMD_UNROLL
      for (int i = 0; i < 4; i++) {
        m[i][0] = _mm512_max_ps(_mm512_load_ps(score + i * SIMD_LANES), m[i][0]);
        m[i][1] = _mm512_max_ps(_mm512_load_ps(score + i * SIMD_LANES + 16), m[i][1]);
      }
    }
    a = _mm512_max_ps(_mm512_max_ps(m[0][0], m[1][0]), _mm512_max_ps(m[2][0], m[3][0]));
    b = _mm512_max_ps(_mm512_max_ps(m[0][1], m[1][1]), _mm512_max_ps(m[2][1], m[3][1]));
    for (; t < tokens; t++, score += SIMD_LANES) {
      a = _mm512_max_ps(_mm512_load_ps(score), a);
      b = _mm512_max_ps(_mm512_load_ps(score + 16), b);
    }
  } else {
    const __m512i va = _mm512_loadu_si512(visible), vb = _mm512_loadu_si512(visible + 16);
    const __m512 hidden = a;
    for (int t = 0; t < tokens; t++, score += SIMD_LANES) {
      const __m512i now = _mm512_set1_epi32(t);
      const __m512 sa = _mm512_mask_load_ps(hidden, _mm512_cmplt_epi32_mask(now, va), score);
      const __m512 sb = _mm512_mask_load_ps(hidden, _mm512_cmplt_epi32_mask(now, vb), score + 16);
      _mm512_store_ps(score, sa);
      _mm512_store_ps(score + 16, sb);
      a = _mm512_max_ps(sa, a);
      b = _mm512_max_ps(sb, b);
    }
  }
  _mm512_storeu_ps(most, a);
  _mm512_storeu_ps(most + 16, b);
}

int simd_avx512_pick(const float *score, int tokens, const float *least, uint16_t *list) {
  const __m512 a = _mm512_loadu_ps(least), b = _mm512_loadu_ps(least + 16);
  uint32_t mask[SIMD_TOKENS];
  uint64_t some[SIMD_TOKENS / 64] = {0};
  for (int t = 0; t < tokens; t++, score += SIMD_LANES) {
    __mmask16 *half = (__mmask16 *)(void *)(mask + t); /* two stores cost less than joining the masks */
    _store_mask16(half, _mm512_cmp_ps_mask(_mm512_load_ps(score), a, _CMP_GE_OQ));
    _store_mask16(half + 1, _mm512_cmp_ps_mask(_mm512_load_ps(score + 16), b, _CMP_GE_OQ));
  }
  for (int t = tokens; t < SIMD_TOKENS; t++) mask[t] = 0;
  for (int t = 0; t < SIMD_TOKENS; t += 16) {
    const __m512i lanes = _mm512_loadu_si512(mask + t);
    some[t / 64] |= (uint64_t)_mm512_test_epi32_mask(lanes, lanes) << t % 64;
  }
  return simd_list(mask, some, list);
}

/* The strip's tokens that are near, of lanes whose largest is. */
static inline __m512i near_of(const simd_near *near, int strip, int v, __m512 least) {
  const __mmask16 lanes = _mm512_cmp_ps_mask(_mm512_loadu_ps(near->most[strip] + 16 * v), least, _CMP_GE_OQ);
  return _mm512_maskz_loadu_epi32(lanes, near->bits[strip] + 16 * v);
}

static int sift_all(const simd_near *near, const float *least, uint16_t *list) {
  const __m512 a = _mm512_loadu_ps(least), b = _mm512_loadu_ps(least + 16);
  uint32_t mask[SIMD_TOKENS];
  uint64_t some[SIMD_TOKENS / 64] = {0};
  for (int s = 0; s < near->strips; s++) {
    const __m512i low = near_of(near, s, 0, a), high = near_of(near, s, 1, b);
    for (uint32_t left = (uint32_t)_mm512_reduce_or_epi32(_mm512_or_si512(low, high)); left; left &= left - 1) {
      const int i = simd_lowest(left), t = near->first[s] + i;
      const __m512i bit = _mm512_set1_epi32(1 << i);
      mask[t] = (uint32_t)_mm512_test_epi32_mask(low, bit) | (uint32_t)_mm512_test_epi32_mask(high, bit) << 16;
      some[t / 64] |= UINT64_C(1) << t % 64;
    }
  }
  return simd_list(mask, some, list);
}

int simd_avx512_sift(const simd_near *near, const float *least, uint16_t *list, int *one_each) {
  __mmask16 odd = 0; /* lanes with no candidate or several */
  for (int v = 0; v < SIMD_LANES / 16; v++) {
    const __m512 from = _mm512_loadu_ps(least + 16 * v);
    __m512i token = _mm512_setzero_si512();
    __mmask16 seen = 0;
    for (int s = 0; s < near->strips; s++) {
      const __m512i bits = near_of(near, s, v, from);
      const __mmask16 here = _mm512_test_epi32_mask(bits, bits);
      odd |= (seen & here) | _mm512_test_epi32_mask(bits, _mm512_sub_epi32(bits, _mm512_set1_epi32(1)));
      seen |= here;
      /* the exponent of a power of two below 2^31 */
      const __m512i power = _mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepi32_ps(bits)), 23);
      token = _mm512_mask_add_epi32(token, here, power, _mm512_set1_epi32(near->first[s] - 127));
    }
    odd |= (__mmask16)~seen;
    const __m512i lane = _mm512_add_epi32(_mm512_set1_epi32(16 * v),
                                          _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    _mm256_storeu_si256((__m256i *)(void *)(list + 16 * v),
                        _mm512_cvtepi32_epi16(_mm512_or_si512(_mm512_slli_epi32(token, 8), lane)));
  }
  *one_each = !odd;
  return odd ? sift_all(near, least, list) : SIMD_LANES;
}

uint32_t simd_avx512_ends(const double *best, const double *sum, double unit, double tiny, float *low) {
  const __m512d a = _mm512_set1_pd(unit), b = _mm512_set1_pd(tiny);
  uint32_t lanes = 0;
  for (int l = 0; l < SIMD_LANES; l += 8) {
    const __m512d middle = _mm512_loadu_pd(best + l), reach = _mm512_fmadd_pd(a, _mm512_loadu_pd(sum + l), b);
    const __m256 from = _mm512_cvtpd_ps(_mm512_sub_pd(middle, reach)),
                 to = _mm512_cvtpd_ps(_mm512_add_pd(middle, reach));
    lanes |= (uint32_t)_mm256_cmp_ps_mask(from, to, _CMP_NEQ_UQ) << l;
    _mm256_storeu_ps(low + l, from);
  }
  return lanes;
}

uint32_t simd_avx512_bounds(const float *most, const float *error, float scale, const float *floor, float *low,
                            float *high) {
  const __m512 by = _mm512_set1_ps(scale), zero = _mm512_setzero_ps();
  uint32_t lanes = 0;
  for (int l = 0; l < SIMD_LANES; l += 16) {
    const __m512 middle = _mm512_loadu_ps(most + l), reach = _mm512_loadu_ps(error + l);
    const __m512 to = _mm512_add_ps(_mm512_mul_ps(_mm512_add_ps(middle, reach), by), zero);
    _mm512_storeu_ps(low + l, _mm512_add_ps(_mm512_mul_ps(_mm512_sub_ps(middle, reach), by), zero));
    _mm512_storeu_ps(high + l, to);
    lanes |= (uint32_t)_mm512_cmp_ps_mask(to, _mm512_loadu_ps(floor + l), _CMP_NLT_UQ) << l;
  }
  return lanes;
}

/* Sixteen elements of a key. */
static inline __m512 sixteen(const void *key, simd_form form, int d) {
  if (form == SIMD_F32) return _mm512_loadu_ps((const float *)key + d);
  const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)key + d));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* The sums of four vectors. */
static inline __m128 sums_of(const __m512 x[4]) {
  const __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
  const __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
  const __m512 c = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  const __m256 d = _mm256_add_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));
  return _mm_add_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));
}

/* Four keys at a time along d, so that a lone chain of FMAs does not wait for itself.  A shift and a mask make floats
 * of the even and the odd elements, so queries are taken apart alike. */
static inline __attribute__((always_inline)) uint32_t few(const simd_group *group, const char *key, int64_t stride,
                                                          int tokens, float *score, simd_next *next, const int lanes) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff), odd = _mm512_set1_epi32((int)0xffff0000u);
  const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const int dim = group->dim, share = simd_fetch_share(next, (tokens + REST - 1) / REST * ((dim + 31) / 32));
  __m512 q[SIMD_MAX_DIM / 32][SIMD_FEW][2];
  __m512i most = _mm512_setzero_si512();
  for (int d = 0; d < dim; d += 32) {
    const __mmask16 rest = d + 32 <= dim ? 0xffff : 0;
    for (int l = 0; l < lanes; l++) {
      const float *row = group->row + l * dim + d;
      const __m512 a = _mm512_loadu_ps(row), b = _mm512_maskz_loadu_ps(rest, row + 16);
      q[d / 32][l][0] = _mm512_permutex2var_ps(a, evens, b);
      q[d / 32][l][1] = _mm512_permutex2var_ps(a, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), b);
    }
  }
  for (int t = 0; t < tokens; t += REST, key += REST * stride, score += REST * SIMD_LANES) {
    __m512 sum[SIMD_FEW][REST];
    SIMD_UNROLL
    for (int l = 0; l < lanes; l++) {
      SIMD_UNROLL
      for (int i = 0; i < REST; i++) sum[l][i] = _mm512_setzero_ps();
    }
    for (int d = 0; d < dim; d += 32) {
      const __mmask16 pairs = d + 32 <= dim ? 0xffff : 0xff;
      simd_fetch(next, share);
      SIMD_UNROLL
      for (int i = 0; i < REST; i++) {
        const __m512i k = _mm512_maskz_loadu_epi32(pairs, key + i * stride + 2 * d);
        const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(k, 16)),
                     other = _mm512_castsi512_ps(_mm512_and_si512(k, odd));
        most = _mm512_max_epu16(most, _mm512_and_si512(k, magnitude));
        SIMD_UNROLL
        for (int l = 0; l < lanes; l++)
          sum[l][i] = _mm512_fmadd_ps(other, q[d / 32][l][1], _mm512_fmadd_ps(even, q[d / 32][l][0], sum[l][i]));
      }
    }
    SIMD_UNROLL
    for (int l = 0; l < lanes; l++) {
      float four[REST];
      _mm_storeu_ps(four, sums_of(sum[l]));
      SIMD_UNROLL
      for (int i = 0; i < REST; i++) score[i * SIMD_LANES + l] = four[i];
    }
  }
  return highest_of_halves(most);
}

uint32_t simd_avx512_few(const simd_group *group, const void *keys, int64_t stride_bytes, int tokens, float *score,
                         simd_next *next) {
  switch (group->lanes) {
  case 1: return few(group, keys, stride_bytes, tokens, score, next, 1);
  case 2: return few(group, keys, stride_bytes, tokens, score, next, 2);
  default: /* of three lanes the fourth is zero, and nobody reads its dots */
    return few(group, keys, stride_bytes, tokens, score, next, SIMD_FEW);
  }
}

static inline __m512d low(__m512 x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }

static inline __m512d high(__m512 x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }

static inline __attribute__((always_inline)) double dot_of(const float *q, const void *key, const simd_form form,
                                                           const int narrow, int dim) {
  __m512d a = _mm512_setzero_pd(), b = a;
  for (int d = 0; d < dim; d += 16) {
    const __m512 k = sixteen(key, form, d), lane = _mm512_loadu_ps(q + d);
    if (narrow) {
      const __m512 product = _mm512_mul_ps(k, lane);
      a = _mm512_add_pd(a, low(product));
      b = _mm512_add_pd(b, high(product));
    } else {
      a = _mm512_fmadd_pd(low(k), low(lane), a);
      b = _mm512_fmadd_pd(high(k), high(lane), b);
    }
  }
  return _mm512_reduce_add_pd(_mm512_add_pd(a, b));
}

/* One key and four queries: the key is widened once. */
static inline __attribute__((always_inline)) void four_dots(const double *const q[4], const void *key,
                                                            const simd_form form, int dim, double *dot) {
  __m512d a[4], b[4];
  SIMD_UNROLL
  for (int i = 0; i < 4; i++) a[i] = b[i] = _mm512_setzero_pd();
  for (int d = 0; d < dim; d += 16) {
    const __m512 k = sixteen(key, form, d);
    const __m512d k0 = low(k), k1 = high(k);
    SIMD_UNROLL
    for (int i = 0; i < 4; i++) {
      a[i] = _mm512_fmadd_pd(_mm512_loadu_pd(q[i] + d), k0, a[i]);
      b[i] = _mm512_fmadd_pd(_mm512_loadu_pd(q[i] + d + 8), k1, b[i]);
    }
  }
  SIMD_UNROLL
  for (int i = 0; i < 4; i++) a[i] = _mm512_add_pd(a[i], b[i]);
  SIMD_UNROLL
  for (int i = 0; i < 4; i += 2) {
    const __m512d pairs = _mm512_add_pd(_mm512_unpacklo_pd(a[i], a[i + 1]), _mm512_unpackhi_pd(a[i], a[i + 1]));
    const __m256d half = _mm256_add_pd(_mm512_castpd512_pd256(pairs), _mm512_extractf64x4_pd(pairs, 1));
    _mm_storeu_pd(dot + i, _mm_add_pd(_mm256_castpd256_pd128(half), _mm256_extractf128_pd(half, 1)));
  }
}

/* q * k cut at the grid of the center: h what the chain at the center took of it, the rest summed beside. */
static inline __attribute__((always_inline)) void four_split(const float *const q[4], const void *const key[4],
                                                             const float center[4], const simd_form form, int dim,
                                                             double *dot) {
  __m512 h[4], l[4];
  SIMD_UNROLL
  for (int i = 0; i < 4; i++) {
    h[i] = _mm512_set1_ps(center[i]);
    l[i] = _mm512_setzero_ps();
  }
  for (int d = 0; d < dim; d += 16) {
    SIMD_UNROLL
    for (int i = 0; i < 4; i++) {
      const __m512 k = sixteen(key[i], form, d), lane = _mm512_loadu_ps(q[i] + d),
                   next = _mm512_fmadd_ps(k, lane, h[i]);
      l[i] = _mm512_add_ps(l[i], _mm512_fmadd_ps(k, lane, _mm512_sub_ps(h[i], next)));
      h[i] = next;
    }
  }
  SIMD_UNROLL
  for (int i = 0; i < 4; i++) h[i] = _mm512_sub_ps(h[i], _mm512_set1_ps(center[i]));
  _mm256_storeu_pd(dot, _mm256_add_pd(_mm256_cvtps_pd(sums_of(h)), _mm256_cvtps_pd(sums_of(l))));
}

#include "simd_x86_dots.inc"

void simd_avx512_later(simd_later *later) {
  const int left = later->count - later->done, now = left < 4 ? left : 4;
  dots(later->group, later->page, later->list + later->done, now, SIMD_SPLIT, later->center, NULL,
       later->dot + later->done);
  later->done += now;
}

void simd_avx512_dots(const simd_group *group, const simd_page *page, const uint16_t *list, int count, simd_sum sum,
                      const float *center, const double *doubles, double *dot) {
  dots(group, page, list, count, sum, center, doubles, dot);
}

const simd_isa simd_avx512 = {
    .name = "avx512",
    .what = "AVX-512 F, BW, DQ, VL",
    .present = present,
    .f32 = {simd_avx512_filter, simd_avx512_roundings, 0, simd_avx512_scan},
    .few = simd_avx512_few,
    .load = simd_avx512_load,
    .peak = simd_avx512_peak,
    .pick = simd_avx512_pick,
    .sift = simd_avx512_sift,
    .chains = 16,
    .dots = simd_avx512_dots,
    .ends = simd_avx512_ends,
    .bounds = simd_avx512_bounds,
    .select = simd_select_avx512,
    .rank = simd_rank_avx512,
};
