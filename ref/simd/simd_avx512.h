/* SPDX-License-Identifier: Apache-2.0
 *
 * What the three AVX-512 instruction sets share: the filter of f32 rows and everything after the filter.
 */
#ifndef M3IDX_SIMD_AVX512_H
#define M3IDX_SIMD_AVX512_H

#include "simd.h"

simd_filter_fn simd_avx512_filter;
simd_scan_fn simd_avx512_scan;
uint32_t simd_avx512_few(const simd_group *group, const void *keys, int64_t stride_bytes, int tokens, float *score,
                         simd_next *next);
int simd_avx512_roundings(int dim);
uint32_t simd_avx512_load(m3idx_dtype dtype, const void *from, int64_t row_bytes, int64_t stride, int tokens, int dim,
                          simd_form form, void *to, int64_t to_bytes);
void simd_avx512_peak(float *score, int tokens, const int32_t *visible, float *most);
int simd_avx512_sift(const simd_near *near, const float *least, uint16_t *list, int *one_each);
int simd_avx512_pick(const float *score, int tokens, const float *least, uint16_t *list);
/* Up to four of them. */
void simd_avx512_later(simd_later *later);
void simd_avx512_dots(const simd_group *group, const simd_page *page, const uint16_t *list, int count, simd_sum sum,
                      const float *center, const double *doubles, double *dot);
uint32_t simd_avx512_bounds(const float *most, const float *error, float scale, const float *floor, float *low,
                            float *high);
uint32_t simd_avx512_ends(const double *best, const double *sum, double unit, double tiny, float *low);

#endif
