/* SPDX-License-Identifier: Apache-2.0
 *
 * Backends that lie on purpose, one lie each, around ref: the conformance harness must be red on every one, and green
 * on the two that are honest.  selftest.sh says which case shows each lie and what the harness must say of it.
 *
 * "Device memory" here is host memory that only counts as the device's, so that the harness's second mode is judged on
 * any machine.
 */
#include <stdlib.h>
#include <string.h>

#include "conform_memory.h"
#include "liars.h"

/* ---- scores (S3) ---- */

static float *score_at(const m3idx_score_args *a, int64_t head, int64_t row, int64_t block) {
  return a->score + head * a->score_stride_head + row * a->score_stride_row + block;
}

static uint32_t get(const float *at) {
  uint32_t bits;
  memcpy(&bits, at, sizeof bits);
  return bits;
}

static void set(float *at, uint32_t bits) { memcpy(at, &bits, sizeof bits); }

/* The last block that row 0 of a decode sees. */
static int64_t last_block(const m3idx_batch *b) {
  return (b->seq_lens[0] - b->decode_query_len + 1 + b->block_size - 1) / b->block_size - 1;
}

static m3idx_status one_ulp(m3idx_context *ctx, const m3idx_score_args *a) {
  const m3idx_status status = m3idx_backend_ref.score(ctx, a);
  set(score_at(a, 0, 0, 1), get(score_at(a, 0, 0, 1)) + 1);
  return status;
}

static m3idx_status zero_sign(m3idx_context *ctx, const m3idx_score_args *a) {
  const m3idx_status status = m3idx_backend_ref.score(ctx, a);
  for (int64_t row = 0; row < a->batch->num_rows; row++)
    for (int64_t block = 0; block < a->batch->max_block; block++)
      if (get(score_at(a, 0, row, block)) == 0) set(score_at(a, 0, row, block), UINT32_C(0x80000000));
  return status;
}

static m3idx_status unwritten(m3idx_context *ctx, const m3idx_score_args *a) {
  const uint32_t before = get(score_at(a, 0, 0, 1));
  const m3idx_status status = m3idx_backend_ref.score(ctx, a);
  set(score_at(a, 0, 0, 1), before);
  return status;
}

static m3idx_status no_minus_inf(m3idx_context *ctx, const m3idx_score_args *a) {
  const int64_t block = a->batch->max_block - 1; /* past the row's blocks in the case that shows it */
  const uint32_t before = get(score_at(a, 0, 0, block));
  const m3idx_status status = m3idx_backend_ref.score(ctx, a);
  set(score_at(a, 0, 0, block), before);
  return status;
}

static m3idx_status guard_byte(m3idx_context *ctx, const m3idx_score_args *a) {
  const m3idx_status status = m3idx_backend_ref.score(ctx, a);
  memset(score_at(a, a->q.shape[1] - 1, a->batch->num_rows - 1, a->batch->max_block), 0, 1);
  return status;
}

static m3idx_status row_padding(m3idx_context *ctx, const m3idx_score_args *a) {
  const m3idx_status status = m3idx_backend_ref.score(ctx, a);
  set(score_at(a, 0, 0, a->batch->max_block), UINT32_C(0xff800000));
  return status;
}

static m3idx_status dropped_last(m3idx_context *ctx, const m3idx_score_args *a) {
  const m3idx_status status = m3idx_backend_ref.score(ctx, a);
  set(score_at(a, 0, 0, last_block(a->batch)), UINT32_C(0xff800000));
  return status;
}

static m3idx_status refusal_wrote(m3idx_context *ctx, const m3idx_score_args *a) {
  set(score_at(a, 0, 0, 0), 0);
  return m3idx_fail(ctx, M3IDX_UNSUPPORTED, "this head dim is not mine");
}

static m3idx_status invalid(m3idx_context *ctx, const m3idx_score_args *a) {
  (void)a;
  return m3idx_fail(ctx, M3IDX_INVALID, "I do not like this");
}

static m3idx_status wrote_input(m3idx_context *ctx, const m3idx_score_args *a) {
  unsigned char *q = a->q.data;
  q[0] = (unsigned char)(q[0] ^ 1);
  return m3idx_backend_ref.score(ctx, a);
}

static m3idx_status read_past_end(m3idx_context *ctx, const m3idx_score_args *a) {
  const volatile int32_t *lens = a->batch->seq_lens;
  const int32_t past = lens[a->batch->num_requests];
  const m3idx_status status = m3idx_backend_ref.score(ctx, a);
  return past == INT32_MIN ? M3IDX_INVALID : status;
}

/* ---- selection (S4) ---- */

static m3idx_status wrong_tie(m3idx_context *ctx, const m3idx_select_args *a) {
  m3idx_select_args other = *a;
  other.contract.tie = a->contract.tie == M3IDX_TIE_LOWER_ID ? M3IDX_TIE_HIGHER_ID : M3IDX_TIE_LOWER_ID;
  other.keys = NULL; /* the lie is in the ids */
  if (a->keys) {
    m3idx_select_args keys = *a;
    keys.topk_idx = NULL;
    m3idx_backend_ref.select(ctx, &keys);
  }
  return a->topk_idx ? m3idx_backend_ref.select(ctx, &other) : M3IDX_OK;
}

