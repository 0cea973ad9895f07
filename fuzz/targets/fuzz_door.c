/* SPDX-License-Identifier: Apache-2.0
 *
 * The second door.  Sizes are long double, where nothing overflows and what matters is exact.
 */
#include "fuzz_door.h"

#include <math.h>
#include <stddef.h>

enum { MOST = INT32_MAX };

static bool within(int64_t x, int64_t low, int64_t high) { return low <= x && x <= high; }

/* A view of rank 3; its buffer joins the list unless it is empty. */
static bool see(door_view *v, const void *data, size_t element, const int64_t n[3], const int64_t s[3], bool output) {
  long double last = 0;
  for (int i = 0; i < 3; i++)
    if (n[i] < 0 || s[i] < 0) return false;
  if (!n[0] || !n[1] || !n[2]) return true;
  for (int i = 0; i < 3; i++) last += (long double)(n[i] - 1) * (long double)s[i];
  /* As many whole elements as PTRDIFF_MAX bytes hold. */
  if (last + 1 > (long double)(PTRDIFF_MAX / (ptrdiff_t)element)) return false;
  const long double bytes = (last + 1) * (long double)element;
  if (!data || (uintptr_t)data % element || (long double)(uintptr_t)data + bytes > (long double)UINTPTR_MAX)
    return false;
  v->at[v->count++] = (door_buffer){(uintptr_t)data, bytes, output};
  return true;
}

static bool line(door_view *v, const void *data, size_t element, int64_t n) {
  return see(v, data, element, (const int64_t[]){1, 1, n}, (const int64_t[]){0, 0, 1}, false);
}

/* No output meets another buffer. */
static bool apart(const door_view *v) {
  for (int i = 0; i < v->count; i++)
    for (int j = 0; j < i; j++) {
      const door_buffer *a = &v->at[i], *b = &v->at[j];
      if (!a->output && !b->output) continue;
      if ((long double)a->begin < (long double)b->begin + b->bytes &&
          (long double)b->begin < (long double)a->begin + a->bytes)
        return false;
    }
  return true;
}

/* Rows of `width` elements that share none: on one axis they follow each other, on the other whole sets of them do. */
static bool rows_apart(const int64_t n[3], const int64_t s[3]) {
  const long double width = (long double)n[2];
  bool good = n[0] == 0 || n[1] == 0 || n[2] == 0;
  for (int in = 0; in < 2; in++) {
    const int out = 1 - in;
    const bool inner = n[in] <= 1 || (long double)s[in] >= width;
    const long double set = (long double)(n[in] - 1) * (long double)s[in] + width;
    good = good || (inner && (n[out] <= 1 || (long double)s[out] >= set));
  }
  return good;
}

/* [heads][rows][width] with strides whose 0 means dense; where there is one head its stride can be anything. */
static bool array(door_view *v, const void *data, size_t element, int64_t heads, int64_t rows, int64_t width,
                  int64_t stride_head, int64_t stride_row, bool output) {
  if (stride_row == 0) stride_row = width;
  if (stride_row < width) return false;
  if (stride_head == 0) {
    if ((long double)rows * (long double)stride_row > (long double)INT64_MAX) return false;
    stride_head = rows * stride_row;
  }
  const int64_t n[3] = {heads, rows, width}, s[3] = {stride_head, stride_row, 1};
  return see(v, data, element, n, s, output) && (!output || rows_apart(n, s));
}

static int64_t block_of(const m3idx_batch *b) { return b->block_size ? b->block_size : 128; }

static bool batch(door_view *v, const m3idx_batch *b) {
  if (!b || ((int)b->mode != M3IDX_PREFILL && (int)b->mode != M3IDX_DECODE)) return false;
  if (!within(b->num_requests, 0, MOST) || !within(b->num_rows, 0, MOST) || !within(b->max_block, 0, MOST))
    return false;
  const int64_t size = block_of(b);
  if (size != 16 && size != 32 && size != 64 && size != 128) return false;
  if (!line(v, b->seq_lens, 4, b->num_requests)) return false;
  if (b->mode == M3IDX_PREFILL)
    return b->decode_query_len == 0 && line(v, b->cu_seqlens, 4, b->num_requests + 1) &&
           line(v, b->prefix_lens, 4, b->num_requests);
  return within(b->decode_query_len, 1, MOST) && b->num_rows == b->num_requests * b->decode_query_len &&
         !b->cu_seqlens && !b->prefix_lens;
}

