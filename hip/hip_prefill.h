/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill (S3, S8.5): what its kernels share.  A launch covers a window of the batch's rows; a tile is up to block_q
 * rows of one request inside it, seen by one head; a split is a range of the tile's blocks.
 *
 * Before scores come norms: of each row, with its codes as bf16, and of each live block of keys.  With |q|, |k| the
 * norms, sum |q_d k_d| <= |q| |k| (Cauchy and Schwarz); that product stands for it in every bound, and being larger
 * than 2^100, or no number, sends a pair of row and block to the path that knows infinities and NaN.
 */
#ifndef M3IDX_HIP_PREFILL_H
#define M3IDX_HIP_PREFILL_H

#include "hip_bound.h"
#include "hip_score.h"
#include "hip_select.h"

namespace hipk {

constexpr int PREFILL_DIM = MATRIX_DIM, PREFILL_BLOCK = 128; /* what the matrix kernels take */
constexpr int PLAIN_WAVES = 4, PLAIN_WAVE_ROWS = 4, PLAIN_ROWS = PLAIN_WAVES * PLAIN_WAVE_ROWS;

/* A score that is yet to be settled; none is a NaN of this pattern (S3.3). */
constexpr uint32_t BITS_OPEN = 0x7fc00001u;

/* What the fused selection keeps of a row and block: the largest approximate dot to 16 bits of its fraction, and in the
 * others which groups of MATRIX_GROUP tokens can hold the largest dot. */
constexpr int MATRIX_GROUP = WAVE / 2;
HIPK_DEVICE uint32_t with_groups(float best, uint32_t groups) { return (float_bits(best) & ~0xffu) | groups; }
HIPK_DEVICE float best_of(uint32_t bits) { return bits_float((bits & ~0xffu) | 0x80); } /* off by 2^-16 of itself */
constexpr uint32_t ALL_GROUPS = 0xff;
HIPK_DEVICE uint32_t groups_of(uint32_t bits) { return bits & 0xff; }

/* The norm, enlarged by 2^-10 of itself, infinite where an element is not finite; 2^grid divides every element. */
struct alignas(8) norm_grid {
  float norm;
  int32_t grid;
};

/* How far the sum of 128 exact products in binary64 may be off: nothing if |q| |k| <= 2^53 times a power of two that
 * divides them all.  A grid is within +-133. */
HIPK_DEVICE double error_of_sum(const norm_grid &row, const norm_grid &block) {
  const double size = static_cast<double>(row.norm) * static_cast<double>(block.norm);
  const double exact_to = bits_double(static_cast<uint64_t>(1023 + 53 + row.grid + block.grid) << 52);
  return size <= exact_to ? 0.0 : size * (136 * 0x1p-53);
}

struct prefill_view {
  score_view s;       /* s.score: row 0 is the window's first where `windowed`, else the batch's */
  int32_t begin, end; /* the window */
  bool windowed;
  int32_t block_q, splits, tiles; /* tiles: enough for any lengths */
  matrix_bound bound;
  norm_grid *rows;   /* [heads][end - begin] */
  u32x4 *queries;    /* [heads][end - begin][MATRIX_UNITS], bf16 */
  norm_grid *blocks; /* [requests][max_block], live ones */
  uint32_t *open;    /* 1 if the tiles left a score open; zeroed with the norms */
  bool bare;         /* measurement: maxima without groups */
  uint32_t *left;    /* [heads][end - begin]: 1 if the first selector leaves the row to the second */
};

/* How the launches of an operation are cut, and what they need of the workspace. */
struct prefill_plan {
  bool fits;      /* in the integers of a launch */
  bool matrix;    /* else the plain kernels */
  int32_t window; /* rows a pass */
  size_t rows_at, queries_at, blocks_at, open_at, left_at, score_at, bytes;
  int32_t block_q, splits;
};

/* What a tile stands on.  rows: of the batch. */
struct prefill_tile {
  int32_t request, seq_len, blocks; /* blocks: that its last row sees */
  m3idx_range rows;
  int64_t position; /* of its first row */
};

HIPK_DEVICE prefill_tile place_tile(const prefill_view &v, int32_t tile) {
  prefill_tile t = {};
  const gptr<const int32_t> cu = global(v.s.batch.cu_seqlens);
  for (int32_t r = 0; r < v.s.batch.requests; r++) {
    const int32_t first = cu[r];
    const int32_t begin = m3idx_max_i32(first, v.begin), end = m3idx_min_i32(cu[r + 1], v.end);
    const int32_t tiles = end > begin ? m3idx_ceil_div(end - begin, v.block_q) : 0;
    if (tile >= tiles) {
      tile -= tiles;
      continue;
    }
    t.request = r;
    t.seq_len = global(v.s.batch.seq_lens)[r];
    t.rows = m3idx_tile_rows(end - begin, v.block_q, tile);
    t.rows.begin += begin;
    t.rows.end += begin;
    t.position = static_cast<int64_t>(global(v.s.batch.prefix_lens)[r]) + (t.rows.begin - first);
    const int64_t last = t.position + (t.rows.end - t.rows.begin) - 1;
    t.blocks = blocks_of(keys_seen(last, t.seq_len), v.s.batch.block_shift);
    break;
  }
  return t;
}

/* Group g of a launch is a tile, head and split; the groups of one split of all tiles come together and share its keys
 * in the caches, the longest tiles first. */
struct prefill_group {
  int32_t tile, head, split;
};
HIPK_DEVICE prefill_group group_of(const prefill_view &v) {
  const int32_t g = group_index();
  return {v.tiles - 1 - g % v.tiles, g / v.tiles % v.s.heads, g / v.tiles / v.s.heads};
}

HIPK_DEVICE gptr<float> score_of(const prefill_view &v, int32_t head, int32_t row) {
  return global(v.s.score) + (head * v.s.score_stride_head + (row - (v.windowed ? v.begin : 0)) * v.s.score_stride_row);
}

HIPK_DEVICE gptr<const unsigned char> prefill_page(const score_view &v, int32_t request, int32_t block) {
  const int64_t page = global(v.block_table)[request * v.block_table_stride + block];
  return global(static_cast<const unsigned char *>(v.keys)) + page * (v.k_stride_page * v.k_format.bytes);
}

/* The columns past what the tile sees, this split's share of them (S3.6). */
HIPK_DEVICE void fill_columns(const prefill_view &v, const prefill_tile &t, const prefill_group &g, int threads) {
  if (!v.s.fill) return;
  const m3idx_range share = m3idx_score_part(v.s.max_block - t.blocks, v.splits, g.split);
  for (int32_t row = t.rows.begin; row < t.rows.end; row++) {
    const gptr<float> score = score_of(v, g.head, row);
    for (int32_t c = share.begin + thread_index(); c < share.end; c += threads)
      score[t.blocks + c] = bits_float(BITS_MINUS_INF);
  }
}

prefill_plan plan_prefill(const hipk_device *device, const score_view &view, m3idx_dtype q, m3idx_dtype k, bool fused);
/* M3IDX_OK, or a sentence why no launch holds the plan. */
m3idx_status prefill_supported(m3idx_context *ctx, const char *op, const score_view &view, const prefill_plan &plan);
/* The view of the window that begins at row `begin`. */
prefill_view view_window(const hipk_launch *at, const score_view &view, const prefill_plan &plan, int32_t begin);
void run_prefill_score(const hipk_launch *at, const score_view &view, const prefill_plan &plan, m3idx_dtype k);
/* Fused: select.score and view.score are the launcher's to set. */
void run_prefill_topk(const hipk_launch *at, const score_view &view, const select_view &select,
                      const prefill_plan &plan, m3idx_dtype k);

/* The launches behind them; each file its kernels. */
void launch_norms(const hipk_launch *at, const prefill_view &v, bool blocks, m3idx_dtype k);
void launch_tiles(const hipk_launch *at, const prefill_view &v, bool exact, m3idx_dtype k);
void launch_plain(const hipk_launch *at, const prefill_view &v);
void launch_settle(const hipk_launch *at, const prefill_view &v, m3idx_dtype k);
void launch_prefill_select(const hipk_launch *at, const prefill_view &v, const select_view &select, bool intervals,
                           m3idx_dtype k);

} // namespace hipk

#endif
