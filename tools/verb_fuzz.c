/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx fuzz: backends against each other on drawn cases (docs/FUZZING.md), and what one does with what it finds.
 */
#define _POSIX_C_SOURCE 200809L
#include "verb_fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "fuzz_fix.h"
#include "verb_fuzz_jobs.h"

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
  FIX,
  EXEC,
  SERVE,
  OUTPUTS,
  JUDGE,
  K_BLOCK,
  FLUSH,
  QUIET
};

/* ---- options ---- */

static int take_number(const fuzz_settings *s, const char *option, const char *text, double *out) {
  char *end;
  *out = strtod(text, &end);
  if (end != text && !*end && *out >= 0 && *out <= 1e9) return EXIT_OK;
  return tool_fail(s->verb, EXIT_USAGE, "--%s %s: must be a number of 0..1e9 seconds", option, text);
}

static int take_word(const fuzz_settings *s, const char *option, const char *text, uint64_t *out) {
  char *end = NULL;
  const unsigned long long value = strtoull(text, &end, 10);
  *out = value;
  if (*text >= '0' && *text <= '9' && !*end) return EXIT_OK;
  return tool_fail(s->verb, EXIT_USAGE, "--%s %s: must be a number of 0..18446744073709551615", option, text);
}

static int take_shard(fuzz_settings *s, const char *text) {
  char *end;
  const long shard = strtol(text, &end, 10);
  const long shards = *end == '/' ? strtol(end + 1, &end, 10) : 0;
  if (*end || *text < '0' || *text > '9' || shards < 1 || shards > 1000000 || shard >= shards)
    return tool_fail(s->verb, EXIT_USAGE, "--shard %s: must be I/N with 0 <= I < N <= 1000000", text);
  s->plan.shard = shard;
  s->plan.shards = shards;
  return EXIT_OK;
}

static int take_ops(fuzz_settings *s, const char *text) {
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
static char **place_of(fuzz_settings *s, int val) {
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
  case FIX: return &s->fix;
  case EXEC: return &s->exec;
  case OUTPUTS: return &s->outputs;
  default: return NULL;
  }
}

static int take_judge(fuzz_settings *s, const char *text) {
  s->judged = true;
  for (int i = 0; i < JUDGE_ARITHS; i++)
    if (!strcmp(text, judge_arith_name((judge_arith)i))) {
      s->judge.arith = (judge_arith)i;
      return EXIT_OK;
    }
  return tool_fail(s->verb, EXIT_USAGE, "--judge %s: must be exact, f32, bf16-mma or cdna3-mfma", text);
}

/* Names of outputs with commas. */
static int take_outputs(const fuzz_settings *s, const char *text) {
  const char *at = text, *name;
  while (*at) {
    const size_t n = strcspn(at, ",");
    int i = 0;
    while ((name = tool_output_name(CASE_DECODE, i)) && (strlen(name) != n || strncmp(name, at, n) != 0)) i++;
    if (!name) break;
    at += n + (at[n] == ',');
  }
  if (*text && !*at) return EXIT_OK;
  return tool_fail(s->verb, EXIT_USAGE,
                   "--outputs %s: must be of score, topk_idx, sparse_block_table and sparse_context_lens", text);
}

static int take_fix(const fuzz_settings *s, const char *text) {
  char why[CASE_MESSAGE_BYTES];
  return fuzz_fix_check(text, why) ? tool_fail(s->verb, EXIT_USAGE, "%s", why) : EXIT_OK;
}

static int take(fuzz_settings *s, int val, const char *text) {
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
  case FIX: return take_fix(s, text);
  case OUTPUTS: return take_outputs(s, text);
  case JUDGE: return take_judge(s, text);
  case K_BLOCK: return tool_integer(s->verb, "k-block", text, 1, 256, &s->judge.k_block);
  case FLUSH: s->judge.flush = true; break;
  case SERVE: s->serve = true; break;
  case MERGE: s->merge = true; break;
  case COMPLETE: s->complete = true; break;
  case QUIET: p->quiet = true; break;
  default: break;
  }
  return EXIT_OK;
}