static bool tensor(door_view *v, const m3idx_tensor *t, bool output, int64_t stride[3]) {
  const bool dense = !t->stride[0] && !t->stride[1] && !t->stride[2];
  if (!within((int64_t)t->dtype, 0, M3IDX_DTYPE_COUNT - 1)) return false;
  for (int i = 0; i < 3; i++) {
    if (t->shape[i] < 0) return false;
    stride[i] = t->stride[i];
  }
  if (dense) {
    if ((long double)t->shape[1] * (long double)t->shape[2] > (long double)INT64_MAX) return false;
    stride[0] = t->shape[1] * t->shape[2];
    stride[1] = t->shape[2];
    stride[2] = 1;
  }
  return see(v, t->data, m3idx_dtype_bytes(t->dtype), t->shape, stride, output);
}

static bool is_dim(int64_t d) { return within(d, 16, 256) && d % 16 == 0; }

static bool table(door_view *v, const m3idx_batch *b, const int32_t *pages, int64_t stride) {
  return array(v, pages, 4, 1, b->num_requests, b->max_block, 1, stride, false);
}

static bool queries(door_view *v, const m3idx_batch *b, const m3idx_tensor *q, const m3idx_tensor *k,
                    const int32_t *pages, int64_t stride) {
  int64_t ignored[3];
  return q->shape[0] == b->num_rows && within(q->shape[1], 1, MOST) && is_dim(q->shape[2]) &&
         k->shape[1] == block_of(b) && k->shape[2] == q->shape[2] && tensor(v, q, false, ignored) &&
         tensor(v, k, false, ignored) && table(v, b, pages, stride);
}

static bool is_scale(float x) { return x >= 0 && !isinf(x); } /* 0 means 1 */

static bool contract(const m3idx_contract *c) {
  return within((int64_t)c->tie, 0, 1) && within((int64_t)c->nan, 0, 3) && within((int64_t)c->zero, 0, 1) &&
         within((int64_t)c->order, 0, 1);
}

static bool sparse(door_view *v, const m3idx_batch *b, const m3idx_sparse_out *s, int64_t heads, int64_t topk) {
  const int64_t lines = b->num_rows * heads;
  return block_of(b) == 128 && (s->page_stride == 0 || s->page_stride == 8 || s->page_stride == 16) &&
         table(v, b, s->block_table, s->block_table_stride) &&
         array(v, s->table, 4, 1, lines, 8 * topk, 1, s->table_stride, true) &&
         array(v, s->context_lens, 4, 1, 1, lines, 0, 0, true);
}

static bool score_shapes(const m3idx_score_args *a, door_view *v) {
  return batch(v, a->batch) && is_scale(a->scale) && a->init_blocks >= 0 && a->local_blocks >= 0 &&
         (a->batch->mode == M3IDX_DECODE || (!a->init_blocks && !a->local_blocks)) &&
         queries(v, a->batch, &a->q, &a->index_k, a->block_table, a->block_table_stride) &&
         array(v, a->score, 4, a->q.shape[1], a->batch->num_rows, a->batch->max_block, a->score_stride_head,
               a->score_stride_row, true);
}

static bool select_shapes(const m3idx_select_args *a, door_view *v) {
  if (!within(a->num_heads, 1, MOST) || !within(a->num_rows, 0, MOST) || !within(a->max_block, 0, MOST)) return false;
  if (a->first_block < 0 || a->first_block > MOST - a->max_block || (a->first_block && a->topk_idx)) return false;
  if (!within(a->topk, 1, 128) || !contract(&a->contract) || a->init_blocks < 0 || a->local_blocks < 0) return false;
  if (a->num_rows && !a->topk_idx && !a->keys) return false;
  if (a->batch) {
    if (a->num_blocks || !batch(v, a->batch) || a->num_rows != a->batch->num_rows) return false;
    if (a->topk_idx && a->max_block != a->batch->max_block) return false;
  } else if (!line(v, a->num_blocks, 4, a->num_rows)) {
    return false;
  }
  return array(v, a->score, 4, a->num_heads, a->num_rows, a->max_block, a->score_stride_head, a->score_stride_row,
               false) &&
         /* strides of ids are judged even where no ids are wanted */
         array(&(door_view){0}, a, 4, 0, a->num_rows, a->topk, a->topk_stride_head, a->topk_stride_row, false) &&
         (!a->topk_idx || array(v, a->topk_idx, 4, a->num_heads, a->num_rows, a->topk, a->topk_stride_head,
                                a->topk_stride_row, true)) &&
         (!a->keys || array(v, a->keys, 8, a->num_heads, a->num_rows, a->topk, 0, 0, true));
}

