/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin's host side on a runtime that is no device (fake_runtime.h), with ref in the place of kernels: what
 * reaches the device and what comes back, for any strides, to the last byte around it (S3.6, S7.2); every
 * runtime call failing in turn; devices, workspaces and buffers.  It judges no kernel.
 */
#include <stdbool.h>
#include <string.h>

#include "backend.h"
#include "fake_runtime.h"
#include "unit.h"

extern const m3idx_backend *m3idx_plugin_backend(void);

enum { POOL = 1 << 18, POISON = 0xa7, DEVICE = 2 };

static unsigned char inputs[POOL], want_pool[POOL], got_pool[POOL];
static unsigned char *pool; /* where outputs are laid out: want_pool or got_pool */
static size_t in_used, out_used;
static uint64_t rng;

static uint64_t next(void) {
  rng ^= rng << 13;
  rng ^= rng >> 7;
  rng ^= rng << 17;
  return rng;
}
static int64_t below(int64_t n) { return (int64_t)(next() >> 8) % n; }

static void *take(unsigned char *from, size_t *used, int64_t bytes) {
  void *p = from + *used;
  *used += ((size_t)bytes + 63) / 64 * 64 + 64;
  ck_assert(*used <= POOL);
  return p;
}
static void *take_input(int64_t bytes) {
  unsigned char *p = take(inputs, &in_used, bytes);
  for (int64_t i = 0; i < bytes; i++) p[i] = (unsigned char)next();
  return p;
}
static void *take_output(int64_t bytes) { return take(pool, &out_used, bytes); }

/* ---- a random problem; its args are written twice, once a pool ---- */

typedef struct world {
  m3idx_batch batch;
  int32_t seq_lens[4], cu_seqlens[5], prefix_lens[4], num_blocks[16];
  int64_t heads, dim, pages, topk, pad;
  int32_t *block_table;
  m3idx_tensor q, keys;
  float *score;
  int32_t *idx;
  uint64_t *part_keys;
  int64_t slots[8];
} world;

static m3idx_tensor random_tensor(int64_t n0, int64_t n1, int64_t n2) {
  static const m3idx_dtype formats[] = {M3IDX_BF16, M3IDX_F32, M3IDX_E4M3FNUZ, M3IDX_F16};
  m3idx_tensor t = {.dtype = formats[below(4)], .shape = {n0, n1, n2}};
  switch (below(4)) {
  case 0: t.stride[0] = t.stride[1] = t.stride[2] = 0; break; /* dense by default */
  case 1: t.stride[2] = 1, t.stride[1] = n2 + 3, t.stride[0] = n1 * (n2 + 3) + 5; break;
  case 2: t.stride[0] = 1, t.stride[1] = n0, t.stride[2] = n0 * n1; break; /* transposed */
  default: t.stride[0] = 0, t.stride[1] = n2, t.stride[2] = 1; break;      /* repeated */
  }
  t.data = take_input((n0 * n1 + n0 + 1) * (n2 + 8) * 4);
  return t;
}

