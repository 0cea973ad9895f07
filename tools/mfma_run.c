/* SPDX-License-Identifier: Apache-2.0
 *
 * The scores of a case by gfx942's matrix instructions (mfma.h), k ascending, and the selection from them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "casefail.h"
#include "mfma.h"
#include "rows.h"

typedef struct work {
  const m3idx_case *c;
  mfma_unit unit;
  judge_codec codec[2];
  float *score;
} work;

static void load(const judge_codec *codec, const void *data, int64_t index, int64_t n, judge_number *out) {
  for (int64_t d = 0; d < n; d++) out[d] = judge_at(codec, data, index + d);
}

/* S3.3 to S3.5 but for the dot. */
static float block_score(const work *w, const judge_number *q, int64_t page, int64_t tokens) {
  const m3idx_case *c = w->c;
  judge_number k[256];
  float best = NAN;
  for (int64_t t = 0; t < tokens; t++) {
    load(&w->codec[1], c->index_k, (page * c->B + t) * c->D, c->D, k);
    float dot = mfma_dot(&w->unit, q, k, (int)c->D, 0);
    if (!isnan(dot) && (isnan(best) || dot > best)) best = dot;
  }
  if (!isnan(best) && c->scale != 1) best *= c->scale;
  return best == 0 ? 0 : best;
}

static void score_row(const work *w, int64_t h, int64_t t) {
  static const uint32_t canonical = 0x7fc00000;
  const m3idx_case *c = w->c;
  tool_row row = tool_row_of(c, t);
  judge_number q[256];
  load(&w->codec[0], c->q, (t * c->H + h) * c->D, c->D, q);
  for (int64_t b = 0; b < c->M; b++) {
    float value = -INFINITY;
    int64_t left = row.keys - b * c->B;
    if (b < row.blocks)
      value = block_score(w, q, c->block_table[row.request * c->block_table_stride + b], left < c->B ? left : c->B);
    if (c->op == CASE_DECODE && b < row.blocks) { /* S3.7 */
      if (b < c->init_blocks) value = 1e30f;
      if (b >= row.blocks - c->local_blocks) value = 1e29f;
    }
    float *out = &w->score[(h * c->T + t) * c->M + b];
    *out = value;
    if (isnan(value)) memcpy(out, &canonical, sizeof canonical);
  }
}

/* The library's own score call on the same descriptors judges the contents of the case. */
static m3idx_status validate(m3idx_context *ctx, const m3idx_case *c, const m3idx_batch *batch, float *score) {
  m3idx_score_args args;
  case_score_args(c, batch, &args);
  args.score = score;
  return m3idx_score(ctx, &args);
}

static m3idx_status fill(m3idx_context *ctx, const m3idx_case *c, int k_block, float *score, int32_t *ids, char *why) {
  m3idx_batch batch;
  m3idx_select_args select;
  work w = {.c = c, .score = score};
  if (mfma_unit_of(c->q_dtype, c->k_dtype, k_block, &w.unit, why)) return M3IDX_INVALID;
  case_batch(c, &batch);
  m3idx_status status = validate(ctx, c, &batch, score);
  int bad = judge_codec_open(&w.codec[0], c->q_dtype);
  bad |= judge_codec_open(&w.codec[1], c->k_dtype);
  if (status == M3IDX_OK && !bad) {
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < c->H * c->T; i++) score_row(&w, i / c->T, i % c->T);
    case_select_args(c, &batch, &select);
    select.score = score;
    select.topk_idx = ids;
    status = m3idx_select(ctx, &select);
  }
  judge_codec_close(&w.codec[0]);
  judge_codec_close(&w.codec[1]);
  if (status != M3IDX_OK) snprintf(why, CASE_MESSAGE_BYTES, "%s", m3idx_message(ctx));
  return bad ? M3IDX_NO_MEMORY : status;
}

m3idx_status mfma_run(case_file *file, int k_block, char *why) {
  m3idx_case c;
  m3idx_context *ctx;
  if (case_view(file, &c, why)) return M3IDX_INVALID;
  if (c.op == CASE_SELECT || c.sparse_table) {
    case_fail(why, "--arith cdna3-mfma: computes score and topk_idx only, of prefill and decode");
    return M3IDX_INVALID;
  }
  m3idx_status status = m3idx_open(&ctx, &(m3idx_options){.backend = "ref"}, why, CASE_MESSAGE_BYTES);
  if (status != M3IDX_OK) return status;
  float *score = malloc((size_t)(c.H * c.T * c.M) * sizeof *score + 1);
  int32_t *ids = malloc((size_t)(c.H * c.T * c.K) * sizeof *ids + 1);
  status = score && ids ? fill(ctx, &c, k_block, score, ids, why) : M3IDX_NO_MEMORY;
  if (status == M3IDX_OK) {
    int64_t scores[3] = {c.H, c.T, c.M}, selected[3] = {c.H, c.T, c.K};
    case_tensor *a = case_add_tensor(file, "score", CASE_F32, 3, scores);
    if (a) memcpy(a->data, score, a->bytes);
    case_tensor *b = a ? case_add_tensor(file, "topk_idx", CASE_I32, 3, selected) : NULL;
    if (b) memcpy(b->data, ids, b->bytes);
    if (!b) status = M3IDX_NO_MEMORY;
  }
  if (status == M3IDX_NO_MEMORY) snprintf(why, CASE_MESSAGE_BYTES, "no memory for the outputs");
  free(score);
  free(ids);
  m3idx_close(ctx);
  return status;
}
