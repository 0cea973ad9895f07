/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill launches (S3, S8.5): which kernels a launch takes, in how many windows of rows, with what of the workspace.
 *
 * Scores: norms, tiles, then what they left open.  Fused selection: norms, tiles that store the approximate maximum of
 * each block alone, and a selector that works on intervals and evaluates only blocks whose order they do not decide:
 * no second scorer, no exact dot that no one asks for, and no array of scores beyond a window's.
 */
#include "hip_by_format.h"
#include "hip_prefill.h"

namespace hipk {

/* Scratch of a window, beyond which a launch takes several. */
constexpr int64_t WINDOW_BYTES = int64_t{256} << 20;

static size_t to_256(int64_t bytes) { return (static_cast<size_t>(bytes) + 255) / 256 * 256; }

/* Whether the keys lie as the matrix kernels load them. */
static bool in_units(const score_view &v) {
  const int64_t bytes = v.k_format.bytes;
  return v.dim == PREFILL_DIM && v.batch.block_shift == 7 && v.k_stride_dim == 1 && v.k_stride_token % CHUNK == 0 &&
         v.k_stride_page % CHUNK == 0 &&
         reinterpret_cast<uintptr_t>(v.keys) % static_cast<uintptr_t>(bytes * CHUNK) == 0;
}

/* Tiles of `height` rows that any lengths can make of a window: the whole ones, and a last one of each request. */
static int64_t most_tiles(const score_view &v, int64_t rows, int64_t height) {
  return rows / height + (v.batch.requests < rows ? v.batch.requests : rows);
}

/* Splits that give the device four waves of groups, for launches that S8.5 does not speak of. */
static int64_t plain_splits(const hipk_device *device, int64_t groups, int64_t columns) {
  const int64_t want = (4 * device->compute_units + groups - 1) / groups;
  return want < 1 ? 1 : want < columns ? want : columns;
}

prefill_plan plan_prefill(const hipk_device *device, const score_view &v, m3idx_dtype q, m3idx_dtype k, bool fused) {
  const int64_t rows = v.batch.rows, heads = v.heads, columns = v.max_block;
  prefill_plan plan = {};
  plan.matrix = device->matrix && is_matrix_format(q) && is_matrix_format(k) && in_units(v);
  m3idx_prefill_score_geometry geometry = {PLAIN_ROWS, 1};
  if (plan.matrix) {
    /* Of lengths only the sums are known here: one request of all rows, as long as the capacity. */
    const int64_t tokens = columns < INT32_MAX / PREFILL_BLOCK ? columns * PREFILL_BLOCK : INT32_MAX;
    m3idx_prefill_score_policy(rows, tokens, 1, heads, device->compute_units, device->prefill_arch, &geometry);
  } else {
    geometry.splits = plain_splits(device, (rows / PLAIN_ROWS + 1) * heads, columns < 1 ? 1 : columns);
  }
  plan.block_q = static_cast<int32_t>(geometry.block_q);
  plan.splits = static_cast<int32_t>(geometry.splits);

  int64_t row_bytes = 0;
  if (plan.matrix) row_bytes += heads * static_cast<int64_t>(MATRIX_UNITS * sizeof(u32x4) + sizeof(norm_grid));
  if (fused) row_bytes += heads * columns * static_cast<int64_t>(sizeof(float));
  int64_t window = row_bytes ? WINDOW_BYTES / row_bytes / 128 * 128 : rows;
  if (window < 128) window = 128;
  if (window > rows) window = rows;
  plan.window = static_cast<int32_t>(window);
  const int64_t blocks = v.batch.requests * columns;
  plan.fits = most_tiles(v, window, plan.block_q) <= INT32_MAX / heads / plan.splits && blocks <= INT32_MAX &&
              window <= INT32_MAX / heads;
  if (plan.matrix) {
    plan.queries_at = plan.bytes;
    plan.bytes += to_256(window * heads * static_cast<int64_t>(MATRIX_UNITS * sizeof(u32x4)));
    plan.rows_at = plan.bytes;
    plan.bytes += to_256(window * heads * static_cast<int64_t>(sizeof(norm_grid)));
    plan.blocks_at = plan.bytes;
    plan.bytes += to_256(blocks * static_cast<int64_t>(sizeof(norm_grid)));
  }
  plan.open_at = plan.bytes;
  plan.bytes += 256;
  plan.left_at = plan.bytes;
  if (fused && plan.matrix) plan.bytes += to_256(window * heads * static_cast<int64_t>(sizeof(uint32_t)));
  plan.score_at = plan.bytes;
  if (fused) plan.bytes += to_256(window * heads * columns * static_cast<int64_t>(sizeof(float)));
  return plan;
}

m3idx_status prefill_supported(m3idx_context *ctx, const char *op, const score_view &v, const prefill_plan &plan) {
  if (plan.fits) return M3IDX_OK;
  return m3idx_fail(ctx, M3IDX_UNSUPPORTED,
                    "%s: %d rows of %d heads, %d requests of %d blocks are more than a launch holds", op, v.batch.rows,
                    v.heads, v.batch.requests, v.max_block);
}

prefill_view view_window(const hipk_launch *at, const score_view &s, const prefill_plan &plan, int32_t begin) {
  prefill_view v = {};
  unsigned char *scratch = static_cast<unsigned char *>(at->scratch);
  v.s = s;
  v.begin = begin;
  v.end = plan.window < s.batch.rows - begin ? begin + plan.window : s.batch.rows;
  v.block_q = plan.block_q;
  v.splits = plan.splits;
  v.tiles = static_cast<int32_t>(most_tiles(s, v.end - begin, plan.block_q));
  v.bound = bound_of(at->device->arch);
  v.rows = reinterpret_cast<norm_grid *>(scratch + plan.rows_at);
  v.queries = reinterpret_cast<u32x4 *>(scratch + plan.queries_at);
  v.blocks = reinterpret_cast<norm_grid *>(scratch + plan.blocks_at);
  v.open = reinterpret_cast<uint32_t *>(scratch + plan.open_at);
  v.left = reinterpret_cast<uint32_t *>(scratch + plan.left_at);
  return v;
}

void run_prefill_score(const hipk_launch *at, const score_view &s, const prefill_plan &plan, m3idx_dtype k) {
  if (s.max_block == 0) return;
  for (int32_t begin = 0; begin < s.batch.rows; begin += plan.window) {
    const prefill_view v = view_window(at, s, plan, begin);
    if (plan.matrix) {
      launch_norms(at, v, begin == 0, k);
      launch_tiles(at, v, true, k);
      launch_settle(at, v, k);
    } else {
      launch_plain(at, v);
    }
    if (plan.window == s.batch.rows - begin) break;
  }
}

void run_prefill_topk(const hipk_launch *at, const score_view &s, const select_view &select, const prefill_plan &plan,
                      m3idx_dtype k) {
  for (int32_t begin = 0; begin < s.batch.rows; begin += plan.window) {
    prefill_view v = view_window(at, s, plan, begin);
    v.windowed = true;
    v.s.score = reinterpret_cast<float *>(static_cast<unsigned char *>(at->scratch) + plan.score_at);
    v.s.score_stride_row = s.max_block;
    v.s.score_stride_head = static_cast<int64_t>(v.end - v.begin) * s.max_block;
    if (s.max_block > 0) {
      if (plan.matrix) {
        launch_norms(at, v, begin == 0, k);
        launch_tiles(at, v, false, k);
      } else {
        launch_plain(at, v);
      }
    }
    launch_prefill_select(at, v, select, plan.matrix, k);
    if (plan.window == s.batch.rows - begin) break;
  }
}

} // namespace hipk
