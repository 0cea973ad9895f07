/* SPDX-License-Identifier: Apache-2.0
 *
 * Block scores (S3): every dot exact, rounded once, the largest kept.  Each output is computed by itself;
 * nothing is shared between blocks, heads or rows.
 */
#include "ref_score.h"

#include <string.h>

#include "ref_key.h"
#include "ref_ops.h"
#include "ref_parallel.h"
#include "ref_rows.h"
#include "ref_wide.h"

enum { MAX_HEAD_DIM = 256 };
#define NAN_BITS UINT32_C(0x7fc00000) /* S3.3: the one NaN that a score can be */
#define PLUS_INF_BITS UINT32_C(0x7f800000)
#define MINUS_INF_BITS UINT32_C(0xff800000)
#define ONE_BITS UINT32_C(0x3f800000)

static ref_number element(const m3idx_tensor *tensor, int64_t i, int64_t j, int64_t k) {
  return ref_decode(ref_load(ref_element(tensor, i, j, k), tensor->dtype), tensor->dtype);
}

static int is_zero(ref_number number) { return number.class == REF_FINITE && number.significand == 0; }

/* The dot of a query with one key (S3.1, S3.2), rounded. */
static uint32_t dot(const ref_number *q, const m3idx_tensor *index_k, int64_t page, int64_t token) {
  ref_wide sum;
  int plus_inf = 0, minus_inf = 0, nan = 0;
  ref_wide_zero(&sum);
  for (int64_t d = 0; d < index_k->shape[2]; d++) {
    ref_number k = element(index_k, page, token, d);
    if (q[d].class == REF_NAN || k.class == REF_NAN) {
      nan = 1;
    } else if (q[d].class == REF_INF || k.class == REF_INF) {
      if (is_zero(q[d]) || is_zero(k))
        nan = 1; /* S3.1: 0 * inf */
      else if (q[d].negative == k.negative)
        plus_inf = 1;
      else
        minus_inf = 1;
    } else {
      ref_wide_add_product(&sum, q[d], k);
    }
  }
  if (nan || (plus_inf && minus_inf)) return NAN_BITS;
  if (plus_inf) return PLUS_INF_BITS;
  if (minus_inf) return MINUS_INF_BITS;
  return ref_wide_round(&sum);
}

/* S3.5: a second rounding, of the exact product of two binary32 numbers; infinities and NaN stay.  Done on
 * integers so that no host's register width or flush mode can show. */
static uint32_t scaled(uint32_t bits, uint32_t scale_bits) {
  ref_number number = ref_decode(bits, M3IDX_F32);
  ref_wide product;
  if (scale_bits == ONE_BITS || number.class != REF_FINITE) return bits;
  ref_wide_zero(&product);
  ref_wide_add_product(&product, number, ref_decode(scale_bits, M3IDX_F32));
  return ref_wide_round(&product);
}

uint32_t ref_block_score(const m3idx_tensor *q, const m3idx_tensor *index_k, int64_t row, int64_t head, int64_t page,
                         int64_t tokens, float scale) {
  ref_number query[MAX_HEAD_DIM];
  uint32_t best = NAN_BITS; /* until some dot is not NaN */
  for (int64_t d = 0; d < q->shape[2]; d++) query[d] = element(q, row, head, d);
  for (int64_t token = 0; token < tokens; token++) {
    uint32_t bits = dot(query, index_k, page, token);
    if (bits == NAN_BITS) continue;
    /* The maximum of the rounded dots is the rounded maximum (ref_wide.h). */
    if (best == NAN_BITS || ref_ordered(bits) > ref_ordered(best)) best = bits;
  }
  return scaled(best, ref_float_bits(scale));
}

/* One output: column `block` of a row (S3.6, S3.7). */
static uint32_t score_element(const m3idx_score_args *args, int64_t head, int64_t row, int64_t block) {
  const m3idx_batch *batch = args->batch;
  ref_row at = ref_row_of(batch, row);
  if (block >= at.blocks) return MINUS_INF_BITS;
  int64_t page = args->block_table[at.request * args->block_table_stride + block];
  int64_t tokens = ref_row_tokens(batch, at, block);
  uint32_t bits = ref_block_score(&args->q, &args->index_k, row, head, page, tokens, args->scale);
  /* S3.7: prefill scores stay pure; there the door admits no forced blocks. */
  return ref_forced(bits, block, at.blocks, args->init_blocks, args->local_blocks);
}

m3idx_status ref_score(m3idx_context *ctx, const m3idx_score_args *args) {
  int64_t heads = args->q.shape[1], rows = args->batch->num_rows, columns = args->batch->max_block;
  REF_PARALLEL_FOR(ctx)
  for (int64_t i = 0; i < heads * rows * columns; i++) {
    int64_t head = i / (rows * columns), row = i / columns % rows, block = i % columns;
    uint32_t bits = score_element(args, head, row, block);
    memcpy(&args->score[head * args->score_stride_head + row * args->score_stride_row + block], &bits, sizeof bits);
  }
  return M3IDX_OK;
}
