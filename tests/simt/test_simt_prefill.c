/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill scores and fused selection under the SIMT executor, byte for byte against ref (S3, S4, S8.5), with matrix
 * steps as published and as badly as the bound allows (simt_matrix.h).
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "simt_backend.h"
#include "simt_harness.h"
#include "simt_lines.h"
#include "simt_matrix.h"

static const char *const models[] = {"plausible", "place", "up", "down", "any"};
enum { MODELS = sizeof models / sizeof *models, D = 128, B = 128 };

/* Case lines; --op prefill is understood.  units: compute units, of which the splits follow (S8.5): with --max-block 64
 * and 128 rows a split launch has min(8, 4 units / tiles) of them, with 128 or more up to 16. */
static const struct {
  const char *options;
  int units;
} lines[] = {
    /* much of it at once, and small */
    {"--q-lens 2,3,0,1 --prefix-lens 126,254,7,0 --data specials --heads 2 --max-block 5", 0},
    {"--q-lens 3,2 --prefix-lens 126,0 --data near --init 1 --local 1 --topk 2", 0},
    {"--q-lens 128 --prefix-lens 130 --max-block 64 --data normal", 0},
    /* lengths of queries, prefixes around edges of blocks and tiles */
    {"--q-lens 1 --prefix-lens 127 --data near", 0},
    {"--q-lens 63 --prefix-lens 65 --data wide --max-block 9", 0},
    {"--q-lens 64 --prefix-lens 64 --data ties --local 1 --sparse-table 1", 0},
    {"--q-lens 65 --prefix-lens 128 --data specials", 0},
    {"--q-lens 127 --prefix-lens 129 --data wide --k-dtype e4m3fn --q-dtype e4m3fnuz", 0},
    {"--q-lens 128 --prefix-lens 255 --data normal --max-block 70", 0},
    {"--q-lens 129 --prefix-lens 256 --data wide --max-block 130", 0},
    {"--q-lens 255 --prefix-lens 1 --data specials --max-block 64 --scale 0.3", 0},
    {"--q-lens 256 --data ties --topk 2 --init 1 --local 1", 0},
    {"--q-lens 257 --prefix-lens 383 --data normal --k-dtype e5m2 --max-block 64", 1},
    /* splits: 16 of 17 blocks, of 3 blocks, of 33; 8 of 9; 4 of 7, of 6; 2 of 5; 1 */
    {"--q-lens 128 --prefix-lens 2040 --max-block 128 --data normal", 0},
    {"--q-lens 130 --prefix-lens 200 --max-block 200 --data wide", 0},
    {"--q-lens 128 --prefix-lens 1020 --max-block 64 --data ties", 0},
    {"--q-lens 128 --prefix-lens 760 --max-block 64 --data normal", 1},
    {"--q-lens 128 --prefix-lens 639 --max-block 64 --data wide", 1},
    {"--q-lens 128 --prefix-lens 500 --max-block 64 --data normal --heads 2", 1},
    {"--q-lens 200,128 --prefix-lens 1,120 --max-block 64 --data wide --heads 2", 1},
    /* ragged batches, heads, pages in another order and shared */
    {"--q-lens 0,3,130,1,64 --prefix-lens 0,126,5,600,128 --heads 2 --data specials", 0},
    {"--q-lens 5,3 --prefix-lens 125,0 --heads 4 --data near --contract aiter --sparse-table 1", 0},
    {"--q-lens 20,20,20 --prefix-lens 300,300,300 --num-pages 4 --data normal --contract sglang", 0},
    {"--q-lens 31 --prefix-lens 900 --num-pages 50 --data ties --topk 3 --contract atom --local 1", 0},
    {"--q-lens 10 --prefix-lens 250 --data specials --heads 2 --q-dtype e5m2fnuz --k-dtype bf16 --scale 1e30", 0},
    {"--q-lens 10 --prefix-lens 250 --data wide --q-dtype bf16 --k-dtype e5m2fnuz", 0},
    /* what the matrix kernels do not take */
    {"--q-lens 20,3 --prefix-lens 200,0 --data near --q-dtype f16 --k-dtype f16", 0},
    {"--q-lens 7 --prefix-lens 140 --data wide --q-dtype f32 --k-dtype bf16 --heads 2", 0},
    {"--q-lens 7 --prefix-lens 140 --data specials --head-dim 64", 0},
    {"--q-lens 40 --prefix-lens 70 --data near --block-size 32 --topk 3", 0},
    /* selection of long rows: more contenders than the first selector lists, and the second; K past the first's; rows
     * of which some blocks are to be evaluated; forced blocks that tie at the K-th place */
    {"--q-lens 1 --prefix-lens 8500 --num-pages 1 --max-block 67 --data normal --topk 5 --local 1", 0},
    {"--q-lens 1 --prefix-lens 25300 --num-pages 2 --max-block 200 --data near --topk 3 --contract atom", 0},
    {"--q-lens 3 --prefix-lens 2900 --max-block 23 --data near --topk 20 --init 22 --contract aiter", 0},
    {"--q-lens 2 --prefix-lens 3000 --max-block 24 --data near --topk 16 --local 1", 0},
    {"--q-lens 9 --prefix-lens 5000 --max-block 40 --data normal --topk 7 --init 2", 0},
    {"--q-lens 3 --prefix-lens 2500 --max-block 20 --data specials --topk 9 --contract sglang", 0},
    /* full */
    {"--q-lens 128 --prefix-lens 4100 --max-block 256 --data near --heads 2", 0},
    {"--q-lens 300,1,129 --prefix-lens 1000,2000,0 --max-block 70 --data specials --heads 4 --local 1", 0},
    {"--q-lens 257 --prefix-lens 3000 --data wide --max-block 129 --topk 5", 3},
    {"--q-lens 128,128,128,128 --prefix-lens 0,1,127,128 --data ties --heads 2 --max-block 64", 5},
    {"--q-lens 512 --data near --k-dtype e4m3fnuz --q-dtype e4m3fnuz --max-block 64", 2},
    {"--q-lens 600 --prefix-lens 77 --data normal --sparse-table 1 --local 1 --contract flashinfer", 0},
    {"--q-lens 100 --prefix-lens 333 --data wide --q-dtype f32 --k-dtype f32 --heads 3", 0},
};
enum { LINES = sizeof lines / sizeof *lines, QUICK_LINES = 36 };

