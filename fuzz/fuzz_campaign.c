/* SPDX-License-Identifier: Apache-2.0
 *
 * The campaign's two processes.  The child opens the backends and runs line after line; what it finds lies in shared
 * memory.  The parent watches: a child that dies, or stays with one case too long, has found something too, and a new
 * one goes on with the next line.
 */
#define _POSIX_C_SOURCE 200809L
#include "fuzz_campaign.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "casefail.h"
#include "fuzz_fix.h"

typedef struct shared {
  fuzz_found found;  /* first: fuzz_found_free() is given this address */
  atomic_uint beats; /* grows with every case */
  atomic_uint pulse; /* and this with every call */
  uint64_t index;    /* the line that is being run */
  fuzz_line line;
  fuzz_note note;
  double began;
  bool opened, unusable;
  char why[CASE_MESSAGE_BYTES];
} shared;

int fuzz_contract_number(const m3idx_contract *c) {
  return (int)c->tie | (int)c->nan << 1 | (int)c->zero << 3 | (int)c->order << 4;
}

m3idx_contract fuzz_contract_of(int n) {
  return (m3idx_contract){(m3idx_tie)(n & 1), (m3idx_nan)(n >> 1 & 3), (m3idx_zero)(n >> 3 & 1),
                          (m3idx_order)(n >> 4 & 1)};
}

void fuzz_found_free(fuzz_found *found) { fuzz_shared_free(found, sizeof(shared)); }

/* ---- the child ---- */

static double cpu_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void fuzz_count(fuzz_tally *t, const case_spec *spec, const fuzz_line *line, const fuzz_outcome *outcome) {
  t->cases++;
  t->op[spec->op]++;
  t->size[line->size]++;
  t->data[spec->data]++;
  t->contract[fuzz_contract_number(&spec->contract)]++;
  if (spec->op != CASE_SELECT) {
    t->q[spec->q_dtype]++;
    t->k[spec->k_dtype]++;
    t->table[spec->table]++;
  }
  for (int e = 0; e < FUZZ_EDGES; e++) t->edge[e] += line->edges >> e & 1;
  for (int i = 0; i < FUZZ_MOST_BACKENDS; i++)
    for (int o = 0; o < CONFORM_OUTCOMES; o++) t->calls[i][o] += outcome->calls[i][o];
}

static fuzz_failure *new_failure(shared *s, fuzz_kind kind) {
  if (s->found.num_failures == FUZZ_MOST_FAILURES) return NULL;
  fuzz_failure *f = &s->found.failure[s->found.num_failures++];
  memset(f, 0, sizeof *f);
  f->index = s->index;
  f->kind = kind;
  f->at = fuzz_now() - s->began;
  snprintf(f->line, sizeof f->line, "%s", s->line.text);
  return f;
}

static void tell(const fuzz_failure *f) {
  printf("case %llu: %s%s%s\n%s", (unsigned long long)f->index, fuzz_kind_name(f->kind), *f->on.backend ? " on " : "",
         f->on.backend, f->text);
  fflush(stdout);
}

/* Says again, to a string, what is wrong with a case that was run in silence. */
static void explain(const fuzz_session *session, const case_file *file, fuzz_failure *f) {
  char *text = NULL, why[CASE_MESSAGE_BYTES];
  size_t bytes = 0;
  fuzz_outcome outcome = {0};
  FILE *out = open_memstream(&text, &bytes);
  if (!out) return;
  fuzz_run_file(session, file, f->line, out, &outcome, why);
  fclose(out);
  snprintf(f->text, sizeof f->text, "%s", text);
  free(text);
}

static void run_one(shared *s, const fuzz_session *session) {
  case_spec spec;
  case_file file = {0};
  fuzz_outcome outcome = {0};
  char why[CASE_MESSAGE_BYTES];
  int bad = case_spec_parse_line(s->line.text, &spec, why);
  if (!bad) bad = case_generate(&spec, &file, why) || fuzz_run_file(session, &file, s->line.text, NULL, &outcome, why);
  if (!bad) fuzz_count(&s->found.tally, &spec, &s->line, &outcome);
  fuzz_failure *f = bad || outcome.failed ? new_failure(s, bad ? FUZZ_SENSELESS : FUZZ_DIFFERENT) : NULL;
  if (f && bad) snprintf(f->text, sizeof f->text, "FAIL %s\n  %s\n", s->line.text, why);
  if (f && !bad) {
    f->on = outcome.at;
    explain(session, &file, f);
  }
  if (f) tell(f);
  case_spec_free(&spec);
  case_file_free(&file);
}

