/* SPDX-License-Identifier: Apache-2.0
 *
 * From a failing case to the smallest that still fails in the same way: greedy, pass after pass, until no pass changes
 * anything or the time is up.
 */
#ifndef M3IDX_FUZZ_SHRINK_H
#define M3IDX_FUZZ_SHRINK_H

#include "fuzz_campaign.h"

typedef struct fuzz_shrink_options {
  fuzz_kind (*trial)(void *user, const case_spec *spec); /* what comes of a case: fuzz_trial(), or a program */
  void *user;
  double seconds; /* of everything */
} fuzz_shrink_options;

typedef struct fuzz_shrunk {
  fuzz_kind kind; /* FUZZ_PASSED: the case does not fail by itself, and is given back as it was */
  case_spec spec; /* case_spec_free() */
  bool finished;  /* not cut short by the clock */
  int64_t trials;
} fuzz_shrunk;

/* 0, or -1 for no memory. */
int fuzz_shrink(const fuzz_shrink_options *options, const case_spec *spec, fuzz_shrunk *out);

#endif
