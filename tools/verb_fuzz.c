/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx fuzz: backends against each other on drawn cases (docs/FUZZING.md), and what one does with what it finds.
 */
#define _POSIX_C_SOURCE 200809L
#include "verb_fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "casefile.h"
#include "fuzz_keep.h"
#include "fuzz_report.h"
#include "fuzz_shrink.h"
#include "tool.h"

enum {
  BACKENDS = TOOL_FIRST_OPTION,
  ISA,
  THREADS,
  SECONDS,
  CASES,
  SEED,
  SHARD,
  OP,
  REPORT,
  FAILURES,
  SHRINK,
  HANG,
  SAVE,
  CASE,
  MERGE,
  OUTPUT,
  COMPLETE,
  KEEP,
  LIST,
  WHY,
  QUIET
};

typedef struct settings {
  const char *verb;
  fuzz_plan plan;
  double shrink_seconds;
  char *backends, *isa, *report, *save, *one_case, *output, *keep, *list, *reason;
  bool merge, complete;
} settings;

/* ---- one campaign ---- */

/* Only the truth and the backend that failed: what the others say has been heard. */
static fuzz_setup narrow(const settings *s, const fuzz_found *found, const fuzz_failure *f, char *names, size_t bytes) {
  fuzz_setup setup = s->plan.setup;
  if (!*f->on.backend) return setup;
  snprintf(names, bytes, "%s,%s", found->backend[0], f->on.backend);
  setup.backends = names;
  setup.isa = NULL;
  return setup;
}

/* The shrunk line, where it is one, and always a file. */
static void leave_remains(const settings *s, const fuzz_failure *f, const case_spec *spec, fuzz_remains *out) {
  char why[CASE_MESSAGE_BYTES] = "out of memory";
  const size_t bytes = strlen(s->save ? s->save : ".") + 80;
  case_file file = {0};
  out->line = spec->num_puts <= CASE_MAX_LIST ? case_spec_format(spec) : NULL;
  out->file = malloc(bytes);
  if (out->file)
    snprintf(out->file, bytes, "%s/fuzz-%llu-%llu.safetensors", s->save ? s->save : ".",
             (unsigned long long)s->plan.seed, (unsigned long long)f->index);
  if (out->file && !case_generate(spec, &file, why) && !casefile_write(out->file, &file, why)) {
    case_file_free(&file);
    return;
  }
  tool_fail(s->verb, EXIT_USAGE, "case %llu: no file: %s", (unsigned long long)f->index, why);
  case_file_free(&file);
  free(out->file);
  out->file = NULL;
}

static void shrink(const settings *s, const fuzz_found *found, const fuzz_failure *f, fuzz_remains *out) {
  char names[160], why[CASE_MESSAGE_BYTES];
  case_spec spec;
  fuzz_shrunk shrunk;
  if (f->kind == FUZZ_SENSELESS || case_spec_parse_line(f->line, &spec, why)) return;
  fuzz_shrink_options o = {.setup = narrow(s, found, f, names, sizeof names),
                           .seconds = s->shrink_seconds,
                           .hang_seconds = s->plan.hang_seconds};
  progress_begin("shrinking", s->plan.quiet);
  const int bad = s->shrink_seconds > 0 ? fuzz_shrink(&o, &spec, &shrunk) : 0;
  progress_end();
  if (s->shrink_seconds > 0 && !bad) {
    printf("case %llu: shrunk in %lld trials%s%s\n", (unsigned long long)f->index, (long long)shrunk.trials,
           shrunk.finished ? "" : ", cut short by --shrink",
           shrunk.kind == FUZZ_PASSED ? ": does not fail by itself" : "");
    leave_remains(s, f, &shrunk.spec, out);
    case_spec_free(&shrunk.spec);
  } else {
    leave_remains(s, f, &spec, out);
  }
  case_spec_free(&spec);
}

static int write_report(const settings *s, const json_t *report, const char *path) {
  char why[CASE_MESSAGE_BYTES];
  if (!report) return tool_fail(s->verb, EXIT_BACKEND, "out of memory, or a backend's words are not UTF-8");
  if (path && fuzz_report_write(report, path, why)) return tool_fail(s->verb, EXIT_USAGE, "%s", why);
  return EXIT_OK;
}

static int verdict_of(const json_t *report) {
  return fuzz_report_failures(report) || !fuzz_report_compared(report) ? EXIT_DIFFERENT : EXIT_OK;
}

