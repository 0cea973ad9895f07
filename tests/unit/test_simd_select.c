/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection of the cpu backend on every instruction set of this machine against the reference, byte for byte (S3.7,
 * S4): all contracts, lengths around every power that the code cuts rows at, and rows made to hurt a running threshold.
 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <stdio.h>
#include <string.h>

#include "m3idx.h"
#include "unit.h"

#ifdef _OPENMP
#include <omp.h>
#endif

static const char *const isas[] = {"scalar", "avx2", "avx512", "avx512bf16", "amx", "neon"};
enum { ISAS = sizeof isas / sizeof *isas, RULES = 16, MAX_TOPK = 128, PAD = 3 };

typedef enum kind {
  RANDOM,     /* normal numbers of any size */
  PATTERNS,   /* any 32 bits: NaN payloads, infinities, subnormals, both zeros */
  FEW,        /* seven values, -0 and +0 among them, so that ties decide */
  EQUAL,      /* one value */
  ASCENDING,  /* every score beats all before it */
  DESCENDING, /* the same from the other end */
  NANS,       /* NaN of many payloads and both signs, and a number here and there */
  TOP,        /* the highest pattern of all, where a threshold cannot be raised */
  BOTTOM,     /* the lowest pattern of all, among padding that must not be taken for scores */
  STRIPES,    /* what is large stands in few of the columns modulo 128 */
  KINDS
} kind;

static uint64_t state;

static uint32_t draw(void) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(state >> 32);
}

static uint32_t pattern(kind k, int64_t i, int64_t n) {
  static const uint32_t few[] = {0x80000000, 0x00000000, 0x3f800000, 0xbf800000, 0xf149f2ca, 0xff800000, 0x7f800000};
  const uint32_t x = draw();
  switch (k) {
  case RANDOM: return (x & 0x80000000u) | 0x3e000000u | (x & 0x03ffffffu);
  case PATTERNS: return x;
  case FEW: return few[x % 7];
  case EQUAL: return 0xbfc00000;
  case ASCENDING: return 0x3f800000u + (uint32_t)i;
  case DESCENDING: return 0x3f800000u + (uint32_t)(n - i);
  case NANS: return x % 13 == 0 ? 0xf149f2caU + x % 3 : (x & 0x807fffffu) | 0x7f800001u;
  case TOP: return x % 3 ? 0x7fffffffu : 0x7f800000u;
  case BOTTOM: return x % 3 ? 0xffffffffu : 0xff800000u;
  case STRIPES: return i % 128 < 15 ? 0x40000000u + (uint32_t)i : 0x3f800000u;
  case KINDS: break;
  }
  return 0;
}

/* Bits 0 to 3 of i: the rules that decide which ids; bit 4: their order in the output, which depends on nothing else
 * and therefore takes turns with K. */
static m3idx_contract contract_of(int i) {
  return (m3idx_contract){.tie = (m3idx_tie)(i & 1),
                          .nan = (m3idx_nan)(i >> 1 & 3),
                          .zero = (m3idx_zero)(i >> 3 & 1),
                          .order = (m3idx_order)(i >> 4 & 1)};
}

static m3idx_context *open_isa(const char *backend, const char *isa, int threads) {
  m3idx_context *ctx = NULL;
  char why[512];
  const m3idx_options options = {.backend = backend, .num_threads = threads};
  if (isa) setenv("M3IDX_ISA", isa, 1);
  const m3idx_status status = m3idx_open(&ctx, &options, why, sizeof why);
  unsetenv("M3IDX_ISA");
  ck_assert_msg(status == M3IDX_OK || status == M3IDX_UNAVAILABLE, "%s %s: %s", backend, isa ? isa : "", why);
  return ctx;
}

/* Rows of every kind for every length in n[0 .. lengths - 1], in one array of the widest. */
typedef struct world {
  int64_t rows, width;
  int32_t *blocks;
  float *score;
  int32_t *ids[2];
  uint64_t *keys[2];
} world;

