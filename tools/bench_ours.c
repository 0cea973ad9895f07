/* SPDX-License-Identifier: Apache-2.0
 *
 * The library under the benchmark's clock, and its comparison with the reference before that.
 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "check.h"

static int run_score(bench_contender *c, bench_world *w) {
  return (int)m3idx_score(
      c->ctx, &(m3idx_score_args){
                  .batch = &w->batch, .q = w->q, .index_k = w->index_k, .block_table = w->table, .score = w->score});
}

static int run_filter(bench_contender *c, bench_world *w) {
  m3idx_resolved resolved;
  const m3idx_score_args args = {
      .batch = &w->batch, .q = w->q, .index_k = w->index_k, .block_table = w->table, .score = w->score};
  const m3idx_status status = m3idx_check_score(c->ctx, &args, &resolved);
  return (int)(status ? status : m3idx_probe_filter(c->ctx, &resolved.args.score));
}

static int run_selected(bench_contender *c, bench_world *w) {
  return (int)m3idx_topk(c->ctx, &(m3idx_topk_args){.batch = &w->batch,
                                                    .q = w->q,
                                                    .index_k = w->index_k,
                                                    .block_table = w->table,
                                                    .topk = BENCH_TOPK,
                                                    .topk_idx = w->ids});
}

static int run_select(bench_contender *c, bench_world *w) {
  return (int)m3idx_select(c->ctx, &(m3idx_select_args){.num_blocks = w->num_blocks,
                                                        .num_heads = 1,
                                                        .num_rows = w->lanes,
                                                        .max_block = w->shape->blocks,
                                                        .score = w->score,
                                                        .topk = BENCH_TOPK,
                                                        .topk_idx = w->ids});
}

static m3idx_context *open_backend(const char *backend, const char *isa, int threads, char *reason) {
  m3idx_context *ctx = NULL;
  const m3idx_options options = {.backend = backend, .num_threads = threads};
  const char *before = getenv("M3IDX_ISA");
  char *keep = before ? strdup(before) : NULL;
  if (isa) setenv("M3IDX_ISA", isa, 1);
  if (m3idx_open(&ctx, &options, reason, BENCH_REASON_BYTES)) ctx = NULL;
  if (isa && keep)
    setenv("M3IDX_ISA", keep, 1);
  else if (isa)
    unsetenv("M3IDX_ISA");
  free(keep);
  return ctx;
}

void bench_ours_begin(bench_contender *c, bench_world *w) {
  (void)w;
  c->ctx = open_backend("cpu", c->entry->isa, c->threads, c->absent);
  if (!c->ctx) return;
  const char *details = m3idx_backend_details(c->ctx);
  snprintf(c->detail, sizeof c->detail, "%.*s", (int)strcspn(details, "("), details);
  switch (c->entry->kind) {
  case BENCH_SCORE: c->run = run_score; break;
  case BENCH_SELECTED: c->run = run_selected; break;
  case BENCH_FILTER: c->run = run_filter; break;
  default: c->run = run_select;
  }
}

void bench_ours_finish(bench_contender *c) { m3idx_close(c->ctx); }

/* ---- the reference ---- */

/* The last `rows` rows of the first request, as a batch of their own: want = their scores or ids. */
static m3idx_status reference(m3idx_context *ref, const bench_entry *entry, const bench_world *w, int64_t rows,
                              void *want) {
  const bench_shape *s = w->shape;
  const int32_t cu[2] = {0, (int32_t)rows}, prefix[1] = {(int32_t)(w->keys - rows)};
  m3idx_batch batch = w->batch;
  m3idx_tensor q = w->q;
  batch.num_requests = 1;
  batch.num_rows = q.shape[0] = rows;
  q.data = (uint16_t *)q.data + (s->rows - rows) * s->heads * q.shape[2];
  if (batch.mode == M3IDX_PREFILL) {
    batch.cu_seqlens = cu;
    batch.prefix_lens = prefix;
  } else {
    batch.decode_query_len = rows;
  }
  if (entry->kind == BENCH_SCORE)
    return m3idx_score(
        ref,
        &(m3idx_score_args){.batch = &batch, .q = q, .index_k = w->index_k, .block_table = w->table, .score = want});
  return m3idx_topk(ref, &(m3idx_topk_args){.batch = &batch,
                                            .q = q,
                                            .index_k = w->index_k,
                                            .block_table = w->table,
                                            .topk = BENCH_TOPK,
                                            .topk_idx = want});
}

static m3idx_status reference_select(m3idx_context *ref, const bench_world *w, int64_t rows, void *want) {
  return m3idx_select(ref, &(m3idx_select_args){.num_blocks = w->num_blocks,
                                                .num_heads = 1,
                                                .num_rows = rows,
                                                .max_block = w->shape->blocks,
                                                .score = w->score,
                                                .topk = BENCH_TOPK,
                                                .topk_idx = want});
}

static int compare(const bench_contender *c, const bench_world *w, int64_t rows, int64_t width, const void *want,
                   const void *got, char *reason) {
  const bench_shape *s = w->shape;
  const int64_t first = s->form == BENCH_ARRAY ? 0 : s->rows - rows, all = s->requests * s->rows;
  for (int64_t head = 0; head < s->heads; head++)
    for (int64_t row = 0; row < rows; row++) {
      const char *a = (const char *)want + (head * rows + row) * width * 4;
      const char *b = (const char *)got + (head * all + first + row) * width * 4;
      if (!memcmp(a, b, (size_t)width * 4)) continue;
      snprintf(reason, BENCH_REASON_BYTES, "%s, %s: head %lld row %lld differs from the reference", s->name,
               c->entry->label, (long long)head, (long long)(first + row));
      return -1;
    }
  return 0;
}

int bench_check(bench_contender *c, bench_world *w, char *reason) {
  const bench_shape *s = w->shape;
  const int64_t width = c->entry->kind == BENCH_SCORE ? s->blocks : BENCH_TOPK;
  const int64_t rows = s->form != BENCH_ARRAY && s->rows > 2 ? 2 : s->rows;
  m3idx_context *ref = open_backend("ref", NULL, 0, reason);
  void *want = malloc((size_t)(rows * s->heads * width) * 4);
  int bad = !ref || !want;
  if (!bad) {
    const m3idx_status status =
        s->form == BENCH_ARRAY ? reference_select(ref, w, rows, want) : reference(ref, c->entry, w, rows, want);
    bad = status != M3IDX_OK;
    if (bad) snprintf(reason, BENCH_REASON_BYTES, "%.*s", BENCH_REASON_BYTES - 1, m3idx_message(ref));
  }
  if (!bad && c->run(c, w)) {
    snprintf(reason, BENCH_REASON_BYTES, "%.*s", BENCH_REASON_BYTES - 1, m3idx_message(c->ctx));
    bad = 1;
  }
  if (!bad) bad = compare(c, w, rows, width, want, c->entry->kind == BENCH_SCORE ? (void *)w->score : w->ids, reason);
  free(want);
  m3idx_close(ref);
  return bad ? -1 : 0;
}
