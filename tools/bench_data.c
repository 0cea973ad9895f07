/* SPDX-License-Identifier: Apache-2.0
 *
 * Operands of a benchmark shape.  Every row of q and of the cache is a window at a place of its own in a pool of normal
 * values, so that large caches are made quickly, or comes from a case; nothing here is timed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* Two pools, so that no query is a key.  Keys beyond KEYS of them repeat. */
enum { KEYS = 1 << 20, QUERIES = 1 << 16, POOL = KEYS + QUERIES, MOST_DIM = 256 };

static uint64_t scramble(uint64_t x) {
  x = (x ^ x >> 31) * UINT64_C(0x7fb5d329728ea185);
  x = (x ^ x >> 27) * UINT64_C(0x81dadef4bc2dd44d);
  return x ^ x >> 33;
}

/* The sum of 12 uniform values is normal enough. */
static float normal(uint64_t seed) {
  double sum = 0;
  for (uint64_t i = 0; i < 12; i++) sum += (double)(scramble(seed * 12 + i + 1) >> 11) * 0x1p-53;
  return (float)(sum - 6);
}

static uint16_t *make_pool(void) {
  uint16_t *pool = malloc((POOL + MOST_DIM) * sizeof *pool);
  if (!pool) return NULL;
#pragma omp parallel for
  for (int i = 0; i < POOL + MOST_DIM; i++) {
    const float x = normal((uint64_t)i);
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    pool[i] = (uint16_t)(bits >> 16); /* cut, not rounded: any bf16 will do */
  }
  return pool;
}

/* An odd factor takes rows to different places of the pool, a power of two. */
static void fill_bf16(void *to, const uint16_t *pool, int64_t places, int64_t rows, int64_t dim, bool same) {
#pragma omp parallel for
  for (int64_t row = 0; row < rows; row++)
    memcpy((uint16_t *)to + row * dim, pool + (same ? 0 : row * 0x9e375) % places, (size_t)dim * 2);
}

static void to_f32(float *to, const void *from, int64_t count) {
#pragma omp parallel for
  for (int64_t i = 0; i < count; i++) {
    const uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    memcpy(to + i, &bits, sizeof bits);
  }
}

static void fill_array(bench_world *w) {
  const int64_t n = w->shape->blocks;
  for (int64_t i = 0; i < w->lanes * n; i++) {
    const float x = normal((uint64_t)i);
    switch (w->shape->data) {
    case BENCH_ASCENDING: w->score[i] = (float)(i % n); break;
    case BENCH_EQUAL: w->score[i] = 1.5f; break;
    case BENCH_NAN: w->score[i] = NAN; break;
    default: w->score[i] = x;
    }
  }
}

/* Requests side by side: rows of request r follow those of r - 1, and so do its pages, which lie in a mixed order. */
static void fill_batch(bench_world *w) {
  const bench_shape *s = w->shape;
  const bool decode = s->form == BENCH_DECODE;
  for (int64_t r = 0; r < s->requests; r++) {
    w->seq_lens[r] = (int32_t)w->keys;
    w->prefix_lens[r] = (int32_t)(w->keys - s->rows);
    w->cu_seqlens[r + 1] = (int32_t)((r + 1) * s->rows);
    for (int64_t b = 0; b < s->blocks; b++)
      w->table[r * s->blocks + b] = (int32_t)(r * s->blocks + b * 7919 % s->blocks);
  }
  w->batch = (m3idx_batch){.mode = decode ? M3IDX_DECODE : M3IDX_PREFILL,
                           .num_requests = s->requests,
                           .num_rows = s->requests * s->rows,
                           .max_block = s->blocks,
                           .block_size = BENCH_PAGE,
                           .decode_query_len = decode ? s->rows : 0,
                           .seq_lens = w->seq_lens,
                           .cu_seqlens = decode ? NULL : w->cu_seqlens,
                           .prefix_lens = decode ? NULL : w->prefix_lens};
  w->q =
      (m3idx_tensor){.data = w->q.data, .dtype = M3IDX_BF16, .shape = {s->requests * s->rows, s->heads, w->head_dim}};
  w->index_k =
      (m3idx_tensor){.data = w->index_k.data, .dtype = M3IDX_BF16, .shape = {w->pages, BENCH_PAGE, w->head_dim}};
}

bool bench_takes(const m3idx_case *c, char *reason) {
  const char *why = NULL;
  bool pages = true;
  if (c->op != CASE_PREFILL || c->R != 1 || c->T < 1 || c->H < 1)
    why = "no prefill of one request with query rows and heads";
  else if (c->q_dtype != M3IDX_BF16 || c->k_dtype != M3IDX_BF16)
    why = "not bf16";
  else if (c->B != BENCH_PAGE || c->D > MOST_DIM || c->seq_lens[0] < BENCH_CASE_ROWS ||
           c->seq_lens[0] / BENCH_PAGE > c->M)
    why = "not of blocks of 128, head dim up to 256, and 512 or more keys within max_block";
  for (int64_t b = 0; !why && b < c->seq_lens[0] / BENCH_PAGE; b++)
    pages = pages && c->block_table[b] >= 0 && c->block_table[b] < c->P;
  if (!pages) why = "block_table names a page that index_k lacks";
  snprintf(reason, BENCH_REASON_BYTES, "%s", why ? why : "");
  return !why;
}

