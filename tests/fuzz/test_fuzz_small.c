/* SPDX-License-Identifier: Apache-2.0
 *
 * The shrinker's edits (fuzz/fuzz_small.h): what stays is, bit for bit, what stood there before, and a pinned case is
 * the case.  And lines of files (fuzz/fuzz_keep.h).
 */
#include <stdio.h>
#include <string.h>

#include "case.h"
#include "fuzz_keep.h"
#include "fuzz_small.h"
#include "unit.h"

static case_file made(const case_spec *spec) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_file file;
  ck_assert_msg(!case_generate(spec, &file, why), "%s", why);
  return file;
}

static case_spec parsed(const char *line) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_spec spec;
  ck_assert_msg(!case_spec_parse_line(line, &spec, why), "%s: %s", line, why);
  return spec;
}

/* A pinned case to cut, and the case it came from. */
static fuzz_small pinned(const char *line, case_file *before) {
  case_spec spec = parsed(line);
  fuzz_small plain, small;
  *before = made(&spec);
  ck_assert_int_eq(fuzz_small_from(&spec, &plain), 0);
  ck_assert_int_eq(fuzz_small_pin(&plain, 1 << 20, &small), 0);
  fuzz_small_free(&plain);
  case_spec_free(&spec);
  return small;
}

static case_file after(fuzz_small *small) {
  case_spec spec;
  ck_assert_int_eq(fuzz_small_spec(small, &spec), 0);
  case_file file = made(&spec);
  case_spec_free(&spec);
  fuzz_small_free(small);
  return file;
}

/* bytes of `a` at `at` are those of `b` at `bt`, element by element of a [..][width] tensor. */
static void same(const case_file *a, int64_t at, const case_file *b, int64_t bt, const char *name, int64_t count) {
  const case_tensor *x = case_find(a, name), *y = case_find(b, name);
  const size_t w = case_dtype_bytes(x->dtype);
  ck_assert_msg(((size_t)at + (size_t)count) * w <= x->bytes && ((size_t)bt + (size_t)count) * w <= y->bytes, "%s",
                name);
  ck_assert_msg(
      !memcmp((const char *)x->data + (size_t)at * w, (const char *)y->data + (size_t)bt * w, (size_t)count * w),
      "%s at %d and %d", name, (int)at, (int)bt);
}

static int64_t entry(const case_file *f, int64_t r, int64_t b) {
  const case_tensor *t = case_find(f, "block_table");
  return ((const int32_t *)t->data)[r * t->shape[1] + b];
}

/* ---- pinning ---- */

START_TEST(pin_is_the_case) {
  static const char *const lines[] = {
      ("--op decode --seq-lens 33,17 --decode-query-len 2 --heads 2 --head-dim 32 --block-size 16 "
       "--q-dtype f16 --k-dtype e4m3fnuz --data specials --seed 3"),
      ("--op prefill --q-lens 3,1 --prefix-lens 126,0 --heads 2 --head-dim 16 --sparse-table 1 --attention-table 1 "
       "--table random --data mixed --seed 4"),
      "--op select --num-blocks 0,7,40 --heads 2 --max-block 44 --data specials --seed 5"};
  static const char *const names[] = {"q", "index_k", "seq_lens", "cu_seqlens", "prefix_lens", "num_blocks"};
  case_file before;
  fuzz_small small = pinned(lines[_i], &before);
  ck_assert_int_eq(small.spec.data, CASE_ZEROS);
  case_file file = after(&small);
  for (int i = 0; i < 6; i++) {
    const case_tensor *t = case_find(&before, names[i]);
    if (t) same(&before, 0, &file, 0, names[i], (int64_t)(t->bytes / case_dtype_bytes(t->dtype)));
  }
  if (_i == 2)
    for (int64_t row = 0; row < 6; row++) /* columns that a row sees */
      same(&before, row * 44, &file, row * 44, "score", (int64_t[]){0, 7, 40}[row % 3]);
  if (_i == 0) {
    for (int64_t b = 0; b < 3; b++) ck_assert_int_eq(entry(&before, 0, b), entry(&file, 0, b));
    for (int64_t b = 0; b < 2; b++) ck_assert_int_eq(entry(&before, 1, b), entry(&file, 1, b));
  }
  case_file_free(&before);
  case_file_free(&file);
}
END_TEST

