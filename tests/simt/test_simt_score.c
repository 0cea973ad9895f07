/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode scores, fused selection and cache insertion under the SIMT executor, byte for byte against ref (S3, S5, S6).
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "simt_backend.h"
#include "simt_harness.h"

/* Case lines; --op decode is understood.  The second half runs with M3IDX_SIMT_FULL=1 only. */
static const char *const lines[] = {
    "--seq-lens 7,129,1025 --local 1",
    "--seq-lens 130 --decode-query-len 4 --heads 2 --data specials --init 1 --local 1",
    "--seq-lens 0,2,300,0 --decode-query-len 4 --data ties --local 1 --sparse-table 1",
    "--seq-lens 256,255,257 --data near --topk 3",
    "--seq-lens 513 --heads 4 --decode-query-len 3 --data wide --scale 0.3",
    "--seq-lens 384 --heads 5 --decode-query-len 4 --data near --scale 1e30",
    "--seq-lens 260 --k-dtype f16 --q-dtype f16 --data near --heads 2",
    "--seq-lens 260 --k-dtype f16 --q-dtype bf16 --data wide --decode-query-len 2",
    "--seq-lens 260,40 --k-dtype e4m3fn --q-dtype bf16 --data specials --heads 2",
    "--seq-lens 260,40 --k-dtype e4m3fnuz --q-dtype e4m3fnuz --data specials",
    "--seq-lens 260,40 --k-dtype e5m2 --q-dtype f32 --data specials",
    "--seq-lens 260,40 --k-dtype e5m2fnuz --q-dtype e5m2 --data specials",
    "--seq-lens 260 --k-dtype e4m3fn --q-dtype e4m3fn --data normal --heads 4",
    "--seq-lens 260 --k-dtype e5m2 --q-dtype e5m2fnuz --data wide",
    "--seq-lens 140 --k-dtype f32 --q-dtype f32 --data wide --head-dim 64",
    "--seq-lens 140 --k-dtype f32 --q-dtype bf16 --data near --head-dim 256 --heads 5",
    "--seq-lens 140 --head-dim 16 --data normal --decode-query-len 2",
    "--seq-lens 140,17 --head-dim 48 --data wide --block-size 64",
    "--seq-lens 70,16,1 --head-dim 112 --data specials --block-size 16 --decode-query-len 2",
    "--seq-lens 70,33 --data near --block-size 32 --k-dtype e4m3fn",
    "--seq-lens 1,2,3,4,5,6,7,8,9,10,11,300 --data normal --num-pages 5",
    "--seq-lens 1,2,3,4,5,6,7,8,9,10,300 --data normal --max-block 2000 --sparse-table 1 --contract atom",
    "--seq-lens 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,300 --data ties --num-pages 5 --contract sglang",
    /* full */
    "--seq-lens 8192 --decode-query-len 4 --data near --local 1",
    "--seq-lens 140000 --data normal --num-pages 40 --sparse-table 1",
    "--seq-lens 3000,40,0,9000 --decode-query-len 2 --heads 4 --data ties --init 2 --local 3",
    "--seq-lens 400 --heads 33 --decode-query-len 2 --data specials",
    "--seq-lens 300,300,300,300,300,300,300,300,300 --data wide --heads 2 --q-dtype f16",
    "--seq-lens 1000 --k-dtype f16 --q-dtype f32 --data near --heads 3 --decode-query-len 5",
    "--seq-lens 1000 --k-dtype f32 --q-dtype e4m3fn --data specials --heads 3 --head-dim 240",
    "--seq-lens 1000 --block-size 64 --data near --heads 2 --topk 128 --contract flashinfer",
};
enum { LINES = sizeof lines / sizeof *lines, QUICK_LINES = 23, MACHINES_QUICK = 1 };

static void compare_files(const char *run, const case_file *want, const case_file *got) {
  static const char *const outputs[] = {"score", "topk_idx", "sparse_block_table", "sparse_context_lens"};
  int compared = 0;
  for (int i = 0; i < 4; i++) {
    const case_tensor *w = case_find(want, outputs[i]), *g = case_find(got, outputs[i]);
    ck_assert_msg(!w == !g, "%s: only one side has %s", run, outputs[i]);
    if (!w) continue;
    ck_assert_msg(w->bytes == g->bytes, "%s: sizes of %s", run, outputs[i]);
    ck_assert(simt_same(outputs[i], run, w->data, g->data, w->bytes, 4));
    compared++;
  }
  ck_assert_msg(compared > 0, "%s: nothing was compared", run);
}

static void run_case(const char *arch, const case_spec *spec, bool with_score, case_file *file) {
  char why[CASE_MESSAGE_BYTES];
  ck_assert_msg(case_generate(spec, file, why) == 0, "%s", why);
  m3idx_context *ctx = simt_open(arch);
  const m3idx_status status = case_run(ctx, file, with_score, why);
  char *line = case_spec_format(spec);
  ck_assert_msg(status == M3IDX_OK, "%s: %s", line, why);
  free(line);
  simt_close(ctx);
}

static void check_line(const char *options, uint64_t seed, const char *only) {
  char line[1024], why[CASE_MESSAGE_BYTES], run[1200];
  snprintf(line, sizeof line, "--op decode %s --seed %llu", options, (unsigned long long)seed);
  case_spec spec;
  ck_assert_msg(case_spec_parse_line(line, &spec, why) == 0, "%s: %s", line, why);
  for (int with_score = 0; with_score < 2; with_score++) {
    case_file want;
    run_case("ref", &spec, with_score, &want);
    for (int a = 0; a < SIMT_ARCHS; a++) {
      if (only && strcmp(only, simt_archs[a]) != 0) continue;
      case_file got;
      snprintf(run, sizeof run, "%s%s: %s", simt_archs[a], with_score ? "" : ", fused", line);
      run_case(simt_archs[a], &spec, with_score, &got);
      compare_files(run, &want, &got);
      case_file_free(&got);
    }
    case_file_free(&want);
  }
  case_spec_free(&spec);
}

START_TEST(decode_line) {
  if (!simt_full() && _i >= QUICK_LINES) return;
  check_line(lines[_i], (uint64_t)_i, simt_full() ? NULL : simt_archs[_i % SIMT_ARCHS]);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("simt_score");
  TCase *tcase = tcase_create("score");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, decode_line, 0, LINES);
  suite_add_tcase(suite, tcase);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  if (!simt_backend_groups()) {
    fprintf(stderr, "no kernel ran\n");
    return 1;
  }
  return failed ? 1 : 0;
}
