/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the door that several operations share (S7).  Every function judges one thing: true = good,
 * false = a sentence is in the context that names the argument, its value and the bound (S7.3), so that a
 * check reads as one chain of &&.  Private to check*.c.
 *
 * All arithmetic is on int64_t >= 0 and judged before it is done: no argument, however hostile, overflows.
 */
#ifndef M3IDX_CHECK_PARTS_H
#define M3IDX_CHECK_PARTS_H

#include <stdbool.h>

#include "check.h"

/* Row, request, head and block counts: ids and positions are int32, so nothing larger is addressable. */
#define CHECK_MAX_COUNT INT32_MAX

/* ---- numbers ---- */
bool check_range(m3idx_context *ctx, const char *name, int64_t value, int64_t low, int64_t high);
bool check_equal(m3idx_context *ctx, const char *name, int64_t value, const char *bound_name, int64_t bound);
bool check_at_least(m3idx_context *ctx, const char *name, int64_t value, const char *bound_name, int64_t bound);
bool check_given(m3idx_context *ctx, const char *name, const void *pointer);
bool check_absent(m3idx_context *ctx, const char *name, const void *pointer, const char *when);
bool check_dtype(m3idx_context *ctx, const char *name, m3idx_dtype dtype);
bool check_block_size(m3idx_context *ctx, const char *name, int64_t block_size);
bool check_scale(m3idx_context *ctx, float *scale); /* 0 becomes 1 */
bool check_contract(m3idx_context *ctx, const m3idx_contract *contract);
/* *out = a * b for a, b >= 0. */
bool check_product(m3idx_context *ctx, const char *name, int64_t a, int64_t b, int64_t *out);

/* ---- memory: the buffers of one call ----
 * Overlap is judged by address range, first byte to last: two views that interleave inside one range are
 * refused although they share no byte.  Empty buffers may be NULL and overlap nothing. */
typedef struct check_buffer {
  const char *name;
  uintptr_t begin, end;
  bool output;
} check_buffer;

typedef struct check_buffers {
  int count;
  check_buffer at[16];
} check_buffers;

/* A strided view of rank 3: element sizes and count are judged (dimensions, strides >= 0, last byte
 * addressable), pointer non-NULL and aligned unless the view is empty; then it joins the list. */
typedef struct check_view {
  const char *name;
  const void *data;
  size_t element_bytes, alignment;
  int64_t shape[3], stride[3];
  bool output;
} check_view;
bool check_view_add(m3idx_context *ctx, check_buffers *buffers, const check_view *view);
/* A dense array of count elements. */
bool check_array_add(m3idx_context *ctx, check_buffers *buffers, const char *name, const void *data,
                     size_t element_bytes, size_t alignment, int64_t count, bool output);
/* Every output against every other buffer; *nothing = no output has a byte. */
bool check_buffers_apart(m3idx_context *ctx, const check_buffers *buffers, int *nothing);

/* Strides of a [outer][inner][width] array, a zero field resolved to dense: inner >= width. */
bool check_strides(m3idx_context *ctx, const char *outer_name, const char *inner_name, int64_t *outer_stride,
                   int64_t *inner_stride, int64_t inner, const char *width_name, int64_t width);
/* The rows of an output must not meet: one axis nests inside the other (either may be the inner). */
bool check_rows_apart(m3idx_context *ctx, const char *name, const int64_t shape[3], const int64_t stride[3]);
/* dtype, dimensions >= 0, strides (all 0 = dense row-major, filled in); joins the list. */
bool check_tensor(m3idx_context *ctx, check_buffers *buffers, const char *name, m3idx_tensor *tensor, bool output);

/* ---- batches (check_batch.c) ---- */
/* Copy and resolve a batch, judge shapes, pointers and, in host memory, contents. */
bool check_batch(m3idx_context *ctx, check_buffers *buffers, const m3idx_batch *in, m3idx_batch *out);
/* A [R][>= M] table with its resolved stride; in host memory every live entry must be in 0..max_page.  bound
 * says in words what max_page is. */
bool check_block_table(m3idx_context *ctx, check_buffers *buffers, const m3idx_batch *batch, const char *name,
                       const int32_t *table, int64_t *stride, int64_t max_page, const char *bound);

/* ---- slots (check_slots.c): live ones below bound, none twice.  NO_MEMORY is possible. ---- */
m3idx_status check_slots(m3idx_context *ctx, const int64_t *slots, int64_t count, int64_t bound);

#endif
