/* SPDX-License-Identifier: Apache-2.0
 *
 * One row of the page-16 table and its context length (S5), written by one wave.
 */
#ifndef M3IDX_HIP_SPARSE_H
#define M3IDX_HIP_SPARSE_H

#include "hip_rows.h"

namespace hipk {

constexpr int PAGES_PER_BLOCK = 8, SPARSE_BLOCK = 128;

struct sparse_view {
  const int32_t *block_table;
  int64_t block_table_stride, page_stride;
  int32_t *table; /* NULL = no table wanted */
  int64_t table_stride;
  int32_t *context_lens;
};

inline sparse_view view_sparse(const m3idx_sparse_out *out) {
  sparse_view v = {};
  if (!out) return v;
  v.block_table = out->block_table;
  v.block_table_stride = out->block_table_stride;
  v.page_stride = out->page_stride;
  v.table = out->table;
  v.table_stride = out->table_stride;
  v.context_lens = out->context_lens;
  return v;
}

/* The entries of one block (S5.1, S5.5), in 64 bits until the last. */
HIPK_DEVICE int32_t sparse_entry(const sparse_view &v, int32_t page, int j, int32_t head, int32_t heads) {
  return static_cast<int32_t>((page * v.page_stride + j) * heads + head);
}

/* ids: the row's `topk` selected blocks. */
HIPK_DEVICE void write_sparse_row(const sparse_view &v, row_place at, int32_t row, int32_t head, int32_t heads,
                                  lds<int32_t> ids, int topk) {
  const gptr<const int32_t> pages = global(v.block_table) + at.request * v.block_table_stride;
  const int64_t out_row = static_cast<int64_t>(row) * heads + head;
  const gptr<int32_t> table = global(v.table) + out_row * v.table_stride;
  const int64_t causal = at.position < 0 ? 0 : at.position + 1;
  const int32_t self = at.position < 0 ? -1 : static_cast<int32_t>(at.position / SPARSE_BLOCK); /* S5.4 */
  int full = 0;
  bool tail = false;
  int32_t self_page = 0;
  for (int base = 0; base < topk; base += WAVE) {
    const int k = base + lane_index();
    const int32_t id = k < topk ? static_cast<int32_t>(ids[k]) : -1;
    const bool is_full = id >= 0 && id < self, is_self = id >= 0 && id == self;
    const uint64_t mask = ballot(is_full);
    const uint64_t selves = ballot(is_self);
    const int32_t page = is_full || is_self ? static_cast<int32_t>(pages[id]) : 0;
    if (is_full) {
      const int slot = full + count_bits(mask & ((uint64_t{1} << lane_index()) - 1));
      for (int j = 0; j < PAGES_PER_BLOCK; j++)
        table[slot * PAGES_PER_BLOCK + j] = sparse_entry(v, page, j, head, heads);
    }
    full += count_bits(mask);
    if (selves) self_page = shuffle(page, lowest_bit(selves));
    tail = tail || selves != 0;
  }
  const int used = (full + (tail ? 1 : 0)) * PAGES_PER_BLOCK;
  if (tail && lane_index() < PAGES_PER_BLOCK)
    table[full * PAGES_PER_BLOCK + lane_index()] = sparse_entry(v, self_page, lane_index(), head, heads);
  for (int i = used + lane_index(); i < topk * PAGES_PER_BLOCK; i += WAVE) table[i] = 0;
  if (lane_index() == 0) {
    const int64_t whole = static_cast<int64_t>(SPARSE_BLOCK) * full;
    const int64_t context =
        tail ? whole + causal - static_cast<int64_t>(SPARSE_BLOCK) * self : (whole < causal ? whole : causal);
    global(v.context_lens)[out_row] = static_cast<int32_t>(context);
  }
}

} // namespace hipk

#endif
