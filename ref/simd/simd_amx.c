/* SPDX-License-Identifier: Apache-2.0
 *
 * AMX-BF16: TDPBF16PS on tiles of 16 keys, 16 lanes and 32 elements, two by two.
 * Keys are the left operand and lie as they are in the page; queries are the right one, in pairs.
 */
#include <immintrin.h>
#include <math.h>

#include "simd_avx512.h"
#include "simd_plain.h"
#include "simd_x86.h"

enum { KEYS = 16, STEP = SIMD_DIM_STEP, LANE_BYTES = 4 * SIMD_LANES /* a pair row, and a score row */ };

static int present(void) { return simd_x86_has(SIMD_X86_AMX); }

/* In one TDPBF16PS a product meets 16 FMAs at most, then one addition of the even and the odd chain; then one
 * addition to the tile for each of the dim / 32 instructions (docs/CERTIFIED-FILTER.md, "TDPBF16PS"). */
static int roundings(int dim) { return STEP / 2 + 1 + (dim + STEP - 1) / STEP; }

typedef struct tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t colsb[16];
  uint8_t rows[16];
} tile_config;

/* Static: gcc 12 tells the optimizer that LDTILECFG reads eight bytes of it. */
static const tile_config all_tiles = {
    .palette = 1, .colsb = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

static void enter(void) { _tile_loadconfig(&all_tiles); }

static void leave(void) { _tile_release(); }

/* Tiles 0..3 sums, 4 and 5 keys, 6 and 7 lanes. */
static void two_by_two(const char *q, const char *key, int64_t stride, int dim, float *score, simd_next *next,
                       int share) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int d = 0; d < dim; d += STEP, q += STEP / 2 * LANE_BYTES, key += 2 * STEP) {
    simd_fetch(next, share);
    _tile_loadd(4, key, (size_t)stride);
    _tile_loadd(6, q, LANE_BYTES);
    _tile_loadd(7, q + LANE_BYTES / 2, LANE_BYTES);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, key + KEYS * stride, (size_t)stride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, score, LANE_BYTES);
  _tile_stored(1, score + 16, LANE_BYTES);
  _tile_stored(2, score + KEYS * SIMD_LANES, LANE_BYTES);
  _tile_stored(3, score + KEYS * SIMD_LANES + 16, LANE_BYTES);
}

