/* SPDX-License-Identifier: Apache-2.0
 *
 * Levels, and the three scans that selection is made of, in plain C for the vectorizer of whichever file includes them.
 */
#ifndef M3IDX_SIMD_SELECT_SCAN_H
#define M3IDX_SIMD_SELECT_SCAN_H

#include <string.h>

#include "simd_select.h"

enum { SIMD_CHUNK = 128, SIMD_RANKED = 2 * SIMD_CHUNK };

/* S4.2 as constants: a pattern whose magnitude is above `nan_above` counts as `nan_bits`, `zero_bits` as 0. */
typedef struct simd_rule {
  uint32_t nan_above, nan_bits, zero_bits;
} simd_rule;

/* A score's *level*: a signed integer in the contract's order, S4.3's ordered(score) with its top bit flipped, after
 * the NaN and zero rules (S4.2).  The largest signed value is a NaN by its bits or +inf, the smallest stands below
 * -inf. */
static inline int32_t simd_level(uint32_t bits, const simd_rule *rule) {
  bits = (bits & UINT32_C(0x7fffffff)) > rule->nan_above ? rule->nan_bits : bits;
  bits = bits == rule->zero_bits ? 0 : bits;
  return (int32_t)(bits ^ ((0 - (bits >> 31)) & UINT32_C(0x7fffffff)));
}

/* The number of the lowest and of the highest set bit; mask != 0. */
static inline int simd_lowest_bit(uint64_t mask) {
#if defined(__GNUC__)
  return __builtin_ctzll(mask);
#else
  int bit = 0;
  while (!(mask >> bit & 1)) bit++;
  return bit;
#endif
}
static inline int simd_highest_bit(uint64_t mask) {
#if defined(__GNUC__)
  return 63 - __builtin_clzll(mask);
#else
  int bit = 63;
  while (!(mask >> bit & 1)) bit--;
  return bit;
#endif
}

/* level[i] = the larger of level[i] and the level of score[i], i < SIMD_CHUNK. */
static inline void simd_plain_lift(const float *score, const simd_rule *rule, int32_t *level) {
  const simd_rule r = *rule; /* level may alias what rule points to, as far as a compiler knows */
  uint32_t bits[SIMD_CHUNK];
  memcpy(bits, score, sizeof bits);
  for (int i = 0; i < SIMD_CHUNK; i++) {
    const int32_t now = simd_level(bits[i], &r);
    level[i] = now > level[i] ? now : level[i];
  }
}

/* Bit i % 64 of reached[i / 64]: level[i] >= least, i < SIMD_CHUNK. */
static inline void simd_plain_hits(const int32_t *level, int32_t least, uint64_t reached[SIMD_CHUNK / 64]) {
  int32_t hit[SIMD_CHUNK], any = 0;
  for (int i = 0; i < SIMD_CHUNK; i++) {
    hit[i] = level[i] >= least;
    any |= hit[i];
  }
  for (int w = 0; w < SIMD_CHUNK / 64; w++) reached[w] = 0;
  if (any)
    for (int i = 0; i < SIMD_CHUNK; i++) reached[i / 64] |= (uint64_t)(uint32_t)hit[i] << i % 64;
}

/* The same of scores. */
static inline void simd_plain_reach(const float *score, const simd_rule *rule, int32_t least,
                                    uint64_t reached[SIMD_CHUNK / 64]) {
  const simd_rule r = *rule;
  uint32_t bits[SIMD_CHUNK];
  int32_t level[SIMD_CHUNK];
  memcpy(bits, score, sizeof bits);
  for (int i = 0; i < SIMD_CHUNK; i++) level[i] = simd_level(bits[i], &r);
  simd_plain_hits(level, least, reached);
}

/* above[i] = how many of level[0 .. n - 1] are larger than level[i]; n a multiple of 32, at most SIMD_RANKED. */
static inline void simd_plain_rank(const int32_t *level, int n, int32_t *above) {
  for (int first = 0; first < n; first += 32) {
    int32_t count[32] = {0};
    for (int j = 0; j < n; j++)
      for (int i = 0; i < 32; i++) count[i] += level[first + i] < level[j];
    memcpy(above + first, count, sizeof count);
  }
}

#endif
