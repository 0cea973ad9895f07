/* SPDX-License-Identifier: Apache-2.0
 *
 * What came of all calls, by backend, operation and formats, with reasons.
 */
#ifndef M3IDX_CONFORM_TALLY_H
#define M3IDX_CONFORM_TALLY_H

#include "conform_judge.h"

typedef struct conform_reason {
  char text[200];
  int64_t count;
} conform_reason;

enum { CONFORM_MOST_REASONS = 12 };

/* Of one backend.  Operations that read no format of their own count under the queries' format too. */
typedef struct conform_tally {
  int64_t count[M3IDX_OP_COUNT][CONFORM_OUTCOMES];
  int64_t passed[M3IDX_OP_COUNT][M3IDX_DTYPE_COUNT][M3IDX_DTYPE_COUNT];
  conform_reason unsupported[CONFORM_MOST_REASONS], skip[CONFORM_MOST_REASONS], weak[CONFORM_MOST_REASONS];
} conform_tally;

void conform_tally_add(conform_tally *tally, const conform_call *call, conform_outcome outcome, const char *reason);
int64_t conform_tally_total(const conform_tally *tally, conform_outcome outcome);
void conform_tally_head(void);
void conform_tally_print(const conform_tally *tally, const char *backend);
/* Each reason and how often. */
void conform_tally_reasons(const conform_tally *tally, const char *backend);

#endif