static void new_world(world *w, bool full_blocks) {
  memset(w, 0, sizeof *w);
  in_used = 0;
  m3idx_batch *b = &w->batch;
  b->mode = below(2) ? M3IDX_DECODE : M3IDX_PREFILL;
  b->block_size = full_blocks ? 128 : 16 << below(4);
  b->num_requests = below(4);
  b->max_block = 1 + below(5);
  b->decode_query_len = b->mode == M3IDX_DECODE ? 1 + below(3) : 0;
  b->seq_lens = w->seq_lens;
  for (int r = 0; r < b->num_requests; r++) {
    w->seq_lens[r] = (int32_t)below(b->max_block * b->block_size + 1);
    const int64_t rows =
        b->mode == M3IDX_DECODE ? b->decode_query_len : below(w->seq_lens[r] < 3 ? w->seq_lens[r] + 1 : 4);
    w->cu_seqlens[r + 1] = w->cu_seqlens[r] + (int32_t)rows;
    w->prefix_lens[r] = (int32_t)below(w->seq_lens[r] - (b->mode == M3IDX_PREFILL ? rows : 0) + 1);
  }
  b->num_rows = w->cu_seqlens[b->num_requests];
  if (b->mode == M3IDX_PREFILL) b->cu_seqlens = w->cu_seqlens, b->prefix_lens = w->prefix_lens;
  w->heads = 1 + below(3);
  w->dim = 16 * (1 + below(2));
  w->pages = 3;
  w->topk = 1 + below(9);
  w->pad = below(2) * 7;
  w->q = random_tensor(b->num_rows, w->heads, w->dim);
  w->keys = random_tensor(w->pages, b->block_size, w->dim);
  w->block_table = take_input(4 * (b->max_block + w->pad) * 4);
  for (int64_t i = 0; i < 4 * (b->max_block + w->pad); i++) w->block_table[i] = (int32_t)below(w->pages);
  w->score = take_input(w->heads * (b->num_rows + 2) * (b->max_block + w->pad) * 4);
  w->idx = take_input(w->heads * (b->num_rows + 2) * (w->topk + w->pad) * 4);
  for (int64_t i = 0; i < w->heads * (b->num_rows + 2) * (w->topk + w->pad); i++) w->idx[i] = (int32_t)below(7) - 1;
  const int64_t part = w->heads * b->num_rows * w->topk + w->pad;
  w->part_keys = take_input(3 * part * 8);
  for (int64_t i = 0; i < 3 * part; i++) /* no id twice: its place is its id */
    w->part_keys[i] = (uint64_t)below(50) << 56 | (0xffffffffu - (uint32_t)i);
  for (int t = 0; t < 16; t++) w->num_blocks[t] = (int32_t)below(b->max_block + 1);
  for (int i = 0; i < 8; i++) w->slots[i] = below(3) ? w->pages * b->block_size / 8 * i + below(2) : -1;
}

static m3idx_sparse_out sparse_out(const world *w) {
  const int64_t rows = w->batch.num_rows * w->heads, stride = 8 * w->topk + w->pad;
  return (m3idx_sparse_out){.block_table = w->block_table,
                            .block_table_stride = w->batch.max_block + w->pad,
                            .table = take_output(rows * stride * 4),
                            .table_stride = stride,
                            .context_lens = take_output(rows * 4)};
}
static int32_t *idx_out(const world *w, int64_t *stride_head, int64_t *stride_row) {
  *stride_row = w->topk + w->pad;
  *stride_head = (w->batch.num_rows + (w->pad > 0)) * *stride_row;
  return take_output(w->heads * *stride_head * 4);
}