static int campaign(const settings *s) {
  static fuzz_remains remains[FUZZ_MOST_FAILURES];
  char why[CASE_MESSAGE_BYTES];
  fuzz_found *found;
  bool unusable;
  if (fuzz_campaign(&s->plan, &found, &unusable, why))
    return tool_fail(s->verb, unusable ? EXIT_BACKEND : EXIT_USAGE, "%s", why);
  for (int i = 0; i < found->num_failures; i++) shrink(s, found, &found->failure[i], &remains[i]);
  json_t *report = fuzz_report(&s->plan, found, remains);
  int status = write_report(s, report, s->report);
  if (report) fuzz_report_print(report, stdout);
  if (!status) status = verdict_of(report);
  for (int i = 0; i < found->num_failures; i++) {
    free(remains[i].line);
    free(remains[i].file);
    remains[i] = (fuzz_remains){0};
  }
  json_decref(report);
  fuzz_found_free(found);
  return status;
}

/* ---- other jobs ---- */

static int merge(const settings *s, const char *const *paths) {
  char why[CASE_MESSAGE_BYTES] = "";
  int count = 0, read = 0, status = EXIT_OK;
  while (paths && paths[count]) count++;
  if (!count) return tool_fail(s->verb, EXIT_USAGE, "--merge: no report given");
  json_t **reports = calloc((size_t)count, sizeof *reports), *sum = NULL;
  if (!reports) return tool_fail(s->verb, EXIT_BACKEND, "out of memory");
  while (read < count && (reports[read] = fuzz_report_read(paths[read], why))) read++;
  if (read == count) sum = fuzz_report_merge(reports, paths, count, why);
  if (!sum) status = tool_fail(s->verb, EXIT_USAGE, "%s", why);
  if (sum) status = write_report(s, sum, s->output);
  if (sum) fuzz_report_print(sum, stdout);
  if (sum && !status && s->complete && !fuzz_report_complete(sum))
    status = tool_fail(s->verb, EXIT_USAGE, "--complete: shards are missing");
  if (sum && !status) status = verdict_of(sum);
  json_decref(sum);
  for (int i = 0; i < read; i++) json_decref(reports[i]);
  free(reports);
  return status;
}

static bool is_line(const char *text) { return !strncmp(text + strspn(text, " "), "--", 2); }

/* A case in memory from a line or the name of a file. */
static int take_case(const settings *s, const char *text, case_file *file) {
  char why[CASE_MESSAGE_BYTES];
  case_spec spec;
  *file = (case_file){0};
  if (!is_line(text)) return tool_read(s->verb, text, file);
  int bad = case_spec_parse_line(text, &spec, why);
  if (!bad) bad = case_generate(&spec, file, why);
  case_spec_free(&spec);
  return bad ? tool_fail(s->verb, EXIT_USAGE, "%s", why) : EXIT_OK;
}

static int run_case(const settings *s) {
  char why[CASE_MESSAGE_BYTES];
  bool unusable;
  fuzz_session session;
  fuzz_outcome outcome;
  case_file file;
  int status = take_case(s, s->one_case, &file);
  if (status) return status;
  if (fuzz_open(&s->plan.setup, &session, &unusable, why)) {
    case_file_free(&file);
    return tool_fail(s->verb, unusable ? EXIT_BACKEND : EXIT_USAGE, "%s", why);
  }
  conform_memory_watch();
  if (fuzz_run_file(&session, &file, s->one_case, stdout, &outcome, why)) {
    status = tool_fail(s->verb, EXIT_USAGE, "%s", why);
  } else {
    int64_t compared = 0;
    for (int i = 1; i < session.count; i++)
      compared += outcome.calls[i][CONFORM_PASS] + outcome.calls[i][CONFORM_FAIL] + outcome.calls[i][CONFORM_WEAK];
    printf("%lld calls compared: %s\n", (long long)compared, outcome.failed || !compared ? "FAIL" : "PASS");
    status = outcome.failed || !compared ? EXIT_DIFFERENT : EXIT_OK;
  }
  fuzz_close(&session);
  case_file_free(&file);
  return status;
}

