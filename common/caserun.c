/* SPDX-License-Identifier: Apache-2.0
 *
 * A case's descriptors, and its run: the op on a context, then its outputs added to the file (docs/CASES.md).
 * Outputs are dense.  Nothing is added unless every step succeeded.
 */
#include <stdlib.h>
#include <string.h>

#include "case.h"

void case_batch(const m3idx_case *c, m3idx_batch *batch) {
  *batch = (m3idx_batch){
      .mode = c->op == CASE_DECODE ? M3IDX_DECODE : M3IDX_PREFILL,
      .num_requests = c->R,
      .num_rows = c->T,
      .max_block = c->M,
      .block_size = c->B,
      .decode_query_len = c->op == CASE_DECODE ? c->decode_query_len : 0,
      .seq_lens = c->seq_lens,
      .cu_seqlens = c->cu_seqlens,
      .prefix_lens = c->prefix_lens,
  };
}

/* Case tensors are owned as writable memory; the library does not write to its inputs. */
static m3idx_tensor dense(const void *data, m3idx_dtype dtype, int64_t a, int64_t b, int64_t c) {
  m3idx_tensor t = {.dtype = dtype, .shape = {a, b, c}, .stride = {b * c, c, 1}};
  memcpy(&t.data, &data, sizeof data);
  return t;
}

void case_score_args(const m3idx_case *c, const m3idx_batch *batch, m3idx_score_args *args) {
  bool forced = c->op == CASE_DECODE; /* S3.7: prefill scores stay pure */
  *args = (m3idx_score_args){
      .batch = batch,
      .q = dense(c->q, c->q_dtype, c->T, c->H, c->D),
      .index_k = dense(c->index_k, c->k_dtype, c->P, c->B, c->D),
      .block_table = c->block_table,
      .block_table_stride = c->block_table_stride,
      .scale = c->scale,
      .init_blocks = forced ? c->init_blocks : 0,
      .local_blocks = forced ? c->local_blocks : 0,
  };
}

void case_topk_args(const m3idx_case *c, const m3idx_batch *batch, m3idx_topk_args *args) {
  *args = (m3idx_topk_args){
      .batch = batch,
      .q = dense(c->q, c->q_dtype, c->T, c->H, c->D),
      .index_k = dense(c->index_k, c->k_dtype, c->P, c->B, c->D),
      .block_table = c->block_table,
      .block_table_stride = c->block_table_stride,
      .scale = c->scale,
      .init_blocks = c->init_blocks,
      .local_blocks = c->local_blocks,
      .topk = c->K,
      .contract = c->contract,
  };
}

void case_select_args(const m3idx_case *c, const m3idx_batch *batch, m3idx_select_args *args) {
  bool forced = c->op != CASE_DECODE; /* S3.7: decode scores hold the forced values already */
  *args = (m3idx_select_args){
      .batch = c->op == CASE_SELECT ? NULL : batch,
      .num_blocks = c->op == CASE_SELECT ? c->num_blocks : NULL,
      .num_heads = c->H,
      .num_rows = c->T,
      .max_block = c->M,
      .score = c->score,
      .init_blocks = forced ? c->init_blocks : 0,
      .local_blocks = forced ? c->local_blocks : 0,
      .topk = c->K,
      .contract = c->contract,
  };
}

void case_sparse_out(const m3idx_case *c, m3idx_sparse_out *out) {
  bool own = c->attention_block_table != NULL;
  *out = (m3idx_sparse_out){
      .block_table = own ? c->attention_block_table : c->block_table,
      .block_table_stride = own ? c->attention_block_table_stride : c->block_table_stride,
      .page_stride = c->page_stride,
  };
}

/* The four outputs of a run, kept apart from the file until all of them are right. */
typedef struct outputs {
  case_file file;
  float *score;
  int32_t *topk_idx, *table, *context_lens;
} outputs;

static void *add(outputs *o, const char *name, case_dtype dtype, int rank, const int64_t *shape) {
  case_tensor *t = case_add_tensor(&o->file, name, dtype, rank, shape);
  return t ? t->data : NULL;
}

