/* SPDX-License-Identifier: Apache-2.0
 *
 * What the exact stage costs: a call's scores and fused selection against the same walk over lanes and pages that
 * runs the filter and takes the maximum, for one instruction set (M3IDX_ISA).  Medians of 7, the contenders in turn.
 * With libopenblas present also one sgemm of the same size a page, with and without the maximum of each row's page.
 *
 *   bench_simd [prefill|decode] [rows] [pages] [heads] [threads] [dim] [normal|ties] [bf16|f32|f16|e4m3fn]
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "simd_convert.h"
#include "simd_run.h"

enum { REPEATS = 7, CONTENDERS = 6 };

typedef void sgemm_fn(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);

typedef struct bench {
  int64_t rows, pages, heads, dim;
  int threads;
  m3idx_batch batch;
  m3idx_tensor q, k;
  float *qf, *kf, *product, *score;
  int32_t *table, *ids, lens[2], cu[2], prefix[1];
  m3idx_context *ctx;
  sgemm_fn *sgemm;
} bench;

/* On one thread the processor's time, which other work on the machine disturbs least. */
static double now(int threads) {
  struct timespec t;
  clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t state = 88172645463325252u;

static float gauss(void) {
  double sum = 0;
  for (int i = 0; i < 12; i++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    sum += (double)(state >> 11) * 0x1p-53;
  }
  return (float)(sum - 6);
}

/* Values that the format holds: rounded down to 7 (bf16) or fewer fraction bits. */
static float *fill(int64_t n, m3idx_tensor *t, int ties) {
  float *f = malloc((size_t)n * 4);
  t->data = aligned_alloc(4096, ((size_t)n * 4 + 4095) / 4096 * 4096);
  for (int64_t i = 0; i < n; i++) {
    float x = ties ? 1.0f : gauss();
    if (t->dtype == M3IDX_E4M3FN) x = fabsf(x) < 0.0625f ? 0.0625f : x;
    if (t->dtype == M3IDX_F16) x = fabsf(x) < 0.01f ? 0.01f : x;
    if (t->dtype == M3IDX_F32) {
      ((float *)t->data)[i] = x;
    } else {
      const int cut = t->dtype == M3IDX_E4M3FN ? 20 : t->dtype == M3IDX_F16 ? 13 : 16;
      const uint32_t bits = simd_bits(x) >> cut << cut;
      const uint32_t sign = bits >> 31, magnitude = bits & 0x7fffffffu;
      x = simd_float(bits);
      if (t->dtype == M3IDX_BF16) ((uint16_t *)t->data)[i] = (uint16_t)(bits >> 16);
      if (t->dtype == M3IDX_F16) ((uint16_t *)t->data)[i] = (uint16_t)(sign << 15 | (magnitude - (112u << 23)) >> 13);
      if (t->dtype == M3IDX_E4M3FN) ((uint8_t *)t->data)[i] = (uint8_t)(sign << 7 | (magnitude - (120u << 23)) >> 20);
    }
    f[i] = x;
  }
  return f;
}

static void filter_unit(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, void *user) {
  float *sink = user;
  simd_tile_pack(call, unit, scratch);
  for (int64_t block = unit->begin; block < unit->end; block++) {
    const int64_t id = call->block_table[unit->request * call->block_table_stride + block];
    const int64_t see = scratch->group[scratch->groups - 1].max_keys - block * SIMD_TOKENS;
    simd_page page;
    simd_page_load(call, &page, id, (int)(see < SIMD_TOKENS ? see : SIMD_TOKENS), simd_takes_few(call, unit->lanes),
                   scratch->page_copy);
    for (int g = 0; g < scratch->groups; g++)
      if (scratch->group[g].max_keys > block * SIMD_TOKENS) {
        simd_found found;
        simd_find(call, &scratch->group[g], &page, block * SIMD_TOKENS, &scratch->work, &found);
        for (int l = 0; l < scratch->group[g].lanes; l++) {
          const int64_t at = unit->first_lane + g * SIMD_LANES + l;
          sink[(at % call->heads * call->batch->num_rows + unit->first_row + at / call->heads) *
                   call->batch->max_block +
               block] = found.most[l];
        }
      }
  }
}

static void run_filter(bench *b) {
  simd_state *s = b->ctx->state;
  const simd_call call = {.isa = s->isa,
                          .form = simd_form_of(s->isa, b->q.dtype, b->k.dtype),
                          .narrow = simd_products_narrow(b->q.dtype, b->k.dtype),
                          .batch = &b->batch,
                          .q = &b->q,
                          .index_k = &b->k,
                          .block_table = b->table,
                          .block_table_stride = b->pages,
                          .scale = 1,
                          .heads = b->heads,
                          .dim = b->dim};
  simd_plan plan;
  if (simd_plan_make(&plan, &call, b->threads, 0)) exit(1);
  simd_run(s, &call, &plan, b->threads, filter_unit, b->score);
  free(plan.unit);
}

static void run_score(bench *b) {
  const m3idx_score_args args = {
      .batch = &b->batch, .q = b->q, .index_k = b->k, .block_table = b->table, .score = b->score};
  if (m3idx_score(b->ctx, &args)) puts(m3idx_message(b->ctx)), exit(1);
}

static void run_topk(bench *b) {
  const m3idx_topk_args args = {
      .batch = &b->batch, .q = b->q, .index_k = b->k, .block_table = b->table, .topk = 16, .topk_idx = b->ids};
  if (m3idx_topk(b->ctx, &args)) puts(m3idx_message(b->ctx)), exit(1);
}

static void run_sgemm(bench *b) {
  const int rows = (int)(b->rows * b->heads), dim = (int)b->dim, page = SIMD_TOKENS;
  for (int64_t p = 0; p < b->pages; p += 16) {
    const int n = (int)(p + 16 < b->pages ? 16 : b->pages - p) * page;
    b->sgemm(101, 111, 112, rows, n, dim, 1.0f, b->qf, dim, b->kf + p * page * dim, dim, 0.0f, b->product, n);
  }
}

static void run_sgemm_max(bench *b) {
  const int rows = (int)(b->rows * b->heads), dim = (int)b->dim, page = SIMD_TOKENS;
  for (int64_t p = 0; p < b->pages; p += 16) {
    const int pages = (int)(p + 16 < b->pages ? 16 : b->pages - p), n = pages * page;
    b->sgemm(101, 111, 112, rows, n, dim, 1.0f, b->qf, dim, b->kf + p * page * dim, dim, 0.0f, b->product, n);
#pragma omp parallel for num_threads(b->threads)
    for (int r = 0; r < rows; r++)
      for (int i = 0; i < pages; i++) {
        const float *at = b->product + (int64_t)r * n + i * page;
        float m[16];
        memcpy(m, at, sizeof m);
        for (int t = 16; t < page; t += 16)
          for (int j = 0; j < 16; j++) m[j] = at[t + j] > m[j] ? at[t + j] : m[j];
        for (int j = 1; j < 16; j++) m[0] = m[j] > m[0] ? m[j] : m[0];
        b->score[r * b->pages + p + i] = m[0];
      }
  }
}

static void run_read(bench *b) {
  const size_t words = (size_t)(b->pages * SIMD_TOKENS * b->dim) * m3idx_dtype_bytes(b->k.dtype) / 8;
  const uint64_t *at = b->k.data;
  uint64_t all = 0;
#pragma omp parallel for num_threads(b->threads) reduction(+ : all)
  for (size_t i = 0; i < words; i += 64) {
    uint64_t sum[8] = {0};
    for (size_t j = 0; j < 64; j += 8)
      for (size_t l = 0; l < 8; l++) sum[l] += at[i + j + l];
    for (size_t l = 0; l < 8; l++) all += sum[l];
  }
  b->ids[0] = (int32_t)all;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(bench *b) {
  static const char *const name[CONTENDERS] = {"filter", "score", "topk", "sgemm", "sgemm+max", "read"};
  void (*const run[CONTENDERS])(bench *) = {run_filter, run_score, run_topk, run_sgemm, run_sgemm_max, run_read};
  double seconds[CONTENDERS][REPEATS], median[CONTENDERS];
  for (int i = -1; i < REPEATS; i++)
    for (int c = 0; c < CONTENDERS; c++) {
      if (!b->sgemm && (c == 3 || c == 4)) continue;
      const double start = now(b->threads);
      run[c](b);
      if (i >= 0) seconds[c][i] = now(b->threads) - start;
    }
  const double all = (double)(b->pages * SIMD_TOKENS), hidden = 0.5 * (double)b->rows;
  const double flops = 2.0 * (double)(b->rows * b->heads * b->dim);
  const double bytes = (double)(b->pages * SIMD_TOKENS * b->dim) * (double)m3idx_dtype_bytes(b->k.dtype);
  for (int c = 0; c < CONTENDERS; c++) {
    if (!b->sgemm && (c == 3 || c == 4)) continue;
    qsort(seconds[c], REPEATS, sizeof(double), by_value);
    median[c] = seconds[c][getenv("BENCH_MIN") ? 0 : REPEATS / 2];
    printf("%-10s %9.3f ms %8.1f GFLOP/s %7.2f GB/s  %5.2f x filter\n", name[c], 1e3 * median[c],
           1e-9 * flops * (c < 3 ? all - hidden : all) / median[c], 1e-9 * bytes / median[c], median[c] / median[0]);
  }
}

static const char *word(int argc, char **argv, int i, const char * or) { return argc > i ? argv[i] : or ; }

int main(int argc, char **argv) {
  bench b = {.rows = atol(word(argc, argv, 2, "512")),
             .pages = atol(word(argc, argv, 3, "64")),
             .heads = atol(word(argc, argv, 4, "1")),
             .threads = atoi(word(argc, argv, 5, "1")),
             .dim = atol(word(argc, argv, 6, "128"))};
  const int decode = !strcmp(word(argc, argv, 1, "prefill"), "decode"), ties = !strcmp(word(argc, argv, 7, ""), "ties");
  char why[512];
  const m3idx_options options = {.backend = "cpu", .num_threads = b.threads};
  if (m3idx_dtype_by_name(word(argc, argv, 8, "bf16"), &b.k.dtype) || m3idx_open(&b.ctx, &options, why, sizeof why))
    return 1;
  puts(m3idx_backend_details(b.ctx));
  b.q = (m3idx_tensor){.dtype = b.k.dtype, .shape = {b.rows, b.heads, b.dim}};
  b.k = (m3idx_tensor){.dtype = b.k.dtype, .shape = {b.pages, SIMD_TOKENS, b.dim}};
  b.qf = fill(b.rows * b.heads * b.dim, &b.q, ties);
  b.kf = fill(b.pages * SIMD_TOKENS * b.dim, &b.k, ties);
  b.q.stride[2] = b.k.stride[2] = 1;
  b.q.stride[1] = b.k.stride[1] = b.dim;
  b.q.stride[0] = b.heads * b.dim;
  b.k.stride[0] = SIMD_TOKENS * b.dim;
  b.product = malloc((size_t)(b.rows * b.heads) * 16 * SIMD_TOKENS * 4);
  b.score = malloc((size_t)(b.rows * b.heads * b.pages) * 4);
  b.ids = malloc((size_t)(b.rows * b.heads) * 16 * 4);
  b.table = malloc((size_t)b.pages * 4);
  for (int32_t i = 0; i < b.pages; i++) b.table[i] = (int32_t)((int64_t)i * 7919 % b.pages);
  const int64_t keys = b.pages * SIMD_TOKENS;
  b.lens[0] = (int32_t)keys;
  b.cu[1] = (int32_t)b.rows;
  b.prefix[0] = (int32_t)(keys - b.rows);
  b.batch = (m3idx_batch){.mode = decode ? M3IDX_DECODE : M3IDX_PREFILL,
                          .num_requests = 1,
                          .num_rows = b.rows,
                          .max_block = b.pages,
                          .block_size = SIMD_TOKENS,
                          .decode_query_len = decode ? b.rows : 0,
                          .seq_lens = b.lens,
                          .cu_seqlens = decode ? NULL : b.cu,
                          .prefix_lens = decode ? NULL : b.prefix};
  void *blas = dlopen("libopenblas.so.0", RTLD_NOW);
  if (blas && !decode) {
    void (*set_threads)(int);
    *(void **)&b.sgemm = dlsym(blas, "cblas_sgemm");
    *(void **)&set_threads = dlsym(blas, "openblas_set_num_threads");
    set_threads(b.threads);
  }
  measure(&b);
  m3idx_close(b.ctx);
  return 0;
}
