/* SPDX-License-Identifier: Apache-2.0
 *
 * oracle_random: one random case of m3idx_select, whole or by parts and m3idx_merge (S4).
 */
#include "oracle_random.h"

#include <string.h>

/* Scores of one case: any bits, few values, or near neighbours, with a taste for the specials. */
static void random_scores(trial *t, uint32_t *score, int64_t n) {
  static const uint32_t special[] = {0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000,
                                     0x7f800001, 0xffffffff, 0x7fffffff, 0xf149f2ca, 0x7149f2ca, 0x6fa18f08,
                                     0x00000001, 0x80000001, 0xff7fffff, 0x7f7fffff};
  enum { SPECIALS_COUNT = sizeof special / sizeof *special };
  int64_t kind = random_below(t, 5), odds = one_in(t, 2) ? 3 : 40;
  uint32_t base = (uint32_t)random_bits(t), few[3];
  for (int i = 0; i < 3; i++) few[i] = one_in(t, 3) ? special[random_below(t, SPECIALS_COUNT)] : base + (uint32_t)i;
  for (int64_t i = 0; i < n; i++) {
    switch (kind) {
    case 0: score[i] = (uint32_t)random_bits(t); break;
    case 1: score[i] = base + (uint32_t)random_below(t, 1000); break;
    case 2: score[i] = few[random_below(t, 3)]; break;
    case 3: score[i] = special[random_below(t, SPECIALS_COUNT)]; break;
    default: score[i] = few[0]; break;
    }
    if (kind != 4 && one_in(t, odds)) score[i] = special[random_below(t, SPECIALS_COUNT)];
  }
}

/* The key of S4.3, by counting instead of by XOR: positive patterns lie above 2^31, negative ones below it,
 * the larger the further. */
static uint64_t want_key(uint32_t bits, int64_t id, oracle_contract c) {
  uint32_t magnitude = bits & 0x7fffffff, low;
  bool negative = bits >> 31, nan = magnitude > 0x7f800000;
  uint64_t rank = negative ? UINT64_C(0x7fffffff) - magnitude : UINT64_C(0x80000000) + magnitude;
  if (nan && c.nan == ORACLE_NAN_1E30) rank = UINT64_C(0x7fffffff) - 0x7149f2ca;
  if (nan && c.nan == ORACLE_NAN_INF) rank = UINT64_C(0x7fffffff) - 0x7f800000;
  if (nan && c.nan == ORACLE_NAN_BELOW) rank = 0;
  if (magnitude == 0 && c.zero == ORACLE_ZERO_EQUAL) rank = UINT64_C(0x80000000);
  low = c.tie == ORACLE_LOWER ? 0xffffffff - (uint32_t)id : (uint32_t)id + 1;
  return rank * UINT64_C(0x100000000) + low;
}

/* What the oracle selects from one row, as ids and as keys. */
typedef struct row_problem {
  const uint32_t *score; /* forced values applied */
  int64_t first, count;
  m3idx_contract contract;
  int64_t topk;
} row_problem;

static void want_keys(const row_problem *p, uint64_t *keys, int32_t *scratch) {
  oracle_contract c = contract_of(p->contract);
  c.order = ORACLE_BY_SCORE;
  oracle_select(p->score, p->first, p->count, c, p->topk, scratch);
  for (int64_t i = 0; i < p->topk; i++)
    keys[i] = scratch[i] < 0 ? 0 : want_key(p->score[scratch[i] - p->first], scratch[i], c);
}

/* The part of a select_args that whole and parts have in common, and N of each row. */
typedef struct problem {
  m3idx_select_args args;
  random_batch rb;
  int32_t *num_blocks;
  int64_t stride_head, stride_row, topk_head, topk_row;
} problem;

