/* SPDX-License-Identifier: Apache-2.0
 *
 * The door (S7.1): one check for each operation.  Copies the arguments, fills in their defaults and judges
 * every one, before anything is written.  Shared parts are in check_parts.c and check_batch.c.
 *
 * With device memory nothing is followed: contents (lengths, page ids, slots, keys) are then the caller's word.
 */
#include <inttypes.h>
#include <stdalign.h>

#include "check_parts.h"

#define INVALID(...) (m3idx_fail(ctx, M3IDX_INVALID, __VA_ARGS__), false)

enum { PAGES_PER_BLOCK = 8 }; /* S5.1: attention pages of 16 tokens in a block of 128 */

static m3idx_status verdict(bool good) { return good ? M3IDX_OK : M3IDX_INVALID; }

/* ---- parts of several operations ---- */

static bool counts(m3idx_context *ctx, int64_t num_heads, int64_t num_rows) {
  return check_range(ctx, "num_heads", num_heads, 1, CHECK_MAX_COUNT) &&
         check_range(ctx, "num_rows", num_rows, 0, CHECK_MAX_COUNT);
}

static bool topk_range(m3idx_context *ctx, int64_t topk) { return check_range(ctx, "topk", topk, 1, 128); }

static bool forced(m3idx_context *ctx, int64_t init_blocks, int64_t local_blocks) {
  return check_range(ctx, "init_blocks", init_blocks, 0, INT64_MAX) &&
         check_range(ctx, "local_blocks", local_blocks, 0, INT64_MAX);
}

static bool head_dim(m3idx_context *ctx, const char *name, int64_t d) {
  if (!check_range(ctx, name, d, 16, 256)) return false;
  return d % 16 == 0 || INVALID("%s = %" PRId64 " is not a multiple of 16", name, d);
}

/* q, index_k and the table that leads from one to the other. */
static bool queries(m3idx_context *ctx, check_buffers *buffers, const m3idx_batch *batch, m3idx_tensor *q,
                    m3idx_tensor *k, const int32_t *table, int64_t *table_stride) {
  if (!check_equal(ctx, "q.shape[0]", q->shape[0], "num_rows", batch->num_rows) ||
      !check_range(ctx, "q.shape[1]", q->shape[1], 1, CHECK_MAX_COUNT) || !head_dim(ctx, "q.shape[2]", q->shape[2]) ||
      !check_tensor(ctx, buffers, "q", q, false))
    return false;
  if (!check_equal(ctx, "index_k.shape[1]", k->shape[1], "block_size", batch->block_size) ||
      !check_equal(ctx, "index_k.shape[2]", k->shape[2], "q.shape[2]", q->shape[2]) ||
      !check_tensor(ctx, buffers, "index_k", k, false))
    return false;
  return check_block_table(ctx, buffers, batch, "block_table", table, table_stride, k->shape[0] - 1,
                           "the pages of index_k");
}

/* A [H][T][width] array of 4-byte elements; the rows of an output must not meet. */
static bool rows(m3idx_context *ctx, check_buffers *buffers, const char *name, const void *data, int64_t heads,
                 int64_t num_rows, int64_t width, int64_t stride_head, int64_t stride_row, bool output) {
  const check_view v = {name,  data, 4, alignof(int32_t), {heads, num_rows, width}, {stride_head, stride_row, 1},
                        output};
  return check_view_add(ctx, buffers, &v) && (!output || check_rows_apart(ctx, name, v.shape, v.stride));
}

/* Dense [H][T][K] keys. */
static bool keys_out(m3idx_context *ctx, check_buffers *buffers, const char *name, const uint64_t *keys, int64_t heads,
                     int64_t num_rows, int64_t topk) {
  const check_view v = {
      name, keys, sizeof *keys, alignof(uint64_t), {heads, num_rows, topk}, {num_rows * topk, topk, 1}, true};
  return check_view_add(ctx, buffers, &v);
}

static bool topk_strides(m3idx_context *ctx, int64_t *head, int64_t *row, int64_t num_rows, int64_t topk) {
  return check_strides(ctx, "topk_stride_head", "topk_stride_row", head, row, num_rows, "topk", topk);
}

/* S5.1: the largest page whose last id, (page * page_stride + 7) * H + H - 1, is an int32; -1 = none. */
static int64_t last_sparse_page(int64_t page_stride, int64_t heads) {
  const int64_t room = (INT32_MAX - (heads - 1)) / heads - (PAGES_PER_BLOCK - 1);
  return room < 0 ? -1 : room / page_stride;
}