static bool allocate(const m3idx_case *c, bool with_score, outputs *o) {
  bool good = (o->topk_idx = add(o, "topk_idx", CASE_I32, 3, (int64_t[]){c->H, c->T, c->K})) != NULL;
  if (with_score && c->op != CASE_SELECT)
    good = good && (o->score = add(o, "score", CASE_F32, 3, (int64_t[]){c->H, c->T, c->M})) != NULL;
  if (c->sparse_table) {
    int64_t rows = c->T * c->H;
    good = good && (o->table = add(o, "sparse_block_table", CASE_I32, 2, (int64_t[]){rows, 8 * c->K})) != NULL &&
           (o->context_lens = add(o, "sparse_context_lens", CASE_I32, 1, &rows)) != NULL;
  }
  return good;
}

static m3idx_status run_fused(m3idx_context *ctx, const m3idx_case *c, const m3idx_batch *batch, outputs *o) {
  m3idx_sparse_out sparse;
  m3idx_topk_args args;
  case_sparse_out(c, &sparse);
  sparse.table = o->table;
  sparse.context_lens = o->context_lens;
  case_topk_args(c, batch, &args);
  args.topk_idx = o->topk_idx;
  args.sparse = c->sparse_table ? &sparse : NULL;
  return m3idx_topk(ctx, &args);
}

static m3idx_status run_steps(m3idx_context *ctx, const m3idx_case *c, const m3idx_batch *batch, outputs *o) {
  m3idx_status status = M3IDX_OK;
  m3idx_select_args select;
  case_select_args(c, batch, &select);
  if (c->op != CASE_SELECT) {
    m3idx_score_args score;
    case_score_args(c, batch, &score);
    score.score = o->score;
    select.score = o->score;
    status = m3idx_score(ctx, &score);
  }
  select.topk_idx = o->topk_idx;
  if (status == M3IDX_OK) status = m3idx_select(ctx, &select);
  if (status != M3IDX_OK || !c->sparse_table) return status;
  m3idx_sparse_table_args table = {.batch = batch, .num_heads = c->H, .topk = c->K, .topk_idx = o->topk_idx};
  case_sparse_out(c, &table.sparse);
  table.sparse.table = o->table;
  table.sparse.context_lens = o->context_lens;
  return m3idx_sparse_table(ctx, &table);
}

/* Move the outputs into file; those of an earlier run go.  Room is made first, so that it cannot half happen. */
static bool deliver(const m3idx_case *c, case_file *file, outputs *o) {
  static const char *const names[] = {"score", "topk_idx", "sparse_block_table", "sparse_context_lens"};
  size_t room = (size_t)(file->num_tensors + o->file.num_tensors);
  case_tensor *grown = realloc(file->tensors, room * sizeof *grown);
  if (!grown) return false;
  file->tensors = grown;
  for (size_t i = c->op == CASE_SELECT; i < sizeof names / sizeof *names; i++) case_remove_tensor(file, names[i]);
  for (int64_t i = 0; i < o->file.num_tensors; i++) grown[file->num_tensors++] = o->file.tensors[i];
  o->file.num_tensors = 0;
  return true;
}

m3idx_status case_run(m3idx_context *ctx, case_file *file, bool with_score, char *why) {
  m3idx_case c;
  m3idx_batch batch;
  outputs o = {0};
  if (case_view(file, &c, why)) return M3IDX_INVALID;
  case_batch(&c, &batch);
  m3idx_status status = M3IDX_NO_MEMORY;
  snprintf(why, CASE_MESSAGE_BYTES, "no memory for the outputs of %lld rows, %lld heads, %lld blocks", (long long)c.T,
           (long long)c.H, (long long)c.M);
  if (allocate(&c, with_score, &o)) {
    bool fused = !with_score && c.op != CASE_SELECT;
    status = fused ? run_fused(ctx, &c, &batch, &o) : run_steps(ctx, &c, &batch, &o);
    if (status != M3IDX_OK)
      snprintf(why, CASE_MESSAGE_BYTES, "%s", m3idx_message(ctx));
    else if (!deliver(&c, file, &o))
      status = M3IDX_NO_MEMORY;
  }
  case_file_free(&o.file);
  return status;
}
