/* SPDX-License-Identifier: Apache-2.0
 *
 * The one door (SEMANTICS S7): every argument of every operation is judged here, once, before any
 * backend runs.  Backends rely on it and check nothing again.  Reads inputs, writes no output.
 */
#ifndef M3IDX_CHECK_H
#define M3IDX_CHECK_H

#include "backend.h"

/* A call's arguments with every default filled in: strides set, block_size 128 for 0, scale 1 for 0,
 * page_stride 8 for 0, batch and sparse pointing at the copies held here. */
typedef struct m3idx_resolved {
  int nothing; /* no output byte to write: a good call, and no slot is called */
  m3idx_batch batch;
  m3idx_sparse_out sparse;
  union {
#define M3IDX_OP(name, what) m3idx_##name##_args name;
#include "ops.def"
#undef M3IDX_OP
  } args;
} m3idx_resolved;

/* M3IDX_OK and *out filled, or M3IDX_INVALID and a sentence in ctx.  With ctx->memory ==
 * M3IDX_DEVICE_MEMORY pointers are judged (null, alignment, overlap) but never followed. */
#define M3IDX_OP(name, what) \
  m3idx_status m3idx_check_##name(m3idx_context *ctx, const m3idx_##name##_args *args, m3idx_resolved *out);
#include "ops.def"
#undef M3IDX_OP

#endif
