/* SPDX-License-Identifier: Apache-2.0
 *
 * Host-memory calls: hip_stage.h.  Reads the caller's inputs, whatever their strides, into dense copies.
 */
#include "hip_stage.h"

#include <stdlib.h>
#include <string.h>

namespace {

constexpr size_t ALIGN = 256; /* what hipMalloc promises, so every copy may be read in wide loads */

hipk_buffer *add(hipk_stage *stage, void **slot, size_t bytes) {
  hipk_buffer *b = &stage->buffers[stage->count++]; /* at most 11 in any op */
  *b = hipk_buffer{};
  b->slot = slot;
  b->bytes = bytes;
  return b;
}

template <class T> void **slot_of(T **pointer) {
  return reinterpret_cast<void **>(const_cast<void *>(static_cast<const void *>(pointer)));
}

/* An input of `outer` groups of `inner` rows, each row dense. */
template <class T>
void input(hipk_stage *stage, const T **slot, int64_t outer, int64_t inner, int64_t elems, int64_t outer_stride,
           int64_t inner_stride) {
  const size_t row_bytes = static_cast<size_t>(elems) * sizeof(T);
  const size_t rows = static_cast<size_t>(outer) * static_cast<size_t>(inner);
  hipk_buffer *b = add(stage, slot_of(slot), rows * row_bytes);
  b->source = *slot;
  if (b->bytes == 0 || ((inner == 1 || inner_stride == elems) && (outer == 1 || outer_stride == inner * elems))) return;
  unsigned char *dense = static_cast<unsigned char *>(malloc(b->bytes));
  if (dense == nullptr) {
    stage->no_memory = true;
    return;
  }
  b->source = b->owned = dense;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < inner; i++, dense += row_bytes)
      memcpy(dense, *slot + o * outer_stride + i * inner_stride, row_bytes);
}

template <class T> void input(hipk_stage *stage, const T **slot, int64_t elems) {
  if (*slot != nullptr) input(stage, slot, 1, 1, elems, 0, 0);
}

/* A tensor of any strides, 0 included. */
void input(hipk_stage *stage, m3idx_tensor *t) {
  const int64_t size = static_cast<int64_t>(m3idx_dtype_bytes(t->dtype));
  const int64_t n0 = t->shape[0], n1 = t->shape[1], n2 = t->shape[2];
  hipk_buffer *b =
      add(stage, &t->data, static_cast<size_t>(n0) * static_cast<size_t>(n1) * static_cast<size_t>(n2 * size));
  b->source = t->data;
  const bool dense =
      (n2 == 1 || t->stride[2] == 1) && (n1 == 1 || t->stride[1] == n2) && (n0 == 1 || t->stride[0] == n1 * n2);
  if (b->bytes != 0 && !dense) {
    unsigned char *to = static_cast<unsigned char *>(malloc(b->bytes));
    if (to == nullptr) {
      stage->no_memory = true;
      return;
    }
    b->source = b->owned = to;
    const unsigned char *from = static_cast<const unsigned char *>(t->data);
    for (int64_t i = 0; i < n0; i++)
      for (int64_t j = 0; j < n1; j++) {
        const unsigned char *row = from + (i * t->stride[0] + j * t->stride[1]) * size;
        for (int64_t k = 0; k < n2; k++, to += size)
          memcpy(to, row + k * t->stride[2] * size, static_cast<size_t>(size));
      }
  }
  t->stride[0] = n1 * n2;
  t->stride[1] = n2;
  t->stride[2] = 1;
}

/* An output of `outer` groups of `inner` rows, spread by strides in elements. */
template <class T>
void output(hipk_stage *stage, T **slot, int64_t outer, int64_t inner, int64_t elems, int64_t outer_stride,
            int64_t inner_stride) {
  if (*slot == nullptr) return;
  const int64_t size = static_cast<int64_t>(sizeof(T));
  hipk_buffer *b = add(stage, slot_of(slot),
                       static_cast<size_t>(outer) * static_cast<size_t>(inner) * static_cast<size_t>(elems * size));
  b->target = reinterpret_cast<unsigned char *>(*slot);
  b->outer = outer;
  b->inner = inner;
  b->row_bytes = elems * size;
  b->outer_stride_bytes = outer_stride * size;
  b->inner_stride_bytes = inner_stride * size;
}

