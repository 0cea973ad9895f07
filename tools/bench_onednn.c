/* SPDX-License-Identifier: Apache-2.0
 *
 * Peer: oneDNN's bf16 matmul with f32 results, then each block's maximum.  Types from oneDNN 2's header where the
 * build had it, functions from the dynamic loader; the program does not link the library.
 */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"

#ifdef M3IDX_BENCH_ONEDNN
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { DIM = 128 };

#define FUNCTIONS(_)                  \
  _(dnnl_version)                     \
  _(dnnl_engine_create)               \
  _(dnnl_engine_destroy)              \
  _(dnnl_stream_create)               \
  _(dnnl_stream_destroy)              \
  _(dnnl_stream_wait)                 \
  _(dnnl_memory_desc_init_by_strides) \
  _(dnnl_memory_create)               \
  _(dnnl_memory_destroy)              \
  _(dnnl_memory_set_data_handle)      \
  _(dnnl_matmul_desc_init)            \
  _(dnnl_primitive_desc_create)       \
  _(dnnl_primitive_desc_destroy)      \
  _(dnnl_primitive_desc_query)        \
  _(dnnl_primitive_create)            \
  _(dnnl_primitive_destroy)           \
  _(dnnl_primitive_execute)

#define POINTER(name) __typeof__(name) *name;
typedef struct functions {
  FUNCTIONS(POINTER)
} functions;
#undef POINTER

/* One product: every lane of a request against a chunk of pages. */
typedef struct matmul {
  dnnl_primitive_t primitive;
  dnnl_memory_t q, k, product;
} matmul;

typedef struct onednn {
  functions f;
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  matmul whole, rest; /* chunks of BENCH_CHUNK_PAGES pages, and what is left */
} onednn;

