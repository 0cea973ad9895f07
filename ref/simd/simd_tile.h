/* SPDX-License-Identifier: Apache-2.0
 *
 * One group of lanes against one page: packing, the filter with its bound, and the exact stage.
 */
#ifndef M3IDX_SIMD_TILE_H
#define M3IDX_SIMD_TILE_H

#include "simd.h"

#define SIMD_NAN_BITS UINT32_C(0x7fc00000)
#define SIMD_MINUS_INF_BITS UINT32_C(0xff800000)

/* An operation, as every thread sees it. */
typedef struct simd_call {
  const simd_isa *isa;
  simd_form form; /* bf16 where the set has such a filter and both formats are exact in bf16, else f32 */
  const m3idx_batch *batch;
  const m3idx_tensor *q, *index_k;
  const int32_t *block_table;
  int64_t block_table_stride;
  float scale;
  int narrow; /* every product of finite values is exact in binary32 unless it overflows or underflows */
  int64_t init_blocks, local_blocks;
  int64_t heads, dim;
} simd_call;

/* With scale 1, no block forced and no table yet. */
simd_call simd_call_of(const simd_isa *isa, const m3idx_batch *batch, const m3idx_tensor *q,
                       const m3idx_tensor *index_k);

/* What the filter found for a group and a page. */
typedef struct simd_found {
  int tokens;                  /* scored; hidden ones as -inf */
  uint32_t active;             /* lanes that see a token of the page */
  uint32_t whole;              /* of those, lanes beyond the bound's assumptions: every token is a candidate */
  int32_t visible[SIMD_LANES]; /* tokens that the lane sees; 0 where there is no lane */
  float most[SIMD_LANES];      /* largest fast dot over tokens that are not wild, -inf if none */
  float error[SIMD_LANES];     /* bound of |fast - exact| of those; means nothing where whole */
  int scanned;                 /* work->near has the verdict, work->score nothing */
} simd_found;

/* A thread's buffers for the two. */
typedef struct simd_work {
  float *score; /* [TOKENS][LANES] */
  simd_near near;
  uint16_t list[SIMD_LANES * SIMD_TOKENS + 1]; /* pick() may write one past the last */
  double dot[SIMD_LANES * SIMD_TOKENS];
  /* a group's rows, where that many tokens tie that it pays */
  _Alignas(64) double doubles[SIMD_LANES * SIMD_MAX_DIM];
} simd_work;

/* Whether S3.7 forces the block in some lane of the group. */
static inline int simd_may_force(const simd_call *call, const simd_group *group, int64_t block) {
  return block < call->init_blocks || block >= group->min_blocks - call->local_blocks;
}

/* Lanes first_lane .. + lanes - 1 of the request whose first row is first_row.  group->q and group->row are
 * room for SIMD_LANES * dim (rounded up to SIMD_DIM_STEP) elements, 64-byte aligned. */
void simd_group_pack(const simd_call *call, simd_group *group, int64_t request, int64_t first_row, int64_t first_lane,
                     int lanes);

/* Whether pages for a tile of `lanes` go to simd_isa.few. */
int simd_takes_few(const simd_call *call, int lanes);
/* The first `tokens` of a page; `copy` is room for SIMD_TOKENS rows of SIMD_MAX_DIM floats. */
void simd_page_load(const simd_call *call, simd_page *page, int64_t id, int tokens, int few, void *copy);

/* What load() returned for the page: its peak, and its wild tokens. */
void simd_page_judge(const simd_call *call, simd_page *page, uint32_t most);

/* Run the filter.  first_key is the position of the page's token 0; some lane sees it.  keep = 0: no simd_settle will
 * follow unless found->whole or page->any_wild.  later: what simd_settle_begin() left to be done, or NULL. */
void simd_find(const simd_call *call, const simd_group *group, simd_page *page, int64_t first_key, int keep,
               simd_work *work, simd_later *later, simd_found *found);

/* For SIMD_SPLIT: the lanes' centers, and unit: a dot is at most unit * sum[l] + dim * 2^-149 off.  0 = the numbers are
 * too large or too small for it.  Products must be narrow, the page without wild tokens, no lane wild. */
int simd_split(const simd_isa *isa, const simd_group *group, const simd_page *page, float *center, double *unit);

/* An exact stage that has its candidates. */
typedef struct simd_exact {
  simd_later dots;
  simd_sum sum;
  uint32_t lanes;
  int one_each;          /* one candidate for every lane, and by lanes */
  const double *doubles; /* for isa->dots() */
  double split;          /* of simd_split() */
  float center[SIMD_LANES];
} simd_exact;

/* simd_settle() in two halves.  Between them group, page and found stay as they are, and work->list; another
 * simd_find() may run if exact->dots.count dots are all that is missing, which it returns. */
int simd_settle_begin(const simd_call *call, const simd_group *group, const simd_page *page, const simd_found *found,
                      simd_work *work, uint32_t lanes, simd_exact *exact);
void simd_settle_end(const simd_call *call, simd_group *group, simd_page *page, const simd_found *found,
                     simd_work *work, simd_exact *exact, int64_t first_row, int64_t id, uint32_t *bits);

/* The score (S3, scaled) of every lane in `lanes`, a subset of found->active, after simd_find().  Other entries of
 * bits mean nothing.  first_row is the request's, id the page's. */
void simd_settle(const simd_call *call, simd_group *group, simd_page *page, const simd_found *found, simd_work *work,
                 uint32_t lanes, int64_t first_row, int64_t id, uint32_t *bits);

#endif
