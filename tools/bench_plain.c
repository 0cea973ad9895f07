/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers in plain C: the loop that a first port writes (f32 dots, f32 maxima, a full sort), a read of every page, and
 * the maxima that follow another library's product.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* Let peers use what the machine has, as their libraries would. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_THIS_MACHINE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_THIS_MACHINE
#endif

enum { DIM = 128, WIDE = 16 };

typedef struct ranked {
  float score;
  int32_t id;
} ranked;

static int by_score(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->score != y->score) return x->score < y->score ? 1 : -1;
  return x->id < y->id ? -1 : 1;
}

static float block_score(const float *q, const float *k, int64_t tokens) {
  float most = -INFINITY;
  for (int64_t t = 0; t < tokens; t++, k += DIM) {
    float dot = 0;
    for (int d = 0; d < DIM; d++) dot += q[d] * k[d];
    if (dot > most) most = dot;
  }
  return most;
}

static int run_plain(bench_contender *c, bench_world *w) {
  const bench_shape *s = w->shape;
  ranked *all = malloc((size_t)s->blocks * sizeof *all);
  (void)c;
  if (!all) return -1;
  for (int64_t lane = 0; lane < w->lanes; lane++) {
    const int64_t see = w->keys - s->rows + lane / s->heads % s->rows + 1, request = lane / s->heads / s->rows;
    const int64_t blocks = (see + BENCH_PAGE - 1) / BENCH_PAGE;
    for (int64_t b = 0; b < blocks; b++) {
      const int64_t page = w->table[request * s->blocks + b], left = see - b * BENCH_PAGE;
      all[b].score =
          block_score(w->qf + lane * DIM, w->kf + page * BENCH_PAGE * DIM, left < BENCH_PAGE ? left : BENCH_PAGE);
      all[b].id = (int32_t)b;
    }
    qsort(all, (size_t)blocks, sizeof *all, by_score);
    for (int64_t i = 0; i < BENCH_TOPK; i++) w->ids[lane * BENCH_TOPK + i] = i < blocks ? all[i].id : -1;
  }
  free(all);
  return 0;
}

FOR_THIS_MACHINE
static uint64_t read_words(const uint64_t *at, int64_t words) {
  uint64_t sum[64] = {0}, all = 0;
  for (int64_t i = 0; i < words; i += 64)
    for (int j = 0; j < 64; j++) sum[j] += at[i + j];
  for (int j = 0; j < 64; j++) all += sum[j];
  return all;
}

/* A page is what a thread reads at a time, so that all end together. */
static int run_read(bench_contender *c, bench_world *w) {
  const int64_t words = BENCH_PAGE * DIM * 2 / 8;
  uint64_t all = 0;
  (void)c; /* where there is no OpenMP */
#pragma omp parallel for num_threads(c->threads) reduction(+ : all)
  for (int64_t page = 0; page < w->pages; page++)
    all += read_words((const uint64_t *)w->index_k.data + page * words, words);
  w->sink += all;
  return 0;
}

void bench_plain_begin(bench_contender *c, bench_world *w) {
  (void)w;
  if (c->entry->kind == BENCH_READ)
    c->run = run_read;
  else if (c->threads == 1)
    c->run = run_plain;
  else
    snprintf(c->absent, sizeof c->absent, "the plain loop has one thread");
}

FOR_THIS_MACHINE
static void lane_maxima(const float *product, int64_t pages, float *most) {
  for (int64_t p = 0; p < pages; p++, product += BENCH_PAGE) {
    float m[WIDE];
    memcpy(m, product, sizeof m);
    for (int t = WIDE; t < BENCH_PAGE; t += WIDE)
      for (int j = 0; j < WIDE; j++) m[j] = product[t + j] > m[j] ? product[t + j] : m[j];
    for (int j = 1; j < WIDE; j++) m[0] = m[j] > m[0] ? m[j] : m[0];
    most[p] = m[0];
  }
}

void bench_maxima(const float *product, int64_t lanes, int64_t pages, float *most, int64_t stride, int threads) {
  (void)threads; /* where there is no OpenMP */
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t lane = 0; lane < lanes; lane++)
    lane_maxima(product + lane * pages * BENCH_PAGE, pages, most + lane * stride);
}
