/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode scores, fused selection and cache insertion under the SIMT executor, byte for byte against ref (S3, S5, S6).
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "simt_harness.h"
#include "simt_lines.h"
#include "simt_matrix.h"

/* Case lines; --op decode is understood.  The second half runs with M3IDX_SIMT_FULL=1 only. */
static const char *const lines[] = {
    "--seq-lens 7,129,1025 --local 1",
    "--seq-lens 130 --decode-query-len 4 --heads 2 --data specials --init 1 --local 1",
    "--seq-lens 0,2,300,0 --decode-query-len 4 --data ties --local 1 --sparse-table 1",
    "--seq-lens 256,255,257 --data near --topk 3",
    "--seq-lens 513 --heads 4 --decode-query-len 3 --data wide --scale 0.3",
    "--seq-lens 600,0x511 --k-dtype f16 --data near --topk 3",
    "--seq-lens 260 --k-dtype f16 --q-dtype f16 --data near --heads 2",
    "--seq-lens 260 --k-dtype f16 --q-dtype bf16 --data wide --decode-query-len 2",
    "--seq-lens 260,40 --k-dtype e4m3fn --q-dtype bf16 --data specials --heads 2",
    "--seq-lens 260,40 --k-dtype e4m3fnuz --q-dtype e4m3fnuz --data specials",
    "--seq-lens 260,40 --k-dtype e5m2 --q-dtype f32 --data specials",
    "--seq-lens 260,40 --k-dtype e5m2fnuz --q-dtype e5m2 --data specials",
    "--seq-lens 260 --k-dtype e4m3fn --q-dtype e4m3fn --data normal --heads 4",
    "--seq-lens 260 --k-dtype e5m2 --q-dtype e5m2fnuz --data wide",
    "--seq-lens 140 --k-dtype f32 --q-dtype f32 --data wide --head-dim 64",
    "--seq-lens 140 --k-dtype f32 --q-dtype bf16 --data near --head-dim 256 --heads 5",
    "--seq-lens 140 --head-dim 16 --data normal --decode-query-len 2",
    "--seq-lens 140,17 --head-dim 48 --data wide --block-size 64",
    "--seq-lens 70,16,1 --head-dim 112 --data specials --block-size 16 --decode-query-len 2",
    "--seq-lens 70,33 --data near --block-size 32 --k-dtype e4m3fn",
    "--seq-lens 1,2,3,4,5,6,7,8,9,10,11,300 --data normal --num-pages 5",
    "--seq-lens 1,2,3,4,5,6,7,8,9,10,300 --data normal --max-block 2000 --sparse-table 1 --contract atom",
    "--seq-lens 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,300 --data ties --num-pages 5 --contract sglang",
    /* six blocks a program, so that a wave takes a second one */
    "--seq-lens 96,1x511 --block-size 16 --head-dim 16 --k-dtype f16 --q-dtype f16 --data normal",
    "--seq-lens 0x256,700,0x255 --data near --topk 3",
    /* more blocks than the balanced map has programs, odd numbers of them */
    "--seq-lens 40,6500,6300,1x6 --block-size 16 --data normal",
    "--seq-lens 384 --heads 5 --decode-query-len 4 --data near --scale 1e30",
    /* full */
    "--seq-lens 8192 --decode-query-len 4 --data near --local 1",
    "--seq-lens 140000 --data normal --num-pages 40 --sparse-table 1",
    "--seq-lens 3000,40,0,9000 --decode-query-len 2 --heads 4 --data ties --init 2 --local 3",
    "--seq-lens 400 --heads 33 --decode-query-len 2 --data specials",
    "--seq-lens 300,300,300,300,300,300,300,300,300 --data wide --heads 2 --q-dtype f16",
    "--seq-lens 1000 --k-dtype f16 --q-dtype f32 --data near --heads 3 --decode-query-len 5",
    "--seq-lens 1000 --k-dtype f32 --q-dtype e4m3fn --data specials --heads 3 --head-dim 240",
    "--seq-lens 1000 --block-size 64 --data near --heads 2 --topk 128 --contract flashinfer",
};
enum { LINES = sizeof lines / sizeof *lines, QUICK_LINES = 27 };

