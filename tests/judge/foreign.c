/* SPDX-License-Identifier: Apache-2.0
 *
 * Other implementations, written the way kernels are: binary32 and the matrix units' sums, one rounding after another.
 * They decode with the judge's decoder, which test_judge_bound compares with MPFR.
 */
#include "foreign.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mfma.h"
#include "rows.h"

enum { MAX_D = 256 };

/* What must work for there to be anything to judge; outside of Check, whose assertions need a running test. */
static void need(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "foreign: %s\n", what);
  exit(EXIT_FAILURE);
}

uint64_t foreign_random(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static int below(uint64_t *state, int n) { return (int)(foreign_random(state) % (uint64_t)n); }

/* ---- dots ---- */

static float zeroed(float x) { return fabsf(x) < FLT_MIN ? 0 : x; }

static float chain(const float *q, const float *k, const int *order, int from, int to, bool fused, bool flush) {
  float sum = 0;
  for (int i = from; i < to; i++) {
    float a = q[order[i]], b = k[order[i]];
    if (flush) {
      a = zeroed(a);
      b = zeroed(b);
      float product = zeroed(a * b);
      sum = zeroed(sum + product);
    } else if (fused) {
      sum = fmaf(a, b, sum);
    } else {
      float product = a * b;
      sum += product;
    }
  }
  return sum;
}

static float tree(const float *q, const float *k, int from, int to) {
  if (to - from == 1) return q[from] * k[from];
  float left = tree(q, k, from, (from + to) / 2), right = tree(q, k, (from + to) / 2, to);
  return left + right;
}

/* Any two of a bag are added until one is left; a product not yet taken may be fused into a sum. */
static float random_tree(const float *q, const float *k, int n, uint64_t *state) {
  struct {
    float value;
    int product; /* index, or -1 for a sum */
  } bag[MAX_D] = {{0, 0}}, a, b;
  for (int d = 0; d < n; d++) bag[d].product = d;
  for (int left = n; left > 1; left--) {
    int i = below(state, left);
    a = bag[i];
    bag[i] = bag[left - 1];
    i = below(state, left - 1);
    b = bag[i];
    if (b.product >= 0) b.value = q[b.product] * k[b.product];
    if (a.product >= 0 && below(state, 2)) {
      bag[i].value = fmaf(q[a.product], k[a.product], b.value);
    } else {
      if (a.product >= 0) a.value = q[a.product] * k[a.product];
      bag[i].value = a.value + b.value;
    }
    bag[i].product = -1;
  }
  return bag[0].product >= 0 ? q[0] * k[0] : bag[0].value;
}

/* Toward zero, to 24 bits; what is too large is infinite. */
static double cut24(double x) {
  if (x == 0 || !isfinite(x)) return x;
  int exponent = ilogb(x) < -126 ? -126 : ilogb(x);
  x = ldexp(trunc(ldexp(x, 23 - exponent)), exponent - 23);
  return fabs(x) >= 0x1p128 ? copysign(INFINITY, x) : x;
}

/* One instruction: the addends are cut to 24 bits below the largest exponent, and so is their exact sum. */
static double mma(const judge_number *q, const judge_number *k, const int *order, int n, double c) {
  double addend[MAX_D + 1];
  int exponent[MAX_D + 1], most = -126;
  bool special = !isfinite(c);
  double sum = c;
  for (int i = 0; i <= n; i++) {
    addend[i] = i < n ? q[order[i]].value * k[order[i]].value : c;
    exponent[i] = i < n ? q[order[i]].exponent + k[order[i]].exponent : c == 0 ? -126 : ilogb(c);
    special |= !isfinite(addend[i]) || fabs(addend[i]) >= 0x1p128;
    if (i < n) sum += fabs(addend[i]) >= 0x1p128 ? copysign(INFINITY, addend[i]) : addend[i];
    if (isfinite(addend[i]) && addend[i] != 0 && exponent[i] > most) most = exponent[i];
  }
  if (special) return sum;
  sum = 0;
  for (int i = 0; i <= n; i++) sum += ldexp(trunc(ldexp(addend[i], 23 - most)), most - 23); /* exact: few bits */
  return cut24(sum);
}

float foreign_dot(foreign_kind kind, int block, const judge_number *q, const judge_number *k, const int *order, int n,
                  uint64_t *state) {
  float a[MAX_D], b[MAX_D], sum;
  double wide = 0;
  for (int d = 0; d < n; d++) {
    a[d] = (float)q[d].value;
    b[d] = (float)k[d].value;
  }
  switch (kind) {
  case FOREIGN_F32:
  case FOREIGN_PERMUTED: return chain(a, b, order, 0, n, false, false);
  case FOREIGN_FLUSH: return chain(a, b, order, 0, n, false, true);
  case FOREIGN_FMA_DOWN: return chain(a, b, order, 0, n, true, false);
  case FOREIGN_PAIRWISE: return tree(a, b, 0, n);
  case FOREIGN_SPLIT:
    sum = 0;
    for (int i = 0; i < 4; i++) sum += chain(a, b, order, i * n / 4, (i + 1) * n / 4, i & 1, false);
    return sum;
  case FOREIGN_RANDOM: return random_tree(a, b, n, state);
  case FOREIGN_MMA:
    for (int i = 0; i < n; i += block) wide = mma(q, k, order + i, n - i < block ? n - i : block, wide);
    return (float)wide;
  case FOREIGN_HALF:
    for (int d = 0; d < n; d++) {
      wide = cut24(wide + (double)a[d] * (double)b[d]);
      if (wide != 0 && isfinite(wide)) wide = ldexp(trunc(ldexp(wide, 7 - ilogb(wide))), ilogb(wide) - 7);
    }
    return (float)wide;
  case FOREIGN_MFMA:
  case FOREIGN_MFMA_PERMUTED:
  case FOREIGN_EXACT: break;
  }
  need(false, "no such dot");
  return 0;
}

/* ---- scores ---- */

typedef struct kernel {
  const m3idx_case *c;
  foreign_kind kind;
  int block, order[MAX_D];
  const foreign_faults *faults;
  uint64_t state;
  judge_codec q, k;
  mfma_unit unit;
} kernel;

static void start(kernel *w) {
  char why[CASE_MESSAGE_BYTES] = "";
  const m3idx_case *c = w->c;
  m3idx_dtype twin = c->k_dtype;
  if (w->faults->other_encoding)
    twin = twin == M3IDX_E4M3FNUZ ? M3IDX_E4M3FN : twin == M3IDX_E4M3FN ? M3IDX_E4M3FNUZ : M3IDX_E5M2;
  need((judge_codec_open(&w->q, c->q_dtype) | judge_codec_open(&w->k, twin)) == 0, "no memory");
  bool shuffled = w->kind == FOREIGN_PERMUTED || w->kind == FOREIGN_MFMA_PERMUTED;
  int D = (int)c->D;
  for (int d = 0; d < D; d++) w->order[d] = w->kind == FOREIGN_FMA_DOWN ? D - 1 - d : d;
  for (int d = D - 1; shuffled && d > 0; d--) {
    int other = below(&w->state, d + 1), kept = w->order[d];
    w->order[d] = w->order[other];
    w->order[other] = kept;
  }
  if (w->kind == FOREIGN_MFMA || w->kind == FOREIGN_MFMA_PERMUTED)
    need(!mfma_unit_of(c->q_dtype, c->k_dtype, w->block, &w->unit, why), why);
}

static float kernel_dot(kernel *w, const judge_number *q, const judge_number *k) {
  int n = (int)w->c->D - w->faults->skip_last_d;
  if (w->kind != FOREIGN_MFMA && w->kind != FOREIGN_MFMA_PERMUTED)
    return foreign_dot(w->kind, w->block, q, k, w->order, n, &w->state);
  judge_number a[MAX_D], b[MAX_D];
  for (int d = 0; d < n; d++) {
    a[d] = q[w->order[d]];
    b[d] = k[w->order[d]];
  }
  return mfma_dot(&w->unit, a, b, n, 0);
}

static float kernel_score(kernel *w, const judge_number *q, tool_row row, int64_t block) {
  const m3idx_case *c = w->c;
  judge_number k[MAX_D];
  float best = NAN;
  int64_t keys = row.keys + w->faults->tokens_more;
  for (int64_t token = block * c->B; token < (block + 1) * c->B && token < keys; token++) {
    int64_t at = token + w->faults->token_shift;
    int64_t page = c->block_table[row.request * c->block_table_stride + at / c->B];
    for (int64_t d = 0; d < c->D; d++) k[d] = judge_at(&w->k, c->index_k, (page * c->B + at % c->B) * c->D + d);
    float dot = kernel_dot(w, q, k);
    if (!isnan(dot) && (isnan(best) || dot > best)) best = dot;
  }
  return w->faults->no_scale ? best : best * c->scale;
}

static void kernel_run(kernel *w, float *score) {
  const m3idx_case *c = w->c;
  judge_number q[MAX_D];
  start(w);
  for (int64_t i = 0; i < c->H * c->T; i++) {
    tool_row row = tool_row_of(c, i % c->T);
    for (int64_t d = 0; d < c->D; d++) q[d] = judge_at(&w->q, c->q, (i % c->T * c->H + i / c->T) * c->D + d);
    for (int64_t b = 0; b < c->M; b++) {
      float value = b < row.blocks ? kernel_score(w, q, row, b) : -INFINITY;
      if (c->op == CASE_DECODE) judge_forced(c, row.blocks, b, &value);
      score[i * c->M + b] = value;
    }
  }
  judge_codec_close(&w->q);
  judge_codec_close(&w->k);
}

/* ---- files ---- */

static m3idx_context *open_ref(void) {
  m3idx_context *ctx;
  need((m3idx_open(&ctx, &(m3idx_options){.backend = "ref", .num_threads = 1}, NULL, 0)) == M3IDX_OK, "no memory");
  return ctx;
}

static void copy(const case_file *from, case_file *to) {
  *to = (case_file){0};
  for (int64_t i = 0; i < from->num_metadata; i++)
    need((case_set_metadata(to, from->metadata[i].key, from->metadata[i].value)) == 0, "no memory");
  for (int64_t i = 0; i < from->num_tensors; i++) {
    const case_tensor *t = &from->tensors[i];
    case_tensor *made = case_add_tensor(to, t->name, t->dtype, t->rank, t->shape);
    need(made != NULL, "no memory");
    if (t->bytes) memcpy(made->data, t->data, t->bytes);
  }
}

void foreign_select(foreign *f, const m3idx_contract *contract, int64_t cut) {
  const m3idx_case *c = &f->view;
  m3idx_context *ctx = open_ref();
  m3idx_batch batch;
  m3idx_select_args args;
  case_batch(c, &batch);
  case_select_args(c, &batch, &args);
  args.score = f->score ? f->score : c->score;
  args.topk_idx = f->topk_idx;
  args.contract = *contract;
  int32_t *blocks = malloc((size_t)c->T * sizeof *blocks + 1);
  for (int64_t t = 0; t < c->T; t++) {
    int64_t n = tool_row_of(c, t).blocks;
    blocks[t] = (int32_t)(n < cut ? n : cut);
  }
  if (cut != INT64_MAX) {
    args.batch = NULL;
    args.num_blocks = blocks;
  }
  need(m3idx_select(ctx, &args) == M3IDX_OK, m3idx_message(ctx));
  free(blocks);
  m3idx_close(ctx);
}

void foreign_make(foreign *f, const char *line, foreign_kind kind, int block, uint64_t seed,
                  const foreign_faults *faults) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_spec spec;
  m3idx_context *ctx = open_ref();
  *f = (foreign){0};
  need(!case_spec_parse_line(line, &spec, why), why);
  need(!case_generate(&spec, &f->golden, why), why);
  case_spec_free(&spec);
  need(case_run(ctx, &f->golden, true, why) == M3IDX_OK, why);
  m3idx_close(ctx);
  copy(&f->golden, &f->theirs);
  need(!case_view(&f->theirs, &f->view, why), why);
  f->topk_idx = case_find(&f->theirs, "topk_idx")->data;
  if (f->view.op == CASE_SELECT) return;
  f->score = case_find(&f->theirs, "score")->data;
  if (kind == FOREIGN_EXACT) return;
  kernel w = {.c = &f->view, .kind = kind, .block = block, .faults = faults, .state = seed};
  kernel_run(&w, f->score);
  foreign_select(f, &f->view.contract, INT64_MAX);
}

void foreign_free(foreign *f) {
  case_file_free(&f->golden);
  case_file_free(&f->theirs);
}