static int dispatch(fuzz_settings *s, const char *const *rest) {
  s->plan.setup.backends = s->backends ? s->backends : s->exec ? "ref" : "ref,cpu";
  s->plan.fix = s->fix;
  if ((s->judged || s->judge.k_block || s->judge.flush || s->outputs || s->serve) && !s->exec)
    return tool_fail(s->verb, EXIT_USAGE, "--judge, --k-block, --flush, --outputs, --serve: need --exec");
  if ((s->judge.k_block || s->judge.flush) && !s->judged)
    return tool_fail(s->verb, EXIT_USAGE, "--k-block, --flush: need --judge");
  s->plan.setup.isa = s->isa;
  if (s->merge) return fuzz_job_merge(s, rest);
  if (rest && *rest) return tool_fail(s->verb, EXIT_USAGE, "%s: one argument too many (see --help)", *rest);
  if (s->keep) return fuzz_job_keep(s);
  if (s->one_case) return fuzz_job_case(s);
  if (!(s->plan.seconds > 0) && !s->plan.cases)
    return tool_fail(s->verb, EXIT_USAGE, "--seconds or --cases: how long?");
  return s->exec ? fuzz_job_exec(s) : fuzz_job_campaign(s);
}

int verb_fuzz_with(int argc, const char **argv, const struct conform_backend *extra, int num_extra, bool light) {
  fuzz_settings s = {.verb = argv[0], .shrink_seconds = 20};
  s.plan = (fuzz_plan){.shards = 1, .ops = FUZZ_OPS_ALL, .most_failures = 10, .hang_seconds = 60, .light = light};
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
      {"fix", 0, POPT_ARG_STRING, NULL, FIX, "options of case lines that every case is to have", "LINE"},
      {"report", 0, POPT_ARG_STRING, NULL, REPORT, "write a report as JSON", "FILE"},
      {"failures", 0, POPT_ARG_STRING, NULL, FAILURES, "stop after so many (default 10)", "N"},
      {"shrink", 0, POPT_ARG_STRING, NULL, SHRINK, "seconds to make each failure small (default 20); 0 = not at all",
       "S"},
      {"hang", 0, POPT_ARG_STRING, NULL, HANG, "a call, or a program on a case, that takes longer hangs (default 60)",
       "S"},
      {"save", 0, POPT_ARG_STRING, NULL, SAVE, "where case files of failures go (default .)", "DIR"},
      {"exec", 'x', POPT_ARG_STRING, NULL, EXEC,
       "judge this program instead: {in} is where it finds a case, {out} where it leaves the outputs; no shell",
       "PROGRAM"},
      {"serve", 0, POPT_ARG_NONE, NULL, SERVE,
       "with --exec: start the program once; it reads lines IN<tab>OUT and answers done or unsupported", NULL},
      {"outputs", 0, POPT_ARG_STRING, NULL, OUTPUTS, "with --exec: the tensors it leaves (default: all there are)",
       "LIST"},
      {"judge", 0, POPT_ARG_STRING, NULL, JUDGE,
       "with --exec: by m3idx judge and this arithmetic, exact, f32, bf16-mma or cdna3-mfma, not byte for byte",
       "NAME"},
      {"k-block", 0, POPT_ARG_STRING, NULL, K_BLOCK, "with --judge: products that its matrix unit adds at once", "N"},
      {"flush", 0, POPT_ARG_NONE, NULL, FLUSH, "with --judge: its unit reads or writes subnormals as zero", NULL},
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
  for (int val = BACKENDS; val < QUIET; val++)
    if (place_of(&s, val)) free(*place_of(&s, val));
  tool_end(&a);
  return a.status;
}

int verb_fuzz(int argc, const char **argv) { return verb_fuzz_with(argc, argv, NULL, 0, false); }
