/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls that a case is judged by: every operation, staged, fused and in parts, dense and strided.
 */
#ifndef M3IDX_CONFORM_CALLS_H
#define M3IDX_CONFORM_CALLS_H

#include "conform_case.h"

typedef enum conform_kind {
  CONFORM_SCORE,
  CONFORM_IDS,
  CONFORM_KEYS,
  CONFORM_TABLE,
  CONFORM_CONTEXT,
  CONFORM_CACHE
} conform_kind;

/* An output: where its pointer goes, how it lies in memory (strides in elements, nested, the last one 1), and what
 * it must hold. */
typedef struct conform_output {
  const char *name;
  conform_kind kind;
  int64_t shape[3], stride[3];
  size_t element_bytes;
  const void *want; /* dense */
  void *at;         /* the argument: a pointer to a pointer */
} conform_output;

typedef struct conform_argument {
  const conform_input *input;
  void *at;
} conform_argument;

typedef struct conform_call {
  const conform_case *on;
  const char *variant;
  m3idx_op op;
  m3idx_batch batch;
  m3idx_sparse_out sparse;
  union {
#define M3IDX_OP(name, what) m3idx_##name##_args name;
#include "ops.def"
#undef M3IDX_OP
  } args;
  conform_argument inputs[12];
  int num_inputs;
  conform_output outputs[3];
  int num_outputs;
  m3idx_status status; /* what ref answers: M3IDX_OK or M3IDX_UNSUPPORTED */
  const char *weak;    /* why agreement would prove little, or NULL */
  const float *score;  /* [H][T][M] dense, what a selection chose from; NULL = not that kind of call */
} conform_call;

/* Makes every call of the case for these operations (bit m3idx_op) and hands each to judge(), until it returns other
 * than 0.  ref gives what is wanted of parts and insertions; when it refuses a call that it must not, -1 and why. */
int conform_each_call(m3idx_context *ref, const conform_case *k, unsigned ops,
                      int (*judge)(conform_call *call, void *user), void *user, char *why);

/* The call itself; its output pointers have been set. */
m3idx_status conform_invoke(m3idx_context *ctx, const conform_call *call);

#endif
