/* SPDX-License-Identifier: Apache-2.0
 *
 * The verdict on a selection: given scores as they stand, is topk_idx what a contract selects (S4)?
 */
#include <string.h>

#include "judge.h"
#include "rows.h"

enum { MAX_K = 128 };

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

uint64_t judge_key(const m3idx_contract *contract, float score, int64_t id) {
  uint32_t bits = bits_of(score), sign = UINT32_C(0x80000000);
  bool below = false;
  if ((bits & ~sign) > 0x7f800000) {
    if (contract->nan == M3IDX_NAN_AS_MINUS_1E30) bits = bits_of(-1e30f);
    if (contract->nan == M3IDX_NAN_AS_MINUS_INF) bits = 0xff800000;
    below = contract->nan == M3IDX_NAN_BELOW_MINUS_INF;
  } else if (bits == sign && contract->zero == M3IDX_ZERO_EQUAL) {
    bits = 0;
  }
  uint64_t ordered = below ? 0 : bits & sign ? ~bits : bits | sign;
  return ordered << 32 | (contract->tie == M3IDX_TIE_LOWER_ID ? UINT32_MAX - (uint64_t)id : (uint64_t)id + 1);
}

bool judge_forced(const m3idx_case *c, int64_t blocks, int64_t id, float *value) {
  if (id >= blocks || (id < blocks - c->local_blocks && id >= c->init_blocks)) return false;
  *value = id >= blocks - c->local_blocks ? 1e29f : 1e30f;
  return true;
}

/* The score that a block stands with: decode scores hold forced values already (S3.7). */
static float standing(const judge_case *j, const float *score, int64_t blocks, int64_t id) {
  float value = score[id];
  if (j->report->view.op != CASE_DECODE) judge_forced(&j->report->view, blocks, id, &value);
  return value;
}

/* What is wrong with a row whatever the scores. */
static bool misshapen(const m3idx_case *c, const int32_t *got, int64_t chosen, judge_row *row) {
  for (int64_t k = 0; k < c->K; k++) {
    judge_select_kind kind = SELECT_RIGHT;
    if (got[k] < -1 || got[k] >= c->M)
      kind = SELECT_RANGE;
    else if (got[k] >= row->blocks)
      kind = SELECT_CAUSAL;
    else if (k >= chosen && got[k] != -1)
      kind = SELECT_TAIL;
    else if (k < chosen && got[k] < 0)
      kind = SELECT_HOLE;
    for (int64_t i = 0; kind == SELECT_RIGHT && k < chosen && i < k; i++)
      if (got[i] == got[k]) kind = SELECT_DUPLICATE;
    if (kind <= row->select) continue;
    row->select = kind;
    row->select_slot = (int32_t)k;
    row->select_id = got[k];
    row->select_want = -1;
  }
  return row->select != SELECT_RIGHT;
}

static bool holds(const int32_t *ids, int64_t n, int64_t id) {
  for (int64_t k = 0; k < n; k++)
    if (ids[k] == id) return true;
  return false;
}

