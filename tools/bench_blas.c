/* SPDX-License-Identifier: Apache-2.0
 *
 * Peer: OpenBLAS sgemm on f32 copies, alone and with each block's maximum, in chunks of pages whose products stay in
 * the cache.  Found by the dynamic loader; the program does not link it.
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112, DIM = 128 };

typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                      const float *b, int ldb, float beta, float *c, int ldc);
typedef void threads_fn(int threads);
typedef const char *name_fn(void);
typedef void kernels_fn(void);

/* One library for the whole program, never closed: its threads would outlive it. */
typedef struct blas {
  sgemm_fn *sgemm;
  threads_fn *set_threads;
  name_fn *core;
  kernels_fn *forget, *choose; /* the kernels of a processor, by OPENBLAS_CORETYPE */
  int avx2;                    /* whether those of an AVX2 processor are chosen */
} blas;
static blas found;

/* POSIX lets a pointer from dlsym be a function's; ISO C has no cast for it. */
static void symbol(void *library, const char *name, void *function) {
  void *at = dlsym(library, name);
  memcpy(function, &at, sizeof at);
}

static void choose_kernels(int avx2) {
  if (found.avx2 == avx2) return;
  found.avx2 = avx2;
  if (avx2)
    setenv("OPENBLAS_CORETYPE", "Haswell", 1);
  else
    unsetenv("OPENBLAS_CORETYPE");
  found.forget();
  found.choose();
}

static int run(bench_contender *c, bench_world *w) {
  const bench_shape *s = w->shape;
  choose_kernels(c->entry->isa != NULL);
  const int lanes = (int)(s->rows * s->heads);
  found.set_threads(c->threads);
  for (int64_t p = 0; p < s->blocks; p += BENCH_CHUNK_PAGES) {
    const int64_t pages = p + BENCH_CHUNK_PAGES < s->blocks ? BENCH_CHUNK_PAGES : s->blocks - p;
    const int n = (int)pages * BENCH_PAGE;
    found.sgemm(ROW_MAJOR, NO_TRANS, TRANS, lanes, n, DIM, 1.0f, w->qf, DIM, w->kf + p * BENCH_PAGE * DIM, DIM, 0.0f,
                w->product, n);
    if (c->entry->kind == BENCH_SGEMM_MAX) bench_maxima(w->product, lanes, pages, w->score + p, s->blocks, c->threads);
  }
  return 0;
}

void bench_blas_begin(bench_contender *c, bench_world *w) {
  name_fn *config = NULL;
  void *library = dlopen("libopenblas.so.0", RTLD_NOW);
  (void)w;
  if (!library) library = dlopen("libopenblas.so", RTLD_NOW);
  if (!library) {
    snprintf(c->absent, sizeof c->absent, "no libopenblas here: %.200s", dlerror());
    return;
  }
  symbol(library, "cblas_sgemm", &found.sgemm);
  symbol(library, "openblas_set_num_threads", &found.set_threads);
  symbol(library, "openblas_get_corename", &found.core);
  symbol(library, "gotoblas_dynamic_quit", &found.forget);
  symbol(library, "gotoblas_dynamic_init", &found.choose);
  symbol(library, "openblas_get_config", &config);
  if (!found.sgemm || !found.set_threads) {
    snprintf(c->absent, sizeof c->absent, "this libopenblas lacks cblas_sgemm or openblas_set_num_threads");
    return;
  }
  if (c->entry->isa && (!found.core || !found.forget || !found.choose)) {
    snprintf(c->absent, sizeof c->absent, "this libopenblas has the kernels of one processor");
    return;
  }
  if (found.choose) choose_kernels(c->entry->isa != NULL);
  const char *name = config ? config() : "OpenBLAS";
  snprintf(c->detail, sizeof c->detail, "%.15s %.20s", name, found.core ? found.core() : "");
  c->run = run;
}
