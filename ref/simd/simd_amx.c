/* SPDX-License-Identifier: Apache-2.0
 *
 * AMX-BF16: TDPBF16PS on tiles of 16 keys, 16 lanes and 32 elements, two by two.
 * Keys are the left operand and lie as they are in the page; queries are the right one, in pairs.
 */
#include <immintrin.h>

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

const simd_isa simd_amx = {
    .name = "amx",
    .what = "AMX-BF16 for bf16 and fp8, AVX-512 for the rest",
    .present = present,
    .enter = enter,
    .leave = leave,
    .f32 = {simd_avx512_filter, simd_avx512_roundings, 0},
    .bf16 = {filter, roundings, 1},
    .strip = 2 * KEYS,
    .few = simd_avx512_few,
    .load = simd_avx512_load,
    .peak = simd_avx512_peak,
    .pick = simd_avx512_pick,
    .chains = 16,
    .dots = simd_avx512_dots,
    .ends = simd_avx512_ends,
    .select = simd_select_avx512,
    .rank = simd_rank_avx512,
};