static bool sparse_out(m3idx_context *ctx, check_buffers *buffers, const m3idx_batch *batch, m3idx_sparse_out *s,
                       int64_t heads, int64_t topk) {
  const int64_t lines = batch->num_rows * heads; /* <= 2^62 */
  if (batch->block_size != 128)
    return INVALID("block_size = %" PRId64 " must be 128 for a page-16 sparse table", batch->block_size);
  if (s->page_stride == 0) s->page_stride = 8;
  if (s->page_stride != 8 && s->page_stride != 16)
    return INVALID("sparse.page_stride = %" PRId64 " is neither 8 nor 16", s->page_stride);
  if (s->table_stride == 0) s->table_stride = PAGES_PER_BLOCK * topk;
  return check_block_table(ctx, buffers, batch, "sparse.block_table", s->block_table, &s->block_table_stride,
                           last_sparse_page(s->page_stride, heads), "the pages whose ids fit int32") &&
         check_at_least(ctx, "sparse.table_stride", s->table_stride, "8 * topk", PAGES_PER_BLOCK * topk) &&
         rows(ctx, buffers, "sparse.table", s->table, 1, lines, PAGES_PER_BLOCK * topk, 0, s->table_stride, true) &&
         rows(ctx, buffers, "sparse.context_lens", s->context_lens, 1, 1, lines, 0, 0, true);
}

/* ---- operations ---- */

m3idx_status m3idx_check_score(m3idx_context *ctx, const m3idx_score_args *args, m3idx_resolved *out) {
  check_buffers buffers = {0};
  m3idx_score_args *a = &out->args.score;
  const m3idx_batch *batch = &out->batch;
  if (!check_given(ctx, "args", args)) return M3IDX_INVALID;
  *a = *args;
  if (!check_batch(ctx, &buffers, args->batch, &out->batch) || !check_scale(ctx, &a->scale) ||
      !forced(ctx, a->init_blocks, a->local_blocks))
    return M3IDX_INVALID;
  a->batch = batch;
  if (batch->mode == M3IDX_PREFILL && (a->init_blocks || a->local_blocks)) { /* S3.7: at selection, not here */
    const bool init = a->init_blocks != 0;
    return m3idx_fail(ctx, M3IDX_INVALID, "%s = %" PRId64 " must be 0 in a prefill score",
                      init ? "init_blocks" : "local_blocks", init ? a->init_blocks : a->local_blocks);
  }
  return verdict(queries(ctx, &buffers, batch, &a->q, &a->index_k, a->block_table, &a->block_table_stride) &&
                 check_strides(ctx, "score_stride_head", "score_stride_row", &a->score_stride_head,
                               &a->score_stride_row, batch->num_rows, "max_block", batch->max_block) &&
                 rows(ctx, &buffers, "score", a->score, a->q.shape[1], batch->num_rows, batch->max_block,
                      a->score_stride_head, a->score_stride_row, true) &&
                 check_buffers_apart(ctx, &buffers, &out->nothing));
}

/* Where N comes from: exactly one of batch and num_blocks (S4.7: a live N above the columns is an error). */
static bool select_lengths(m3idx_context *ctx, check_buffers *buffers, m3idx_select_args *a, m3idx_resolved *out) {
  if (a->batch) {
    if (!check_absent(ctx, "num_blocks", a->num_blocks, "when batch is given") ||
        !check_batch(ctx, buffers, a->batch, &out->batch) ||
        !check_equal(ctx, "num_rows", a->num_rows, "batch->num_rows", out->batch.num_rows))
      return false;
    a->batch = &out->batch;
    return !a->topk_idx || check_equal(ctx, "max_block", a->max_block, "batch->max_block", out->batch.max_block);
  }
  if (!a->num_blocks && a->num_rows) return INVALID("batch and num_blocks are both NULL");
  if (!check_array_add(ctx, buffers, "num_blocks", a->num_blocks, sizeof *a->num_blocks, alignof(int32_t), a->num_rows,
                       false))
    return false;
  for (int64_t t = 0; ctx->memory == M3IDX_HOST && t < a->num_rows; t++) {
    const int32_t n = a->num_blocks[t];
    if (n < 0) return INVALID("num_blocks[%" PRId64 "] = %" PRId32 " is below 0", t, n);
    if (a->topk_idx && n > a->max_block)
      return INVALID("num_blocks[%" PRId64 "] = %" PRId32 " exceeds max_block = %" PRId64, t, n, a->max_block);
  }
  return true;
}