START_TEST(pin_knows_its_bound) {
  case_spec spec = parsed("--op decode --seq-lens 33 --head-dim 16 --block-size 16");
  fuzz_small plain, small;
  ck_assert_int_eq(fuzz_small_from(&spec, &plain), 0);
  ck_assert_int_eq(fuzz_small_pin(&plain, 700, &small), -1); /* 16 of q, 768 of keys */
  fuzz_small_free(&plain);
  case_spec_free(&spec);
}
END_TEST

/* ---- edits of decode: 3 requests of 2 rows, 2 heads, 32 dims, blocks of 16 ---- */

static const char decode_line[] = "--op decode --seq-lens 33,20,50 --decode-query-len 2 --heads 2 --head-dim 32 "
                                  "--block-size 16 --q-dtype f32 --k-dtype f16 --data near --seed 1";
enum { ROW = 2 * 32, PAGE = 16 * 32 };

START_TEST(drop_a_request) {
  case_file before;
  fuzz_small small = pinned(decode_line, &before);
  fuzz_small_drop_parts(&small, 1, 1);
  case_file file = after(&small);
  ck_assert_int_eq(case_find(&file, "q")->shape[0], 4);
  same(&before, 0, &file, 0, "q", 2 * ROW);
  same(&before, 4 * ROW, &file, 2 * ROW, "q", 2 * ROW);
  same(&before, 0, &file, 0, "index_k", 9 * PAGE);
  for (int64_t b = 0; b < 4; b++) ck_assert_int_eq(entry(&before, 2, b), entry(&file, 1, b));
  case_file_free(&before);
  case_file_free(&file);
}
END_TEST

/* Positions count from the end of a request, so that the last row stays. */
START_TEST(drop_a_row_of_decode) {
  case_file before;
  fuzz_small small = pinned(decode_line, &before);
  fuzz_small_drop_rows(&small, 0, 1, true);
  case_file file = after(&small);
  for (int64_t r = 0; r < 3; r++) same(&before, (2 * r + 1) * ROW, &file, r * ROW, "q", ROW);
  case_file_free(&before);
  case_file_free(&file);
}
END_TEST

START_TEST(drop_a_head_and_dims) {
  case_file before;
  fuzz_small small = pinned(decode_line, &before);
  fuzz_small_drop_head(&small);
  fuzz_small_drop_dims(&small);
  case_file file = after(&small);
  ck_assert_int_eq(case_find(&file, "q")->shape[1], 1);
  ck_assert_int_eq(case_find(&file, "q")->shape[2], 16);
  for (int64_t t = 0; t < 6; t++) same(&before, t * ROW + 32 + 16, &file, t * 16, "q", 16);
  for (int64_t token = 0; token < 9 * 16; token++) same(&before, token * 32 + 16, &file, token * 16, "index_k", 16);
  case_file_free(&before);
  case_file_free(&file);
}
END_TEST

START_TEST(drop_a_block) {
  case_file before;
  fuzz_small small = pinned(decode_line, &before);
  fuzz_small_drop_block(&small);
  case_file file = after(&small);
  const int32_t want[] = {17, 4, 34};
  ck_assert_mem_eq(case_find(&file, "seq_lens")->data, want, sizeof want);
  for (int64_t b = 0; b < 3; b++) ck_assert_int_eq(entry(&before, 2, b + 1), entry(&file, 2, b));
  same(&before, 0, &file, 0, "index_k", 9 * PAGE);
  case_file_free(&before);
  case_file_free(&file);
}
END_TEST

/* ---- prefill and select ---- */

START_TEST(drop_rows_of_prefill) {
  static const char line[] = "--op prefill --q-lens 3,4 --prefix-lens 16,0 --head-dim 16 --block-size 16 --seed 2";
  case_file before;
  fuzz_small small = pinned(line, &before);
  fuzz_small_drop_rows(&small, 0, 2, true);
  fuzz_small_drop_rows(&small, 1, 1, false);
  case_file file = after(&small);
  const int32_t prefix[] = {18, 0}, cu[] = {0, 1, 4}, seq[] = {19, 3};
  ck_assert_mem_eq(case_find(&file, "prefix_lens")->data, prefix, sizeof prefix);
  ck_assert_mem_eq(case_find(&file, "cu_seqlens")->data, cu, sizeof cu);
  ck_assert_mem_eq(case_find(&file, "seq_lens")->data, seq, sizeof seq);
  same(&before, 2 * 16, &file, 0, "q", 4 * 16); /* row 2, and rows 3, 4, 5 */
  case_file_free(&before);
  case_file_free(&file);
}
END_TEST

