/* SPDX-License-Identifier: Apache-2.0
 *
 * Each call as a descriptor with its inputs and outputs named, so that one runner serves host and device memory.
 */
#include "conform_calls.h"

#include <stdlib.h>
#include <string.h>

#include "casedata.h"
#include "geometry.h"

typedef struct maker {
  m3idx_context *ref;
  const conform_case *k;
  int (*judge)(conform_call *call, void *user);
  void *user;
  char *why;
} maker;

static conform_call begin(const maker *m, const char *variant, m3idx_op op) {
  return (conform_call){.on = m->k, .variant = variant, .op = op, .batch = m->k->batch};
}

/* A pointer argument of any pointee type, which must have been set to the input's data. */
static void take(conform_call *call, const conform_input *input, void *at) {
  memcpy(at, &input->data, sizeof input->data);
  call->inputs[call->num_inputs++] = (conform_argument){input, at};
}

static void take_batch(conform_call *call) {
  const conform_case *k = call->on;
  take(call, &k->seq_lens, &call->batch.seq_lens);
  if (k->c.op != CASE_PREFILL) return;
  take(call, &k->cu_seqlens, &call->batch.cu_seqlens);
  take(call, &k->prefix_lens, &call->batch.prefix_lens);
}

/* An output of rows [outer][rows][width], with padding after each row; transposed: rows of the outer dimension lie side
 * by side. */
static conform_output *give(conform_call *call, const char *name, conform_kind kind, const int64_t shape[3],
                            bool transposed, size_t element_bytes, const void *want, void *at) {
  conform_output *out = &call->outputs[call->num_outputs++];
  *out = (conform_output){.name = name, .kind = kind, .element_bytes = element_bytes, .want = want, .at = at};
  memcpy(out->shape, shape, sizeof out->shape);
  const int64_t padded = shape[2] + 3;
  out->stride[2] = 1;
  out->stride[1] = transposed ? shape[0] * padded + 2 : padded;
  out->stride[0] = transposed ? padded : shape[1] * padded + 5;
  return out;
}

static void densify(conform_output *out) {
  out->stride[1] = out->shape[2];
  out->stride[0] = out->shape[1] * out->shape[2];
}

/* A dense [n0][n1][n2] array laid out with other strides; what lies between is poison. */
static void lay_out(conform_input *input, const char *name, const void *from, size_t element_bytes,
                    const int64_t shape[3], const int64_t stride[3]) {
  size_t elements = 1;
  for (int i = 0; i < 3; i++) elements += shape[i] ? (size_t)((shape[i] - 1) * stride[i]) : 0;
  if (shape[0] * shape[1] * shape[2] == 0) elements = 0;
  unsigned char *to = conform_input_make(input, name, elements * element_bytes);
  const unsigned char *next = from;
  for (int64_t a = 0; a < shape[0]; a++)
    for (int64_t b = 0; b < shape[1]; b++)
      for (int64_t c = 0; c < shape[2]; c++, next += element_bytes)
        memcpy(to + (size_t)(a * stride[0] + b * stride[1] + c * stride[2]) * element_bytes, next, element_bytes);
  conform_input_seal(input);
}

static void lay_out_tensor(conform_input *input, const char *name, m3idx_tensor *t) {
  const void *dense = t->data;
  lay_out(input, name, dense, m3idx_dtype_bytes(t->dtype), t->shape, t->stride);
}

static const char *weak_keys(const conform_case *k) { return k->most_keys ? NULL : "no row sees a key"; }
static const char *weak_choice(const conform_case *k) {
  return k->most_blocks > 1 ? NULL : "no row sees two blocks, so nothing is chosen or ordered";
}

/* ---- score ---- */

