/* SPDX-License-Identifier: Apache-2.0
 *
 * Block scores of the reference (S3): special values, one rounding, scale, formats, visibility and what is
 * written.  Expected patterns are derived by hand.
 */
#include <math.h>
#include <string.h>

#include "m3idx.h"
#include "unit.h"

enum { D = 16, B = 16 };
#define NAN_BITS UINT32_C(0x7fc00000)
#define INF_BITS UINT32_C(0x7f800000)
#define MINUS_INF_BITS UINT32_C(0xff800000)
#define POISON UINT32_C(0x5ca1ab1e)

static m3idx_context *ctx;

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* The score of one block: `tokens` keys of D floats against one query of D floats. */
static uint32_t block_score(const float *q, const float *k, int32_t tokens, float scale) {
  float page[B][D], score;
  int32_t seq_len = tokens, table = 0;
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = 1,
                             .num_rows = 1,
                             .max_block = 1,
                             .block_size = B,
                             .decode_query_len = 1,
                             .seq_lens = &seq_len};
  m3idx_score_args args = {.batch = &batch, .block_table = &table, .scale = scale, .score = &score};
  args.q = (m3idx_tensor){(void *)(uintptr_t)q, M3IDX_F32, {1, 1, D}, {0}};
  args.index_k = (m3idx_tensor){page, M3IDX_F32, {1, B, D}, {0}};
  /* What the row does not see must not matter: fill it with what would win. */
  for (int i = 0; i < B * D; i++) page[i / D][i % D] = INFINITY;
  memcpy(page, k, (size_t)tokens * sizeof page[0]);
  ck_assert_msg(m3idx_score(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  return bits_of(score);
}

#define X30 0x1p30f
static const struct {
  const char *what;
  float q[D], k[D];
  uint32_t want;
} dots[] = {
    {"zeros", {0}, {0}, 0},
    {"-0 * 1", {-0.0f}, {1}, 0},
    {"1 * 3", {1}, {3}, 0x40400000},
    /* cancel: 2^30 - 2^30 + 2^-20 in all placements. */
    {"cancel", {X30, -X30, 0x1p-20f}, {1, 1, 1}, 0x35800000},
    {"cancel", {X30, 0x1p-20f, -X30}, {1, 1, 1}, 0x35800000},
    {"cancel", {0x1p-20f, X30, -X30}, {1, 1, 1}, 0x35800000},
    {"cancel", {-X30, X30, 0x1p-20f}, {1, 1, 1}, 0x35800000},
    {"cancel", {-X30, 0x1p-20f, X30}, {1, 1, 1}, 0x35800000},
    {"cancel", {0x1p-20f, -X30, X30}, {1, 1, 1}, 0x35800000},
    {"cancel at both ends", {0x1.fffffep127f, -0x1.fffffep127f, 0x1p-149f}, {0x1.fffffep127f, 0x1.fffffep127f, 1}, 1},
    {"cancel to +0", {-1, 1}, {1, 1}, 0},
    /* midpoint: 1 + 2^-24, alone and beside it by 2^-80. */
    {"midpoint", {1, 0x1p-24f}, {1, 1}, 0x3f800000},
    {"midpoint + 2^-80", {1, 0x1p-24f, 0x1p-80f}, {1, 1, 1}, 0x3f800001},
    {"midpoint - 2^-80", {1, 0x1p-24f, -0x1p-80f}, {1, 1, 1}, 0x3f800000},
    {"odd midpoint", {0x1.000002p0f, 0x1p-24f}, {1, 1}, 0x3f800002},
    {"odd midpoint - 2^-80", {0x1.000002p0f, 0x1p-24f, -0x1p-80f}, {1, 1, 1}, 0x3f800001},
    {"minus midpoint - 2^-80", {-1, -0x1p-24f, -0x1p-80f}, {1, 1, 1}, 0xbf800001},
    /* (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: a product is not rounded either. */
    {"wide product", {0x1.001p0f}, {0x1.001p0f}, 0x3f801000},
    {"and its last bit", {0x1.001p0f, 0x1p-40f}, {0x1.001p0f, 0x1p-40f}, 0x3f801001},
    /* subnormal: 2^-149 / 2, just above it, 2^-126 - 2^-149. */
    {"half of 2^-149", {0x1p-75f}, {0x1p-75f}, 0},
    {"minus half of 2^-149", {-0x1p-75f}, {0x1p-75f}, 0},
    {"above half", {0x1p-75f, 0x1p-149f}, {0x1p-75f, 0x1p-149f}, 1},
    {"minus above half", {-0x1p-75f, 0x1p-149f}, {0x1p-75f, -0x1p-149f}, 0x80000001},
    {"1.5 * 2^-149", {0x1.8p-75f}, {0x1p-74f}, 2},
    {"2.5 * 2^-149", {0x1.4p-74f}, {0x1p-74f}, 2},
    {"the largest subnormal", {0x1p-63f, -0x1p-75f}, {0x1p-63f, 0x1p-74f}, 0x007fffff},
    {"the least product", {0x1p-149f}, {0x1p-149f}, 0},
    /* overflow: largest + half ulp (2^103), and just below. */
    {"largest", {0x1.fffffep127f}, {1}, 0x7f7fffff},
    {"largest + half ulp", {0x1.fffffep127f, 0x1p103f}, {1, 1}, INF_BITS},
    {"below that", {0x1.fffffep127f, 0x1p103f, -0x1p-149f}, {1, 1, 0x1p-149f}, 0x7f7fffff},
    {"minus that half", {-0x1.fffffep127f, -0x1p103f}, {1, 1}, MINUS_INF_BITS},
    {"2^254", {0x1p127f}, {0x1p127f}, INF_BITS},
    {"an overflow taken back", {0x1p127f, -0x1p127f, 5}, {0x1p127f, 0x1p127f, 1}, 0x40a00000},
    /* S3.1. */
    {"inf", {INFINITY, 1}, {1, -9}, INF_BITS},
    {"inf * -2", {INFINITY}, {-2}, MINUS_INF_BITS},
    {"-inf * -inf", {-INFINITY}, {-INFINITY}, INF_BITS},
    {"inf and inf", {INFINITY, 1}, {1, INFINITY}, INF_BITS},
    {"inf and -inf", {INFINITY, 1}, {1, -INFINITY}, NAN_BITS},
    {"inf * 0", {INFINITY}, {0}, NAN_BITS},
    {"-0 * -inf", {-0.0f}, {-INFINITY}, NAN_BITS},
    {"inf, and inf * 0", {INFINITY, INFINITY}, {1, 0}, NAN_BITS},
    {"NaN", {NAN, 1}, {1, 1}, NAN_BITS},
    {"0 * NaN", {0}, {-NAN}, NAN_BITS},
    {"NaN beside inf", {INFINITY, 1}, {1, NAN}, NAN_BITS},
    {"inf, then overflow of the other sign", {INFINITY, -0x1p127f}, {1, 0x1p127f}, INF_BITS},
    {"2^-149 * inf", {0x1p-149f}, {INFINITY}, INF_BITS},
};

START_TEST(one_dot) {
  uint32_t got = block_score(dots[_i].q, dots[_i].k, 1, 1), turned;
  ck_assert_msg(got == dots[_i].want, "%s: want %08x got %08x", dots[_i].what, (unsigned)dots[_i].want, (unsigned)got);
  turned = block_score(dots[_i].k, dots[_i].q, 1, 1); /* a product has no sides */
  ck_assert_msg(turned == dots[_i].want, "%s turned: got %08x", dots[_i].what, (unsigned)turned);
}
END_TEST

/* S3.3: the maximum over visible tokens, q = 1 at d = 0 so that a dot is k[0]. */
static const struct {
  const char *what;
  int32_t tokens;
  float k0[4];
  uint32_t want;
} maxima[] = {
    {"one", 1, {2}, 0x40000000},
    {"last", 3, {1, -5, 2}, 0x40000000},
    {"negative", 3, {-3, -1, -2}, 0xbf800000},
    {"+0 over negative", 2, {-1, -0.0f}, 0},
    {"subnormal over 0", 2, {0, 0x1p-149f}, 1},
    {"NaN left out", 3, {NAN, -7, NAN}, 0xc0e00000},
    {"NaN first or last", 2, {-7, NAN}, 0xc0e00000},
    {"all NaN", 4, {NAN, -NAN, NAN, NAN}, NAN_BITS},
    {"NaN and -inf", 2, {NAN, -INFINITY}, MINUS_INF_BITS},
    {"-inf and NaN", 2, {-INFINITY, NAN}, MINUS_INF_BITS},
    {"inf", 3, {3, INFINITY, NAN}, INF_BITS},
    {"largest over -inf", 2, {-INFINITY, -0x1.fffffep127f}, 0xff7fffff},
};

START_TEST(maximum) {
  float q[D] = {1}, k[4][D] = {{0}};
  for (int i = 0; i < 4; i++) k[i][0] = maxima[_i].k0[i];
  uint32_t got = block_score(q, k[0], maxima[_i].tokens, 0);
  ck_assert_msg(got == maxima[_i].want, "%s: want %08x got %08x", maxima[_i].what, (unsigned)maxima[_i].want,
                (unsigned)got);
}
END_TEST

/* S3.5: round, then scale and round again.  dot = a + b + c. */
static const struct {
  const char *what;
  float terms[3], scale;
  uint32_t want;
} scales[] = {
    {"3 * 0.5", {3}, 0.5f, 0x3fc00000},
    {"default", {3}, 0, 0x40400000},
    /* Rounded first to 1 + 2^-23; times 1.5 is 1.5 + 1.5 * 2^-23, midway, to the even 1.5 + 2^-22.
     * Rounding once, (1 + 2^-24 + 2^-80) * 1.5 = 1.5 + 0.75 * 2^-23 + ..., would give 1.5 + 2^-23. */
    {"two roundings", {1, 0x1p-24f, 0x1p-80f}, 1.5f, 0x3fc00002},
    {"negative underflow is +0", {-0.25f}, 0x1p-149f, 0},
    {"half the least ties to +0", {0.5f}, 0x1p-149f, 0},
    {"negative subnormal stays", {-1}, 0x1p-149f, 0x80000001},
    {"subnormal by subnormal", {0x1p-149f}, 0x1p-149f, 0},
    {"subnormal rescued", {0x1p-149f}, 0x1p127f, 0x34800000}, /* 2^-22 */
    {"overflow", {0x1p127f}, 2, INF_BITS},
    {"overflow, negative", {-0x1p127f}, 2, MINUS_INF_BITS},
    {"an infinity from overflow stays", {0x1p127f, 0x1p127f}, 0x1p-100f, INF_BITS},
    {"inf", {INFINITY}, 0x1p-149f, INF_BITS},
    {"-inf", {-INFINITY}, 3, MINUS_INF_BITS},
    {"NaN", {NAN}, 3, NAN_BITS},
    {"zero", {0}, 0x1.fffffep127f, 0},
};

START_TEST(scale) {
  float q[D] = {1, 1, 1}, k[D] = {0};
  memcpy(k, scales[_i].terms, sizeof scales[_i].terms);
  uint32_t got = block_score(q, k, 1, scales[_i].scale);
  ck_assert_msg(got == scales[_i].want, "%s: want %08x got %08x", scales[_i].what, (unsigned)scales[_i].want,
                (unsigned)got);
}
END_TEST

/* tie-round: 1 + 2^-25 and 1 lie a quarter ulp apart and are one float. */
START_TEST(tie_round) {
  float q[D] = {1, 1}, near[D] = {1, 0x1p-25f}, one[D] = {1};
  ck_assert_uint_eq(block_score(q, near, 1, 1), 0x3f800000);
  ck_assert_uint_eq(block_score(q, one, 1, 1), 0x3f800000);
}
END_TEST

/* 1.5, -2 and NaN as codes of each format; every pair gives 1.5 * -2 = -3, and NaN if one is NaN. */
static const struct {
  m3idx_dtype dtype;
  uint32_t one_and_half, minus_two, nan;
} codes[] = {{M3IDX_F32, 0x3fc00000, 0xc0000000, 0x7f800001},
             {M3IDX_F16, 0x3e00, 0xc000, 0xfe00},
             {M3IDX_BF16, 0x3fc0, 0xc000, 0x7f81},
             {M3IDX_E4M3FN, 0x3c, 0xc0, 0xff},
             {M3IDX_E4M3FNUZ, 0x44, 0xc8, 0x80},
             {M3IDX_E5M2, 0x3e, 0xc0, 0x7d},
             {M3IDX_E5M2FNUZ, 0x42, 0xc4, 0x80}};
enum { FORMATS = sizeof codes / sizeof *codes };

static void store(void *data, int64_t i, m3idx_dtype dtype, uint32_t code) {
  if (m3idx_dtype_bytes(dtype) == 1) ((uint8_t *)data)[i] = (uint8_t)code;
  if (m3idx_dtype_bytes(dtype) == 2) ((uint16_t *)data)[i] = (uint16_t)code;
  if (m3idx_dtype_bytes(dtype) == 4) ((uint32_t *)data)[i] = code;
}

START_TEST(format_pairs) {
  int a = _i / FORMATS, b = _i % FORMATS;
  uint32_t q[D] = {0}, k[2 * B][D] = {{0}}, score[2] = {0};
  int32_t seq_len = B + 1, table[2] = {1, 0};
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = 1,
                             .num_rows = 1,
                             .max_block = 2,
                             .block_size = B,
                             .decode_query_len = 1,
                             .seq_lens = &seq_len};
  m3idx_score_args args = {.batch = &batch, .block_table = table, .score = (float *)(void *)score};
  args.q = (m3idx_tensor){q, codes[a].dtype, {1, 1, D}, {0}};
  args.index_k = (m3idx_tensor){k, codes[b].dtype, {2, B, D}, {0}};
  store(q, D - 1, codes[a].dtype, codes[a].one_and_half);
  /* Page 1, the first block: every token -2.  Page 0, the second: its one token NaN. */
  for (int t = 0; t < B; t++) store(k, (B + t) * D + D - 1, codes[b].dtype, codes[b].minus_two);
  store(k, D - 1, codes[b].dtype, codes[b].nan);
  ck_assert_msg(m3idx_score(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  ck_assert_uint_eq(score[0], 0xc0400000);
  ck_assert_uint_eq(score[1], NAN_BITS);
}
END_TEST

/* fp8-0x80: -0 or NaN by encoding, the same byte half the value in fnuz; q = 1 in every element. */
START_TEST(fp8_0x80) {
  static const struct {
    uint8_t code;
    uint32_t fn, fnuz;
  } rows[] = {{0x80, 0, NAN_BITS},          /* 16 * -0; NaN */
              {0x7f, NAN_BITS, 0x45700000}, /* NaN; 16 * 240 = 3840 */
              {0xff, NAN_BITS, 0xc5700000},
              {0x7e, 0x45e00000, 0x45600000}}; /* 16 * 448 = 7168; half of it */
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    float one = 1;
    uint8_t k[B * D];
    uint32_t score = 0;
    int32_t seq_len = 1, table = 0;
    const m3idx_batch batch = {.mode = M3IDX_DECODE,
                               .num_requests = 1,
                               .num_rows = 1,
                               .max_block = 1,
                               .block_size = B,
                               .decode_query_len = 1,
                               .seq_lens = &seq_len};
    m3idx_score_args args = {.batch = &batch, .block_table = &table, .score = (float *)(void *)&score};
    args.q = (m3idx_tensor){&one, M3IDX_F32, {1, 1, D}, {1, 1, 0}}; /* stride 0 repeats */
    args.index_k = (m3idx_tensor){k, M3IDX_E4M3FN, {1, B, D}, {0}};
    memset(k, rows[i].code, sizeof k);
    ck_assert_int_eq(m3idx_score(ctx, &args), M3IDX_OK);
    ck_assert_uint_eq(score, rows[i].fn);
    args.index_k.dtype = M3IDX_E4M3FNUZ;
    ck_assert_int_eq(m3idx_score(ctx, &args), M3IDX_OK);
    ck_assert_uint_eq(score, rows[i].fnuz);
  }
}
END_TEST

/* Overflow (D = 256): 128 and 256 products of 2^120 are 2^127 and 2^128. */
START_TEST(overflow_by_sum) {
  float q[256], k[16][256] = {{0}};
  uint32_t score = 0;
  int32_t seq_len = 1, table = 0;
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = 1,
                             .num_rows = 1,
                             .max_block = 1,
                             .block_size = 16,
                             .decode_query_len = 1,
                             .seq_lens = &seq_len};
  m3idx_score_args args = {.batch = &batch, .block_table = &table, .score = (float *)(void *)&score};
  args.q = (m3idx_tensor){q, M3IDX_F32, {1, 1, 256}, {0}};
  args.index_k = (m3idx_tensor){k, M3IDX_F32, {1, 16, 256}, {0}};
  for (int d = 0; d < 256; d++) q[d] = 0x1p60f;
  for (int d = 0; d < 128; d++) k[0][d] = 0x1p60f;
  ck_assert_int_eq(m3idx_score(ctx, &args), M3IDX_OK);
  ck_assert_uint_eq(score, 0x7f000000);
  for (int d = 128; d < 256; d++) k[0][d] = 0x1p60f;
  ck_assert_int_eq(m3idx_score(ctx, &args), M3IDX_OK);
  ck_assert_uint_eq(score, INF_BITS);
}
END_TEST

