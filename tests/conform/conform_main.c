/* SPDX-License-Identifier: Apache-2.0
 *
 * Options, the loop over lines, calls and backends, and the verdict.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "conform_backends.h"
#include "conform_lines.h"
#include "conform_tally.h"

typedef struct options {
  const char *program, *backend, *op, *level, *one_case;
  int repeat, threads;
  bool list, complete;
} options;

typedef struct session {
  const options *o;
  unsigned ops;
  m3idx_context *ref;
  conform_opened *backends;
  conform_tally *tallies;
  int num_backends, failures;
} session;

enum { MOST_FAILURES = 20 }; /* printed; enough to see a pattern */

static const char *const op_names[] = {
#define M3IDX_OP(name, what) #name,
#include "ops.def"
#undef M3IDX_OP
};

static int usage(const char *what) {
  fprintf(stderr,
          "conform: %s\n"
          "usage: conform [--backend all|NAME|cpu:ISA] [--op all|OP] [--level smoke|full|regression] [--case LINE]\n"
          "               [--repeat N] [--threads N] [--complete] [--list]\n"
          "  --case LINE  this line only, as the arguments of m3idx gen\n"
          "  --repeat N   make every call N times (default 1)\n"
          "  --threads N  threads of the backends under test (default 0: as OpenMP has it)\n"
          "  --complete   UNSUPPORTED is a failure\n"
          "  --list       print the lines and run nothing\n",
          what);
  return 2;
}

static bool parse_number(const char *text, int least, int *out) {
  char *end;
  const long n = strtol(text, &end, 10);
  if (!*text || *end || n < least || n > 1000000) return false;
  *out = (int)n;
  return true;
}

static bool parse(int argc, const char *const *argv, options *o) {
  *o = (options){.program = argv[0], .backend = "all", .op = "all", .level = "smoke", .repeat = 1};
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--list") || !strcmp(argv[i], "--complete")) {
      *(argv[i][2] == 'l' ? &o->list : &o->complete) = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char *key = argv[i], *value = argv[++i];
    if (!strcmp(key, "--backend"))
      o->backend = value;
    else if (!strcmp(key, "--op"))
      o->op = value;
    else if (!strcmp(key, "--level"))
      o->level = value;
    else if (!strcmp(key, "--case"))
      o->one_case = value;
    else if (!strcmp(key, "--repeat") ? !parse_number(value, 1, &o->repeat)
                                      : strcmp(key, "--threads") != 0 || !parse_number(value, 0, &o->threads))
      return false;
  }
  return true;
}

/* 0 = no such operation. */
static unsigned ops_by_name(const char *name) {
  unsigned ops = 0;
  for (int i = 0; i < M3IDX_OP_COUNT; i++)
    if (!strcmp(name, "all") || !strcmp(name, op_names[i])) ops |= 1u << i;
  return ops;
}

static int lines_of(const options *o, conform_lines *lines) {
  static const char smoke[] = CONFORM_LISTS "/smoke.list", regression[] = CONFORM_LISTS "/regression.list",
                    policies[] = CONFORM_LISTS "/policies.list";
  const bool full = !strcmp(o->level, "full"), only_regression = !strcmp(o->level, "regression");
  if (o->one_case) {
    conform_lines_add(lines, o->one_case);
    return 0;
  }
  if (!full && !only_regression && strcmp(o->level, "smoke") != 0) return usage("no such level");
  if ((!only_regression && conform_lines_read(lines, smoke)) || conform_lines_read(lines, regression) ||
      (full && conform_lines_read(lines, policies))) {
    fprintf(stderr, "conform: cannot read the lists in %s\n", CONFORM_LISTS);
    return 2;
  }
  if (full) conform_lines_grammar(lines);
  return 0;
}

/* The line that repeats one call's run on one backend. */
static void repeat_line(const options *o, const conform_opened *backend, const conform_call *call, char *text,
                        size_t bytes) {
  int n = snprintf(text, bytes, "%s --backend %s --op %s", o->program, backend->name, op_names[call->op]);
  if (o->threads) n += snprintf(text + n, bytes - (size_t)n, " --threads %d", o->threads);
  if (o->repeat > 1) n += snprintf(text + n, bytes - (size_t)n, " --repeat %d", o->repeat);
  snprintf(text + n, bytes - (size_t)n, " --case '%s'", call->on->line);
}

