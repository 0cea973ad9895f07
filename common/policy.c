/* SPDX-License-Identifier: Apache-2.0
 *
 * Launch policies (S8.1, S8.3 to S8.5): the geometry of a launch from shape constants and capacity, never from
 * live lengths.  What the numbers mean for blocks is geometry.h.  They change speed, never a bit of a result.
 *
 * Counts are judged against 0..2^31-1, as the door judges them; a product that could pass int64_t saturates,
 * which no minimum below it notices.
 */
#include <stdbool.h>

#include "m3idx.h"

static bool is_count(int64_t x) { return x >= 0 && x <= INT32_MAX; }
static bool is_dtype(m3idx_dtype x) { return m3idx_dtype_bytes(x) != 0; }
static bool is_arch(m3idx_arch x) { return x == M3IDX_ARCH_OTHER || x == M3IDX_GFX942 || x == M3IDX_GFX950; }

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static int64_t saturating_product(int64_t a, int64_t b) { return a && b > INT64_MAX / a ? INT64_MAX : a * b; }

/* Largest power of two <= x, x >= 1. */
static int64_t pow2floor(int64_t x) {
  int64_t p = 1;
  while (p <= x / 2) p *= 2;
  return p;
}

m3idx_status m3idx_decode_topk_policy(int64_t max_block, int64_t rows, int64_t heads, int64_t topk, m3idx_arch arch,
                                      m3idx_decode_topk_geometry *out) {
  if (!out || !is_count(max_block) || !is_count(rows) || !is_count(heads) || !is_count(topk) || !is_arch(arch))
    return M3IDX_INVALID;
  const bool tuned = arch == M3IDX_GFX950 && topk == 16 && max_block >= 1 && max_block <= 8192;
  if (tuned && max_block <= 128)
    *out = (m3idx_decode_topk_geometry){1, 128, 2, 1, true, true};
  else if (tuned)
    *out = (m3idx_decode_topk_geometry){16, 512, 4, 2, true, true};
  else
    *out = (m3idx_decode_topk_geometry){
        pow2floor(max64(1, min64(16, 64 / max64(1, rows * heads)))), 512, 8, 2, false, false};
  return M3IDX_OK;
}

static bool decode_score_valid(int64_t reqs, int64_t head_dim, m3idx_dtype q, m3idx_dtype k, m3idx_arch arch) {
  return is_count(reqs) && is_count(head_dim) && is_dtype(q) && is_dtype(k) && is_arch(arch);
}

/* The problem that gfx950 has tuned decode scorers for. */
static bool decode_score_tuned(int64_t head_dim, m3idx_dtype q, m3idx_dtype k, m3idx_arch arch) {
  return arch == M3IDX_GFX950 && head_dim == 128 && q == M3IDX_BF16 && k == M3IDX_BF16;
}

m3idx_status m3idx_decode_score_budget(int64_t reqs, int64_t head_dim, m3idx_dtype q, m3idx_dtype k, m3idx_arch arch,
                                       int64_t *budget) {
  if (!budget || !decode_score_valid(reqs, head_dim, q, k, arch)) return M3IDX_INVALID;
  *budget = 0;
  if (decode_score_tuned(head_dim, q, k, arch) && reqs >= 1) *budget = reqs <= 8 ? 1024 : reqs <= 11 ? 768 : 0;
  return M3IDX_OK;
}

m3idx_status m3idx_decode_score_split(int64_t reqs, int64_t head_dim, m3idx_dtype q, m3idx_dtype k, m3idx_arch arch,
                                      m3idx_decode_score_geometry *out) {
  if (!out || !decode_score_valid(reqs, head_dim, q, k, arch)) return M3IDX_INVALID;
  const bool high_batch = decode_score_tuned(head_dim, q, k, arch) && reqs >= 20 && reqs <= 64;
  const int64_t target = high_batch ? 1024 : 512;
  *out = (m3idx_decode_score_geometry){pow2floor(max64(1, min64(256, target / max64(1, reqs)))), high_batch};
  return M3IDX_OK;
}

m3idx_status m3idx_prefill_score_policy(int64_t max_query_len, int64_t max_seq_len, int64_t reqs, int64_t heads,
                                        int64_t compute_units, m3idx_arch arch, m3idx_prefill_score_geometry *out) {
  if (!out || !is_count(max_query_len) || !is_count(max_seq_len) || !is_count(reqs) || !is_count(heads) ||
      !is_count(compute_units) || compute_units == 0 || !is_arch(arch))
    return M3IDX_INVALID;
  *out = (m3idx_prefill_score_geometry){64, 1};
  if (arch != M3IDX_GFX942 || max_query_len < 128 || max_seq_len < 8192) return M3IDX_OK;
  const int64_t tiles = saturating_product(ceil_div(max_query_len, 128) * reqs, heads); /* 2^24 * 2^31 before it */
  const int64_t blocks = ceil_div(max_seq_len, 128);
  const int64_t waves = ceil_div(4 * compute_units, max64(1, tiles)); /* an empty launch counts as one tile */
  *out = (m3idx_prefill_score_geometry){128, pow2floor(max64(1, min64(16, min64(blocks / 8, waves))))};
  return M3IDX_OK;
}