m3idx_status m3idx_check_select(m3idx_context *ctx, const m3idx_select_args *args, m3idx_resolved *out) {
  check_buffers buffers = {0};
  m3idx_select_args *a = &out->args.select;
  if (!check_given(ctx, "args", args)) return M3IDX_INVALID;
  *a = *args;
  if (!counts(ctx, a->num_heads, a->num_rows) || !check_range(ctx, "max_block", a->max_block, 0, CHECK_MAX_COUNT) ||
      !check_range(ctx, "first_block", a->first_block, 0, CHECK_MAX_COUNT - a->max_block) ||
      !topk_range(ctx, a->topk) || !check_contract(ctx, &a->contract) || !forced(ctx, a->init_blocks, a->local_blocks))
    return M3IDX_INVALID;
  if (a->first_block && a->topk_idx)
    return m3idx_fail(ctx, M3IDX_INVALID, "first_block = %" PRId64 " must be 0 when topk_idx is given", a->first_block);
  if (!a->topk_idx && !a->keys && a->num_rows) return m3idx_fail(ctx, M3IDX_INVALID, "topk_idx and keys are both NULL");
  if (!select_lengths(ctx, &buffers, a, out)) return M3IDX_INVALID;
  return verdict(check_strides(ctx, "score_stride_head", "score_stride_row", &a->score_stride_head,
                               &a->score_stride_row, a->num_rows, "max_block", a->max_block) &&
                 rows(ctx, &buffers, "score", a->score, a->num_heads, a->num_rows, a->max_block, a->score_stride_head,
                      a->score_stride_row, false) &&
                 topk_strides(ctx, &a->topk_stride_head, &a->topk_stride_row, a->num_rows, a->topk) &&
                 (!a->topk_idx || rows(ctx, &buffers, "topk_idx", a->topk_idx, a->num_heads, a->num_rows, a->topk,
                                       a->topk_stride_head, a->topk_stride_row, true)) &&
                 (!a->keys || keys_out(ctx, &buffers, "keys", a->keys, a->num_heads, a->num_rows, a->topk)) &&
                 check_buffers_apart(ctx, &buffers, &out->nothing));
}

/* S4.4: the low word of a key that is not empty names a block id, and ids are int32. */
static bool keys_decode(m3idx_context *ctx, const m3idx_merge_args *a) {
  const int64_t part = a->num_heads * a->num_rows * a->topk; /* addressable: the buffer has been judged */
  for (int64_t p = 0; p < a->num_parts; p++)
    for (int64_t i = 0; i < part; i++) {
      const uint64_t key = a->keys[p * a->keys_stride_part + i];
      const uint32_t low = (uint32_t)key;
      const uint32_t id = a->contract.tie == M3IDX_TIE_LOWER_ID ? UINT32_MAX - low : low - 1;
      if (key && id > INT32_MAX)
        return INVALID("keys[%" PRId64 "] = 0x%016" PRIx64 " names block %" PRIu32 ", above %" PRId32,
                       p * a->keys_stride_part + i, key, id, INT32_MAX);
    }
  return true;
}

m3idx_status m3idx_check_merge(m3idx_context *ctx, const m3idx_merge_args *args, m3idx_resolved *out) {
  check_buffers buffers = {0};
  m3idx_merge_args *a = &out->args.merge;
  int64_t part = 0;
  if (!check_given(ctx, "args", args)) return M3IDX_INVALID;
  *a = *args;
  if (!check_range(ctx, "num_parts", a->num_parts, 1, CHECK_MAX_COUNT) || !counts(ctx, a->num_heads, a->num_rows) ||
      !topk_range(ctx, a->topk) || !check_contract(ctx, &a->contract) ||
      !check_product(ctx, "keys_stride_part", a->num_heads, a->num_rows * a->topk, &part))
    return M3IDX_INVALID;
  if (!a->topk_idx && !a->merged_keys && a->num_rows)
    return m3idx_fail(ctx, M3IDX_INVALID, "topk_idx and merged_keys are both NULL");
  if (a->keys_stride_part == 0) a->keys_stride_part = part;
  const check_view keys = {
      "keys", a->keys, sizeof *a->keys, alignof(uint64_t), {1, a->num_parts, part}, {0, a->keys_stride_part, 1}, false};
  return verdict(
      check_at_least(ctx, "keys_stride_part", a->keys_stride_part, "num_heads * num_rows * topk", part) &&
      check_view_add(ctx, &buffers, &keys) &&
      topk_strides(ctx, &a->topk_stride_head, &a->topk_stride_row, a->num_rows, a->topk) &&
      (!a->topk_idx || rows(ctx, &buffers, "topk_idx", a->topk_idx, a->num_heads, a->num_rows, a->topk,
                            a->topk_stride_head, a->topk_stride_row, true)) &&
      (!a->merged_keys || keys_out(ctx, &buffers, "merged_keys", a->merged_keys, a->num_heads, a->num_rows, a->topk)) &&
      check_buffers_apart(ctx, &buffers, &out->nothing) && (ctx->memory != M3IDX_HOST || keys_decode(ctx, a)));
}

