/* SPDX-License-Identifier: Apache-2.0
 *
 * Score arrays that broke selectors (S3.7, S4), on every backend.  Contract vllm unless a test says otherwise.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "public_bugs.h"

static const char *const contracts[] = {"vllm", "aiter", "atom", "sglang", "flashinfer"};
enum { CONTRACTS = 5 };

static float *scores(int64_t n) {
  float *score = malloc((size_t)n * sizeof *score);
  ck_assert_ptr_nonnull(score);
  return score;
}

/* Row (t, h) falls off in steps of 1 from block s = 7 h + 13 t (mod 64): it selects s, s + 1, ... (mod 64). */
static void layout(m3idx_context *ctx, int64_t T, int64_t pad) {
  enum { H = 4, K = 16, M = 64 };
  const int64_t row = K + pad, head = T * row + pad;
  float *score = scores(H * T * M);
  int32_t *want = bug_poisoned(H * head), *got = bug_poisoned(H * head), *blocks = bug_poisoned(T);
  for (int64_t h = 0; h < H; h++)
    for (int64_t t = 0; t < T; t++) {
      int64_t s = 7 * h + 13 * t;
      for (int64_t i = 0; i < M; i++) score[(h * T + t) * M + (s + i) % M] = -(float)i;
      for (int64_t i = 0; i < K; i++) want[h * head + t * row + i] = (int32_t)((s + i) % M);
      blocks[t] = M;
    }
  m3idx_select_args args = {.num_blocks = blocks,
                            .num_heads = H,
                            .num_rows = T,
                            .max_block = M,
                            .score = score,
                            .topk = K,
                            .topk_idx = got,
                            .topk_stride_head = pad ? head : 0,
                            .topk_stride_row = pad ? row : 0};
  if (bug_ok(ctx, m3idx_select(ctx, &args))) bug_expect(want, got, H * head, "ids");
  free(blocks);
  free(got);
  free(want);
  free(score);
}

START_TEST(layout_th) {
  m3idx_context *ctx = bug_open(_i);
  for (int64_t T = 4; T <= 5; T++)
    for (int64_t pad = 0; pad <= 3; pad += 3) layout(ctx, T, pad);
  m3idx_close(ctx);
}
END_TEST

/* topk_idx is a view [2][3][16] of a buffer [2][3 + 64][16]. */
START_TEST(out_stride) {
  enum { H = 2, T = 3, K = 16, M = 20, HEAD = (T + 64) * K };
  m3idx_context *ctx = bug_open(_i);
  float score[H * T * M];
  int32_t blocks[T] = {M, M, M}, *want = bug_poisoned(H * HEAD), *got = bug_poisoned(H * HEAD);
  for (int h = 0; h < H; h++)
    for (int t = 0; t < T; t++) {
      for (int b = 0; b < M; b++) score[(h * T + t) * M + b] = h ? (float)b : -(float)b;
      for (int i = 0; i < K; i++) want[h * HEAD + t * K + i] = h ? M - 1 - i : i;
    }
  m3idx_select_args args = {.num_blocks = blocks,
                            .num_heads = H,
                            .num_rows = T,
                            .max_block = M,
                            .score = score,
                            .topk = K,
                            .topk_idx = got,
                            .topk_stride_head = HEAD};
  if (bug_ok(ctx, m3idx_select(ctx, &args))) bug_expect(want, got, H * HEAD, "ids");
  free(got);
  free(want);
  m3idx_close(ctx);
}
END_TEST

/* Finite scores 14, 13, ..., 0 stand at 100, 200, ..., 1500; under vllm NaN is -1e30, so NaN ids follow from 0. */
START_TEST(nan_row) {
  enum { N = 4096, FINITE = 15, K = 40 };
  m3idx_context *ctx = bug_open(_i);
  float *score = scores(N);
  int32_t want[K];
  for (int i = 0; i < N; i++) score[i] = NAN;
  for (int i = 0; i < FINITE; i++) score[100 * (i + 1)] = (float)(FINITE - 1 - i);
  for (int i = 0; i < K; i++) want[i] = i < FINITE ? 100 * (i + 1) : i - FINITE;
  bug_select_expect(ctx, &(bug_row){.score = score, .columns = N, .blocks = N, .topk = 16}, want);
  bug_select_expect(ctx, &(bug_row){.score = score, .columns = N, .blocks = N, .topk = K}, want);
  for (int c = 0; c < CONTRACTS; c++)
    bug_select_expect(ctx, &(bug_row){.score = score, .columns = N, .blocks = N, .topk = K, .contract = contracts[c]},
                      NULL);
  free(score);
  m3idx_close(ctx);
}
END_TEST