static int keep(const settings *s) {
  char why[CASE_MESSAGE_BYTES];
  case_file file;
  if (!s->list) return tool_fail(s->verb, EXIT_USAGE, "--keep: needs --list, the regression list");
  int status = take_case(s, s->keep, &file);
  if (status) return status;
  char *line = fuzz_line_of(&file, why);
  case_file_free(&file);
  if (!line) return tool_fail(s->verb, EXIT_USAGE, "%s", why);
  const int kept = fuzz_keep(s->list, line, s->reason ? s->reason : "Found by m3idx fuzz.", why);
  if (kept < 0)
    status = tool_fail(s->verb, EXIT_USAGE, "%s", why);
  else
    printf("%s%s\n", kept ? "already kept: " : "", line);
  free(line);
  return status;
}

/* ---- options ---- */

static int take_number(const settings *s, const char *option, const char *text, double *out) {
  char *end;
  *out = strtod(text, &end);
  if (end != text && !*end && *out >= 0 && *out <= 1e9) return EXIT_OK;
  return tool_fail(s->verb, EXIT_USAGE, "--%s %s: must be a number of 0..1e9 seconds", option, text);
}

static int take_word(const settings *s, const char *option, const char *text, uint64_t *out) {
  char *end = NULL;
  const unsigned long long value = strtoull(text, &end, 10);
  *out = value;
  if (*text >= '0' && *text <= '9' && !*end) return EXIT_OK;
  return tool_fail(s->verb, EXIT_USAGE, "--%s %s: must be a number of 0..18446744073709551615", option, text);
}

static int take_shard(settings *s, const char *text) {
  char *end;
  const long shard = strtol(text, &end, 10);
  const long shards = *end == '/' ? strtol(end + 1, &end, 10) : 0;
  if (*end || *text < '0' || *text > '9' || shards < 1 || shards > 1000000 || shard >= shards)
    return tool_fail(s->verb, EXIT_USAGE, "--shard %s: must be I/N with 0 <= I < N <= 1000000", text);
  s->plan.shard = shard;
  s->plan.shards = shards;
  return EXIT_OK;
}

static int take_ops(settings *s, const char *text) {
  const char *at = text;
  s->plan.ops = 0;
  while (*at) {
    const size_t n = strcspn(at, ",");
    unsigned op = 0;
    while (op < 3 && (strlen(case_op_name((case_op)op)) != n || strncmp(case_op_name((case_op)op), at, n) != 0)) op++;
    if (op == 3) break;
    s->plan.ops |= 1u << op;
    at += n + (at[n] == ',');
  }
  if (s->plan.ops && !*at) return EXIT_OK;
  return tool_fail(s->verb, EXIT_USAGE, "--op %s: must be of prefill, decode and select, with commas", text);
}

/* A text option's place, NULL = none. */
static char **place_of(settings *s, int val) {
  switch (val) {
  case BACKENDS: return &s->backends;
  case ISA: return &s->isa;
  case REPORT: return &s->report;
  case SAVE: return &s->save;
  case CASE: return &s->one_case;
  case OUTPUT: return &s->output;
  case KEEP: return &s->keep;
  case LIST: return &s->list;
  case WHY: return &s->reason;
  default: return NULL;
  }
}

static int take(settings *s, int val, const char *text) {
  fuzz_plan *p = &s->plan;
  switch (val) {
  case THREADS: return tool_integer(s->verb, "threads", text, 0, 4096, &p->setup.threads);
  case FAILURES: return tool_integer(s->verb, "failures", text, 1, FUZZ_MOST_FAILURES, &p->most_failures);
  case SECONDS: return take_number(s, "seconds", text, &p->seconds);
  case SHRINK: return take_number(s, "shrink", text, &s->shrink_seconds);
  case HANG: return take_number(s, "hang", text, &p->hang_seconds);
  case CASES: return take_word(s, "cases", text, &p->cases);
  case SEED: return take_word(s, "seed", text, &p->seed);
  case SHARD: return take_shard(s, text);
  case OP: return take_ops(s, text);
  case MERGE: s->merge = true; break;
  case COMPLETE: s->complete = true; break;
  case QUIET: p->quiet = true; break;
  default: break;
  }
  return EXIT_OK;
}

static int dispatch(settings *s, const char *const *rest) {
  s->plan.setup.backends = s->backends ? s->backends : "ref,cpu";
  s->plan.setup.isa = s->isa;
  if (s->merge) return merge(s, rest);
  if (rest && *rest) return tool_fail(s->verb, EXIT_USAGE, "%s: one argument too many (see --help)", *rest);
  if (s->keep) return keep(s);
  if (s->one_case) return run_case(s);
  if (!(s->plan.seconds > 0) && !s->plan.cases)
    return tool_fail(s->verb, EXIT_USAGE, "--seconds or --cases: how long?");
  return campaign(s);
}