/* The case's full blocks in its order, on mixed pages; its rows over and over. */
static void fill_case(bench_world *w) {
  const m3idx_case *c = w->options->given;
  const size_t row = (size_t)(c->H * c->D) * 2, page = (size_t)(BENCH_PAGE * c->D) * 2;
  for (int64_t r = 0; r < w->shape->rows; r++)
    memcpy((char *)w->q.data + (size_t)r * row, (const char *)c->q + (size_t)(r % c->T) * row, row);
  for (int64_t b = 0; b < w->shape->blocks; b++)
    memcpy((char *)w->index_k.data + (size_t)w->table[b] * page,
           (const char *)c->index_k + (size_t)c->block_table[b] * page, page);
}

bool bench_wants_f32(const bench_shape *shape) {
  for (int i = 0; i < BENCH_ENTRIES && shape->entries[i].label; i++) switch (shape->entries[i].kind) {
    case BENCH_SGEMM:
    case BENCH_SGEMM_MAX:
    case BENCH_ONEDNN_MAX:
    case BENCH_PLAIN: return true;
    default: break;
    }
  return false;
}

static void *room(size_t count, size_t size) {
  const size_t bytes = (count * size + 4095) / 4096 * 4096 + 4096;
  return aligned_alloc(4096, bytes);
}

static int make_queries(bench_world *w) {
  const bench_shape *s = w->shape;
  const int64_t dim = w->head_dim, rows = s->requests * s->rows * s->heads, keys = w->pages * BENCH_PAGE;
  uint16_t *pool = make_pool();
  w->q.data = room((size_t)(rows * dim), 2);
  w->index_k.data = room((size_t)(keys * dim), 2);
  w->table = room((size_t)w->pages, sizeof(int32_t));
  w->seq_lens = room((size_t)s->requests, sizeof(int32_t));
  w->prefix_lens = room((size_t)s->requests, sizeof(int32_t));
  w->cu_seqlens = calloc((size_t)s->requests + 1, sizeof(int32_t));
  if (!pool || !w->q.data || !w->index_k.data || !w->table || !w->seq_lens || !w->prefix_lens || !w->cu_seqlens) {
    free(pool);
    return -1;
  }
  fill_batch(w);
  if (s->data == BENCH_CASE) {
    fill_case(w);
  } else {
    fill_bf16(w->q.data, pool + KEYS, QUERIES, rows, dim, false);
    fill_bf16(w->index_k.data, pool, KEYS, keys, dim, s->data == BENCH_TIES);
  }
  free(pool);
  if (!bench_wants_f32(s)) return 0;
  w->qf = room((size_t)(rows * dim), sizeof(float));
  w->kf = room((size_t)(keys * dim), sizeof(float));
  w->product = room((size_t)(s->rows * s->heads * BENCH_CHUNK_PAGES * BENCH_PAGE), sizeof(float));
  if (!w->qf || !w->kf || !w->product) return -1;
  to_f32(w->qf, w->q.data, rows * dim);
  to_f32(w->kf, w->index_k.data, keys * dim);
  return 0;
}

static int make_array(bench_world *w, int threads) {
  w->num_blocks = room((size_t)w->lanes, sizeof(int32_t));
  w->rooms = room((size_t)(w->shape->blocks * threads), sizeof(uint64_t));
  if (!w->num_blocks || !w->rooms) return -1;
  for (int64_t i = 0; i < w->lanes; i++) w->num_blocks[i] = (int32_t)w->shape->blocks;
  fill_array(w);
  return 0;
}

int bench_world_make(bench_world *w, const bench_shape *shape, const bench_options *options, int threads,
                     char *reason) {
  *w = (bench_world){.shape = shape,
                     .options = options,
                     .lanes = shape->requests * shape->rows * shape->heads,
                     .keys = shape->blocks * BENCH_PAGE,
                     .pages = shape->requests * shape->blocks,
                     .head_dim = options->given ? options->given->D : 128};
  w->score = room((size_t)(w->lanes * shape->blocks), sizeof(float));
  w->ids = room((size_t)(w->lanes * BENCH_TOPK), sizeof(int32_t));
  if (w->score && w->ids && !(shape->form == BENCH_ARRAY ? make_array(w, threads) : make_queries(w))) return 0;
  bench_world_free(w);
  snprintf(reason, BENCH_REASON_BYTES, "no memory for the shape");
  return -1;
}

void bench_world_free(bench_world *w) {
  free(w->q.data);
  free(w->index_k.data);
  free(w->table);
  free(w->seq_lens);
  free(w->cu_seqlens);
  free(w->prefix_lens);
  free(w->num_blocks);
  free(w->qf);
  free(w->kf);
  free(w->score);
  free(w->ids);
  free(w->product);
  free(w->rooms);
  *w = (bench_world){0};
}
