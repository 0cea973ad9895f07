/* SPDX-License-Identifier: Apache-2.0
 *
 * A campaign: lines of one shard, run by a child process, so that a backend that crashes or hangs is a finding like any
 * other and the campaign goes on behind it.
 */
#ifndef M3IDX_FUZZ_CAMPAIGN_H
#define M3IDX_FUZZ_CAMPAIGN_H

#include "fuzz_draw.h"
#include "fuzz_run.h"

typedef struct fuzz_plan {
  fuzz_setup setup;
  uint64_t seed;
  int64_t shard, shards; /* the lines whose index is `shard` modulo `shards` */
  unsigned ops;          /* bit case_op */
  const char *fix;       /* options of every line (fuzz_fix.h), or NULL */
  double seconds;        /* 0 = until the cases are done */
  uint64_t cases;        /* lines below this index; 0 = no end */
  int most_failures;     /* stop there */
  double hang_seconds;   /* a call that takes longer hangs */
  bool quiet;            /* no progress line */
  bool light;            /* another stream: lines are smaller (fuzz_draw.h) */
} fuzz_plan;

typedef enum fuzz_kind {
  FUZZ_PASSED,
  FUZZ_DIFFERENT, /* bytes, a status, or a guard */
  FUZZ_CRASH,     /* a signal, or a touched input */
  FUZZ_HANG,
  FUZZ_SENSELESS, /* the grammar made a line that is none: a fault of the fuzzer */
  FUZZ_KINDS
} fuzz_kind;
const char *fuzz_kind_name(fuzz_kind kind);

enum { FUZZ_MOST_FAILURES = 100, FUZZ_TEXT_BYTES = 8192, FUZZ_CONTRACTS = 32 };

typedef struct fuzz_failure {
  uint64_t index;
  fuzz_kind kind;
  double at; /* seconds since the campaign began */
  fuzz_note on;
  char line[FUZZ_LINE_BYTES];
  char text[FUZZ_TEXT_BYTES]; /* what the harness said, perhaps cut */
} fuzz_failure;

/* What was run. */
typedef struct fuzz_tally {
  int64_t passed_over; /* lines that the fixed options left no sense */
  int64_t cases, op[3], size[FUZZ_SIZES], q[M3IDX_DTYPE_COUNT], k[M3IDX_DTYPE_COUNT], data[CASE_DATA_KINDS];
  int64_t table[CASE_PREFIX + 1], contract[FUZZ_CONTRACTS], edge[FUZZ_EDGES];
  int64_t calls[FUZZ_MOST_BACKENDS][CONFORM_OUTCOMES];
} fuzz_tally;
/* Number of a contract below FUZZ_CONTRACTS, and back. */
int fuzz_contract_number(const m3idx_contract *contract);
m3idx_contract fuzz_contract_of(int number);

typedef struct fuzz_found {
  int num_backends;
  char backend[FUZZ_MOST_BACKENDS][64], details[FUZZ_MOST_BACKENDS][M3IDX_MESSAGE_BYTES];
  fuzz_tally tally;
  int num_failures;
  fuzz_failure failure[FUZZ_MOST_FAILURES];
  double seconds, cpu_seconds; /* by the clock, and of processor */
} fuzz_found;

void fuzz_count(fuzz_tally *t, const case_spec *spec, const fuzz_line *line, const fuzz_outcome *outcome);

/* 0, or -1 and why: then nothing ran, and *unusable says whether a backend cannot work here or the names are wrong.
 * Failures are printed as they are found.  *out is shared memory: fuzz_found_free(). */
int fuzz_campaign(const fuzz_plan *plan, fuzz_found **out, bool *unusable, char *why);
void fuzz_found_free(fuzz_found *found);

/* ---- single cases in a child process of their own (fuzz_trial.c) ---- */

/* From on to off, an interrupt is kept for who asks, and does not end the process. */
void fuzz_interrupts(bool on);
bool fuzz_interrupted(void);
double fuzz_now(void); /* seconds of a clock that never jumps */
/* Memory that child processes share; NULL = none. */
void *fuzz_shared_alloc(size_t bytes);
void fuzz_shared_free(void *memory, size_t bytes);
/* Wait for a child until `deadline` (fuzz_now()), then kill it: its status as waitpid() has it; false = killed. */
bool fuzz_wait(long child, double deadline, int *status);
/* What comes of a case on backends; nothing is printed.  `user` is a fuzz_trial_on. */
typedef struct fuzz_trial_on {
  fuzz_setup setup;
  double hang_seconds;
} fuzz_trial_on;
fuzz_kind fuzz_trial(void *user, const case_spec *spec);

#endif