/* The batch, copied into the stage and staged itself. */
const m3idx_batch *stage_batch(hipk_stage *stage, const m3idx_batch **slot) {
  m3idx_batch *batch = &stage->batch;
  *batch = **slot;
  *slot = batch;
  input(stage, &batch->seq_lens, batch->num_requests);
  if (batch->mode == M3IDX_PREFILL) {
    input(stage, &batch->cu_seqlens, batch->num_requests + 1);
    input(stage, &batch->prefix_lens, batch->num_requests);
  }
  return batch;
}

void stage_table(hipk_stage *stage, const m3idx_batch *batch, const int32_t **table, int64_t *stride) {
  if (*table != nullptr) input(stage, table, 1, batch->num_requests, batch->max_block, 0, *stride);
  *stride = batch->max_block;
}

void stage_topk_idx(hipk_stage *stage, int64_t heads, int64_t rows, int64_t topk, int32_t **idx, int64_t *stride_head,
                    int64_t *stride_row) {
  output(stage, idx, heads, rows, topk, *stride_head, *stride_row);
  *stride_row = topk;
  *stride_head = rows * topk;
}

void stage_sparse(hipk_stage *stage, const m3idx_batch *batch, int64_t heads, int64_t topk, m3idx_sparse_out *sparse) {
  stage_table(stage, batch, &sparse->block_table, &sparse->block_table_stride);
  output(stage, &sparse->table, 1, batch->num_rows * heads, 8 * topk, 0, sparse->table_stride);
  output(stage, &sparse->context_lens, 1, 1, batch->num_rows * heads, 0, 0);
  sparse->table_stride = 8 * topk;
}

} // namespace

void hipk_stage_score(hipk_stage *stage, m3idx_score_args *args) {
  const m3idx_batch *batch = stage_batch(stage, &args->batch);
  input(stage, &args->q);
  input(stage, &args->index_k);
  stage_table(stage, batch, &args->block_table, &args->block_table_stride);
  output(stage, &args->score, args->q.shape[1], batch->num_rows, batch->max_block, args->score_stride_head,
         args->score_stride_row);
  args->score_stride_row = batch->max_block;
  args->score_stride_head = batch->num_rows * batch->max_block;
}

void hipk_stage_select(hipk_stage *stage, m3idx_select_args *args) {
  if (args->batch != nullptr) stage_batch(stage, &args->batch);
  input(stage, &args->num_blocks, args->num_rows);
  if (args->score != nullptr)
    input(stage, &args->score, args->num_heads, args->num_rows, args->max_block, args->score_stride_head,
          args->score_stride_row);
  args->score_stride_row = args->max_block;
  args->score_stride_head = args->num_rows * args->max_block;
  stage_topk_idx(stage, args->num_heads, args->num_rows, args->topk, &args->topk_idx, &args->topk_stride_head,
                 &args->topk_stride_row);
  output(stage, &args->keys, 1, 1, args->num_heads * args->num_rows * args->topk, 0, 0);
}

void hipk_stage_merge(hipk_stage *stage, m3idx_merge_args *args) {
  const int64_t keys = args->num_heads * args->num_rows * args->topk;
  input(stage, &args->keys, 1, args->num_parts, keys, 0, args->keys_stride_part);
  args->keys_stride_part = keys;
  stage_topk_idx(stage, args->num_heads, args->num_rows, args->topk, &args->topk_idx, &args->topk_stride_head,
                 &args->topk_stride_row);
  output(stage, &args->merged_keys, 1, 1, keys, 0, 0);
}

