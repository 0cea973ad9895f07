/* SPDX-License-Identifier: Apache-2.0
 *
 * Launch policies (S8.1, S8.3 to S8.5): every row of the published tables, what holds for all arguments, and
 * what is refused.
 */
#include <string.h>

#include "m3idx.h"
#include "unit.h"

#define LENGTH(a) (int)(sizeof(a) / sizeof *(a))

static const m3idx_arch arches[] = {M3IDX_ARCH_OTHER, M3IDX_GFX942, M3IDX_GFX950};

static int is_pow2(int64_t x) { return x > 0 && (x & (x - 1)) == 0; }

/* ---- the tables ---- */

static const struct {
  int64_t max_block, rows, heads, topk;
  m3idx_arch arch;
  m3idx_decode_topk_geometry want;
} topk_rows[] = {
    {0, 24, 1, 16, M3IDX_GFX950, {2, 512, 8, 2, 0, 0}},
    {1, 1, 1, 16, M3IDX_GFX950, {1, 128, 2, 1, 1, 1}},
    {74, 4, 1, 16, M3IDX_GFX950, {1, 128, 2, 1, 1, 1}},
    {128, 4, 1, 16, M3IDX_GFX950, {1, 128, 2, 1, 1, 1}},
    {129, 4, 1, 16, M3IDX_GFX950, {16, 512, 4, 2, 1, 1}},
    {512, 4, 1, 16, M3IDX_GFX950, {16, 512, 4, 2, 1, 1}},
    {513, 24, 4, 16, M3IDX_GFX950, {16, 512, 4, 2, 1, 1}},
    {2760, 5, 2, 16, M3IDX_GFX950, {16, 512, 4, 2, 1, 1}},
    {8192, 64, 4, 16, M3IDX_GFX950, {16, 512, 4, 2, 1, 1}},
    {8193, 4, 1, 16, M3IDX_GFX950, {16, 512, 8, 2, 0, 0}},
    {8193, 16, 1, 16, M3IDX_GFX950, {4, 512, 8, 2, 0, 0}},
    {65534, 64, 1, 16, M3IDX_GFX950, {1, 512, 8, 2, 0, 0}},
    {513, 16, 1, 13, M3IDX_GFX950, {4, 512, 8, 2, 0, 0}},
    {513, 16, 4, 16, M3IDX_GFX942, {1, 512, 8, 2, 0, 0}},
    {8193, 1, 1, 16, M3IDX_GFX942, {16, 512, 8, 2, 0, 0}},
    /* By hand from the formula: no rows counts as one; rows * heads past 64, and past 2^32, leaves one chunk. */
    {513, 0, 1, 16, M3IDX_ARCH_OTHER, {16, 512, 8, 2, 0, 0}},
    {513, 65, 1, 16, M3IDX_ARCH_OTHER, {1, 512, 8, 2, 0, 0}},
    {513, INT32_MAX, INT32_MAX, 16, M3IDX_GFX942, {1, 512, 8, 2, 0, 0}},
};

START_TEST(decode_topk_table) {
  m3idx_decode_topk_geometry got;
  memset(&got, 0x55, sizeof got);
  const m3idx_decode_topk_geometry *want = &topk_rows[_i].want;
  ck_assert_int_eq(m3idx_decode_topk_policy(topk_rows[_i].max_block, topk_rows[_i].rows, topk_rows[_i].heads,
                                            topk_rows[_i].topk, topk_rows[_i].arch, &got),
                   M3IDX_OK);
  ck_assert_int_eq(got.chunks, want->chunks);
  ck_assert_int_eq(got.block, want->block);
  ck_assert_int_eq(got.warps, want->warps);
  ck_assert_int_eq(got.stages, want->stages);
  ck_assert_int_eq(got.single_tile, want->single_tile);
  ck_assert_int_eq(got.adaptive_merge, want->adaptive_merge);
}
END_TEST

