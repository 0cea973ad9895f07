/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the door (S7): numbers, enumerators, strides and address ranges.  Follows no pointer.
 */
#include <inttypes.h>

#include "check_parts.h"

#define INVALID(...) (m3idx_fail(ctx, M3IDX_INVALID, __VA_ARGS__), false)

/* ---- numbers ---- */

bool check_range(m3idx_context *ctx, const char *name, int64_t value, int64_t low, int64_t high) {
  if (value < low) return INVALID("%s = %" PRId64 " is below %" PRId64, name, value, low);
  if (value > high) return INVALID("%s = %" PRId64 " is above %" PRId64, name, value, high);
  return true;
}

bool check_equal(m3idx_context *ctx, const char *name, int64_t value, const char *bound_name, int64_t bound) {
  return value == bound || INVALID("%s = %" PRId64 " differs from %s = %" PRId64, name, value, bound_name, bound);
}

bool check_at_least(m3idx_context *ctx, const char *name, int64_t value, const char *bound_name, int64_t bound) {
  return value >= bound || INVALID("%s = %" PRId64 " is below %s = %" PRId64, name, value, bound_name, bound);
}

bool check_given(m3idx_context *ctx, const char *name, const void *pointer) {
  return pointer || INVALID("%s is NULL", name);
}

bool check_absent(m3idx_context *ctx, const char *name, const void *pointer, const char *when) {
  return !pointer || INVALID("%s = %p must be NULL %s", name, (void *)(uintptr_t)pointer, when);
}

bool check_dtype(m3idx_context *ctx, const char *name, m3idx_dtype dtype) {
  return check_range(ctx, name, (int64_t)dtype, 0, M3IDX_DTYPE_COUNT - 1);
}

bool check_block_size(m3idx_context *ctx, const char *name, int64_t b) {
  return b == 16 || b == 32 || b == 64 || b == 128 || INVALID("%s = %" PRId64 " is none of 16, 32, 64, 128", name, b);
}

bool check_scale(m3idx_context *ctx, float *scale) {
  if (*scale == 0) *scale = 1;
  /* Written so that NaN fails too. */
  if (!(*scale > 0 && *scale - *scale == 0))
    return INVALID("scale = %g is not a finite number above 0", (double)*scale);
  return true;
}

bool check_contract(m3idx_context *ctx, const m3idx_contract *contract) {
  return check_range(ctx, "contract.tie", (int64_t)contract->tie, 0, M3IDX_TIE_HIGHER_ID) &&
         check_range(ctx, "contract.nan", (int64_t)contract->nan, 0, M3IDX_NAN_BY_BITS) &&
         check_range(ctx, "contract.zero", (int64_t)contract->zero, 0, M3IDX_ZERO_SIGNED) &&
         check_range(ctx, "contract.order", (int64_t)contract->order, 0, M3IDX_ORDER_ID);
}

bool check_product(m3idx_context *ctx, const char *name, int64_t a, int64_t b, int64_t *out) {
  if (a && b > INT64_MAX / a) return INVALID("%s = %" PRId64 " * %" PRId64 " exceeds %" PRId64, name, a, b, INT64_MAX);
  *out = a * b;
  return true;
}

/* ---- memory ---- */

/* Bytes from the first to the last element of a view whose numbers are >= 0. */
static bool view_bytes(m3idx_context *ctx, const check_view *v, int64_t *bytes) {
  const int64_t most = (int64_t)PTRDIFF_MAX / (int64_t)v->element_bytes;
  int64_t last = 0; /* element index */
  for (int i = 0; i < 3; i++)
    if (v->shape[i] == 0) {
      *bytes = 0;
      return true;
    }
  for (int i = 0; i < 3; i++) {
    int64_t steps = v->shape[i] - 1;
    if (steps && v->stride[i] > (most - 1 - last) / steps)
      return INVALID("%s: shape[%d] = %" PRId64 " times stride[%d] = %" PRId64 " passes the %" PRId64
                     " elements that are addressable",
                     v->name, i, v->shape[i], i, v->stride[i], most);
    last += steps * v->stride[i];
  }
  *bytes = (last + 1) * (int64_t)v->element_bytes;
  return true;
}

