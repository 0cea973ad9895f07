/* SPDX-License-Identifier: Apache-2.0
 *
 * simt_lines.h.
 */
#include "simt_lines.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "simt_harness.h"

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

void simt_check_line(const char *line, const char *only, const char *note) {
  char why[CASE_MESSAGE_BYTES], run[1200];
  case_spec spec;
  ck_assert_msg(case_spec_parse_line(line, &spec, why) == 0, "%s: %s", line, why);
  for (int with_score = 0; with_score < 2; with_score++) {
    case_file want;
    run_case("ref", &spec, with_score, &want);
    for (int a = 0; a < SIMT_ARCHS; a++) {
      if (only && strcmp(only, simt_archs[a]) != 0) continue;
      case_file got;
      snprintf(run, sizeof run, "%s%s%s: %s", simt_archs[a], with_score ? "" : ", fused", note, line);
      run_case(simt_archs[a], &spec, with_score, &got);
      compare_files(run, &want, &got);
      case_file_free(&got);
    }
    case_file_free(&want);
  }
  case_spec_free(&spec);
}
