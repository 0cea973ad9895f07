/* SPDX-License-Identifier: Apache-2.0
 *
 * Case lines (common/caseline.c): what a line means, that its canonical form is canonical and means the same,
 * and that every wrong line is refused by a sentence that names the option, the value and the bound.
 */
#include <string.h>

#include "case.h"
#include "unit.h"

/* ---- canonical forms: as given, and as they must come back ---- */

static const struct {
  const char *line, *want;
} forms[] = {
    {"--op decode --seq-lens 7,129", "--op decode --seq-lens 7,129"},
    {"  --seed 3 --data ties --local 1 --topk 16 --heads 2 --head-dim 128 --seq-lens 7,129 --op decode\n",
     "--op decode --seq-lens 7,129 --heads 2 --local 1 --data ties --seed 3"},
    {"--op=decode --seq-lens=8192,8192,8192,1 --decode-query-len=4",
     "--op decode --seq-lens 8192x3,1 --decode-query-len 4"},
    {"--op decode --seq-lens 0x3,5x1", "--op decode --seq-lens 0x3,5"},
    {"--op prefill --q-lens 4,3 --prefix-lens 0,1024", "--op prefill --q-lens 4,3 --prefix-lens 0,1024"},
    {"--op prefill --q-lens 4,3 --prefix-lens 0,0 --seq-lens 4,3", "--op prefill --q-lens 4,3"},
    {"--op prefill --q-lens 4,3 --seq-lens 4,300", "--op prefill --q-lens 4,3 --seq-lens 4,300"},
    {"--op select --num-blocks 0,74,128,129 --data specials", "--op select --num-blocks 0,74,128,129 --data specials"},
    {"--op decode --seq-lens 9 --contract tie=lower,nan=-1e30,zero=equal,order=score", "--op decode --seq-lens 9"},
    {"--op decode --seq-lens 9 --contract tie=higher,nan=-inf,zero=signed,order=score",
     "--op decode --seq-lens 9 --contract aiter"},
    {"--op decode --seq-lens 9 --contract tie=higher,nan=bits,zero=equal,order=id",
     "--op decode --seq-lens 9 --contract tie=higher,nan=bits,zero=equal,order=id"},
    {"--op decode --seq-lens 9 --scale 0.0883883461", "--op decode --seq-lens 9 --scale 0.0883883461"},
    {"--op decode --seq-lens 9 --scale 1.00", "--op decode --seq-lens 9"},
    {"--op decode --seq-lens 9 --scale 1e-45", "--op decode --seq-lens 9 --scale 1.40129846e-45"},
    {"--op decode --seq-lens 9 --q-dtype e4m3fnuz --k-dtype e5m2 --seed 18446744073709551615",
     "--op decode --seq-lens 9 --q-dtype e4m3fnuz --k-dtype e5m2 --seed 18446744073709551615"},
    {"--op decode --seq-lens 9 --sparse-table 1 --attention-table 1 --page-stride 16 --num-pages 7 --init 2",
     "--op decode --seq-lens 9 --init 2 --page-stride 16 --sparse-table 1 --attention-table 1 --num-pages 7"},
    {"--op decode --put q:0=3F80,block_table:17=1 --seq-lens 9 --data zeros --table prefix --num-pages 3",
     "--op decode --seq-lens 9 --num-pages 3 --table prefix --data zeros --put q:0=3f80,block_table:17=1"},
    {"--op select --num-blocks 9 --data mixed --put score:8=ffffffff,score:8=0",
     "--op select --num-blocks 9 --data mixed --put score:8=ffffffff,score:8=0"},
    {"--op decode --seq-lens 9 --table turns", "--op decode --seq-lens 9"},
    {"--op decode --seq-lens 2147483647 --block-size 16 --max-block 134217728 --init 2147483647",
     NULL}, /* capacity past the bound: see wrong[] */
    {"--op decode --seq-lens 2147483632 --block-size 16 --max-block 134217727",
     "--op decode --seq-lens 2147483632 --block-size 16 --max-block 134217727"},
};

