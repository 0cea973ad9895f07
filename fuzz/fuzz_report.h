/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of campaigns as JSON (docs/FUZZING.md, "The report"), and what joins those of shards.
 */
#ifndef M3IDX_FUZZ_REPORT_H
#define M3IDX_FUZZ_REPORT_H

#include <jansson.h>

#include "fuzz_campaign.h"

#define FUZZ_REPORT_FORMAT "m3idx-fuzz/1"
/* Of the stream of lines: reports of other numbers are of other lines, and a frozen digest in the tests moves with it.
 */
enum { FUZZ_GRAMMAR = 7, FUZZ_GRAMMAR_LIGHT = 1000 + FUZZ_GRAMMAR };

/* What the shrinker made of a failure; NULL = nothing. */
typedef struct fuzz_remains {
  char *line, *file;
} fuzz_remains;

/* NULL = no memory, or a text that is not UTF-8. */
json_t *fuzz_report(const fuzz_plan *plan, const fuzz_found *found, const fuzz_remains *remains);

double fuzz_rate(int64_t cases, double seconds);

/* Joins count reports: the same seed, grammar, operations and number of shards, and no shard twice.  NULL and why,
 * which names the report by paths[i]. */
json_t *fuzz_report_merge(json_t *const *reports, const char *const *paths, int count, char *why);

/* Reads a report; NULL and why. */
json_t *fuzz_report_read(const char *path, char *why);
/* Written beside its name and renamed, so that it is whole or not there; -1 and why. */
int fuzz_report_write(const json_t *report, const char *path, char *why);

/* A few lines for a person; failures are listed with what repeats them. */
void fuzz_report_print(const json_t *report, FILE *out);
int64_t fuzz_report_failures(const json_t *report);
int64_t fuzz_report_compared(const json_t *report); /* calls that passed or failed */
bool fuzz_report_complete(const json_t *report);    /* all shards are there */

#endif