START_TEST(nan_many) {
  enum { N = 200 };
  m3idx_context *ctx = bug_open(_i);
  static const int64_t ks[] = {16, 100, 128};
  float score[N];
  uint64_t state = 2;
  for (int i = 0; i < N; i++) score[i] = i % 12 == 5 && i < 192 ? NAN : (float)bug_random(&state);
  for (int c = 0; c < CONTRACTS; c++)
    for (int k = 0; k < 3; k++) {
      bug_row row = {.score = score, .columns = N, .blocks = N, .topk = ks[k], .contract = contracts[c]};
      bug_select_expect(ctx, &row, NULL);
      int32_t *ids = bug_select(ctx, &row);
      bool seen[N] = {false};
      for (int64_t i = 0; ids && i < row.topk; i++) {
        ck_assert(ids[i] >= 0 && ids[i] < N && !seen[ids[i]]);
        seen[ids[i]] = true;
      }
      free(ids);
    }
  m3idx_close(ctx);
}
END_TEST

/* +inf, NaN at 2, 5, 8, finite 1, 3, 4, 6, 7, 9, 10 falling with the id, -inf last: vllm puts NaN (-1e30) between
 * the finite ones and -inf, lower id first. */
START_TEST(nan_third) {
  enum { N = 12, LARGE = 302 };
  m3idx_context *ctx = bug_open(_i);
  static const int32_t vllm[16] = {0, 1, 3, 4, 6, 7, 9, 10, 2, 5, 8, 11, -1, -1, -1, -1};
  float score[LARGE];
  for (int n = N; n <= LARGE; n += LARGE - N) {
    for (int i = 0; i < n; i++) score[i] = i % 3 == 2 ? NAN : -(float)i;
    score[0] = INFINITY;
    score[n - 1] = -INFINITY;
    for (int c = 0; c < CONTRACTS; c++) {
      bug_row row = {.score = score, .columns = n, .blocks = n, .topk = 16, .contract = contracts[c]};
      bug_select_expect(ctx, &row, n == N && c == 0 ? vllm : NULL);
      row.topk = 128;
      bug_select_expect(ctx, &row, NULL);
    }
  }
  m3idx_close(ctx);
}
END_TEST

/* 40 finite scores in a scrambled order, then an infinity at every place: it leads or trails, and the others keep
 * their order. */
START_TEST(inf_neighbour) {
  enum { N = 41 };
  m3idx_context *ctx = bug_open(_i);
  for (int at = 0; at < N; at++)
    for (int negative = 0; negative <= 1; negative++) {
      float score[N];
      int32_t order[N - 1], want[N];
      for (int rank = 0; rank < N - 1; rank++) {
        int place = rank * 17 % (N - 1); /* 17 and 40 have no common divisor */
        int id = place < at ? place : place + 1;
        score[id] = 3.0e38f - 1.0e36f * (float)rank;
        order[rank] = id;
      }
      score[at] = negative ? -INFINITY : INFINITY;
      want[negative ? N - 1 : 0] = at;
      memcpy(want + !negative, order, sizeof order);
      bug_select_expect(ctx, &(bug_row){.score = score, .columns = N, .blocks = N, .topk = N}, want);
    }
  m3idx_close(ctx);
}
END_TEST

START_TEST(all_equal) {
  enum { N = 300, K = 16 };
  m3idx_context *ctx = bug_open(_i);
  float score[N];
  int32_t want[K] = {299};
  for (int i = 0; i < N; i++) score[i] = 0.25f;
  for (int i = 1; i < K; i++) want[i] = i - 1;
  bug_select_expect(ctx, &(bug_row){.score = score, .columns = N, .blocks = N, .local_blocks = 1, .topk = K}, want);
  m3idx_close(ctx);
}
END_TEST

