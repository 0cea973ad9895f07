/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode scores of every visible block (S3), exact.
 *
 * A program (workgroup) owns blocks of one request (S8.3 or S8.4) and scores them for all of the request's rows and
 * heads, 16 at a time.  A wave takes a block by itself, four rows a pass over its keys: the filter (hip_filter.h),
 * then a team of 16 lanes a row finds the few tokens that the filter's bound leaves and evaluates them exactly
 * (hip_exact.h).  No wave waits for another, so one wave's exact stage hides behind the others' loads.  Where a
 * program has fewer blocks than waves, several waves share a block's tokens and the best of their exact maxima
 * counts.  Nothing is carried from block to block.
 */
#include "hip_exact.h"
#include "hip_filter.h"
#include "hip_prefill.h"

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
  for (int begin = 0; begin < rows; begin += SCORE_THREADS / TEAM) {
    const int row = begin + thread_index() / TEAM;
    double size = 0;
    if (row < rows)
      for (int d = team_lane(); d < v.dim; d += TEAM) size += magnitude(q[row * F::DIM + d]);
    size = team_sum(size);
    /* 20 roundings of binary64 and one of binary32, all made good by the factor. */
    if (row < rows && team_lane() == 0) q_size[row] = static_cast<float>(size * (1 + 0x1p-20));
  }
}