/* q with the head dim outermost and keys with a gap after every element, as a view of something larger would lie. */
static int score(const maker *m, bool strided) {
  const conform_case *k = m->k;
  conform_call call = begin(m, strided ? "score, strided inputs" : "score", M3IDX_OP_score);
  m3idx_score_args *a = &call.args.score;
  conform_input q = {0}, index_k = {0};
  case_score_args(&k->c, &call.batch, a);
  if (strided) {
    memcpy(a->q.stride, (int64_t[]){a->q.shape[1] + 1, 1, a->q.shape[0] * (a->q.shape[1] + 1)}, sizeof a->q.stride);
    memcpy(a->index_k.stride, (int64_t[]){k->c.B * (2 * k->c.D + 3) + 7, 2 * k->c.D + 3, 2}, sizeof a->index_k.stride);
    lay_out_tensor(&q, "q", &a->q);
    lay_out_tensor(&index_k, "index_k", &a->index_k);
  }
  take_batch(&call);
  take(&call, strided ? &q : &k->q, &a->q.data);
  take(&call, strided ? &index_k : &k->index_k, &a->index_k.data);
  take(&call, &k->block_table, &a->block_table);
  const conform_output *out = give(&call, "score", CONFORM_SCORE, (int64_t[]){k->c.H, k->c.T, k->c.M}, strided,
                                   sizeof(float), k->want_score, &a->score);
  a->score_stride_head = out->stride[0];
  a->score_stride_row = out->stride[1];
  call.weak = weak_keys(k);
  const int stop = m->judge(&call, m->user);
  conform_input_free(&q);
  conform_input_free(&index_k);
  return stop;
}

/* ---- select and merge ---- */

static conform_output *give_ids(conform_call *call, bool transposed, void *at, int64_t *stride_head,
                                int64_t *stride_row) {
  const conform_case *k = call->on;
  conform_output *out = give(call, "topk_idx", CONFORM_IDS, (int64_t[]){k->c.H, k->c.T, k->c.K}, transposed,
                             sizeof(int32_t), k->want_ids, at);
  *stride_head = out->stride[0];
  *stride_row = out->stride[1];
  return out;
}

static void give_keys(conform_call *call, const char *name, const uint64_t *want, void *at) {
  const m3idx_case *c = &call->on->c;
  densify(give(call, name, CONFORM_KEYS, (int64_t[]){c->H, c->T, c->K}, false, sizeof(uint64_t), want, at));
}

/* The scores of columns first .. first + count - 1, rows padded. */
static void lay_out_scores(conform_input *input, const conform_case *k, int64_t first, int64_t count,
                           m3idx_select_args *a) {
  const float *from = k->c.op == CASE_SELECT ? k->c.score : k->want_score;
  const int64_t rows = k->c.H * k->c.T, stride = count + 1;
  unsigned char *to =
      conform_input_make(input, "score", rows ? (size_t)((rows - 1) * stride + count) * sizeof(float) : 0);
  for (int64_t row = 0; row < rows && count; row++)
    memcpy(to + (size_t)(row * stride) * sizeof(float), from + row * k->c.M + first, (size_t)count * sizeof(float));
  conform_input_seal(input);
  a->max_block = count;
  a->first_block = first;
  a->score_stride_row = stride;
  a->score_stride_head = k->c.T * stride;
}

static void take_lengths(conform_call *call) {
  if (call->on->c.op == CASE_SELECT)
    take(call, &call->on->num_blocks, &call->args.select.num_blocks);
  else
    take_batch(call);
}

static int select_whole(const maker *m) {
  const conform_case *k = m->k;
  conform_call call = begin(m, "select", M3IDX_OP_select);
  m3idx_select_args *a = &call.args.select;
  conform_input scores = {0};
  case_select_args(&k->c, &call.batch, a);
  lay_out_scores(&scores, k, 0, k->c.M, a);
  take_lengths(&call);
  take(&call, &scores, &a->score);
  give_ids(&call, true, &a->topk_idx, &a->topk_stride_head, &a->topk_stride_row);
  give_keys(&call, "keys", k->want_keys, &a->keys);
  call.weak = weak_choice(k);
  call.score = k->c.op == CASE_SELECT ? k->c.score : k->want_score;
  const int stop = m->judge(&call, m->user);
  conform_input_free(&scores);
  return stop;
}

/* Keys of one part; ref's are left in `want`. */
static int select_part(const maker *m, m3idx_range part, uint64_t *want) {
  const conform_case *k = m->k;
  conform_call call = begin(m, "select, keys of a part", M3IDX_OP_select);
  m3idx_select_args *a = &call.args.select;
  conform_input scores = {0};
  case_select_args(&k->c, &call.batch, a);
  lay_out_scores(&scores, k, part.begin, part.end - part.begin, a);
  take_lengths(&call);
  take(&call, &scores, &a->score);
  a->keys = want;
  int stop = m3idx_select(m->ref, a) != M3IDX_OK ? -1 : 0;
  if (stop) snprintf(m->why, CASE_MESSAGE_BYTES, "ref: keys of a part: %.400s", m3idx_message(m->ref));
  a->keys = NULL;
  give_keys(&call, "keys", want, &a->keys);
  call.weak = weak_choice(k);
  if (!stop) stop = m->judge(&call, m->user);
  conform_input_free(&scores);
  return stop;
}

