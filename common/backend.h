/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend table: what a backend promises, and the context its calls receive.
 * Internal, shared by api.c, ref/, ref/simd/ and the HIP plugin.  No arithmetic.
 *
 * A slot may rely on what the door (check.c) has established: shapes, strides and contents are within
 * bounds, outputs do not overlap, zero fields that mean a default have been resolved (see m3idx_resolved in
 * check.h), and there is at least one output byte to write: an empty launch never reaches a slot.  Inputs that
 * are empty (no columns, no live block) may still be NULL.  With device memory the contents are not checked.
 *
 * A slot returns M3IDX_OK after writing every output byte that the operation defines and no other, or a
 * status by m3idx_fail() having written none.  It never falls back to another backend.
 */
#ifndef M3IDX_BACKEND_H
#define M3IDX_BACKEND_H

#include <stdarg.h>
#include <stdio.h>

#include "m3idx.h"

#define M3IDX_BACKEND_ABI 1
#define M3IDX_MESSAGE_BYTES 512
#define M3IDX_WORKSPACE_ALIGN 8 /* bytes: partial keys are 64-bit */

typedef struct m3idx_backend m3idx_backend;

struct m3idx_context {
  const m3idx_backend *backend;
  void *state;     /* the backend's own, from open() */
  int num_threads; /* 0 = the OpenMP default */
  int device;
  m3idx_memory memory;
  void *stream;
  void *workspace;
  size_t workspace_bytes;
  void *plugin; /* dlopen handle that backend came from, or NULL */
  char message[M3IDX_MESSAGE_BYTES];
  char reason[M3IDX_MESSAGE_BYTES];      /* why this backend was taken */
  char details[2 * M3IDX_MESSAGE_BYTES]; /* filled by open(): devices, ISA, ... */
};

/* Keep a sentence in ctx and return the status: `return m3idx_fail(ctx, M3IDX_UNSUPPORTED, "...")`. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static inline m3idx_status
m3idx_fail(m3idx_context *ctx, m3idx_status status, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  vsnprintf(ctx->message, sizeof ctx->message, format, ap);
  va_end(ap);
  return status;
}

struct m3idx_backend {
  int abi;          /* M3IDX_BACKEND_ABI of the headers it was built with */
  const char *name; /* "ref", "cpu", "hip" */

  /* Decide whether the backend works here; set ctx->state and ctx->details.  On failure the message is the
   * exact reason.  close() undoes it and accepts what a failed open left. */
  m3idx_status (*open)(m3idx_context *ctx);
  void (*close)(m3idx_context *ctx);

  /* Buffers the backend can work on with ctx->memory == M3IDX_DEVICE_MEMORY.  All NULL for host backends.
   * alloc zeroes.  Copies are ordered on ctx->stream; upload and download have completed on return. */
  void *(*alloc)(m3idx_context *ctx, size_t bytes);
  void (*free)(m3idx_context *ctx, void *buffer);
  m3idx_status (*upload)(m3idx_context *ctx, void *device, const void *host, size_t bytes);
  m3idx_status (*download)(m3idx_context *ctx, void *host, const void *device, size_t bytes);

  /* Workspace bytes of one launch with device memory; NULL = needs none. */
  m3idx_status (*plan)(m3idx_context *ctx, m3idx_op op, const void *args, size_t *workspace_bytes);

  /* The operations; NULL = not implemented. */
#define M3IDX_OP(name, what) m3idx_status (*name)(m3idx_context * ctx, const m3idx_##name##_args *args);
#include "ops.def"
#undef M3IDX_OP
};

/* backend.c: give ctx the backend of that name ("auto": the first of hip, cpu, ref that opens) and the reason;
 * on failure ctx->backend is NULL and the message says why.  detach undoes it. */
m3idx_status m3idx_backend_attach(m3idx_context *ctx, const char *name);
void m3idx_backend_detach(m3idx_context *ctx);
/* plugin.c: set ctx->plugin and ctx->backend from the HIP plugin, not yet opened. */
m3idx_status m3idx_plugin_load(m3idx_context *ctx);
void m3idx_plugin_unload(m3idx_context *ctx);

extern const m3idx_backend m3idx_backend_ref;
extern const m3idx_backend m3idx_backend_cpu;

/* ref/simd/simd_probe.c, built into the benchmark alone: what the cpu backend's filter finds, without the exact stage.
 * ctx is of that backend, args are resolved (check.h); the scores are approximate. */
m3idx_status m3idx_probe_filter(m3idx_context *ctx, const m3idx_score_args *args);

/* The one symbol a plugin exports. */
#define M3IDX_PLUGIN_SYMBOL "m3idx_plugin_backend"
typedef const m3idx_backend *(*m3idx_plugin_fn)(void);

#endif