static m3idx_status call_score(m3idx_context *ctx, const world *w) {
  m3idx_score_args a = {.batch = &w->batch,
                        .q = w->q,
                        .index_k = w->keys,
                        .block_table = w->block_table,
                        .block_table_stride = w->batch.max_block + w->pad,
                        .local_blocks = w->batch.mode == M3IDX_DECODE};
  a.score_stride_row = w->batch.max_block + w->pad;
  a.score_stride_head = (w->batch.num_rows + 1) * a.score_stride_row;
  a.score = take_output(w->heads * a.score_stride_head * 4);
  return m3idx_score(ctx, &a);
}
static m3idx_status call_select(m3idx_context *ctx, const world *w) {
  m3idx_select_args a = {.num_heads = w->heads,
                         .num_rows = w->batch.num_rows,
                         .max_block = w->batch.max_block,
                         .score = w->score,
                         .score_stride_row = w->batch.max_block + w->pad,
                         .topk = w->topk};
  a.score_stride_head = (a.num_rows + 1) * a.score_stride_row;
  if (w->pad)
    a.num_blocks = w->num_blocks;
  else
    a.batch = &w->batch;
  a.topk_idx = idx_out(w, &a.topk_stride_head, &a.topk_stride_row);
  a.keys = w->pages % 2 ? take_output(w->heads * a.num_rows * w->topk * 8) : NULL;
  return m3idx_select(ctx, &a);
}
static m3idx_status call_merge(m3idx_context *ctx, const world *w) {
  m3idx_merge_args a = {
      .num_parts = 3, .num_heads = w->heads, .num_rows = w->batch.num_rows, .topk = w->topk, .keys = w->part_keys};
  a.keys_stride_part = w->heads * w->batch.num_rows * w->topk + w->pad;
  a.topk_idx = idx_out(w, &a.topk_stride_head, &a.topk_stride_row);
  a.merged_keys = take_output(w->heads * a.num_rows * w->topk * 8);
  return m3idx_merge(ctx, &a);
}
static m3idx_status call_topk(m3idx_context *ctx, const world *w) {
  const m3idx_sparse_out sparse = sparse_out(w);
  m3idx_topk_args a = {.batch = &w->batch,
                       .q = w->q,
                       .index_k = w->keys,
                       .block_table = w->block_table,
                       .block_table_stride = w->batch.max_block + w->pad,
                       .local_blocks = 1,
                       .topk = w->topk};
  a.sparse = w->batch.block_size == 128 ? &sparse : NULL;
  a.topk_idx = idx_out(w, &a.topk_stride_head, &a.topk_stride_row);
  return m3idx_topk(ctx, &a);
}
static m3idx_status call_sparse_table(m3idx_context *ctx, const world *w) {
  m3idx_sparse_table_args a = {.batch = &w->batch, .num_heads = w->heads, .topk = w->topk, .topk_idx = w->idx};
  a.topk_stride_row = w->topk + w->pad;
  a.topk_stride_head = (w->batch.num_rows + 1) * a.topk_stride_row;
  a.sparse = sparse_out(w);
  return m3idx_sparse_table(ctx, &a);
}
static m3idx_status call_cache_insert(m3idx_context *ctx, const world *w) {
  const int64_t pages = w->pages, block = w->batch.block_size, row = w->dim + w->pad;
  m3idx_cache_insert_args a = {.slot_mapping = w->slots,
                               .key = w->keys,
                               .cache.dtype = w->keys.dtype,
                               .cache.shape = {pages, block, w->dim},
                               .cache.stride = {block * row + w->pad, row, 1}};
  a.key.shape[0] = 1;
  a.key.shape[1] = 8;
  a.cache.data = take_output((pages * (block * row + w->pad)) * 4);
  return m3idx_cache_insert(ctx, &a);
}

typedef m3idx_status (*caller)(m3idx_context *ctx, const world *w);
static const struct {
  const char *name;
  caller call;
} ops[] = {
#define HIPK_OP(name) {#name, call_##name},
#include "hip_ops.def"
#undef HIPK_OP
};
enum { OPS = sizeof ops / sizeof *ops };
static bool needs_full_blocks(int op) { return !strcmp(ops[op].name, "sparse_table"); }

/* ---- contexts ---- */

static m3idx_context hip_context(void) {
  m3idx_context ctx = {.backend = m3idx_plugin_backend(), .device = DEVICE};
  const m3idx_status status = ctx.backend->open(&ctx);
  ck_assert_msg(!status, "open: %s", ctx.message);
  return ctx;
}
static void close_context(m3idx_context *ctx) {
  ctx->backend->close(ctx);
  ck_assert_uint_eq(fake_allocations(), 0);
  ck_assert_int_eq(fake_current_device(), 1);
}

/* Run op i on world w into `into`, from poison. */
static m3idx_status run(m3idx_context *ctx, int op, const world *w, unsigned char *into) {
  pool = into;
  out_used = 0;
  memset(into, POISON, POOL);
  return ops[op].call(ctx, w);
}
static bool untouched(const unsigned char *bytes) {
  for (size_t i = 0; i < POOL; i++)
    if (bytes[i] != POISON) return false;
  return true;
}