static void child(const fuzz_plan *plan, const fuzz_edges *edges, shared *s, uint64_t index, pid_t parent) {
  fuzz_session session;
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  if (fuzz_open(&plan->setup, &session, &s->unusable, s->why)) exit(0);
  s->found.num_backends = session.count;
  for (int i = 0; i < session.count; i++) {
    snprintf(s->found.backend[i], sizeof s->found.backend[i], "%s", session.backend[i].name);
    snprintf(s->found.details[i], sizeof s->found.details[i], "%s", m3idx_backend_details(session.backend[i].ctx));
  }
  session.note = &s->note;
  session.pulse = &s->pulse;
  if (!s->opened) s->began = fuzz_now();
  s->opened = true;
  conform_memory_watch();
  double spent = cpu_now();
  for (; !plan->cases || index < plan->cases; index += (uint64_t)plan->shards) {
    if (s->found.num_failures >= plan->most_failures) break;
    if (plan->seconds > 0 && fuzz_now() - s->began > plan->seconds) break;
    if (getppid() != parent) break; /* nobody waits for this one any more */
    s->index = index;
    fuzz_draw(edges, plan->seed, index, plan->ops, &s->line);
    if (plan->fix && !fuzz_fix_line(&s->line, plan->fix))
      s->found.tally.passed_over++;
    else
      run_one(s, &session);
    atomic_fetch_add(&s->beats, 1);
    const double now = cpu_now();
    s->found.cpu_seconds += now - spent;
    spent = now;
  }
  fuzz_close(&session);
  exit(0);
}

/* ---- the parent ---- */

static void show_progress(const fuzz_plan *plan, const shared *s) {
  static const char wheel[] = "|/-\\";
  const double passed = fuzz_now() - s->began;
  const unsigned beats = atomic_load(&s->beats);
  if (plan->quiet || !isatty(STDERR_FILENO)) return;
  fprintf(stderr, "\r%c fuzz %u cases, %.0f s, %.0f a second, %d failures ", wheel[beats & 3], beats, passed,
          passed > 0 ? beats / passed : 0, s->found.num_failures);
}

/* Until the child ends by itself or must be ended; what became of it. */
static fuzz_kind watch(const fuzz_plan *plan, shared *s, pid_t pid) {
  unsigned last = atomic_load(&s->pulse) + atomic_load(&s->beats);
  double since = fuzz_now();
  int status = 0;
  for (double next = since; waitpid(pid, &status, WNOHANG) != pid;) {
    static const struct timespec nap = {.tv_nsec = 20000000};
    const unsigned now = atomic_load(&s->pulse) + atomic_load(&s->beats);
    if (now != last) since = fuzz_now();
    last = now;
    if (fuzz_interrupted()) {
      fuzz_wait(pid, 0, &status);
      return FUZZ_PASSED;
    }
    if (fuzz_now() > since + plan->hang_seconds) {
      fuzz_wait(pid, 0, &status);
      return FUZZ_HANG;
    }
    if (fuzz_now() >= next) {
      next += 1;
      if (s->opened) show_progress(plan, s);
    }
    nanosleep(&nap, NULL);
  }
  return fuzz_interrupted() || (WIFEXITED(status) && WEXITSTATUS(status) == 0) ? FUZZ_PASSED : FUZZ_CRASH;
}

static int run_children(const fuzz_plan *plan, const fuzz_edges *edges, shared *s) {
  const pid_t self = getpid();
  uint64_t index = (uint64_t)plan->shard;
  while (s->found.num_failures < plan->most_failures) {
    fflush(NULL);
    const pid_t pid = fork();
    if (pid < 0) return case_fail(s->why, "cannot start a process");
    if (pid == 0) child(plan, edges, s, index, self);
    const fuzz_kind kind = watch(plan, s, pid);
    if (!s->opened) return kind == FUZZ_PASSED ? -1 : case_fail(s->why, "a backend ended the process as it opened");
    if (kind == FUZZ_PASSED) return 0;
    fuzz_failure *f = new_failure(s, kind);
    if (f) {
      f->on = s->note;
      snprintf(f->text, sizeof f->text, "FAIL %s\n", s->line.text);
      tell(f);
    }
    s->found.tally.cases++;
    index = s->index + (uint64_t)plan->shards;
  }
  return 0;
}

int fuzz_campaign(const fuzz_plan *plan, fuzz_found **out, bool *unusable, char *why) {
  shared *s = fuzz_shared_alloc(sizeof *s);
  fuzz_edges edges;
  *out = NULL;
  *unusable = true;
  if (!s) return case_fail(why, "no memory that processes share");
  fuzz_edges_find(&edges);
  edges.light = plan->light;
  atomic_init(&s->beats, 0);
  atomic_init(&s->pulse, 0);
  s->began = fuzz_now();
  fuzz_interrupts(true); /* one ends the campaign, not the report */
  const int bad = run_children(plan, &edges, s);
  fuzz_interrupts(false);
  if (!plan->quiet && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
  if (bad) {
    memcpy(why, s->why, CASE_MESSAGE_BYTES);
    *unusable = s->unusable;
    fuzz_shared_free(s, sizeof *s);
    return -1;
  }
  s->found.seconds = fuzz_now() - s->began;
  *out = &s->found;
  return 0;
}
