/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge's words: one for each kind, a sentence for each row and each verdict, and which rows are the worst.
 */
#include <stdlib.h>
#include <string.h>

#include "judge.h"

const char *judge_select_word(judge_select_kind kind) {
  static const char *const words[SELECT_KINDS] = {
      "right",       "wrong order", "other tie rule", "missing better block", "forced block missing",
      "tail not -1", "empty slot",  "duplicate id",   "not causal",           "out of range"};
  return words[kind];
}

const char *judge_score_word(judge_score_kind kind) {
  static const char *const words[SCORE_KINDS] = {"right", "outside the bound", "NaN or infinity", "forced value",
                                                 "masked column"};
  return words[kind];
}

const char *judge_swap_word(judge_swap_kind kind) {
  static const char *const words[SWAP_KINDS] = {"same",           "legitimate order",  "legitimate", "wrong order",
                                                "other tie rule", "forced-block rule", "wrong"};
  return words[kind];
}

void judge_select_sentence(const judge_report *r, const judge_row *row, char *out) {
  long long N = row->blocks, slot = row->select_slot, id = row->select_id, want = row->select_want;
  const char *rule = r->contract.tie == M3IDX_TIE_LOWER_ID ? "lower" : "higher";
  *out = 0;
  switch (row->select) {
  case SELECT_RANGE: snprintf(out, JUDGE_SENTENCE, "slot %lld is %lld, no block id", slot, id); break;
  case SELECT_CAUSAL:
    snprintf(out, JUDGE_SENTENCE, "slot %lld is block %lld, the row sees blocks below %lld", slot, id, N);
    break;
  case SELECT_DUPLICATE: snprintf(out, JUDGE_SENTENCE, "slot %lld repeats block %lld", slot, id); break;
  case SELECT_HOLE:
    snprintf(out, JUDGE_SENTENCE, "slot %lld is %lld although the row sees %lld blocks", slot, id, N);
    break;
  case SELECT_TAIL:
    snprintf(out, JUDGE_SENTENCE, "slot %lld is %lld, must be -1: the row sees %lld blocks", slot, id, N);
    break;
  case SELECT_TIE:
    snprintf(out, JUDGE_SENTENCE, "block %lld (%.9g) was taken for block %lld (%.9g), equal in rank: the %s id wins",
             id, (double)row->select_score, want, (double)row->select_best, rule);
    break;
  case SELECT_FORCED:
  case SELECT_MISSING:
    snprintf(out, JUDGE_SENTENCE, "block %lld (%.9g) was taken, %sblock %lld (%.9g) left out", id,
             (double)row->select_score, row->select == SELECT_FORCED ? "forced " : "", want, (double)row->select_best);
    break;
  case SELECT_ORDER:
    snprintf(out, JUDGE_SENTENCE, "the right blocks, but %lld (%.9g) stands before %lld (%.9g)", want,
             (double)row->select_best, id, (double)row->select_score);
    break;
  case SELECT_RIGHT:
  case SELECT_KINDS: break;
  }
}

void judge_score_sentence(const judge_report *r, const judge_row *row, char *out) {
  *out = 0;
  if (row->score == SCORE_RIGHT) return;
  int n = snprintf(out, JUDGE_SENTENCE, "block %lld: got %.9g, exact %.9g", (long long)row->score_block,
                   (double)row->score_got, (double)row->score_want);
  if (row->score == SCORE_OUTSIDE && r->options.arith != JUDGE_EXACT)
    n += snprintf(out + n, (size_t)(JUDGE_SENTENCE - n), ", %s gives %.9g..%.9g", judge_arith_name(r->options.arith),
                  (double)row->score_low, (double)row->score_high);
  if (row->outside > 1)
    snprintf(out + n, (size_t)(JUDGE_SENTENCE - n), "; %lld columns in all", (long long)row->outside);
}

void judge_swap_sentence(const judge_report *r, const judge_row *row, char *out) {
  (void)r;
  *out = 0;
  if (row->swap == SWAP_SAME) return;
  if (row->taken < 0) {
    snprintf(out, JUDGE_SENTENCE, "not a selection of this row's blocks");
    return;
  }
  bool order = row->swap == SWAP_ORDER || row->swap == SWAP_ORDER_LEGITIMATE;
  snprintf(out, JUDGE_SENTENCE, "block %lld (exact %.9g) %s %lld (exact %.9g): apart %.3g, allowed %.3g",
           (long long)row->taken, (double)row->taken_score, order ? "stands before" : "for", (long long)row->missed,
           (double)row->missed_score, row->apart, row->allowed);
}

/* ---- verdicts ---- */

static void list_kinds(const int64_t *count, int kinds, const char *(*word)(int), char *out) {
  int n = (int)strlen(out);
  for (int kind = kinds - 1; kind > 0; kind--)
    if (count[kind] && n < JUDGE_SENTENCE)
      n += snprintf(out + n, (size_t)(JUDGE_SENTENCE - n), "; %s %lld", word(kind), (long long)count[kind]);
}
static const char *select_word(int kind) { return judge_select_word((judge_select_kind)kind); }
static const char *score_word(int kind) { return judge_score_word((judge_score_kind)kind); }
static const char *swap_word(int kind) { return judge_swap_word((judge_swap_kind)kind); }

