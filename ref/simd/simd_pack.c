/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries into lanes, pages into rows, and the constants of the bound (docs/CERTIFIED-FILTER.md).
 */
#include <float.h>
#include <math.h>

#include "ref_format.h"
#include "simd_convert.h"
#include "simd_tile.h"

/* Everything that rounds after a bound is evaluated is far below this. */
#define SLACK (1.0 + 0x1p-10)

static int exact_in_bf16(m3idx_dtype dtype) { return dtype != M3IDX_F32 && dtype != M3IDX_F16; }

simd_call simd_call_of(const simd_isa *isa, const m3idx_batch *batch, const m3idx_tensor *q,
                       const m3idx_tensor *index_k) {
  const m3idx_dtype dq = q->dtype, dk = index_k->dtype;
  return (simd_call){.isa = isa,
                     .form = isa->bf16.run && exact_in_bf16(dq) && exact_in_bf16(dk) ? SIMD_BF16 : SIMD_F32,
                     .batch = batch,
                     .q = q,
                     .index_k = index_k,
                     .scale = 1,
                     .narrow = dq != M3IDX_F32 && dk != M3IDX_F32, /* 11 + 11 significant bits at most */
                     .heads = q->shape[1],
                     .dim = q->shape[2]};
}

static const simd_filter *filter_of(const simd_call *call) {
  return call->form == SIMD_BF16 ? &call->isa->bf16 : &call->isa->f32;
}

/* The least float at or above x >= 0. */
static float up(double x) {
  const float f = (float)x;
  return (double)f < x ? simd_float(simd_bits(f) + 1) : f;
}

/* Theorem 1 of docs/CERTIFIED-FILTER.md: slope and offset from s >= sum |q[d]|. */
static void bound(const simd_filter *filter, int dim, double s, float *slope, float *offset) {
  const double u = 0x1p-24, tiny = filter->flushes ? 0x1p-126 : 0x1p-149;
  *slope = up(SLACK * ((filter->roundings(dim) + 2) * u * s + (filter->flushes ? dim * tiny : 0.0)));
  *offset = up(SLACK * tiny * (dim + dim / 8 + (filter->flushes ? s : 0.0)));
}

/* Lane l of the filter's layout and of the rows, from a row of binary32 values. */
static void place(const simd_group *group, simd_form form, int l, const float *row) {
  memcpy(group->row + (int64_t)l * group->dim, row, (size_t)group->dim * sizeof *row);
  if (form == SIMD_F32) {
    float *q = group->q;
    for (int d = 0; d < group->dim; d++) q[d * SIMD_LANES + l] = row[d];
  } else {
    uint16_t *to = (uint16_t *)group->q + 2 * l;
    for (int d = 0; d < group->dim; d += 2, to += 2 * SIMD_LANES) {
      const uint16_t pair[2] = {(uint16_t)(simd_bits(row[d]) >> 16), (uint16_t)(simd_bits(row[d + 1]) >> 16)};
      memcpy(to, pair, sizeof pair);
    }
  }
}

/* S2.3 */
static int32_t keys_seen(const m3idx_batch *batch, int64_t request, int64_t row_of_request) {
  const int64_t seq_len = batch->seq_lens[request];
  const int64_t first = batch->mode == M3IDX_PREFILL ? batch->prefix_lens[request] : seq_len - batch->decode_query_len;
  const int64_t keys = first + row_of_request + 1;
  return (int32_t)(keys < 0 ? 0 : keys > seq_len ? seq_len : keys);
}