int verb_fuzz_with(int argc, const char **argv, const struct conform_backend *extra, int num_extra) {
  settings s = {.verb = argv[0], .shrink_seconds = 20};
  s.plan = (fuzz_plan){.shards = 1, .ops = FUZZ_OPS_ALL, .most_failures = 10, .hang_seconds = 60};
  s.plan.setup = (fuzz_setup){.program = argv[0], .threads = 1, .extra = extra, .num_extra = num_extra};
  const struct poptOption options[] = {
      {"backends", 'b', POPT_ARG_STRING, NULL, BACKENDS, "names with commas (default ref,cpu); the first is the truth",
       "LIST"},
      {"isa", 0, POPT_ARG_STRING, NULL, ISA,
       "run cpu under these instruction sets, or all; default: the one it takes by itself", "LIST"},
      {"threads", 't', POPT_ARG_STRING, NULL, THREADS, "CPU threads of each backend (default 1); 0 = OpenMP's", "N"},
      {"seconds", 0, POPT_ARG_STRING, NULL, SECONDS, "stop after so long", "S"},
      {"cases", 'n', POPT_ARG_STRING, NULL, CASES, "only cases 0..N-1 of the seed's stream, over all shards", "N"},
      {"seed", 's', POPT_ARG_STRING, NULL, SEED, "which stream of cases (default 0)", "N"},
      {"shard", 0, POPT_ARG_STRING, NULL, SHARD, "only the cases that are I modulo N (default 0/1)", "I/N"},
      {"op", 0, POPT_ARG_STRING, NULL, OP, "draw only these of prefill, decode and select", "LIST"},
      {"report", 0, POPT_ARG_STRING, NULL, REPORT, "write a report as JSON", "FILE"},
      {"failures", 0, POPT_ARG_STRING, NULL, FAILURES, "stop after so many (default 10)", "N"},
      {"shrink", 0, POPT_ARG_STRING, NULL, SHRINK, "seconds to make each failure small (default 20); 0 = not at all",
       "S"},
      {"hang", 0, POPT_ARG_STRING, NULL, HANG, "a case that takes longer hangs (default 60)", "S"},
      {"save", 0, POPT_ARG_STRING, NULL, SAVE, "where case files of failures go (default .)", "DIR"},
      {"case", 'c', POPT_ARG_STRING, NULL, CASE, "run one case line or case file instead", "CASE"},
      {"merge", 0, POPT_ARG_NONE, NULL, MERGE, "join the reports given instead", NULL},
      {"output", 'o', POPT_ARG_STRING, NULL, OUTPUT, "with --merge: where to write the joined report", "FILE"},
      {"complete", 0, POPT_ARG_NONE, NULL, COMPLETE, "with --merge: a missing shard is an error", NULL},
      {"keep", 0, POPT_ARG_STRING, NULL, KEEP, "add a case line or case file to a regression list instead", "CASE"},
      {"list", 0, POPT_ARG_STRING, NULL, LIST, "with --keep: the list", "FILE"},
      {"why", 0, POPT_ARG_STRING, NULL, WHY, "with --keep: the reason that stands above the line", "TEXT"},
      {"quiet", 'q', POPT_ARG_NONE, NULL, QUIET, "no progress", NULL},
      TOOL_HELP_OPTION,
      POPT_TABLEEND,
  };
  tool_args a;
  tool_begin(&a, argc, argv, options, "[--merge REPORT...]", NULL);
  for (int val, bad = 0; !bad && (val = tool_next(&a, TOOL_ANY_FILES)) >= 0;) {
    char *text = poptGetOptArg(a.popt), **place = place_of(&s, val);
    a.status = bad = take(&s, val, text);
    if (place) {
      free(*place);
      *place = text;
    } else {
      free(text);
    }
  }
  if (!tool_leave(&a)) a.status = dispatch(&s, poptGetArgs(a.popt));
  for (int val = BACKENDS; val <= WHY; val++)
    if (place_of(&s, val)) free(*place_of(&s, val));
  tool_end(&a);
  return a.status;
}

int verb_fuzz(int argc, const char **argv) { return verb_fuzz_with(argc, argv, NULL, 0); }
