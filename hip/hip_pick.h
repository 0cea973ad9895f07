/* SPDX-License-Identifier: Apache-2.0
 *
 * From a sorted list of keys to what a row's selection writes: keys, ids in the contract's order, sparse table.
 */
#ifndef M3IDX_HIP_PICK_H
#define M3IDX_HIP_PICK_H

#include "hip_best.h"
#include "hip_key.h"
#include "hip_sparse.h"

namespace hipk {

constexpr int MAX_TOPK = 128;

struct pick_view {
  int32_t heads, rows, topk, width; /* width: the power of two at or above topk */
  m3idx_contract contract;
  int32_t *topk_idx; /* or NULL */
  int64_t topk_stride_head, topk_stride_row;
  uint64_t *keys; /* [heads][rows][topk] or NULL */
  sparse_view sparse;
};

inline int32_t list_width(int64_t topk) { return 1 << log2_of(topk); }

/* One wave writes the row of `head`; list holds width keys, sorted, and is used up. */
HIPK_DEVICE void write_pick(const pick_view &v, lds<uint64_t> list, lds<int32_t> ids, int32_t head, int32_t row,
                            const rows_view *rows) {
  const int64_t at = static_cast<int64_t>(head) * v.rows + row;
  if (v.keys) {
    const gptr<uint64_t> keys = global(v.keys) + at * v.topk;
    for (int k = lane_index(); k < v.topk; k += WAVE) keys[k] = static_cast<uint64_t>(list[k]);
  }
  if (!v.topk_idx) return;
  m3idx_tie tie = v.contract.tie;
  if (v.contract.order == M3IDX_ORDER_ID) {
    /* Sort again, by id alone: a key of equal scores whose tie rule puts the lower id first. */
    for (int k = lane_index(); k < v.width; k += WAVE) {
      const uint64_t key = list[k];
      const uint32_t id = static_cast<uint32_t>(key_block(key, tie));
      list[k] = key && k < v.topk ? uint64_t{1} << 32 | (0xffffffffu - id) : uint64_t{0};
    }
    wave_sync();
    sort_runs(list, v.width, v.width);
    tie = M3IDX_TIE_LOWER_ID;
  }
  const gptr<int32_t> out = global(v.topk_idx) + (head * v.topk_stride_head + row * v.topk_stride_row);
  for (int k = lane_index(); k < v.topk; k += WAVE) {
    const int32_t id = key_block(list[k], tie);
    out[k] = id;
    ids[k] = id;
  }
  if (!v.sparse.table) return;
  wave_sync();
  write_sparse_row(v.sparse, place_row(*rows, row), row, head, v.heads, ids, v.topk);
}

} // namespace hipk

#endif
