/* SPDX-License-Identifier: Apache-2.0
 *
 * Generated cases (common/casegen.c, casedata.c): the generator and the encoder against published and hand-made
 * values, page tables, poison, and digests that hold on every host.  The data kinds: test_casegen_kinds.c.
 */
#include <string.h>

#include "casedata.h"
#include "unit_casegen.h"

/* ---- the generator: SplitMix64 from 1234567, the first five words as widely published ---- */

START_TEST(splitmix64_vector) {
  static const uint64_t want[5] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                   4593380528125082431u, 16408922859458223821u};
  ck_assert_uint_eq(case_word(1234567, (uint64_t)_i), want[_i]);
}
END_TEST

/* ---- the encoder: value m * 2^e, code worked out by hand from the formats' definitions (S2.2) ---- */

static const struct {
  m3idx_dtype dtype;
  bool negative;
  uint64_t m;
  int e;
  uint32_t want;
} codes[] = {
    {M3IDX_F32, false, 1, 0, 0x3f800000},
    {M3IDX_F32, true, 3, -1, 0xbfc00000},
    {M3IDX_F32, false, (1u << 24) + 1, -24, 0x3f800000}, /* a tie goes to even */
    {M3IDX_F32, false, (1u << 24) + 3, -24, 0x3f800002}, /* and up where that is even */
    {M3IDX_F32, false, (1u << 25) - 1, -25, 0x3f800000}, /* carries into the exponent */
    {M3IDX_F32, false, 1, -149, 1},
    {M3IDX_F32, false, 1, -150, 0},
    {M3IDX_F32, false, 3, -151, 1},
    {M3IDX_F32, true, 1, -200, 0x80000000},
    {M3IDX_F32, false, 1, 200, 0x7f7fffff}, /* saturates */
    {M3IDX_F32, true, 0, 0, 0x80000000},
    {M3IDX_F16, false, 1, -24, 1},
    {M3IDX_F16, false, 65504, 0, 0x7bff},
    {M3IDX_F16, false, 65520, 0, 0x7bff},
    {M3IDX_BF16, false, 0x181, -8, 0x3fc0}, /* 1.50390625: a tie, to even */
    {M3IDX_BF16, false, 0x183, -8, 0x3fc2},
    {M3IDX_E4M3FN, false, 448, 0, 0x7e},
    {M3IDX_E4M3FN, true, 480, 0, 0xfe}, /* 0x7f would be NaN */
    {M3IDX_E4M3FN, false, 1, -9, 1},
    {M3IDX_E4M3FN, false, 1, -10, 0},
    {M3IDX_E4M3FN, true, 1, -10, 0x80},
    {M3IDX_E4M3FNUZ, true, 1, -12, 0}, /* there is no -0 */
    {M3IDX_E4M3FNUZ, false, 1, -10, 1},
    {M3IDX_E4M3FNUZ, false, 1, 0, 0x40},
    {M3IDX_E4M3FNUZ, false, 300, 0, 0x7f},
    {M3IDX_E5M2, false, 57344, 0, 0x7b},
    {M3IDX_E5M2, false, 1, 16, 0x7b}, /* 0x7c would be inf */
    {M3IDX_E5M2, true, 1, -16, 0x81},
    {M3IDX_E5M2FNUZ, false, 1, 0, 0x40},
    {M3IDX_E5M2FNUZ, true, 57344, 0, 0xff},
    {M3IDX_E5M2FNUZ, false, 1, -17, 1},
};

START_TEST(encoder) {
  ck_assert_uint_eq(case_encode(codes[_i].dtype, codes[_i].negative, codes[_i].m, codes[_i].e), codes[_i].want);
}
END_TEST

/* ---- select ---- */

START_TEST(select_scores) {
  static const char *const kinds[] = {"normal", "ties", "specials", "wide", "near", "drift"};
  char line[128];
  snprintf(line, sizeof line, "--op select --num-blocks 0,74,2000 --heads 2 --max-block 2001 --data %s", kinds[_i]);
  case_file file = generated(line);
  const case_tensor *score = case_find(&file, "score"), *num_blocks = case_find(&file, "num_blocks");
  const uint32_t *bits = score->data;
  const int32_t want[3] = {0, 74, 2000};
  ck_assert_int_eq(score->shape[0], 2);
  ck_assert_int_eq(score->shape[1], 3);
  ck_assert_int_eq(score->shape[2], 2001);
  ck_assert_mem_eq(num_blocks->data, want, sizeof want);
  int64_t specials = 0, near = 0;
  for (int64_t row = 0; row < 6; row++) {
    for (int64_t b = want[row % 3]; b < 2001; b++) /* S4.6: poison past N */
      ck_assert_uint_eq(bits[row * 2001 + b], b & 1 ? 0x7f800000u : 0x7fc00000u);
    for (int64_t b = 0; b < want[row % 3]; b++) {
      uint32_t magnitude = bits[row * 2001 + b] & 0x7fffffff;
      specials += magnitude >= 0x7f800000 || magnitude == 0;
      near += (_i == 5 ? magnitude : bits[row * 2001 + b]) - 0x3f800000u < 8;
    }
  }
  if (_i == 2) ck_assert_int_gt(specials, 2 * 2074 / 25);
  if (_i == 0 || _i >= 3) ck_assert_int_eq(specials, 0);
  if (_i >= 4) ck_assert_int_eq(near, 2 * 2074);
  case_file_free(&file);
}
END_TEST

