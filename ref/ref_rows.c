/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a row stands and what it sees (S2.3).
 */
#include "ref_rows.h"

/* The last request that begins at or before the row.  An empty request begins where the next one does, so
 * "last" steps over it; cu_seqlens[R] = T > row ends the search. */
static int64_t prefill_request(const m3idx_batch *batch, int64_t row) {
  int64_t low = 0, high = batch->num_requests; /* cu[low] <= row < cu[high] */
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (batch->cu_seqlens[middle] <= row)
      low = middle;
    else
      high = middle;
  }
  return low;
}

ref_row ref_row_of(const m3idx_batch *batch, int64_t row) {
  ref_row out;
  if (batch->mode == M3IDX_PREFILL) {
    out.request = prefill_request(batch, row);
    out.position = batch->prefix_lens[out.request] + (row - batch->cu_seqlens[out.request]);
  } else {
    out.request = row / batch->decode_query_len;
    out.position = batch->seq_lens[out.request] - batch->decode_query_len + row % batch->decode_query_len;
  }
  int64_t seq_len = batch->seq_lens[out.request];
  out.keys = out.position + 1 < 0 ? 0 : out.position + 1 > seq_len ? seq_len : out.position + 1;
  out.blocks = (out.keys + batch->block_size - 1) / batch->block_size;
  return out;
}

int64_t ref_row_tokens(const m3idx_batch *batch, ref_row row, int64_t block) {
  int64_t tokens = row.keys - block * batch->block_size;
  return tokens < batch->block_size ? tokens : batch->block_size;
}