static const struct {
  int64_t reqs, head_dim;
  m3idx_dtype q, k;
  m3idx_arch arch;
  int64_t want_chunks;
  int want_high_batch;
} split_rows[] = {
    {19, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 16, 0},
    {20, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 32, 1},
    {32, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 32, 1},
    {33, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 16, 1},
    {64, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 16, 1},
    {65, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 4, 0},
    {20, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX942, 16, 0},
    {20, 64, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 16, 0},
    {20, 128, M3IDX_F16, M3IDX_BF16, M3IDX_GFX950, 16, 0},
    /* By hand: the other type, no requests, the cap of 256 and its edge, more requests than the target. */
    {20, 128, M3IDX_BF16, M3IDX_E4M3FN, M3IDX_GFX950, 16, 0},
    {0, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 256, 0},
    {1, 128, M3IDX_F32, M3IDX_F32, M3IDX_ARCH_OTHER, 256, 0},
    {2, 128, M3IDX_F32, M3IDX_F32, M3IDX_GFX942, 256, 0},
    {3, 128, M3IDX_F32, M3IDX_F32, M3IDX_GFX942, 128, 0},
    {513, 128, M3IDX_F32, M3IDX_F32, M3IDX_GFX942, 1, 0},
};

START_TEST(decode_score_split_table) {
  m3idx_decode_score_geometry got = {-1, -1};
  ck_assert_int_eq(m3idx_decode_score_split(split_rows[_i].reqs, split_rows[_i].head_dim, split_rows[_i].q,
                                            split_rows[_i].k, split_rows[_i].arch, &got),
                   M3IDX_OK);
  ck_assert_int_eq(got.chunks, split_rows[_i].want_chunks);
  ck_assert_int_eq(got.high_batch, split_rows[_i].want_high_batch);
}
END_TEST

static const struct {
  int64_t reqs, head_dim;
  m3idx_dtype q, k;
  m3idx_arch arch;
  int64_t want;
} budget_rows[] = {
    {0, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 0},    {1, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 1024},
    {8, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 1024}, {9, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 768},
    {11, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 768}, {12, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 0},
    {8, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX942, 0},    {8, 64, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, 0},
    {8, 128, M3IDX_F16, M3IDX_BF16, M3IDX_GFX950, 0},     {8, 128, M3IDX_BF16, M3IDX_F16, M3IDX_GFX950, 0},
};

START_TEST(decode_score_budget_table) {
  int64_t got = -1;
  ck_assert_int_eq(m3idx_decode_score_budget(budget_rows[_i].reqs, budget_rows[_i].head_dim, budget_rows[_i].q,
                                             budget_rows[_i].k, budget_rows[_i].arch, &got),
                   M3IDX_OK);
  ck_assert_int_eq(got, budget_rows[_i].want);
}
END_TEST

static const struct {
  int64_t max_query_len, max_seq_len, reqs, heads, compute_units;
  m3idx_arch arch;
  int64_t want_block_q, want_splits;
} prefill_rows[] = {
    {127, 262144, 1, 1, 304, M3IDX_GFX942, 64, 1},
    {128, 8191, 1, 1, 304, M3IDX_GFX942, 64, 1},
    {128, 8192, 1, 1, 304, M3IDX_GFX942, 128, 8},
    {128, 16384, 1, 1, 304, M3IDX_GFX942, 128, 16},
    {8192, 8192, 1, 1, 304, M3IDX_GFX942, 128, 8},
    {32768, 131072, 1, 1, 304, M3IDX_GFX942, 128, 4},
    {32768, 262144, 1, 4, 304, M3IDX_GFX942, 128, 2},
    {32768, 262144, 1, 1, 256, M3IDX_GFX950, 64, 1},
    /* By hand: no tiles count as one; products past 64 bits saturate; a huge machine meets the cap of 16. */
    {128, 16384, 0, 1, 304, M3IDX_GFX942, 128, 16},
    {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, M3IDX_GFX942, 128, 1},
    {INT32_MAX, INT32_MAX, 1, 1, INT32_MAX, M3IDX_GFX942, 128, 16},
    {256, 16384, 1, 1, 1, M3IDX_GFX942, 128, 2},
};