/* S4.5: the keys of parts, ref's, are those of the whole once merged. */
static int merge(const maker *m, int64_t num_parts, const uint64_t *keys) {
  const conform_case *k = m->k;
  const int64_t one = k->c.H * k->c.T * k->c.K;
  conform_call call = begin(m, "merge", M3IDX_OP_merge);
  m3idx_merge_args *a = &call.args.merge;
  conform_input parts = {0};
  *a = (m3idx_merge_args){.num_parts = num_parts,
                          .num_heads = k->c.H,
                          .num_rows = k->c.T,
                          .topk = k->c.K,
                          .contract = k->c.contract,
                          .keys_stride_part = one + 3};
  lay_out(&parts, "keys", keys, sizeof *keys, (int64_t[]){1, num_parts, one}, (int64_t[]){0, one + 3, 1});
  take(&call, &parts, &a->keys);
  give_ids(&call, false, &a->topk_idx, &a->topk_stride_head, &a->topk_stride_row);
  give_keys(&call, "merged_keys", k->want_keys, &a->merged_keys);
  call.weak = weak_choice(k);
  call.score = k->c.op == CASE_SELECT ? k->c.score : k->want_score;
  const int stop = m->judge(&call, m->user);
  conform_input_free(&parts);
  return stop;
}

static int no_judge(conform_call *call, void *user) {
  (void)call;
  (void)user;
  return 0;
}

/* The blocks in the chunks of a selector launch (S8.1, S8.2), or in strides as shards own them, and one empty part. */
static int parts(const maker *m, unsigned ops, int64_t num_parts, bool strides) {
  const conform_case *k = m->k;
  const int32_t n = (int32_t)k->c.M, count = (int32_t)num_parts;
  const int64_t one = k->c.H * k->c.T * k->c.K;
  uint64_t *keys = conform_alloc((size_t)(one * num_parts) * sizeof *keys);
  int stop = 0;
  for (int32_t p = 0; p < count && !stop; p++) {
    const m3idx_range part = strides ? m3idx_score_part(n, count, p) : m3idx_topk_chunk(n, count, p);
    conform_poison(keys + p * one, (size_t)one * sizeof *keys, sizeof *keys);
    maker quiet = *m;
    if (!(ops >> M3IDX_OP_select & 1)) quiet.judge = no_judge;
    stop = select_part(&quiet, part, keys + p * one);
  }
  if (!stop && ops >> M3IDX_OP_merge & 1) stop = merge(m, num_parts, keys);
  free(keys);
  return stop;
}

static int selections(const maker *m, unsigned ops) {
  const m3idx_case *c = &m->k->c;
  int stop = ops >> M3IDX_OP_select & 1 ? select_whole(m) : 0;
  uint32_t done = 0; /* bit n: n chunks, which are at most 16; architectures often agree */
  for (int arch = M3IDX_ARCH_OTHER; arch <= M3IDX_GFX950 && !stop; arch++) {
    m3idx_decode_topk_geometry g;
    if (m3idx_decode_topk_policy(c->M, c->T, c->H, c->K, (m3idx_arch)arch, &g) != M3IDX_OK) continue;
    const int32_t active = m3idx_topk_active((int32_t)c->M, (int32_t)g.chunks, (int32_t)g.block);
    if (!(done >> active & 1)) stop = parts(m, ops, active, false);
    done |= UINT32_C(1) << active;
  }
  return stop ? stop : parts(m, ops, 3, true);
}

/* ---- fused, table, insertion ---- */

