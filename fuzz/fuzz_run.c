/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions over the conformance harness.  No second harness: calls, memory, verdicts and explanations are its own.
 */
#define _POSIX_C_SOURCE 200809L
#include "fuzz_run.h"

#include <stdlib.h>
#include <string.h>

#include "casefail.h"

/* ---- backends ---- */

/* Moves what was opened into the session; contexts that cannot work go, unless `all` were asked for and some do. */
static int take_all(fuzz_session *s, conform_opened *opened, int count, const char *name, bool some, bool *unusable,
                    char *why) {
  int taken = 0, failed = 0;
  for (int i = 0; i < count; i++) {
    if (opened[i].ctx && s->count < FUZZ_MOST_BACKENDS) {
      s->backend[s->count++] = opened[i];
      taken++;
    } else if (opened[i].ctx) {
      m3idx_close(opened[i].ctx);
    } else if (!failed++) {
      case_fail(why, "%s: %.400s", opened[i].name, opened[i].reason);
    }
  }
  free(opened);
  *unusable = true;
  if (!count) {
    *unusable = false;
    return case_fail(why, "backend %s: this program has no such backend", name);
  }
  return taken && (some || !failed) ? 0 : -1;
}

/* cpu as it opens by itself, under $M3IDX_ISA where that is set. */
static int open_default(fuzz_session *s, const fuzz_setup *setup, bool *unusable, char *why) {
  conform_opened *one = conform_alloc(sizeof *one);
  const m3idx_options options = {.backend = "cpu", .num_threads = setup->threads};
  const char *isa = getenv("M3IDX_ISA");
  memset(one, 0, sizeof *one);
  snprintf(one->name, sizeof one->name, "cpu%s%.32s", isa && *isa ? ":" : "", isa && *isa ? isa : "");
  m3idx_open(&one->ctx, &options, one->reason, sizeof one->reason);
  return take_all(s, one, 1, "cpu", false, unusable, why);
}

static int open_named(fuzz_session *s, const fuzz_setup *setup, const char *name, bool some, bool *unusable,
                      char *why) {
  conform_opened *opened;
  const int count = conform_open_all(name, setup->threads, setup->extra, setup->num_extra, &opened);
  return take_all(s, opened, count, name, some, unusable, why);
}

/* The next name of a list with commas into out[64]; false at the end. */
static bool next_name(const char **list, char *out) {
  const size_t n = strcspn(*list, ",");
  if (!**list) return false;
  snprintf(out, 64, "%.*s", (int)(n < 63 ? n : 63), *list);
  *list += n + ((*list)[n] == ',');
  return true;
}

/* cpu once for each instruction set that was asked for. */
static int open_isas(fuzz_session *s, const fuzz_setup *setup, bool *unusable, char *why) {
  char isa[64], name[80];
  const char *rest = setup->isa;
  int bad = 0;
  unsetenv("M3IDX_ISA"); /* it would leave one set only */
  if (!strcmp(rest, "all")) return open_named(s, setup, "cpu", true, unusable, why);
  while (!bad && next_name(&rest, isa)) {
    snprintf(name, sizeof name, "cpu:%s", isa);
    bad = open_named(s, setup, name, false, unusable, why);
  }
  return bad;
}

int fuzz_open(const fuzz_setup *setup, fuzz_session *out, bool *unusable, char *why) {
  char name[64];
  const char *rest = setup->backends;
  int bad = 0;
  *out = (fuzz_session){.program = setup->program};
  *unusable = false;
  while (!bad && next_name(&rest, name)) {
    if (strcmp(name, "cpu") != 0)
      bad = open_named(out, setup, name, false, unusable, why);
    else
      bad = (setup->isa ? open_isas : open_default)(out, setup, unusable, why);
  }
  if (!bad && out->count < 2) {
    *unusable = false;
    bad = case_fail(why, "--backends %.80s: %d to compare, at least 2 are needed", setup->backends, out->count);
  }
  for (int op = 0; op < M3IDX_OP_COUNT && !bad; op++)
    for (int i = 1; i < out->count; i++)
      if (!conform_shares_ref(out->backend[i].ctx->backend, (m3idx_op)op)) out->ops |= 1u << op;
  if (bad) fuzz_close(out);
  return bad;
}