START_TEST(decode_line) {
  if (!simt_full() && _i >= QUICK_LINES) return;
  char line[1024];
  snprintf(line, sizeof line, "--op decode %s --seed %d", lines[_i], _i);
  simt_check_line(line, simt_full() ? NULL : simt_archs[_i % SIMT_ARCHS], "");
}
END_TEST

static uint16_t bf16_of(float x) { /* of a number that bf16 holds */
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(bits >> 16);
}

/* One decode request scored by ref and by every machine; q and keys bf16, D = 128, strides of keys as given. */
static void check_scores(const char *what, const uint16_t *q, int64_t heads, const uint16_t *keys, int64_t pages,
                         int64_t page_stride, const int32_t *table, int32_t seq_len) {
  enum { D = 128 };
  const int64_t blocks = (seq_len + 127) / 128;
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = 1,
                             .num_rows = 1,
                             .max_block = blocks + 2,
                             .block_size = 128,
                             .decode_query_len = 1,
                             .seq_lens = &seq_len};
  const size_t bytes = (size_t)(heads * batch.max_block) * sizeof(float);
  float *score[1 + SIMT_ARCHS];
  for (int a = 0; a <= SIMT_ARCHS; a++) {
    const char *arch = a ? simt_archs[a - 1] : "ref";
    m3idx_context *ctx = simt_open(arch);
    score[a] = simt_buffer(bytes);
    const m3idx_score_args args = {.batch = &batch,
                                   .q = {.data = (void *)(uintptr_t)q, .dtype = M3IDX_BF16, .shape = {1, heads, D}},
                                   .index_k = {.data = (void *)(uintptr_t)keys,
                                               .dtype = M3IDX_BF16,
                                               .shape = {pages, 128, D},
                                               .stride = {page_stride, D, 1}},
                                   .block_table = table,
                                   .score = score[a]};
    ck_assert_msg(m3idx_score(ctx, &args) == M3IDX_OK, "%s: %s", what, m3idx_message(ctx));
    ck_assert(simt_same(what, arch, score[0], score[a], bytes, 4));
    simt_close(ctx);
  }
  for (int a = 0; a <= SIMT_ARCHS; a++) ck_assert(simt_buffer_free(score[a], bytes));
}

/* Keys whose large terms cancel: 2^e x - 2^e x at random places, e up to a limit of the loop, and a small rest.
 * A binary32 sum of them says nothing, a binary64 sum little or nothing. */
START_TEST(cancelling_keys) {
  enum { PAGES = 3, HEADS = 4, D = 128 };
  const int limit = (int[]){10, 30, 60, 110}[_i];
  static uint16_t keys[PAGES * 128 * D], q[HEADS * D];
  simt_rng rng = {(uint64_t)_i + 1};
  for (int i = 0; i < HEADS * D; i++) q[i] = bf16_of(i / D % 2 ? -1.0f : 1.0f);
  for (int t = 0; t < PAGES * 128; t++) {
    uint16_t *key = keys + t * D;
    const bool calm = simt_below(&rng, 4) == 0;
    for (int d = 0; d < D; d++) key[d] = 0;
    for (int pair = 0; pair < 24; pair++) {
      const float x = ldexpf((float)(128 + simt_below(&rng, 128)), calm ? -7 : (int)simt_below(&rng, limit) - 7);
      const int at = (int)simt_below(&rng, D), to = (int)simt_below(&rng, D);
      if (key[at] || key[to] || at == to) continue;
      key[at] = bf16_of(x);
      key[to] = bf16_of(-x);
    }
    for (int rest = 0; rest < 6; rest++) {
      const int at = (int)simt_below(&rng, D);
      if (!key[at]) key[at] = bf16_of(ldexpf((float)(simt_below(&rng, 255) - 127), -7 - 9 * rest));
    }
  }
  const int32_t table[PAGES + 2] = {2, 0, 1, -1, -1};
  check_scores("cancelling keys", q, HEADS, keys, PAGES, 128 * D, table, PAGES * 128 - 5);
}
END_TEST

