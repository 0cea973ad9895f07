/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of the judge: what must be right (from the library, which also checks the golden), then every row.
 */
#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "casefail.h"
#include "rows.h"
#include "verify.h"

/* ---- what is judged ---- */

/* An output of either file: NULL = it has none; *bad if it has no sense. */
static const void *output(const case_file *file, const m3idx_case *c, const char *name, const char *whose, bool *bad,
                          char *why) {
  const case_tensor *t = case_find(file, name);
  bool score = !strcmp(name, "score");
  int64_t shape[3] = {c->H, c->T, score ? c->M : c->K};
  case_dtype dtype = score ? CASE_F32 : CASE_I32;
  if (!t || *bad) return NULL;
  *bad = t->rank != 3 || t->dtype != dtype || memcmp(t->shape, shape, sizeof shape) != 0;
  if (!*bad) return t->data;
  char is[96] = "";
  for (int i = 0, n = 0; i < t->rank && n < (int)sizeof is; i++)
    n += snprintf(is + n, sizeof is - (size_t)n, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
  case_fail(why, "%s: tensor %s: is %s [%s], must be %s [%lld, %lld, %lld]", whose, name, case_dtype_name(t->dtype), is,
            case_dtype_name(dtype), (long long)shape[0], (long long)shape[1], (long long)shape[2]);
  return NULL;
}

static int check_theirs(const case_file *golden, const case_file *theirs, judge_report *r, char *why) {
  m3idx_case other;
  char what[CASE_MESSAGE_BYTES];
  r->outputs_only = !case_metadata(theirs, "format");
  if (r->outputs_only) return 0;
  if (case_view(theirs, &other, what)) return case_fail(why, "theirs: %.480s", what);
  if (verify_inputs(golden, &r->view, theirs, &other, what))
    return case_fail(why, "theirs: another case: %.460s", what);
  return 0;
}

/* ---- what is right ---- */

typedef struct right {
  float *score;
  int32_t *topk_idx;
} right;

static int select_right(m3idx_context *ctx, const judge_report *r, const m3idx_contract *contract, right *out,
                        char *why) {
  m3idx_batch batch;
  m3idx_select_args args;
  case_batch(&r->view, &batch);
  case_select_args(&r->view, &batch, &args);
  args.contract = *contract;
  args.score = out->score;
  args.topk_idx = out->topk_idx;
  return m3idx_select(ctx, &args) == M3IDX_OK ? 0 : case_fail(why, "%s", m3idx_message(ctx));
}

/* The right outputs; the golden's own must be the same. */
static int make_right(m3idx_context *ctx, const case_file *golden, judge_report *r, right *out, char *why) {
  const m3idx_case *c = &r->view;
  bool bad = false;
  size_t scores = (size_t)(c->H * c->T * c->M), ids = (size_t)(c->H * c->T * c->K);
  const int32_t *topk = output(golden, c, "topk_idx", "golden", &bad, why);
  const float *score = output(golden, c, "score", "golden", &bad, why);
  if (bad) return -1;
  out->score = malloc(scores * sizeof *out->score + 1);
  out->topk_idx = malloc(ids * sizeof *out->topk_idx + 1);
  if (!out->score || !out->topk_idx) return case_fail(why, "no memory for %zu scores", scores);
  if (c->op == CASE_SELECT) {
    memcpy(out->score, score, scores * sizeof *out->score);
  } else {
    m3idx_batch batch;
    m3idx_score_args args;
    case_batch(c, &batch);
    case_score_args(c, &batch, &args);
    args.score = out->score;
    if (m3idx_score(ctx, &args) != M3IDX_OK) return case_fail(why, "golden: %.480s", m3idx_message(ctx));
  }
  if (select_right(ctx, r, &c->contract, out, why)) return -1;
  if ((score && memcmp(score, out->score, scores * sizeof *score) != 0) ||
      (topk && memcmp(topk, out->topk_idx, ids * sizeof *topk) != 0))
    return case_fail(why, "golden: its outputs are not those of its case, so it is no golden; m3idx run makes one");
  return r->options.has_contract ? select_right(ctx, r, &r->contract, out, why) : 0;
}

/* ---- rows ---- */

/* What one thread works in. */
typedef struct room {
  judge_tile tile;
  judge_query *query; /* [H] */
  judge_set *set;     /* [H][M] */
  int64_t ulps[JUDGE_ULPS];
} room;

static room *open_room(const m3idx_case *c) {
  room *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->query = malloc((size_t)c->H * sizeof *w->query);
  w->set = calloc((size_t)(c->H * c->M) + 1, sizeof *w->set);
  if (w->query && w->set) return w;
  free(w->query);
  free(w->set);
  free(w);
  return NULL;
}

static void close_room(room *w) {
  if (!w) return;
  free(w->query);
  free(w->set);
  free(w);
}

/* The sets of every head and block of row t. */
static void fill_sets(const judge_case *j, const judge_codec codec[2], int64_t t, room *w) {
  const m3idx_case *c = &j->report->view;
  tool_row row = tool_row_of(c, t);
  if (j->report->options.arith == JUDGE_EXACT) {
    for (int64_t h = 0; h < c->H; h++)
      for (int64_t b = 0; b < row.blocks; b++)
        w->set[h * c->M + b] = judge_set_point(j->exact[(h * c->T + t) * c->M + b]);
    return;
  }
  for (int64_t h = 0; h < c->H; h++) judge_query_load(&w->query[h], &codec[0], c->q, (t * c->H + h) * c->D, (int)c->D);
  for (int64_t b = 0; b < row.blocks; b++) {
    int64_t page = c->block_table[row.request * c->block_table_stride + b], left = row.keys - b * c->B;
    int tokens = (int)(left < c->B ? left : c->B);
    judge_tile_load(&w->tile, &codec[1], c->index_k, page * c->B * c->D, tokens, (int)c->D);
    for (int64_t h = 0; h < c->H; h++) {
      judge_set *set = &w->set[h * c->M + b];
      *set = judge_block(&j->report->bound, &w->query[h], &w->tile, tokens);
      judge_set_scale(set, c->scale, j->report->bound.flush);
    }
  }
}

static bool row_differs(const judge_case *j, int64_t t) {
  const m3idx_case *c = &j->report->view;
  for (int64_t h = 0; h < c->H && j->got; h++)
    if (memcmp(j->got + (h * c->T + t) * c->K, j->want + (h * c->T + t) * c->K, (size_t)c->K * sizeof *j->got) != 0)
      return true;
  return false;
}

static void judge_token(const judge_case *j, const judge_codec codec[2], int64_t t, judge_row *rows, room *w) {
  const m3idx_case *c = &j->report->view;
  bool differs = row_differs(j, t);
  if ((j->score && c->op != CASE_SELECT) || differs) fill_sets(j, codec, t, w);
  for (int64_t h = 0; h < c->H; h++) {
    judge_row *row = &rows[h * c->T + t];
    row->blocks = tool_row_of(c, t).blocks;
    if (j->got) judge_select_row(j, h, t, row);
    if (j->score && c->op != CASE_SELECT) judge_score_row(j, h, t, w->set + h * c->M, row, w->ulps);
    if (j->got && differs) judge_swap_row(j, h, t, w->set + h * c->M, row);
  }
}

static int judge_rows(const judge_case *j, judge_report *out, char *why) {
  const m3idx_case *c = &j->report->view;
  judge_codec codec[2];
  int bad = judge_codec_open(&codec[0], c->q_dtype);
  bad |= judge_codec_open(&codec[1], c->k_dtype);
  if (!bad) {
#pragma omp parallel reduction(| : bad)
    {
      room *w = open_room(c);
      bad |= !w;
#pragma omp for schedule(dynamic)
      for (int64_t t = 0; t < c->T; t++)
        if (w) judge_token(j, codec, t, out->row, w);
#pragma omp critical
      for (int i = 0; i < JUDGE_ULPS && w; i++) out->ulps[i] += w->ulps[i];
      close_room(w);
    }
  }
  judge_codec_close(&codec[0]);
  judge_codec_close(&codec[1]);
  return bad ? case_fail(why, "no memory to judge %lld rows", (long long)c->T) : 0;
}

static void count_rows(judge_report *r) {
  const m3idx_case *c = &r->view;
  r->use_row = -1;
  for (int64_t i = 0; i < c->H * c->T; i++) {
    const judge_row *row = &r->row[i];
    if (r->has_topk) r->select_count[row->select]++;
    if (r->has_topk) r->swap_count[row->swap]++;
    if (!r->has_score || c->op == CASE_SELECT) continue;
    r->score_count[row->score]++;
    r->elements += c->M;
    r->outside += row->outside;
    if (row->use <= r->use) continue;
    r->use = row->use;
    r->use_row = i;
  }
}

/* ---- the run ---- */

static int judge_with(m3idx_context *ctx, const case_file *golden, const case_file *theirs, judge_report *out,
                      right *is, char *why) {
  const m3idx_case *c = &out->view;
  bool bad = false;
  judge_case j = {.report = out};
  if (make_right(ctx, golden, out, is, why)) return -1;
  j.exact = is->score;
  j.want = is->topk_idx;
  j.got = output(theirs, c, "topk_idx", "theirs", &bad, why);
  j.score = c->op == CASE_SELECT ? is->score : output(theirs, c, "score", "theirs", &bad, why);
  if (bad) return -1;
  out->has_topk = j.got != NULL;
  out->has_score = j.score != NULL;
  out->has_table = case_find(theirs, "sparse_block_table") || case_find(theirs, "sparse_context_lens");
  out->by_exact = !j.score;
  if (!j.got && (!j.score || c->op == CASE_SELECT))
    return case_fail(why, "theirs: no tensor topk_idx%s", c->op == CASE_SELECT ? "" : " and no tensor score");
  out->row = calloc((size_t)(c->H * c->T) + 1, sizeof *out->row);
  if (!out->row) return case_fail(why, "no memory for %lld rows", (long long)(c->H * c->T));
  if (judge_rows(&j, out, why)) return -1;
  count_rows(out);
  if (j.got && j.score && judge_select_wrong(out) && judge_select_fits(&j, ctx, out, why)) return -1;
  judge_hints(&j, out);
  return 0;
}

int judge_run(const judge_options *options, const case_file *golden, const case_file *theirs, judge_report *out,
              char *why) {
  char what[CASE_MESSAGE_BYTES];
  m3idx_context *ctx;
  right is = {0};
  *out = (judge_report){.options = *options};
  if (case_view(golden, &out->view, what)) return case_fail(why, "golden: %.480s", what);
  out->contract = options->has_contract ? options->contract : out->view.contract;
  if (out->view.op == CASE_SELECT)
    out->options.arith = JUDGE_EXACT; /* its scores are inputs */
  else if (judge_bound_of(options->arith, options->flush, options->k_block, (int)out->view.D, out->view.q_dtype,
                          out->view.k_dtype, &out->bound, why))
    return -1;
  if (check_theirs(golden, theirs, out, why)) return -1;
  /* The cpu backend has the bytes of ref; a build may lack it. */
  if (m3idx_open(&ctx, &(m3idx_options){.backend = "cpu"}, why, CASE_MESSAGE_BYTES) != M3IDX_OK &&
      m3idx_open(&ctx, &(m3idx_options){.backend = "ref"}, why, CASE_MESSAGE_BYTES) != M3IDX_OK)
    return -1;
  int bad = judge_with(ctx, golden, theirs, out, &is, why);
  free(is.score);
  free(is.topk_idx);
  m3idx_close(ctx);
  if (bad) judge_free(out);
  return bad;
}

void judge_free(judge_report *report) {
  free(report->row);
  report->row = NULL;
}

bool judge_select_wrong(const judge_report *r) {
  return r->has_topk && r->select_count[SELECT_RIGHT] != r->view.H * r->view.T;
}
bool judge_score_wrong(const judge_report *r) { return r->outside > 0; }
bool judge_swap_wrong(const judge_report *r) {
  return r->swap_count[SWAP_ORDER] + r->swap_count[SWAP_TIE] + r->swap_count[SWAP_FORCED] + r->swap_count[SWAP_WRONG] >
         0;
}
bool judge_wrong(const judge_report *r) { return judge_select_wrong(r) || judge_score_wrong(r) || judge_swap_wrong(r); }
