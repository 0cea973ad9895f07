/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry points: judge the arguments (check.c), find the backend's slot, call it, keep its sentence.
 * S7.1, S7.2: nothing is written before the whole call has been judged.  No arithmetic and no fallback.
 */
#include <stdlib.h>

#include "check.h"

static void tell(char *why, size_t why_bytes, const char *text) {
  if (why && why_bytes) snprintf(why, why_bytes, "%s", text);
}

m3idx_status m3idx_open(m3idx_context **ctx, const m3idx_options *options, char *why, size_t why_bytes) {
  static const m3idx_options defaults = {0};
  if (!ctx) {
    tell(why, why_bytes, "ctx is NULL");
    return M3IDX_INVALID;
  }
  *ctx = NULL;
  if (!options) options = &defaults;
  m3idx_context *c = calloc(1, sizeof *c);
  if (!c) {
    tell(why, why_bytes, "no memory for a context");
    return M3IDX_NO_MEMORY;
  }
  c->num_threads = options->num_threads;
  c->device = options->device;
  m3idx_status status = M3IDX_OK;
  if (options->num_threads < 0)
    status = m3idx_fail(c, M3IDX_INVALID, "num_threads = %d is below 0", options->num_threads);
  else if (options->device < 0)
    status = m3idx_fail(c, M3IDX_INVALID, "device = %d is below 0", options->device);
  else
    status = m3idx_backend_attach(c, options->backend ? options->backend : "auto");
  tell(why, why_bytes, status ? c->message : "");
  if (status) {
    free(c);
    return status;
  }
  c->message[0] = '\0';
  *ctx = c;
  return M3IDX_OK;
}

void m3idx_close(m3idx_context *ctx) {
  if (!ctx) return;
  m3idx_backend_detach(ctx);
  free(ctx);
}

const char *m3idx_message(const m3idx_context *ctx) { return ctx ? ctx->message : "ctx is NULL"; }
const char *m3idx_backend_name(const m3idx_context *ctx) { return ctx ? ctx->backend->name : ""; }
const char *m3idx_backend_reason(const m3idx_context *ctx) { return ctx ? ctx->reason : ""; }
const char *m3idx_backend_details(const m3idx_context *ctx) { return ctx ? ctx->details : ""; }

m3idx_status m3idx_set_stream(m3idx_context *ctx, void *stream, m3idx_memory memory) {
  if (!ctx) return M3IDX_INVALID;
  if (memory != M3IDX_HOST && memory != M3IDX_DEVICE_MEMORY)
    return m3idx_fail(ctx, M3IDX_INVALID, "memory = %d is neither 0 (host) nor 1 (device)", (int)memory);
  if (!ctx->backend->alloc && (stream || memory == M3IDX_DEVICE_MEMORY))
    return m3idx_fail(ctx, M3IDX_UNSUPPORTED, "backend %s works in host memory and has no streams", ctx->backend->name);
  ctx->stream = stream;
  ctx->memory = memory;
  return M3IDX_OK;
}

m3idx_status m3idx_set_workspace(m3idx_context *ctx, void *workspace, size_t workspace_bytes) {
  if (!ctx) return M3IDX_INVALID;
  if (!workspace && workspace_bytes)
    return m3idx_fail(ctx, M3IDX_INVALID, "workspace is NULL but workspace_bytes = %zu", workspace_bytes);
  if ((uintptr_t)workspace % M3IDX_WORKSPACE_ALIGN)
    return m3idx_fail(ctx, M3IDX_INVALID, "workspace = %p is not aligned to %d bytes", workspace,
                      M3IDX_WORKSPACE_ALIGN);
  ctx->workspace = workspace;
  ctx->workspace_bytes = workspace_bytes;
  return M3IDX_OK;
}

/* The door, then the slot: after M3IDX_OK ctx->backend has op and *r holds its arguments. */
static m3idx_status enter(m3idx_context *ctx, m3idx_op op, const void *args, m3idx_resolved *r) {
  if (!ctx) return M3IDX_INVALID;
  m3idx_status status = M3IDX_OK;
  const char *name = "";
  int has_slot = 0;
  switch (op) {
#define M3IDX_OP(op_name, what)                   \
  case M3IDX_OP_##op_name:                        \
    status = m3idx_check_##op_name(ctx, args, r); \
    has_slot = ctx->backend->op_name != NULL;     \
    name = #op_name;                              \
    break;
#include "ops.def"
#undef M3IDX_OP
  case M3IDX_OP_COUNT:
  default: return m3idx_fail(ctx, M3IDX_INVALID, "op = %d is outside 0..%d", (int)op, M3IDX_OP_COUNT - 1);
  }
  if (status) return status;
  if (!has_slot)
    return m3idx_fail(ctx, M3IDX_UNSUPPORTED, "backend %s does not implement %s", ctx->backend->name, name);
  return M3IDX_OK;
}

m3idx_status m3idx_plan(m3idx_context *ctx, m3idx_op op, const void *args, size_t *workspace_bytes) {
  m3idx_resolved r;
  m3idx_status status = enter(ctx, op, args, &r);
  if (status) return status;
  if (!workspace_bytes) return m3idx_fail(ctx, M3IDX_INVALID, "workspace_bytes is NULL");
  size_t bytes = 0;
  if (ctx->backend->plan && !r.nothing) status = ctx->backend->plan(ctx, op, &r.args, &bytes);
  if (!status) *workspace_bytes = bytes;
  return status;
}

m3idx_status m3idx_score(m3idx_context *ctx, const m3idx_score_args *args) {
  m3idx_resolved r;
  m3idx_status status = enter(ctx, M3IDX_OP_score, args, &r);
  return status || r.nothing ? status : ctx->backend->score(ctx, &r.args.score);
}

m3idx_status m3idx_select(m3idx_context *ctx, const m3idx_select_args *args) {
  m3idx_resolved r;
  m3idx_status status = enter(ctx, M3IDX_OP_select, args, &r);
  return status || r.nothing ? status : ctx->backend->select(ctx, &r.args.select);
}

m3idx_status m3idx_merge(m3idx_context *ctx, const m3idx_merge_args *args) {
  m3idx_resolved r;
  m3idx_status status = enter(ctx, M3IDX_OP_merge, args, &r);
  return status || r.nothing ? status : ctx->backend->merge(ctx, &r.args.merge);
}

m3idx_status m3idx_topk(m3idx_context *ctx, const m3idx_topk_args *args) {
  m3idx_resolved r;
  m3idx_status status = enter(ctx, M3IDX_OP_topk, args, &r);
  return status || r.nothing ? status : ctx->backend->topk(ctx, &r.args.topk);
}

m3idx_status m3idx_sparse_table(m3idx_context *ctx, const m3idx_sparse_table_args *args) {
  m3idx_resolved r;
  m3idx_status status = enter(ctx, M3IDX_OP_sparse_table, args, &r);
  return status || r.nothing ? status : ctx->backend->sparse_table(ctx, &r.args.sparse_table);
}

m3idx_status m3idx_cache_insert(m3idx_context *ctx, const m3idx_cache_insert_args *args) {
  m3idx_resolved r;
  m3idx_status status = enter(ctx, M3IDX_OP_cache_insert, args, &r);
  return status || r.nothing ? status : ctx->backend->cache_insert(ctx, &r.args.cache_insert);
}