bool check_view_add(m3idx_context *ctx, check_buffers *buffers, const check_view *v) {
  int64_t bytes = 0;
  for (int i = 0; i < 3; i++) {
    if (v->shape[i] < 0) return INVALID("%s.shape[%d] = %" PRId64 " is below 0", v->name, i, v->shape[i]);
    if (v->stride[i] < 0) return INVALID("%s.stride[%d] = %" PRId64 " is below 0", v->name, i, v->stride[i]);
  }
  if (!view_bytes(ctx, v, &bytes)) return false;
  if (bytes == 0) return true;
  uintptr_t begin = (uintptr_t)v->data;
  if (!begin) return INVALID("%s is NULL, needs %" PRId64 " bytes", v->name, bytes);
  if (begin % v->alignment)
    return INVALID("%s = 0x%" PRIxPTR " is not aligned to %zu bytes", v->name, begin, v->alignment);
  if ((uintptr_t)bytes > UINTPTR_MAX - begin)
    return INVALID("%s = 0x%" PRIxPTR " + %" PRId64 " bytes passes the last address 0x%" PRIxPTR, v->name, begin, bytes,
                   UINTPTR_MAX);
  buffers->at[buffers->count++] = (check_buffer){v->name, begin, begin + (uintptr_t)bytes, v->output};
  return true;
}

bool check_array_add(m3idx_context *ctx, check_buffers *buffers, const char *name, const void *data,
                     size_t element_bytes, size_t alignment, int64_t count, bool output) {
  const check_view v = {name, data, element_bytes, alignment, {1, 1, count}, {0, 0, 1}, output};
  return check_view_add(ctx, buffers, &v);
}

bool check_buffers_apart(m3idx_context *ctx, const check_buffers *buffers, int *nothing) {
  *nothing = 1;
  for (int i = 0; i < buffers->count; i++)
    if (buffers->at[i].output) *nothing = 0;
  for (int i = 0; i < buffers->count; i++)
    for (int j = 0; buffers->at[i].output && j < buffers->count; j++) {
      const check_buffer *a = &buffers->at[i], *b = &buffers->at[j];
      if (i != j && a->begin < b->end && b->begin < a->end)
        return INVALID("%s at 0x%" PRIxPTR "..0x%" PRIxPTR " overlaps %s at 0x%" PRIxPTR "..0x%" PRIxPTR, a->name,
                       a->begin, a->end - 1, b->name, b->begin, b->end - 1);
    }
  return true;
}

bool check_strides(m3idx_context *ctx, const char *outer_name, const char *inner_name, int64_t *outer_stride,
                   int64_t *inner_stride, int64_t inner, const char *width_name, int64_t width) {
  if (*inner_stride == 0) *inner_stride = width;
  if (!check_at_least(ctx, inner_name, *inner_stride, width_name, width)) return false;
  if (*outer_stride == 0) return check_product(ctx, outer_name, inner, *inner_stride, outer_stride);
  return check_range(ctx, outer_name, *outer_stride, 0, INT64_MAX);
}

/* width elements a row, rows `count` at `stride`, and the other axis steps by `outer` over all of them. */
static bool nests(int64_t outer_count, int64_t outer, int64_t count, int64_t stride, int64_t width) {
  if (count > 1 && stride < width) return false;
  return outer_count <= 1 || outer >= (count - 1) * stride + width;
}

/* The view has been through check_view_add, so the products fit. */
bool check_rows_apart(m3idx_context *ctx, const char *name, const int64_t shape[3], const int64_t stride[3]) {
  if (shape[0] == 0 || shape[1] == 0 || shape[2] == 0) return true;
  if (nests(shape[0], stride[0], shape[1], stride[1], shape[2]) ||
      nests(shape[1], stride[1], shape[0], stride[0], shape[2]))
    return true;
  return INVALID("%s: strides %" PRId64 ", %" PRId64 " make its %" PRId64 " * %" PRId64 " rows of %" PRId64
                 " elements overlap",
                 name, stride[0], stride[1], shape[0], shape[1], shape[2]);
}

bool check_tensor(m3idx_context *ctx, check_buffers *buffers, const char *name, m3idx_tensor *t, bool output) {
  char label[32];
  snprintf(label, sizeof label, "%s.dtype", name);
  if (!check_dtype(ctx, label, t->dtype)) return false;
  if (!t->stride[0] && !t->stride[1] && !t->stride[2]) {
    t->stride[2] = 1;
    t->stride[1] = t->shape[2];
    snprintf(label, sizeof label, "%s.stride[0]", name);
    if (t->shape[1] >= 0 && t->shape[2] >= 0 && /* else check_view_add names the shape */
        !check_product(ctx, label, t->shape[1], t->shape[2], &t->stride[0]))
      return false;
  }
  const size_t bytes = m3idx_dtype_bytes(t->dtype);
  check_view v = {name, t->data, bytes, bytes, {0}, {0}, output};
  for (int i = 0; i < 3; i++) {
    v.shape[i] = t->shape[i];
    v.stride[i] = t->stride[i];
  }
  return check_view_add(ctx, buffers, &v);
}
