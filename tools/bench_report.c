/* SPDX-License-Identifier: Apache-2.0
 *
 * What the benchmark prints: a table, or one JSON object, and the bars with what was got.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { MODEL_BYTES = 128 };

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The processor's name, where Linux tells it. */
static void machine(char *model) {
  char line[256], *at;
  FILE *info = fopen("/proc/cpuinfo", "r");
  snprintf(model, MODEL_BYTES, "unknown");
  while (info && fgets(line, sizeof line, info)) {
    if (strncmp(line, "model name", 10) != 0 || !(at = strchr(line, ':'))) continue;
    at[strcspn(at, "\n")] = 0;
    snprintf(model, MODEL_BYTES, "%.100s", at + 2);
    break;
  }
  if (info) fclose(info);
}

static void quoted(FILE *out, const char *text) {
  putc('"', out);
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') putc('\\', out);
    if ((unsigned char)*text < 0x20)
      fprintf(out, "\\u%04x", (unsigned)*text);
    else
      putc(*text, out);
  }
  putc('"', out);
}

/* Pairs of a query and a visible key; what a peer's product covers has no causality. */
static double pairs(const bench_world *w, bench_kind kind) {
  const bench_shape *s = w->shape;
  const double all = (double)w->lanes * (double)w->keys;
  const double hidden = (double)(s->requests * s->heads) * (double)(s->rows * (s->rows - 1) / 2);
  return kind < BENCH_OURS_END || kind == BENCH_PLAIN ? all - hidden : all;
}

/* What the bars compare: pairs a second, or rows a second of an array. */
static double rate_of(const bench_world *w, bench_kind kind, double seconds) {
  if (w->shape->form == BENCH_ARRAY) return (double)w->lanes / seconds;
  return (kind == BENCH_READ ? pairs(w, BENCH_SCORE) : pairs(w, kind)) / seconds;
}

static void remember(bench_report *r, const char *shape, const char *label, double rate, const char *absent) {
  bench_rate *more = realloc(r->rates, (size_t)(r->results + 1) * sizeof *more);
  if (!more) return;
  r->rates = more;
  more[r->results] = (bench_rate){.shape = shape, .label = label, .rate = rate};
  snprintf(more[r->results++].absent, BENCH_REASON_BYTES, "%s", absent);
}

void bench_report_begin(bench_report *r) {
  char model[MODEL_BYTES];
  machine(model);
  if (r->options->json) {
    fprintf(r->out, "{\"m3idx\": \"%s\", \"processor\": ", m3idx_version());
    quoted(r->out, model);
    fprintf(r->out, ", \"threads\": %d, \"repeats\": %d, \"tiny\": %s, \"results\": [", r->threads, r->repeats,
            r->options->tiny ? "true" : "false");
    return;
  }
  fprintf(r->out, "m3idx %s, %s, %d threads, medians of %d%s\n", m3idx_version(), model, r->threads, r->repeats,
          r->options->tiny ? ", shapes cut down: the figures mean nothing" : "");
}

static void absent_row(bench_report *r, const char *shape, const char *label, const char *reason) {
  if (r->options->json) {
    fprintf(r->out, "%s\n{\"shape\": ", r->results ? "," : "");
    quoted(r->out, shape);
    fputs(", \"contender\": ", r->out);
    quoted(r->out, label);
    fputs(", \"absent\": ", r->out);
    quoted(r->out, reason);
    putc('}', r->out);
  } else {
    fprintf(r->out, "  %-22s absent: %s\n", label, reason);
  }
  remember(r, shape, label, 0, reason);
}

