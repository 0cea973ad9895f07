/* SPDX-License-Identifier: Apache-2.0
 *
 * The benchmark's own judgement: what is timed has been compared with the reference, and a wrong byte is found
 * wherever the comparison looks.
 */
#include <string.h>

#include "bench.h"
#include "unit.h"

static const bench_shape shapes[] = {
    {"prefill", BENCH_PREFILL, BENCH_NORMAL, 1, 5, 2, 3, 1, {{"score", BENCH_SCORE, NULL, 1}}},
    {"prefill-ids", BENCH_PREFILL, BENCH_TIES, 1, 5, 2, 3, 1, {{"selected", BENCH_SELECTED, NULL, 1}}},
    {"decode", BENCH_DECODE, BENCH_NORMAL, 2, 2, 2, 19, 1, {{"score", BENCH_SCORE, NULL, 2}}},
    {"decode-ids", BENCH_DECODE, BENCH_NORMAL, 2, 2, 2, 19, 1, {{"selected", BENCH_SELECTED, NULL, 2}}},
    {"array", BENCH_ARRAY, BENCH_RANDOM, 1, 7, 1, 200, 1, {{"select", BENCH_SELECT, NULL, 1}}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Run as the library does, then spoil one bit of the element `spoiled`. */
static int (*honest)(bench_contender *, bench_world *);
static int64_t spoiled;
static int lie(bench_contender *c, bench_world *w) {
  const int status = honest(c, w);
  void *at = c->entry->kind == BENCH_SCORE ? (void *)(w->score + spoiled) : (void *)(w->ids + spoiled);
  uint32_t bits;
  memcpy(&bits, at, sizeof bits);
  bits ^= 1;
  memcpy(at, &bits, sizeof bits);
  return status;
}

START_TEST(test_check) {
  const bench_shape *s = &shapes[_i];
  const bench_options options = {.tiny = true};
  bench_contender c = {.entry = &s->entries[0], .threads = s->entries[0].threads};
  char reason[BENCH_REASON_BYTES];
  bench_world w;
  ck_assert_int_eq(bench_world_make(&w, s, &options, 2, reason), 0);
  bench_ours_begin(&c, &w);
  ck_assert_str_eq(c.absent, "");
  ck_assert_msg(!bench_check(&c, &w, reason), "%s", reason);
  honest = c.run;
  c.run = lie;
  /* The last two rows of the first request are compared, of every head; of an array every row. */
  const int64_t width = c.entry->kind == BENCH_SCORE ? s->blocks : BENCH_TOPK;
  const int64_t all = s->requests * s->rows, first = s->form == BENCH_ARRAY ? 0 : s->rows - 2;
  for (int64_t head = 0; head < s->heads; head++)
    for (int64_t row = first; row < s->rows; row++)
      for (int64_t i = 0; i < width; i += width - 1) {
        spoiled = (head * all + row) * width + i;
        ck_assert_int_eq(bench_check(&c, &w, reason), -1);
        ck_assert_ptr_nonnull(strstr(reason, "differs from the reference"));
        ck_assert_ptr_nonnull(strstr(reason, s->name));
      }
  c.run = honest;
  ck_assert_int_eq(bench_check(&c, &w, reason), 0);
  bench_ours_finish(&c);
  bench_world_free(&w);
}
END_TEST

/* Every bar names one shape and two contenders of it. */
START_TEST(test_table) {
  for (int i = 0; i < bench_num_bars; i++) {
    const bench_bar *bar = &bench_bars[i];
    int ours = 0, other = 0, shapes_named = 0;
    for (int s = 0; s < bench_num_shapes; s++) {
      if (strcmp(bench_shapes[s].name, bar->shape) != 0) continue;
      shapes_named++;
      for (int e = 0; e < BENCH_ENTRIES && bench_shapes[s].entries[e].label; e++) {
        ours += !strcmp(bench_shapes[s].entries[e].label, bar->ours);
        other += !strcmp(bench_shapes[s].entries[e].label, bar->other);
      }
    }
    ck_assert_msg(shapes_named == 1 && ours == 1 && other == 1, "bar %s: %s / %s", bar->shape, bar->ours, bar->other);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("bench");
  TCase *tcase = tcase_create("bench");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, test_check, 0, SHAPES);
  tcase_add_test(tcase, test_table);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