static m3idx_status swapped(m3idx_context *ctx, const m3idx_select_args *a) {
  const m3idx_status status = m3idx_backend_ref.select(ctx, a);
  if (!a->topk_idx) return status;
  const int32_t first = a->topk_idx[0];
  a->topk_idx[0] = a->topk_idx[1];
  a->topk_idx[1] = first;
  return status;
}

/* Rows end at `most` blocks, for calls with num_blocks. */
static m3idx_status truncated(m3idx_context *ctx, const m3idx_select_args *a, int32_t most) {
  int32_t *blocks = malloc((size_t)a->num_rows * sizeof *blocks + 1);
  if (!blocks) return m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory");
  for (int64_t row = 0; row < a->num_rows; row++) blocks[row] = a->num_blocks[row] < most ? a->num_blocks[row] : most;
  m3idx_select_args other = *a;
  other.num_blocks = blocks;
  const m3idx_status status = m3idx_backend_ref.select(ctx, &other);
  free(blocks);
  return status;
}

static m3idx_status truncated_128(m3idx_context *ctx, const m3idx_select_args *a) { return truncated(ctx, a, 128); }
static m3idx_status truncated_512(m3idx_context *ctx, const m3idx_select_args *a) { return truncated(ctx, a, 512); }

static m3idx_status stale_row(m3idx_context *ctx, const m3idx_select_args *a) {
  const m3idx_status status = m3idx_backend_ref.select(ctx, a);
  if (!a->topk_idx || a->num_rows < 2) return status;
  int32_t *last = a->topk_idx + (a->num_rows - 1) * a->topk_stride_row;
  memcpy(last, last - a->topk_stride_row, (size_t)a->topk * sizeof *last);
  return status;
}

static m3idx_status wrong_key(m3idx_context *ctx, const m3idx_select_args *a) {
  const m3idx_status status = m3idx_backend_ref.select(ctx, a);
  if (a->keys && a->first_block) a->keys[0]--; /* the id of a part's own column 0 */
  return status;
}

static m3idx_status dropped_part(m3idx_context *ctx, const m3idx_merge_args *a) {
  m3idx_merge_args other = *a;
  if (other.num_parts > 1) other.num_parts--;
  return m3idx_backend_ref.merge(ctx, &other);
}

static m3idx_status fused_order(m3idx_context *ctx, const m3idx_topk_args *a) {
  m3idx_topk_args other = *a;
  other.contract.order = a->contract.order == M3IDX_ORDER_ID ? M3IDX_ORDER_SCORE : M3IDX_ORDER_ID;
  return m3idx_backend_ref.topk(ctx, &other);
}

/* ---- table and cache (S5, S6) ---- */

static m3idx_status context_off(m3idx_context *ctx, const m3idx_sparse_table_args *a) {
  const m3idx_status status = m3idx_backend_ref.sparse_table(ctx, a);
  a->sparse.context_lens[0]++;
  return status;
}

static m3idx_status head_major(m3idx_context *ctx, const m3idx_sparse_table_args *a) {
  const m3idx_status status = m3idx_backend_ref.sparse_table(ctx, a);
  a->sparse.table[a->sparse.table_stride]--; /* row 0, head 1: the page of head 0 */
  return status;
}

/* A negative slot is written to slot 0, as arithmetic on unsigned would wrap it. */
static m3idx_status wrapped_slot(m3idx_context *ctx, const m3idx_cache_insert_args *a) {
  const m3idx_status status = m3idx_backend_ref.cache_insert(ctx, a);
  for (int64_t i = 0; status == M3IDX_OK && i < a->key.shape[1]; i++)
    if (a->slot_mapping[i] < 0) memset(a->cache.data, 0, m3idx_dtype_bytes(a->cache.dtype));
  return status;
}

static m3idx_status converts_all(m3idx_context *ctx, const m3idx_cache_insert_args *a) {
  const m3idx_status status = m3idx_backend_ref.cache_insert(ctx, a);
  return status == M3IDX_UNSUPPORTED ? M3IDX_OK : status;
}

/* ---- pretended device memory ---- */

static void *device_alloc(m3idx_context *ctx, size_t bytes) {
  (void)ctx;
  return calloc(1, bytes + 1);
}

static void device_free(m3idx_context *ctx, void *buffer) {
  (void)ctx;
  free(buffer);
}

static m3idx_status device_copy(m3idx_context *ctx, void *to, const void *from, size_t bytes) {
  (void)ctx;
  memcpy(to, from, bytes);
  return M3IDX_OK;
}

static m3idx_status device_plan(m3idx_context *ctx, m3idx_op op, const void *args, size_t *bytes) {
  (void)ctx;
  (void)op;
  (void)args;
  *bytes = 64;
  return M3IDX_OK;
}

