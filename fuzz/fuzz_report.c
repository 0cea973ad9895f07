/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a campaign as JSON, and for a person.
 */
#define _POSIX_C_SOURCE 200809L
#include "fuzz_report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "casefail.h"

/* Counts by name, those of nothing too: what a campaign never drew is worth knowing. */
static json_t *counted(const int64_t *counts, int n, const char *(*name)(int)) {
  json_t *object = json_object();
  for (int i = 0; i < n; i++) json_object_set_new(object, name(i), json_integer(counts[i]));
  return object;
}

static const char *op_name(int i) { return case_op_name((case_op)i); }
static const char *size_name(int i) { return fuzz_size_name((fuzz_size)i); }
static const char *dtype_name(int i) { return m3idx_dtype_name((m3idx_dtype)i); }
static const char *data_name(int i) { return case_data_name((case_data)i); }
static const char *table_name(int i) { return case_table_name((case_table)i); }
static const char *edge_name(int i) { return fuzz_edge_name((fuzz_edge)i); }

static json_t *contracts(const fuzz_tally *t) {
  json_t *object = json_object();
  for (int i = 0; i < FUZZ_CONTRACTS; i++) {
    char name[96];
    const m3idx_contract contract = fuzz_contract_of(i);
    m3idx_contract_name(&contract, name, sizeof name);
    json_object_set_new(object, name, json_integer(t->contract[i]));
  }
  return object;
}

static json_t *calls(const fuzz_found *f) {
  static const char *const names[CONFORM_OUTCOMES] = {"pass", "fail", "unsupported", "skip", "weak"};
  json_t *object = json_object();
  for (int i = 1; i < f->num_backends; i++) {
    json_t *of = json_object();
    for (int o = 0; o < CONFORM_OUTCOMES; o++) json_object_set_new(of, names[o], json_integer(f->tally.calls[i][o]));
    json_object_set_new(object, f->backend[i], of);
  }
  return object;
}

static json_t *failures(const fuzz_found *f, const fuzz_remains *remains) {
  json_t *list = json_array();
  for (int i = 0; i < f->num_failures; i++) {
    const fuzz_failure *one = &f->failure[i];
    json_array_append_new(list,
                          json_pack("{s:I, s:s, s:s, s:s, s:f, s:s, s:s?, s:s?, s:s}", "index", (json_int_t)one->index,
                                    "kind", fuzz_kind_name(one->kind), "backend", one->on.backend, "call", one->on.call,
                                    "at_seconds", one->at, "line", one->line, "shrunk", remains[i].line, "file",
                                    remains[i].file, "text", one->text));
  }
  return list;
}

double fuzz_rate(int64_t cases, double seconds) { return seconds > 0 ? (double)cases / seconds : 0; }

json_t *fuzz_report(const fuzz_plan *plan, const fuzz_found *f, const fuzz_remains *remains) {
  const fuzz_tally *t = &f->tally;
  char seed[32];
  json_t *backends = json_array(), *ops = json_array();
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)plan->seed); /* past what JSON's readers hold exactly */
  for (int i = 0; i < f->num_backends; i++)
    json_array_append_new(backends, json_pack("{s:s, s:s}", "name", f->backend[i], "details", f->details[i]));
  for (int op = 0; op < 3; op++)
    if (plan->ops >> op & 1) json_array_append_new(ops, json_string(op_name(op)));
  json_t *counts =
      json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "op", counted(t->op, 3, op_name), "size",
                counted(t->size, FUZZ_SIZES, size_name), "q_dtype", counted(t->q, M3IDX_DTYPE_COUNT, dtype_name),
                "k_dtype", counted(t->k, M3IDX_DTYPE_COUNT, dtype_name), "contract", contracts(t), "data",
                counted(t->data, CASE_DATA_KINDS, data_name), "table", counted(t->table, CASE_PREFIX + 1, table_name),
                "edge", counted(t->edge, FUZZ_EDGES, edge_name));
  return json_pack("{s:s, s:s, s:i, s:s, s:s?, s:I, s:[I], s:o, s:o, s:f, s:f, s:I, s:I, s:f, s:f, s:o, s:o, s:o}",
                   "format", FUZZ_REPORT_FORMAT, "version", m3idx_version(), "grammar",
                   plan->light ? FUZZ_GRAMMAR_LIGHT : FUZZ_GRAMMAR, "seed", seed, "fix", plan->fix, "shards",
                   (json_int_t)plan->shards, "shard", (json_int_t)plan->shard, "ops", ops, "backends", backends,
                   "seconds", f->seconds, "cpu_seconds", f->cpu_seconds, "passed_over", (json_int_t)t->passed_over,
                   "cases", (json_int_t)t->cases, "cases_per_second", fuzz_rate(t->cases, f->seconds),
                   "cases_per_cpu_second", fuzz_rate(t->cases, f->cpu_seconds), "counts", counts, "calls", calls(f),
                   "failures", failures(f, remains));
}

/* ---- files ---- */

