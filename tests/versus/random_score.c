/* SPDX-License-Identifier: Apache-2.0
 *
 * oracle_random: one random case of m3idx_score or m3idx_topk (S2, S3, S4; the table of S5 with it).
 */
#include "oracle_random.h"

#include <string.h>

/* What both operations read. */
typedef struct inputs {
  random_batch rb;
  int64_t B, D, H;
  m3idx_tensor q, index_k;
  int32_t *block_table;
  int64_t table_stride; /* as passed; 0 = M */
  float scale;
  uint32_t *row_q, *row_keys; /* room for one row's codes, [D] and [n][D] */
} inputs;

/* Products of one case stay near this many, so that a hundred thousand cases take a few minutes. */
enum { PRODUCT_BUDGET = 40000 };

static float random_scale(trial *t) {
  static const float plain[] = {0.0f, 1.0f, 0.0f, 0.125f, 0.08838834764831845f};
  if (one_in(t, 2)) return plain[random_below(t, (int64_t)(sizeof plain / sizeof *plain))];
  uint32_t bits = 1 + (uint32_t)random_below(t, one_in(t, 2) ? 0x7f7fffff : 0x41000000);
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  return scale;
}

/* Make neighbouring terms cancel: q[d + 1] = -q[d], and k[d + 1] = k[d] but for a last bit here and there. */
static void pair_up(trial *t, const m3idx_tensor *x, bool negate) {
  uint32_t sign = 1u << (oracle_code_bits(format_of(x->dtype)) - 1);
  for (int64_t i = 0; i < x->shape[0]; i++)
    for (int64_t j = 0; j < x->shape[1]; j++)
      for (int64_t k = 0; k + 1 < x->shape[2]; k += 2) {
        uint32_t code = tensor_get(x, i, j, k);
        tensor_set(x, i, j, k + 1, negate ? code ^ sign : code ^ one_in(t, 16));
      }
}

static bool binary32_exponents(m3idx_dtype dtype) { return dtype == M3IDX_F32 || dtype == M3IDX_BF16; }

/* Every dot on the midpoint of two floats or beside it by as little as 2^-100 of them: q = 1, 1, 1, 0, ... and
 * k = x, half an ulp of x, a hair, 0, ... */
static void straddle(trial *t, const m3idx_tensor *q, const m3idx_tensor *k) {
  uint32_t q_one = q->dtype == M3IDX_F32 ? 0x3f800000 : 0x3f80;
  uint32_t binade = k->dtype == M3IDX_F32 ? 0x800000 : 0x80, sign = binade << 8;
  for (int64_t i = 0; i < q->shape[0]; i++)
    for (int64_t j = 0; j < q->shape[1]; j++)
      for (int64_t d = 0; d < q->shape[2]; d++) tensor_set(q, i, j, d, d < 3 ? q_one : 0);
  for (int64_t i = 0; i < k->shape[0]; i++)
    for (int64_t j = 0; j < k->shape[1]; j++) {
      uint32_t exponent = (uint32_t)random_in(t, 126, 254), half = exponent - 24;
      uint32_t side = one_in(t, 2) ? sign : 0;
      for (int64_t d = 3; d < k->shape[2]; d++) tensor_set(k, i, j, d, 0);
      tensor_set(k, i, j, 0, side | (exponent * binade + (uint32_t)random_below(t, binade)));
      tensor_set(k, i, j, 1, side | half * binade);
      uint32_t hair = (half - (uint32_t)random_in(t, 1, 100)) * binade;
      if (one_in(t, 2)) hair |= sign;
      tensor_set(k, i, j, 2, one_in(t, 3) ? 0 : hair);
    }
}

static inputs make_inputs(trial *t, bool allow_sparse) {
  static const int64_t block_sizes[] = {16, 16, 16, 32, 32, 64, 128};
  inputs in;
  in.B = allow_sparse ? 128 : block_sizes[random_below(t, 7)];
  in.D = 16 * (one_in(t, 4) ? random_in(t, 1, 16) : random_in(t, 1, 4));
  in.H = one_in(t, 2) ? 1 : random_in(t, 1, 4);
  int64_t max_keys = PRODUCT_BUDGET / (in.D * in.H * 4);
  if (max_keys < 3) max_keys = 3;
  if (max_keys > 3 * in.B) max_keys = 3 * in.B;
  if (max_keys < in.B && one_in(t, 2)) {
    in.H = 1;
    max_keys = 2 * in.B;
  }
  in.rb = make_batch(t, in.B, max_keys);

  const m3idx_batch *b = &in.rb.batch;
  m3idx_dtype q_dtype = random_dtype(t), k_dtype = random_dtype(t);
  palette q_palette = random_palette(t, q_dtype), k_palette = random_palette(t, k_dtype);
  int64_t pages = random_in(t, 1, 4);
  in.q = random_tensor(t, q_dtype, (const int64_t[]){b->num_rows, in.H, in.D}, &q_palette);
  in.index_k = random_tensor(t, k_dtype, (const int64_t[]){pages, in.B, in.D}, &k_palette);
  if (one_in(t, 6) && in.q.stride[2] && in.index_k.stride[2]) {
    pair_up(t, &in.q, true);
    pair_up(t, &in.index_k, false);
  }
  if (binary32_exponents(q_dtype) && binary32_exponents(k_dtype) && one_in(t, 4) && in.q.stride[2] &&
      in.index_k.stride[2])
    straddle(t, &in.q, &in.index_k);
  in.block_table = random_block_table(t, b, pages, &in.table_stride);
  in.scale = random_scale(t);
  int64_t longest = 0;
  for (int64_t i = 0; i < b->num_rows; i++)
    if (longest < in.rb.rows[i].keys) longest = in.rb.rows[i].keys;
  in.row_q = trial_alloc(t, (size_t)in.D * sizeof *in.row_q);
  in.row_keys = trial_alloc(t, (size_t)(longest * in.D) * sizeof *in.row_keys);
  return in;
}