START_TEST(prefill_score_table) {
  m3idx_prefill_score_geometry got = {-1, -1};
  ck_assert_int_eq(m3idx_prefill_score_policy(prefill_rows[_i].max_query_len, prefill_rows[_i].max_seq_len,
                                              prefill_rows[_i].reqs, prefill_rows[_i].heads,
                                              prefill_rows[_i].compute_units, prefill_rows[_i].arch, &got),
                   M3IDX_OK);
  ck_assert_int_eq(got.block_q, prefill_rows[_i].want_block_q);
  ck_assert_int_eq(got.splits, prefill_rows[_i].want_splits);
}
END_TEST

/* ---- properties ---- */

/* S8.2: chunks are a power of two up to 16, single_tile keeps its promise, more rows never mean more chunks. */
START_TEST(decode_topk_properties) {
  for (int64_t max_block = 0; max_block <= 9000; max_block++) {
    int64_t before = 16;
    for (int64_t rows = 0; rows <= 70; rows += 7) {
      m3idx_decode_topk_geometry g;
      ck_assert_int_eq(m3idx_decode_topk_policy(max_block, rows, 1, 16, arches[_i], &g), M3IDX_OK);
      ck_assert(is_pow2(g.chunks) && g.chunks <= 16);
      if (g.single_tile) ck_assert_int_ge(g.block, (max_block + g.chunks - 1) / g.chunks);
      ck_assert_int_le(g.chunks, before);
      before = g.chunks;
    }
  }
}
END_TEST

/* S8.4: at most the target's programs, unless one a request is already more; S8.3: no budget off its one case. */
START_TEST(decode_score_properties) {
  for (int64_t reqs = 0; reqs <= 3000; reqs++) {
    m3idx_decode_score_geometry g;
    int64_t budget = -1;
    ck_assert_int_eq(m3idx_decode_score_split(reqs, 128, M3IDX_BF16, M3IDX_BF16, arches[_i], &g), M3IDX_OK);
    const int64_t target = g.high_batch ? 1024 : 512;
    ck_assert(is_pow2(g.chunks) && g.chunks <= 256);
    ck_assert(g.chunks * reqs <= target || g.chunks == 1);
    ck_assert(g.chunks == 256 || 2 * g.chunks * (reqs ? reqs : 1) > target); /* no larger power of two fits */
    ck_assert_int_eq(m3idx_decode_score_budget(reqs, 128, M3IDX_BF16, M3IDX_BF16, arches[_i], &budget), M3IDX_OK);
    ck_assert_int_eq(budget != 0, arches[_i] == M3IDX_GFX950 && reqs >= 1 && reqs <= 11);
  }
}
END_TEST

/* S8.5: a split keeps at least 8 blocks of the longest row, and halving the splits would leave too few waves. */
START_TEST(prefill_score_properties) {
  for (int64_t q_len = 64; q_len <= 40000; q_len = q_len * 5 / 4)
    for (int64_t seq_len = 4096; seq_len <= 1 << 20; seq_len = seq_len * 5 / 4)
      for (int64_t heads = 1; heads <= 4; heads *= 2) {
        m3idx_prefill_score_geometry g;
        ck_assert_int_eq(m3idx_prefill_score_policy(q_len, seq_len, 3, heads, 304, arches[_i], &g), M3IDX_OK);
        ck_assert(is_pow2(g.splits) && g.splits <= 16);
        if (g.splits == 1) continue;
        const int64_t tiles = (q_len + 127) / 128 * 3 * heads;
        ck_assert_int_eq(arches[_i], M3IDX_GFX942);
        ck_assert_int_eq(g.block_q, 128);
        ck_assert_int_ge((seq_len + 127) / 128, 8 * g.splits);
        ck_assert_int_lt((g.splits - 1) * tiles, 4 * 304);
      }
}
END_TEST

/* ---- refusals: INVALID, and the answer untouched ---- */

static const int64_t not_counts[] = {-1, INT64_MIN, (int64_t)INT32_MAX + 1, INT64_MAX};

static void topk_refused(int64_t max_block, int64_t rows, int64_t heads, int64_t topk, m3idx_arch arch) {
  m3idx_decode_topk_geometry g, poison;
  memset(&g, 0x5a, sizeof g);
  memcpy(&poison, &g, sizeof g);
  ck_assert_int_eq(m3idx_decode_topk_policy(max_block, rows, heads, topk, arch, &g), M3IDX_INVALID);
  ck_assert_mem_eq(&g, &poison, sizeof g);
}

