/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection from scores in device memory: what the launchers of select and topk share.
 */
#ifndef M3IDX_HIP_SELECT_H
#define M3IDX_HIP_SELECT_H

#include "hip_ops.h"
#include "hip_pick.h"

namespace hipk {

struct select_view {
  rows_view batch;
  const int32_t *num_blocks; /* NULL = from batch */
  const float *score;
  int64_t score_stride_head, score_stride_row, first_block;
  int32_t max_block;
  forced_blocks forced;
  pick_view pick;
  /* decode: how a row is cut (S8.2) */
  int32_t chunks, chunks_shift, merge_all, first_pick; /* chunks: a power of two, 2^chunks_shift */
  uint32_t *counters;                                  /* [rows of one launch], zero */
  uint64_t *partial;                                   /* [rows of one launch][chunks][width] */
};

select_view view_select(const m3idx_select_args *args, const m3idx_sparse_out *sparse);
/* Bytes of scratch that run_select() needs. */
size_t select_scratch_bytes(const hipk_device *device, const select_view &view);
void run_select(const hipk_launch *at, const select_view &view, void *scratch);

} // namespace hipk

#endif