/* A row of counters that is right on the first launch, and not set back. */
static m3idx_status dirty_counter(m3idx_context *ctx, const m3idx_score_args *a) {
  const m3idx_status status = m3idx_backend_ref.score(ctx, a);
  unsigned char *counter = ctx->workspace;
  if (ctx->memory == M3IDX_DEVICE_MEMORY && counter[0]++) set(score_at(a, 0, 0, 0), 0);
  return status;
}

static m3idx_status past_workspace(m3idx_context *ctx, const m3idx_score_args *a) {
  unsigned char *workspace = ctx->workspace;
  if (ctx->memory == M3IDX_DEVICE_MEMORY) workspace[ctx->workspace_bytes] = 0;
  return m3idx_backend_ref.score(ctx, a);
}

static m3idx_status wrote_device_input(m3idx_context *ctx, const m3idx_score_args *a) {
  const m3idx_status status = m3idx_backend_ref.score(ctx, a);
  unsigned char *q = a->q.data;
  if (ctx->memory == M3IDX_DEVICE_MEMORY) q[1] = (unsigned char)(q[1] ^ 1);
  return status;
}

/* ---- right bytes by way of memory that nobody wrote: only a memory checker around the harness sees it ---- */

static m3idx_status reads_unset(m3idx_context *ctx, const m3idx_score_args *a) {
  float *unset = conform_alloc(sizeof *unset);
  m3idx_status status = m3idx_backend_ref.score(ctx, a);
  if (*(volatile float *)unset > 1.0f) status = m3idx_backend_ref.score(ctx, a);
  free(unset);
  return status;
}

/* ---- the honest ones: functions of their own, for every slot ---- */

#define M3IDX_OP(op, what)                                                             \
  static m3idx_status honest_##op(m3idx_context *ctx, const m3idx_##op##_args *args) { \
    return m3idx_backend_ref.op(ctx, args);                                            \
  }
#include "ops.def"
#undef M3IDX_OP

/* ---- the table ---- */

typedef struct liar {
  const char *name;
  m3idx_backend table; /* the slots it has of its own; the others are ref's */
  int device;
} liar;

static liar liars[] = {
    {"lie:one_ulp", {.score = one_ulp}, 0},
    {"lie:zero_sign", {.score = zero_sign}, 0},
    {"lie:unwritten", {.score = unwritten}, 0},
    {"lie:no_minus_inf", {.score = no_minus_inf}, 0},
    {"lie:guard_byte", {.score = guard_byte}, 0},
    {"lie:row_padding", {.score = row_padding}, 0},
    {"lie:dropped_last", {.score = dropped_last}, 0},
    {"lie:refusal_wrote", {.score = refusal_wrote}, 0},
    {"lie:invalid", {.score = invalid}, 0},
    {"lie:wrote_input", {.score = wrote_input}, 0},
    {"lie:read_past_end", {.score = read_past_end}, 0},
    {"lie:wrong_tie", {.select = wrong_tie}, 0},
    {"lie:swapped", {.select = swapped}, 0},
    {"lie:truncated_128", {.select = truncated_128}, 0},
    {"lie:truncated_512", {.select = truncated_512}, 0},
    {"lie:stale_row", {.select = stale_row}, 0},
    {"lie:wrong_key", {.select = wrong_key}, 0},
    {"lie:dropped_part", {.merge = dropped_part}, 0},
    {"lie:fused_order", {.topk = fused_order}, 0},
    {"lie:context_off", {.sparse_table = context_off}, 0},
    {"lie:head_major", {.sparse_table = head_major}, 0},
    {"lie:wrapped_slot", {.cache_insert = wrapped_slot}, 0},
    {"lie:converts_all", {.cache_insert = converts_all}, 0},
    {"lie:dirty_counter", {.score = dirty_counter}, 1},
    {"lie:past_workspace", {.score = past_workspace}, 1},
    {"lie:wrote_device_input", {.score = wrote_device_input}, 1},
    {"unset", {.score = reads_unset}, 0},
#define HONEST                                                                                  \
  {                                                                                             \
    .score = honest_score, .select = honest_select, .merge = honest_merge, .topk = honest_topk, \
    .sparse_table = honest_sparse_table, .cache_insert = honest_cache_insert                    \
  }
    {"honest:host", HONEST, 0},
    {"honest:device", HONEST, 1},
};
enum { LIARS = sizeof liars / sizeof *liars };

/* What a liar does not lie about it has from ref. */
static void complete(liar *l) {
  m3idx_backend *t = &l->table;
  t->abi = M3IDX_BACKEND_ABI;
  t->name = l->name;
  t->open = m3idx_backend_ref.open;
  t->close = m3idx_backend_ref.close;
#define M3IDX_OP(op, what) \
  if (!t->op) t->op = m3idx_backend_ref.op;
#include "ops.def"
#undef M3IDX_OP
  if (!l->device) return;
  t->alloc = device_alloc;
  t->free = device_free;
  t->upload = device_copy;
  t->download = device_copy;
  t->plan = device_plan;
}

int liars_list(conform_backend *out) {
  for (int i = 0; i < LIARS; i++) {
    complete(&liars[i]);
    out[i] = (conform_backend){liars[i].name, &liars[i].table};
  }
  return LIARS;
}