/* Two heads, requests of 20, 0 and 2 keys, two rows each; one key of value token + 1 at d = 0, so a block's
 * score is its last visible token + 1; head 1 counts double.  Score rows of 3 columns in strides of 5, heads
 * 40 apart, everything else poison. */
enum { ROWS = 6, M = 3, ROW = 5, HEAD = 40 };

static void layout(m3idx_mode mode, int64_t init, int64_t local, uint32_t *score) {
  static float q[ROWS][2][D], k[3][B][D];
  static const int32_t seq[] = {20, 0, 2}, prefill_seq[] = {20, 0, 4}, cu[] = {0, 2, 2, 6}, prefix[] = {18, 0, 0};
  /* Request 1 never has its table read: its entries are no pages. */
  static const int32_t table[3][4] = {{2, 0, -9, -9}, {99, -1, 99, -1}, {1, -9, -9, -9}};
  const m3idx_batch batch = {.mode = mode,
                             .num_requests = 3,
                             .num_rows = ROWS,
                             .max_block = M,
                             .block_size = B,
                             .decode_query_len = mode == M3IDX_DECODE ? 2 : 0,
                             .seq_lens = mode == M3IDX_DECODE ? seq : prefill_seq,
                             .cu_seqlens = mode == M3IDX_DECODE ? NULL : cu,
                             .prefix_lens = mode == M3IDX_DECODE ? NULL : prefix};
  m3idx_score_args args = {.batch = &batch,
                           .block_table = table[0],
                           .block_table_stride = 4,
                           .scale = 1,
                           .init_blocks = init,
                           .local_blocks = local,
                           .score = (float *)(void *)score,
                           .score_stride_head = HEAD,
                           .score_stride_row = ROW};
  args.q = (m3idx_tensor){q, M3IDX_F32, {ROWS, 2, D}, {0}};
  args.index_k = (m3idx_tensor){k, M3IDX_F32, {3, B, D}, {0}};
  for (int t = 0; t < ROWS; t++) q[t][0][0] = 1, q[t][1][0] = 2;
  for (int t = 0; t < B; t++) {
    k[2][t][0] = k[1][t][0] = (float)(t + 1);
    k[0][t][0] = (float)(t + 17);
  }
  for (int i = 0; i < 2 * HEAD; i++) score[i] = POISON;
  ck_assert_msg(m3idx_score(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
}

/* want[t][b] of head 0: 0 = -inf; forced values are the same in every head. */
static void expect_layout(const uint32_t *score, const float want[ROWS][M]) {
  for (int i = 0; i < 2 * HEAD; i++) {
    int head = i / HEAD, row = i % HEAD / ROW, column = i % ROW;
    uint32_t expected = POISON;
    if (row < ROWS && column < M) {
      float value = want[row][column];
      expected = value == 0 ? MINUS_INF_BITS : bits_of(value >= 1e29f ? value : value * (float)(head + 1));
    }
    ck_assert_msg(score[i] == expected, "head %d row %d column %d: want %08x got %08x", head, row, column,
                  (unsigned)expected, (unsigned)score[i]);
  }
}

START_TEST(layout_decode) {
  uint32_t score[2 * HEAD];
  static const float pure[ROWS][M] = {{16, 19}, {16, 20}, {0}, {0}, {1}, {2}};
  static const float with_forced[ROWS][M] = {{1e30f, 1e29f}, {1e30f, 1e29f}, {0}, {0}, {1e29f}, {1e29f}};
  static const float with_local[ROWS][M] = {{16, 1e29f}, {16, 1e29f}, {0}, {0}, {1e29f}, {1e29f}};
  layout(M3IDX_DECODE, 0, 0, score);
  expect_layout(score, pure);
  layout(M3IDX_DECODE, 1, 1, score);
  expect_layout(score, with_forced);
  layout(M3IDX_DECODE, 0, 1, score);
  expect_layout(score, with_local);
}
END_TEST

START_TEST(layout_prefill) {
  uint32_t score[2 * HEAD];
  static const float pure[ROWS][M] = {{16, 19}, {16, 20}, {1}, {2}, {3}, {4}};
  layout(M3IDX_PREFILL, 0, 0, score);
  expect_layout(score, pure);
}
END_TEST

/* Strided views: q as [D][H][T] in memory, keys with gaps between elements, tokens and pages. */
START_TEST(strided_views) {
  static uint16_t q[D][2][3], k[5000];
  float score[2][3][1];
  int32_t seq_len = 3, table = 1;
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = 1,
                             .num_rows = 3,
                             .max_block = 1,
                             .block_size = B,
                             .decode_query_len = 3,
                             .seq_lens = &seq_len};
  m3idx_score_args args = {.batch = &batch, .block_table = &table, .score = score[0][0]};
  args.q = (m3idx_tensor){q, M3IDX_BF16, {3, 2, D}, {1, 3, 6}};
  args.index_k = (m3idx_tensor){k, M3IDX_BF16, {2, B, D}, {2000, 100, 3}};
  memset(k, 0xff, sizeof k); /* NaN wherever nothing is stored */
  for (int t = 0; t < 3; t++)
    for (int d = 0; d < D; d++) k[2000 + 100 * t + 3 * d] = d == t ? 0x3f80 : 0; /* key t is e_t */
  for (int t = 0; t < 3; t++)
    for (int h = 0; h < 2; h++) q[t][h][t] = h ? 0x4000 : 0x4040; /* query t: 3 e_t, in head 1 2 e_t */
  ck_assert_msg(m3idx_score(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  for (int t = 0; t < 3; t++) {
    ck_assert_uint_eq(bits_of(score[0][t][0]), 0x40400000);
    ck_assert_uint_eq(bits_of(score[1][t][0]), 0x40000000);
  }
}
END_TEST

/* Nothing to do: no rows, or no columns. */
START_TEST(empty_launches) {
  float score = 7;
  int32_t seq_len = 0, table = -1;
  m3idx_batch batch = {.mode = M3IDX_DECODE,
                       .num_requests = 1,
                       .num_rows = 1,
                       .max_block = 0,
                       .block_size = B,
                       .decode_query_len = 1,
                       .seq_lens = &seq_len};
  float q[D] = {0};
  m3idx_score_args args = {.batch = &batch, .block_table = &table, .score = &score};
  args.q = (m3idx_tensor){q, M3IDX_F32, {1, 1, D}, {0}};
  args.index_k = (m3idx_tensor){NULL, M3IDX_F32, {0, B, D}, {0}};
  ck_assert_msg(m3idx_score(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  batch.num_requests = batch.num_rows = 0;
  batch.max_block = 1;
  args.q.shape[0] = 0;
  ck_assert_msg(m3idx_score(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  ck_assert_uint_eq(bits_of(score), bits_of(7));
}
END_TEST

/* Any thread count, the same bytes (S3.3). */
START_TEST(threads) {
  enum { T = 4, PAGES = 9 };
  static uint16_t q[T][D], k[PAGES][B][D];
  static uint32_t want[T][PAGES], got[T][PAGES];
  int32_t seq_len = PAGES * B - 3, table[PAGES];
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = 1,
                             .num_rows = T,
                             .max_block = PAGES,
                             .block_size = B,
                             .decode_query_len = T,
                             .seq_lens = &seq_len};
  m3idx_score_args args = {.batch = &batch, .block_table = table, .local_blocks = 1};
  uint32_t random = 1;
  for (int i = 0; i < T * D; i++) q[i / D][i % D] = (uint16_t)((random = random * 1664525u + 1013904223u) >> 16);
  for (int i = 0; i < PAGES * B * D; i++)
    k[i / D / B][i / D % B][i % D] = (uint16_t)((random = random * 1664525u + 1013904223u) >> 16);
  for (int i = 0; i < PAGES; i++) table[i] = PAGES - 1 - i;
  args.q = (m3idx_tensor){q, M3IDX_F16, {T, 1, D}, {0}};
  args.index_k = (m3idx_tensor){k, M3IDX_BF16, {PAGES, B, D}, {0}};
  for (int n = 1; n <= 5; n += 2) {
    m3idx_context *own;
    const m3idx_options options = {.backend = "ref", .num_threads = n};
    ck_assert_int_eq(m3idx_open(&own, &options, NULL, 0), M3IDX_OK);
    args.score = (float *)(void *)(n == 1 ? want : got);
    ck_assert_int_eq(m3idx_score(own, &args), M3IDX_OK);
    m3idx_close(own);
    if (n > 1) ck_assert_mem_eq(got, want, sizeof want);
  }
}
END_TEST

int main(void) {
  const m3idx_options options = {.backend = "ref"};
  if (m3idx_open(&ctx, &options, NULL, 0) != M3IDX_OK) return EXIT_FAILURE;
  Suite *suite = suite_create("ref_score");
  TCase *tcase = tcase_create("ref_score");
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, one_dot, 0, sizeof dots / sizeof *dots);
  tcase_add_loop_test(tcase, maximum, 0, sizeof maxima / sizeof *maxima);
  tcase_add_loop_test(tcase, scale, 0, sizeof scales / sizeof *scales);
  tcase_add_test(tcase, tie_round);
  tcase_add_loop_test(tcase, format_pairs, 0, FORMATS * FORMATS);
  tcase_add_test(tcase, fp8_0x80);
  tcase_add_test(tcase, overflow_by_sum);
  tcase_add_test(tcase, layout_decode);
  tcase_add_test(tcase, layout_prefill);
  tcase_add_test(tcase, strided_views);
  tcase_add_test(tcase, empty_launches);
  tcase_add_test(tcase, threads);
  int status = unit_run(suite);
  m3idx_close(ctx);
  return status;
}