/* Quickly: one machine a line, as published and as badly as may be. */
START_TEST(prefill_line) {
  if (!simt_full() && _i >= QUICK_LINES) return;
  char line[1024], note[64];
  snprintf(line, sizeof line, "--op prefill %s --seed %d", lines[_i].options, _i);
  simt_backend_units(lines[_i].units);
  for (int m = 0; m < MODELS; m++) {
    if (!simt_full() && m != 0 && m != 1 + _i % (MODELS - 1)) continue;
    ck_assert(simt_matrix_named(models[m], simt_matrix_current()));
    snprintf(note, sizeof note, ", %s", models[m]);
    simt_check_line(line, simt_full() ? NULL : simt_archs[_i % SIMT_ARCHS], note);
  }
  simt_matrix_named("plausible", simt_matrix_current());
  simt_backend_units(0);
}
END_TEST

static uint16_t bf16_of(float x) { /* of a number that bf16 holds */
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(bits >> 16);
}

/* One request scored by ref and by every machine under every model: scores and ids with gaps between rows, which keep
 * their poison.  q [rows][heads][D], keys bf16. */
typedef struct problem {
  const char *what;
  const uint16_t *q, *keys;
  int64_t heads, rows, pages, page_stride, max_block;
  const int32_t *table;
  int32_t prefix;
} problem;
enum { GAP = 3, TOPK = 4 };

static void run_problem(const problem *p, const char *arch, float *score, int32_t *ids) {
  const int32_t cu[2] = {0, (int32_t)p->rows}, seq_len = p->prefix + (int32_t)p->rows;
  const m3idx_batch batch = {.mode = M3IDX_PREFILL,
                             .num_requests = 1,
                             .num_rows = p->rows,
                             .max_block = p->max_block,
                             .block_size = B,
                             .cu_seqlens = cu,
                             .seq_lens = &seq_len,
                             .prefix_lens = &p->prefix};
  const m3idx_tensor q = {.data = (void *)(uintptr_t)p->q, .dtype = M3IDX_BF16, .shape = {p->rows, p->heads, D}};
  const m3idx_tensor keys = {.data = (void *)(uintptr_t)p->keys,
                             .dtype = M3IDX_BF16,
                             .shape = {p->pages, B, D},
                             .stride = {p->page_stride, D, 1}};
  const m3idx_score_args score_args = {.batch = &batch,
                                       .q = q,
                                       .index_k = keys,
                                       .block_table = p->table,
                                       .score = score,
                                       .score_stride_row = p->max_block + GAP,
                                       .score_stride_head = p->rows * (p->max_block + GAP) + GAP};
  const m3idx_topk_args topk_args = {.batch = &batch,
                                     .q = q,
                                     .index_k = keys,
                                     .block_table = p->table,
                                     .topk = TOPK,
                                     .topk_idx = ids,
                                     .topk_stride_row = TOPK + GAP,
                                     .topk_stride_head = p->rows * (TOPK + GAP) + GAP};
  m3idx_context *ctx = simt_open(arch);
  ck_assert_msg(m3idx_score(ctx, &score_args) == M3IDX_OK, "%s, %s: %s", p->what, arch, m3idx_message(ctx));
  ck_assert_msg(m3idx_topk(ctx, &topk_args) == M3IDX_OK, "%s, %s: %s", p->what, arch, m3idx_message(ctx));
  simt_close(ctx);
}

