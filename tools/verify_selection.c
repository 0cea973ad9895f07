/* SPDX-License-Identifier: Apache-2.0
 *
 * What kind of difference a selected row has.  The verdict never depends on this: it tells a person whether a
 * tie was broken the other way, a score was rounded differently, or the row is wrong.
 */
#include <stdlib.h>
#include <string.h>

#include "casefail.h"
#include "rows.h"
#include "verify.h"

enum { MAX_K = 128 };

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* Floats as integers in their order, -0 and +0 both 0. */
static int64_t in_order(uint32_t bits) { return bits >> 31 ? -(int64_t)(bits & 0x7fffffff) : (int64_t)bits; }

int64_t verify_ulps(float a, float b) {
  int64_t distance = in_order(bits_of(a)) - in_order(bits_of(b));
  return distance < 0 ? -distance : distance;
}

/* Where a score stands under the contract (S4.3), as twice in_order(): signed zeros fit between. */
static int64_t standing(const m3idx_contract *contract, float score) {
  uint32_t bits = bits_of(score);
  if ((bits & 0x7fffffff) > 0x7f800000) {
    switch (contract->nan) {
    case M3IDX_NAN_AS_MINUS_1E30: return 2 * in_order(bits_of(-1e30f));
    case M3IDX_NAN_AS_MINUS_INF: return 2 * in_order(0xff800000);
    case M3IDX_NAN_BELOW_MINUS_INF: return 2 * in_order(0xff800000) - 2;
    case M3IDX_NAN_BY_BITS: break;
    }
  }
  return 2 * in_order(bits) - (contract->zero == M3IDX_ZERO_SIGNED && bits == 0x80000000);
}

/* The score that block `id` is selected by: decode scores hold forced values already (S3.7). */
static float selected_by(const m3idx_case *c, const float *row, int64_t N, int32_t id) {
  if (c->op != CASE_DECODE && id >= N - c->local_blocks) return 1e29f;
  if (c->op != CASE_DECODE && id < c->init_blocks) return 1e30f;
  return row[id];
}

static int compare_ids(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

static int compare_standings(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* What is wrong with a row whatever the scores: 0, or -1 and why. */
static int check_ids(const m3idx_case *c, int64_t N, const int32_t *got, char *why) {
  int32_t sorted[MAX_K];
  int64_t chosen = c->K < N ? c->K : N;
  for (int64_t k = 0; k < c->K; k++) {
    if (k >= chosen && got[k] != -1)
      return case_fail(why, "slot %lld is %ld, must be -1: the row sees %lld blocks", (long long)k, (long)got[k],
                       (long long)N);
    if (k < chosen && (got[k] < 0 || got[k] >= N))
      return case_fail(why, "slot %lld is %ld, must be 0..%lld", (long long)k, (long)got[k], (long long)N - 1);
  }
  memcpy(sorted, got, (size_t)chosen * sizeof *sorted);
  qsort(sorted, (size_t)chosen, sizeof *sorted, compare_ids);
  for (int64_t k = 1; k < chosen; k++)
    if (sorted[k] == sorted[k - 1]) return case_fail(why, "id %ld is there twice", (long)sorted[k]);
  return 0;
}

static bool same_set(int64_t n, const int32_t *a, const int32_t *b) {
  int32_t x[MAX_K], y[MAX_K];
  memcpy(x, a, (size_t)n * sizeof *x);
  memcpy(y, b, (size_t)n * sizeof *y);
  qsort(x, (size_t)n, sizeof *x, compare_ids);
  qsort(y, (size_t)n, sizeof *y, compare_ids);
  return memcmp(x, y, (size_t)n * sizeof *x) == 0;
}

row_class verify_row(const m3idx_case *c, const float *score, int64_t h, int64_t t, const int32_t *want,
                     const int32_t *got, char *why) {
  char golden_why[CASE_MESSAGE_BYTES];
  int64_t N = tool_row_of(c, t).blocks, n = c->K < N ? c->K : N, a[MAX_K], b[MAX_K], most = 0;
  if (memcmp(want, got, (size_t)c->K * sizeof *want) == 0) return ROW_SAME;
  if (check_ids(c, N, got, why)) return ROW_WRONG;
  if (check_ids(c, N, want, golden_why)) {
    case_fail(why, "the golden's own row is no selection: %.300s", golden_why);
    return ROW_WRONG;
  }
  bool reordered = same_set(n, want, got), by_score = c->contract.order == M3IDX_ORDER_SCORE;
  if (reordered && !by_score) return ROW_ORDER;
  if (!score) return reordered ? ROW_ORDER : ROW_UNKNOWN;
  const float *row = score + (h * c->T + t) * c->M;
  for (int64_t k = 0; k < n; k++) {
    a[k] = standing(&c->contract, selected_by(c, row, N, want[k]));
    b[k] = standing(&c->contract, selected_by(c, row, N, got[k]));
  }
  if (by_score && memcmp(a, b, (size_t)n * sizeof *a) == 0) return ROW_TIE;
  if (reordered) return ROW_ORDER;
  qsort(a, (size_t)n, sizeof *a, compare_standings);
  qsort(b, (size_t)n, sizeof *b, compare_standings);
  for (int64_t k = 0; k < n; k++)
    if (llabs(a[k] - b[k]) > most) most = llabs(a[k] - b[k]);
  if (most == 0) return by_score ? ROW_ORDER : ROW_TIE;
  if (most <= 2) return ROW_ROUNDING;
  case_fail(why, "a block was taken whose score is %lld ulps from that of the block it displaces",
            (long long)(most / 2));
  return ROW_WRONG;
}
