/* SPDX-License-Identifier: Apache-2.0
 *
 * The cpu backend: its slots, and which instruction set a context uses.  Operations without a fast path here are
 * the reference's, which are fast enough: they touch each output once.
 */
#include <stdlib.h>
#include <string.h>

#include "ref_ops.h"
#include "simd_run.h"

/* The best first; without M3IDX_ISA the first that is present and not slow is taken. */
static const simd_isa *const isas[] = {
#ifdef SIMD_X86_64
    &simd_amx,    &simd_avx512bf16, &simd_avx512, &simd_avx2,
#endif
#ifdef SIMD_AARCH64
    &simd_neon,
#endif
    &simd_scalar,
};
enum { ISAS = sizeof isas / sizeof *isas };

/* Every word that M3IDX_ISA knows, in this build or another. */
static const char *const words[] = {"scalar", "avx2", "avx512", "avx512bf16", "amx", "neon"};
enum { WORDS = sizeof words / sizeof *words };

static m3idx_status unusable(m3idx_context *ctx, const char *word) {
  for (int i = 0; i < WORDS; i++)
    if (!strcmp(words[i], word))
      return m3idx_fail(ctx, M3IDX_UNAVAILABLE, "M3IDX_ISA = %s, which this build or machine lacks", word);
  return m3idx_fail(ctx, M3IDX_INVALID, "M3IDX_ISA = \"%.64s\" is none of scalar, avx2, avx512, avx512bf16, amx, neon",
                    word);
}

/* The set that M3IDX_ISA names; NULL where it is unset or empty. */
static const char *asked_for(void) {
  const char *word = getenv("M3IDX_ISA");
  return word && *word ? word : NULL;
}

/* NULL and a message = none. */
static const simd_isa *choose(m3idx_context *ctx, m3idx_status *status) {
  const char *word = asked_for();
  for (int i = 0; i < ISAS; i++) {
    if (word && strcmp(word, isas[i]->name) != 0) continue;
    if (!word && isas[i]->slow && isas[i]->slow()) continue;
    if (isas[i]->present()) return isas[i];
  }
  *status = unusable(ctx, word ? word : "");
  return NULL;
}

static void close_cpu(m3idx_context *ctx) {
  simd_state *state = ctx->state;
  if (state) simd_scratch_free(state);
  free(state);
  ctx->state = NULL;
}

static m3idx_status open_cpu(m3idx_context *ctx) {
  m3idx_status status = M3IDX_OK;
  const simd_isa *isa = choose(ctx, &status);
  if (!isa) return status;
  simd_state *state = calloc(1, sizeof *state);
  if (!state) return m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory for the backend's state");
  state->isa = isa;
  ctx->state = state;
  snprintf(ctx->details, sizeof ctx->details, "isa %s (%s)%s", isa->name, isa->what,
           asked_for() ? ", asked for by M3IDX_ISA" : "");
  return M3IDX_OK;
}

const m3idx_backend m3idx_backend_cpu = {
    .abi = M3IDX_BACKEND_ABI,
    .name = "cpu",
    .open = open_cpu,
    .close = close_cpu,
    .score = simd_score,
    .select = simd_select,
    .merge = ref_merge,
    .topk = simd_topk,
    .sparse_table = ref_sparse_table,
    .cache_insert = ref_cache_insert,
};
