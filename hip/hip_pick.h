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

/* Where the id of list[k] goes: its place by id.  The empty slots, all last, stay where they are. */
HIPK_DEVICE int place_by_id(const pick_view &v, lds<uint64_t> list, int32_t id, int k) {
  if (id < 0) return k;
  int place = 0;
  HIPK_UNROLL_4
  for (int i = 0; i < v.topk; i++) {
    const int32_t other = key_block(list[i], v.contract.tie);
    place += other >= 0 && (other < id || (other == id && i < k));
  }
  return place;
}

/* One wave writes the row of `head`; list holds width keys, sorted; place is asked only for a sparse table. */
HIPK_DEVICE void write_pick(const pick_view &v, lds<uint64_t> list, lds<int32_t> ids, int32_t head, int32_t row,
                            const row_place &place) {
  const int64_t at = static_cast<int64_t>(head) * v.rows + row;
  if (v.keys) {
    const gptr<uint64_t> keys = global(v.keys) + at * v.topk;
    for (int k = lane_index(); k < v.topk; k += WAVE) keys[k] = static_cast<uint64_t>(list[k]);
  }
  if (!v.topk_idx) return;
  const gptr<int32_t> out = global(v.topk_idx) + (head * v.topk_stride_head + row * v.topk_stride_row);
  for (int k = lane_index(); k < v.topk; k += WAVE) {
    const int32_t id = key_block(list[k], v.contract.tie);
    const int slot = v.contract.order == M3IDX_ORDER_ID ? place_by_id(v, list, id, k) : k;
    out[slot] = id;
    ids[slot] = id;
  }
  if (!v.sparse.table) return;
  wave_sync();
  write_sparse_row(v.sparse, place, row, head, v.heads, ids, v.topk);
}

} // namespace hipk

#endif