static void decode_refused(int64_t reqs, int64_t head_dim, m3idx_dtype q, m3idx_dtype k, m3idx_arch arch) {
  m3idx_decode_score_geometry g = {77, 78};
  int64_t budget = 79;
  ck_assert_int_eq(m3idx_decode_score_split(reqs, head_dim, q, k, arch, &g), M3IDX_INVALID);
  ck_assert_int_eq(m3idx_decode_score_budget(reqs, head_dim, q, k, arch, &budget), M3IDX_INVALID);
  ck_assert(g.chunks == 77 && g.high_batch == 78 && budget == 79);
}

static void prefill_refused(const int64_t a[5], m3idx_arch arch) {
  m3idx_prefill_score_geometry g = {77, 78};
  ck_assert_int_eq(m3idx_prefill_score_policy(a[0], a[1], a[2], a[3], a[4], arch, &g), M3IDX_INVALID);
  ck_assert(g.block_q == 77 && g.splits == 78);
}

START_TEST(refused_counts) {
  const int64_t bad = not_counts[_i];
  topk_refused(bad, 1, 1, 16, M3IDX_GFX950);
  topk_refused(1, bad, 1, 16, M3IDX_GFX950);
  topk_refused(1, 1, bad, 16, M3IDX_GFX950);
  topk_refused(1, 1, 1, bad, M3IDX_GFX950);
  decode_refused(bad, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950);
  decode_refused(1, bad, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950);
  for (int i = 0; i < 5; i++) {
    int64_t a[5] = {8192, 8192, 1, 1, 304};
    a[i] = bad;
    prefill_refused(a, M3IDX_GFX942);
  }
}
END_TEST

START_TEST(refused_others) {
  const m3idx_arch arch = (m3idx_arch)3;
  const int64_t good[5] = {8192, 8192, 1, 1, 304}, no_units[5] = {8192, 8192, 1, 1, 0};
  topk_refused(1, 1, 1, 16, arch);
  decode_refused(1, 128, M3IDX_BF16, M3IDX_BF16, arch);
  decode_refused(1, 128, M3IDX_DTYPE_COUNT, M3IDX_BF16, M3IDX_GFX950);
  decode_refused(1, 128, M3IDX_BF16, M3IDX_DTYPE_COUNT, M3IDX_GFX950);
  prefill_refused(good, arch);
  prefill_refused(no_units, M3IDX_GFX942);
  ck_assert_int_eq(m3idx_decode_topk_policy(1, 1, 1, 16, M3IDX_GFX950, NULL), M3IDX_INVALID);
  ck_assert_int_eq(m3idx_decode_score_split(1, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, NULL), M3IDX_INVALID);
  ck_assert_int_eq(m3idx_decode_score_budget(1, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, NULL), M3IDX_INVALID);
  ck_assert_int_eq(m3idx_prefill_score_policy(1, 1, 1, 1, 1, M3IDX_GFX942, NULL), M3IDX_INVALID);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("policy");
  TCase *tables = tcase_create("tables"), *properties = tcase_create("properties"), *refused = tcase_create("refused");
  suite_add_tcase(suite, tables);
  suite_add_tcase(suite, properties);
  suite_add_tcase(suite, refused);
  tcase_add_loop_test(tables, decode_topk_table, 0, LENGTH(topk_rows));
  tcase_add_loop_test(tables, decode_score_split_table, 0, LENGTH(split_rows));
  tcase_add_loop_test(tables, decode_score_budget_table, 0, LENGTH(budget_rows));
  tcase_add_loop_test(tables, prefill_score_table, 0, LENGTH(prefill_rows));
  tcase_add_loop_test(properties, decode_topk_properties, 0, LENGTH(arches));
  tcase_add_loop_test(properties, decode_score_properties, 0, LENGTH(arches));
  tcase_add_loop_test(properties, prefill_score_properties, 0, LENGTH(arches));
  tcase_add_loop_test(refused, refused_counts, 0, LENGTH(not_counts));
  tcase_add_test(refused, refused_others);
  return unit_run(suite);
}
