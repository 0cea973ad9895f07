/* SPDX-License-Identifier: Apache-2.0
 *
 * Which backends a driver judges: one by name, or "all", which is every one of this build that opens here.
 */
#ifndef M3IDX_VERSUS_H
#define M3IDX_VERSUS_H

#include <stdio.h>
#include <string.h>

#include "m3idx.h"

/* Calls judge(ctx, name, user) for each backend and says which cannot run and why.  Returns 0 if all returned 0,
 * 1 if one did not, 2 if none could be judged. */
static inline int versus_each(const char *backend, int num_threads,
                              int (*judge)(m3idx_context *ctx, const char *name, void *user), void *user) {
  int judged = 0, worst = 0;
  const char *name;
  for (int i = 0; (name = m3idx_backend_list(i)); i++) {
    if (strcmp(backend, "all") != 0 && strcmp(backend, name) != 0) continue;
    m3idx_context *ctx;
    char why[512];
    if (m3idx_open(&ctx, &(m3idx_options){.backend = name, .num_threads = num_threads}, why, sizeof why) != M3IDX_OK) {
      printf("backend %s: not run here: %s\n", name, why);
      continue;
    }
    printf("backend %s: %s\n", name, m3idx_backend_details(ctx));
    judged++;
    if (judge(ctx, name, user)) worst = 1;
    m3idx_close(ctx);
  }
  if (judged) return worst;
  fprintf(stderr, "no backend \"%s\" to judge here\n", backend);
  return 2;
}

#endif
