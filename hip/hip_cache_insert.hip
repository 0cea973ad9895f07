/* SPDX-License-Identifier: Apache-2.0
 *
 * Index keys stored into the paged cache (S6): a lane is an element.  Rows with a negative slot write nothing.
 */
#include "hip_format.h"
#include "hip_ops.h"
#include "hip_rows.h"

namespace hipk {

constexpr int INSERT_THREADS = 256;

struct insert_view {
  const void *key;
  void *cache;
  format_view key_format;
  m3idx_dtype cache_dtype;
  bool convert;
  int64_t elems, key_stride_row, key_stride_dim, cache_stride_page, cache_stride_token;
  int32_t dim, block_shift;
  const int64_t *slots;
};

template <class Code> HIPK_KERNEL(INSERT_THREADS) insert_keys(insert_view v) {
  const gptr<const unsigned char> from = global(static_cast<const unsigned char *>(v.key));
  const gptr<Code> to = global(static_cast<Code *>(v.cache));
  const int64_t step = static_cast<int64_t>(group_count()) * INSERT_THREADS;
  for (int64_t i = static_cast<int64_t>(group_index()) * INSERT_THREADS + thread_index(); i < v.elems; i += step) {
    const int64_t row = i / v.dim, d = i % v.dim, slot = global(v.slots)[row];
    if (slot < 0) continue; /* S6.1 */
    uint32_t code = load_code(from, row * v.key_stride_row + d * v.key_stride_dim, v.key_format.bytes);
    if (v.convert) code = encode_fp8(decode_as(code, v.key_format), v.cache_dtype);
    const int64_t page = slot >> v.block_shift, token = slot & ((int64_t{1} << v.block_shift) - 1);
    to[page * v.cache_stride_page + token * v.cache_stride_token + d] = static_cast<Code>(code);
  }
}

} // namespace hipk

m3idx_status hipk_cache_insert_plan(m3idx_context *ctx, const hipk_device *, const m3idx_cache_insert_args *args,
                                    size_t *scratch_bytes) {
  const m3idx_dtype from = args->key.dtype, to = args->cache.dtype;
  *scratch_bytes = 0;
  if (from != to && (hipk::is_fp8(from) || !hipk::is_fp8(to)))
    return m3idx_fail(ctx, M3IDX_UNSUPPORTED,
                      "cache_insert: key %s into cache %s: only equal formats, or f32, f16 or bf16 into fp8",
                      m3idx_dtype_name(from), m3idx_dtype_name(to));
  return M3IDX_OK;
}

void hipk_cache_insert_launch(const hipk_launch *at, const m3idx_cache_insert_args *args) {
  hipk::insert_view v = {};
  v.key = args->key.data;
  v.cache = args->cache.data;
  v.key_format = hipk::view_format(args->key.dtype);
  v.convert = args->key.dtype != args->cache.dtype;
  v.cache_dtype = args->cache.dtype;
  v.dim = static_cast<int32_t>(args->key.shape[2]);
  v.elems = args->key.shape[1] * args->key.shape[2];
  v.key_stride_row = args->key.stride[1];
  v.key_stride_dim = args->key.stride[2];
  v.cache_stride_page = args->cache.stride[0];
  v.cache_stride_token = args->cache.stride[1];
  v.block_shift = hipk::log2_of(args->cache.shape[1]);
  v.slots = args->slot_mapping;
  if (v.elems == 0) return;
  const int64_t wanted = (v.elems + hipk::INSERT_THREADS - 1) / hipk::INSERT_THREADS;
  const int64_t groups = wanted < 65536 ? wanted : 65536;
  switch (hipk::bytes_of(v.cache_dtype)) {
  case 1: return hipk::launch(hipk::insert_keys<uint8_t>, groups, hipk::INSERT_THREADS, at->stream, v);
  case 2: return hipk::launch(hipk::insert_keys<uint16_t>, groups, hipk::INSERT_THREADS, at->stream, v);
  default: return hipk::launch(hipk::insert_keys<uint32_t>, groups, hipk::INSERT_THREADS, at->stream, v);
  }
}
