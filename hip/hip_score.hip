/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode scores of every visible block (S3), exact, for any format, strides, head dim and block size; and the
 * choice between this kernel and the one of hip_score_chunk.hip.
 *
 * A program (workgroup) owns blocks of one request (S8.3 or S8.4), for 16 rows and heads at a time.  Filter
 * (hip_filter.h), one barrier, then a team of 16 lanes a row finds the few tokens that the filter's bound leaves
 * and evaluates them exactly (hip_exact.h), while the other waves go on with the next tile; the table of
 * approximate dots is double for that.
 */
#include "hip_stage_rows.h"

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
HIPK_DEVICE float resolve(const score_view &v, lds<float> q, int row, uint32_t mask, gptr<const unsigned char> page) {
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
  return any ? best : bits_float(BITS_NAN);
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
  const double error = filter_error(F::GROWTH, q_size[row], largest, v.dim);
  const uint32_t mask = candidates(dots + row * DOT_PITCH, visible, error);
  const float best = resolve<F>(v, q, mine ? row : 0, mask, page);
  if (!mine || team_lane() != 0) return;
  const gptr<float> score = global(v.score) + (at.head * v.score_stride_head + at.row * v.score_stride_row);
  score[block] = block_score(v, best, block, at.blocks);
}

template <class Code> HIPK_KERNEL(SCORE_THREADS) score_plain(score_view v) {
  using F = plain_filter<Code>;
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
  stage_queries<F>(reread(v), work.request, first, rows, q, q_size);
  barrier();

  for (int32_t block = work.blocks.begin; block < work.blocks.end; block++) {
    const int buffer = (block - work.blocks.begin) & 1;
    const gptr<const unsigned char> page = keys + table[block] * page_bytes;
    const int tokens = m3idx_min_i32(1 << v.batch.block_shift, seq_len - (block << v.batch.block_shift));
    const lds<float> out = dots + buffer * SCORE_ROWS * DOT_PITCH;
    const float size = wave_max(F::run(reread(v), q, out, rows, page, tokens));
    if (lane_index() == 0) key_size[buffer * SCORE_WAVES + wave_index()] = size;
    barrier();

    /* The waves take turns at the first rows. */
    const int turn = (wave_index() + block) % SCORE_WAVES;
    if (turn * WAVE_TEAMS < rows)
      finish_rows<F>(reread(v), work.request, block, first, rows, turn * WAVE_TEAMS + lane_index() / TEAM, q, q_size,
                     out, key_size + buffer * SCORE_WAVES, page);
  }
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
  if (in_chunks(v)) return launch_chunk_score(at, v, groups, k_dtype);
  if (v.k_format.bytes == 1) return launch(score_plain<uint8_t>, groups, SCORE_THREADS, at->stream, v);
  if (v.k_format.bytes == 2) return launch(score_plain<uint16_t>, groups, SCORE_THREADS, at->stream, v);
  return launch(score_plain<uint32_t>, groups, SCORE_THREADS, at->stream, v);
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
