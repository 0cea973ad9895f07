/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX512_BF16: VDPBF16PS, pairs of elements of up to 32 lanes against twelve keys at a time, keys broadcast.
 */
#include <immintrin.h>

#include "simd_avx512.h"
#include "simd_plain.h"
#include "simd_x86.h"

enum { KEYS = 12, REST = 4, MAX_VECTORS = SIMD_LANES / 16 };

static int present(void) { return simd_x86_has(SIMD_X86_AVX512BF16); }

/* Intel's processors issue VDPBF16PS at half the rate of FMAs or less: measured, two thirds of the f32 filter's speed
 * (docs/PERFORMANCE.md).  AMD's issue both alike. */
static int slow(void) { return simd_x86_is_intel(); }

/* Two FMAs into one chain a pair (docs/CERTIFIED-FILTER.md, "VDPBF16PS"). */
static int roundings(int dim) { return dim; }

static inline __m512bh pair(const void *at) {
  int bits;
  memcpy(&bits, at, sizeof bits);
  return (__m512bh)_mm512_set1_epi32(bits);
}

/* As keys_by_lanes of simd_avx512.c, with a pair of elements where it has one. */
static inline __attribute__((always_inline)) void keys_by_lanes(const uint16_t *q, const char *key, int64_t stride,
                                                                int dim, float *score, const int keys,
                                                                const int vectors) {
  const char *base[3] = {key, key + 4 * stride, key + 8 * stride};
  __m512 sum[KEYS][MAX_VECTORS];
  SIMD_UNROLL
  for (int t = 0; t < keys; t++) {
    SIMD_UNROLL
    for (int v = 0; v < vectors; v++) sum[t][v] = _mm512_setzero_ps();
  }
  for (int d = 0; d < dim; d += 2, q += 2 * SIMD_LANES) {
    __m512bh lane[MAX_VECTORS];
    SIMD_UNROLL
    for (int v = 0; v < vectors; v++) lane[v] = (__m512bh)_mm512_load_si512(q + 32 * v);
    SIMD_UNROLL
    for (int t = 0; t < keys; t++) {
      const __m512bh k = pair(base[t / 4] + (t % 4) * stride);
      SIMD_UNROLL
      for (int v = 0; v < vectors; v++) sum[t][v] = _mm512_dpbf16_ps(sum[t][v], k, lane[v]);
    }
    SIMD_UNROLL
    for (int i = 0; i < keys / 4; i++) base[i] += 4;
  }
  SIMD_UNROLL
  for (int t = 0; t < keys; t++) {
    SIMD_UNROLL
    for (int v = 0; v < vectors; v++) _mm512_store_ps(score + t * SIMD_LANES + 16 * v, sum[t][v]);
  }
}

static inline __attribute__((always_inline)) void pairs(const uint16_t *q, const char *key, int64_t stride, int tokens,
                                                        int dim, float *score, simd_next *next, const int vectors) {
  const int share = simd_fetch_share(next, tokens / KEYS + 1);
  int t = 0;
  for (; t + KEYS <= tokens; t += KEYS, key += KEYS * stride, score += KEYS * SIMD_LANES) {
    simd_fetch(next, share);
    keys_by_lanes(q, key, stride, dim, score, KEYS, vectors);
  }
  simd_fetch(next, share);
  for (; t + 8 <= tokens; t += 8, key += 8 * stride, score += 8 * SIMD_LANES)
    keys_by_lanes(q, key, stride, dim, score, 8, vectors);
  for (; t < tokens; t += REST, key += REST * stride, score += REST * SIMD_LANES)
    keys_by_lanes(q, key, stride, dim, score, REST, vectors);
}

static void filter(const void *q, const void *keys, int64_t stride_bytes, int tokens, int lanes, int padded_dim,
                   float *score, simd_next *next) {
  if (lanes > 16)
    pairs(q, keys, stride_bytes, tokens, padded_dim, score, next, 2);
  else
    pairs(q, keys, stride_bytes, tokens, padded_dim, score, next, 1);
}

const simd_isa simd_avx512bf16 = {
    .name = "avx512bf16",
    .what = "AVX512_BF16 for bf16 and fp8, AVX-512 for the rest",
    .present = present,
    .slow = slow,
    .f32 = {simd_avx512_filter, simd_avx512_roundings, 0, simd_avx512_scan},
    .bf16 = {filter, roundings, 1, NULL},
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