void hipk_stage_topk(hipk_stage *stage, m3idx_topk_args *args) {
  const m3idx_batch *batch = stage_batch(stage, &args->batch);
  input(stage, &args->q);
  input(stage, &args->index_k);
  stage_table(stage, batch, &args->block_table, &args->block_table_stride);
  stage_topk_idx(stage, args->q.shape[1], batch->num_rows, args->topk, &args->topk_idx, &args->topk_stride_head,
                 &args->topk_stride_row);
  if (args->sparse != nullptr) {
    stage->sparse = *args->sparse;
    stage_sparse(stage, batch, args->q.shape[1], args->topk, &stage->sparse);
    args->sparse = &stage->sparse;
  }
}

void hipk_stage_sparse_table(hipk_stage *stage, m3idx_sparse_table_args *args) {
  const m3idx_batch *batch = stage_batch(stage, &args->batch);
  input(stage, const_cast<const int32_t **>(&args->topk_idx), args->num_heads, batch->num_rows, args->topk,
        args->topk_stride_head, args->topk_stride_row);
  args->topk_stride_row = args->topk;
  args->topk_stride_head = batch->num_rows * args->topk;
  stage_sparse(stage, batch, args->num_heads, args->topk, &args->sparse);
}

/* The cache itself stays in the caller's memory: the device fills a small one, row i in slot i, from which the
 * rows go where slot_mapping says (S6.1). */
void hipk_stage_cache_insert(hipk_stage *stage, m3idx_cache_insert_args *args) {
  const int64_t rows = args->key.shape[1], block = args->cache.shape[1], dim = args->cache.shape[2];
  const int64_t size = static_cast<int64_t>(m3idx_dtype_bytes(args->cache.dtype));
  input(stage, &args->key);
  const int64_t *slots = args->slot_mapping;
  input(stage, &args->slot_mapping, rows);
  hipk_buffer *mapping = &stage->buffers[stage->count - 1];
  int64_t *own = static_cast<int64_t *>(malloc(mapping->bytes + 1));
  if (own == nullptr) {
    stage->no_memory = true;
    return;
  }
  for (int64_t i = 0; i < rows; i++) own[i] = i; /* rows that go nowhere are dropped on the way back */
  mapping->source = mapping->owned = own;
  const int64_t pages = (rows + block - 1) / block;
  hipk_buffer *b = add(stage, &args->cache.data, static_cast<size_t>(pages * block * dim * size));
  *b = hipk_buffer{b->slot,
                   b->bytes,
                   0,
                   nullptr,
                   nullptr,
                   static_cast<unsigned char *>(args->cache.data),
                   rows,
                   block,
                   dim * size,
                   args->cache.stride[0] * size,
                   args->cache.stride[1] * size,
                   slots};
  args->cache.shape[0] = pages;
  args->cache.stride[0] = block * dim;
  args->cache.stride[1] = dim;
  args->cache.stride[2] = 1;
}

m3idx_status hipk_arena_reserve(m3idx_context *ctx, hipk_arena *arena, size_t bytes, bool zero) {
  if (bytes <= arena->bytes) return M3IDX_OK;
  hipk_arena_drop(arena);
  const hipError_t got = hipMalloc(&arena->base, bytes);
  if (got != hipSuccess) {
    arena->base = nullptr;
    return m3idx_fail(ctx, got == hipErrorOutOfMemory ? M3IDX_NO_MEMORY : M3IDX_DEVICE, "hipMalloc of %zu bytes: %s",
                      bytes, hipGetErrorString(got));
  }
  /* Finished on return: the memory may be used on another stream than this one. */
  const hipStream_t stream = static_cast<hipStream_t>(ctx->stream);
  m3idx_status status = M3IDX_OK;
  if (zero) status = hipk_check(ctx, hipMemsetAsync(arena->base, 0, bytes, stream), "hipMemsetAsync");
  if (zero && status == M3IDX_OK) status = hipk_check(ctx, hipStreamSynchronize(stream), "hipStreamSynchronize");
  if (status == M3IDX_OK) {
    arena->bytes = bytes;
    return M3IDX_OK;
  }
  hipk_arena_drop(arena); /* not zeroed: no later call may take it for a workspace */
  return status;
}

