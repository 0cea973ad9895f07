/* SPDX-License-Identifier: Apache-2.0
 *
 * What the simt tests share.
 */
#include "simt_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simt_backend.h"

const char *const simt_archs[SIMT_ARCHS] = {"gfx942", "gfx950", "wave32"};

m3idx_context *simt_open(const char *arch) {
  m3idx_context *ctx = calloc(1, sizeof *ctx);
  if (!ctx) exit(1);
  ctx->backend = strcmp(arch, "ref") != 0 ? simt_backend(arch) : &m3idx_backend_ref;
  if (!ctx->backend || ctx->backend->open(ctx)) {
    fprintf(stderr, "no backend %s\n", arch);
    exit(1);
  }
  return ctx;
}

void simt_close(m3idx_context *ctx) {
  ctx->backend->close(ctx);
  free(ctx);
}

uint64_t simt_random(simt_rng *rng) {
  uint64_t z = (rng->state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

int64_t simt_below(simt_rng *rng, int64_t bound) { return (int64_t)(simt_random(rng) % (uint64_t)bound); }

void *simt_buffer(size_t bytes) {
  unsigned char *all = malloc(bytes + 2 * SIMT_GUARD);
  if (!all) exit(1);
  memset(all, SIMT_POISON, bytes + 2 * SIMT_GUARD);
  return all + SIMT_GUARD;
}

bool simt_buffer_free(void *buffer, size_t bytes) {
  unsigned char *all = (unsigned char *)buffer - SIMT_GUARD;
  bool whole = true;
  for (size_t i = 0; i < SIMT_GUARD; i++)
    whole = whole && all[i] == SIMT_POISON && all[SIMT_GUARD + bytes + i] == SIMT_POISON;
  free(all);
  if (!whole) fprintf(stderr, "a guard byte changed\n");
  return whole;
}

bool simt_same(const char *what, const char *run, const void *want, const void *got, size_t bytes, size_t element) {
  const unsigned char *w = want, *g = got;
  size_t different = 0, first = 0;
  for (size_t i = 0; i < bytes; i += element)
    if (memcmp(w + i, g + i, element) != 0 && different++ == 0) first = i;
  if (!different) return true;
  fprintf(stderr, "%s: %zu of %zu differ, first at %zu: want 0x", what, different, bytes / element, first / element);
  for (size_t i = element; i-- > 0;) fprintf(stderr, "%02x", w[first + i]);
  fprintf(stderr, ", got 0x");
  for (size_t i = element; i-- > 0;) fprintf(stderr, "%02x", g[first + i]);
  fprintf(stderr, "\n  %s\n", run);
  if (getenv("M3IDX_SIMT_FIRST")) exit(1); /* one difference is enough for who judges mutants */
  return false;
}

bool simt_full(void) {
  const char *full = getenv("M3IDX_SIMT_FULL");
  return full && strcmp(full, "1") == 0;
}

int simt_run(Suite *suite) {
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  if (!simt_backend_groups()) {
    fprintf(stderr, "no kernel ran\n");
    return 1;
  }
  return failed ? 1 : 0;
}