static const char *load(functions *f) {
  void *library = dlopen("libdnnl.so.2", RTLD_NOW), *at;
  if (!library) return "no libdnnl.so.2 here";
#define FIND(name)                                                            \
  if (!(at = dlsym(library, #name))) return "this libdnnl.so.2 lacks " #name; \
  memcpy(&f->name, &at, sizeof at);
  FUNCTIONS(FIND)
#undef FIND
  return NULL;
}

static int describe(const functions *f, dnnl_memory_desc_t *to, dnnl_data_type_t type, int64_t rows, int64_t columns,
                    int64_t row_stride, int64_t column_stride) {
  const dnnl_dims_t dims = {rows, columns}, strides = {row_stride, column_stride};
  return f->dnnl_memory_desc_init_by_strides(to, 2, dims, type, strides) != dnnl_success;
}

static int matmul_make(onednn *o, matmul *m, int64_t lanes, int64_t pages, bench_world *w, bench_contender *c) {
  const functions *f = &o->f;
  const int64_t n = pages * BENCH_PAGE;
  dnnl_memory_desc_t q, k, product;
  dnnl_matmul_desc_t op;
  dnnl_primitive_desc_t pd;
  const char *name = NULL;
  if (describe(f, &q, dnnl_bf16, lanes, DIM, DIM, 1) || describe(f, &k, dnnl_bf16, DIM, n, 1, DIM) ||
      describe(f, &product, dnnl_f32, lanes, n, n, 1) ||
      f->dnnl_matmul_desc_init(&op, &q, &k, NULL, &product) != dnnl_success ||
      f->dnnl_primitive_desc_create(&pd, &op, NULL, o->engine, NULL) != dnnl_success)
    return -1;
  if (f->dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) == dnnl_success)
    snprintf(c->detail, sizeof c->detail, "oneDNN %d.%d %.40s", f->dnnl_version()->major, f->dnnl_version()->minor,
             name);
  const int bad = f->dnnl_primitive_create(&m->primitive, pd) != dnnl_success ||
                  f->dnnl_memory_create(&m->q, &q, o->engine, w->q.data) != dnnl_success ||
                  f->dnnl_memory_create(&m->k, &k, o->engine, w->index_k.data) != dnnl_success ||
                  f->dnnl_memory_create(&m->product, &product, o->engine, w->product) != dnnl_success;
  f->dnnl_primitive_desc_destroy(pd);
  return bad;
}

static void matmul_free(const functions *f, matmul *m) {
  if (m->primitive) f->dnnl_primitive_destroy(m->primitive);
  if (m->q) f->dnnl_memory_destroy(m->q);
  if (m->k) f->dnnl_memory_destroy(m->k);
  if (m->product) f->dnnl_memory_destroy(m->product);
}

static void set_threads(int threads) {
#ifdef _OPENMP
  omp_set_num_threads(threads);
#else
  (void)threads;
#endif
}

static int threads_now(void) {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

static int run(bench_contender *c, bench_world *w) {
  onednn *o = c->peer;
  const bench_shape *s = w->shape;
  const int before = threads_now();
  int bad = 0;
  set_threads(c->threads);
  for (int64_t p = 0; p < s->blocks && !bad; p += BENCH_CHUNK_PAGES) {
    const int64_t pages = p + BENCH_CHUNK_PAGES < s->blocks ? BENCH_CHUNK_PAGES : s->blocks - p;
    matmul *m = pages == BENCH_CHUNK_PAGES ? &o->whole : &o->rest;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, m->q}, {DNNL_ARG_WEIGHTS, m->k}, {DNNL_ARG_DST, m->product}};
    bad = o->f.dnnl_memory_set_data_handle(m->k, (uint16_t *)w->index_k.data + p * BENCH_PAGE * DIM) ||
          o->f.dnnl_primitive_execute(m->primitive, o->stream, 3, args) || o->f.dnnl_stream_wait(o->stream);
    bench_maxima(w->product, s->rows * s->heads, pages, w->score + p, s->blocks, c->threads);
  }
  set_threads(before);
  return bad;
}

void bench_onednn_finish(bench_contender *c) {
  onednn *o = c->peer;
  if (!o) return;
  matmul_free(&o->f, &o->whole);
  matmul_free(&o->f, &o->rest);
  if (o->stream) o->f.dnnl_stream_destroy(o->stream);
  if (o->engine) o->f.dnnl_engine_destroy(o->engine);
  free(o);
  c->peer = NULL;
}

void bench_onednn_begin(bench_contender *c, bench_world *w) {
  const bench_shape *s = w->shape;
  const int64_t lanes = s->rows * s->heads, rest = s->blocks % BENCH_CHUNK_PAGES;
  const int before = threads_now();
  onednn *o = c->peer = calloc(1, sizeof *o);
  const char *why = o ? load(&o->f) : "no memory";
  if (why) {
    free(o);
    c->peer = NULL;
    snprintf(c->absent, sizeof c->absent, "%s", why);
    return;
  }
  set_threads(c->threads);
  if (o->f.dnnl_engine_create(&o->engine, dnnl_cpu, 0) || o->f.dnnl_stream_create(&o->stream, o->engine, 0) ||
      (s->blocks >= BENCH_CHUNK_PAGES && matmul_make(o, &o->whole, lanes, BENCH_CHUNK_PAGES, w, c)) ||
      (rest && matmul_make(o, &o->rest, lanes, rest, w, c)))
    snprintf(c->absent, sizeof c->absent, "oneDNN %d.%d has no bf16 matmul for this machine",
             o->f.dnnl_version()->major, o->f.dnnl_version()->minor);
  else
    c->run = run;
  set_threads(before);
}

#else

void bench_onednn_begin(bench_contender *c, bench_world *w) {
  (void)w;
  snprintf(c->absent, sizeof c->absent, "built without the header of oneDNN 2 (Debian: libdnnl-dev)");
}

void bench_onednn_finish(bench_contender *c) { (void)c; }

#endif