static bool merge_shapes(const m3idx_merge_args *a, door_view *v) {
  if (!within(a->num_parts, 1, MOST) || !within(a->num_heads, 1, MOST) || !within(a->num_rows, 0, MOST)) return false;
  if (!within(a->topk, 1, 128) || !contract(&a->contract)) return false;
  if ((long double)a->num_heads * (long double)a->num_rows * (long double)a->topk > (long double)INT64_MAX)
    return false;
  const int64_t part = a->num_heads * a->num_rows * a->topk;
  if (a->num_rows && !a->topk_idx && !a->merged_keys) return false;
  return array(v, a->keys, 8, 1, a->num_parts, part, 1, a->keys_stride_part, false) &&
         array(&(door_view){0}, a, 4, 0, a->num_rows, a->topk, a->topk_stride_head, a->topk_stride_row, false) &&
         (!a->topk_idx || array(v, a->topk_idx, 4, a->num_heads, a->num_rows, a->topk, a->topk_stride_head,
                                a->topk_stride_row, true)) &&
         (!a->merged_keys || array(v, a->merged_keys, 8, a->num_heads, a->num_rows, a->topk, 0, 0, true));
}

static bool topk_shapes(const m3idx_topk_args *a, door_view *v) {
  return batch(v, a->batch) && is_scale(a->scale) && a->init_blocks >= 0 && a->local_blocks >= 0 &&
         within(a->topk, 1, 128) && contract(&a->contract) &&
         queries(v, a->batch, &a->q, &a->index_k, a->block_table, a->block_table_stride) &&
         array(v, a->topk_idx, 4, a->q.shape[1], a->batch->num_rows, a->topk, a->topk_stride_head, a->topk_stride_row,
               true) &&
         (!a->sparse || sparse(v, a->batch, a->sparse, a->q.shape[1], a->topk));
}

static bool table_shapes(const m3idx_sparse_table_args *a, door_view *v) {
  return batch(v, a->batch) && within(a->topk, 1, 128) && within(a->num_heads, 1, MOST) &&
         array(v, a->topk_idx, 4, a->num_heads, a->batch->num_rows, a->topk, a->topk_stride_head, a->topk_stride_row,
               false) &&
         sparse(v, a->batch, &a->sparse, a->num_heads, a->topk);
}

static bool insert_shapes(const m3idx_cache_insert_args *a, door_view *v) {
  int64_t stride[3];
  const int64_t size = a->cache.shape[1];
  return a->key.shape[0] == 1 && is_dim(a->key.shape[2]) && tensor(v, &a->key, false, stride) &&
         (size == 16 || size == 32 || size == 64 || size == 128) && a->cache.shape[2] == a->key.shape[2] &&
         tensor(v, &a->cache, true, stride) && stride[2] == 1 && rows_apart(a->cache.shape, stride) &&
         (long double)a->cache.shape[0] * (long double)size <= (long double)INT64_MAX &&
         line(v, a->slot_mapping, 8, a->key.shape[1]);
}

bool door_shapes(m3idx_op op, const void *args, door_view *v) {
  bool good = false;
  v->count = 0;
  switch (op) {
  case M3IDX_OP_score: good = score_shapes(args, v); break;
  case M3IDX_OP_select: good = select_shapes(args, v); break;
  case M3IDX_OP_merge: good = merge_shapes(args, v); break;
  case M3IDX_OP_topk: good = topk_shapes(args, v); break;
  case M3IDX_OP_sparse_table: good = table_shapes(args, v); break;
  case M3IDX_OP_cache_insert: good = insert_shapes(args, v); break;
  case M3IDX_OP_COUNT: break;
  }
  return good && apart(v);
}

/* ---- contents ---- */