m3idx_status m3idx_check_topk(m3idx_context *ctx, const m3idx_topk_args *args, m3idx_resolved *out) {
  check_buffers buffers = {0};
  m3idx_topk_args *a = &out->args.topk;
  if (!check_given(ctx, "args", args)) return M3IDX_INVALID;
  *a = *args;
  if (!check_batch(ctx, &buffers, args->batch, &out->batch) || !check_scale(ctx, &a->scale) ||
      !forced(ctx, a->init_blocks, a->local_blocks) || !topk_range(ctx, a->topk) || !check_contract(ctx, &a->contract))
    return M3IDX_INVALID;
  const m3idx_batch *batch = a->batch = &out->batch;
  if (!queries(ctx, &buffers, batch, &a->q, &a->index_k, a->block_table, &a->block_table_stride) ||
      !topk_strides(ctx, &a->topk_stride_head, &a->topk_stride_row, batch->num_rows, a->topk) ||
      !rows(ctx, &buffers, "topk_idx", a->topk_idx, a->q.shape[1], batch->num_rows, a->topk, a->topk_stride_head,
            a->topk_stride_row, true))
    return M3IDX_INVALID;
  if (a->sparse) {
    out->sparse = *a->sparse;
    a->sparse = &out->sparse;
    if (!sparse_out(ctx, &buffers, batch, &out->sparse, a->q.shape[1], a->topk)) return M3IDX_INVALID;
  }
  return verdict(check_buffers_apart(ctx, &buffers, &out->nothing));
}

m3idx_status m3idx_check_sparse_table(m3idx_context *ctx, const m3idx_sparse_table_args *args, m3idx_resolved *out) {
  check_buffers buffers = {0};
  m3idx_sparse_table_args *a = &out->args.sparse_table;
  if (!check_given(ctx, "args", args)) return M3IDX_INVALID;
  *a = *args;
  if (!check_batch(ctx, &buffers, args->batch, &out->batch) || !topk_range(ctx, a->topk) ||
      !check_range(ctx, "num_heads", a->num_heads, 1, CHECK_MAX_COUNT))
    return M3IDX_INVALID;
  const m3idx_batch *batch = a->batch = &out->batch;
  return verdict(topk_strides(ctx, &a->topk_stride_head, &a->topk_stride_row, batch->num_rows, a->topk) &&
                 rows(ctx, &buffers, "topk_idx", a->topk_idx, a->num_heads, batch->num_rows, a->topk,
                      a->topk_stride_head, a->topk_stride_row, false) &&
                 sparse_out(ctx, &buffers, batch, &a->sparse, a->num_heads, a->topk) &&
                 check_buffers_apart(ctx, &buffers, &out->nothing));
}

m3idx_status m3idx_check_cache_insert(m3idx_context *ctx, const m3idx_cache_insert_args *args, m3idx_resolved *out) {
  check_buffers buffers = {0};
  m3idx_cache_insert_args *a = &out->args.cache_insert;
  if (!check_given(ctx, "args", args)) return M3IDX_INVALID;
  *a = *args;
  m3idx_tensor *key = &a->key, *cache = &a->cache;
  int64_t slots = 0;
  if (!check_equal(ctx, "key.shape[0]", key->shape[0], "the only layer", 1) ||
      !head_dim(ctx, "key.shape[2]", key->shape[2]) || !check_tensor(ctx, &buffers, "key", key, false) ||
      !check_block_size(ctx, "cache.shape[1]", cache->shape[1]) ||
      !check_equal(ctx, "cache.shape[2]", cache->shape[2], "key.shape[2]", key->shape[2]) ||
      !check_tensor(ctx, &buffers, "cache", cache, true) ||
      !check_equal(ctx, "cache.stride[2]", cache->stride[2], "the only stride of a row", 1) ||
      !check_rows_apart(ctx, "cache", cache->shape, cache->stride) ||
      !check_product(ctx, "cache.shape[0] * cache.shape[1]", cache->shape[0], cache->shape[1], &slots))
    return M3IDX_INVALID;
  if (!check_array_add(ctx, &buffers, "slot_mapping", a->slot_mapping, sizeof *a->slot_mapping, alignof(int64_t),
                       key->shape[1], false) ||
      !check_buffers_apart(ctx, &buffers, &out->nothing))
    return M3IDX_INVALID;
  if (key->shape[1] == 0) out->nothing = 1;
  return ctx->memory == M3IDX_DEVICE_MEMORY ? M3IDX_OK : check_slots(ctx, a->slot_mapping, key->shape[1], slots);
}