/* Blocks 0, 2, 3, 4 score 4, 2, 1, 0: block 1 comes last whatever it holds, and slots 5.. stay empty. */
START_TEST(nan_vs_sentinel) {
  m3idx_context *ctx = bug_open(_i);
  const float values[] = {NAN, -INFINITY, -1e30f};
  static const int32_t best_first[16] = {0, 2, 3, 4, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  static const int32_t by_id[16] = {0, 1, 2, 3, 4, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  for (int v = 0; v < 3; v++) {
    const float score[5] = {4, values[v], 2, 1, 0};
    for (int c = 0; c < CONTRACTS; c++)
      for (int64_t k = 5; k <= 16; k += 11)
        bug_select_expect(ctx,
                          &(bug_row){.score = score, .columns = 5, .blocks = 5, .topk = k, .contract = contracts[c]},
                          c < 3 ? best_first : by_id);
  }
  m3idx_close(ctx);
}
END_TEST

START_TEST(near_one) {
  static const int64_t sizes[] = {8193, 21001, 65536};
  m3idx_context *ctx = bug_open(_i);
  float *score = scores(65536);
  uint64_t state = 3;
  for (int s = 0; s < 3; s++) {
    for (int64_t i = 0; i < sizes[s]; i++) score[i] = (float)(1 + 0.06 * bug_random(&state));
    for (int64_t k = 16; k <= 128; k += 112)
      bug_select_expect(ctx, &(bug_row){.score = score, .columns = sizes[s], .blocks = sizes[s], .topk = k}, NULL);
  }
  free(score);
  m3idx_close(ctx);
}
END_TEST

START_TEST(ramp) {
  enum { K = 16 };
  m3idx_context *ctx = bug_open(_i);
  float *score = scores(16448);
  for (int32_t n = 16384; n <= 16448; n += 64)
    for (int up = 0; up <= 1; up++) {
      int32_t want[K];
      for (int32_t i = 0; i < n; i++) score[i] = (float)(up ? i : -i);
      for (int32_t i = 0; i < K; i++) want[i] = up ? n - 1 - i : i;
      bug_select_expect(ctx, &(bug_row){.score = score, .columns = n, .blocks = n, .topk = K}, want);
    }
  free(score);
  m3idx_close(ctx);
}
END_TEST

/* One call: a random row, then two rows of scores that agree in all but 2^-10. */
START_TEST(shared_high_bits) {
  enum { N = 8192, ROWS = 3, K = 16 };
  m3idx_context *ctx = bug_open(_i);
  float *score = scores(ROWS * N);
  int32_t blocks[ROWS] = {N, N, N}, *together = bug_poisoned(ROWS * K);
  uint64_t state = 4;
  for (int i = 0; i < N; i++) score[i] = (float)(2000 * bug_random(&state) - 1000);
  for (int i = N; i < ROWS * N; i++) score[i] = (float)(1 + bug_random(&state) / 1024);
  m3idx_select_args args = {.num_blocks = blocks,
                            .num_heads = 1,
                            .num_rows = ROWS,
                            .max_block = N,
                            .score = score,
                            .topk = K,
                            .topk_idx = together};
  if (bug_ok(ctx, m3idx_select(ctx, &args)))
    for (int r = 0; r < ROWS; r++) /* each row alone is the oracle's, so each row among the others is too */
      bug_select_expect(ctx, &(bug_row){.score = score + r * N, .columns = N, .blocks = N, .topk = K},
                        together + r * K);
  free(together);
  free(score);
  m3idx_close(ctx);
}
END_TEST

/* Winners 100, 99, ..., 1 at the odd ids 8001 + 2 i; 28 places remain for the zeros, signed both ways: ids 0..27. */
START_TEST(zeros_8320) {
  enum { N = 8320, WINNERS = 100, K = 128 };
  m3idx_context *ctx = bug_open(_i);
  float *score = scores(N);
  int32_t want[K];
  for (int i = 0; i < N; i++) score[i] = i % 2 ? -0.0f : 0.0f;
  for (int i = 0; i < WINNERS; i++) score[8001 + 2 * i] = (float)(WINNERS - i);
  for (int i = 0; i < K; i++) want[i] = i < WINNERS ? 8001 + 2 * i : i - WINNERS;
  bug_select_expect(ctx, &(bug_row){.score = score, .columns = N, .blocks = N, .topk = K}, want);
  free(score);
  m3idx_close(ctx);
}
END_TEST

START_TEST(rounded) {
  enum { N = 40000, K = 64 };
  m3idx_context *ctx = bug_open(_i);
  float *score = scores(N);
  uint64_t state = 5;
  for (int step = 8; step <= 64; step *= 8) {
    for (int i = 0; i < N; i++) score[i] = (float)(floor(8 * step * bug_random(&state)) / step);
    bug_row row = {.score = score, .columns = N, .blocks = N, .topk = K};
    bug_select_expect(ctx, &row, NULL);
    int32_t *first = bug_select(ctx, &row);
    for (int run = 1; first && run < 15; run++) {
      int32_t *again = bug_select(ctx, &row);
      bug_expect(first, again, K, "ids of a later run");
      free(again);
    }
    free(first);
  }
  free(score);
  m3idx_close(ctx);
}
END_TEST

START_TEST(lane_edge) {
  m3idx_context *ctx = bug_open(_i);
  for (int32_t n = 33; n <= 130; n++) {
    if (n > 65 && n < 127) continue;
    float score[130];
    int32_t want[16];
    for (int i = 0; i < n; i++) score[i] = i == n - 1 ? 1 : -1;
    for (int32_t i = 0; i < 16; i++) want[i] = i ? i - 1 : n - 1;
    bug_select_expect(ctx, &(bug_row){.score = score, .columns = n, .blocks = n, .topk = 16}, want);
    bug_select_expect(ctx, &(bug_row){.score = score, .columns = n, .blocks = n, .topk = 1}, want);
  }
  m3idx_close(ctx);
}
END_TEST

/* Columns at and past N hold NaN and +inf; ids fall with the score, and with K > N the rest is -1. */
START_TEST(dirty_tail) {
  enum { M = 300, K = 16 };
  m3idx_context *ctx = bug_open(_i);
  float score[M];
  for (int32_t n = 0; n <= 299; n += 13) {
    int32_t want[K];
    for (int i = 0; i < M; i++) score[i] = i < n ? -(float)i : i % 2 ? NAN : INFINITY;
    for (int i = 0; i < K; i++) want[i] = i < n ? i : -1;
    for (int c = 0; c < 3; c++)
      bug_select_expect(ctx, &(bug_row){.score = score, .columns = M, .blocks = n, .topk = K, .contract = contracts[c]},
                        want);
  }
  m3idx_close(ctx);
}
END_TEST

START_TEST(capacity_live) {
  enum { M = 8192, K = 4 };
  m3idx_context *ctx = bug_open(_i);
  float *score = scores(M);
  static const int32_t want_60[K] = {59, 0, 1, 2}, want_5000[K] = {4999, 0, 1, 2};
  for (int32_t n = 60; n <= 5000; n += 4940) {
    for (int i = 0; i < M; i++) score[i] = i < n ? 1.0f : 9.0f;
    score[n - 1] = 2;
    bug_select_expect(ctx, &(bug_row){.score = score, .columns = M, .blocks = n, .topk = K},
                      n == 60 ? want_60 : want_5000);
  }
  free(score);
  m3idx_close(ctx);
}
END_TEST

START_TEST(over_capacity) {
  enum { M = 8, K = 4 };
  m3idx_context *ctx = bug_open(_i);
  float score[M] = {0};
  int32_t ids[K] = {7, 7, 7, 7}, untouched[K] = {7, 7, 7, 7}, blocks = M + 1, seq_len = 128 * M + 1;
  m3idx_select_args args = {
      .num_blocks = &blocks, .num_heads = 1, .num_rows = 1, .max_block = M, .score = score, .topk = K, .topk_idx = ids};
  ck_assert_int_eq(m3idx_select(ctx, &args), M3IDX_INVALID);
  ck_assert_ptr_nonnull(strstr(m3idx_message(ctx), "9"));
  bug_expect(untouched, ids, K, "ids");

  m3idx_batch batch = {.mode = M3IDX_DECODE,
                       .num_requests = 1,
                       .num_rows = 1,
                       .max_block = M,
                       .decode_query_len = 1,
                       .seq_lens = &seq_len};
  args.num_blocks = NULL;
  args.batch = &batch;
  ck_assert_int_eq(m3idx_select(ctx, &args), M3IDX_INVALID);
  bug_expect(untouched, ids, K, "ids");
  m3idx_close(ctx);
}
END_TEST

/* The same buffers and context for a launch that sees 1 block and one that sees 300, scores poisoned between. */
START_TEST(replay_grow) {
  enum { M = 300, K = 16 };
  m3idx_context *ctx = bug_open(_i);
  float score[M];
  int32_t blocks, ids[K], want[K];
  m3idx_select_args args = {
      .num_blocks = &blocks, .num_heads = 1, .num_rows = 1, .max_block = M, .score = score, .topk = K, .topk_idx = ids};
  for (int turn = 0; turn < 6; turn++) {
    for (int i = 0; i < M; i++) score[i] = NAN;
    blocks = turn % 2 ? M : 1;
    for (int i = 0; i < blocks; i++) score[i] = (float)i;
    for (int i = 0; i < K; i++) want[i] = i < blocks ? blocks - 1 - i : -1;
    if (!bug_ok(ctx, m3idx_select(ctx, &args))) break;
    bug_expect(want, ids, K, "ids");
  }
  m3idx_close(ctx);
}
END_TEST

/* 1e30 sixteen times beats the one 1e29. */
START_TEST(init_eats_local) {
  enum { N = 40, K = 16 };
  m3idx_context *ctx = bug_open(_i);
  float score[N] = {0};
  int32_t want[K];
  for (int i = 0; i < K; i++) want[i] = i;
  bug_select_expect(
      ctx, &(bug_row){.score = score, .columns = N, .blocks = N, .init_blocks = 16, .local_blocks = 1, .topk = K},
      want);
  m3idx_close(ctx);
}
END_TEST

/* Both blocks are init and local.  The keys show that local won: both are of 1e29, and the lower id comes first. */
START_TEST(overlap) {
  m3idx_context *ctx = bug_open(_i);
  const float score[2] = {-3, 5};
  const int32_t want[4] = {0, 1, -1, -1};
  int32_t blocks = 2;
  uint64_t keys[4];
  bug_select_expect(
      ctx, &(bug_row){.score = score, .columns = 2, .blocks = 2, .init_blocks = 2, .local_blocks = 3, .topk = 4}, want);
  m3idx_select_args args = {.num_blocks = &blocks,
                            .num_heads = 1,
                            .num_rows = 1,
                            .max_block = 2,
                            .score = score,
                            .init_blocks = 2,
                            .local_blocks = 3,
                            .topk = 4,
                            .keys = keys};
  if (bug_ok(ctx, m3idx_select(ctx, &args))) {
    /* S4.3: 1e29 is 0x6fa18f08, positive, so bit 31 is added; low half 0xffffffff - id. */
    ck_assert_uint_eq(keys[0], UINT64_C(0xefa18f08ffffffff));
    ck_assert_uint_eq(keys[1], UINT64_C(0xefa18f08fffffffe));
    ck_assert_uint_eq(keys[2] | keys[3], 0);
  }
  m3idx_close(ctx);
}
END_TEST

/* Block 0 is init, block 9 local; 1e31 at 5, 2e29 at 3, and 0 elsewhere. */
START_TEST(outrank) {
  m3idx_context *ctx = bug_open(_i);
  const float score[10] = {0, 0, 0, 2e29f, 0, 1e31f};
  const int32_t want[6] = {5, 0, 3, 9, 1, 2};
  bug_select_expect(
      ctx, &(bug_row){.score = score, .columns = 10, .blocks = 10, .init_blocks = 1, .local_blocks = 1, .topk = 6},
      want);
  m3idx_close(ctx);
}
END_TEST

int main(void) {
  const bug bugs[] = {
      {"layout-th", layout_th},
      {"out-stride", out_stride},
      {"nan-row", nan_row},
      {"nan-many", nan_many},
      {"nan-third", nan_third},
      {"inf-neighbour", inf_neighbour},
      {"all-equal", all_equal},
      {"nan-vs-sentinel", nan_vs_sentinel},
      {"near-one", near_one},
      {"ramp", ramp},
      {"shared-high-bits", shared_high_bits},
      {"zeros-8320", zeros_8320},
      {"rounded", rounded},
      {"lane-edge", lane_edge},
      {"dirty-tail", dirty_tail},
      {"capacity-live", capacity_live},
      {"over-capacity", over_capacity},
      {"replay-grow", replay_grow},
      {"init-eats-local", init_eats_local},
      {"overlap", overlap},
      {"outrank", outrank},
  };
  return bug_main("public bugs: select", bugs, sizeof bugs / sizeof *bugs);
}
