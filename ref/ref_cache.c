/* SPDX-License-Identifier: Apache-2.0
 *
 * Index-cache insertion (S6): copies of equal formats, and f32, f16, bf16 into fp8.
 */
#include <string.h>

#include "ref_format.h"
#include "ref_ops.h"
#include "ref_parallel.h"

/* One output element. */
static void insert_element(const m3idx_cache_insert_args *args, int64_t row, int64_t d) {
  const m3idx_tensor *key = &args->key, *cache = &args->cache;
  int64_t slot = args->slot_mapping[row], block_size = cache->shape[1];
  const void *from = ref_element(key, 0, row, d);
  void *to = ref_element(cache, slot / block_size, slot % block_size, d);
  if (key->dtype == cache->dtype) {
    memcpy(to, from, m3idx_dtype_bytes(key->dtype));
  } else {
    uint8_t code = ref_encode_fp8(ref_decode(ref_load(from, key->dtype), key->dtype), cache->dtype);
    memcpy(to, &code, sizeof code);
  }
}

m3idx_status ref_cache_insert(m3idx_context *ctx, const m3idx_cache_insert_args *args) {
  m3idx_dtype from = args->key.dtype, to = args->cache.dtype;
  int64_t rows = args->key.shape[1], dim = args->key.shape[2];
  /* S6.2; S7.3 wants a sentence, S7.2 no byte written before it. */
  if (from != to && (ref_is_fp8(from) || !ref_is_fp8(to)))
    return m3idx_fail(ctx, M3IDX_UNSUPPORTED,
                      "cache_insert: key %s into cache %s: only equal formats, or f32, f16 or "
                      "bf16 into fp8",
                      m3idx_dtype_name(from), m3idx_dtype_name(to));
  REF_PARALLEL_FOR(ctx)
  for (int64_t i = 0; i < rows * dim; i++)
    if (args->slot_mapping[i / dim] >= 0) insert_element(args, i / dim, i % dim); /* S6.1: < 0 writes nothing */
  return M3IDX_OK;
}