static void select_verdict(const judge_report *r, const char **word, char *out) {
  char name[96];
  long long rows = r->view.H * r->view.T, right = r->select_count[SELECT_RIGHT];
  m3idx_contract_name(&r->contract, name, sizeof name);
  if (!r->has_topk) {
    *word = "none";
    snprintf(out, JUDGE_SENTENCE, "their file has no topk_idx");
  } else if (!judge_select_wrong(r)) {
    *word = r->by_exact ? "sound" : "right";
    if (r->by_exact)
      snprintf(out, JUDGE_SENTENCE, "all %lld rows hold visible, unique ids; no scores of theirs to weigh them by",
               rows);
    else
      snprintf(out, JUDGE_SENTENCE, "all %lld rows are what contract %s selects from their scores", rows, name);
  } else {
    *word = r->num_fits ? "other contract" : "WRONG";
    snprintf(out, JUDGE_SENTENCE, "%lld of %lld rows are not what contract %s selects%s", rows - right, rows, name,
             r->by_exact ? " from any scores" : " from their scores");
    list_kinds(r->select_count, SELECT_KINDS, select_word, out);
  }
}

static void score_verdict(const judge_report *r, const char **word, char *out) {
  const char *arith = judge_arith_name(r->options.arith);
  *word = "none";
  if (r->view.op == CASE_SELECT) {
    snprintf(out, JUDGE_SENTENCE, "the scores of a select case are its input");
  } else if (!r->has_score) {
    snprintf(out, JUDGE_SENTENCE, "their file has no score");
  } else if (!r->outside) {
    *word = "right";
    if (r->options.arith == JUDGE_EXACT)
      snprintf(out, JUDGE_SENTENCE, "all %lld are the exact ones, bit for bit", (long long)r->elements);
    else
      snprintf(out, JUDGE_SENTENCE, "all %lld are within the proven error of %s; at most %.3g of it is used",
               (long long)r->elements, arith, r->use);
  } else {
    *word = "WRONG";
    bool exact = r->options.arith == JUDGE_EXACT;
    snprintf(out, JUDGE_SENTENCE, "%lld of %lld are not %s%s%s; rows by their worst column", (long long)r->outside,
             (long long)r->elements, exact ? "the exact ones" : "what ", exact ? "" : arith, exact ? "" : " can give");
    list_kinds(r->score_count, SCORE_KINDS, score_word, out);
  }
}

static void swap_verdict(const judge_report *r, const char **word, char *out) {
  long long rows = r->view.H * r->view.T, same = r->swap_count[SWAP_SAME];
  if (!r->has_topk) {
    *word = "none";
    snprintf(out, JUDGE_SENTENCE, "their file has no topk_idx");
  } else if (same == rows) {
    *word = "same";
    snprintf(out, JUDGE_SENTENCE, "all %lld rows are the golden's", rows);
  } else {
    *word = judge_swap_wrong(r) ? "WRONG" : "legitimate";
    snprintf(out, JUDGE_SENTENCE, "%lld of %lld rows are not the golden's", rows - same, rows);
    list_kinds(r->swap_count, SWAP_KINDS, swap_word, out);
  }
}

void judge_verdict(const judge_report *r, int which, const char **word, char *sentence) {
  if (which == 0) select_verdict(r, word, sentence);
  if (which == 1) score_verdict(r, word, sentence);
  if (which == 2) swap_verdict(r, word, sentence);
}

void judge_ulps_label(int bucket, char *out) {
  if (bucket == JUDGE_ULPS - 1)
    snprintf(out, 24, "no distance");
  else if (bucket < 3)
    snprintf(out, 24, "%d", bucket);
  else
    snprintf(out, 24, "%lld-%lld", (1LL << (bucket - 2)) + 1, 1LL << (bucket - 1));
}

/* ---- the worst rows ---- */

int judge_badness(const judge_row *row) {
  int wrong = row->select > SELECT_ORDER || row->swap >= SWAP_TIE;
  return 1000 * wrong + 100 * (row->score != SCORE_RIGHT) + 10 * (int)row->select + 2 * (int)row->score +
         (int)row->swap;
}

int judge_worst(const judge_report *r, int most, int64_t *rows) {
  int n = 0;
  for (int64_t i = 0; i < r->view.H * r->view.T; i++) {
    int bad = judge_badness(&r->row[i]);
    if (!bad || (n == most && judge_badness(&r->row[rows[n - 1]]) >= bad)) continue;
    int at = n < most ? n++ : n - 1;
    for (; at > 0 && judge_badness(&r->row[rows[at - 1]]) < bad; at--) rows[at] = rows[at - 1];
    rows[at] = i;
  }
  return n;
}
