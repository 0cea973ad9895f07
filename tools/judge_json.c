/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge's report as one JSON object (docs/JUDGE.md, "For machines").
 */
#include <math.h>

#include "judge.h"

enum { WORST = 20 };

static json_t *counts(const int64_t *count, int kinds, const char *(*word)(int)) {
  json_t *object = json_object();
  for (int kind = 0; kind < kinds; kind++) json_object_set_new(object, word(kind), json_integer(count[kind]));
  return object;
}
static const char *select_word(int kind) { return judge_select_word((judge_select_kind)kind); }
static const char *score_word(int kind) { return judge_score_word((judge_score_kind)kind); }
static const char *swap_word(int kind) { return judge_swap_word((judge_swap_kind)kind); }

/* JSON has no infinities. */
static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *verdict(const judge_report *r, int which, bool wrong, json_t *rows) {
  char sentence[JUDGE_SENTENCE];
  const char *word = "";
  judge_verdict(r, which, &word, sentence);
  return json_pack("{s:s, s:b, s:s, s:o}", "verdict", word, "wrong", wrong, "sentence", sentence, "rows", rows);
}

static json_t *contracts(const judge_report *r) {
  json_t *list = json_array();
  char name[96];
  for (int i = 0; i < r->num_fits; i++) {
    m3idx_contract_name(&r->fits[i], name, sizeof name);
    json_array_append_new(list, json_string(name));
  }
  return list;
}

static json_t *histogram(const judge_report *r) {
  json_t *list = json_array();
  char label[24];
  for (int i = 0; i < JUDGE_ULPS; i++) {
    if (!r->ulps[i]) continue;
    judge_ulps_label(i, label);
    json_array_append_new(list, json_pack("{s:s, s:I}", "ulps", label, "count", (json_int_t)r->ulps[i]));
  }
  return list;
}

static json_t *worst(const judge_report *r) {
  int64_t rows[WORST];
  int n = judge_worst(r, WORST, rows);
  char sentence[3][JUDGE_SENTENCE];
  json_t *list = json_array();
  for (int i = 0; i < n; i++) {
    const judge_row *row = &r->row[rows[i]];
    judge_select_sentence(r, row, sentence[0]);
    judge_score_sentence(r, row, sentence[1]);
    judge_swap_sentence(r, row, sentence[2]);
    json_array_append_new(
        list, json_pack("{s:I, s:I, s:I, s:{s:s, s:s}, s:{s:s, s:s, s:I}, s:{s:s, s:s, s:o, s:o}}", "head",
                        (json_int_t)(rows[i] / r->view.T), "row", (json_int_t)(rows[i] % r->view.T), "blocks",
                        (json_int_t)row->blocks, "selection", "kind", judge_select_word(row->select), "sentence",
                        sentence[0], "scores", "kind", judge_score_word(row->score), "sentence", sentence[1], "outside",
                        (json_int_t)row->outside, "end_to_end", "kind", judge_swap_word(row->swap), "sentence",
                        sentence[2], "apart", number(row->apart), "allowed", number(row->allowed)));
  }
  return list;
}

json_t *judge_json(const judge_report *r, const char *golden, const char *theirs) {
  char name[96];
  m3idx_contract_name(&r->contract, name, sizeof name);
  json_t *selection = verdict(r, 0, judge_select_wrong(r), counts(r->select_count, SELECT_KINDS, select_word));
  json_t *scores = verdict(r, 1, judge_score_wrong(r), counts(r->score_count, SCORE_KINDS, score_word));
  json_t *swaps = verdict(r, 2, judge_swap_wrong(r), counts(r->swap_count, SWAP_KINDS, swap_word));
  json_t *hints = json_array();
  for (int i = 0; i < r->num_hints; i++) json_array_append_new(hints, json_string(r->hint[i]));
  json_object_set_new(selection, "contracts", contracts(r));
  json_object_set_new(scores, "elements", json_integer(r->elements));
  json_object_set_new(scores, "outside", json_integer(r->outside));
  json_object_set_new(scores, "bound_used", number(r->use));
  json_object_set_new(scores, "ulps", histogram(r));
  return json_pack("{s:b, s:s, s:s, s:s, s:b, s:i, s:s, s:b, s:o, s:o, s:o, s:o, s:o}", "wrong", judge_wrong(r),
                   "golden", golden, "theirs", theirs, "arith", judge_arith_name(r->options.arith), "flush",
                   r->options.flush, "k_block", r->options.k_block, "contract", name, "outputs_only", r->outputs_only,
                   "selection", selection, "scores", scores, "end_to_end", swaps, "worst", worst(r), "hints", hints);
}
