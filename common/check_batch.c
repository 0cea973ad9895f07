/* SPDX-License-Identifier: Apache-2.0
 *
 * The door for batches and block tables (S2.1, S2.3, S7.1): which rows there are and what each may see.
 * Contents are read in host memory only.
 */
#include <inttypes.h>
#include <stdalign.h>

#include "check_parts.h"

#define INVALID(...) (m3idx_fail(ctx, M3IDX_INVALID, __VA_ARGS__), false)

static bool batch_shape(m3idx_context *ctx, m3idx_batch *b) {
  if (!check_range(ctx, "mode", (int64_t)b->mode, 0, M3IDX_DECODE)) return false;
  if (!check_range(ctx, "num_requests", b->num_requests, 0, CHECK_MAX_COUNT)) return false;
  if (!check_range(ctx, "num_rows", b->num_rows, 0, CHECK_MAX_COUNT)) return false;
  if (!check_range(ctx, "max_block", b->max_block, 0, CHECK_MAX_COUNT)) return false;
  if (b->block_size == 0) b->block_size = 128;
  if (!check_block_size(ctx, "block_size", b->block_size)) return false;
  if (b->mode == M3IDX_PREFILL)
    return b->decode_query_len == 0 ||
           INVALID("decode_query_len = %" PRId64 " must be 0 in prefill", b->decode_query_len);
  if (!check_range(ctx, "decode_query_len", b->decode_query_len, 1, CHECK_MAX_COUNT)) return false;
  return check_equal(ctx, "num_rows", b->num_rows, "num_requests * decode_query_len",
                     b->num_requests * b->decode_query_len);
}

static bool batch_pointers(m3idx_context *ctx, check_buffers *buffers, const m3idx_batch *b) {
  const size_t size = sizeof(int32_t), align = alignof(int32_t);
  const int64_t r = b->num_requests;
  if (!check_array_add(ctx, buffers, "seq_lens", b->seq_lens, size, align, r, false)) return false;
  if (b->mode == M3IDX_DECODE)
    return check_absent(ctx, "cu_seqlens", b->cu_seqlens, "in decode") &&
           check_absent(ctx, "prefix_lens", b->prefix_lens, "in decode");
  return check_array_add(ctx, buffers, "cu_seqlens", b->cu_seqlens, size, align, r + 1, false) &&
         check_array_add(ctx, buffers, "prefix_lens", b->prefix_lens, size, align, r, false);
}

static bool seq_lens_fit(m3idx_context *ctx, const m3idx_batch *b) {
  const int64_t capacity = b->max_block * b->block_size; /* <= 2^31 * 2^7 */
  for (int64_t r = 0; r < b->num_requests; r++) {
    if (b->seq_lens[r] < 0) return INVALID("seq_lens[%" PRId64 "] = %" PRId32 " is below 0", r, b->seq_lens[r]);
    if (b->seq_lens[r] > capacity) /* S4.7 */
      return INVALID("seq_lens[%" PRId64 "] = %" PRId32 " exceeds max_block * block_size = %" PRId64, r, b->seq_lens[r],
                     capacity);
  }
  return true;
}

static bool prefill_rows_fit(m3idx_context *ctx, const m3idx_batch *b) {
  const int32_t *cu = b->cu_seqlens, *prefix = b->prefix_lens;
  const int64_t last = b->num_requests;
  if (cu[0] != 0) return INVALID("cu_seqlens[0] = %" PRId32 " differs from 0", cu[0]);
  for (int64_t r = 0; r < last; r++) {
    if (cu[r + 1] < cu[r])
      return INVALID("cu_seqlens[%" PRId64 "] = %" PRId32 " is below cu_seqlens[%" PRId64 "] = %" PRId32, r + 1,
                     cu[r + 1], r, cu[r]);
    if (prefix[r] < 0) return INVALID("prefix_lens[%" PRId64 "] = %" PRId32 " is below 0", r, prefix[r]);
    const int64_t need = (int64_t)prefix[r] + cu[r + 1] - cu[r];
    if (b->seq_lens[r] < need)
      return INVALID("seq_lens[%" PRId64 "] = %" PRId32 " is below prefix_lens + query rows = %" PRId64, r,
                     b->seq_lens[r], need);
  }
  if (cu[last] != b->num_rows)
    return INVALID("cu_seqlens[%" PRId64 "] = %" PRId32 " differs from num_rows = %" PRId64, last, cu[last],
                   b->num_rows);
  return true;
}

bool check_batch(m3idx_context *ctx, check_buffers *buffers, const m3idx_batch *in, m3idx_batch *out) {
  if (!check_given(ctx, "batch", in)) return false;
  *out = *in;
  if (!batch_shape(ctx, out) || !batch_pointers(ctx, buffers, out)) return false;
  if (ctx->memory == M3IDX_DEVICE_MEMORY) return true;
  return seq_lens_fit(ctx, out) && (out->mode == M3IDX_DECODE || prefill_rows_fit(ctx, out));
}

bool check_block_table(m3idx_context *ctx, check_buffers *buffers, const m3idx_batch *b, const char *name,
                       const int32_t *table, int64_t *stride, int64_t max_page, const char *bound) {
  char label[64];
  snprintf(label, sizeof label, "%s_stride", name);
  if (*stride == 0) *stride = b->max_block;
  if (!check_at_least(ctx, label, *stride, "max_block", b->max_block)) return false;
  const check_view v = {
      name, table, sizeof *table, alignof(int32_t), {1, b->num_requests, b->max_block}, {0, *stride, 1}, false};
  if (!check_view_add(ctx, buffers, &v)) return false;
  if (ctx->memory == M3IDX_DEVICE_MEMORY) return true;
  for (int64_t r = 0; r < b->num_requests; r++) {
    /* S2.1: entries past the request's live blocks may hold anything. */
    const int64_t live = ((int64_t)b->seq_lens[r] + b->block_size - 1) / b->block_size;
    for (int64_t i = 0; i < live; i++) {
      const int32_t page = table[r * *stride + i];
      if (page < 0 || page > max_page)
        return INVALID("%s[%" PRId64 "][%" PRId64 "] = %" PRId32 " is outside 0..%" PRId64 " (%s)", name, r, i, page,
                       max_page, bound);
    }
  }
  return true;
}