START_TEST(host_memory) {
  m3idx_context ctx = hip_context(), ref = {.backend = &m3idx_backend_ref};
  int ran = 0;
  for (int i = 0; i < 60; i++) {
    rng = (uint64_t)(_i * 1000 + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    world w;
    new_world(&w, needs_full_blocks(_i));
    const m3idx_status want = run(&ref, _i, &w, want_pool), got = run(&ctx, _i, &w, got_pool);
    ck_assert_msg(want == got, "%s %d: want status %d (%s), got %d (%s)", ops[_i].name, i, want, ref.message, got,
                  ctx.message);
    ck_assert_msg(!memcmp(want_pool, got_pool, POOL), "%s %d: the bytes differ", ops[_i].name, i);
    ck_assert_int_eq(fake_current_device(), 1);
    ran += !want;
  }
  ck_assert_msg(ran >= 40, "%s: only %d of 60 worlds are valid", ops[_i].name, ran);
  close_context(&ctx);
}
END_TEST

START_TEST(every_call_fails_once) {
  static const struct {
    hipError_t error;
    m3idx_status status;
  } kinds[] = {{hipErrorUnknown, M3IDX_DEVICE}, {hipErrorOutOfMemory, M3IDX_NO_MEMORY}};
  for (size_t k = 0; k < 2; k++) {
    rng = 77;
    world w;
    do new_world(&w, needs_full_blocks(_i));
    while (!w.batch.num_rows);
    m3idx_context ref = {.backend = &m3idx_backend_ref};
    ck_assert_int_eq(run(&ref, _i, &w, want_pool), M3IDX_OK);
    int failures = 0;
    for (int calls = 0;; calls++) {
      m3idx_context ctx = hip_context();
      fake_fail_after(calls, kinds[k].error);
      const m3idx_status status = run(&ctx, _i, &w, got_pool);
      const bool came = fake_fail_after(-1, hipSuccess);
      if (came && status) {
        failures++;
        ck_assert_int_eq(status, kinds[k].status);
        ck_assert_msg(ctx.message[0], "%s, call %d: no sentence", ops[_i].name, calls);
        ck_assert_msg(untouched(got_pool), "%s, call %d failed and outputs changed", ops[_i].name, calls);
      }
      /* Only going back to the thread's own device may fail without a word: the call has succeeded by then. */
      if (came && !status) ck_assert_int_eq(hipSetDevice(1), hipSuccess);
      /* The next call is whole, whatever the last one lost. */
      ck_assert_msg(!run(&ctx, _i, &w, got_pool), "%s after a failure: %s", ops[_i].name, ctx.message);
      ck_assert(!memcmp(want_pool, got_pool, POOL));
      close_context(&ctx);
      if (!came) break;
      ck_assert_int_lt(calls, 100);
    }
    ck_assert_int_gt(failures, 5);
  }
}
END_TEST

START_TEST(device_memory) {
  m3idx_context ctx = hip_context();
  const int32_t counts[2] = {5, 3};
  const float score[10] = {1, 5, 3, 4, 2, 9, 8, 7, 6, 0};
  int32_t idx[4] = {0};
  int32_t *d_counts = ctx.backend->alloc(&ctx, sizeof counts), *d_idx = ctx.backend->alloc(&ctx, sizeof idx);
  float *d_score = ctx.backend->alloc(&ctx, sizeof score);
  ck_assert(d_counts && d_idx && d_score);
  ck_assert_int_eq(ctx.backend->download(&ctx, idx, d_idx, sizeof idx), M3IDX_OK);
  for (int i = 0; i < 4; i++) ck_assert_int_eq(idx[i], 0); /* alloc zeroes */
  ck_assert_int_eq(ctx.backend->upload(&ctx, d_counts, counts, sizeof counts), M3IDX_OK);
  ck_assert_int_eq(ctx.backend->upload(&ctx, d_score, score, sizeof score), M3IDX_OK);
  ck_assert_int_eq(m3idx_set_stream(&ctx, NULL, M3IDX_DEVICE_MEMORY), M3IDX_OK);
  const m3idx_select_args args = {.num_blocks = d_counts,
                                  .num_heads = 1,
                                  .num_rows = 2,
                                  .max_block = 5,
                                  .score = d_score,
                                  .topk = 2,
                                  .topk_idx = d_idx};
  size_t bytes = 0;
  ck_assert_int_eq(m3idx_plan(&ctx, M3IDX_OP_select, &args, &bytes), M3IDX_OK);
  ck_assert_int_eq(m3idx_select(&ctx, &args), M3IDX_INVALID);
  ck_assert_msg(strstr(ctx.message, "workspace_bytes is 0"), "%s", ctx.message);
  void *workspace = ctx.backend->alloc(&ctx, bytes);
  ck_assert_int_eq(m3idx_set_workspace(&ctx, workspace, bytes - 1), M3IDX_OK);
  ck_assert_int_eq(m3idx_select(&ctx, &args), M3IDX_INVALID);
  ck_assert_int_eq(m3idx_set_workspace(&ctx, workspace, bytes), M3IDX_OK);
  const size_t before = fake_allocations();
  ck_assert_msg(!m3idx_select(&ctx, &args), "%s", ctx.message);
  ck_assert_uint_eq(fake_allocations(), before);
  ck_assert_int_eq(ctx.backend->download(&ctx, idx, d_idx, sizeof idx), M3IDX_OK);
  const int32_t want[4] = {1, 3, 0, 1};
  for (int i = 0; i < 4; i++) ck_assert_int_eq(want[i], idx[i]);
  void *buffers[] = {d_counts, d_idx, d_score, workspace};
  for (size_t i = 0; i < 4; i++) ctx.backend->free(&ctx, buffers[i]);
  close_context(&ctx);
}
END_TEST

static void open_fails(int device, m3idx_status want, const char *part) {
  m3idx_context ctx = {.backend = m3idx_plugin_backend(), .device = device};
  ck_assert_int_eq(ctx.backend->open(&ctx), want);
  ck_assert_msg(strstr(ctx.message, part), "want \"%s\" in \"%s\"", part, ctx.message);
  close_context(&ctx);
}

START_TEST(open_says_why) {
  fake_runtime_fault("no runtime, says the fake");
  open_fails(0, M3IDX_UNAVAILABLE, "no runtime, says the fake");
  fake_runtime_fault(NULL);
  fake_fail_after(0, hipErrorNoDevice);
  open_fails(0, M3IDX_UNAVAILABLE, "hipGetDeviceCount: no device");
  open_fails(3, M3IDX_INVALID, "device is 3, must be 0 to 2");
  open_fails(-1, M3IDX_INVALID, "device is -1, must be 0 to 2");
  fake_arch("gfx90a");
  open_fails(0, M3IDX_UNAVAILABLE, "device 0 is gfx90a (fake 0); the plugin carries code for gfx942 and gfx950");
  fake_arch("gfx950");
  m3idx_context ctx = hip_context();
  ck_assert_str_eq(ctx.details, "device 2 of 3: gfx950 (fake 2); matrix steps err by 0.00 of their bound");
  close_context(&ctx);
}
END_TEST

/* Opening a device for the first time takes a probe; whatever fails, nothing is kept and the next open is whole. */
START_TEST(probe_fails) {
  int failures = 0;
  for (int calls = 0;; calls++) {
    m3idx_context ctx = {.backend = m3idx_plugin_backend(), .device = 0};
    fake_fail_after(calls, hipErrorUnknown);
    const m3idx_status status = ctx.backend->open(&ctx);
    const bool came = fake_fail_after(-1, hipSuccess);
    if (came && status) failures++;
    ck_assert_msg(!came || !status || ctx.message[0], "call %d: no sentence", calls);
    ck_assert_int_eq(hipSetDevice(1), hipSuccess); /* going back may have failed */
    if (!status) close_context(&ctx);
    ck_assert_uint_eq(fake_allocations(), 0);
    if (!status) break; /* and the device is known */
  }
  ck_assert_int_eq(failures, 8); /* and the ninth is the free, which has nothing to say */
}
END_TEST

/* A unit whose sums are off by a thousandth is found out, and the context says what follows. */
START_TEST(probe_red) {
  m3idx_context ctx = {.backend = m3idx_plugin_backend(), .device = 1};
  fake_matrix_error(1e-3);
  ck_assert_int_eq(ctx.backend->open(&ctx), M3IDX_OK);
  fake_matrix_error(0);
  ck_assert_msg(strstr(ctx.details, "of their bound: scores do without them"), "%s", ctx.details);
  close_context(&ctx);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("hip_host");
  TCase *tcase = tcase_create("all");
  tcase_set_timeout(tcase, 60);
  tcase_add_test(tcase, open_says_why);
  tcase_add_test(tcase, probe_fails);
  tcase_add_test(tcase, probe_red);
  tcase_add_test(tcase, device_memory);
  tcase_add_loop_test(tcase, host_memory, 0, OPS);
  tcase_add_loop_test(tcase, every_call_fails_once, 0, OPS);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