START_TEST(cut_a_selection) {
  case_file before;
  fuzz_small small = pinned("--op select --num-blocks 5,9,3 --heads 2 --data ties --seed 8", &before);
  fuzz_small_drop_parts(&small, 0, 1);
  fuzz_small_drop_column(&small);
  fuzz_small_drop_head(&small);
  case_file file = after(&small);
  const int32_t want[] = {8, 2};
  ck_assert_mem_eq(case_find(&file, "num_blocks")->data, want, sizeof want);
  ck_assert_int_eq(case_find(&file, "score")->shape[0], 1);
  ck_assert_int_eq(case_find(&file, "score")->shape[2], 8);
  same(&before, (3 + 1) * 9 + 1, &file, 0, "score", 8); /* head 1 of 3 rows of 9 columns */
  same(&before, (3 + 2) * 9 + 1, &file, 8, "score", 2);
  case_file_free(&before);
  case_file_free(&file);
}
END_TEST

/* ---- lines of files ---- */

START_TEST(line_of_a_generated_file) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_spec spec = parsed("--op decode --seq-lens 33 --head-dim 16 --block-size 16 --data near --seed 9");
  case_file file = made(&spec);
  char *line = fuzz_line_of(&file, why);
  ck_assert_msg(line != NULL, "%s", why);
  ck_assert_str_eq(line, "--op decode --seq-lens 33 --head-dim 16 --block-size 16 --data near --seed 9");
  free(line);
  case_file_free(&file);
  case_spec_free(&spec);
}
END_TEST

/* Once an element is another, the line in the metadata is a lie; a line of single elements is not. */
START_TEST(line_of_an_edited_file) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_spec spec = parsed("--op decode --seq-lens 20 --head-dim 16 --block-size 16 --data zeros --seed 9");
  case_file file = made(&spec);
  ((uint16_t *)case_find(&file, "q")->data)[3] = 0x3f80;
  ((uint16_t *)case_find(&file, "index_k")->data)[16 * 16 + 3] = 0x4000;
  const int32_t table[] = {(int32_t)entry(&file, 0, 0), (int32_t)entry(&file, 0, 1)};
  char *line = fuzz_line_of(&file, why), want[256];
  snprintf(want, sizeof want,
           "--op decode --seq-lens 20 --head-dim 16 --block-size 16 --max-block 2 --num-pages 2 --data zeros --put "
           "q:3=3f80,index_k:259=4000,block_table:0=%d,block_table:1=%d",
           (int)table[0], (int)table[1]);
  ck_assert_msg(line != NULL, "%s", why);
  ck_assert_str_eq(line, want);
  case_spec again = parsed(line);
  case_file remade = made(&again);
  same(&file, 0, &remade, 0, "q", 16);
  same(&file, 0, &remade, 0, "index_k", 2 * 16 * 16);
  free(line);
  case_spec_free(&again);
  case_spec_free(&spec);
  case_file_free(&remade);
  case_file_free(&file);
}
END_TEST

START_TEST(line_that_cannot_be) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_spec spec = parsed("--op decode --seq-lens 2000 --head-dim 16 --data normal");
  case_file file = made(&spec);
  ((uint16_t *)case_find(&file, "q")->data)[3] ^= 1;
  ck_assert_ptr_null(fuzz_line_of(&file, why));
  ck_assert_msg(strstr(why, "no line holds them") != NULL, "%s", why);
  ((int32_t *)case_find(&file, "seq_lens")->data)[0] = -1;
  ck_assert_ptr_null(fuzz_line_of(&file, why));
  ck_assert_msg(strstr(why, "seq_lens[0] is -1") != NULL, "%s", why);
  case_file_free(&file);
  case_spec_free(&spec);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("fuzz_small");
  TCase *tcase = tcase_create("fuzz_small");
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, pin_is_the_case, 0, 3);
  tcase_add_test(tcase, pin_knows_its_bound);
  tcase_add_test(tcase, drop_a_request);
  tcase_add_test(tcase, drop_a_row_of_decode);
  tcase_add_test(tcase, drop_a_head_and_dims);
  tcase_add_test(tcase, drop_a_block);
  tcase_add_test(tcase, drop_rows_of_prefill);
  tcase_add_test(tcase, cut_a_selection);
  tcase_add_test(tcase, line_of_a_generated_file);
  tcase_add_test(tcase, line_of_an_edited_file);
  tcase_add_test(tcase, line_that_cannot_be);
  return unit_run(suite);
}
