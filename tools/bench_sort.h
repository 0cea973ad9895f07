/* SPDX-License-Identifier: Apache-2.0
 *
 * One row of selection by the C++ library (bench_sort.cpp).
 */
#ifndef M3IDX_BENCH_SORT_H
#define M3IDX_BENCH_SORT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ids[0 .. topk - 1] of score[0 .. n - 1], -1 where there are none; room for n keys. */
void bench_sort_row(const float *score, int64_t n, int64_t topk, int by_nth_element, uint64_t *room, int32_t *ids);

#ifdef __cplusplus
}
#endif
#endif
