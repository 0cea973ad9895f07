/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection from a row on AVX-512: sixteen scores a vector, comparisons straight to masks.
 */
#include <immintrin.h>

#include "simd_select_row.inc"

typedef struct rules {
  __m512i nan_above, nan_bits, zero_bits, magnitude;
} rules;

static inline rules spread(const simd_rule *rule) {
  return (rules){_mm512_set1_epi32((int)rule->nan_above), _mm512_set1_epi32((int)rule->nan_bits),
                 _mm512_set1_epi32((int)rule->zero_bits), _mm512_set1_epi32(0x7fffffff)};
}

static inline __m512i levels(const float *score, rules r) {
  __m512i bits = _mm512_loadu_si512(score);
  bits = _mm512_mask_mov_epi32(bits, _mm512_cmpgt_epi32_mask(_mm512_and_si512(bits, r.magnitude), r.nan_above),
                               r.nan_bits);
  bits = _mm512_maskz_mov_epi32(_mm512_cmpneq_epi32_mask(bits, r.zero_bits), bits);
  return _mm512_mask_xor_epi32(bits, _mm512_movepi32_mask(bits), bits, r.magnitude);
}

static inline void lift(const float *score, const simd_rule *rule, int32_t *level) {
  const rules r = spread(rule);
  for (int i = 0; i < SIMD_CHUNK; i += 16)
    _mm512_storeu_si512(level + i, _mm512_max_epi32(_mm512_loadu_si512(level + i), levels(score + i, r)));
}

static inline void hits(const int32_t *level, int32_t least, uint64_t reached[SIMD_CHUNK / 64]) {
  const __m512i floor = _mm512_set1_epi32(least);
  for (int w = 0; w < SIMD_CHUNK / 64; w++) {
    uint64_t hit = 0;
    for (int i = 0; i < 64; i += 16)
      hit |= (uint64_t)_mm512_cmpge_epi32_mask(_mm512_loadu_si512(level + w * 64 + i), floor) << i;
    reached[w] = hit;
  }
}

static inline void reach(const float *score, const simd_rule *rule, int32_t least, uint64_t reached[SIMD_CHUNK / 64]) {
  const rules r = spread(rule);
  const __m512i floor = _mm512_set1_epi32(least);
  for (int w = 0; w < SIMD_CHUNK / 64; w++) {
    uint64_t hit = 0;
    for (int i = 0; i < 64; i += 16)
      hit |= (uint64_t)_mm512_cmpge_epi32_mask(levels(score + w * 64 + i, r), floor) << i;
    reached[w] = hit;
  }
}

static inline void rank(const int32_t *level, int n, int32_t *above) {
  const __m512i one = _mm512_set1_epi32(1);
  for (int i = 0; i < n; i += 32) {
    const __m512i a = _mm512_loadu_si512(level + i), b = _mm512_loadu_si512(level + i + 16);
    __m512i above_a = _mm512_setzero_si512(), above_b = above_a;
    for (int j = 0; j < n; j++) {
      const __m512i other = _mm512_set1_epi32(level[j]);
      above_a = _mm512_mask_add_epi32(above_a, _mm512_cmpgt_epi32_mask(other, a), above_a, one);
      above_b = _mm512_mask_add_epi32(above_b, _mm512_cmpgt_epi32_mask(other, b), above_b, one);
    }
    _mm512_storeu_si512(above + i, above_a);
    _mm512_storeu_si512(above + i + 16, above_b);
  }
}

void simd_select_avx512(const simd_array *row, const m3idx_contract *contract, simd_best *best) {
  select_array(row, contract, best);
}

void simd_rank_avx512(const uint64_t *key, int64_t count, uint64_t *above) {
  const __m512i one = _mm512_set1_epi64(1);
  for (int64_t i = 0; i < count; i += 8) {
    const __mmask8 there = (__mmask8)(count - i < 8 ? (1 << (count - i)) - 1 : 0xff);
    const __m512i mine = _mm512_maskz_loadu_epi64(there, key + i);
    __m512i sum = _mm512_setzero_si512();
    for (int64_t j = 0; j < count; j++) {
      const __mmask8 more = _mm512_cmpgt_epu64_mask(_mm512_set1_epi64((int64_t)key[j]), mine);
      sum = _mm512_mask_add_epi64(sum, more, sum, one);
    }
    _mm512_storeu_si512(above + i, sum);
  }
}
