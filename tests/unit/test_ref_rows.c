/* SPDX-License-Identifier: Apache-2.0
 *
 * Positions, keys and blocks of rows (S2.3), by hand.
 */
#include "ref_rows.h"
#include "unit.h"

static void expect(const m3idx_batch *batch, int64_t row, int64_t request, int64_t position, int64_t keys,
                   int64_t blocks) {
  ref_row got = ref_row_of(batch, row);
  ck_assert_msg(got.request == request && got.position == position && got.keys == keys && got.blocks == blocks,
                "row %d: want r %d p %d n %d N %d, got r %d p %d n %d N %d", (int)row, (int)request, (int)position,
                (int)keys, (int)blocks, (int)got.request, (int)got.position, (int)got.keys, (int)got.blocks);
}

/* Requests 0, 2, 3 and 5 are empty: at the front, two in a row, at the end. */
START_TEST(prefill_skips_empty_requests) {
  static const int32_t cu[] = {0, 0, 3, 3, 3, 7, 7}, prefix[] = {9, 0, 5, 6, 126, 1}, seq[] = {9, 3, 5, 6, 130, 1};
  const m3idx_batch batch = {.mode = M3IDX_PREFILL,
                             .num_requests = 6,
                             .num_rows = 7,
                             .max_block = 2,
                             .block_size = 128,
                             .seq_lens = seq,
                             .cu_seqlens = cu,
                             .prefix_lens = prefix};
  for (int i = 0; i < 3; i++) expect(&batch, i, 1, i, i + 1, 1);
  expect(&batch, 3, 4, 126, 127, 1);
  expect(&batch, 4, 4, 127, 128, 1);
  expect(&batch, 5, 4, 128, 129, 2);
  expect(&batch, 6, 4, 129, 130, 2);
}
END_TEST

/* qlen-past-seq and pad-request: positions -2, -1, 0, 1, then a padded request, then 14..17 over blocks of 16. */
START_TEST(decode_positions) {
  static const int32_t seq[] = {2, 0, 18};
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = 3,
                             .num_rows = 12,
                             .max_block = 2,
                             .block_size = 16,
                             .decode_query_len = 4,
                             .seq_lens = seq};
  expect(&batch, 0, 0, -2, 0, 0);
  expect(&batch, 1, 0, -1, 0, 0);
  expect(&batch, 2, 0, 0, 1, 1);
  expect(&batch, 3, 0, 1, 2, 1);
  for (int i = 0; i < 4; i++) expect(&batch, 4 + i, 1, i - 4, 0, 0);
  expect(&batch, 8, 2, 14, 15, 1);
  expect(&batch, 9, 2, 15, 16, 1);
  expect(&batch, 10, 2, 16, 17, 2);
  expect(&batch, 11, 2, 17, 18, 2);
  ck_assert_int_eq(ref_row_tokens(&batch, ref_row_of(&batch, 11), 0), 16);
  ck_assert_int_eq(ref_row_tokens(&batch, ref_row_of(&batch, 11), 1), 2);
  ck_assert_int_eq(ref_row_tokens(&batch, ref_row_of(&batch, 9), 0), 16);
  ck_assert_int_eq(ref_row_tokens(&batch, ref_row_of(&batch, 2), 0), 1);
}
END_TEST

/* The last position of the largest request: no 32-bit sum. */
START_TEST(far_positions) {
  static const int32_t seq[] = {INT32_MAX}, cu[] = {0, 1}, prefix[] = {INT32_MAX - 1};
  m3idx_batch batch = {.mode = M3IDX_DECODE,
                       .num_requests = 1,
                       .num_rows = 1,
                       .block_size = 128,
                       .decode_query_len = 1,
                       .seq_lens = seq};
  expect(&batch, 0, 0, INT64_C(2147483646), INT64_C(2147483647), 16777216);
  batch.mode = M3IDX_PREFILL;
  batch.cu_seqlens = cu;
  batch.prefix_lens = prefix;
  expect(&batch, 0, 0, INT64_C(2147483646), INT64_C(2147483647), 16777216);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("ref_rows");
  TCase *tcase = tcase_create("ref_rows");
  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, prefill_skips_empty_requests);
  tcase_add_test(tcase, decode_positions);
  tcase_add_test(tcase, far_positions);
  return unit_run(suite);
}
