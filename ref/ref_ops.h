/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of the reference backend: the slots of backend.h, one file each.  None judges its arguments: that
 * shapes agree, lengths ascend, live pages and slots exist and outputs lie apart is the door's word (S7.1), which
 * backend.h passes on.
 */
#ifndef M3IDX_REF_OPS_H
#define M3IDX_REF_OPS_H

#include "backend.h"

#define M3IDX_OP(name, what) m3idx_status ref_##name(m3idx_context *ctx, const m3idx_##name##_args *args);
#include "ops.def"
#undef M3IDX_OP

/* One row of S5: the selected ids of (row, head) to its line of the table and its context length. */
void ref_sparse_row(const m3idx_batch *batch, const m3idx_sparse_out *out, int64_t row, int64_t head, int64_t heads,
                    const int32_t *ids, int64_t topk);

#endif
