/* SPDX-License-Identifier: Apache-2.0
 *
 * The table at the end of a run.
 */
#include "conform_tally.h"

#include <inttypes.h>
#include <string.h>

static const char *const op_names[] = {
#define M3IDX_OP(name, what) #name,
#include "ops.def"
#undef M3IDX_OP
};

static bool has_formats(m3idx_op op) {
  return op == M3IDX_OP_score || op == M3IDX_OP_topk || op == M3IDX_OP_cache_insert;
}

/* The last row takes all reasons beyond the others. */
static void add_reason(conform_reason *reasons, const char *text) {
  int i = 0;
  while (i < CONFORM_MOST_REASONS - 1 && reasons[i].count && strncmp(reasons[i].text, text, sizeof reasons[i].text - 1))
    i++;
  if (!reasons[i].count++) snprintf(reasons[i].text, sizeof reasons[i].text, "%.199s", text);
}

void conform_tally_add(conform_tally *tally, const conform_call *call, conform_outcome outcome, const char *reason) {
  const m3idx_case *c = &call->on->c;
  tally->count[call->op][outcome]++;
  if (outcome == CONFORM_PASS && has_formats(call->op)) tally->passed[call->op][c->q_dtype][c->k_dtype]++;
  if (outcome == CONFORM_UNSUPPORTED) add_reason(tally->unsupported, reason);
  if (outcome == CONFORM_SKIP) add_reason(tally->skip, reason);
  if (outcome == CONFORM_WEAK) add_reason(tally->weak, reason);
}

int64_t conform_tally_total(const conform_tally *tally, conform_outcome outcome) {
  int64_t total = 0;
  for (int op = 0; op < M3IDX_OP_COUNT; op++) total += tally->count[op][outcome];
  return total;
}

void conform_tally_head(void) {
  printf("%-16s %-13s %7s %5s %7s %6s %5s  PASS by format of q (or key)\n", "backend", "operation", "PASS", "FAIL",
         "UNSUPP", "SKIP", "WEAK");
}

static void print_formats(const conform_tally *tally, int op) {
  int pairs = 0;
  for (int q = 0; q < M3IDX_DTYPE_COUNT; q++) {
    int64_t passed = 0;
    for (int k = 0; k < M3IDX_DTYPE_COUNT; k++) {
      passed += tally->passed[op][q][k];
      pairs += tally->passed[op][q][k] > 0;
    }
    if (passed) printf(" %s %" PRId64, m3idx_dtype_name((m3idx_dtype)q), passed);
  }
  printf("; %d of %d pairs", pairs, M3IDX_DTYPE_COUNT * M3IDX_DTYPE_COUNT);
}

void conform_tally_print(const conform_tally *tally, const char *backend) {
  for (int op = 0; op < M3IDX_OP_COUNT; op++) {
    const int64_t *n = tally->count[op];
    int64_t all = 0;
    for (int outcome = 0; outcome < CONFORM_OUTCOMES; outcome++) all += n[outcome];
    if (!all) continue;
    printf("%-16s %-13s %7" PRId64 " %5" PRId64 " %7" PRId64 " %6" PRId64 " %5" PRId64 " ", backend, op_names[op],
           n[CONFORM_PASS], n[CONFORM_FAIL], n[CONFORM_UNSUPPORTED], n[CONFORM_SKIP], n[CONFORM_WEAK]);
    if (has_formats((m3idx_op)op)) print_formats(tally, op);
    printf("\n");
  }
}

static void print_reasons(const conform_reason *reasons, const char *backend, const char *outcome) {
  for (int i = 0; i < CONFORM_MOST_REASONS && reasons[i].count; i++)
    printf("%s: %s %" PRId64 ": %s%s\n", backend, outcome, reasons[i].count, reasons[i].text,
           i == CONFORM_MOST_REASONS - 1 ? " (and others)" : "");
}

void conform_tally_reasons(const conform_tally *tally, const char *backend) {
  print_reasons(tally->unsupported, backend, "UNSUPPORTED");
  print_reasons(tally->skip, backend, "SKIP");
  print_reasons(tally->weak, backend, "WEAK");
}
