/* SPDX-License-Identifier: Apache-2.0
 *
 * The verdict on scores: each within what the declared arithmetic can arrive at, forced values and masked columns
 * exact (S3.6, S3.7), and the distances in ulps.
 */
#include <math.h>
#include <string.h>

#include "judge.h"
#include "verify.h"

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static int bucket_of(float want, float got) {
  if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : JUDGE_ULPS - 1;
  int64_t ulps = verify_ulps(want, got);
  int bucket = ulps > 0;
  for (int64_t most = 1; ulps > most && bucket < JUDGE_ULPS - 2; most *= 2) bucket++;
  return bucket;
}

/* The share of the bound between the exact score and the end of the set on that side. */
static double share(const judge_set *set, float exact, float got) {
  if (!isfinite(exact) || !isfinite(got) || exact == got) return 0;
  double room = got > exact ? (double)set->high - (double)exact : (double)exact - (double)set->low;
  return room > 0 ? fabs((double)got - (double)exact) / room : INFINITY;
}

static judge_score_kind judge_element(const judge_case *j, float exact, float got, const judge_set *set) {
  if (j->report->options.arith == JUDGE_EXACT) {
    if (bits_of(exact) == bits_of(got)) return SCORE_RIGHT;
    return isfinite(exact) && isfinite(got) ? SCORE_OUTSIDE : SCORE_SPECIAL;
  }
  if (judge_set_has(set, got)) return SCORE_RIGHT;
  return isfinite(got) && set->finite ? SCORE_OUTSIDE : SCORE_SPECIAL;
}

void judge_score_row(const judge_case *j, int64_t h, int64_t t, const judge_set *sets, judge_row *row, int64_t *ulps) {
  const m3idx_case *c = &j->report->view;
  const float *got = j->score + (h * c->T + t) * c->M, *exact = j->exact + (h * c->T + t) * c->M;
  double worst = 0;
  row->score_block = -1;
  for (int64_t b = 0; b < c->M; b++) {
    judge_score_kind kind = SCORE_RIGHT;
    judge_set set = sets[b < row->blocks ? b : 0];
    double used = 0;
    float value;
    if (b >= row->blocks) {
      set = judge_set_point(-INFINITY);
      if (bits_of(got[b]) != bits_of(-INFINITY)) kind = SCORE_MASKED;
    } else if (c->op == CASE_DECODE && judge_forced(c, row->blocks, b, &value)) {
      set = judge_set_point(value);
      if (bits_of(got[b]) != bits_of(value)) kind = SCORE_FORCED;
    } else {
      kind = judge_element(j, exact[b], got[b], &set);
      used = share(&set, exact[b], got[b]);
    }
    if (b < row->blocks) ulps[bucket_of(exact[b], got[b])]++;
    row->outside += kind != SCORE_RIGHT;
    if (kind == SCORE_RIGHT && used > row->use) row->use = used;
    if (row->score_block >= 0 && (kind < row->score || (kind == row->score && used <= worst))) continue;
    row->score = kind;
    row->score_block = b;
    row->score_want = exact[b];
    row->score_got = got[b];
    row->score_low = set.low;
    row->score_high = set.high;
    worst = used;
  }
}
