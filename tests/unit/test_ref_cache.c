/* SPDX-License-Identifier: Apache-2.0
 *
 * Index-cache insertion (S6) into the whole cache, by hand.  The codes of every conversion are the subject of
 * test_ref_format.c.
 */
#include <stdint.h>
#include <string.h>

#include "m3idx.h"
#include "unit.h"

enum { D = 16, B = 16, P = 9 };

static m3idx_context *ctx;

/* slot-neg: slots -1, 0, 129, -1: two rows of the cache change, 0 and page 8 row 1. */
START_TEST(slot_neg) {
  static const int64_t slots[] = {-1, 0, 129, -1};
  static uint16_t keys[4][D], cache[P][B][D], want[P][B][D];
  for (int i = 0; i < 4 * D; i++) keys[i / D][i % D] = (uint16_t)(0x7f80 + i); /* NaN payloads among them */
  memset(cache, 0x5a, sizeof cache);
  memset(want, 0x5a, sizeof want);
  memcpy(want[0][0], keys[1], sizeof keys[1]);
  memcpy(want[8][1], keys[2], sizeof keys[2]);
  m3idx_cache_insert_args args = {
      .key = {keys, M3IDX_BF16, {1, 4, D}, {0}}, .slot_mapping = slots, .cache = {cache, M3IDX_BF16, {P, B, D}, {0}}};
  ck_assert_msg(m3idx_cache_insert(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  ck_assert_mem_eq(cache, want, sizeof want);
}
END_TEST

/* f32, f16 and bf16 keys of 1, -2, NaN, huge, -0 into each fp8 cache. */
static const struct {
  m3idx_dtype dtype;
  uint32_t code[5];
} sources[] = {{M3IDX_F32, {0x3f800000, 0xc0000000, 0xff800001, 0xff7fffff, 0x80000000}},
               {M3IDX_F16, {0x3c00, 0xc000, 0x7e00, 0xfbff, 0x8000}},
               {M3IDX_BF16, {0x3f80, 0xc000, 0xffc0, 0xff7f, 0x8000}}};
static const struct {
  m3idx_dtype dtype;
  uint8_t code[5];
} targets[] = {{M3IDX_E4M3FN, {0x38, 0xc0, 0x7f, 0xfe, 0x80}},
               {M3IDX_E4M3FNUZ, {0x40, 0xc8, 0x80, 0xff, 0x00}},
               {M3IDX_E5M2, {0x3c, 0xc0, 0x7f, 0xfb, 0x80}},
               {M3IDX_E5M2FNUZ, {0x40, 0xc4, 0x80, 0xff, 0x00}}};

START_TEST(conversion) {
  int from = _i / 4, to = _i % 4;
  size_t bytes = m3idx_dtype_bytes(sources[from].dtype);
  int64_t slot = B + 3;
  unsigned char key[D * 4] = {0};
  uint8_t cache[2][B][D], want[2][B][D];
  memset(cache, 0x5a, sizeof cache);
  memset(want, 0x5a, sizeof want);
  for (int d = 0; d < D; d++) {
    uint16_t half = (uint16_t)sources[from].code[d % 5];
    if (bytes == 2) memcpy(key + 2 * d, &half, 2);
    if (bytes == 4) memcpy(key + 4 * d, &sources[from].code[d % 5], 4);
    want[1][3][d] = targets[to].code[d % 5];
  }
  uint32_t aligned[D];
  memcpy(aligned, key, sizeof aligned);
  m3idx_cache_insert_args args = {.key = {aligned, sources[from].dtype, {1, 1, D}, {0}},
                                  .slot_mapping = &slot,
                                  .cache = {cache, targets[to].dtype, {2, B, D}, {0}}};
  ck_assert_msg(m3idx_cache_insert(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  ck_assert_mem_eq(cache, want, sizeof want);
}
END_TEST

/* Strides: keys are a column-major view, cache pages and rows have gaps that stay. */
START_TEST(strides) {
  enum { ROW = D + 5, PAGE = B * ROW + 7 };
  static const int64_t slots[] = {B + 2, 1};
  uint8_t keys[D][2], cache[2 * PAGE], want[2 * PAGE];
  memset(cache, 0x5a, sizeof cache);
  memset(want, 0x5a, sizeof want);
  for (int d = 0; d < D; d++) {
    want[PAGE + 2 * ROW + d] = keys[d][0] = (uint8_t)(d + 1);
    want[ROW + d] = keys[d][1] = (uint8_t)(0x80 + d);
  }
  m3idx_cache_insert_args args = {.key = {keys, M3IDX_E4M3FNUZ, {1, 2, D}, {0, 1, 2}},
                                  .slot_mapping = slots,
                                  .cache = {cache, M3IDX_E4M3FNUZ, {2, B, D}, {PAGE, ROW, 1}}};
  ck_assert_msg(m3idx_cache_insert(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  ck_assert_mem_eq(cache, want, sizeof want);
}
END_TEST

/* Pairs that are neither equal nor from a wide format into fp8: unsupported, said so, cache untouched. */
static const m3idx_dtype unsupported[][2] = {{M3IDX_F32, M3IDX_BF16}, {M3IDX_BF16, M3IDX_F32},
                                             {M3IDX_F16, M3IDX_BF16}, {M3IDX_E4M3FN, M3IDX_E4M3FNUZ},
                                             {M3IDX_E5M2, M3IDX_F16}, {M3IDX_E5M2FNUZ, M3IDX_E4M3FN}};

START_TEST(unsupported_pairs) {
  int64_t slot = 0;
  uint32_t key[D] = {0}, cache[B * D], want[B * D];
  memset(cache, 0x5a, sizeof cache);
  memset(want, 0x5a, sizeof want);
  m3idx_cache_insert_args args = {.key = {key, unsupported[_i][0], {1, 1, D}, {0}},
                                  .slot_mapping = &slot,
                                  .cache = {cache, unsupported[_i][1], {1, B, D}, {0}}};
  ck_assert_int_eq(m3idx_cache_insert(ctx, &args), M3IDX_UNSUPPORTED);
  ck_assert_ptr_nonnull(strstr(m3idx_message(ctx), m3idx_dtype_name(unsupported[_i][0])));
  ck_assert_ptr_nonnull(strstr(m3idx_message(ctx), m3idx_dtype_name(unsupported[_i][1])));
  ck_assert_mem_eq(cache, want, sizeof want);
}
END_TEST

int main(void) {
  const m3idx_options options = {.backend = "ref"};
  if (m3idx_open(&ctx, &options, NULL, 0) != M3IDX_OK) return EXIT_FAILURE;
  Suite *suite = suite_create("ref_cache");
  TCase *tcase = tcase_create("ref_cache");
  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, slot_neg);
  tcase_add_loop_test(tcase, conversion, 0, 12);
  tcase_add_test(tcase, strides);
  tcase_add_loop_test(tcase, unsupported_pairs, 0, sizeof unsupported / sizeof *unsupported);
  int status = unit_run(suite);
  m3idx_close(ctx);
  return status;
}