static const struct {
  const char *key;
  json_type type;
} fields[] = {{"format", JSON_STRING},      {"version", JSON_STRING},
              {"grammar", JSON_INTEGER},    {"seed", JSON_STRING},
              {"shards", JSON_INTEGER},     {"shard", JSON_ARRAY},
              {"ops", JSON_ARRAY},          {"backends", JSON_ARRAY},
              {"seconds", JSON_REAL},       {"cases", JSON_INTEGER},
              {"counts", JSON_OBJECT},      {"calls", JSON_OBJECT},
              {"failures", JSON_ARRAY},     {"cases_per_second", JSON_REAL},
              {"cpu_seconds", JSON_REAL},   {"cases_per_cpu_second", JSON_REAL},
              {"passed_over", JSON_INTEGER}};

json_t *fuzz_report_read(const char *path, char *why) {
  json_error_t error;
  json_t *report = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (!report) {
    case_fail(why, "%.200s: %.200s", path, error.text);
    return NULL;
  }
  bool good = true;
  for (size_t i = 0; i < sizeof fields / sizeof *fields && good; i++) {
    const json_t *value = json_object_get(report, fields[i].key);
    good = value && (json_typeof(value) == fields[i].type || (fields[i].type == JSON_REAL && json_is_number(value)));
    if (!good) case_fail(why, "%.200s: %s: missing, or of another type", path, fields[i].key);
  }
  if (good && strcmp(json_string_value(json_object_get(report, "format")), FUZZ_REPORT_FORMAT) != 0) {
    case_fail(why, "%.200s: format: must be " FUZZ_REPORT_FORMAT, path);
    good = false;
  }
  if (good) return report;
  json_decref(report);
  return NULL;
}

int fuzz_report_write(const json_t *report, const char *path, char *why) {
  const size_t bytes = strlen(path) + 40;
  char *name = malloc(bytes);
  int bad = -1;
  if (!name) return case_fail(why, "no memory for a name");
  snprintf(name, bytes, "%s.tmp-%ld", path, (long)getpid());
  FILE *out = fopen(name, "wx");
  if (out) {
    bad = json_dumpf(report, out, JSON_INDENT(2) | JSON_PRESERVE_ORDER) || putc('\n', out) == EOF;
    bad |= fclose(out);
    if (!bad) bad = rename(name, path);
  }
  if (bad) case_fail(why, "%.200s: cannot write: %s", path, strerror(errno));
  if (bad && out) unlink(name);
  free(name);
  return bad ? -1 : 0;
}

/* ---- words ---- */

int64_t fuzz_report_failures(const json_t *report) {
  return (int64_t)json_array_size(json_object_get(report, "failures"));
}

int64_t fuzz_report_compared(const json_t *report) {
  const char *name;
  json_t *of;
  int64_t sum = 0;
  json_object_foreach(json_object_get(report, "calls"), name, of) sum +=
      json_integer_value(json_object_get(of, "pass")) + json_integer_value(json_object_get(of, "fail"));
  return sum;
}

bool fuzz_report_complete(const json_t *report) {
  return (json_int_t)json_array_size(json_object_get(report, "shard")) ==
         json_integer_value(json_object_get(report, "shards"));
}

static void print_counts(const json_t *report, const char *key, FILE *out) {
  const char *name;
  json_t *value;
  fprintf(out, "  %s:", key);
  json_object_foreach(json_object_get(json_object_get(report, "counts"), key), name,
                      value) if (json_integer_value(value))
      fprintf(out, " %s %lld", name, (long long)json_integer_value(value));
  fputc('\n', out);
}

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

static double number_of(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

void fuzz_report_print(const json_t *report, FILE *out) {
  static const char *const outcomes[] = {"pass", "fail", "unsupported", "skip", "weak"};
  size_t i;
  json_t *of;
  const char *name;
  fprintf(
      out,
      "fuzz: seed %s, %zu of %lld shards, %lld cases in %.1f s (%.0f a second), %.1f s of processor (%.0f a second)\n",
      text_of(report, "seed"), json_array_size(json_object_get(report, "shard")),
      (long long)json_integer_value(json_object_get(report, "shards")),
      (long long)json_integer_value(json_object_get(report, "cases")), number_of(report, "seconds"),
      number_of(report, "cases_per_second"), number_of(report, "cpu_seconds"),
      number_of(report, "cases_per_cpu_second"));
  print_counts(report, "op", out);
  print_counts(report, "data", out);
  print_counts(report, "edge", out);
  json_object_foreach(json_object_get(report, "calls"), name, of) {
    fprintf(out, "  %s:", name);
    for (int o = 0; o < 5; o++)
      fprintf(out, " %s %lld", outcomes[o], (long long)json_integer_value(json_object_get(of, outcomes[o])));
    fputc('\n', out);
  }
  json_array_foreach(json_object_get(report, "failures"), i, of) {
    fprintf(out, "FAIL %s %s %s: %s\n", text_of(of, "backend"), text_of(of, "call"), text_of(of, "kind"),
            *text_of(of, "shrunk") ? text_of(of, "shrunk") : text_of(of, "line"));
    if (*text_of(of, "file")) fprintf(out, "  file: %s\n", text_of(of, "file"));
  }
  fprintf(out, "fuzz: %lld calls compared, %lld failures: %s\n", (long long)fuzz_report_compared(report),
          (long long)fuzz_report_failures(report),
          fuzz_report_failures(report) || !fuzz_report_compared(report) ? "FAIL" : "PASS");
}