static void row(bench_report *r, const bench_world *w, const bench_contender *c) {
  double sorted[BENCH_REPEATS];
  memcpy(sorted, c->seconds, sizeof sorted);
  qsort(sorted, (size_t)r->repeats, sizeof *sorted, by_value);
  const double median = sorted[r->repeats / 2];
  const double gflops = 2e-9 * (double)w->head_dim * pairs(w, c->entry->kind) / median;
  const double gbytes = 1e-9 * (double)(w->pages * BENCH_PAGE * w->head_dim) * 2 / median;
  const double rows = (double)w->lanes / median;
  const bool array = w->shape->form == BENCH_ARRAY, reads = c->entry->kind == BENCH_READ;
  if (r->options->json) {
    fprintf(r->out, "%s\n{\"shape\": ", r->results ? "," : "");
    quoted(r->out, w->shape->name);
    fputs(", \"contender\": ", r->out);
    quoted(r->out, c->entry->label);
    fputs(", \"detail\": ", r->out);
    quoted(r->out, c->detail);
    fprintf(r->out, ", \"peer\": %s, \"threads\": %d, \"median_s\": %.9g, \"min_s\": %.9g, \"max_s\": %.9g",
            c->entry->kind > BENCH_OURS_END ? "true" : "false", c->threads, median, sorted[0], sorted[r->repeats - 1]);
    if (!array && !reads) fprintf(r->out, ", \"gflops\": %.6g", gflops);
    if (!array) fprintf(r->out, ", \"gbytes_s\": %.6g", gbytes);
    fprintf(r->out, ", \"rows_s\": %.6g}", rows);
  } else {
    fprintf(r->out, "  %-22s%3d thr %11.3f ms  (%.3f .. %.3f)", c->entry->label, c->threads, 1e3 * median,
            1e3 * sorted[0], 1e3 * sorted[r->repeats - 1]);
    if (!array && !reads) fprintf(r->out, " %9.1f GFLOP/s", gflops);
    if (!array) fprintf(r->out, " %8.2f GB/s", gbytes);
    fprintf(r->out, " %11.0f rows/s  %s\n", rows, c->detail);
  }
  remember(r, w->shape->name, c->entry->label, rate_of(w, c->entry->kind, median), "");
}

void bench_report_shape(bench_report *r, const bench_world *w, const bench_contender *c, int count) {
  if (!r->options->json) fprintf(r->out, "\n%s\n", w->shape->name);
  for (int i = 0; i < count; i++)
    if (*c[i].absent)
      absent_row(r, w->shape->name, c[i].entry->label, c[i].absent);
    else
      row(r, w, &c[i]);
  fflush(r->out);
}

void bench_report_left_out(bench_report *r, const bench_shape *shape, const char *reason) {
  if (!r->options->json) fprintf(r->out, "\n%s\n", shape->name);
  for (int i = 0; i < BENCH_ENTRIES && shape->entries[i].label; i++)
    if (shape->entries[i].kind < BENCH_OURS_END || r->options->peers)
      absent_row(r, shape->name, shape->entries[i].label, reason);
}

static const bench_rate *find(const bench_report *r, const char *shape, const char *label) {
  for (int i = 0; i < r->results; i++)
    if (!strcmp(r->rates[i].shape, shape) && !strcmp(r->rates[i].label, label)) return &r->rates[i];
  return NULL;
}

static void bar_json(bench_report *r, const bench_bar *bar, double got, bool reached, const char *absent, bool first) {
  fprintf(r->out, "%s\n{\"shape\": ", first ? "" : ",");
  quoted(r->out, bar->shape);
  fputs(", \"ours\": ", r->out);
  quoted(r->out, bar->ours);
  fputs(", \"other\": ", r->out);
  quoted(r->out, bar->other);
  fprintf(r->out, ", \"kind\": \"%s\", \"bar\": %.4g, ", bar->at_most ? "at most" : "at least", bar->bar);
  if (*absent) {
    fputs("\"absent\": ", r->out);
    quoted(r->out, absent);
    putc('}', r->out);
  } else {
    fprintf(r->out, "\"got\": %.4g, \"reached\": %s}", got, reached ? "true" : "false");
  }
}

static void bar_text(bench_report *r, const bench_bar *bar, double got, bool reached, const char *absent) {
  char what[96];
  snprintf(what, sizeof what, "%s: %s %s %s", bar->shape, bar->ours, bar->at_most ? "time /" : "/", bar->other);
  if (*absent)
    fprintf(r->out, "  %-64s -    absent: %s\n", what, absent);
  else
    fprintf(r->out, "  %-64s %7.3f  bar %s %-5g %s\n", what, got, bar->at_most ? "<=" : ">=", bar->bar,
            reached ? "reached" : "MISSED");
}

void bench_report_end(bench_report *r) {
  bool first = true;
  fputs(r->options->json ? "\n], \"bars\": [" : "\nbars: got, and what was to be got\n", r->out);
  for (int i = 0; i < bench_num_bars; i++) {
    const bench_bar *bar = &bench_bars[i];
    const bench_rate *ours = find(r, bar->shape, bar->ours), *other = find(r, bar->shape, bar->other);
    if (!ours || !other) continue; /* filtered out, or a peer and none asked for */
    const char *absent = *ours->absent ? ours->absent : other->absent;
    const double got = *absent ? 0 : bar->at_most ? other->rate / ours->rate : ours->rate / other->rate;
    const bool reached = bar->at_most ? got <= bar->bar : got >= bar->bar;
    if (r->options->json)
      bar_json(r, bar, got, reached, absent, first);
    else
      bar_text(r, bar, got, reached, absent);
    first = false;
  }
  if (r->options->json) fputs("\n]}\n", r->out);
  free(r->rates);
  r->rates = NULL;
}
