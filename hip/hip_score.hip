/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode scores of every visible block (S3), exact.
 *
 * A program (workgroup) owns blocks of one request (S8.3 or S8.4) and scores them for all of the request's rows and
 * heads, 16 at a time.  A wave takes a block by itself, four rows a pass over its keys: the filter (hip_filter.h),
 * then a team of 16 lanes a row finds the few tokens that the filter's bound leaves and evaluates them exactly
 * (hip_exact.h).  No wave waits for another, so one wave's exact stage hides behind the others' loads.  Where a
 * program has one or two blocks, the waves share a block: its tokens for the filter, its rows for the exact stage.
 * Nothing is carried from block to block.
 */
#include "hip_exact.h"
#include "hip_filter.h"
#include "hip_matrix_filter.h"
#include "hip_prefill.h"

namespace hipk {

/* What the waves of a program know of its rows, in group memory. */
template <class F> struct staged_rows {
  lds<typename F::query_store> q;
  lds<float> size;    /* A = sum |q|, or a little more */
  lds<int32_t> keys;  /* n (S2.3) */
  lds<int64_t> score; /* where the row's scores begin */
};

template <class F>
HIPK_DEVICE void stage_rows(const score_view &v, int32_t request, int32_t first, int rows, const staged_rows<F> &to) {
  F::stage(v, request, first, rows, to.q);
  const int self = thread_index();
  if (self < rows) {
    const int32_t step = (first + self) / v.heads, head = (first + self) % v.heads;
    const int32_t seq_len = global(v.batch.seq_lens)[request];
    const int64_t row = static_cast<int64_t>(request) * v.batch.decode_query_len + step;
    to.keys[self] = keys_seen(static_cast<int64_t>(seq_len) - v.batch.decode_query_len + step, seq_len);
    to.score[self] = head * v.score_stride_head + row * v.score_stride_row;
  }
  barrier();
  for (int begin = 0; begin < rows; begin += SCORE_THREADS / TEAM) {
    const int row = begin + self / TEAM;
    float query[F::TEAM_ELEMS], size = 0;
    F::query_team(to.q, row < rows ? row : 0, team_lane(), v, query);
    HIPK_UNROLL
    for (int e = 0; e < F::TEAM_ELEMS; e++) size += magnitude(query[e]);
    size = team_sum(size);
    /* 20 roundings at most, 19 in the sum, made good by the factor. */
    if (row < rows && team_lane() == 0) to.size[row] = size * (1 + 0x1p-19f);
  }
  barrier();
}

/* The approximate dots of a row's tokens 0..end-1 that matter, one bit for each of a lane's tokens lane + 16 i. */
HIPK_DEVICE uint32_t candidates(lds<float> dots, int end, double error) {
  float value[SCORE_TOKENS / TEAM], best = bits_float(BITS_MINUS_INF);
  HIPK_UNROLL
  for (int i = 0; i < SCORE_TOKENS / TEAM; i++) {
    const int token = i * TEAM + team_lane();
    value[i] = 0;
    if (token < end) {
      value[i] = dots[token];
      if (value[i] - value[i] == 0) best = larger(best, value[i]);
    }
  }
  best = team_max(best);
  /* Lowered by more than its rounding to binary32. */
  const double exact_least = static_cast<double>(best) - 2.0001 * error;
  const float least =
      static_cast<float>(exact_least - (exact_least < 0 ? -exact_least : exact_least) * 0x1p-22 - 0x1p-149);
  uint32_t mask = 0;
  HIPK_UNROLL
  for (int i = 0; i < SCORE_TOKENS / TEAM; i++) {
    const int token = i * TEAM + team_lane();
    const bool out = value[i] - value[i] == 0 && value[i] < least;
    if (token < end && !out) mask |= 1u << i;
  }
  return mask;
}

/* The largest exact dot of the team's candidates, rounded; all lanes of the wave together. */
template <class F>
HIPK_DEVICE uint32_t resolve(const score_view &v, lds<typename F::query_store> q, int row, uint32_t mask,
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

template <class F>
HIPK_DEVICE void store_score(const score_view &v, const staged_rows<F> &staged, int32_t block, int row, uint32_t bits) {
  const int32_t blocks = blocks_of(staged.keys[row], v.batch.block_shift);
  const gptr<float> score = global(v.score) + static_cast<int64_t>(staged.score[row]);
  score[block] = bits_float(block < blocks ? forced_bits(bits, block, blocks, v.forced) : BITS_MINUS_INF);
}

/* The largest exact dot of a block's tokens before `end` for row `row` of the program, whose approximate dots are
 * `dots`; a team a row, all lanes of the wave together, those that have no row with row < 0.  NaN where the row sees no
 * token of the block or nothing but NaN. */
template <class F>
HIPK_DEVICE uint32_t finish_row(const score_view &v, const staged_rows<F> &staged, int32_t block, int end, int row,
                                lds<float> dots, float peak, gptr<const unsigned char> page) {
  const bool mine = row >= 0;
  const int32_t visible = mine ? staged.keys[row] - (block << v.batch.block_shift) : 0;
  const double error = F::error(v, mine ? static_cast<float>(staged.size[row]) : 0.0f, peak);
  const uint32_t mask = candidates(dots, m3idx_min_i32(end, visible), error);
  return resolve<F>(v, staged.q, mine ? row : 0, mask, page);
}

/* P of a block of which each wave has a part.  A NaN stays: as a pattern it is larger than any number. */
HIPK_DEVICE float largest_peak(lds<float> peaks, int leader, int share) {
  uint32_t largest = 0;
  for (int w = leader; w < leader + share; w++) {
    const uint32_t bits = float_bits(peaks[w]);
    largest = bits > largest ? bits : largest;
  }
  return bits_float(largest);
}

/* Waves that share a block: all or half of them where each then has exactly one block and a team's worth of tokens. */
HIPK_DEVICE int waves_of_block(int32_t blocks, int block_size) {
  const int share = blocks > 2 ? 1 : SCORE_WAVES / blocks;
  return block_size / share < TEAM ? 1 : share;
}

HIPK_DEVICE int32_t page_of(const score_view &v, int32_t request, int32_t block) {
  return global(v.block_table)[request * v.block_table_stride + block];
}

HIPK_DEVICE gptr<const unsigned char> page_at(const score_view &v, int32_t page) {
  const int64_t page_bytes = v.k_stride_page * v.k_format.bytes;
  return global(static_cast<const unsigned char *>(v.keys)) + page * page_bytes;
}

/* Rows: rows a pass. */
template <class F, int Rows> HIPK_KERNEL_AT(SCORE_THREADS, F::GROUPS) score_decode(score_view v) {
  HIPK_LDS(typename F::query_store, q, SCORE_ROWS * F::QUERY_STORES);
  HIPK_LDS(float, q_size, SCORE_ROWS);
  HIPK_LDS(int32_t, row_keys, SCORE_ROWS);
  HIPK_LDS(int64_t, row_score, SCORE_ROWS);
  HIPK_LDS(float, dots, SCORE_WAVES *Rows *DOT_PITCH);
  HIPK_LDS(float, peaks, SCORE_WAVES);
  constexpr int WAVE_TEAMS = WAVE / TEAM;
  const staged_rows<F> staged = {q, q_size, row_keys, row_score};

  if (v.fill) fill_tail(reread(v));
  const bool together = v.row_groups == 1; /* and no division in front of the first load */
  const m3idx_work work = work_of(v, together ? group_index() : group_index() / v.row_groups);
  if (work.blocks.begin >= work.blocks.end) return;
  const int block_size = 1 << v.batch.block_shift;
  const int share = waves_of_block(work.blocks.end - work.blocks.begin, block_size);
  const int wave = wave_index(), member = wave % share, leader = wave - member;
  const int from = member * (block_size / share), to = from + block_size / share;
  const int32_t seq_len = global(v.batch.seq_lens)[work.request];
  const int first = together ? 0 : group_index() % v.row_groups * SCORE_ROWS;
  const int rows = m3idx_min_i32(SCORE_ROWS, v.request_rows - first);
  int32_t block = work.blocks.begin + wave / share;

  /* The first keys of what comes next are always under way: before the queries are staged, and before the exact stage.
   */
  typename F::template turn<Rows> keys;
  key_span span = {page_at(reread(v), 0), from, 0};
  if (block < work.blocks.end) {
    span.page = page_at(reread(v), page_of(reread(v), work.request, block));
    span.end = m3idx_min_i32(to, seq_len - block * block_size);
    F::fetch(reread(v), keys, span.page, span.from, span.end);
  }
  stage_rows(reread(v), work.request, first, rows, staged);

  const lds<float> out = dots + leader * Rows * DOT_PITCH;
  while (block < work.blocks.end) {
    const int32_t next_block = block + SCORE_WAVES / share;
    key_span next = {span.page, from, 0};
    if (next_block < work.blocks.end) {
      next.page = page_at(reread(v), page_of(reread(v), work.request, next_block));
      next.end = m3idx_min_i32(to, seq_len - next_block * block_size);
    }
    for (int row = 0; row < rows; row += Rows) {
      const bool again = row + Rows < rows;
      const key_span after = {again ? span.page : next.page, from, again ? span.end : next.end};
      float peak = F::template dots<Rows>(reread(v), q, row, rows, out, keys, span, after);
      if (share == 1) {
        wave_sync();
      } else { /* each wave has one block: all come here together */
        if (lane_index() == 0) peaks[wave] = peak;
        barrier();
        peak = largest_peak(peaks, leader, share);
      }
      /* Rows are dealt to the teams of all waves that share the block. */
      for (int turn = 0; turn < Rows && row + turn < rows; turn += share * WAVE_TEAMS) {
        const int of = turn + lane_index() / TEAM * share + member;
        const bool mine = of < Rows && row + of < rows;
        const uint32_t bits =
            finish_row(reread(v), staged, block, m3idx_min_i32(block_size, seq_len - block * block_size),
                       mine ? row + of : -1, out + (mine ? of : 0) * DOT_PITCH, peak, span.page);
        if (mine && team_lane() == 0) store_score(reread(v), staged, block, row + of, bits);
      }
      /* The dots have been read. */
      if (share == 1)
        wave_sync();
      else
        barrier();
    }
    block = next_block;
    span = next;
  }
}

template <class F> static void launch_score(const hipk_launch *at, const score_view &v, int64_t groups) {
  launch(v.request_rows == 1 ? score_decode<F, 1> : score_decode<F, 4>, groups, SCORE_THREADS, at->stream, v);
}

static void launch_matrix(const hipk_launch *at, const score_view &v, int64_t groups) {
  launch(v.request_rows == 1  ? score_decode<matrix_filter, 1>
         : v.request_rows < 5 ? score_decode<matrix_filter, 4>
                              : score_decode<matrix_filter, 8>,
         groups, SCORE_THREADS, at->stream, v);
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
  v.matrix = device->matrix && q->dtype == M3IDX_BF16 && index_k->dtype == M3IDX_BF16;
  v.bound = bound_of(device->arch);
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
  if (v.matrix) return launch_matrix(at, v, groups);
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
