/* SPDX-License-Identifier: Apache-2.0
 *
 * One case on several backends, by the conformance harness (tests/conform): every call that a case is judged by is
 * made on each, with poison and guards, and compared byte for byte with what the first one says.  A case that the first
 * one refuses must be refused by all with the same status.
 */
#ifndef M3IDX_FUZZ_RUN_H
#define M3IDX_FUZZ_RUN_H

#include <stdatomic.h>

#include "case.h"
#include "conform.h"
#include "conform_backends.h"
#include "conform_judge.h"

enum { FUZZ_MOST_BACKENDS = 16, FUZZ_REPEAT_BYTES = 8192 };

/* How a session is opened; kept for child processes, which open their own. */
typedef struct fuzz_setup {
  const char *program;  /* what a person types to repeat a run */
  const char *backends; /* names with commas, as --backend of conform has them; the first is the truth */
  const char *isa;      /* NULL = the one that cpu takes by itself; "all", or names with commas */
  int threads;          /* of the backends that are compared; 0 = OpenMP's default */
  const conform_backend *extra;
  int num_extra;
} fuzz_setup;

/* Where a run says what it is about to do, for whoever looks at it after a crash. */
typedef struct fuzz_note {
  char backend[64], call[64];
} fuzz_note;

typedef struct fuzz_session {
  const char *program;
  fuzz_note *note;    /* or NULL */
  atomic_uint *pulse; /* or NULL: grows with every call, for who watches */
  int count;          /* at least 2 */
  conform_opened backend[FUZZ_MOST_BACKENDS];
  unsigned ops; /* bit m3idx_op: some backend has a function of its own for it */
} fuzz_session;

/* 0, or -1 and why[CASE_MESSAGE_BYTES]; *unusable says whether a backend cannot work here, or the names are wrong. */
int fuzz_open(const fuzz_setup *setup, fuzz_session *out, bool *unusable, char *why);
void fuzz_close(fuzz_session *session);

typedef struct fuzz_outcome {
  int64_t calls[FUZZ_MOST_BACKENDS][CONFORM_OUTCOMES];
  bool failed;
  fuzz_note at; /* the first failure */
} fuzz_outcome;

/* Judge a case; failures are explained to `out` unless it is NULL.  `line` names the case.  0, or -1 and why when the
 * case has no sense (a case file that is malformed). */
int fuzz_run_file(const fuzz_session *session, const case_file *file, const char *line, FILE *out,
                  fuzz_outcome *outcome, char *why);
/* The same from a case line. */
int fuzz_run_line(const fuzz_session *session, const char *line, FILE *out, fuzz_outcome *outcome, char *why);

#endif
