/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a row stands and what it sees (S2.3), on the device.
 */
#ifndef M3IDX_HIP_ROWS_H
#define M3IDX_HIP_ROWS_H

#include "hip_arch.h"
#include "m3idx.h"

namespace hipk {

/* A batch as kernels take it.  Row and request numbers fit int32_t: rows_fit() is asked by every plan. */
struct rows_view {
  bool prefill;
  int32_t requests, rows, decode_query_len, block_shift;
  const int32_t *seq_lens, *cu_seqlens, *prefix_lens;
};

struct row_place {
  int32_t request;
  int64_t position; /* p, negative in a padded row */
  int32_t keys;     /* n: token t is visible iff t < n */
  int32_t blocks;   /* N */
};

inline int log2_of(int64_t power) {
  int shift = 0;
  while ((int64_t{1} << shift) < power) shift++;
  return shift;
}

inline rows_view view_rows(const m3idx_batch *batch) {
  rows_view v = {};
  v.prefill = batch->mode == M3IDX_PREFILL;
  v.requests = static_cast<int32_t>(batch->num_requests);
  v.rows = static_cast<int32_t>(batch->num_rows);
  v.decode_query_len = static_cast<int32_t>(batch->decode_query_len);
  v.block_shift = log2_of(batch->block_size);
  v.seq_lens = batch->seq_lens;
  v.cu_seqlens = batch->cu_seqlens;
  v.prefix_lens = batch->prefix_lens;
  return v;
}

inline int32_t clamp_i32(int64_t x) { return x > INT32_MAX ? INT32_MAX : static_cast<int32_t>(x); }

/* Keys a row at `position` sees, and blocks: ceil without the overflow of keys + B - 1. */
HIPK_DEVICE int32_t keys_seen(int64_t position, int32_t seq_len) {
  return position < 0 ? 0 : position + 1 > seq_len ? seq_len : static_cast<int32_t>(position + 1);
}
HIPK_DEVICE int32_t blocks_of(int32_t keys, int block_shift) {
  return (keys >> block_shift) + ((keys & ((1 << block_shift) - 1)) != 0);
}

HIPK_DEVICE row_place place_row(const rows_view &v, int32_t row) {
  row_place at;
  const gptr<const int32_t> seq_lens = global(v.seq_lens);
  if (v.prefill) {
    const gptr<const int32_t> cu = global(v.cu_seqlens);
    int32_t low = 0, high = v.requests; /* cu[low] <= row < cu[high]: the last request that begins by row */
    while (high - low > 1) {
      const int32_t middle = low + (high - low) / 2;
      if (cu[middle] <= row)
        low = middle;
      else
        high = middle;
    }
    at.request = low;
    at.position = static_cast<int64_t>(global(v.prefix_lens)[low]) + (row - cu[low]);
    at.keys = keys_seen(at.position, seq_lens[low]);
  } else {
    at.request = row / v.decode_query_len;
    const int32_t seq_len = seq_lens[at.request];
    at.position = static_cast<int64_t>(seq_len) - v.decode_query_len + (row - at.request * v.decode_query_len);
    at.keys = keys_seen(at.position, seq_len);
  }
  at.blocks = blocks_of(at.keys, v.block_shift);
  return at;
}

} // namespace hipk

#endif