static problem random_problem(trial *t, bool may_use_batch) {
  problem p = {.num_blocks = NULL};
  m3idx_select_args *a = &p.args;
  a->num_heads = random_in(t, 1, 3);
  a->num_rows = random_below(t, 5);
  a->topk = random_topk(t);
  a->contract = random_contract(t);
  if (may_use_batch && one_in(t, 3)) {
    p.rb = make_batch(t, 16, one_in(t, 2) ? 100 : 1600);
    a->num_rows = p.rb.batch.num_rows;
    a->max_block = p.rb.batch.max_block;
  } else {
    a->max_block = one_in(t, 8) ? 0 : random_in(t, 1, one_in(t, 2) ? 12 : 300);
  }
  p.num_blocks = trial_alloc(t, (size_t)a->num_rows * sizeof *p.num_blocks);
  for (int64_t row = 0; row < a->num_rows; row++)
    p.num_blocks[row] = p.rb.rows ? (int32_t)p.rb.rows[row].blocks : (int32_t)random_in(t, 0, a->max_block);
  if (one_in(t, 2)) a->init_blocks = random_in(t, 0, 4);
  if (one_in(t, 2)) a->local_blocks = one_in(t, 9) ? 1000 : random_in(t, 0, 4);

  strides s = random_strides(t, a->num_heads, a->num_rows, a->max_block);
  uint32_t *score = trial_alloc(t, (size_t)s.elements * sizeof *score);
  for (int64_t h = 0; h < a->num_heads; h++)
    for (int64_t row = 0; row < a->num_rows; row++)
      if (a->max_block) random_scores(t, score + h * s.head + row * s.row, a->max_block);
  a->score = (const float *)(void *)score;
  a->score_stride_head = s.told_head;
  a->score_stride_row = s.told_row;
  p.stride_head = s.head;
  p.stride_row = s.row;
  return p;
}

/* Row's scores after forcing, columns first .. first + count - 1. */
static row_problem row_of(trial *t, const problem *p, int64_t h, int64_t row, int64_t first, int64_t count) {
  int64_t blocks = p->num_blocks[row];
  if (first + count > blocks) count = blocks > first ? blocks - first : 0;
  uint32_t *score = trial_alloc(t, (size_t)count * sizeof *score);
  if (count) memcpy(score, p->args.score + h * p->stride_head + row * p->stride_row + first, (size_t)count * 4);
  for (int64_t i = 0; i < count; i++)
    score[i] = oracle_force(score[i], first + i, blocks, p->args.init_blocks, p->args.local_blocks);
  return (row_problem){score, first, count, p->args.contract, p->args.topk};
}

verdict random_select(trial *t) {
  problem p = random_problem(t, true);
  m3idx_select_args *a = &p.args;
  int64_t wanted = random_below(t, 3); /* ids, keys, both */
  if (p.rb.rows)
    a->batch = &p.rb.batch;
  else
    a->num_blocks = p.num_blocks;
  strides s = random_strides(t, a->num_heads, a->num_rows, a->topk);
  output outputs[2];
  outputs[0] = make_output(t, "topk_idx", s.elements, 4);
  outputs[1] = make_output(t, "keys", a->num_heads * a->num_rows * a->topk, 8);
  int32_t *scratch = trial_alloc(t, (size_t)a->topk * sizeof *scratch);
  if (wanted != 1) a->topk_idx = outputs[0].got;
  if (wanted != 0) a->keys = outputs[1].got;
  a->topk_stride_head = s.told_head;
  a->topk_stride_row = s.told_row;
  for (int64_t h = 0; h < a->num_heads; h++)
    for (int64_t row = 0; row < a->num_rows; row++) {
      row_problem r = row_of(t, &p, h, row, 0, a->max_block);
      if (wanted != 1)
        oracle_select(r.score, 0, r.count, contract_of(a->contract), a->topk,
                      (int32_t *)outputs[0].want + h * s.head + row * s.row);
      if (wanted != 0) want_keys(&r, (uint64_t *)outputs[1].want + (h * a->num_rows + row) * a->topk, scratch);
    }
  return conclude(t, m3idx_select(t->ctx, a), "select", outputs, 2);
}