START_TEST(canonical) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_spec spec, again;
  if (!forms[_i].want) {
    ck_assert_int_eq(case_spec_parse_line(forms[_i].line, &spec, why), -1);
    return;
  }
  ck_assert_msg(!case_spec_parse_line(forms[_i].line, &spec, why), "%s: %s", forms[_i].line, why);
  char *got = case_spec_format(&spec);
  ck_assert_str_eq(got, forms[_i].want);
  ck_assert_msg(!case_spec_parse_line(got, &again, why), "%s", why);
  char *twice = case_spec_format(&again);
  ck_assert_str_eq(twice, got);
  free(got);
  free(twice);
  case_spec_free(&spec);
  case_spec_free(&again);
}
END_TEST

/* ---- meaning ---- */

START_TEST(prefill_fields) {
  char why[CASE_MESSAGE_BYTES];
  case_spec s;
  ck_assert_int_eq(case_spec_parse_line("--op prefill --q-lens 4,0,3 --prefix-lens 0,5,1024 --heads 3 --head-dim 64 "
                                        "--topk 128 --block-size 64 --contract atom --scale 0.5 --data near --seed 9",
                                        &s, why),
                   0);
  ck_assert_int_eq(s.op, CASE_PREFILL);
  ck_assert_int_eq(s.num_requests, 3);
  ck_assert_int_eq(s.num_rows, 7);
  ck_assert_int_eq(s.seq_lens[0], 4);
  ck_assert_int_eq(s.seq_lens[1], 5);
  ck_assert_int_eq(s.seq_lens[2], 1027);
  ck_assert_int_eq(s.heads, 3);
  ck_assert_int_eq(s.head_dim, 64);
  ck_assert_int_eq(s.topk, 128);
  ck_assert_int_eq(s.block_size, 64);
  ck_assert_int_eq(s.max_block, 0);
  ck_assert_int_eq(case_spec_least_blocks(&s), 17); /* ceil(1027 / 64) */
  ck_assert_int_eq(s.contract.nan, M3IDX_NAN_BELOW_MINUS_INF);
  ck_assert(s.scale == 0.5f);
  ck_assert_int_eq(s.data, CASE_NEAR);
  ck_assert_uint_eq(s.seed, 9);
  ck_assert_int_eq(s.page_stride, 8);
  ck_assert_int_eq(s.q_dtype, M3IDX_BF16);
  case_spec_free(&s);
  ck_assert_ptr_null(s.q_lens);
}
END_TEST

START_TEST(decode_and_select_rows) {
  char why[CASE_MESSAGE_BYTES];
  case_spec s;
  ck_assert_int_eq(case_spec_parse_line("--op decode --seq-lens 0,256,257 --decode-query-len 4", &s, why), 0);
  ck_assert_int_eq(s.num_rows, 12);
  ck_assert_int_eq(case_spec_least_blocks(&s), 3);
  case_spec_free(&s);
  ck_assert_int_eq(case_spec_parse_line("--op select --num-blocks 0,74,5x4094", &s, why), 0);
  ck_assert_int_eq(s.num_rows, 4096);
  ck_assert_int_eq(s.num_requests, 0);
  ck_assert_int_eq(case_spec_least_blocks(&s), 74);
  case_spec_free(&s);
}
END_TEST

/* ---- wrong lines, and a piece that the sentence must have ---- */

