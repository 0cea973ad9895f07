/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection in parts (S4.4, S4.5): the keys of any chunks or shards, merged, give the same bytes as selection
 * of the whole row, for all 32 contracts, 1 to 16 parts, even, uneven and empty ones.
 */
#include <string.h>

#include "geometry.h"
#include "m3idx.h"
#include "unit.h"

enum { HEADS = 2, ROWS = 3, WIDTH = 300, MAX_K = 128, MAX_PARTS = 16, LINES = HEADS * ROWS };

static m3idx_context *ctx;

static void open_ref(void) {
  const m3idx_options options = {.backend = "ref", .num_threads = 1}; /* many tiny calls */
  char why[512];
  if (m3idx_open(&ctx, &options, why, sizeof why)) ck_abort_msg("%s", why);
}

static void close_ref(void) {
  m3idx_close(ctx);
  ctx = NULL;
}

static uint32_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

/* Score patterns that contracts disagree on: NaNs of both signs, zeros of both signs, infinities, the values
 * that NaN and forced blocks take, and a small grid of ties. */
static void fill_scores(float *scores, int count, uint64_t *seed) {
  static const uint32_t special[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff812345, 0x00000000,
                                     0x80000000, 0x7f800000, 0xff800000, 0xf149f2ca, 0x7149f2ca,
                                     0x6fa18f08, 0x00000001, 0x80000001, 0x7f7fffff};
  for (int i = 0; i < count; i++) {
    const uint32_t pick = next_random(seed);
    uint32_t bits = special[pick / 4 % (sizeof special / sizeof *special)];
    if (pick % 4) {
      const float x = (float)((int)(pick / 64 % 9) - 4);
      memcpy(&bits, &x, sizeof bits);
    }
    memcpy(&scores[i], &bits, sizeof bits);
  }
}

static m3idx_contract contract_of(int i) {
  return (m3idx_contract){(m3idx_tie)(i & 1), (m3idx_nan)(i >> 1 & 3), (m3idx_zero)(i >> 3 & 1),
                          (m3idx_order)(i >> 4 & 1)};
}

typedef struct problem {
  m3idx_contract contract;
  int64_t topk, init_blocks, local_blocks;
  float scores[LINES * WIDTH];
  int32_t num_blocks[ROWS];
} problem;

/* Columns begin..end-1 of the rows from `row`; ids or keys may be NULL. */
static void select_part(const problem *p, int64_t row, int64_t rows, m3idx_range columns, int32_t *ids,
                        uint64_t *keys) {
  const m3idx_select_args args = {.num_blocks = p->num_blocks + row,
                                  .num_heads = HEADS,
                                  .num_rows = rows,
                                  .max_block = columns.end - columns.begin,
                                  .score = p->scores + row * WIDTH + columns.begin,
                                  .score_stride_head = ROWS * WIDTH,
                                  .score_stride_row = WIDTH,
                                  .init_blocks = p->init_blocks,
                                  .local_blocks = p->local_blocks,
                                  .topk = p->topk,
                                  .contract = p->contract,
                                  .first_block = columns.begin,
                                  .topk_idx = ids,
                                  .keys = keys};
  if (m3idx_select(ctx, &args)) ck_abort_msg("select: %s", m3idx_message(ctx));
}

/* Select by the parts given and compare with the whole: ids and keys, byte for byte. */
static void parts_equal_whole(const problem *p, int64_t row, int64_t rows, const m3idx_range *parts, int count) {
  static uint64_t part_keys[MAX_PARTS * LINES * MAX_K], want_keys[LINES * MAX_K], got_keys[LINES * MAX_K];
  static int32_t want[LINES * MAX_K], got[LINES * MAX_K];
  const size_t each = (size_t)(HEADS * rows * p->topk);
  memset(part_keys, 0x55, sizeof part_keys);
  memset(got, 0x55, sizeof got);
  memset(got_keys, 0x55, sizeof got_keys);
  select_part(p, row, rows, (m3idx_range){0, WIDTH}, want, want_keys);
  for (int i = 0; i < count; i++) select_part(p, row, rows, parts[i], NULL, part_keys + (size_t)i * each);
  const m3idx_merge_args merge = {.num_parts = count,
                                  .num_heads = HEADS,
                                  .num_rows = rows,
                                  .topk = p->topk,
                                  .contract = p->contract,
                                  .keys = part_keys,
                                  .topk_idx = got,
                                  .merged_keys = got_keys};
  if (m3idx_merge(ctx, &merge)) ck_abort_msg("merge: %s", m3idx_message(ctx));
  ck_assert_mem_eq(want, got, each * sizeof *got);
  ck_assert_mem_eq(want_keys, got_keys, each * sizeof *got_keys);
}

