/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx fuzz --exec: drawn cases for a program of somebody else's, its outputs judged byte for byte as m3idx verify
 * does, or by the arithmetic that it declares as m3idx judge does.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fuzz_fix.h"
#include "fuzz_program.h"
#include "verb_fuzz_jobs.h"
#include "verify.h"

typedef struct exec_run {
  const fuzz_settings *s;
  fuzz_program program;
  m3idx_context *truth;
  bool tell; /* whether differences are explained, on standard output */
  bool refused, unsupported;
  char why[FUZZ_TEXT_BYTES]; /* what is wrong, in a sentence */
} exec_run;

/* Whether the program is to leave this output. */
static bool is_wanted(const exec_run *e, const char *name) {
  const char *at = e->s->outputs;
  const size_t n = strlen(name);
  for (; at && *at; at += strcspn(at, ","), at += *at == ',')
    if (!strncmp(at, name, n) && (!at[n] || at[n] == ',')) return true;
  return !e->s->outputs;
}

/* ---- byte for byte ---- */

static bool same_tensor(const case_tensor *want, const case_tensor *got) {
  return got && got->dtype == want->dtype && got->rank == want->rank &&
         !memcmp(got->shape, want->shape, (size_t)want->rank * sizeof *want->shape) &&
         (!want->bytes || !memcmp(got->data, want->data, want->bytes));
}

/* The inputs of the case with outputs of theirs, so that m3idx verify explains them even where a program leaves nothing
 * else.  Shares all data; only .tensors is to be freed. */
static case_file grafted(const exec_run *e, const case_file *golden, const case_file *outputs, case_op op) {
  case_file file = {.num_metadata = golden->num_metadata, .metadata = golden->metadata};
  const char *name;
  file.tensors = malloc((size_t)(golden->num_tensors + 4) * sizeof *file.tensors);
  for (int64_t i = 0; i < golden->num_tensors && file.tensors; i++) {
    bool output = false;
    for (int o = 0; (name = tool_output_name(op, o)); o++) output = output || !strcmp(name, golden->tensors[i].name);
    if (!output) file.tensors[file.num_tensors++] = golden->tensors[i];
  }
  for (int o = 0; (name = tool_output_name(op, o)) && file.tensors; o++) {
    const case_tensor *t = is_wanted(e, name) ? case_find(outputs, name) : NULL;
    if (t) file.tensors[file.num_tensors++] = *t;
  }
  return file;
}

static fuzz_kind compare(exec_run *e, const case_file *golden, const case_file *theirs, case_op op) {
  static const char *const shown[] = {"ref's outputs", "the program's outputs"};
  const char *name;
  int outputs = 0, differ = 0;
  for (int o = 0; (name = tool_output_name(op, o)); o++) {
    const case_tensor *want = case_find(golden, name);
    if (!want || !is_wanted(e, name)) continue;
    outputs++;
    if (same_tensor(want, case_find(theirs, name))) continue;
    if (!differ++) snprintf(e->why, sizeof e->why, "%s differs, or is missing", name);
  }
  if (!outputs) {
    e->unsupported = true; /* --outputs names nothing that this op has */
    return FUZZ_PASSED;
  }
  if (differ && e->tell) {
    case_file pair[2] = {grafted(e, golden, golden, op), grafted(e, golden, theirs, op)};
    if (pair[0].tensors && pair[1].tensors) verify_files(e->s->verb, shown, pair, false);
    free(pair[0].tensors);
    free(pair[1].tensors);
  }
  return differ ? FUZZ_DIFFERENT : FUZZ_PASSED;
}

/* ---- by an arithmetic ---- */

static fuzz_kind judge(exec_run *e, const case_file *golden, const case_file *theirs) {
  char why[CASE_MESSAGE_BYTES];
  judge_report report;
  if (judge_run(&e->s->judge, golden, theirs, &report, why)) {
    snprintf(e->why, sizeof e->why, "cannot be judged: %s", why);
    return FUZZ_DIFFERENT;
  }
  const bool wrong = judge_wrong(&report);
  if (wrong) snprintf(e->why, sizeof e->why, "wrong by %s", judge_arith_name(e->s->judge.arith));
  if (wrong && e->tell) judge_text(&report, "golden", "the program's outputs", stdout);
  judge_free(&report);
  return wrong ? FUZZ_DIFFERENT : FUZZ_PASSED;
}

/* ---- one case ---- */

static fuzz_kind run_case(exec_run *e, case_file *file, case_op op) {
  char why[CASE_MESSAGE_BYTES];
  case_file theirs;
  fuzz_kind kind = FUZZ_PASSED;
  switch (fuzz_program_run(&e->program, file, &theirs, e->why, sizeof e->why)) {
  case FUZZ_END_UNSUPPORTED: e->unsupported = true; return FUZZ_PASSED;
  case FUZZ_END_FAILED: return FUZZ_CRASH;
  case FUZZ_END_HANG: return FUZZ_HANG;
  case FUZZ_END_OUTPUT: return FUZZ_DIFFERENT;
  case FUZZ_END_DONE: break;
  }
  if (case_run(e->truth, file, true, why) != M3IDX_OK)
    e->refused = true;
  else
    kind = e->s->judged ? judge(e, file, &theirs) : compare(e, file, &theirs, op);
  case_file_free(&theirs);
  return kind;
}