/* ---- pages and tables ---- */

/* Each page is live exactly once, in an order that is not the identity; what is dead is poison. */
START_TEST(tables) {
  case_file file = generated("--op prefill --q-lens 3,4,0 --prefix-lens 1000,0,5 --seq-lens 1003,300,5 --heads 2 "
                             "--max-block 12 --sparse-table 1 --attention-table 1");
  ck_assert_int_eq(case_find(&file, "index_k")->shape[0], 8 + 3 + 1);
  const char *const names[] = {"block_table", "attention_block_table"};
  const int64_t live[3] = {8, 3, 1};
  for (int i = 0; i < 2; i++) {
    const case_tensor *t = case_find(&file, names[i]);
    const int32_t *table = t->data;
    int seen[12] = {0}, in_order = 0;
    ck_assert_int_ge(t->shape[1], 12);
    for (int64_t r = 0; r < 3; r++)
      for (int64_t b = 0; b < t->shape[1]; b++) {
        int32_t page = table[r * t->shape[1] + b];
        if (b < live[r]) {
          ck_assert(page >= 0 && page < 12);
          seen[page]++;
          in_order += page == b;
        } else {
          ck_assert(page == -1 || page == INT32_MAX);
        }
      }
    for (int p = 0; p < 12; p++) ck_assert_int_eq(seen[p], 1);
    ck_assert_int_lt(in_order, 8);
  }
  ck_assert(memcmp(case_find(&file, names[0])->data, case_find(&file, names[1])->data, 8 * sizeof(int32_t)) != 0);
  const int32_t cu[4] = {0, 3, 7, 7}, seq[3] = {1003, 300, 5}, prefix[3] = {1000, 0, 5};
  ck_assert_mem_eq(case_find(&file, "cu_seqlens")->data, cu, sizeof cu);
  ck_assert_mem_eq(case_find(&file, "seq_lens")->data, seq, sizeof seq);
  ck_assert_mem_eq(case_find(&file, "prefix_lens")->data, prefix, sizeof prefix);
  case_file_free(&file);
}
END_TEST

START_TEST(shared_and_spare_pages) {
  static const int64_t pages[] = {1, 5, 40};
  char line[128];
  snprintf(line, sizeof line, "--op decode --seq-lens 1024x3 --num-pages %d", (int)pages[_i]);
  case_file file = generated(line);
  const case_tensor *t = case_find(&file, "block_table");
  int uses[40] = {0};
  ck_assert_int_eq(case_find(&file, "index_k")->shape[0], pages[_i]);
  for (int64_t r = 0; r < 3; r++)
    for (int64_t b = 0; b < 8; b++) {
      int32_t page = ((const int32_t *)t->data)[r * t->shape[1] + b];
      ck_assert(page >= 0 && page < pages[_i]);
      uses[page]++;
    }
  for (int p = 0; p < pages[_i]; p++) { /* shared evenly */
    ck_assert_int_ge(uses[p], (int)(24 / pages[_i]));
    ck_assert_int_le(uses[p], (int)((24 + pages[_i] - 1) / pages[_i]));
  }
  case_file_free(&file);
}
END_TEST