static world world_make(const int32_t *n, int lengths) {
  world w = {.rows = (int64_t)lengths * KINDS};
  for (int i = 0; i < lengths; i++) w.width = n[i] > w.width ? n[i] : w.width;
  w.blocks = malloc((size_t)w.rows * sizeof *w.blocks);
  w.score = malloc((size_t)(w.rows * w.width) * sizeof *w.score);
  for (int i = 0; i < 2; i++) {
    w.ids[i] = malloc((size_t)(w.rows * (MAX_TOPK + PAD)) * sizeof(int32_t));
    w.keys[i] = malloc((size_t)(w.rows * MAX_TOPK) * sizeof(uint64_t));
  }
  for (int64_t row = 0; row < w.rows; row++) {
    w.blocks[row] = n[row / KINDS];
    for (int64_t i = 0; i < w.width; i++) {
      const uint32_t bits = pattern((kind)(row % KINDS), i, w.width);
      memcpy(w.score + row * w.width + i, &bits, sizeof bits);
    }
  }
  return w;
}

static void world_free(world *w) {
  free(w->blocks);
  free(w->score);
  for (int i = 0; i < 2; i++) {
    free(w->ids[i]);
    free(w->keys[i]);
  }
}

static void select_into(m3idx_context *ctx, world *w, m3idx_select_args args, int to) {
  memset(w->ids[to], 0xa5, (size_t)(w->rows * (MAX_TOPK + PAD)) * sizeof(int32_t));
  memset(w->keys[to], 0xa5, (size_t)(w->rows * MAX_TOPK) * sizeof(uint64_t));
  args.num_blocks = w->blocks;
  args.num_heads = 1;
  args.num_rows = w->rows;
  args.max_block = w->width;
  args.score = w->score;
  args.topk_idx = args.first_block ? NULL : w->ids[to];
  args.topk_stride_row = args.topk + PAD;
  args.keys = w->keys[to];
  ck_assert_msg(m3idx_select(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
}

/* Want in 0, got in 1. */
static void expect_same(const world *w, const m3idx_select_args *args, const char *isa, int threads) {
  char name[96];
  m3idx_contract_name(&args->contract, name, sizeof name);
  for (int64_t row = 0; row < w->rows; row++) {
    const int64_t ids = row * (args->topk + PAD), keys = row * args->topk;
    const int same_ids = !memcmp(w->ids[0] + ids, w->ids[1] + ids, (size_t)(args->topk + PAD) * sizeof(int32_t));
    const int same_keys = !memcmp(w->keys[0] + keys, w->keys[1] + keys, (size_t)args->topk * sizeof(uint64_t));
    ck_assert_msg(same_ids && same_keys,
                  "%s, %d threads, %s, K %d, init %d, local %d, first %d: row of kind %d, N %d: %s differ", isa,
                  threads, name, (int)args->topk, (int)args->init_blocks, (int)args->local_blocks,
                  (int)args->first_block, (int)(row % KINDS), (int)w->blocks[row], same_ids ? "keys" : "ids");
  }
}

/* Every instruction set and number of threads on one call's worth of rows. */
typedef struct crew {
  m3idx_context *ref, *cpu[ISAS][2];
  int threads[2];
} crew;

static crew crew_open(int many) {
  crew c = {.ref = open_isa("ref", NULL, 0), .threads = {1, many}};
  int opened = 0;
  for (int i = 0; i < ISAS; i++)
    for (int t = 0; t < 2; t++) opened += (c.cpu[i][t] = open_isa("cpu", isas[i], c.threads[t])) != NULL;
  ck_assert_int_ge(opened, 2);
  return c;
}

static void crew_close(crew *c) {
  m3idx_close(c->ref);
  for (int i = 0; i < ISAS; i++)
    for (int t = 0; t < 2; t++) m3idx_close(c->cpu[i][t]);
}

static void crew_check(crew *c, world *w, m3idx_select_args args) {
  select_into(c->ref, w, args, 0);
  for (int i = 0; i < ISAS; i++)
    for (int t = 0; t < 2; t++) {
      if (!c->cpu[i][t]) continue;
      select_into(c->cpu[i][t], w, args, 1);
      expect_same(w, &args, isas[i], c->threads[t]);
    }
}

static crew team;
static void set_up(void) { team = crew_open(3); }
static void tear_down(void) { crew_close(&team); }

/* Each length from nothing to beyond the shortest cut, each contract. */
START_TEST(test_short_rows) {
  static const int64_t topk[] = {1, 16, 33, 128};
  int32_t n[131];
  for (int i = 0; i < 131; i++) n[i] = i;
  state = 1;
  world w = world_make(n, 131);
  for (int k = 0; k < 4; k++)
    crew_check(&team, &w, (m3idx_select_args){.topk = topk[k], .contract = contract_of(_i + 16 * (k & 1))});
  world_free(&w);
}
END_TEST

START_TEST(test_lengths) {
  static const int32_t n[] = {255, 256, 257, 258, 383, 384, 385, 511, 512, 513, 1024, 8191, 8192, 8193};
  static const int64_t topk[] = {128, 16, 33, 17};
  state = 2;
  world w = world_make(n, sizeof n / sizeof *n);
  for (int k = 0; k < 4; k++)
    crew_check(&team, &w, (m3idx_select_args){.topk = topk[k], .contract = contract_of(_i + 16 * (k & 1))});
  world_free(&w);
}
END_TEST

START_TEST(test_topk) {
  static const int32_t n[] = {100, 129, 300};
  state = 3;
  world w = world_make(n, 3);
  for (int64_t topk = 1; topk <= MAX_TOPK; topk++)
    crew_check(&team, &w, (m3idx_select_args){.topk = topk, .contract = contract_of(_i + 16 * (int)(topk & 1))});
  world_free(&w);
}
END_TEST

/* S3.7: forced at both ends, meeting, beyond the row; ids of a part (S4.4) that begin elsewhere. */
START_TEST(test_forced) {
  static const int64_t forced[][3] = {{0, 1, 0},   {1, 0, 0},     {3, 2, 0},   {200, 0, 0},  {0, 200, 0},
                                      {5, 999, 0}, {130, 130, 0}, {0, 1, 60},  {70, 40, 60}, {300, 1, 128},
                                      {0, 0, 257}, {0, 129, 500}, {64, 64, 1}, {1, 1, 2000}};
  static const int32_t n[] = {0, 1, 5, 64, 74, 128, 129, 130, 200, 256, 257, 300, 511, 700};
  state = 4;
  world w = world_make(n, sizeof n / sizeof *n);
  for (int i = 0; i < (int)(sizeof forced / sizeof *forced); i++)
    crew_check(&team, &w,
               (m3idx_select_args){.topk = (i + _i) & 1 ? 5 : 40,
                                   .contract = contract_of(_i + 16 * (i & 1)),
                                   .init_blocks = forced[i][0],
                                   .local_blocks = forced[i][1],
                                   .first_block = forced[i][2]});
  world_free(&w);
}
END_TEST

/* A whole row for each thread, and ranges of columns where there are more threads than rows.  Tie, NaN and zero rules
 * decide which ids these are; their order in the output does not depend on the length. */
START_TEST(test_long_rows) {
  static const int32_t n[] = {65536};
  crew many = crew_open(KINDS + 4);
  state = 5;
  world w = world_make(n, 1);
  for (int64_t topk = 16; topk <= 128; topk += 112) {
    crew_check(&many, &w,
               (m3idx_select_args){.topk = topk, .contract = contract_of(2 * _i + (_i >> 2)), .local_blocks = 1});
    w.blocks[3] = 20000; /* ranges that are not of one length, and some that are empty */
    w.blocks[4] = 0;
    w.blocks[5] = 8193;
    crew_check(&many, &w, (m3idx_select_args){.topk = topk, .contract = contract_of(_i)});
  }
  world_free(&w);
  crew_close(&many);
}
END_TEST

/* N from a batch, several heads, padded rows of score. */
START_TEST(test_batch) {
  enum { HEADS = 3, ROWS = 6, WIDTH = 40, STRIDE = 47, TOPK = 16 };
  const int32_t seq_lens[] = {3000, 0, 5000}, cu[] = {0, 4, 4, 6}, prefix[] = {2996, 0, 4000};
  m3idx_batch batch = {.mode = M3IDX_DECODE,
                       .num_requests = 3,
                       .num_rows = ROWS,
                       .max_block = WIDTH,
                       .block_size = 128,
                       .decode_query_len = 2,
                       .seq_lens = seq_lens};
  float score[HEADS * ROWS * STRIDE];
  state = 6;
  for (int i = 0; i < HEADS * ROWS * STRIDE; i++) {
    const uint32_t bits = pattern(PATTERNS, i, 0);
    memcpy(score + i, &bits, sizeof bits);
  }
  for (int prefill = 0; prefill < 2; prefill++) {
    if (prefill) {
      batch.mode = M3IDX_PREFILL;
      batch.decode_query_len = 0;
      batch.cu_seqlens = cu;
      batch.prefix_lens = prefix;
    }
    for (int i = 0; i < ISAS; i++) {
      int32_t ids[2][HEADS * ROWS * TOPK];
      if (!team.cpu[i][0]) continue;
      for (int side = 0; side < 2; side++) {
        m3idx_context *ctx = side ? team.cpu[i][_i] : team.ref;
        const m3idx_select_args args = {.batch = &batch,
                                        .num_heads = HEADS,
                                        .num_rows = ROWS,
                                        .max_block = WIDTH,
                                        .score = score,
                                        .score_stride_row = STRIDE,
                                        .local_blocks = 1,
                                        .topk = TOPK,
                                        .topk_idx = ids[side]};
        ck_assert_msg(m3idx_select(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
      }
      ck_assert_msg(!memcmp(ids[0], ids[1], sizeof ids[0]), "%s, prefill %d", isas[i], prefill);
    }
  }
}
END_TEST

#ifdef _OPENMP
/* Inside a caller's parallel region each context works alone. */
START_TEST(test_nested) {
  static const int32_t n[] = {20000};
  state = 7;
  world w = world_make(n, 1);
  const m3idx_select_args args = {.topk = 16};
  m3idx_context *cpu[2] = {open_isa("cpu", NULL, 4), open_isa("cpu", NULL, 4)};
  int same[2] = {0, 0};
  select_into(team.ref, &w, args, 0);
#pragma omp parallel for num_threads(2)
  for (int i = 0; i < 2; i++) {
    int32_t ids[KINDS * 16];
    const m3idx_select_args own = {.num_blocks = w.blocks,
                                   .num_heads = 1,
                                   .num_rows = w.rows,
                                   .max_block = w.width,
                                   .score = w.score,
                                   .topk = 16,
                                   .topk_idx = ids};
    same[i] = m3idx_select(cpu[i], &own) == M3IDX_OK;
    for (int row = 0; row < KINDS; row++)
      same[i] &= !memcmp(ids + row * 16, w.ids[0] + row * (16 + PAD), 16 * sizeof *ids);
  }
  ck_assert(same[0] && same[1]);
  m3idx_close(cpu[0]);
  m3idx_close(cpu[1]);
  world_free(&w);
}
END_TEST
#endif

int main(void) {
  Suite *suite = suite_create("simd_select");
  TCase *tcase = tcase_create("simd_select");
  tcase_set_timeout(tcase, 0);
  tcase_add_unchecked_fixture(tcase, set_up, tear_down);
  tcase_add_loop_test(tcase, test_short_rows, 0, RULES);
  tcase_add_loop_test(tcase, test_lengths, 0, RULES);
  tcase_add_loop_test(tcase, test_topk, 0, 2);
  tcase_add_loop_test(tcase, test_forced, 0, RULES);
  tcase_add_loop_test(tcase, test_long_rows, 0, 8);
  tcase_add_loop_test(tcase, test_batch, 0, 2);
#ifdef _OPENMP
  tcase_add_test(tcase, test_nested);
#endif
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