void simd_group_pack(const simd_call *call, simd_group *group, int64_t request, int64_t first_row, int64_t first_lane,
                     int lanes) {
  enum { CHAINS = 8 }; /* one would wait for itself */
  const m3idx_tensor *q = call->q;
  const int dim = (int)call->dim, step = call->form == SIMD_BF16 ? SIMD_DIM_STEP : 1;
  group->lanes = lanes;
  group->dim = dim;
  group->padded_dim = (dim + step - 1) / step * step;
  group->first_lane = first_lane;
  group->wild = 0;
  group->min_keys = INT32_MAX;
  group->max_keys = 0;
  group->most_sum = 0;
  memset(group->q, 0, (size_t)group->padded_dim * SIMD_LANES * (call->form == SIMD_BF16 ? 2 : 4));
  for (int l = 0; l < lanes; l++) {
    const int64_t row = (first_lane + l) / call->heads, head = (first_lane + l) % call->heads;
    float values[SIMD_MAX_DIM];
    double sum = 0, part[CHAINS] = {0};
    const uint32_t most = call->isa->load(q->dtype, ref_element(q, first_row + row, head, 0), 0, q->stride[2], 1, dim,
                                          SIMD_F32, values, 0);
    for (int d = 0; d < dim; d += CHAINS)
      for (int i = 0; i < CHAINS; i++) part[i] += fabs((double)values[d + i]);
    for (int i = 0; i < CHAINS; i++) sum += part[i];
    if (most >= 0x7f800000u) {
      group->wild |= UINT32_C(1) << l;
      sum = 0;
    }
    group->sum[l] = sum * SLACK;
    if (group->sum[l] > group->most_sum) group->most_sum = group->sum[l];
    bound(filter_of(call), dim, group->sum[l], &group->slope[l], &group->offset[l]);
    group->grid[l] = 0;
    place(group, call->form, l, values);
    const int32_t keys = keys_seen(call->batch, request, row);
    group->keys[l] = keys;
    group->blocks[l] = (int32_t)((keys + call->batch->block_size - 1) / call->batch->block_size);
    if (keys < group->min_keys) group->min_keys = keys;
    if (keys > group->max_keys) group->max_keys = keys;
  }
  group->min_blocks = (int32_t)((group->min_keys + call->batch->block_size - 1) / call->batch->block_size);
  for (int l = lanes; l < SIMD_FEW; l++) /* of three lanes few() reads four */
    memset(group->row + (int64_t)l * dim, 0, (size_t)dim * sizeof *group->row);
  for (int l = lanes; l < SIMD_LANES; l++) {
    group->keys[l] = group->blocks[l] = 0;
    group->sum[l] = 0;
    group->slope[l] = group->offset[l] = 0;
  }
}

/* The page holds an infinity or a NaN: find the tokens and the peak of the others. */
static void find_wild(const simd_call *call, simd_page *page) {
  const m3idx_dtype dtype = page->form == SIMD_BF16 ? M3IDX_BF16 : M3IDX_F32;
  uint32_t peak = 0;
  page->any_wild = 1;
  for (int t = 0; t < page->tokens; t++) {
    const void *row = (const char *)page->keys + t * page->stride_bytes;
    const uint32_t most = call->isa->load(dtype, row, 0, 1, 1, (int)call->dim, page->form, NULL, 0);
    if (most >= 0x7f800000u)
      page->wild[t / 64] |= UINT64_C(1) << t % 64;
    else
      peak = simd_max(peak, most);
  }
  page->peak = simd_float(peak);
}

void simd_page_judge(const simd_call *call, simd_page *page, uint32_t most) {
  page->peak = simd_float(most);
  if (most >= 0x7f800000u) find_wild(call, page);
}

int simd_takes_few(const simd_call *call, int lanes) {
  const m3idx_tensor *k = call->index_k;
  return call->isa->few && lanes <= SIMD_FEW && k->dtype == M3IDX_BF16 && k->stride[2] == 1;
}

void simd_page_load(const simd_call *call, simd_page *page, int64_t id, int tokens, int few, void *copy) {
  const m3idx_tensor *k = call->index_k;
  const void *from = ref_element(k, id, 0, 0);
  const int64_t row_bytes = k->stride[1] * (int64_t)m3idx_dtype_bytes(k->dtype);
  const simd_form form = few ? SIMD_BF16 : call->form;
  const m3idx_dtype as_is = form == SIMD_BF16 ? M3IDX_BF16 : M3IDX_F32;
  const int whole_steps = few || form == SIMD_F32 || call->dim % SIMD_DIM_STEP == 0;
  const int direct = k->dtype == as_is && k->stride[2] == 1 && whole_steps;
  page->form = form;
  page->few = few;
  page->tokens = tokens;
  page->keys = direct ? from : copy;
  page->stride_bytes = direct ? row_bytes : form == SIMD_BF16 ? SIMD_MAX_DIM * 2 : call->dim * 4;
  page->grid = 0;
  page->next = (simd_next){.rows = 0};
  page->any_wild = 0;
  for (int i = 0; i < SIMD_TOKENS / 64; i++) page->wild[i] = 0;
  if (few) return;
  const uint32_t most = call->isa->load(k->dtype, from, row_bytes, k->stride[2], tokens, (int)call->dim, form,
                                        direct ? NULL : copy, page->stride_bytes);
  if (!whole_steps) /* the filter reads whole steps: 0 * garbage must be 0 */
    for (int t = 0; t < tokens; t++)
      memset((uint16_t *)copy + t * SIMD_MAX_DIM + call->dim, 0, SIMD_DIM_STEP / 2 * sizeof(uint16_t));
  simd_page_judge(call, page, most);
}