/* The large terms of a key cancel and stand in one place, the same for a page's keys and in other lanes for another
 * page; the elements beside them, which a sum loses with them, decide.  Whoever takes the largest element from some
 * lanes or from even elements only, or from some tokens where only a quarter have such terms, believes sums that say
 * nothing. */
START_TEST(cancelling_in_one_place) {
  enum { PAGES = 4, D = 128 };
  static uint16_t keys[PAGES * 128 * D], q[D];
  simt_rng rng = {17 + (uint64_t)_i};
  for (int d = 0; d < D; d++) q[d] = bf16_of(1.0f);
  for (int t = 0; t < PAGES * 128; t++) {
    uint16_t *key = keys + t * D, *large = key + (int[]){0, 8, 16, 32}[t / 128];
    const float x = ldexpf((float)(128 + simt_below(&rng, 128)), 20 + (int)simt_below(&rng, 12));
    for (int d = 0; d < D; d++) key[d] = bf16_of((float)(simt_below(&rng, 255) - 127) * 0x1p-7f);
    if (_i && t / 32 != t / 128 * 5) continue; /* quarter n of page n */
    for (int d = 0; d < 4; d += 2) large[d] = bf16_of((float)(simt_below(&rng, 255) - 127) * 0x1p-2f);
    large[1] = bf16_of(x);
    large[3] = bf16_of(-x);
  }
  const int32_t table[PAGES + 2] = {2, 0, 3, 1, -1, -1};
  check_scores("cancelling in one place", q, 1, keys, PAGES, 128 * D, table, PAGES * 128 - 5);
}
END_TEST

/* Products of 2^127 that cancel: the bound on matrix steps holds for sums below 2^126 only, and a model that errs as
 * far as it may says 0 beyond.  Keys with such products have the largest dots, of the others each has a right sum. */
START_TEST(cancelling_past_the_bound) {
  enum { PAGES = 2, D = 128 };
  static uint16_t keys[PAGES * 128 * D], q[D];
  simt_matrix_model *model = simt_matrix_current();
  const simt_matrix_model before = *model;
  ck_assert(simt_matrix_named("any", model));
  simt_rng rng = {5};
  for (int d = 1; d < 4; d++) q[d] = bf16_of(0x1p63f);
  for (int t = 0; t < PAGES * 128; t++) {
    uint16_t *key = keys + t * D;
    const bool past = t % 2 == 1;
    key[1] = bf16_of(past ? 0x1p64f : 0.0f);
    key[3] = bf16_of(past ? -0x1p64f : 0.0f);
    key[2] = bf16_of(ldexpf((float)(128 + simt_below(&rng, 64) + (past ? 64 : 0)), 50));
  }
  const int32_t table[PAGES + 2] = {1, 0, -1, -1};
  check_scores("cancelling past the bound", q, 1, keys, PAGES, 128 * D, table, PAGES * 128);
  *model = before;
}
END_TEST

/* A page of 1,077,120 bytes, pages 1993 and 1994 live: byte offsets past 2^31. */
START_TEST(page_far) {
  enum { D = 128, PAGES = 1995 };
  const int64_t stride = 1077120 / 2;
  const size_t bytes = (size_t)(PAGES * stride) * 2;
  uint16_t *keys = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ck_assert(keys != MAP_FAILED);
  static uint16_t q[D];
  simt_rng rng = {3};
  for (int d = 0; d < D; d++) q[d] = bf16_of((float)(simt_below(&rng, 16) - 8));
  for (int page = 1993; page < PAGES; page++)
    for (int i = 0; i < 128 * D; i++) keys[page * stride + i] = bf16_of((float)(simt_below(&rng, 255) - 127));
  const int32_t table[4] = {1993, 1994, -1, -1};
  check_scores("far pages", q, 1, keys, PAGES, stride, table, 200);
  munmap(keys, bytes);
}
END_TEST