/* random: some request names a page twice, and two requests name one; prefix: block b is one page for all. */
START_TEST(drawn_and_common_pages) {
  case_file file = generated("--op decode --seq-lens 2048x2,1024 --table random --seed 1");
  const case_tensor *t = case_find(&file, "block_table");
  const int32_t *table = t->data;
  int twice = 0, shared = 0;
  ck_assert_int_eq(case_find(&file, "index_k")->shape[0], 16 + 16 + 8);
  for (int64_t a = 0; a < 16; a++)
    for (int64_t b = 0; b < 16; b++) {
      ck_assert(table[a] >= 0 && table[a] < 40);
      twice += a < b && table[a] == table[b];
      shared += table[a] == table[t->shape[1] + b];
    }
  ck_assert_int_gt(twice, 0);
  ck_assert_int_gt(shared, 0);
  case_file_free(&file);
  file = generated("--op decode --seq-lens 2048x2,1024 --num-pages 18 --table prefix --seed 1");
  t = case_find(&file, "block_table");
  table = t->data;
  for (int64_t b = 0; b < 16; b++) {
    ck_assert_int_eq(table[b], table[t->shape[1] + b]);
    if (b < 8) ck_assert_int_eq(table[b], table[2 * t->shape[1] + b]);
    for (int64_t a = 0; a < b; a++) ck_assert_int_ne(table[a], table[b]);
  }
  ck_assert_int_eq(table[2 * t->shape[1] + 8], INT32_MAX); /* dead */
  case_file_free(&file);
}
END_TEST

/* mixed: each query row, page, and run of 16 scores is the very one that a case of its kind has, and all five occur. */
START_TEST(mixed_is_of_the_five) {
  static const char *const kinds[] = {"normal", "ties", "specials", "wide", "near", "drift"};
  static const struct {
    const char *line, *tensor;
    size_t piece;
  } rows[] = {{"--op decode --seq-lens 512x16 --heads 3 --head-dim 32 --k-dtype e5m2 --seed 6", "q", 32 * 2},
              {"--op decode --seq-lens 512x16 --heads 3 --head-dim 32 --k-dtype e5m2 --seed 6", "index_k", 128 * 32},
              {"--op select --num-blocks 64x20 --heads 2 --seed 6", "score", 16 * 4}};
  case_file of[5], mixed;
  char line[256];
  for (int i = 0; i < 5; i++) {
    snprintf(line, sizeof line, "%s --data %s", rows[_i].line, kinds[i]);
    of[i] = generated(line);
  }
  snprintf(line, sizeof line, "%s --data mixed", rows[_i].line);
  mixed = generated(line);
  const case_tensor *t = case_find(&mixed, rows[_i].tensor);
  int64_t seen[5] = {0}, pieces = (int64_t)(t->bytes / rows[_i].piece);
  for (int64_t p = 0; p < pieces; p++) {
    int found = 0;
    for (int i = 0; i < 5; i++) {
      const case_tensor *k = case_find(&of[i], rows[_i].tensor);
      const size_t at = (size_t)p * rows[_i].piece;
      if (memcmp((const char *)t->data + at, (const char *)k->data + at, rows[_i].piece) != 0) continue;
      seen[i]++;
      found++;
    }
    ck_assert_int_ge(found, 1);
  }
  for (int i = 0; i < 5; i++) ck_assert_int_gt(seen[i], pieces / 20);
  for (int i = 0; i < 5; i++) case_file_free(&of[i]);
  case_file_free(&mixed);
}
END_TEST

/* zeros: +0 everywhere, but for what is put. */
START_TEST(zeros_and_puts) {
  case_file file = generated("--op decode --seq-lens 130 --heads 2 --head-dim 16 --q-dtype f32 --k-dtype e4m3fnuz "
                             "--data zeros --put q:31=7fc00001,index_k:4095=80,block_table:0=0,block_table:1=0");
  const case_tensor *q = case_find(&file, "q"), *k = case_find(&file, "index_k"), *t = case_find(&file, "block_table");
  for (int64_t i = 0; i < 31; i++) ck_assert_uint_eq(((const uint32_t *)q->data)[i], 0);
  ck_assert_uint_eq(((const uint32_t *)q->data)[31], 0x7fc00001u);
  for (int64_t i = 0; i < 4095; i++) ck_assert_uint_eq(((const uint8_t *)k->data)[i], 0);
  ck_assert_uint_eq(((const uint8_t *)k->data)[4095], 0x80);
  ck_assert_int_eq(((const int32_t *)t->data)[0], 0);
  ck_assert_int_eq(((const int32_t *)t->data)[1], 0);
  case_file_free(&file);
  file = generated("--op select --num-blocks 3 --data zeros --put score:1=ff800000,score:1=80000000");
  const uint32_t *score = case_find(&file, "score")->data;
  ck_assert(score[0] == 0 && score[1] == 0x80000000u && score[2] == 0); /* the last one holds */
  case_file_free(&file);
}
END_TEST

