/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection from a row on AVX2: eight scores a vector, and masks by movemask.
 */
#include <immintrin.h>

#include "simd_select_row.inc"

typedef struct rules {
  __m256i nan_above, nan_bits, zero_bits, magnitude;
} rules;

static inline rules spread(const simd_rule *rule) {
  return (rules){_mm256_set1_epi32((int)rule->nan_above), _mm256_set1_epi32((int)rule->nan_bits),
                 _mm256_set1_epi32((int)rule->zero_bits), _mm256_set1_epi32(0x7fffffff)};
}

/* Magnitudes are positive as signed integers, so that the signed comparison serves. */
static inline __m256i levels(const float *score, rules r) {
  __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)score);
  const __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(bits, r.magnitude), r.nan_above);
  bits = _mm256_blendv_epi8(bits, r.nan_bits, nan);
  bits = _mm256_andnot_si256(_mm256_cmpeq_epi32(bits, r.zero_bits), bits);
  return _mm256_xor_si256(bits, _mm256_srli_epi32(_mm256_srai_epi32(bits, 31), 1));
}

static inline void lift(const float *score, const simd_rule *rule, int32_t *level) {
  const rules r = spread(rule);
  for (int i = 0; i < SIMD_CHUNK; i += 8) {
    __m256i *at = (__m256i *)(void *)(level + i);
    _mm256_storeu_si256(at, _mm256_max_epi32(_mm256_loadu_si256(at), levels(score + i, r)));
  }
}

static inline void hits(const int32_t *level, int32_t least, uint64_t reached[SIMD_CHUNK / 64]) {
  const __m256i floor = _mm256_set1_epi32(least);
  for (int w = 0; w < SIMD_CHUNK / 64; w++) {
    uint64_t below = 0;
    for (int i = 0; i < 64; i += 8) {
      const __m256i own = _mm256_loadu_si256((const __m256i *)(const void *)(level + w * 64 + i));
      below |= (uint64_t)(uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(floor, own))) << i;
    }
    reached[w] = ~below;
  }
}

static inline void reach(const float *score, const simd_rule *rule, int32_t least, uint64_t reached[SIMD_CHUNK / 64]) {
  const rules r = spread(rule);
  const __m256i floor = _mm256_set1_epi32(least);
  for (int w = 0; w < SIMD_CHUNK / 64; w++) {
    uint64_t below = 0;
    for (int i = 0; i < 64; i += 8) {
      const __m256i less = _mm256_cmpgt_epi32(floor, levels(score + w * 64 + i, r));
      below |= (uint64_t)(uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(less)) << i;
    }
    reached[w] = ~below;
  }
}

static inline void rank(const int32_t *level, int n, int32_t *above) {
  for (int i = 0; i < n; i += 32) {
    __m256i own[4], count[4];
    for (int v = 0; v < 4; v++) {
      own[v] = _mm256_loadu_si256((const __m256i *)(const void *)(level + i + 8 * v));
      count[v] = _mm256_setzero_si256();
    }
    for (int j = 0; j < n; j++) {
      const __m256i other = _mm256_set1_epi32(level[j]);
      for (int v = 0; v < 4; v++) count[v] = _mm256_sub_epi32(count[v], _mm256_cmpgt_epi32(other, own[v]));
    }
    for (int v = 0; v < 4; v++) _mm256_storeu_si256((__m256i *)(void *)(above + i + 8 * v), count[v]);
  }
}

void simd_select_avx2(const simd_array *row, const m3idx_contract *contract, simd_best *best) {
  select_array(row, contract, best);
}

/* AVX2 compares signed numbers: both with their highest bit flipped. */
void simd_rank_avx2(const uint64_t *key, int64_t count, uint64_t *above) {
  const __m256i flip = _mm256_set1_epi64x(INT64_MIN);
  for (int64_t i = 0; i < count; i += 4) {
    uint64_t mine[4] = {0};
    memcpy(mine, key + i, (size_t)(count - i < 4 ? count - i : 4) * sizeof *mine);
    const __m256i own = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(const void *)mine), flip);
    __m256i sum = _mm256_setzero_si256();
    for (int64_t j = 0; j < count; j++) {
      const __m256i other = _mm256_xor_si256(_mm256_set1_epi64x((int64_t)key[j]), flip);
      sum = _mm256_sub_epi64(sum, _mm256_cmpgt_epi64(other, own));
    }
    _mm256_storeu_si256((__m256i *)(void *)(above + i), sum);
  }
}