/* The approximate dots of a row's tokens from..end-1 that matter, one bit for each of a lane's tokens lane + 16 i. */
HIPK_DEVICE uint32_t candidates(lds<float> dots, int from, int end, double error) {
  float value[SCORE_TOKENS / TEAM], best = bits_float(BITS_MINUS_INF);
  HIPK_UNROLL
  for (int i = 0; i < SCORE_TOKENS / TEAM; i++) {
    const int token = i * TEAM + team_lane();
    value[i] = 0;
    if (token >= from && token < end) {
      value[i] = dots[token];
      if (value[i] - value[i] == 0) best = larger(best, value[i]);
    }
  }
  best = team_max(best);
  const double least = static_cast<double>(best) - 2.0001 * error;
  uint32_t mask = 0;
  HIPK_UNROLL
  for (int i = 0; i < SCORE_TOKENS / TEAM; i++) {
    const int token = i * TEAM + team_lane();
    const bool out = value[i] - value[i] == 0 && static_cast<double>(value[i]) < least;
    if (token >= from && token < end && !out) mask |= 1u << i;
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
    const team_dot_result dot = team_dot(query, key, v.exact_ratio);
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

/* What a wave works on: the tokens from..end-1 of one block, and the rows of its program. */
struct score_part {
  int32_t request, block, first; /* first: the request row that row 0 of q is */
  int rows, from, end;
};

HIPK_DEVICE void store_score(const score_view &v, int32_t request, int32_t block, int32_t index, uint32_t bits) {
  const team_row at = place_team(v, request, index);
  const gptr<float> score = global(v.score) + (at.head * v.score_stride_head + at.row * v.score_stride_row);
  score[block] = bits_float(block < at.blocks ? forced_bits(bits, block, at.blocks, v.forced) : BITS_MINUS_INF);
}

/* The largest exact dot of a part for row `row` of q, whose approximate dots are `dots`; a team a row, all lanes of
 * the wave together.  NaN where the row sees no token of the part or nothing but NaN. */
template <class F>
HIPK_DEVICE uint32_t finish_row(const score_view &v, const score_part &part, int row, lds<float> q, lds<float> q_size,
                                lds<float> dots, float largest, gptr<const unsigned char> page) {
  const bool mine = row < part.rows;
  const team_row at = place_team(v, part.request, part.first + row);
  const int32_t visible = mine ? at.keys - (part.block << v.batch.block_shift) : 0;
  const double error = F::GROWTH * (mine ? static_cast<double>(q_size[row]) : 0.0) * largest + v.dim * 0x1p-149;
  const uint32_t mask = candidates(dots, part.from, m3idx_min_i32(part.end, visible), error);
  return resolve<F>(v, q, mine ? row : 0, mask, page);
}

/* Waves that share a block: all of them have work, and each has a team's worth of tokens. */
HIPK_DEVICE int waves_of_block(int32_t blocks, int block_size) {
  int share = SCORE_WAVES;
  while (share > 1 && (share * blocks > SCORE_WAVES || block_size / share < TEAM)) share /= 2;
  return share;
}

HIPK_DEVICE int32_t page_of(const score_view &v, int32_t request, int32_t block) {
  return global(v.block_table)[request * v.block_table_stride + block];
}

HIPK_DEVICE gptr<const unsigned char> page_at(const score_view &v, int32_t page) {
  const int64_t page_bytes = v.k_stride_page * v.k_format.bytes;
  return global(static_cast<const unsigned char *>(v.keys)) + page * page_bytes;
}

/* Rows: rows a pass, 1 or 4. */
template <class F, int Rows> HIPK_KERNEL(SCORE_THREADS) score_decode(score_view v) {
  HIPK_LDS(float, q, SCORE_ROWS *F::DIM);
  HIPK_LDS(float, q_size, SCORE_ROWS);
  HIPK_LDS(float, dots, SCORE_WAVES *Rows *DOT_PITCH);
  HIPK_LDS(uint32_t, shared_best, SCORE_WAVES * SCORE_ROWS);
  constexpr int WAVE_TEAMS = WAVE / TEAM;

  if (v.fill) fill_tail(reread(v));
  const m3idx_work work = work_of(v, group_index() / v.row_groups);
  if (work.blocks.begin >= work.blocks.end) return;
  const int wave = wave_index(), block_size = 1 << v.batch.block_shift;
  const int share = waves_of_block(work.blocks.end - work.blocks.begin, block_size);
  const int32_t seq_len = global(v.batch.seq_lens)[work.request];
  score_part part;
  part.request = work.request;
  part.block = work.blocks.begin + wave / share;
  part.first = group_index() % v.row_groups * SCORE_ROWS;
  part.rows = m3idx_min_i32(SCORE_ROWS, v.request_rows - part.first);
  part.from = wave % share * (block_size / share);
  int32_t page_id = part.block < work.blocks.end ? page_of(reread(v), work.request, part.block) : 0;
  stage_queries<F>(reread(v), work.request, part.first, part.rows, q, q_size);
  barrier();

  const lds<float> out = dots + wave * Rows * DOT_PITCH;
  for (; part.block < work.blocks.end; part.block += SCORE_WAVES / share) {
    const gptr<const unsigned char> page = page_at(reread(v), page_id);
    const int32_t next = part.block + SCORE_WAVES / share;
    if (next < work.blocks.end) page_id = page_of(reread(v), work.request, next);
    part.end = m3idx_min_i32(part.from + block_size / share, seq_len - part.block * block_size);
    for (int row = 0; row < part.rows; row += Rows) {
      const float largest = wave_max(F::template dots<Rows>(reread(v), q, row, out, page, part.from, part.end));
      wave_sync();
      for (int turn = 0; turn < Rows && row + turn < part.rows; turn += WAVE_TEAMS) {
        const int team = turn + lane_index() / TEAM, mine = row + team;
        const uint32_t bits = finish_row<F>(reread(v), part, team < Rows ? mine : SCORE_ROWS, q, q_size,
                                            out + (team < Rows ? team : 0) * DOT_PITCH, largest, page);
        if (team >= Rows || mine >= part.rows || team_lane() != 0) continue;
        if (share == 1)
          store_score(reread(v), work.request, part.block, part.first + mine, bits);
        else
          shared_best[wave * SCORE_ROWS + mine] = bits;
      }
      wave_sync(); /* the dots have been read */
    }
  }
  if (share == 1) return;

  barrier();
  const int blocks = work.blocks.end - work.blocks.begin; /* at most SCORE_WAVES / share */
  for (int i = thread_index(); i < blocks * part.rows; i += SCORE_THREADS) {
    const int row = i % part.rows, of = i / part.rows * share;
    uint32_t best = BITS_NAN;
    for (int w = of; w < of + share; w++) {
      const uint32_t bits = shared_best[w * SCORE_ROWS + row];
      if (best == BITS_NAN || (bits != BITS_NAN && bits_float(bits) > bits_float(best))) best = bits;
    }
    store_score(reread(v), work.request, work.blocks.begin + i / part.rows, part.first + row, best);
  }
}

template <class F> static void launch_score(const hipk_launch *at, const score_view &v, int64_t groups) {
  launch(v.request_rows == 1 ? score_decode<F, 1> : score_decode<F, 4>, groups, SCORE_THREADS, at->stream, v);
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
  v.exact_ratio = static_cast<double>(int64_t{1} << (52 - significand_bits(v.q_format) - significand_bits(v.k_format)));
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
  const hipk::score_view v = view_of(device, args);
  *scratch_bytes = 0;
  if (args->batch->mode == M3IDX_DECODE) return hipk::score_supported(ctx, "score", v, args->batch);
  const hipk::prefill_plan plan = hipk::plan_prefill(device, v, args->q.dtype, args->index_k.dtype, false);
  *scratch_bytes = plan.bytes;
  return hipk::prefill_supported(ctx, "score", v, plan);
}

void hipk_score_launch(const hipk_launch *at, const m3idx_score_args *args) {
  const hipk::score_view v = view_of(at->device, args);
  if (args->batch->mode == M3IDX_DECODE) return hipk::run_score(at, v, args->index_k.dtype);
  const hipk::prefill_plan plan = hipk::plan_prefill(at->device, v, args->q.dtype, args->index_k.dtype, false);
  hipk::run_prefill_score(at, v, plan, args->index_k.dtype);
}