/* Whether the truth answers at all is asked first where it may not: programs get no case of bad contents (S7.1). */
static fuzz_kind trial(void *user, const case_spec *spec) {
  exec_run *e = user;
  char why[CASE_MESSAGE_BYTES];
  case_file file = {0};
  e->refused = e->unsupported = false;
  if (case_generate(spec, &file, why)) return FUZZ_SENSELESS;
  bool odd = false;
  for (int64_t i = 0; i < spec->num_puts; i++) odd = odd || spec->puts[i].tensor == CASE_PUT_BLOCK_TABLE;
  if (odd && case_run(e->truth, &file, false, why) != M3IDX_OK) {
    case_file_free(&file);
    e->refused = true;
    return FUZZ_PASSED;
  }
  if (odd) case_remove_tensor(&file, "topk_idx");
  if (odd) case_remove_tensor(&file, "sparse_block_table");
  if (odd) case_remove_tensor(&file, "sparse_context_lens");
  const fuzz_kind kind = run_case(e, &file, spec->op);
  case_file_free(&file);
  return kind;
}

/* ---- the campaign ---- */

static void one_line(exec_run *e, fuzz_found *found, const fuzz_line *line, uint64_t index, double began) {
  fuzz_outcome outcome = {0};
  case_spec spec;
  if (case_spec_parse_line(line->text, &spec, e->why)) {
    found->tally.passed_over++;
    return;
  }
  const fuzz_kind kind = trial(e, &spec);
  outcome.calls[1][kind != FUZZ_PASSED ? CONFORM_FAIL : e->unsupported ? CONFORM_UNSUPPORTED : CONFORM_PASS]++;
  if (e->refused)
    found->tally.passed_over++;
  else
    fuzz_count(&found->tally, &spec, line, &outcome);
  if (kind != FUZZ_PASSED) {
    fuzz_failure *f = &found->failure[found->num_failures++];
    *f = (fuzz_failure){.index = index, .kind = kind, .at = fuzz_now() - began};
    snprintf(f->on.backend, sizeof f->on.backend, "exec");
    snprintf(f->line, sizeof f->line, "%s", line->text);
    memcpy(f->text, e->why, sizeof f->text);
    progress_end();
    printf("case %llu: %s: %s\n  %s\n", (unsigned long long)index, fuzz_kind_name(kind), line->text, f->text);
    e->tell = true;
    if (kind == FUZZ_DIFFERENT) trial(e, &spec);
    e->tell = false;
    fflush(stdout);
    progress_begin("fuzzing", e->s->plan.quiet);
  }
  case_spec_free(&spec);
}

static void run_lines(exec_run *e, fuzz_found *found) {
  const fuzz_plan *p = &e->s->plan;
  const double began = fuzz_now();
  fuzz_edges edges;
  fuzz_line line;
  fuzz_edges_find(&edges);
  for (uint64_t i = (uint64_t)p->shard; !p->cases || i < p->cases; i += (uint64_t)p->shards) {
    if (found->num_failures == p->most_failures || fuzz_interrupted()) break;
    if (p->seconds > 0 && fuzz_now() - began > p->seconds) break;
    fuzz_draw(&edges, p->seed, i, p->ops, &line);
    if (p->fix && !fuzz_fix_line(&line, p->fix))
      found->tally.passed_over++;
    else
      one_line(e, found, &line, i, began);
  }
  found->seconds = fuzz_now() - began;
  found->cpu_seconds = (double)clock() / CLOCKS_PER_SEC; /* ours; the program's are its own */
}

static int campaign(exec_run *e) {
  fuzz_remains remains[FUZZ_MOST_FAILURES] = {{NULL, NULL}};
  fuzz_found *found = fuzz_shared_alloc(sizeof *found);
  if (!found) return tool_fail(e->s->verb, EXIT_BACKEND, "out of memory");
  found->num_backends = 2;
  snprintf(found->backend[0], sizeof found->backend[0], "%s", e->s->plan.setup.backends);
  snprintf(found->details[0], sizeof found->details[0], "%s", m3idx_backend_details(e->truth));
  snprintf(found->backend[1], sizeof found->backend[1], "exec");
  snprintf(found->details[1], sizeof found->details[1], "%s", e->s->exec);
  fuzz_interrupts(true);
  progress_begin("fuzzing", e->s->plan.quiet);
  run_lines(e, found);
  progress_end();
  for (int i = 0; i < found->num_failures; i++) fuzz_job_shrink(e->s, &found->failure[i], trial, e, &remains[i]);
  fuzz_interrupts(false);
  const int status = fuzz_job_finish(e->s, found, remains);
  fuzz_shared_free(found, sizeof *found);
  return status;
}

int fuzz_job_exec(const fuzz_settings *s) {
  char why[CASE_MESSAGE_BYTES];
  exec_run e = {.s = s};
  const m3idx_options options = {.backend = s->plan.setup.backends, .num_threads = s->plan.setup.threads};
  int count = 0, bad = poptParseArgvString(s->exec, &count, (const char ***)&e.program.words);
  char **words = e.program.words;
  if (bad) return tool_fail(s->verb, EXIT_USAGE, "--exec %s: %s", s->exec, poptStrerror(bad));
  m3idx_status opened = m3idx_open(&e.truth, &options, why, sizeof why);
  int status;
  if (opened) {
    status = tool_fail(s->verb, tool_exit_status(opened), "--backends %s: %s", s->plan.setup.backends, why);
  } else if (fuzz_program_open(words, count, s->serve, s->plan.hang_seconds, &e.program, why)) {
    status = tool_fail(s->verb, EXIT_USAGE, "%s", why);
  } else {
    status = campaign(&e);
    fuzz_program_close(&e.program);
  }
  m3idx_close(e.truth);
  free(words);
  return status;
}
