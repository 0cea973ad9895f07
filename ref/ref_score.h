/* SPDX-License-Identifier: Apache-2.0
 *
 * The score of one block (S3.1 to S3.5), shared by the score op and the fused selection.
 */
#ifndef M3IDX_REF_SCORE_H
#define M3IDX_REF_SCORE_H

#include <stdint.h>

#include "m3idx.h"

/* binary32 pattern of the score of the first `tokens` >= 1 tokens of `page` for query [row][head], times
 * `scale` (finite, > 0).  Neither -0 nor any NaN but 0x7fc00000. */
uint32_t ref_block_score(const m3idx_tensor *q, const m3idx_tensor *index_k, int64_t row, int64_t head, int64_t page,
                         int64_t tokens, float scale);

#endif
