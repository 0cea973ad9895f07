/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection from a row, for instruction sets without scans of their own.
 */
#include "simd_select_row.inc"

static inline void lift(const float *score, const simd_rule *rule, int32_t *level) {
  simd_plain_lift(score, rule, level);
}

static inline void hits(const int32_t *level, int32_t least, uint64_t reached[SIMD_CHUNK / 64]) {
  simd_plain_hits(level, least, reached);
}

static inline void reach(const float *score, const simd_rule *rule, int32_t least, uint64_t reached[SIMD_CHUNK / 64]) {
  simd_plain_reach(score, rule, least, reached);
}

static inline void rank(const int32_t *level, int n, int32_t *above) { simd_plain_rank(level, n, above); }

void simd_select_plain(const simd_array *row, const m3idx_contract *contract, simd_best *best) {
  select_array(row, contract, best);
}

void simd_rank_plain(const uint64_t *key, int64_t count, uint64_t *above) {
  for (int64_t i = 0; i < count; i++) {
    above[i] = 0;
    for (int64_t j = 0; j < count; j++) above[i] += key[j] > key[i];
  }
}