START_TEST(wrong_puts) {
  static const struct {
    const char *line, *want;
  } rows[] = {
      {"--op select --num-blocks 3 --put q:0=0", "--put q:0: the case has no such tensor"},
      {"--op decode --seq-lens 3 --head-dim 16 --put q:16=0", "--put q:16: must be below 16, its elements"},
      {"--op decode --seq-lens 3 --put q:0=12345", "--put q:0=12345: its elements have 16 bits"},
      {"--op decode --seq-lens 3 --k-dtype e5m2 --put index_k:0=100", "--put index_k:0=100: its elements have 8 bits"},
  };
  case_spec spec;
  case_file file;
  char why[CASE_MESSAGE_BYTES] = "";
  ck_assert_msg(!case_spec_parse_line(rows[_i].line, &spec, why), "%s", why);
  ck_assert_int_eq(case_generate(&spec, &file, why), M3IDX_INVALID);
  ck_assert_str_eq(why, rows[_i].want);
  case_spec_free(&spec);
}
END_TEST

START_TEST(nothing_live) {
  case_file file = generated("--op decode --seq-lens 0x3 --data near");
  ck_assert_int_eq(case_find(&file, "index_k")->shape[0], 0);
  ck_assert_str_eq(case_metadata(&file, "max_block"), "0");
  m3idx_case view;
  char why[CASE_MESSAGE_BYTES];
  ck_assert_msg(!case_view(&file, &view, why), "%s", why);
  case_file_free(&file);
}
END_TEST

/* Cases that there is no memory or no number for are refused by name before anything is filled. */
START_TEST(too_large) {
  static const struct {
    const char *line, *want;
  } rows[] = {
      {"--op decode --seq-lens 2147483632x127 --head-dim 256 --k-dtype f32", "tensor index_k: no memory"},
      {"--op decode --seq-lens 2147483632x64 --block-size 16", "--seq-lens: 8589934528 live blocks"},
      {"--op decode --seq-lens 1 --num-pages 2147483647 --sparse-table 1", "--num-pages: 2147483647 pages"},
      {"--op decode --seq-lens 1 --heads 4096 --num-pages 65537 --sparse-table 1", "--num-pages: 65537 pages"},
      {"--op select --num-blocks 134217727x4096 --heads 4096", "tensor score: no memory"},
  };
  case_spec spec;
  case_file file;
  char why[CASE_MESSAGE_BYTES] = "";
  ck_assert_msg(!case_spec_parse_line(rows[_i].line, &spec, why), "%s", why);
  ck_assert_int_eq(case_generate(&spec, &file, why),
                   strstr(rows[_i].want, "no memory") ? M3IDX_NO_MEMORY : M3IDX_INVALID);
  ck_assert_msg(strstr(why, rows[_i].want) == why, "want \"%s...\", got \"%s\"", rows[_i].want, why);
  ck_assert_int_eq(file.num_tensors, 0);
  case_spec_free(&spec);
}
END_TEST

/* The line in the metadata makes the same case again. */
START_TEST(line_is_a_repro) {
  case_file file = in_format(_i, (const char *const[]){"normal", "ties", "specials", "wide", "near"}[_i % 5],
                             "--sparse-table 1 --contract atom");
  case_file again = generated(case_metadata(&file, "case_line"));
  ck_assert_int_eq(file.num_tensors, again.num_tensors);
  for (int64_t i = 0; i < file.num_tensors; i++) {
    ck_assert_str_eq(file.tensors[i].name, again.tensors[i].name);
    ck_assert_uint_eq(file.tensors[i].bytes, again.tensors[i].bytes);
    ck_assert_mem_eq(file.tensors[i].data, again.tensors[i].data, file.tensors[i].bytes);
  }
  ck_assert_int_eq(file.num_metadata, again.num_metadata);
  for (int64_t i = 0; i < file.num_metadata; i++) ck_assert_str_eq(file.metadata[i].value, again.metadata[i].value);
  case_file_free(&again);
  case_file_free(&file);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("casegen");
  TCase *tcase = tcase_create("casegen");
  suite_add_tcase(suite, tcase);
  tcase_set_timeout(tcase, 60);
  tcase_add_loop_test(tcase, splitmix64_vector, 0, 5);
  tcase_add_loop_test(tcase, encoder, 0, sizeof codes / sizeof *codes);
  tcase_add_loop_test(tcase, select_scores, 0, 6);
  tcase_add_test(tcase, tables);
  tcase_add_loop_test(tcase, shared_and_spare_pages, 0, 3);
  tcase_add_test(tcase, drawn_and_common_pages);
  tcase_add_loop_test(tcase, mixed_is_of_the_five, 0, 3);
  tcase_add_test(tcase, zeros_and_puts);
  tcase_add_loop_test(tcase, wrong_puts, 0, 4);
  tcase_add_test(tcase, nothing_live);
  tcase_add_loop_test(tcase, too_large, 0, 5);
  tcase_add_loop_test(tcase, line_is_a_repro, 0, M3IDX_DTYPE_COUNT);
  return unit_run(suite);
}