static const struct {
  const char *line, *want;
} wrong[] = {
    {"", "--op: missing"},
    {"decode", "decode: not an option"},
    {"--op decode --seq-lens 9 extra", "extra: not an option"},
    {"--op pre", "--op pre: must be prefill, decode or select"},
    {"--op", "--op: needs a value"},
    {"--op decode --op decode --seq-lens 9", "--op: given twice"},
    {"--op decode --seq-lens 9 --head 2", "--head: no such option"},
    {"--op decode --seq-lens 9 --headss 2", "--headss: no such option"},
    {"--op decode", "--seq-lens: missing"},
    {"--op prefill", "--q-lens: missing"},
    {"--op select", "--num-blocks: missing"},
    {"--op decode --seq-lens 9 --q-lens 1", "--q-lens: means nothing with --op decode"},
    {"--op select --num-blocks 9 --head-dim 64", "--head-dim: means nothing with --op select"},
    {"--op prefill --q-lens 4 --decode-query-len 1", "--decode-query-len: means nothing with --op prefill"},
    {"--op decode --seq-lens 9 --heads 0", "--heads 0: must be 1..4096"},
    {"--op decode --seq-lens 9 --heads -1", "--heads -1: must be 1..4096"},
    {"--op decode --seq-lens 9 --heads 99999999999999999999", "--heads 99999999999999999999: must be 1..4096"},
    {"--op decode --seq-lens 9 --heads 2x", "--heads 2x: not an integer"},
    {"--op decode --seq-lens 9 --heads=", "--heads : not an integer"},
    {"--op decode --seq-lens 9 --head-dim 24", "--head-dim 24: must be a multiple of 16"},
    {"--op decode --seq-lens 9 --head-dim 272", "--head-dim 272: must be 16..256"},
    {"--op decode --seq-lens 9 --topk 129", "--topk 129: must be 1..128"},
    {"--op decode --seq-lens 9 --topk 0", "--topk 0: must be 1..128"},
    {"--op decode --seq-lens 9 --block-size 48", "--block-size 48: must be a power of two, 16..128"},
    {"--op decode --seq-lens 9 --block-size 8", "--block-size 8: must be 16..128"},
    {"--op decode --seq-lens 9 --page-stride 12", "--page-stride 12: must be a power of two, 8..16"},
    {"--op decode --seq-lens 300 --max-block 2", "--max-block 2: must be at least 3"},
    {"--op decode --seq-lens 9 --max-block 134217728", "--max-block 134217728: must be 0..134217727"},
    {"--op decode --seq-lens 9 --init -1", "--init -1: must be 0..2147483647"},
    {"--op decode --seq-lens 9 --local 2147483648", "--local 2147483648: must be 0..2147483647"},
    {"--op decode --seq-lens 9 --q-dtype fp8", "--q-dtype fp8: must be f32, f16"},
    {"--op decode --seq-lens 9 --contract tie=lower", "--contract tie=lower: must be vllm, aiter"},
    {"--op decode --seq-lens 9 --scale 0", "--scale 0: must be a finite number above 0"},
    {"--op decode --seq-lens 9 --scale -1", "--scale -1: must be"},
    {"--op decode --seq-lens 9 --scale nan", "--scale nan: must be"},
    {"--op decode --seq-lens 9 --scale inf", "--scale inf: must be"},
    {"--op decode --seq-lens 9 --scale 1e39", "--scale 1e39: must be"},
    {"--op decode --seq-lens 9 --scale 1,5", "--scale 1,5: must be"},
    {"--op decode --seq-lens 9 --scale +1", "--scale +1: must be"}, /* as in a file */
    {"--op decode --seq-lens 9 --scale=", "--scale : must be"},
    {"--op decode --seq-lens 9 --scale x", "--scale x: must be"},
    {"--op decode --seq-lens 9 --sparse-table 2", "--sparse-table 2: must be 0..1"},
    {"--op decode --seq-lens 9 --sparse-table 1 --block-size 64", "--sparse-table 1: needs --block-size 128"},
    {"--op decode --seq-lens 9 --attention-table 1", "--attention-table 1: needs --sparse-table 1"},
    {"--op decode --seq-lens 9 --data random",
     "--data random: must be normal, ties, specials, wide, near, mixed, zeros or drift"},
    {"--op decode --seq-lens 9 --table ties", "--table ties: must be turns, random or prefix"},
    {"--op select --num-blocks 9 --table random", "--table: means nothing with --op select"},
    {"--op decode --seq-lens 9 --put", "--put: needs a value"},
    {"--op decode --seq-lens 9 --put k:0=0", "--put k:0=0: entry 0 is not TENSOR:INDEX=BITS"},
    {"--op decode --seq-lens 9 --put q:-1=0", "--put q:-1=0: entry 0 is not TENSOR:INDEX=BITS"},
    {"--op decode --seq-lens 9 --put q:0=", "--put q:0=: entry 0 is not TENSOR:INDEX=BITS"},
    {"--op decode --seq-lens 9 --put q:0=-1", "--put q:0=-1: entry 0 is not TENSOR:INDEX=BITS"},
    {"--op decode --seq-lens 9 --put q:0=100000000", "--put q:0=100000000: entry 0 is not TENSOR:INDEX=BITS"},
    {"--op decode --seq-lens 9 --put qq:0=0", "--put qq:0=0: entry 0 is not TENSOR:INDEX=BITS"},
    {"--op decode --seq-lens 9 --put q:x=0", "--put q:x=0: entry 0 is not TENSOR:INDEX=BITS"},
    {"--op decode --seq-lens 9 --put q:0:1", "--put q:0:1: entry 0 is not TENSOR:INDEX=BITS"},
    {"--op decode --seq-lens 9 --put q:0=1x", "--put q:0=1x: entry 0 is not TENSOR:INDEX=BITS"},
    {"--op decode --seq-lens 9 --seed 1x", "--seed 1x: must be 0..18446744073709551615"},
    {"--op decode --seq-lens 9 --put q:0=1,", "--put q:0=1,: entry 1 is not TENSOR:INDEX=BITS"},
    {"--op decode --seq-lens 9 --put q:0=1,q:1", "--put q:0=1,q:1: entry 1 is not TENSOR:INDEX=BITS"},
    {"--op decode --seq-lens 9 --seed -1", "--seed -1: must be 0..18446744073709551615"},
    {"--op decode --seq-lens 9 --seed 18446744073709551616", "--seed 18446744073709551616: must be"},
    {"--op decode --seq-lens 9, ", "--seq-lens 9,: entry 1 is not VALUE"},
    {"--op decode --seq-lens ,9", "--seq-lens ,9: entry 0 is not VALUE"},
    {"--op decode --seq-lens 9x", "--seq-lens 9x: entry 0 is not VALUE"},
    {"--op decode --seq-lens 9x2x2", "--seq-lens 9x2x2: entry 0 is not VALUE"},
    {"--op decode --seq-lens 7,-9", "--seq-lens: entry 1 is -9, must be 0..2147483647"},
    {"--op decode --seq-lens 2147483648", "--seq-lens: entry 0 is 2147483648, must be 0..2147483647"},
    {"--op decode --seq-lens 9x4097", "--seq-lens: entry 0 repeats 4097 times"},
    {"--op decode --seq-lens 9x4096,9", "--seq-lens: entry 4096 repeats 1 times"},
    {"--op decode --seq-lens 9x0", "--seq-lens: entry 0 repeats 0 times"},
    {"--op prefill --q-lens 1,2 --prefix-lens 3", "--prefix-lens: 1 entries, --q-lens has 2"},
    {"--op prefill --q-lens 1,2 --seq-lens 3x3", "--seq-lens: 3 entries, --q-lens has 2"},
    {"--op prefill --q-lens 4 --prefix-lens 3 --seq-lens 6", "--seq-lens: entry 0 is 6, must be at least"},
    {"--op prefill --q-lens 2147483647 --prefix-lens 1", "--prefix-lens: entry 0 plus its queries is 2147483648"},
    {"--op prefill --q-lens 2147483647x2", "--q-lens: 4294967294 rows in all, must be at most 2147483647"},
};

