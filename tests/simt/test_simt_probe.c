/* SPDX-License-Identifier: Apache-2.0
 *
 * The probe of matrix steps (hip/hip_probe.h) under every model: green where the assumption holds, red a little outside
 * it, and scores right even where it is far outside.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "simt_harness.h"
#include "simt_lines.h"
#include "simt_matrix.h"

static const char *const names[] = {"plausible", "up", "down", "any", "place"};
enum { NAMES = sizeof names / sizeof *names, SAID = sizeof((m3idx_context *)0)->details };

/* Opens arch under the model and copies what the context says. */
static bool green(const char *arch, const char *name, double scale, char *said) {
  ck_assert(simt_matrix_named(name, simt_matrix_current()));
  simt_matrix_current()->scale = scale;
  m3idx_context *ctx = simt_open(arch);
  memcpy(said, ctx->details, sizeof ctx->details);
  simt_close(ctx);
  simt_matrix_named("plausible", simt_matrix_current());
  return !strstr(said, "scores do without them");
}

START_TEST(honest) {
  char said[SAID];
  for (int a = 0; a < SIMT_ARCHS; a++) {
    ck_assert_msg(green(simt_archs[a], names[_i], 1, said), "%s, %s: %s", simt_archs[a], names[_i], said);
    ck_assert_msg(strstr(said, "matrix steps err by "), "%s", said);
    printf("%s, %s: %s\n", simt_archs[a], names[_i], strrchr(said, ';') + 2);
  }
}
END_TEST

/* One seventh more than the assumption allows. */
START_TEST(lying) {
  char said[SAID];
  for (int a = 0; a < SIMT_ARCHS; a++)
    ck_assert_msg(!green(simt_archs[a], _i ? "up" : "down", 8.0 / 7, said), "%s: %s", simt_archs[a], said);
}
END_TEST

/* Scores and ids under units that the probe refutes, a little and wildly. */
START_TEST(right_without) {
  simt_matrix_named("place", simt_matrix_current());
  simt_matrix_current()->scale = _i % 2 ? 8.0 / 7 : 1e5;
  m3idx_context *ctx = simt_open(simt_archs[_i / 2]);
  ck_assert_msg(strstr(ctx->details, "scores do without them"), "%s", ctx->details);
  simt_close(ctx);
  simt_check_line("--op prefill --q-lens 20,3 --prefix-lens 250,0 --data wide --heads 2 --seed 3", simt_archs[_i / 2],
                  ", refuted");
  simt_check_line("--op decode --seq-lens 270,40 --data wide --heads 2 --seed 4", simt_archs[_i / 2], ", refuted");
  simt_matrix_named("plausible", simt_matrix_current());
}
END_TEST

int main(void) {
  Suite *suite = suite_create("simt_probe");
  TCase *tcase = tcase_create("probe");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, honest, 0, NAMES);
  tcase_add_loop_test(tcase, lying, 0, 2);
  tcase_add_loop_test(tcase, right_without, 0, 2 * SIMT_ARCHS);
  suite_add_tcase(suite, tcase);
  return simt_run(suite);
}
