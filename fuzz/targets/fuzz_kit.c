/* SPDX-License-Identifier: Apache-2.0
 *
 * What the targets share: payload, contexts, and how a finding is reported.
 */
#define _POSIX_C_SOURCE 200809L
#include "fuzz_kit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_fill(const fuzz_bytes *in, bool vary, void *to, size_t bytes) {
  uint8_t *out = to;
  uint64_t turn = 0;
  for (size_t i = 0; i < bytes; i++) {
    const size_t at = in->left ? i % in->left : 0;
    if (at == 0 && i) turn = (turn + 1) * UINT64_C(0x9e3779b97f4a7c15); /* the golden ratio in 64 bits */
    out[i] = in->left ? in->at[at] : 0;
    if (vary) out[i] ^= (uint8_t)(turn >> (8 * (i % 8)));
  }
}

m3idx_contract fuzz_contract(fuzz_bytes *in) {
  m3idx_contract c;
  c.tie = (m3idx_tie)fuzz_between(in, 0, M3IDX_TIE_HIGHER_ID);
  c.nan = (m3idx_nan)fuzz_between(in, 0, M3IDX_NAN_BY_BITS);
  c.zero = (m3idx_zero)fuzz_between(in, 0, M3IDX_ZERO_SIGNED);
  c.order = (m3idx_order)fuzz_between(in, 0, M3IDX_ORDER_ID);
  return c;
}

void (*fuzz_at_stop)(void);

void fuzz_stop(const char *file, int line, const char *condition, const char *format, ...) {
  va_list ap;
  fprintf(stderr, "%s:%d: %s is false: ", file, line, condition);
  va_start(ap, format);
  vfprintf(stderr, format, ap);
  va_end(ap);
  fputc('\n', stderr);
  if (fuzz_at_stop) fuzz_at_stop();
  abort();
}

void fuzz_same(const char *what, const void *want, const void *got, size_t count, size_t width) {
  const uint8_t *a = want, *b = got;
  if (count == 0 || memcmp(a, b, count * width) == 0) return;
  for (size_t i = 0; i < count; i++) {
    uint64_t x = 0, y = 0;
    if (memcmp(a + i * width, b + i * width, width) == 0) continue;
    for (size_t j = 0; j < width; j++) {
      const uint16_t one = 1;
      const size_t shift = 8 * (*(const uint8_t *)&one ? j : width - 1 - j);
      x |= (uint64_t)a[i * width + j] << shift;
      y |= (uint64_t)b[i * width + j] << shift;
    }
    FUZZ_REQUIRE(x == y, "%s: element %zu of %zu, want 0x%llx, got 0x%llx", what, i, count, (unsigned long long)x,
                 (unsigned long long)y);
  }
}

static m3idx_context *open_one(const char *backend, const char *isa) {
  const m3idx_options options = {.backend = backend, .num_threads = 1};
  m3idx_context *ctx = NULL;
  if (isa) setenv("M3IDX_ISA", isa, 1);
  m3idx_open(&ctx, &options, NULL, 0);
  unsetenv("M3IDX_ISA");
  return ctx;
}

m3idx_context *fuzz_context(int i) {
  static const char *const isas[] = {"scalar", "avx2", "avx512", "avx512bf16", "amx", "neon"};
  enum { ISAS = sizeof isas / sizeof *isas };
  static m3idx_context *ctx[ISAS + 1];
  static int count;
  if (count == 0) {
    ctx[count++] = open_one("ref", NULL);
    FUZZ_REQUIRE(ctx[0] != NULL, "no backend ref");
    for (int n = 0; n < ISAS; n++)
      if ((ctx[count] = open_one("cpu", isas[n])) != NULL) count++;
  }
  return i < count ? ctx[i] : NULL;
}

m3idx_context *fuzz_one_cpu(fuzz_bytes *in) {
  int count = 1;
  while (fuzz_context(count)) count++;
  return fuzz_context((int)fuzz_between(in, 1, count - 1));
}

void *fuzz_buffer(size_t bytes) {
  void *buffer = malloc(bytes ? bytes : 1);
  FUZZ_REQUIRE(buffer != NULL, "no memory for %zu bytes", bytes);
  memset(buffer, 0xdb, bytes);
  return buffer;
}
