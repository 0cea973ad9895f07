/* SPDX-License-Identifier: Apache-2.0
 *
 * The backends of this build, and which one a context takes.  A name takes exactly that backend or fails with
 * its reason; only "auto" may pass on to the next, and then the reason says which were passed over and why.
 */
#include <string.h>

#include "backend.h"

/* backend NULL = in the HIP plugin (plugin.c). */
static const struct {
  const char *name;
  const m3idx_backend *backend;
} backends[] = {
    {"ref", &m3idx_backend_ref},
#ifdef M3IDX_HAVE_CPU
    {"cpu", &m3idx_backend_cpu},
#endif
    {"hip", NULL},
};
enum { BACKENDS = sizeof backends / sizeof *backends };

const char *m3idx_backend_list(int i) { return i >= 0 && i < BACKENDS ? backends[i].name : NULL; }

void m3idx_backend_detach(m3idx_context *ctx) {
  if (ctx->backend && ctx->backend->close) ctx->backend->close(ctx);
  ctx->backend = NULL;
  m3idx_plugin_unload(ctx);
}

/* Exactly `name`; on failure the context holds no backend and its message is the reason. */
static m3idx_status attach_one(m3idx_context *ctx, const char *name) {
  int i = 0;
  while (i < BACKENDS && strcmp(backends[i].name, name) != 0) i++;
  if (i == BACKENDS) {
    return !strcmp(name, "cpu")
               ? m3idx_fail(ctx, M3IDX_UNAVAILABLE, "backend %s is not in this build", name)
               : m3idx_fail(ctx, M3IDX_INVALID, "backend = \"%.64s\" is none of ref, cpu, hip, auto", name);
  }
  ctx->backend = backends[i].backend;
  m3idx_status status = ctx->backend ? M3IDX_OK : m3idx_plugin_load(ctx);
  if (!status && ctx->backend->open) status = ctx->backend->open(ctx);
  if (status) m3idx_backend_detach(ctx);
  return status;
}

m3idx_status m3idx_backend_attach(m3idx_context *ctx, const char *name) {
  static const char *const order[] = {"hip", "cpu", "ref"};
  if (strcmp(name, "auto") != 0) {
    m3idx_status status = attach_one(ctx, name);
    if (!status) snprintf(ctx->reason, sizeof ctx->reason, "%s was asked for by name", name);
    return status;
  }
  char passed[M3IDX_MESSAGE_BYTES - 64] = ""; /* leaves room for the words around it */
  size_t used = 0;
  for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
    if (!attach_one(ctx, order[i])) {
      snprintf(ctx->reason, sizeof ctx->reason, "auto took %s%s%s", order[i], used ? "; passed over " : "", passed);
      return M3IDX_OK;
    }
    int n = snprintf(passed + used, sizeof passed - used, "%s%s: %s", used ? "; " : "", order[i], ctx->message);
    used = n < 0 || (size_t)n >= sizeof passed - used ? sizeof passed - 1 : used + (size_t)n;
  }
  return m3idx_fail(ctx, M3IDX_UNAVAILABLE, "no backend works here: %s", passed);
}
