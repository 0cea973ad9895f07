/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of the benchmark: for each shape a check against the reference, one round to warm up, then rounds in which
 * every contender runs once, so that what disturbs the machine meets them all.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "bench.h"

static int cores(void) {
#ifdef _OPENMP
  return omp_get_num_procs();
#else
  return 1;
#endif
}

static int default_threads(void) {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

static double now(const bench_contender *c, const bench_options *o) {
  struct timespec t;
  clock_gettime(o->cpu_time && c->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void begin(bench_contender *c, bench_world *w) {
  switch (c->entry->kind) {
  case BENCH_SCORE:
  case BENCH_SELECTED:
  case BENCH_SELECT:
  case BENCH_FILTER: bench_ours_begin(c, w); return;
  case BENCH_SGEMM:
  case BENCH_SGEMM_MAX: bench_blas_begin(c, w); return;
  case BENCH_ONEDNN_MAX: bench_onednn_begin(c, w); return;
  case BENCH_PLAIN:
  case BENCH_READ: bench_plain_begin(c, w); return;
  case BENCH_PARTIAL_SORT:
  case BENCH_NTH_ELEMENT: bench_sort_begin(c, w); return;
  case BENCH_TORCH_BF16_MAX:
  case BENCH_TORCH_BF16_TOPK:
  case BENCH_TORCH_F32_MAX: bench_torch_begin(c, w); return;
  case BENCH_OURS_END: break;
  }
}

static void finish(bench_contender *c) {
  if (c->entry->kind < BENCH_OURS_END) bench_ours_finish(c);
  if (c->entry->kind == BENCH_ONEDNN_MAX) bench_onednn_finish(c);
  if (c->entry->kind >= BENCH_TORCH_BF16_MAX) bench_torch_finish(c);
}

/* Threads of other libraries spin for a while after their work; nobody is to run beside them. */
static void rest(const bench_contender *c, const bench_options *o) {
  if (c->threads > 1 && !o->tiny) nanosleep(&(struct timespec){.tv_nsec = 40000000}, NULL);
}

static void run_once(bench_contender *c, bench_world *w, int round) {
  const double start = now(c, w->options);
  c->elsewhere = 0;
  if (c->run(c, w)) {
    snprintf(c->absent, sizeof c->absent, "failed while running: %.200s", c->ctx ? m3idx_message(c->ctx) : "");
    return;
  }
  const double seconds = c->elsewhere > 0 ? c->elsewhere : now(c, w->options) - start;
  if (round >= 0) c->seconds[round] = seconds;
  rest(c, w->options);
}

/* Contenders of the shape that may run here; 0, or 1 = wrong bytes. */
static int measure(bench_contender *all, int count, bench_world *w, int repeats) {
  char reason[BENCH_REASON_BYTES] = "";
  for (int i = 0; i < count; i++) {
    begin(&all[i], w);
    if (*all[i].absent || all[i].entry->kind >= BENCH_FILTER || !bench_check(&all[i], w, reason)) continue;
    fprintf(stderr, "bench: %s\n", reason);
    return 1;
  }
  for (int round = -1; round < repeats; round++)
    for (int i = 0; i < count; i++)
      if (!*all[i].absent) run_once(&all[i], w, round);
  return 0;
}

static int most_threads(const bench_contender *all, int count) {
  int most = 1;
  for (int i = 0; i < count; i++) most = all[i].threads > most ? all[i].threads : most;
  return most;
}

static int run_shape(bench_report *report, const bench_shape *shape) {
  bench_contender *all = calloc(BENCH_ENTRIES, sizeof *all);
  char reason[BENCH_REASON_BYTES] = "no memory";
  bench_world w;
  int count = 0;
  for (int i = 0; all && i < BENCH_ENTRIES && shape->entries[i].label; i++) {
    const bench_entry *entry = &shape->entries[i];
    if (entry->kind > BENCH_OURS_END && !report->options->peers) continue;
    all[count].entry = entry;
    all[count].threads = entry->threads ? entry->threads : report->threads;
    if (all[count].threads > cores())
      snprintf(all[count].absent, BENCH_REASON_BYTES, "the machine has %d cores", cores());
    count++;
  }
  if (!all || bench_world_make(&w, shape, report->options, most_threads(all, count), reason)) {
    bench_report_left_out(report, shape, reason);
    free(all);
    return 0;
  }
  const int wrong = measure(all, count, &w, report->repeats);
  if (!wrong) bench_report_shape(report, &w, all, count);
  for (int i = 0; i < count; i++) finish(&all[i]);
  bench_world_free(&w);
  free(all);
  return wrong;
}

/* The same names on a problem of a few rows and blocks. */
static bench_shape cut_down(const bench_shape *shape) {
  bench_shape tiny = *shape;
  if (tiny.requests > 2) tiny.requests = 2;
  if (tiny.rows > 5) tiny.rows = 5;
  if (tiny.form != BENCH_ARRAY && tiny.blocks > 19) tiny.blocks = 19;
  if (tiny.blocks > 1024) tiny.blocks = 1024;
  return tiny;
}

int bench_run(const bench_options *options, FILE *out) {
  bench_report report = {.out = out,
                         .options = options,
                         .threads = options->threads ? options->threads : default_threads(),
                         .repeats = options->repeats ? options->repeats : 7};
  bench_shape of_case[BENCH_OF_CASE];
  const bench_shape *shapes = options->given ? of_case : bench_shapes;
  const int count = options->given ? BENCH_OF_CASE : bench_num_shapes;
  int matched = 0, wrong = 0;
  if (options->given) bench_shapes_of(options->given, of_case);
  if (report.repeats > BENCH_REPEATS) return 2;
  for (int i = 0; i < count; i++) matched += !options->filter || strstr(shapes[i].name, options->filter);
  if (!matched) {
    fprintf(stderr, "bench: no shape's name contains \"%s\"\n", options->filter);
    return 2;
  }
  bench_report_begin(&report);
  for (int i = 0; i < count && !wrong; i++) {
    const bench_shape *shape = &shapes[i];
    char reason[BENCH_REASON_BYTES];
    if (options->filter && !strstr(shape->name, options->filter)) continue;
    if (!options->filter && !options->tiny && shape->cores > cores()) {
      snprintf(reason, sizeof reason, "for %d cores, this machine has %d; --filter %s runs it", shape->cores, cores(),
               shape->name);
      bench_report_left_out(&report, shape, reason);
      continue;
    }
    const bench_shape tiny = cut_down(shape);
    wrong = run_shape(&report, options->tiny ? &tiny : shape);
  }
  bench_report_end(&report);
  bench_torch_end();
  return wrong;
}

void bench_list(FILE *out) {
  for (int i = 0; i < bench_num_shapes; i++) {
    const bench_shape *s = &bench_shapes[i];
    fprintf(out, "%-26s", s->name);
    if (s->form == BENCH_ARRAY)
      fprintf(out, "%lld rows of %lld scores", (long long)s->rows, (long long)s->blocks);
    else
      fprintf(out, "%s, %lld x %lld rows x %lld heads, %lld blocks", s->form == BENCH_DECODE ? "decode" : "prefill",
              (long long)s->requests, (long long)s->rows, (long long)s->heads, (long long)s->blocks);
    fprintf(out, s->cores > 1 ? ", from %d cores\n" : "\n", s->cores);
  }
}