static void check_problem(const problem *p) {
  const size_t score_bytes = (size_t)(p->heads * (p->rows * (p->max_block + GAP) + GAP)) * sizeof(float);
  const size_t id_bytes = (size_t)(p->heads * (p->rows * (TOPK + GAP) + GAP)) * sizeof(int32_t);
  float *want_score = simt_buffer(score_bytes);
  int32_t *want_ids = simt_buffer(id_bytes);
  run_problem(p, "ref", want_score, want_ids);
  for (int a = 0; a < SIMT_ARCHS; a++)
    for (int m = 0; m < (simt_full() ? MODELS : 2); m++) {
      char run[128];
      snprintf(run, sizeof run, "%s, %s: %s", simt_archs[a], models[m], p->what);
      float *score = simt_buffer(score_bytes);
      int32_t *ids = simt_buffer(id_bytes);
      ck_assert(simt_matrix_named(models[m], simt_matrix_current()));
      run_problem(p, simt_archs[a], score, ids);
      ck_assert(simt_same("score", run, want_score, score, score_bytes, 4));
      ck_assert(simt_same("ids", run, want_ids, ids, id_bytes, 4));
      ck_assert(simt_buffer_free(score, score_bytes));
      ck_assert(simt_buffer_free(ids, id_bytes));
    }
  simt_matrix_named("plausible", simt_matrix_current());
  ck_assert(simt_buffer_free(want_score, score_bytes));
  ck_assert(simt_buffer_free(want_ids, id_bytes));
}

/* Each key is larger than those before it, so that a row's score of its last block is that of the last key it sees: one
 * too many or too few cannot hide. */
START_TEST(growing_keys) {
  enum { PAGES = 2 };
  const int prefix = (int[]){126, 127, 0, 62, 190}[_i];
  static uint16_t keys[PAGES * B * D], q[PAGES * B * 2 * D];
  const int rows = (int[]){3, 66, 129, 65, 65}[_i], heads = _i == 1 ? 2 : 1;
  for (int i = 0; i < rows * heads * D; i++) q[i] = bf16_of(i / D % heads ? 2.0f : 1.0f);
  for (int i = 0; i < PAGES * B * D; i++) keys[i] = bf16_of((float)(1 + (i / D + B) % (PAGES * B)));
  const int32_t table[PAGES + 1] = {1, 0, -1};
  check_problem(&(problem){"growing keys", q, keys, heads, rows, PAGES, B * D, PAGES + 1, table, prefix});
}
END_TEST

/* Keys whose large terms cancel, up to 2^limit beside a rest of a few units: the filter says little or nothing of them,
 * and at the last limit a binary64 sum is off by more than the rest. */
START_TEST(cancelling_keys) {
  enum { PAGES = 2, HEADS = 2, ROWS = 3 };
  const int limit = (int[]){4, 12, 30, 60}[_i];
  static uint16_t keys[PAGES * B * D], q[ROWS * HEADS * D];
  simt_rng rng = {(uint64_t)_i + 1};
  for (int i = 0; i < ROWS * HEADS * D; i++)
    q[i] = bf16_of(i / D % 2 ? -1.0f : i / D % 3 ? 1.0f : ldexpf((float)(simt_below(&rng, 255) - 127), -5));
  for (int t = 0; t < PAGES * B; t++) {
    uint16_t *key = keys + t * D;
    memset(key, 0, D * sizeof *key);
    for (int pair = 0; pair < 12; pair++) {
      const int at = (int)simt_below(&rng, D), to = (int)simt_below(&rng, D);
      const float x = ldexpf((float)(128 + simt_below(&rng, 128)), (int)simt_below(&rng, limit) - 7);
      if (key[at] || key[to] || at == to) continue; /* a pair that lost an element would drown the rest */
      key[at] = bf16_of(x);
      key[to] = bf16_of(-x);
    }
    for (int d = 0; d < D; d++)
      if (!key[d] && !simt_below(&rng, 8)) key[d] = bf16_of((float)(simt_below(&rng, 7) - 3));
  }
  const int32_t table[PAGES + 2] = {1, 0, -1, -1};
  check_problem(
      &(problem){"cancelling keys", q, keys, HEADS, ROWS, PAGES, B * D, PAGES + 2, table, PAGES * B - ROWS - 3});
}
END_TEST

/* Four tokens of each block are one key but for the last places of a few elements, far above the other tokens: a filter
 * that trusted itself further than it may would take the wrong one. */