/* Split the columns into parts, empty ones too, select keys from each, shuffle each row, merge. */
enum { MAX_PARTS = 6 };

static void shuffle_keys(trial *t, uint64_t *keys, int64_t n) {
  for (int64_t i = n - 1; i > 0; i--) {
    int64_t j = random_below(t, i + 1);
    uint64_t swap = keys[i];
    keys[i] = keys[j];
    keys[j] = swap;
  }
}

static verdict select_part(trial *t, const problem *p, int64_t first, int64_t count, uint64_t *keys) {
  m3idx_select_args a = p->args;
  output part = make_output(t, "keys of a part", a.num_heads * a.num_rows * a.topk, 8);
  int32_t *scratch = trial_alloc(t, (size_t)a.topk * sizeof *scratch);
  a.num_blocks = p->num_blocks;
  a.max_block = count;
  a.first_block = first;
  a.score = count ? a.score + first : a.score;
  a.score_stride_head = p->stride_head;
  a.score_stride_row = p->stride_row;
  a.keys = part.got;
  for (int64_t h = 0; h < a.num_heads; h++)
    for (int64_t row = 0; row < a.num_rows; row++) {
      row_problem r = row_of(t, p, h, row, first, count);
      want_keys(&r, (uint64_t *)part.want + (h * a.num_rows + row) * a.topk, scratch);
    }
  verdict v = conclude(t, m3idx_select(t->ctx, &a), "select of a part", &part, 1);
  memcpy(keys, part.got, part.bytes);
  return v;
}

verdict random_parts(trial *t) {
  problem p = random_problem(t, false);
  const m3idx_select_args *a = &p.args;
  int64_t rows = a->num_heads * a->num_rows, parts = random_in(t, 1, MAX_PARTS), cut[MAX_PARTS + 1] = {0};
  for (int64_t i = 1; i <= parts; i++) cut[i] = i == parts ? a->max_block : random_in(t, cut[i - 1], a->max_block);
  int64_t stride_part = rows * a->topk + (one_in(t, 2) ? random_below(t, 9) : 0);
  uint64_t *keys = trial_alloc(t, (size_t)(parts * stride_part) * sizeof *keys);
  for (int64_t i = 0; i < parts; i++) {
    verdict v = select_part(t, &p, cut[i], cut[i + 1] - cut[i], keys + i * stride_part);
    if (v != VERDICT_PASS) return v;
    for (int64_t row = 0; row < rows; row++) shuffle_keys(t, keys + i * stride_part + row * a->topk, a->topk);
  }

  strides s = random_strides(t, a->num_heads, a->num_rows, a->topk);
  output outputs[2];
  outputs[0] = make_output(t, "merged topk_idx", s.elements, 4);
  outputs[1] = make_output(t, "merged keys", rows * a->topk, 8);
  int32_t *scratch = trial_alloc(t, (size_t)a->topk * sizeof *scratch);
  bool dense = stride_part == rows * a->topk && one_in(t, 2);
  m3idx_merge_args m = {.num_parts = parts,
                        .num_heads = a->num_heads,
                        .num_rows = a->num_rows,
                        .topk = a->topk,
                        .contract = a->contract,
                        .keys = keys,
                        .keys_stride_part = dense ? 0 : stride_part,
                        .topk_idx = outputs[0].got,
                        .topk_stride_head = s.told_head,
                        .topk_stride_row = s.told_row,
                        .merged_keys = outputs[1].got};
  for (int64_t h = 0; h < a->num_heads; h++)
    for (int64_t row = 0; row < a->num_rows; row++) {
      row_problem r = row_of(t, &p, h, row, 0, a->max_block);
      oracle_select(r.score, 0, r.count, contract_of(a->contract), a->topk,
                    (int32_t *)outputs[0].want + h * s.head + row * s.row);
      want_keys(&r, (uint64_t *)outputs[1].want + (h * a->num_rows + row) * a->topk, scratch);
    }
  return conclude(t, m3idx_merge(t->ctx, &m), "merge", outputs, 2);
}