/* The N scores of a row and head, scaled, no forced values. */
static void want_scores(const inputs *in, int64_t row, int64_t head, uint32_t *score) {
  const oracle_row *r = &in->rb.rows[row];
  int64_t stride = in->table_stride ? in->table_stride : in->rb.batch.max_block;
  const int32_t *table = in->block_table + in->rb.request[row] * stride;
  for (int64_t d = 0; d < in->D; d++) in->row_q[d] = tensor_get(&in->q, row, head, d);
  for (int64_t token = 0; token < r->keys; token++)
    for (int64_t d = 0; d < in->D; d++)
      in->row_keys[token * in->D + d] = tensor_get(&in->index_k, table[token / in->B], token % in->B, d);

  uint32_t scale_bits;
  memcpy(&scale_bits, &in->scale, sizeof scale_bits);
  for (int64_t block = 0; block < r->blocks; block++) {
    int64_t first = block * in->B;
    int64_t tokens = r->keys - first < in->B ? r->keys - first : in->B;
    score[block] = oracle_block_score(format_of(in->q.dtype), in->row_q, format_of(in->index_k.dtype),
                                      in->row_keys + first * in->D, tokens, (int)in->D);
    if (scale_bits) score[block] = oracle_scale(score[block], scale_bits); /* 0 means 1 */
  }
}

static int64_t random_forced(trial *t) { return one_in(t, 2) ? 0 : one_in(t, 8) ? 1000 : random_in(t, 1, 3); }

verdict random_score(trial *t) {
  inputs in = make_inputs(t, false);
  const m3idx_batch *b = &in.rb.batch;
  m3idx_tensor q_told = tensor_told(t, in.q), k_told = tensor_told(t, in.index_k);
  m3idx_score_args args = {.batch = b,
                           .q = q_told,
                           .index_k = k_told,
                           .block_table = in.block_table,
                           .block_table_stride = in.table_stride,
                           .scale = in.scale};
  if (b->mode == M3IDX_DECODE) {
    args.init_blocks = random_forced(t);
    args.local_blocks = random_forced(t);
  }
  strides s = random_strides(t, in.H, b->num_rows, b->max_block);
  output score = make_output(t, "score", s.elements, 4);
  args.score = score.got;
  args.score_stride_head = s.told_head;
  args.score_stride_row = s.told_row;

  for (int64_t h = 0; h < in.H; h++)
    for (int64_t row = 0; row < b->num_rows; row++) {
      uint32_t *line = (uint32_t *)score.want + h * s.head + row * s.row;
      int64_t blocks = in.rb.rows[row].blocks;
      want_scores(&in, row, h, line);
      for (int64_t i = 0; i < b->max_block; i++)
        line[i] = i < blocks ? oracle_force(line[i], i, blocks, args.init_blocks, args.local_blocks) : 0xff800000;
    }
  return conclude(t, m3idx_score(t->ctx, &args), "score", &score, 1);
}

verdict random_topk_fused(trial *t) {
  bool with_table = one_in(t, 3);
  inputs in = make_inputs(t, with_table);
  const m3idx_batch *b = &in.rb.batch;
  m3idx_topk_args args = {
      .batch = b, .block_table = in.block_table, .block_table_stride = in.table_stride, .scale = in.scale};
  args.q = tensor_told(t, in.q);
  args.index_k = tensor_told(t, in.index_k);
  args.init_blocks = random_forced(t);
  args.local_blocks = random_forced(t);
  args.topk = random_topk(t);
  args.contract = random_contract(t);
  strides s = random_strides(t, in.H, b->num_rows, args.topk);
  output outputs[3] = {make_output(t, "topk_idx", s.elements, 4)};
  m3idx_sparse_out sparse;
  args.topk_idx = outputs[0].got;
  args.topk_stride_head = s.told_head;
  args.topk_stride_row = s.told_row;
  if (with_table) {
    sparse = random_sparse_out(t, b, in.H, args.topk, outputs + 1);
    args.sparse = &sparse;
  }

  uint32_t *score = trial_alloc(t, (size_t)(b->max_block + 1) * sizeof *score);
  for (int64_t h = 0; h < in.H; h++)
    for (int64_t row = 0; row < b->num_rows; row++) {
      int64_t blocks = in.rb.rows[row].blocks;
      want_scores(&in, row, h, score);
      for (int64_t i = 0; i < blocks; i++)
        score[i] = oracle_force(score[i], i, blocks, args.init_blocks, args.local_blocks);
      oracle_select(score, 0, blocks, contract_of(args.contract), args.topk,
                    (int32_t *)outputs[0].want + h * s.head + row * s.row);
    }
  if (with_table) want_sparse(&in.rb, &sparse, in.H, args.topk, outputs[0].want, s.head, s.row, outputs + 1);
  return conclude(t, m3idx_topk(t->ctx, &args), "topk", outputs, with_table ? 3 : 1);
}