static void sparse_out(conform_call *call, m3idx_sparse_out *s, const int32_t *want_table,
                       const int32_t *want_context) {
  const conform_case *k = call->on;
  const int64_t lines = k->c.T * k->c.H;
  case_sparse_out(&k->c, s);
  take(call, k->c.attention_block_table ? &k->attention_block_table : &k->block_table, &s->block_table);
  const conform_output *table = give(call, "sparse_table", CONFORM_TABLE, (int64_t[]){1, lines, 8 * k->c.K}, false,
                                     sizeof(int32_t), want_table, &s->table);
  s->table_stride = table->stride[1];
  densify(give(call, "context_lens", CONFORM_CONTEXT, (int64_t[]){1, 1, lines}, false, sizeof(int32_t), want_context,
               &s->context_lens));
}

/* Rows of q and tokens of keys padded, as slices of larger tensors. */
static int fused(const maker *m) {
  const conform_case *k = m->k;
  conform_call call = begin(m, k->c.sparse_table ? "topk with table" : "topk", M3IDX_OP_topk);
  m3idx_topk_args *a = &call.args.topk;
  conform_input q = {0}, index_k = {0};
  case_topk_args(&k->c, &call.batch, a);
  const int64_t width = k->c.D + 16;
  memcpy(a->q.stride, (int64_t[]){k->c.H * width, width, 1}, sizeof a->q.stride);
  memcpy(a->index_k.stride, (int64_t[]){k->c.B * width + 16, width, 1}, sizeof a->index_k.stride);
  lay_out_tensor(&q, "q", &a->q);
  lay_out_tensor(&index_k, "index_k", &a->index_k);
  take_batch(&call);
  take(&call, &q, &a->q.data);
  take(&call, &index_k, &a->index_k.data);
  take(&call, &k->block_table, &a->block_table);
  give_ids(&call, false, &a->topk_idx, &a->topk_stride_head, &a->topk_stride_row);
  if (k->c.sparse_table) {
    a->sparse = &call.sparse;
    sparse_out(&call, &call.sparse, k->want_table, k->want_context);
  }
  call.weak = weak_choice(k);
  call.score = k->want_score;
  const int stop = m->judge(&call, m->user);
  conform_input_free(&q);
  conform_input_free(&index_k);
  return stop;
}

/* Ids that no selection gives: out of range on both sides, past the row, repeated (S5.2, S5.3). */
static void scramble(const conform_case *k, int32_t *ids) {
  static const int32_t odd[] = {-1, INT32_MIN, INT32_MAX};
  enum { STREAM = 101 };
  const uint64_t key = case_word(k->seed, STREAM);
  for (int64_t i = 0; i < k->c.H * k->c.T * k->c.K; i++) {
    const uint64_t word = case_word(key, (uint64_t)i), blocks = (uint64_t)k->rows[i / k->c.K % k->c.T].blocks;
    ids[i] = word % 9 < 3 ? odd[word % 9] : (int32_t)((word >> 8) % (blocks + 2));
  }
}

static int judge_table(const maker *m, const char *variant, const int32_t *ids_dense, const int32_t *want_table,
                       const int32_t *want_context) {
  const conform_case *k = m->k;
  conform_call call = begin(m, variant, M3IDX_OP_sparse_table);
  m3idx_sparse_table_args *a = &call.args.sparse_table;
  conform_input ids = {0};
  *a = (m3idx_sparse_table_args){.batch = &call.batch, .num_heads = k->c.H, .topk = k->c.K};
  a->topk_stride_row = k->c.K + 1;
  a->topk_stride_head = k->c.T * a->topk_stride_row;
  lay_out(&ids, "topk_idx", ids_dense, sizeof(int32_t), (int64_t[]){k->c.H, k->c.T, k->c.K},
          (int64_t[]){a->topk_stride_head, a->topk_stride_row, 1});
  take_batch(&call);
  take(&call, &ids, &a->topk_idx);
  sparse_out(&call, &a->sparse, want_table, want_context);
  call.weak = k->most_blocks ? NULL : "no row sees a block";
  const int stop = m->judge(&call, m->user);
  conform_input_free(&ids);
  return stop;
}