static void one_by_two(const char *q, const char *key, int64_t stride, int dim, float *score, simd_next *next,
                       int share) {
  _tile_zero(0);
  _tile_zero(1);
  for (int d = 0; d < dim; d += STEP, q += STEP / 2 * LANE_BYTES, key += 2 * STEP) {
    simd_fetch(next, share);
    _tile_loadd(4, key, (size_t)stride);
    _tile_loadd(6, q, LANE_BYTES);
    _tile_loadd(7, q + LANE_BYTES / 2, LANE_BYTES);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  _tile_stored(0, score, LANE_BYTES);
  _tile_stored(1, score + 16, LANE_BYTES);
}

/* Two key tiles, so that two chains of additions overlap. */
static void two_by_one(const char *q, const char *key, int64_t stride, int dim, float *score, simd_next *next,
                       int share) {
  _tile_zero(0);
  _tile_zero(2);
  for (int d = 0; d < dim; d += STEP, q += STEP / 2 * LANE_BYTES, key += 2 * STEP) {
    simd_fetch(next, share);
    _tile_loadd(6, q, LANE_BYTES);
    _tile_loadd(4, key, (size_t)stride);
    _tile_loadd(5, key + KEYS * stride, (size_t)stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
  }
  _tile_stored(0, score, LANE_BYTES);
  _tile_stored(2, score + KEYS * SIMD_LANES, LANE_BYTES);
}

static void one_by_one(const char *q, const char *key, int64_t stride, int dim, float *score, simd_next *next,
                       int share) {
  _tile_zero(0);
  for (int d = 0; d < dim; d += STEP, q += STEP / 2 * LANE_BYTES, key += 2 * STEP) {
    simd_fetch(next, share);
    _tile_loadd(6, q, LANE_BYTES);
    _tile_loadd(4, key, (size_t)stride);
    _tile_dpbf16ps(0, 4, 6);
  }
  _tile_stored(0, score, LANE_BYTES);
}

static void filter(const void *q, const void *keys, int64_t stride_bytes, int tokens, int lanes, int padded_dim,
                   float *score, simd_next *next) {
  const int share = simd_fetch_share(next, (tokens + 2 * KEYS - 1) / (2 * KEYS) * (padded_dim / STEP));
  const char *key = keys;
  int t = 0;
  for (; t + KEYS < tokens; t += 2 * KEYS, key += 2 * KEYS * stride_bytes, score += 2 * KEYS * SIMD_LANES)
    (lanes > 16 ? two_by_two : two_by_one)(q, key, stride_bytes, padded_dim, score, next, share);
  if (t < tokens) (lanes > 16 ? one_by_two : one_by_one)(q, key, stride_bytes, padded_dim, score, next, share);
}

/* A strip of 16 keys in one pair of sums.  The other pair, of the strip before, is stored when its last instructions
 * are through: the unit stands still for a store, and the processor cannot look beyond it. */
#define STRIP_BY_TWO(a, b, keys, c, d)                                                 \
  do {                                                                                 \
    const char *lane = q, *part = key;                                                 \
    _tile_zero(a);                                                                     \
    _tile_zero(b);                                                                     \
    for (int i = 0; i < steps; i++, lane += STEP / 2 * LANE_BYTES, part += 2 * STEP) { \
      simd_fetch(&page->next, share);                                                  \
      _tile_loadd(keys, part, (size_t)stride);                                         \
      _tile_loadd(6, lane, LANE_BYTES);                                                \
      _tile_loadd(7, lane + LANE_BYTES / 2, LANE_BYTES);                               \
      _tile_dpbf16ps(a, keys, 6);                                                      \
      _tile_dpbf16ps(b, keys, 7);                                                      \
      if (i == when && t > 0) {                                                        \
        _tile_stored(c, room, LANE_BYTES);                                             \
        _tile_stored(d, room + 16, LANE_BYTES);                                        \
      }                                                                                \
    }                                                                                  \
  } while (0)

static inline __attribute__((always_inline)) void judge(const simd_scan *scan, int first, __m512 total[2],
                                                        const int near) {
  simd_near *to = scan->near;
  SIMD_UNROLL
  for (int v = 0; v < 2; v++) {
    __m512 dot[KEYS], most[4];
    SIMD_UNROLL
    for (int t = 0; t < KEYS; t++) dot[t] = _mm512_load_ps(scan->room + t * SIMD_LANES + 16 * v);
    SIMD_UNROLL
    for (int i = 0; i < 4; i++)
      most[i] = _mm512_max_ps(_mm512_max_ps(dot[i], dot[i + 4]), _mm512_max_ps(dot[i + 8], dot[i + 12]));
    const __m512 of_strip = _mm512_max_ps(_mm512_max_ps(most[0], most[1]), _mm512_max_ps(most[2], most[3]));
    total[v] = _mm512_max_ps(total[v], of_strip);
    if (!near) continue;
    const __m512 least = _mm512_sub_ps(of_strip, _mm512_loadu_ps(scan->reach + 16 * v));
    __m512i bits = _mm512_setzero_si512();
    SIMD_UNROLL
    for (int t = 0; t < KEYS; t++)
      bits = _mm512_mask_or_epi32(bits, _mm512_cmp_ps_mask(dot[t], least, _CMP_GE_OQ), bits, _mm512_set1_epi32(1 << t));
    _mm512_storeu_ps(to->most[to->strips] + 16 * v, of_strip);
    _mm512_storeu_si512(to->bits[to->strips] + 16 * v, bits);
  }
  if (near) to->first[to->strips++] = first;
}

static inline __attribute__((always_inline)) void strips(const simd_group *group, simd_page *page, int tokens,
                                                         const simd_scan *scan, const int near) {
  const int64_t stride = page->stride_bytes;
  const int steps = group->padded_dim / STEP, when = steps > 1;
  const int share = simd_fetch_share(&page->next, tokens / KEYS * steps);
  const char *q = group->q, *key = page->keys;
  float *room = scan->room;
  simd_later *later = scan->later;
  __m512 total[2] = {_mm512_set1_ps(-INFINITY), _mm512_set1_ps(-INFINITY)};
  if (near) scan->near->strips = 0;
  for (int t = 0; t < tokens; t += KEYS, key += KEYS * stride) {
    if (t % (2 * KEYS) == 0)
      STRIP_BY_TWO(0, 1, 4, 2, 3);
    else
      STRIP_BY_TWO(2, 3, 5, 0, 1);
    if (near && later && later->done < later->count) simd_avx512_later(later);
    if (t > 0) judge(scan, t - KEYS, total, near);
  }
  if (tokens % (2 * KEYS) == 0) {
    _tile_stored(2, room, LANE_BYTES);
    _tile_stored(3, room + 16, LANE_BYTES);
  } else {
    _tile_stored(0, room, LANE_BYTES);
    _tile_stored(1, room + 16, LANE_BYTES);
  }
  judge(scan, tokens - KEYS, total, near);
  _mm512_storeu_ps(scan->most, total[0]);
  _mm512_storeu_ps(scan->most + 16, total[1]);
}

static void scan(const simd_group *group, simd_page *page, int tokens, const simd_scan *scan) {
  if (scan->near)
    strips(group, page, tokens, scan, 1);
  else
    strips(group, page, tokens, scan, 0);
}

const simd_isa simd_amx = {
    .name = "amx",
    .what = "AMX-BF16 for bf16 and fp8, AVX-512 for the rest",
    .present = present,
    .enter = enter,
    .leave = leave,
    .f32 = {simd_avx512_filter, simd_avx512_roundings, 0, simd_avx512_scan},
    .bf16 = {filter, roundings, 1, scan},
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
