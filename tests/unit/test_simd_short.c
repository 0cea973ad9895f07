/* SPDX-License-Identifier: Apache-2.0
 *
 * The shortlist (docs/CERTIFIED-FILTER.md, "Skipping") against every score that its intervals allow: whatever it does
 * not call lost or open cannot change the K best blocks or their order (S4).
 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <stdio.h>
#include <string.h>

#include "ref_key.h"
#include "simd_short.h"
#include "unit.h"

enum { BLOCKS = 40, VALUES = 12, TRUTHS = 12 };

static uint64_t state;

static uint32_t draw(uint32_t below) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(state >> 33) % below;
}

typedef struct problem {
  int64_t topk;
  int blocks;
  uint32_t low[BLOCKS], high[BLOCKS]; /* ordered scores */
} problem;

static uint64_t key_of(uint32_t ordered, int block) { return (uint64_t)ordered << 32 | (UINT32_MAX - (uint32_t)block); }

static int block_of(uint64_t key) { return (int)(UINT32_MAX - (uint32_t)key); }

/* Scores from few values, so that intervals meet and tie; some exact, some wide, some far apart. */
static void make(problem *p) {
  const uint32_t apart = draw(3) ? 1 + draw(40) : 1, widest = draw(4);
  p->topk = 1 + draw(5);
  p->blocks = 1 + (int)draw(BLOCKS);
  for (int b = 0; b < p->blocks; b++) {
    p->low[b] = 1 + draw(VALUES) * apart + draw(apart);
    p->high[b] = p->low[b] + (draw(3) ? draw(widest + 1) : 0);
  }
}

/* The K best keys of scores truth[b]. */
static void best(const problem *p, const uint32_t *truth, uint64_t *keys) {
  ref_best list;
  ref_best_clear(&list, p->topk);
  for (int b = 0; b < p->blocks; b++) ref_best_offer(&list, key_of(truth[b], b));
  memcpy(keys, list.key, (size_t)p->topk * sizeof *keys);
}

/* 0 = lost. */
static int offer_all(const problem *p, simd_rank_fn *rank, simd_short *list, uint64_t *keys, uint32_t *high) {
  simd_short_clear(list, keys, high, p->topk);
  for (int b = 0; b < p->blocks; b++) simd_short_offer(list, key_of(p->low[b], b), p->high[b], rank);
  simd_short_sort(list, rank);
  return !simd_short_lost(list, p->topk);
}

/* Open entries take their true keys. */
static void resolve(const uint32_t *truth, const uint8_t *open, simd_short *list) {
  for (int64_t i = 0; i < list->held; i++) {
    const int block = block_of(list->key[i]);
    if (!open[i]) continue;
    list->key[i] = key_of(truth[block], block);
    list->high[i] = truth[block];
  }
  simd_short_sort(list, simd_rank_plain);
}

START_TEST(test_intervals) {
  int lost = 0, kept = 0, opened = 0, closed = 0;
  state = (uint64_t)_i + 1;
  for (int n = 0; n < 3000; n++) {
    problem p;
    uint64_t keys[SIMD_SHORT_LONGEST];
    uint32_t high[SIMD_SHORT_LONGEST], truth[BLOCKS];
    simd_short list;
    make(&p);
    if (!offer_all(&p, simd_rank_plain, &list, keys, high)) {
      lost++;
      continue;
    }
    kept++;
    for (int round = 0; round < TRUTHS; round++) {
      uint64_t want[REF_MAX_TOPK];
      uint8_t open[SIMD_SHORT_LONGEST];
      for (int b = 0; b < p.blocks; b++) {
        const uint32_t width = p.high[b] - p.low[b];
        truth[b] = round == 0 ? p.low[b] : round == 1 ? p.high[b] : p.low[b] + draw(width + 1);
      }
      best(&p, truth, want);
      offer_all(&p, simd_rank_plain, &list, keys, high);
      const int any = simd_short_open(&list, p.topk, open);
      opened += any;
      closed += !any;
      resolve(truth, open, &list);
      for (int64_t i = 0; i < p.topk; i++) {
        const uint64_t got = i < list.held ? list.key[i] : 0;
        ck_assert_msg(!got == !want[i] && (!got || block_of(got) == block_of(want[i])),
                      "seed %d problem %d round %d: place %d is block %d, not %d", _i, n, round, (int)i, block_of(got),
                      block_of(want[i]));
      }
    }
  }
  ck_assert_int_gt(lost, 50);
  ck_assert_int_gt(kept, 50);
  ck_assert_int_gt(opened, 50);
  ck_assert_int_gt(closed, 50);
}
END_TEST

/* Counting on each instruction set, for every length; keys above and below 2^63. */
START_TEST(test_rank) {
  static const struct {
    simd_rank_fn *rank;
    const char *needs;
  } all[] = {
    {simd_rank_plain, "scalar"},
#if defined(__x86_64__)
    {simd_rank_avx2, "avx2"},
    {simd_rank_avx512, "avx512"},
#endif
  };
  state = 7;
  for (size_t r = 0; r < sizeof all / sizeof *all; r++) {
    m3idx_context *ctx = NULL;
    const m3idx_options options = {.backend = "cpu"};
    setenv("M3IDX_ISA", all[r].needs, 1);
    const m3idx_status status = m3idx_open(&ctx, &options, NULL, 0);
    unsetenv("M3IDX_ISA");
    m3idx_close(ctx);
    if (status) continue;
    for (int n = 1; n <= SIMD_SHORT_LONGEST; n++) {
      uint64_t key[SIMD_SHORT_LONGEST], above[SIMD_SHORT_LONGEST + 8];
      for (int i = 0; i < n; i++) key[i] = (uint64_t)draw(4) << 62 | (uint64_t)draw(3) << 32 | (uint32_t)i;
      all[r].rank(key, n, above);
      for (int i = 0; i < n; i++) {
        uint64_t want = 0;
        for (int j = 0; j < n; j++) want += key[j] > key[i];
        ck_assert_uint_eq(want, above[i]);
      }
    }
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("simd_short");
  TCase *tcase = tcase_create("simd_short");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, test_intervals, 0, 4);
  tcase_add_test(tcase, test_rank);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