static void make_problem(problem *p, int contract, int64_t topk, uint64_t *seed) {
  p->contract = contract_of(contract);
  p->topk = topk;
  p->init_blocks = next_random(seed) % 4;
  p->local_blocks = next_random(seed) % 4;
  fill_scores(p->scores, LINES * WIDTH, seed);
  for (int t = 0; t < ROWS; t++) p->num_blocks[t] = (int32_t)(next_random(seed) % (WIDTH + 1));
  p->num_blocks[contract % ROWS] = contract % 2 ? WIDTH : contract / 2 % 3; /* a full row, or nearly none */
}

static const int64_t topks[] = {1, 16, 128};
enum { CONTRACTS = 32, TOPKS = 3 };

/* Shards cut the columns for all rows alike, wherever a row ends: sorted random cuts, so some are empty. */
START_TEST(shards) {
  static problem p;
  uint64_t seed = (uint64_t)_i + 1;
  make_problem(&p, _i % CONTRACTS, topks[_i / CONTRACTS], &seed);
  for (int count = 1; count <= MAX_PARTS; count++) {
    m3idx_range parts[MAX_PARTS];
    int32_t at = 0;
    for (int i = 0; i < count; i++) {
      const int32_t room = WIDTH - at;
      int32_t step = (int32_t)(next_random(&seed) % (uint32_t)(2 * room / (count - i) + 1));
      if (next_random(&seed) % 4 == 0) step = 0;
      if (i == count - 1) step = room;
      parts[i] = (m3idx_range){at, at + step};
      at += step;
    }
    parts_equal_whole(&p, 0, ROWS, parts, count);
  }
}
END_TEST

/* Chunks cut each row's own N, as the decode selector does (S8.2), and in equal strides (S8.4). */
START_TEST(chunks) {
  static problem p;
  uint64_t seed = (uint64_t)_i + 1000;
  make_problem(&p, _i % CONTRACTS, topks[_i / CONTRACTS], &seed);
  for (int64_t row = 0; row < ROWS; row++)
    for (int count = 1; count <= MAX_PARTS; count++) {
      m3idx_range dealt[MAX_PARTS], strided[MAX_PARTS];
      for (int c = 0; c < count; c++) {
        dealt[c] = m3idx_topk_chunk(p.num_blocks[row], count, c);
        strided[c] = m3idx_score_part(p.num_blocks[row], count, c);
      }
      parts_equal_whole(&p, row, 1, dealt, count);
      parts_equal_whole(&p, row, 1, strided, count);
    }
}
END_TEST

/* The parts' keys may arrive in any order. */
START_TEST(merge_ignores_order) {
  static problem p;
  uint64_t seed = (uint64_t)_i + 2000;
  m3idx_range parts[MAX_PARTS];
  make_problem(&p, _i, 16, &seed);
  for (int c = 0; c < MAX_PARTS; c++) parts[c] = m3idx_score_part(WIDTH, MAX_PARTS, (c * 5 + 3) % MAX_PARTS);
  parts_equal_whole(&p, 0, ROWS, parts, MAX_PARTS);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("shards");
  TCase *tcase = tcase_create("parts");
  tcase_set_timeout(tcase, 60);
  tcase_add_unchecked_fixture(tcase, open_ref, close_ref);
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, shards, 0, CONTRACTS * TOPKS);
  tcase_add_loop_test(tcase, chunks, 0, CONTRACTS * TOPKS);
  tcase_add_loop_test(tcase, merge_ignores_order, 0, CONTRACTS);
  return unit_run(suite);
}
