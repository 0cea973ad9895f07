/* SPDX-License-Identifier: Apache-2.0
 *
 * Which program owns which blocks (S8.2 to S8.5): the ranges that the launch policies' numbers mean.  Pure
 * functions of integers that read as C11 and as HIP or CUDA C++, on host and device; no arithmetic on scores.
 *
 * Block counts are int32_t because block ids are, which keeps a GPU's divisions narrow.  A count n is 0 or
 * more, a number of parts 1 or more; inside that no function overflows.  tests/unit/test_geometry.c shows that
 * every partition here owns each block exactly once.
 */
#ifndef M3IDX_GEOMETRY_H
#define M3IDX_GEOMETRY_H

#include <stdint.h>

#ifndef M3IDX_FN
#if defined(__HIPCC__) || defined(__CUDACC__)
#define M3IDX_FN static inline __host__ __device__
#else
#define M3IDX_FN static inline
#endif
#endif

/* Blocks (or rows) begin .. end - 1; empty where begin == end. */
typedef struct m3idx_range {
  int32_t begin, end;
} m3idx_range;

M3IDX_FN int32_t m3idx_ceil_div(int32_t a, int32_t b) { return a / b + (a % b != 0); }
M3IDX_FN int32_t m3idx_min_i32(int32_t a, int32_t b) { return a < b ? a : b; }
M3IDX_FN int32_t m3idx_max_i32(int32_t a, int32_t b) { return a > b ? a : b; }

/* ---- selector (S8.2): chunks take turns at one extra block ---- */

/* Chunks that a row of n blocks keeps busy, at `block` candidates a tile; the others exit.  1..chunks. */
M3IDX_FN int32_t m3idx_topk_active(int32_t n, int32_t chunks, int32_t block) {
  return m3idx_max_i32(1, m3idx_min_i32(chunks, m3idx_ceil_div(n, block)));
}

/* Blocks of chunk c: n / active of them, one more for the first n % active.  Empty for c >= active. */
M3IDX_FN m3idx_range m3idx_topk_chunk(int32_t n, int32_t active, int32_t c) {
  const int32_t share = n / active, extra = n % active;
  m3idx_range range;
  if (c >= active) {
    range.begin = range.end = n;
    return range;
  }
  range.begin = c * share + m3idx_min_i32(c, extra);
  range.end = range.begin + share + (c < extra);
  return range;
}

/* ---- scorers (S8.4, S8.5): equal strides, the last parts short or empty ---- */

/* Blocks of part c of n blocks cut into `parts` strides of s = ceil(n / parts): [c*s, min((c+1)*s, n)).
 * Decode: n = the row's blocks, parts = chunks.  Prefill: n = m3idx_tile_blocks(), parts = splits. */
M3IDX_FN m3idx_range m3idx_score_part(int32_t n, int32_t parts, int32_t c) {
  /* (parts - 1) * s < n + parts, so c * s and c * s + s fit uint32_t for every c < parts. */
  const uint32_t s = (uint32_t)m3idx_ceil_div(n, parts), begin = (uint32_t)c * s, end = begin + s, all = (uint32_t)n;
  m3idx_range range;
  range.begin = (int32_t)(begin < all ? begin : all);
  range.end = (int32_t)(end < all ? end : all);
  return range;
}

/* Query rows of tile t of a request of q_len rows, block_q rows a tile. */
M3IDX_FN m3idx_range m3idx_tile_rows(int32_t q_len, int32_t block_q, int32_t t) {
  const int64_t begin = (int64_t)t * block_q, end = begin + block_q;
  m3idx_range range;
  range.begin = (int32_t)(begin < q_len ? begin : q_len);
  range.end = (int32_t)(end < q_len ? end : q_len);
  return range;
}

/* Blocks that the last row of a prefill tile sees (S2.3), rows.end from m3idx_tile_rows; 0 for an empty tile. */
M3IDX_FN int32_t m3idx_tile_blocks(int32_t prefix_len, int32_t seq_len, m3idx_range rows, int32_t block_size) {
  const int64_t seen = (int64_t)prefix_len + rows.end; /* position of the last row, plus 1 */
  if (rows.begin == rows.end) return 0;
  return m3idx_ceil_div(seen < seq_len ? (int32_t)seen : seq_len, block_size);
}

/* ---- balanced decode map (S8.3): programs dealt to requests by their blocks ---- */

/* What one program scores: blocks of one request; request -1 = past the work. */
typedef struct m3idx_work {
  int32_t request;
  m3idx_range blocks;
} m3idx_work;

M3IDX_FN int32_t m3idx_request_blocks(int32_t seq_len, int32_t block_size) {
  return m3idx_ceil_div(m3idx_max_i32(seq_len, 0), block_size);
}

/* max(1, ceil(blocks of all requests / budget)); a share past int32_t would own every request whole anyway. */
M3IDX_FN int32_t m3idx_blocks_per_program(const int32_t *seq_lens, int32_t reqs, int32_t block_size, int32_t budget) {
  int64_t sum = 0, each;
  for (int32_t r = 0; r < reqs; r++) sum += m3idx_request_blocks(seq_lens[r], block_size);
  each = sum / budget + (sum % budget != 0);
  if (each < 1) return 1;
  return each < INT32_MAX ? (int32_t)each : INT32_MAX;
}

/* Programs of the launch, from capacity alone.  Enough: sum(ceil(b_r / per)) <= sum(b_r) / per + R - R / per,
 * and sum(b_r) / per <= budget, so the programs with work number fewer than budget + R. */
M3IDX_FN int32_t m3idx_balanced_grid(int32_t reqs, int32_t budget) { return budget + reqs - 1; }

/* The work of one program: request r takes ceil(blocks_r / per_program) consecutive programs. */
M3IDX_FN m3idx_work m3idx_balanced_work(const int32_t *seq_lens, int32_t reqs, int32_t block_size, int32_t per_program,
                                        int32_t program) {
  m3idx_work work;
  for (int32_t r = 0; r < reqs; r++) {
    const int32_t blocks = m3idx_request_blocks(seq_lens[r], block_size);
    const int32_t programs = m3idx_ceil_div(blocks, per_program);
    if (program < programs) {
      work.request = r;
      work.blocks.begin = program * per_program;
      work.blocks.end = m3idx_min_i32(per_program, blocks - work.blocks.begin) + work.blocks.begin;
      return work;
    }
    program -= programs;
  }
  work.request = -1;
  work.blocks.begin = work.blocks.end = 0;
  return work;
}

#endif