/* A row of unique visible ids: the worst that is in it against the best that is not. */
static void weigh(const judge_case *j, const float *score, const int32_t *got, int64_t chosen, judge_row *row) {
  const m3idx_contract *contract = &j->report->contract;
  uint64_t worst = UINT64_MAX, best = 0, key, before = UINT64_MAX;
  int64_t worst_id = -1, best_id = -1, swapped = -1;
  for (int64_t k = 0; k < chosen; k++) {
    key = judge_key(contract, standing(j, score, row->blocks, got[k]), got[k]);
    if (key < worst) {
      worst = key;
      worst_id = got[k];
    }
    bool sorted = contract->order == M3IDX_ORDER_ID ? k == 0 || got[k] > got[k - 1] : key < before;
    if (!sorted && swapped < 0) swapped = k;
    before = key;
  }
  for (int64_t id = 0; id < row->blocks; id++) {
    if (holds(got, chosen, id)) continue;
    key = judge_key(contract, standing(j, score, row->blocks, id), id);
    if (key <= best) continue;
    best = key;
    best_id = id;
  }
  float value;
  if (best > worst) {
    row->select = best >> 32 == worst >> 32                                      ? SELECT_TIE
                  : judge_forced(&j->report->view, row->blocks, best_id, &value) ? SELECT_FORCED
                                                                                 : SELECT_MISSING;
    row->select_id = (int32_t)worst_id;
    row->select_want = (int32_t)best_id;
    row->select_score = standing(j, score, row->blocks, worst_id);
    row->select_best = standing(j, score, row->blocks, best_id);
  } else if (swapped >= 0) {
    row->select = SELECT_ORDER;
    row->select_slot = (int32_t)swapped;
    row->select_id = got[swapped];
    row->select_want = got[swapped - 1];
    row->select_score = standing(j, score, row->blocks, got[swapped]);
    row->select_best = standing(j, score, row->blocks, got[swapped - 1]);
  }
}

void judge_select_row(const judge_case *j, int64_t h, int64_t t, judge_row *row) {
  const m3idx_case *c = &j->report->view;
  const int32_t *got = j->got + (h * c->T + t) * c->K;
  int64_t chosen = c->K < row->blocks ? c->K : row->blocks;
  if (misshapen(c, got, chosen, row) || !j->score) return;
  weigh(j, j->score + (h * c->T + t) * c->M, got, chosen, row);
}

/* ---- other contracts ---- */

static int fields_apart(const m3idx_contract *a, const m3idx_contract *b) {
  return (a->tie != b->tie) + (a->nan != b->nan) + (a->zero != b->zero) + (a->order != b->order);
}

static bool is_preset(const m3idx_contract *contract) {
  char name[96];
  m3idx_contract_name(contract, name, sizeof name);
  return !strchr(name, '=');
}

/* Nearest first; among equals the presets. */
static void keep_fit(judge_report *out, const m3idx_contract *contract) {
  int at = out->num_fits++;
  int rank = 2 * fields_apart(contract, &out->contract) + !is_preset(contract);
  for (; at > 0; at--) {
    const m3idx_contract *other = &out->fits[at - 1];
    if (2 * fields_apart(other, &out->contract) + !is_preset(other) <= rank) break;
    out->fits[at] = *other;
  }
  out->fits[at] = *contract;
}

int judge_select_fits(const judge_case *j, m3idx_context *ctx, judge_report *out, char *why) {
  const m3idx_case *c = &j->report->view;
  case_file file = {0};
  case_tensor *ids = case_add_tensor(&file, "topk_idx", CASE_I32, 3, (int64_t[]){c->H, c->T, c->K});
  if (!ids) {
    snprintf(why, CASE_MESSAGE_BYTES, "no memory for a selection");
    return -1;
  }
  m3idx_batch batch;
  m3idx_select_args args;
  case_batch(c, &batch);
  case_select_args(c, &batch, &args);
  args.score = j->score;
  args.topk_idx = ids->data;
  m3idx_status status = M3IDX_OK;
  for (int i = 0; i < JUDGE_CONTRACTS && status == M3IDX_OK; i++) {
    args.contract = (m3idx_contract){.tie = (m3idx_tie)(i & 1),
                                     .nan = (m3idx_nan)(i >> 1 & 3),
                                     .zero = (m3idx_zero)(i >> 3 & 1),
                                     .order = (m3idx_order)(i >> 4)};
    status = m3idx_select(ctx, &args);
    if (status == M3IDX_OK && !memcmp(ids->data, j->got, ids->bytes)) keep_fit(out, &args.contract);
  }
  case_file_free(&file);
  if (status != M3IDX_OK) snprintf(why, CASE_MESSAGE_BYTES, "%s", m3idx_message(ctx));
  return status == M3IDX_OK ? 0 : -1;
}