void fuzz_close(fuzz_session *session) {
  for (int i = 0; i < session->count; i++) m3idx_close(session->backend[i].ctx);
  *session = (fuzz_session){0};
}

/* ---- cases ---- */

typedef struct run {
  const fuzz_session *session;
  FILE *out;
  fuzz_outcome *outcome;
} run;

static void note(fuzz_note *to, const char *backend, const char *call) {
  snprintf(to->backend, sizeof to->backend, "%.60s", backend);
  snprintf(to->call, sizeof to->call, "%.60s", call);
}

static void failed(run *r, const char *backend, const char *call) {
  if (!r->outcome->failed) note(&r->outcome->at, backend, call);
  r->outcome->failed = true;
}

static int on_every_backend(conform_call *call, void *user) {
  run *r = user;
  char repeat[FUZZ_REPEAT_BYTES];
  for (int i = 1; i < r->session->count; i++) {
    const conform_opened *one = &r->session->backend[i];
    snprintf(repeat, sizeof repeat, "%s --backends %s,%s --case '%s'", r->session->program, r->session->backend[0].name,
             one->name, call->on->line);
    conform_run judged = {.ctx = one->ctx, .backend = one->name, .repeat = repeat, .times = 1, .out = r->out};
    if (r->session->note) note(r->session->note, one->name, call->variant);
    if (r->session->pulse) atomic_fetch_add(r->session->pulse, 1);
    const conform_outcome outcome = conform_judge(&judged, call);
    r->outcome->calls[i][outcome]++;
    if (outcome == CONFORM_FAIL) failed(r, one->name, call->variant);
  }
  return 0;
}

/* The truth refused: so must the others, with the same status. */
static void judge_refusal(run *r, const case_file *file, const char *line) {
  char why[CASE_MESSAGE_BYTES] = "";
  m3idx_status want = M3IDX_OK;
  for (int i = 0; i < r->session->count; i++) {
    const conform_opened *one = &r->session->backend[i];
    /* case_run() changes the file only where it succeeds, which is then a failure anyway. */
    const m3idx_status got = case_run(one->ctx, (case_file *)(uintptr_t)file, true, why);
    if (i == 0) want = got;
    r->outcome->calls[i][i && got != want ? CONFORM_FAIL : CONFORM_PASS] += i > 0;
    if (got == want) continue;
    failed(r, one->name, "refusal");
    if (r->out)
      fprintf(r->out, "FAIL %s (refusal): %s\n  status: want %s got %s: %s\n", one->name, line, m3idx_status_name(want),
              m3idx_status_name(got), why);
  }
}

int fuzz_run_file(const fuzz_session *session, const case_file *file, const char *line, FILE *out,
                  fuzz_outcome *outcome, char *why) {
  run r = {session, out, outcome};
  conform_case k;
  m3idx_case view;
  case_spec spec = {0};
  char ignored[CASE_MESSAGE_BYTES];
  const char *made_by = case_metadata(file, "case_line");
  *outcome = (fuzz_outcome){0};
  if (case_view(file, &view, why)) return -1;
  if (session->note) note(session->note, "", "");
  uint64_t seed = 0;
  if (made_by && !case_spec_parse_line(made_by, &spec, ignored)) seed = spec.seed;
  case_spec_free(&spec);
  if (conform_case_from(session->backend[0].ctx, file, line, seed, &k, why)) {
    judge_refusal(&r, file, line);
    return 0;
  }
  const int stop = conform_each_call(session->backend[0].ctx, &k, session->ops, on_every_backend, &r, why);
  conform_case_free(&k);
  return stop;
}

int fuzz_run_line(const fuzz_session *session, const char *line, FILE *out, fuzz_outcome *outcome, char *why) {
  case_spec spec;
  case_file file = {0};
  *outcome = (fuzz_outcome){0};
  int bad = case_spec_parse_line(line, &spec, why);
  if (!bad) bad = case_generate(&spec, &file, why) || fuzz_run_file(session, &file, line, out, outcome, why);
  case_spec_free(&spec);
  case_file_free(&file);
  return bad ? -1 : 0;
}