static int on_every_backend(conform_call *call, void *user) {
  session *s = user;
  char repeat[4096];
  for (int i = 0; i < s->num_backends; i++) {
    if (!s->backends[i].ctx) continue;
    repeat_line(s->o, &s->backends[i], call, repeat, sizeof repeat);
    conform_run run = {.ctx = s->backends[i].ctx,
                       .backend = s->backends[i].name,
                       .repeat = repeat,
                       .times = s->o->repeat,
                       .out = stdout};
    conform_outcome outcome = conform_judge(&run, call);
    if (outcome == CONFORM_UNSUPPORTED && s->o->complete) {
      printf("FAIL %s %s: %s\n  status: unsupported: %s\n  repeat: %s\n", run.backend, call->variant, call->on->line,
             run.reason, repeat);
      outcome = CONFORM_FAIL;
    }
    conform_tally_add(&s->tallies[i], call, outcome, run.reason);
    if (outcome == CONFORM_FAIL && ++s->failures == MOST_FAILURES) {
      printf("stopped after %d failures\n", MOST_FAILURES);
      return 1;
    }
  }
  return 0;
}

/* 0 = go on. */
static int run_line(session *s, const char *line) {
  conform_case k;
  char why[CASE_MESSAGE_BYTES] = "";
  if (conform_case_make(s->ref, line, &k, why)) {
    printf("FAIL %s: %s\n", line, why);
    s->failures++;
    return 0;
  }
  const int stop = conform_each_call(s->ref, &k, s->ops, on_every_backend, s, why);
  if (stop < 0) printf("FAIL %s: %s\n", line, why);
  if (stop < 0) s->failures++;
  conform_case_free(&k);
  return stop > 0;
}

/* Prints the table; the exit status. */
static int verdict(const session *s, int lines) {
  int64_t compared = 0, failed = 0;
  bool idle = false;
  conform_tally_head();
  for (int i = 0; i < s->num_backends; i++) conform_tally_print(&s->tallies[i], s->backends[i].name);
  for (int i = 0; i < s->num_backends; i++) {
    const conform_tally *t = &s->tallies[i];
    const int64_t here = conform_tally_total(t, CONFORM_PASS) + conform_tally_total(t, CONFORM_FAIL);
    conform_tally_reasons(t, s->backends[i].name);
    if (!s->backends[i].ctx) printf("%s: SKIP: %s\n", s->backends[i].name, s->backends[i].reason);
    if (s->backends[i].ctx && !here) printf("%s: FAIL: no call was compared\n", s->backends[i].name);
    idle = idle || (s->backends[i].ctx && !here);
    compared += here;
    failed += conform_tally_total(t, CONFORM_FAIL);
  }
  if (!compared) printf("FAIL: nothing was compared\n");
  const bool good = !s->failures && !failed && compared && !idle;
  printf("conform: %d lines, %lld calls compared, %lld failed: %s\n", lines, (long long)compared, (long long)failed,
         good ? "PASS" : "FAIL");
  return good ? 0 : 1;
}

static int run(const options *o, const conform_lines *lines, const conform_backend *extra, int num_extra) {
  session s = {.o = o, .ops = ops_by_name(o->op)};
  char why[M3IDX_MESSAGE_BYTES];
  if (!s.ops) return usage("no such operation");
  if (m3idx_open(&s.ref, &(m3idx_options){.backend = "ref", .num_threads = 1}, why, sizeof why) != M3IDX_OK) {
    fprintf(stderr, "conform: ref: %s\n", why);
    return 2;
  }
  s.num_backends = conform_open_all(o->backend, o->threads, extra, num_extra, &s.backends);
  s.tallies = conform_alloc((size_t)s.num_backends * sizeof *s.tallies);
  for (int i = 0; i < s.num_backends; i++) {
    s.tallies[i] = (conform_tally){0};
    if (s.backends[i].ctx) printf("%s: %s\n", s.backends[i].name, m3idx_backend_details(s.backends[i].ctx));
  }
  int done = 0;
  while (done < lines->count && !run_line(&s, lines->line[done])) done++;
  const int status = verdict(&s, done);
  conform_close_all(s.backends, s.num_backends);
  m3idx_close(s.ref);
  free(s.tallies);
  return status;
}

int conform_main(int argc, const char *const *argv, const conform_backend *extra, int num_extra) {
  options o;
  conform_lines lines = {0};
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  if (!parse(argc, argv, &o)) return usage("bad option");
  int status = lines_of(&o, &lines);
  if (!status && o.list)
    for (int i = 0; i < lines.count; i++) printf("%s\n", lines.line[i]);
  conform_memory_watch();
  if (!status && !o.list) status = run(&o, &lines, extra, num_extra);
  conform_lines_free(&lines);
  return status;
}