void hipk_arena_drop(hipk_arena *arena) {
  (void)hipFree(arena->base);
  *arena = hipk_arena{};
}

m3idx_status hipk_stage_upload(hipk_stage *stage, m3idx_context *ctx, hipk_arena *arena) {
  if (stage->no_memory) return m3idx_fail(ctx, M3IDX_NO_MEMORY, "no host memory for a dense copy of the inputs");
  size_t total = ALIGN;
  for (int i = 0; i < stage->count; i++) {
    stage->buffers[i].offset = total;
    total += (stage->buffers[i].bytes + ALIGN - 1) / ALIGN * ALIGN;
  }
  m3idx_status status = hipk_arena_reserve(ctx, arena, total, false);
  hipStream_t stream = static_cast<hipStream_t>(ctx->stream);
  for (int i = 0; i < stage->count && status == M3IDX_OK; i++) {
    const hipk_buffer *b = &stage->buffers[i];
    void *device = static_cast<unsigned char *>(arena->base) + b->offset;
    *b->slot = device;
    if (b->source != nullptr && b->bytes != 0)
      status = hipk_check(ctx, hipMemcpyAsync(device, b->source, b->bytes, hipMemcpyHostToDevice, stream),
                          "hipMemcpyAsync to the device");
  }
  return status;
}

namespace {

/* The place of dense row i in the caller's memory, NULL = none. */
unsigned char *place_of(const hipk_buffer *b, int64_t i) {
  const int64_t at = b->slots != nullptr ? b->slots[i] : i;
  if (at < 0) return nullptr;
  return b->target + at / b->inner * b->outer_stride_bytes + at % b->inner * b->inner_stride_bytes;
}

int64_t rows_of(const hipk_buffer *b) { return b->slots != nullptr ? b->outer : b->outer * b->inner; }

/* The rows as the device left them, in b->owned. */
m3idx_status fetch(m3idx_context *ctx, hipk_buffer *b) {
  const size_t bytes = static_cast<size_t>(rows_of(b)) * static_cast<size_t>(b->row_bytes);
  if (bytes == 0) return M3IDX_OK;
  b->owned = malloc(bytes);
  if (b->owned == nullptr) return m3idx_fail(ctx, M3IDX_NO_MEMORY, "no host memory for %zu bytes of output", bytes);
  return hipk_check(ctx, hipMemcpy(b->owned, *b->slot, bytes, hipMemcpyDeviceToHost), "hipMemcpy to the host");
}

void spread(const hipk_buffer *b) {
  const unsigned char *dense = static_cast<const unsigned char *>(b->owned);
  for (int64_t i = 0; i < rows_of(b); i++, dense += b->row_bytes) {
    unsigned char *to = place_of(b, i);
    if (to != nullptr && b->row_bytes != 0) memcpy(to, dense, static_cast<size_t>(b->row_bytes));
  }
}

} // namespace

m3idx_status hipk_stage_download(hipk_stage *stage, m3idx_context *ctx) {
  m3idx_status status =
      hipk_check(ctx, hipStreamSynchronize(static_cast<hipStream_t>(ctx->stream)), "hipStreamSynchronize");
  for (int i = 0; i < stage->count && status == M3IDX_OK; i++)
    if (stage->buffers[i].target != nullptr) status = fetch(ctx, &stage->buffers[i]);
  for (int i = 0; i < stage->count && status == M3IDX_OK; i++)
    if (stage->buffers[i].target != nullptr) spread(&stage->buffers[i]);
  return status;
}

void hipk_stage_free(hipk_stage *stage) {
  for (int i = 0; i < stage->count; i++) free(stage->buffers[i].owned);
  stage->count = 0;
}