/* Every pattern of a 16-bit format, and f32 patterns around every fp8 number, into every format it may go to (S6). */
START_TEST(insert_formats) {
  static const m3idx_dtype from[] = {M3IDX_F32, M3IDX_F16, M3IDX_BF16, M3IDX_E4M3FN, M3IDX_E5M2FNUZ};
  enum { ROWS = 512, DIM = 128, PAGES = 40, BLOCK = 16 };
  const m3idx_dtype key = from[_i];
  const size_t key_bytes = m3idx_dtype_bytes(key);
  static uint32_t codes[ROWS * DIM];
  static unsigned char keys[ROWS * DIM * 4];
  static int64_t slots[ROWS];
  simt_rng rng = {(uint64_t)_i};
  for (uint32_t i = 0; i < ROWS * DIM; i++) {
    codes[i] = key_bytes == 4 ? (uint32_t)simt_random(&rng) : i;
    if (key_bytes == 4 && i % 2) /* near the numbers and midpoints of fp8: few fraction bits, exponents about 0 */
      codes[i] = ((uint32_t)simt_random(&rng) & 0x80f80000) + 0x34000000 + (i << 18 & 0x0f800000) + (i >> 6) % 3 - 1;
    if (key_bytes == 4) memcpy(keys + 4 * i, &codes[i], 4);
    if (key_bytes == 2) memcpy(keys + 2 * i, &(uint16_t){(uint16_t)codes[i]}, 2);
    if (key_bytes == 1) keys[i] = (unsigned char)codes[i];
  }
  for (int i = 0; i < ROWS; i++)
    slots[i] = i % 7 == 3 ? -1 : (ROWS - i) + i % 2 * 100; /* ... repeats are filtered below */
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < i; j++)
      if (slots[i] == slots[j]) slots[i] = -1;
  int pairs = 0;
  for (int to = 0; to < M3IDX_DTYPE_COUNT; to++) {
    const size_t cache_bytes = PAGES * BLOCK * (DIM + 8) * m3idx_dtype_bytes((m3idx_dtype)to);
    void *cache[1 + SIMT_ARCHS];
    for (int a = 0; a <= SIMT_ARCHS; a++) {
      m3idx_context *ctx = simt_open(a ? simt_archs[a - 1] : "ref");
      cache[a] = simt_buffer(cache_bytes);
      m3idx_cache_insert_args args = {.key = {.data = keys, .dtype = key, .shape = {1, ROWS, DIM}},
                                      .slot_mapping = slots,
                                      .cache = {.data = cache[a],
                                                .dtype = (m3idx_dtype)to,
                                                .shape = {PAGES, BLOCK, DIM},
                                                .stride = {BLOCK * (DIM + 8), DIM + 8, 1}}};
      const m3idx_status status = m3idx_cache_insert(ctx, &args);
      const bool fits = to == (int)key || (key_bytes > 1 && m3idx_dtype_bytes((m3idx_dtype)to) == 1);
      ck_assert_msg(status == (fits ? M3IDX_OK : M3IDX_UNSUPPORTED), "%s", m3idx_message(ctx));
      ck_assert(simt_same("cache", m3idx_dtype_name((m3idx_dtype)to), cache[0], cache[a], cache_bytes, 1));
      pairs += fits && a;
      simt_close(ctx);
    }
    for (int a = 0; a <= SIMT_ARCHS; a++) ck_assert(simt_buffer_free(cache[a], cache_bytes));
  }
  ck_assert_int_gt(pairs, 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("simt_score");
  TCase *tcase = tcase_create("score");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, decode_line, 0, LINES);
  tcase_add_loop_test(tcase, insert_formats, 0, 5);
  tcase_add_test(tcase, page_far);
  suite_add_tcase(suite, tcase);
  TCase *cancelling = tcase_create("cancelling");
  tcase_set_timeout(cancelling, 0);
  tcase_add_loop_test(cancelling, cancelling_keys, 0, 4);
  tcase_add_loop_test(cancelling, cancelling_in_one_place, 0, 2);
  tcase_add_test(cancelling, cancelling_past_the_bound);
  suite_add_tcase(suite, cancelling);
  return simt_run(suite);
}