START_TEST(refused) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_spec spec;
  ck_assert_int_eq(case_spec_parse_line(wrong[_i].line, &spec, why), -1);
  ck_assert_msg(strstr(why, wrong[_i].want) == why, "\"%s\"\n  want \"%s...\"\n  got  \"%s\"", wrong[_i].line,
                wrong[_i].want, why);
  ck_assert_ptr_null(spec.q_lens);
  ck_assert_ptr_null(spec.seq_lens);
}
END_TEST

/* A long value is cut, not run past the end of the sentence. */
START_TEST(long_values) {
  char why[CASE_MESSAGE_BYTES], line[20000] = "--op decode --seq-lens 9 --contract ";
  size_t start = strlen(line);
  memset(line + start, 'a', sizeof line - start - 1);
  case_spec spec;
  ck_assert_int_eq(case_spec_parse_line(line, &spec, why), -1);
  memcpy(line, "--", 2);
  memset(line + 2, 'b', start);
  ck_assert_int_eq(case_spec_parse_line(line, &spec, why), -1);
  ck_assert_msg(!strncmp(why, "--bbb", 5), "%s", why);
}
END_TEST

/* More words than options cannot slip past unread. */
START_TEST(many_words) {
  char why[CASE_MESSAGE_BYTES], line[4000] = "";
  for (int i = 0; case_spec_option(i); i++) strcat(strcat(strcat(line, "--"), case_spec_option(i)), "=1 ");
  for (int i = 0; case_spec_option(i); i++) strcat(strcat(strcat(line, "--"), case_spec_option(i)), "=1 ");
  case_spec spec;
  ck_assert_int_eq(case_spec_parse_line(line, &spec, why), -1);
  ck_assert_str_eq(why, "--op: given twice");
}
END_TEST