START_TEST(close_tokens) {
  enum { PAGES = 2, ROWS = 40 };
  static uint16_t keys[PAGES * B * D], q[ROWS * D];
  simt_rng rng = {(uint64_t)_i + 11};
  for (int i = 0; i < ROWS * D; i++) q[i] = bf16_of((float)(129 + simt_below(&rng, 127)) / 128);
  for (int page = 0; page < PAGES; page++) {
    uint16_t base[D];
    for (int d = 0; d < D; d++) base[d] = bf16_of((float)(129 + simt_below(&rng, 100)));
    for (int t = 0; t < B; t++) {
      uint16_t *key = keys + (page * B + t) * D;
      for (int d = 0; d < D; d++) key[d] = bf16_of((float)(simt_below(&rng, 128) - 64));
      if (t % 33 != 5 + 7 * page) continue; /* at different places of a tile */
      memcpy(key, base, sizeof base);
      /* a last place up here and one down there: dots differ by the difference of two q_d, a multiple of 2^-7 */
      key[simt_below(&rng, D)] += 1;
      key[simt_below(&rng, D)] -= 1;
    }
  }
  const int32_t table[PAGES + 1] = {1, 0, -1};
  check_problem(&(problem){"close tokens", q, keys, 1, ROWS, PAGES, B * D, PAGES + 1, table, PAGES * B - ROWS});
}
END_TEST

/* Finite numbers whose dots are past what the filter speaks of, in more blocks than are selected. */
START_TEST(huge_numbers) {
  enum { PAGES = 6, ROWS = 3 };
  static uint16_t keys[PAGES * B * D], q[ROWS * D];
  simt_rng rng = {29};
  for (int i = 0; i < ROWS * D; i++) q[i] = bf16_of(ldexpf((float)(simt_below(&rng, 255) - 127), 46));
  for (int i = 0; i < PAGES * B * D; i++) keys[i] = bf16_of(ldexpf((float)(simt_below(&rng, 255) - 127), 46));
  const int32_t table[PAGES] = {3, 1, 5, 0, 2, 4};
  check_problem(&(problem){"huge numbers", q, keys, 1, ROWS, PAGES, B * D, PAGES, table, PAGES * B - ROWS});
}
END_TEST

/* More blocks than any list holds stand beside the K-th place, the first block far above them, and those of the second
 * tile of columns by less than the bound above those of the first. */
START_TEST(crowd_below_the_best) {
  enum { PAGES = 3, BLOCKS = 200, TILE = 128 };
  static uint16_t keys[PAGES * B * D], q[D];
  q[0] = q[1] = bf16_of(1);
  for (int i = 0; i < PAGES * B; i++) keys[i * D] = bf16_of(i < B ? 200.0f : 100.0f);
  for (int i = 2 * B; i < PAGES * B; i++) keys[i * D + 1] = bf16_of(0x1p-14f);
  int32_t table[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) table[i] = i == 0 ? 0 : i < TILE ? 1 : 2;
  check_problem(&(problem){"crowd below the best", q, keys, 1, 1, PAGES, B * D, BLOCKS, table, BLOCKS * B - 1});
}
END_TEST

/* Pages of 1,077,120 bytes, 1993 and 1994 live: byte offsets past 2^31. */
START_TEST(page_far) {
  enum { PAGES = 1995, ROWS = 5 };
  const int64_t stride = 1077120 / 2;
  const size_t bytes = (size_t)(PAGES * stride) * 2;
  uint16_t *keys = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ck_assert(keys != MAP_FAILED);
  static uint16_t q[ROWS * D];
  simt_rng rng = {3};
  for (int i = 0; i < ROWS * D; i++) q[i] = bf16_of((float)(simt_below(&rng, 16) - 8));
  for (int page = 1993; page < PAGES; page++)
    for (int i = 0; i < B * D; i++) keys[page * stride + i] = bf16_of((float)(simt_below(&rng, 255) - 127));
  const int32_t table[4] = {1993, 1994, -1, -1};
  check_problem(&(problem){"far pages", q, keys, 1, ROWS, PAGES, stride, 4, table, 200 - ROWS});
  munmap(keys, bytes);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("simt_prefill");
  TCase *tcase = tcase_create("prefill");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, growing_keys, 0, 5);
  tcase_add_loop_test(tcase, close_tokens, 0, 3);
  tcase_add_loop_test(tcase, cancelling_keys, 0, 4);
  tcase_add_test(tcase, huge_numbers);
  tcase_add_test(tcase, crowd_below_the_best);
  tcase_add_test(tcase, page_far);
  tcase_add_loop_test(tcase, prefill_line, 0, LINES);
  suite_add_tcase(suite, tcase);
  return simt_run(suite);
}