static bool lengths(const m3idx_batch *b) {
  for (int64_t r = 0; r < b->num_requests; r++)
    if (!within(b->seq_lens[r], 0, b->max_block * block_of(b))) return false;
  if (b->mode == M3IDX_DECODE) return true;
  for (int64_t r = 0; r < b->num_requests; r++) {
    const int64_t rows = (int64_t)b->cu_seqlens[r + 1] - b->cu_seqlens[r];
    if (rows < 0 || b->prefix_lens[r] < 0 || rows + b->prefix_lens[r] > b->seq_lens[r]) return false;
  }
  return b->cu_seqlens[0] == 0 && b->cu_seqlens[b->num_requests] == b->num_rows;
}

/* Live entries are pages below `pages`. */
static bool live_pages(const m3idx_batch *b, const int32_t *entry, int64_t stride, int64_t pages) {
  for (int64_t r = 0; r < b->num_requests; r++)
    for (int64_t i = 0; i * block_of(b) < b->seq_lens[r]; i++)
      if (!within(entry[r * (stride ? stride : b->max_block) + i], 0, pages - 1)) return false;
  return true;
}

static bool sparse_pages(const m3idx_batch *b, const m3idx_sparse_out *s, int64_t heads) {
  const int64_t span = s->page_stride ? s->page_stride : 8;
  int64_t pages = 0; /* whose last id, (page * span + 7) * heads + heads - 1, is an int32 */
  while (pages < 64 && (pages * span + 7) * heads + heads - 1 <= INT32_MAX) pages++;
  if (pages == 64) pages = ((INT64_C(0x80000000) / heads) - 8) / span + 1;
  return live_pages(b, s->block_table, s->block_table_stride, pages);
}

static bool slots(const m3idx_cache_insert_args *a) {
  const int64_t n = a->key.shape[1], all = a->cache.shape[0] * a->cache.shape[1];
  for (int64_t i = 0; i < n; i++) {
    if (a->slot_mapping[i] >= all) return false;
    for (int64_t j = 0; j < i; j++)
      if (a->slot_mapping[i] >= 0 && a->slot_mapping[i] == a->slot_mapping[j]) return false;
  }
  return true;
}

static bool part_keys(const m3idx_merge_args *a) {
  const int64_t part = a->num_heads * a->num_rows * a->topk, stride = a->keys_stride_part ? a->keys_stride_part : part;
  for (int64_t p = 0; p < a->num_parts; p++)
    for (int64_t i = 0; i < part; i++) {
      const uint64_t key = a->keys[p * stride + i];
      const uint32_t low = (uint32_t)(key & 0xffffffffu);
      /* S4.3, S4.4: ids are 0..2^31-1, so a lower-first half is 2^31 or more, a higher-first one 1..2^31. */
      if (key && (a->contract.tie == M3IDX_TIE_LOWER_ID ? low < 0x80000000u : low == 0 || low > 0x80000000u))
        return false;
    }
  return true;
}

bool door_contents(m3idx_op op, const void *args) {
  const m3idx_score_args *score = args;
  const m3idx_select_args *select = args;
  const m3idx_topk_args *topk = args;
  const m3idx_sparse_table_args *lines = args;
  switch (op) {
  case M3IDX_OP_score:
    return lengths(score->batch) &&
           live_pages(score->batch, score->block_table, score->block_table_stride, score->index_k.shape[0]);
  case M3IDX_OP_select:
    if (select->batch) return lengths(select->batch);
    for (int64_t t = 0; t < select->num_rows; t++)
      if (!within(select->num_blocks[t], 0, select->topk_idx ? select->max_block : MOST)) return false;
    return true;
  case M3IDX_OP_merge: return part_keys(args);
  case M3IDX_OP_topk:
    return lengths(topk->batch) &&
           live_pages(topk->batch, topk->block_table, topk->block_table_stride, topk->index_k.shape[0]) &&
           (!topk->sparse || sparse_pages(topk->batch, topk->sparse, topk->q.shape[1]));
  case M3IDX_OP_sparse_table:
    return lengths(lines->batch) && sparse_pages(lines->batch, &lines->sparse, lines->num_heads);
  case M3IDX_OP_cache_insert: return slots(args);
  case M3IDX_OP_COUNT: break;
  }
  return false;
}
