/* SPDX-License-Identifier: Apache-2.0
 *
 * One call on one backend: run, compared, explained.
 */
#ifndef M3IDX_CONFORM_JUDGE_H
#define M3IDX_CONFORM_JUDGE_H

#include <stdio.h>

#include "backend.h"
#include "conform_calls.h"

typedef enum conform_outcome {
  CONFORM_PASS,
  CONFORM_FAIL,
  CONFORM_UNSUPPORTED, /* the backend refused, with a reason, and wrote nothing */
  CONFORM_SKIP,        /* not run: the slot is ref's own function */
  CONFORM_WEAK,        /* agrees, which proves little */
  CONFORM_OUTCOMES
} conform_outcome;

typedef struct conform_run {
  m3idx_context *ctx;
  const char *backend;              /* as --backend takes it */
  const char *repeat;               /* the line that repeats the run */
  int times;                        /* >= 1: how often the call is made */
  FILE *out;                        /* where failures are printed; NULL = nowhere */
  char reason[M3IDX_MESSAGE_BYTES]; /* of UNSUPPORTED, SKIP and WEAK */
} conform_run;

/* A failure is printed to run->out as it is found. */
conform_outcome conform_judge(conform_run *run, conform_call *call);

/* The backend has the operation from ref, so that a comparison with ref would compare a function with itself. */
bool conform_shares_ref(const m3idx_backend *table, m3idx_op op);

/* ---- explanations (conform_explain.c) ---- */

/* An output's memory, guards on both sides. */
typedef struct conform_image {
  unsigned char *all;
  size_t bytes, all_bytes; /* without and with guards */
} conform_image;

/* Prints to `to` how two images of an output differ: how many elements, first and last, bits, values and ulps, the row
 * behind the first, and what the differences have in common. */
void conform_explain(FILE *to, const conform_call *call, const conform_output *out, const conform_image *want,
                     const conform_image *got);

#endif
