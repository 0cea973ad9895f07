/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the HIP backend, a plugin, so that libm3idx itself needs no GPU runtime.  Takes the file that
 * $M3IDX_HIP_PLUGIN names; without it the one beside libm3idx (or the program it is linked into); without
 * that whatever the loader's own path has.  The one that is found must work: a broken plugin is an error to
 * report, not a reason to look for another.
 */
#define _POSIX_C_SOURCE 200809L
#define _GNU_SOURCE /* dladdr: POSIX only since 2024 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"

#define PLUGIN_FILE "libm3idx_hip.so"

/* PLUGIN_FILE in the directory that holds this very code; false if unknown or too long. */
static int path_beside(char *path, size_t path_bytes) {
  static const char anchor = 0;
  Dl_info self;
  if (!dladdr(&anchor, &self) || !self.dli_fname) return 0;
  const char *slash = strrchr(self.dli_fname, '/');
  size_t directory = slash ? (size_t)(slash - self.dli_fname) + 1 : 0;
  if (!directory || directory + sizeof PLUGIN_FILE > path_bytes) return 0;
  memcpy(path, self.dli_fname, directory);
  memcpy(path + directory, PLUGIN_FILE, sizeof PLUGIN_FILE);
  return 1;
}

/* NODELETE: GPU runtimes keep threads and exit handlers that outlive a context. */
static void *load(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); }

static m3idx_status find(m3idx_context *ctx) {
  const char *named = getenv("M3IDX_HIP_PLUGIN");
  char beside[4096];
  if (named && *named) {
    ctx->plugin = load(named);
  } else {
    int found = path_beside(beside, sizeof beside) && access(beside, F_OK) == 0;
    ctx->plugin = load(found ? beside : PLUGIN_FILE);
  }
  if (ctx->plugin) return M3IDX_OK;
  const char *error = dlerror();
  return m3idx_fail(ctx, M3IDX_UNAVAILABLE, "the HIP plugin could not be loaded: %s", error ? error : "unknown reason");
}

void m3idx_plugin_unload(m3idx_context *ctx) {
  if (ctx->plugin) dlclose(ctx->plugin);
  ctx->plugin = NULL;
}

m3idx_status m3idx_plugin_load(m3idx_context *ctx) {
  m3idx_status status = find(ctx);
  if (status) return status;
  void *symbol = dlsym(ctx->plugin, M3IDX_PLUGIN_SYMBOL);
  m3idx_plugin_fn entry;
  memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from an object to a function pointer */
  const m3idx_backend *backend = symbol ? entry() : NULL;
  if (!backend)
    status = m3idx_fail(ctx, M3IDX_UNAVAILABLE, "the HIP plugin gives no backend through %s", M3IDX_PLUGIN_SYMBOL);
  else if (backend->abi != M3IDX_BACKEND_ABI)
    status = m3idx_fail(ctx, M3IDX_UNAVAILABLE, "the HIP plugin has backend ABI %d, this library needs %d",
                        backend->abi, M3IDX_BACKEND_ABI);
  if (status) {
    m3idx_plugin_unload(ctx);
    return status;
  }
  ctx->backend = backend;
  return M3IDX_OK;
}
