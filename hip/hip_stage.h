/* SPDX-License-Identifier: Apache-2.0
 *
 * Host-memory calls: dense device copies of a call's host buffers, and the way back.  An output's bytes
 * reach the caller only row by row, after the device has finished without an error, so a call that fails
 * leaves the caller's memory as it was (S7.2) and padding between rows is never written (S3.6).
 */
#ifndef M3IDX_HIP_STAGE_H
#define M3IDX_HIP_STAGE_H

#include "hip_ops.h"

/* One buffer of a call.  Outputs are `outer` groups of `inner` rows of row_bytes, spread in the caller's memory;
 * with `slots`, row i of the dense copy belongs to the place slots[i] of those outer * inner (< 0: nowhere). */
struct hipk_buffer {
  void **slot;        /* the pointer in the args that becomes a device address */
  size_t bytes;       /* dense */
  size_t offset;      /* in the arena */
  const void *source; /* input bytes, dense; NULL for an output */
  void *owned;        /* malloc'd memory behind source, or NULL */
  unsigned char *target;
  int64_t outer, inner, row_bytes, outer_stride_bytes, inner_stride_bytes;
  const int64_t *slots;
};

enum { HIPK_MAX_BUFFERS = 16 };

struct hipk_stage {
  hipk_buffer buffers[HIPK_MAX_BUFFERS];
  int count;
  bool no_memory;
  m3idx_batch batch; /* copies that the device's args point at */
  m3idx_sparse_out sparse;
};

/* Device memory that a context keeps between calls. */
struct hipk_arena {
  void *base;
  size_t bytes;
};
m3idx_status hipk_arena_reserve(m3idx_context *ctx, hipk_arena *arena, size_t bytes, bool zero);
void hipk_arena_drop(hipk_arena *arena);

/* Register the buffers of a call and make *args the device's: dense strides, pointers to be placed. */
#define M3IDX_OP(name, what) void hipk_stage_##name(hipk_stage *stage, m3idx_##name##_args *args);
#include "ops.def"
#undef M3IDX_OP

/* Place and fill the device copies; afterwards every registered pointer is a device address. */
m3idx_status hipk_stage_upload(hipk_stage *stage, m3idx_context *ctx, hipk_arena *arena);
/* Wait for the stream and write the outputs into the caller's memory. */
m3idx_status hipk_stage_download(hipk_stage *stage, m3idx_context *ctx);
void hipk_stage_free(hipk_stage *stage);

/* hipSuccess is M3IDX_OK; else keep "CALL: the runtime's sentence" and return the status it means. */
m3idx_status hipk_check(m3idx_context *ctx, hipError_t error, const char *call);

#endif
