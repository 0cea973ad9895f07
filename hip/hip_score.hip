/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode scores of every visible block (S3), exact.
 *
 * A program (workgroup) owns blocks of one request (S8.3 or S8.4) and scores each key tile for all of the
 * request's rows and heads, 16 at a time.  The tile's keys are in registers, the next tile's already on the way.
 * Filter (hip_filter.h), one barrier, then a team of 16 lanes a row finds the few tokens that the filter's bound
 * leaves and evaluates them exactly (hip_exact.h), while the other waves go on with the next tile; the table of
 * approximate dots is double for that.  Nothing is carried from block to block.
 */
#include "hip_exact.h"
#include "hip_filter.h"

namespace hipk {

/* What a team knows of its row. */
struct team_row {
  int32_t head, keys, blocks; /* n and N (S2.3) */
  int64_t row;
};

HIPK_DEVICE team_row place_team(const score_view &v, int32_t request, int32_t index) {
  team_row t;
  const int32_t step = index / v.heads;
  const int32_t seq_len = global(v.batch.seq_lens)[request];
  t.head = index % v.heads;
  t.row = static_cast<int64_t>(request) * v.batch.decode_query_len + step;
  t.keys = keys_seen(static_cast<int64_t>(seq_len) - v.batch.decode_query_len + step, seq_len);
  t.blocks = blocks_of(t.keys, v.batch.block_shift);
  return t;
}

/* Queries of the program's rows as binary32, missing rows as zeros, and A = sum |q| of each. */
template <class F>
HIPK_DEVICE void stage_queries(const score_view &v, int32_t request, int32_t first, int rows, lds<float> q,
                               lds<float> q_size) {
  const gptr<const unsigned char> from = global(static_cast<const unsigned char *>(v.q));
  for (int i = thread_index(); i < (rows + 3) / 4 * 4 * F::DIM; i += SCORE_THREADS) {
    const int row = i / F::DIM, d = i % F::DIM;
    float x = 0;
    if (row < rows && d < v.dim) {
      const int64_t step = (first + row) / v.heads, head = (first + row) % v.heads;
      const int64_t at = (static_cast<int64_t>(request) * v.batch.decode_query_len + step) * v.q_stride_row +
                         head * v.q_stride_head + d * v.q_stride_dim;
      x = decode_as(load_code(from, at, v.q_format.bytes), v.q_format);
    }
    q[i] = x;
  }
  barrier();
  const int row = thread_index() / TEAM;
  double size = 0;
  if (row < rows)
    for (int d = team_lane(); d < v.dim; d += TEAM) size += magnitude(q[row * F::DIM + d]);
  size = team_sum(size);
  /* 20 roundings of binary64 and one of binary32, all made good by the factor. */
  if (row < rows && team_lane() == 0) q_size[row] = static_cast<float>(size * (1 + 0x1p-20));
}

/* The finite approximate dots of a row that matter, one bit for each of a lane's tokens lane + 16 i. */
HIPK_DEVICE uint32_t candidates(lds<float> dots, int visible, double error) {
  float value[SCORE_TOKENS / TEAM], best = bits_float(BITS_MINUS_INF);
  HIPK_UNROLL
  for (int i = 0; i < SCORE_TOKENS / TEAM; i++) {
    const int token = i * TEAM + team_lane();
    value[i] = 0;
    if (token < visible) {
      value[i] = dots[token];
      if (value[i] - value[i] == 0) best = larger(best, value[i]);
    }
  }
  best = team_max(best);
  const double least = static_cast<double>(best) - 2.0001 * error;
  uint32_t mask = 0;
  HIPK_UNROLL
  for (int i = 0; i < SCORE_TOKENS / TEAM; i++) {
    const bool out = value[i] - value[i] == 0 && static_cast<double>(value[i]) < least;
    if (i * TEAM + team_lane() < visible && !out) mask |= 1u << i;
  }
  return mask;
}

/* The largest exact dot of the team's candidates, rounded; all lanes of the wave together. */
template <class F>
HIPK_DEVICE uint32_t resolve(const score_view &v, lds<float> q, int row, uint32_t mask,
                             gptr<const unsigned char> page) {
  float query[F::TEAM_ELEMS], best = bits_float(BITS_MINUS_INF);
  bool any = false;
  F::query_team(q, row, team_lane(), v, query);
  while (ballot(mask != 0)) {
    const uint32_t team = team_ballot(mask != 0);
    const int source = team ? lowest_bit(team) : 0;
    const uint32_t bits = shuffle(mask, team_base() + source);
    float key[F::TEAM_ELEMS];
    if (team) {
      F::fetch_team(v, page, lowest_bit(bits) * TEAM + source, team_lane(), key);
    } else {
      HIPK_UNROLL
      for (int e = 0; e < F::TEAM_ELEMS; e++) key[e] = 0;
    }
    const team_dot_result dot = team_dot(query, key);
    if (team && !dot.nan) {
      any = true;
      best = larger(best, dot.value);
    }
    if (team_lane() == source) mask &= mask - 1;
  }
  if (!any) return BITS_NAN;
  best = v.scale == 1.0f ? best : best * v.scale;
  return best == 0 ? 0 : float_bits(best); /* S3.4 */
}

/* Columns past the last block of every request, dealt to all programs. */
HIPK_DEVICE void fill_tail(const score_view &v) {
  constexpr int SPAN = 1024;
  const int32_t spans = m3idx_ceil_div(v.max_block, SPAN);
  const int64_t items = static_cast<int64_t>(v.batch.rows) * v.heads * spans;
  for (int64_t item = group_index(); item < items; item += group_count()) {
    const int32_t begin = static_cast<int32_t>(item % spans) * SPAN;
    const int64_t pick = item / spans, row = pick / v.heads, head = pick % v.heads;
    const int32_t request = static_cast<int32_t>(row / v.batch.decode_query_len);
    const int32_t live = m3idx_request_blocks(global(v.batch.seq_lens)[request], 1 << v.batch.block_shift);
    const int32_t end = m3idx_min_i32(begin + SPAN, v.max_block);
    const gptr<float> score = global(v.score) + (head * v.score_stride_head + row * v.score_stride_row);
    for (int32_t c = m3idx_max_i32(begin, live) + thread_index(); c < end; c += SCORE_THREADS)
      score[c] = bits_float(BITS_MINUS_INF);
  }
}

/* One team's row of one block, from approximate dots to the score; all lanes of the wave together. */
template <class F>
HIPK_DEVICE void finish_rows(const score_view &v, int32_t request, int32_t block, int32_t first, int rows, int row,
                             lds<float> q, lds<float> q_size, lds<float> dots, lds<float> key_size,
                             gptr<const unsigned char> page) {
  const bool mine = row < rows;
  const team_row at = place_team(v, request, first + row);
  float largest = 0;
  for (int w = 0; w < SCORE_WAVES; w++) largest = larger(largest, key_size[w]);
  const int32_t rest = at.keys - (block << v.batch.block_shift);
  const int visible = mine ? m3idx_min_i32(1 << v.batch.block_shift, rest) : 0;
  const double error = F::GROWTH * (mine ? static_cast<double>(q_size[row]) : 0.0) * largest + v.dim * 0x1p-149;
  const uint32_t mask = candidates(dots + row * DOT_PITCH, visible, error);
  const uint32_t bits = resolve<F>(v, q, mine ? row : 0, mask, page);
  if (!mine || team_lane() != 0) return;
  const gptr<float> score = global(v.score) + (at.head * v.score_stride_head + at.row * v.score_stride_row);
  score[block] = bits_float(block < at.blocks ? forced_bits(bits, block, at.blocks, v.forced) : BITS_MINUS_INF);
}

template <class F> HIPK_KERNEL(SCORE_THREADS) score_decode(score_view v) {
  HIPK_LDS(float, q, SCORE_ROWS *F::DIM);
  HIPK_LDS(float, q_size, SCORE_ROWS);
  HIPK_LDS(float, dots, 2 * SCORE_ROWS * DOT_PITCH);
  HIPK_LDS(float, key_size, 2 * SCORE_WAVES);
  constexpr int WAVE_TEAMS = WAVE / TEAM;

  if (v.fill) fill_tail(reread(v));
  const m3idx_work work = work_of(v, group_index() / v.row_groups);
  if (work.blocks.begin >= work.blocks.end) return;
  const int32_t first = group_index() % v.row_groups * SCORE_ROWS;
  const int rows = m3idx_min_i32(SCORE_ROWS, v.request_rows - first);
  const int32_t seq_len = global(v.batch.seq_lens)[work.request];
  const gptr<const int32_t> table = global(v.block_table) + work.request * v.block_table_stride;
  const gptr<const unsigned char> keys = global(static_cast<const unsigned char *>(v.keys));
  const int64_t page_bytes = v.k_stride_page * v.k_format.bytes;

  /* Keys are on the way one tile ahead, page numbers two. */
  F tile;
  gptr<const unsigned char> next = keys + table[work.blocks.begin] * page_bytes;
  tile.fetch(v, next, seq_len - (work.blocks.begin << v.batch.block_shift));
  int32_t ahead = work.blocks.begin + 1 < work.blocks.end ? static_cast<int32_t>(table[work.blocks.begin + 1]) : 0;
  stage_queries<F>(reread(v), work.request, first, rows, q, q_size);
  barrier();

  for (int32_t block = work.blocks.begin; block < work.blocks.end; block++) {
    const int buffer = (block - work.blocks.begin) & 1;
    const F held = tile;
    const gptr<const unsigned char> page = next;
    const int tokens = m3idx_min_i32(1 << v.batch.block_shift, seq_len - (block << v.batch.block_shift));
    if (block + 1 < work.blocks.end) {
      next = keys + ahead * page_bytes;
      tile.fetch(v, next, seq_len - ((block + 1) << v.batch.block_shift));
      if (block + 2 < work.blocks.end) ahead = table[block + 2];
    }
    const lds<float> out = dots + buffer * SCORE_ROWS * DOT_PITCH;
    const float size = wave_max(held.run(reread(v), q, out, rows, page, tokens));
    if (lane_index() == 0) key_size[buffer * SCORE_WAVES + wave_index()] = size;
    barrier();

    /* The waves take turns at the first rows. */
    const int turn = (wave_index() + block) % SCORE_WAVES;
    if (turn * WAVE_TEAMS < rows)
      finish_rows<F>(reread(v), work.request, block, first, rows, turn * WAVE_TEAMS + lane_index() / TEAM, q, q_size,
                     out, key_size + buffer * SCORE_WAVES, page);
  }
}

template <class F> static void launch_score(const hipk_launch *at, const score_view &v, int64_t groups) {
  launch(score_decode<F>, groups, SCORE_THREADS, at->stream, v);
}

/* Whether the keys lie as chunk_filter loads them. */
static bool in_chunks(const score_view &v) {
  const int64_t bytes = v.k_format.bytes;
  return bytes < 4 && v.dim == 128 && v.batch.block_shift == 7 && v.k_stride_dim == 1 &&
         v.k_stride_token % CHUNK == 0 && v.k_stride_page % CHUNK == 0 &&
         reinterpret_cast<uintptr_t>(v.keys) % static_cast<uintptr_t>(bytes * CHUNK) == 0;
}

score_view view_score(const hipk_device *device, const m3idx_batch *batch, const m3idx_tensor *q,
                      const m3idx_tensor *index_k) {
  score_view v = {};
  v.batch = view_rows(batch);
  v.heads = static_cast<int32_t>(q->shape[1]);
  v.dim = static_cast<int32_t>(q->shape[2]);
  v.request_rows = batch->num_requests ? clamp_i32(batch->decode_query_len * q->shape[1]) : 0;
  v.q = q->data;
  v.keys = index_k->data;
  v.q_format = view_format(q->dtype);
  v.k_format = view_format(index_k->dtype);
  v.q_stride_row = q->stride[0];
  v.q_stride_head = q->stride[1];
  v.q_stride_dim = q->stride[2];
  v.k_stride_page = index_k->stride[0];
  v.k_stride_token = index_k->stride[1];
  v.k_stride_dim = index_k->stride[2];
  v.max_block = clamp_i32(batch->max_block);
  v.row_groups = m3idx_ceil_div(v.request_rows, SCORE_ROWS);
  int64_t budget = 0;
  m3idx_decode_score_geometry split = {1, 0};
  m3idx_decode_score_budget(batch->num_requests, v.dim, q->dtype, index_k->dtype, device->arch, &budget);
  m3idx_decode_score_split(batch->num_requests, v.dim, q->dtype, index_k->dtype, device->arch, &split);
  v.budget = static_cast<int32_t>(budget);
  v.chunks = static_cast<int32_t>(split.chunks);
  return v;
}

m3idx_status score_supported(m3idx_context *ctx, const char *op, const score_view &v, const m3idx_batch *batch) {
  if (batch->mode != M3IDX_DECODE)
    return m3idx_fail(ctx, M3IDX_UNSUPPORTED, "%s: the kernels score decode batches only", op);
  const int64_t most = INT32_MAX / (int64_t{2048} * 2); /* request rows times programs of a request */
  if (batch->num_rows > most || v.heads > most || batch->num_rows * v.heads > most)
    return m3idx_fail(ctx, M3IDX_UNSUPPORTED, "%s: %lld rows of %d heads are more than a launch holds", op,
                      static_cast<long long>(batch->num_rows), v.heads);
  return M3IDX_OK;
}

void run_score(const hipk_launch *at, const score_view &v, m3idx_dtype k_dtype) {
  const int32_t requests = v.batch.requests;
  if (requests == 0 || v.request_rows == 0 || v.max_block == 0) return;
  const int64_t programs =
      v.budget ? m3idx_balanced_grid(requests, v.budget) : static_cast<int64_t>(requests) * v.chunks;
  const int64_t groups = programs * v.row_groups;
  if (!in_chunks(v)) {
    if (v.k_format.bytes == 1) return launch_score<plain_filter<uint8_t>>(at, v, groups);
    if (v.k_format.bytes == 2) return launch_score<plain_filter<uint16_t>>(at, v, groups);
    return launch_score<plain_filter<uint32_t>>(at, v, groups);
  }
  switch (k_dtype) {
  case M3IDX_F16: return launch_score<chunk_filter<M3IDX_F16>>(at, v, groups);
  case M3IDX_BF16: return launch_score<chunk_filter<M3IDX_BF16>>(at, v, groups);
  case M3IDX_E4M3FN: return launch_score<chunk_filter<M3IDX_E4M3FN>>(at, v, groups);
  case M3IDX_E4M3FNUZ: return launch_score<chunk_filter<M3IDX_E4M3FNUZ>>(at, v, groups);
  case M3IDX_E5M2: return launch_score<chunk_filter<M3IDX_E5M2>>(at, v, groups);
  default: return launch_score<chunk_filter<M3IDX_E5M2FNUZ>>(at, v, groups);
  }
}

} // namespace hipk

static hipk::score_view view_of(const hipk_device *device, const m3idx_score_args *args) {
  hipk::score_view v = hipk::view_score(device, args->batch, &args->q, &args->index_k);
  v.block_table = args->block_table;
  v.block_table_stride = args->block_table_stride;
  v.scale = args->scale;
  v.forced = hipk::forced_blocks{hipk::clamp_i32(args->init_blocks), hipk::clamp_i32(args->local_blocks)};
  v.score = args->score;
  v.score_stride_head = args->score_stride_head;
  v.score_stride_row = args->score_stride_row;
  v.fill = true;
  return v;
}

m3idx_status hipk_score_plan(m3idx_context *ctx, const hipk_device *device, const m3idx_score_args *args,
                             size_t *scratch_bytes) {
  *scratch_bytes = 0;
  return hipk::score_supported(ctx, "score", view_of(device, args), args->batch);
}

void hipk_score_launch(const hipk_launch *at, const m3idx_score_args *args) {
  hipk::run_score(at, view_of(at->device, args), args->index_k.dtype);
}
