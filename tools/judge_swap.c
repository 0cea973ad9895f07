/* SPDX-License-Identifier: Apache-2.0
 *
 * The verdict end to end: can scores that the declared arithmetic may honestly have had select these ids?  The scores
 * of different blocks are independent, so ids S can be the selection iff every block of S, at its best, beats every
 * other block at its worst; and stand in this order iff each, at its best, beats all that follow at their worst.
 */
#include <math.h>
#include <string.h>

#include "judge.h"

/* The best and the worst key of each block of a row. */
typedef struct range {
  uint64_t best, worst;
} range;

static void widen(range *r, uint64_t key) {
  if (key > r->best) r->best = key;
  if (key < r->worst) r->worst = key;
}

/* `id` < N: its forced value, else what its set holds.  Zeros of either sign count where the contract tells them
 * apart, and NaNs of either sign. */
static range range_of(const judge_case *j, const judge_set *sets, int64_t blocks, int64_t id) {
  const m3idx_contract *contract = &j->report->contract;
  bool exact = j->report->options.arith == JUDGE_EXACT;
  range r = {0, UINT64_MAX};
  float value;
  judge_set set = judge_forced(&j->report->view, blocks, id, &value) ? judge_set_point(value) : sets[id];
  if (set.finite) {
    widen(&r, judge_key(contract, !exact && set.high == 0 ? 0.0f : set.high, id));
    widen(&r, judge_key(contract, !exact && set.low == 0 ? -0.0f : set.low, id));
  }
  if (set.plus_inf) widen(&r, judge_key(contract, INFINITY, id));
  if (set.minus_inf) widen(&r, judge_key(contract, -INFINITY, id));
  for (int i = 0; set.nan && i < 2; i++) { /* any payload: the largest and the least pattern */
    const uint32_t any = i ? UINT32_C(0xffffffff) : UINT32_C(0x7fffffff), canonical = UINT32_C(0x7fc00000);
    memcpy(&value, exact ? &canonical : &any, sizeof value);
    widen(&r, judge_key(contract, value, id));
  }
  return r;
}

/* Key of the right score of a block. */
static float right_score(const judge_case *j, const float *exact, int64_t blocks, int64_t id) {
  float value = exact[id];
  judge_forced(&j->report->view, blocks, id, &value);
  return value;
}

static bool holds(const int32_t *ids, int64_t n, int64_t id) {
  for (int64_t k = 0; k < n; k++)
    if (ids[k] == id) return true;
  return false;
}

/* Fill the pair that a row shows: `taken` stands where `missed` should, and how far that is. */
static void show(const judge_case *j, const float *exact, const judge_set *sets, int32_t taken, int32_t missed,
                 judge_row *row) {
  float value;
  row->taken = taken;
  row->missed = missed;
  row->taken_score = right_score(j, exact, row->blocks, taken);
  row->missed_score = right_score(j, exact, row->blocks, missed);
  row->apart = (double)row->missed_score - (double)row->taken_score;
  row->allowed = 0;
  if (sets[taken].finite && !judge_forced(&j->report->view, row->blocks, taken, &value))
    row->allowed += (double)sets[taken].high - (double)row->taken_score;
  if (sets[missed].finite && !judge_forced(&j->report->view, row->blocks, missed, &value))
    row->allowed += (double)row->missed_score - (double)sets[missed].low;
}

static judge_swap_kind blame(const judge_case *j, const float *exact, int64_t blocks, int32_t taken, int32_t missed) {
  const m3idx_contract *contract = &j->report->contract;
  float value;
  uint64_t a = judge_key(contract, right_score(j, exact, blocks, taken), taken);
  uint64_t b = judge_key(contract, right_score(j, exact, blocks, missed), missed);
  if (a >> 32 == b >> 32) return SWAP_TIE;
  if (judge_forced(&j->report->view, blocks, taken, &value) || judge_forced(&j->report->view, blocks, missed, &value))
    return SWAP_FORCED;
  return SWAP_WRONG;
}

/* The first pair out of order that nothing explains, else the first that is out of order. */
static void judge_order(const judge_case *j, const float *exact, const judge_set *sets, const int32_t *got,
                        int64_t chosen, judge_row *row) {
  const m3idx_contract *contract = &j->report->contract;
  for (int64_t i = 0; i < chosen; i++)
    for (int64_t k = i + 1; k < chosen; k++) {
      bool by_id = contract->order == M3IDX_ORDER_ID;
      bool sorted = by_id ? got[i] < got[k]
                          : judge_key(contract, right_score(j, exact, row->blocks, got[i]), got[i]) >
                                judge_key(contract, right_score(j, exact, row->blocks, got[k]), got[k]);
      if (sorted) continue;
      bool explained =
          !by_id && range_of(j, sets, row->blocks, got[i]).best > range_of(j, sets, row->blocks, got[k]).worst;
      judge_swap_kind kind = explained ? SWAP_ORDER_LEGITIMATE : SWAP_ORDER;
      if (kind <= row->swap) continue;
      row->swap = kind;
      show(j, exact, sets, got[i], got[k], row);
      if (kind == SWAP_ORDER) return;
    }
}

/* The ids of a row that the golden does not have, each against the best block left out. */
static void judge_set_of_ids(const judge_case *j, const float *exact, const judge_set *sets, const int32_t *want,
                             const int32_t *got, int64_t chosen, judge_row *row) {
  uint64_t left = 0;
  int32_t left_id = -1;
  for (int32_t id = 0; id < row->blocks; id++) {
    if (holds(got, chosen, id)) continue;
    uint64_t worst = range_of(j, sets, row->blocks, id).worst;
    if (worst < left) continue;
    left = worst;
    left_id = id;
  }
  int32_t missed = -1;
  for (int64_t k = 0; k < chosen && missed < 0; k++)
    if (!holds(got, chosen, want[k])) missed = want[k];
  /* Ids that the golden has too are only blamed where no other id is: they are outranked because of it. */
  for (int pass = 0; pass < 2 && row->swap < SWAP_ORDER; pass++)
    for (int64_t k = 0; k < chosen; k++) {
      bool explained = left_id < 0 || range_of(j, sets, row->blocks, got[k]).best > left;
      bool extra = !holds(want, chosen, got[k]);
      if (extra == (pass == 1) || (explained && !extra)) continue;
      judge_swap_kind kind = explained ? SWAP_LEGITIMATE : blame(j, exact, row->blocks, got[k], left_id);
      judge_row seen = *row;
      if (kind < row->swap) continue;
      show(j, exact, sets, got[k], explained ? missed : left_id, row);
      if (kind == seen.swap && !(row->apart > seen.apart)) *row = seen;
      row->swap = kind;
    }
}

void judge_swap_row(const judge_case *j, int64_t h, int64_t t, const judge_set *sets, judge_row *row) {
  const m3idx_case *c = &j->report->view;
  const int32_t *got = j->got + (h * c->T + t) * c->K, *want = j->want + (h * c->T + t) * c->K;
  const float *exact = j->exact + (h * c->T + t) * c->M;
  int64_t chosen = c->K < row->blocks ? c->K : row->blocks;
  row->taken = row->missed = -1;
  if (row->select >= SELECT_TAIL) { /* not a selection at all */
    row->swap = SWAP_WRONG;
    return;
  }
  judge_set_of_ids(j, exact, sets, want, got, chosen, row);
  if (row->swap == SWAP_SAME || row->swap == SWAP_LEGITIMATE) judge_order(j, exact, sets, got, chosen, row);
}
