/* SPDX-License-Identifier: Apache-2.0
 *
 * oracle_random: random small cases of every operation (S2 to S6) through the public API, each output byte
 * compared with the oracle's.  Case i of a seed is the same on every host of one byte order, so one printed line
 * repeats a failure; so is the digest of all outputs that it prints. It does not look at bad input (S7) or launch
 * policies (S8).
 *
 *   oracle_random [--backend ref|all|...] [--cases 1000] [--seed 1] [--first 0] [--op all] [--threads 0] [--complete]
 *
 * An UNSUPPORTED answer is counted; from ref, or with --complete, it is a failure.  Exit 0: all compared cases agree
 * and there was at least one for every operation asked for; 1: a difference; 2: bad usage or no such backend here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle_random.h"
#include "versus.h"

static const struct {
  const char *name;
  verdict (*run)(trial *t);
} ops[] = {
    {"score", random_score}, {"topk", random_topk_fused},           {"select", random_select},
    {"parts", random_parts}, {"sparse_table", random_sparse_table}, {"cache_insert", random_cache_insert},
};
enum { OPS = sizeof ops / sizeof *ops };

typedef struct options {
  const char *backend, *op;
  long long cases, first;
  unsigned long long seed;
  int threads;
  bool complete;
} options;

static int usage(const char *what) {
  fprintf(stderr,
          "oracle_random: %s\nusage: oracle_random [--backend NAME] [--cases N] [--seed S] [--first I] [--op all",
          what);
  for (int i = 0; i < OPS; i++) fprintf(stderr, "|%s", ops[i].name);
  fprintf(stderr, "] [--threads N] [--complete]\n");
  return 2;
}

static bool parse(int argc, char **argv, options *o) {
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--complete")) {
      o->complete = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char *name = argv[i], *value = argv[++i];
    char *end = NULL;
    if (!strcmp(name, "--backend")) {
      o->backend = value;
      continue;
    }
    if (!strcmp(name, "--op")) {
      o->op = value;
      continue;
    }
    unsigned long long number = strtoull(value, &end, 0);
    if (!*value || *end || number > INT64_MAX) return false;
    if (!strcmp(name, "--cases"))
      o->cases = (long long)number;
    else if (!strcmp(name, "--first"))
      o->first = (long long)number;
    else if (!strcmp(name, "--seed"))
      o->seed = number;
    else if (!strcmp(name, "--threads"))
      o->threads = (int)number;
    else
      return false;
  }
  return true;
}

/* Case `index` draws from its own stream. */
static trial begin(m3idx_context *ctx, uint64_t digest, unsigned long long seed, long long index) {
  trial t = {.ctx = ctx, .digest = digest, .state = seed * UINT64_C(0x9e3779b97f4a7c15)};
  t.state = random_bits(&t) ^ (uint64_t)index;
  t.state = random_bits(&t);
  return t;
}

static int op_by_name(const char *name) {
  for (int i = 0; i < OPS; i++)
    if (!strcmp(name, ops[i].name)) return i;
  return -1; /* all */
}

static int run(m3idx_context *ctx, const char *backend, void *user) {
  const options *o = user;
  int only = op_by_name(o->op);
  bool complete = o->complete || !strcmp(backend, "ref");
  long long compared[OPS] = {0}, unsupported[OPS] = {0}, failed = 0;
  uint64_t digest = UINT64_C(0xcbf29ce484222325);
  for (long long i = o->first; i < o->first + o->cases; i++) {
    trial t = begin(ctx, digest, o->seed, i);
    int op = (int)random_below(&t, OPS);
    if (only >= 0) op = only;
    verdict v = ops[op].run(&t);
    if (v == VERDICT_UNSUPPORTED && complete) v = VERDICT_FAIL;
    if (v == VERDICT_UNSUPPORTED)
      unsupported[op]++;
    else
      compared[op]++;
    if (v == VERDICT_FAIL) {
      printf("FAIL oracle_random --backend %s --op %s --seed %llu --first %lld --cases 1: %s\n", backend, o->op,
             o->seed, i, t.why);
      failed++;
    }
    digest = t.digest;
    trial_free(&t);
    if (failed == 20) break;
  }

  bool missing = false;
  for (int i = 0; i < OPS; i++) {
    if (only >= 0 && i != only) continue;
    printf("%-13s %8lld compared %8lld unsupported\n", ops[i].name, compared[i], unsupported[i]);
    if (!compared[i] && (only >= 0 || o->cases > 1)) missing = true;
  }
  printf("outputs       %016llx\n", (unsigned long long)digest);
  if (missing) printf("FAIL oracle_random: an operation was never compared\n");
  return failed || missing;
}

int main(int argc, char **argv) {
  options o = {.backend = "ref", .op = "all", .cases = 1000, .seed = 1};
  if (!parse(argc, argv, &o)) return usage("bad option");
  if (op_by_name(o.op) < 0 && strcmp(o.op, "all") != 0) return usage("no such op");
  return versus_each(o.backend, o.threads, run, &o);
}
