/* SPDX-License-Identifier: Apache-2.0
 *
 * What the test_public_bugs_*.c share.  Each of their tests is an input that broke some other implementation of
 * this kind of kernel, has the name of that input, and runs on every backend of this build that opens here.
 * Expected values stand in the tests, derived by hand from SEMANTICS, or come from the oracle.
 */
#ifndef M3IDX_PUBLIC_BUGS_H
#define M3IDX_PUBLIC_BUGS_H

#include <stdbool.h>
#include <stdint.h>

#include "m3idx.h"
#include "unit.h"

enum { BUG_POISON = 0x5a5a5a5a };

typedef struct bug {
  const char *id;
  const TTest *test; /* a loop test over backends: bug_open(_i) */
} bug;

/* Run every bug on every backend; prints what cannot run and why.  An exit status. */
int bug_main(const char *suite, const bug *bugs, size_t num_bugs);

/* A context of backend i of those that open; the caller closes it. */
m3idx_context *bug_open(int i);
/* Did the call succeed?  An UNSUPPORTED answer is printed and counted (from "ref" it is a failure); any other
 * fails the test. */
bool bug_ok(m3idx_context *ctx, m3idx_status status);

/* A row of n poisoned ints, plus one past the end that must stay. */
int32_t *bug_poisoned(int64_t n);
void bug_expect(const int32_t *want, const int32_t *got, int64_t n, const char *what);

/* Scores of one row; N of its `columns` are visible. */
typedef struct bug_row {
  const float *score;
  int64_t columns, blocks, init_blocks, local_blocks, topk;
  const char *contract; /* NULL = vllm */
} bug_row;
/* The ids the row selects, in an array the caller frees; NULL = UNSUPPORTED. */
int32_t *bug_select(m3idx_context *ctx, const bug_row *row);
/* Select and compare with the oracle, and with `want` where it is not NULL. */
void bug_select_expect(m3idx_context *ctx, const bug_row *row, const int32_t *want);

/* Decode scores of one query row against `blocks` blocks of 16 tokens; all tokens of block b are keys[b]. */
typedef struct bug_dots {
  m3idx_dtype q_dtype, k_dtype;
  const void *q;    /* [dim] */
  const void *keys; /* [blocks][dim] */
  int64_t dim, blocks;
} bug_dots;
void bug_score_expect(m3idx_context *ctx, const bug_dots *dots, const uint32_t *want_bits);

uint32_t bug_bits(float x);
/* Doubles of a fixed sequence in [0, 1). */
double bug_random(uint64_t *state);

#endif