/* One element more than a line can put. */
START_TEST(many_puts) {
  char why[CASE_MESSAGE_BYTES];
  static char line[64 + 6 * (CASE_MAX_LIST + 1)] = "--op decode --seq-lens 9 --put q:0=1";
  case_spec spec;
  char *end = line + strlen(line);
  for (int i = 1; i < CASE_MAX_LIST; i++) end = strcpy(end, ",q:0=1") + 6;
  ck_assert_msg(!case_spec_parse_line(line, &spec, why), "%s", why);
  ck_assert_int_eq(spec.num_puts, CASE_MAX_LIST);
  case_spec_free(&spec);
  strcpy(end, ",q:0=1");
  ck_assert_int_eq(case_spec_parse_line(line, &spec, why), -1);
  ck_assert_str_eq(why, "--put: more than 4096 entries");
}
END_TEST

/* Words that a line cannot hold, and the ends of the table of options. */
START_TEST(words) {
  char why[CASE_MESSAGE_BYTES];
  const char *const argv[] = {"--op", "decode", "--seq-lens", "9", "--scale", " 1"};
  case_spec spec;
  ck_assert_int_eq(case_spec_parse(6, argv, &spec, why), -1);
  ck_assert_str_eq(why, "--scale  1: must be a finite number above 0");
  ck_assert_ptr_null(case_spec_option(-1));
  ck_assert_ptr_null(case_spec_option(1000));
}
END_TEST

START_TEST(help_names_every_option) {
  FILE *file = tmpfile();
  ck_assert_ptr_nonnull(file);
  case_spec_help(file);
  rewind(file);
  char text[8192] = "";
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  for (int i = 0; case_spec_option(i); i++) {
    char want[64];
    snprintf(want, sizeof want, "  --%s ", case_spec_option(i));
    ck_assert_msg(strstr(text, want) != NULL, "%s", want);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("caseline");
  TCase *tcase = tcase_create("caseline");
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, canonical, 0, sizeof forms / sizeof *forms);
  tcase_add_test(tcase, prefill_fields);
  tcase_add_test(tcase, decode_and_select_rows);
  tcase_add_loop_test(tcase, refused, 0, sizeof wrong / sizeof *wrong);
  tcase_add_test(tcase, long_values);
  tcase_add_test(tcase, many_words);
  tcase_add_test(tcase, many_puts);
  tcase_add_test(tcase, words);
  tcase_add_test(tcase, help_names_every_option);
  return unit_run(suite);
}