static int table(const maker *m) {
  const conform_case *k = m->k;
  const int64_t lines = k->c.T * k->c.H;
  int stop = judge_table(m, "sparse_table", k->want_ids, k->want_table, k->want_context);
  if (stop) return stop;
  int32_t *ids = conform_alloc((size_t)(lines * k->c.K) * sizeof *ids);
  int32_t *want_table = conform_alloc((size_t)(lines * 8 * k->c.K) * sizeof *want_table);
  int32_t *want_context = conform_alloc((size_t)lines * sizeof *want_context);
  m3idx_sparse_table_args a = {.batch = &k->batch, .num_heads = k->c.H, .topk = k->c.K, .topk_idx = ids};
  scramble(k, ids);
  case_sparse_out(&k->c, &a.sparse);
  a.sparse.table = want_table;
  a.sparse.context_lens = want_context;
  stop = m3idx_sparse_table(m->ref, &a) == M3IDX_OK ? 0 : -1;
  if (stop) snprintf(m->why, CASE_MESSAGE_BYTES, "ref: sparse_table: %.400s", m3idx_message(m->ref));
  if (!stop) stop = judge_table(m, "sparse_table, odd ids", ids, want_table, want_context);
  free(ids);
  free(want_table);
  free(want_context);
  return stop;
}

/* S6: q's rows as keys.  Pairs of formats that have no conversion must be refused. */
static int insert(const maker *m) {
  const conform_case *k = m->k;
  conform_insert in = conform_insert_make(k->seed, &k->c);
  conform_call call = begin(m, "cache_insert", M3IDX_OP_cache_insert);
  m3idx_cache_insert_args *a = &call.args.cache_insert;
  conform_input keys = {0}, slots = {0};
  const size_t element = m3idx_dtype_bytes(in.cache_dtype), bytes = (size_t)(in.P * in.B * in.D) * element;
  unsigned char *want = conform_alloc(bytes);
  conform_poison(want, bytes, element);
  a->key = (m3idx_tensor){.dtype = in.key_dtype, .shape = {1, in.n, in.D}, .stride = {0, in.D + 3, 1}};
  lay_out(&keys, "key", in.keys, m3idx_dtype_bytes(in.key_dtype), a->key.shape, a->key.stride);
  conform_input_copy(&slots, "slot_mapping", in.slots, (size_t)in.n * sizeof *in.slots);
  take(&call, &keys, &a->key.data);
  take(&call, &slots, &a->slot_mapping);
  a->cache = (m3idx_tensor){.dtype = in.cache_dtype, .shape = {in.P, in.B, in.D}, .data = want};
  call.status = m3idx_cache_insert(m->ref, a);
  const conform_output *out = give(&call, "cache", CONFORM_CACHE, a->cache.shape, false, element, want, &a->cache.data);
  memcpy(a->cache.stride, out->stride, sizeof a->cache.stride);
  call.weak = in.n > 0 ? NULL : "no key to insert";
  int stop = call.status == M3IDX_OK || call.status == M3IDX_UNSUPPORTED ? 0 : -1;
  if (stop) snprintf(m->why, CASE_MESSAGE_BYTES, "ref: cache_insert: %.400s", m3idx_message(m->ref));
  if (!stop) stop = m->judge(&call, m->user);
  conform_input_free(&keys);
  conform_input_free(&slots);
  free(in.slots);
  free(want);
  return stop;
}

int conform_each_call(m3idx_context *ref, const conform_case *k, unsigned ops,
                      int (*judge)(conform_call *call, void *user), void *user, char *why) {
  const maker m = {ref, k, judge, user, why};
  int stop = 0;
  if (k->c.op != CASE_SELECT && ops >> M3IDX_OP_score & 1) {
    stop = score(&m, false);
    if (!stop) stop = score(&m, true);
  }
  if (!stop && ops & (1u << M3IDX_OP_select | 1u << M3IDX_OP_merge)) stop = selections(&m, ops);
  if (k->c.op == CASE_SELECT) return stop;
  if (!stop && ops >> M3IDX_OP_topk & 1) stop = fused(&m);
  if (!stop && k->want_table && ops >> M3IDX_OP_sparse_table & 1) stop = table(&m);
  if (!stop && ops >> M3IDX_OP_cache_insert & 1) stop = insert(&m);
  return stop;
}

m3idx_status conform_invoke(m3idx_context *ctx, const conform_call *call) {
  switch (call->op) {
#define M3IDX_OP(name, what) \
  case M3IDX_OP_##name:      \
    return m3idx_##name(ctx, &call->args.name);
#include "ops.def"
#undef M3IDX_OP
  case M3IDX_OP_COUNT: break;
  }
  return M3IDX_INVALID;
}
