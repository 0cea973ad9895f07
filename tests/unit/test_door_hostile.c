/* SPDX-License-Identifier: Apache-2.0
 *
 * The door (S7.1) against values nobody means: every int64_t field of every call at the ends of its range, alone
 * and together (no arithmetic may overflow: run under the undefined-behaviour sanitizer, this is its test); what
 * is resolved for fields left 0; and device memory, where pointers are judged and never followed.
 */
#include <string.h>

#include "check.h"
#include "door_world.h"
#include "unit.h"

#define LENGTH(a) (int)(sizeof(a) / sizeof *(a))
#define AT(field) offsetof(world, field)

/* Every int64_t that a call reads, and the name its sentence gives it. */
static const struct {
  call call;
  size_t at;
  const char *name;
} fields[] = {
    {PREFILL_SCORE, AT(p.num_requests), "num_requests"},
    {PREFILL_SCORE, AT(p.num_rows), "num_rows"},
    {PREFILL_SCORE, AT(p.max_block), "max_block"},
    {PREFILL_SCORE, AT(p.block_size), "block_size"},
    {PREFILL_SCORE, AT(p.decode_query_len), "decode_query_len"},
    {DECODE_SCORE, AT(d.decode_query_len), "decode_query_len"},
    {PREFILL_SCORE, AT(p_score.q.shape[0]), "q.shape[0]"},
    {PREFILL_SCORE, AT(p_score.q.shape[1]), "q.shape[1]"},
    {PREFILL_SCORE, AT(p_score.q.shape[2]), "q.shape[2]"},
    {PREFILL_SCORE, AT(p_score.q.stride[0]), "q.stride[0]"},
    {PREFILL_SCORE, AT(p_score.q.stride[1]), "q.stride[1]"},
    {PREFILL_SCORE, AT(p_score.q.stride[2]), "q.stride[2]"},
    {PREFILL_SCORE, AT(p_score.index_k.shape[0]), "index_k.shape[0]"},
    {PREFILL_SCORE, AT(p_score.index_k.shape[1]), "index_k.shape[1]"},
    {PREFILL_SCORE, AT(p_score.index_k.shape[2]), "index_k.shape[2]"},
    {PREFILL_SCORE, AT(p_score.index_k.stride[0]), "index_k.stride[0]"},
    {PREFILL_SCORE, AT(p_score.index_k.stride[1]), "index_k.stride[1]"},
    {PREFILL_SCORE, AT(p_score.index_k.stride[2]), "index_k.stride[2]"},
    {PREFILL_SCORE, AT(p_score.block_table_stride), "block_table_stride"},
    {DECODE_SCORE, AT(d_score.init_blocks), "init_blocks"},
    {DECODE_SCORE, AT(d_score.local_blocks), "local_blocks"},
    {PREFILL_SCORE, AT(p_score.score_stride_head), "score_stride_head"},
    {PREFILL_SCORE, AT(p_score.score_stride_row), "score_stride_row"},
    {DECODE_SCORE, AT(d.num_requests), "num_requests"},
    {DECODE_SCORE, AT(d.num_rows), "num_rows"},
    {DECODE_SCORE, AT(d.max_block), "max_block"},
    {DECODE_SCORE, AT(d_score.score_stride_head), "score_stride_head"},
    {SELECT_BATCH, AT(p.num_requests), "num_requests"},
    {SELECT_BATCH, AT(p.max_block), "max_block"},
    {SELECT_BATCH, AT(by_batch.num_rows), "num_rows"},
    {SELECT_BATCH, AT(by_batch.max_block), "max_block"},
    {SELECT_BATCH, AT(by_batch.num_heads), "num_heads"},
    {SELECT_BATCH, AT(by_batch.first_block), "first_block"},
    {SELECT_BATCH, AT(by_batch.init_blocks), "init_blocks"},
    {SELECT_BATCH, AT(by_batch.local_blocks), "local_blocks"},
    {SELECT_COUNTS, AT(by_counts.num_heads), "num_heads"},
    {SELECT_COUNTS, AT(by_counts.num_rows), "num_rows"},
    {SELECT_COUNTS, AT(by_counts.max_block), "max_block"},
    {SELECT_COUNTS, AT(by_counts.score_stride_head), "score_stride_head"},
    {SELECT_COUNTS, AT(by_counts.score_stride_row), "score_stride_row"},
    {SELECT_COUNTS, AT(by_counts.init_blocks), "init_blocks"},
    {SELECT_COUNTS, AT(by_counts.local_blocks), "local_blocks"},
    {SELECT_COUNTS, AT(by_counts.topk), "topk"},
    {SELECT_COUNTS, AT(by_counts.first_block), "first_block"},
    {SELECT_COUNTS, AT(by_counts.topk_stride_head), "topk_stride_head"},
    {SELECT_COUNTS, AT(by_counts.topk_stride_row), "topk_stride_row"},
    {MERGE, AT(merge.num_parts), "num_parts"},
    {MERGE, AT(merge.num_heads), "num_heads"},
    {MERGE, AT(merge.num_rows), "num_rows"},
    {MERGE, AT(merge.topk), "topk"},
    {MERGE, AT(merge.keys_stride_part), "keys_stride_part"},
    {MERGE, AT(merge.topk_stride_head), "topk_stride_head"},
    {MERGE, AT(merge.topk_stride_row), "topk_stride_row"},
    {TOPK, AT(topk.q.shape[1]), "q.shape[1]"},
    {TOPK, AT(topk.block_table_stride), "block_table_stride"},
    {TOPK, AT(topk.init_blocks), "init_blocks"},
    {TOPK, AT(topk.local_blocks), "local_blocks"},
    {TOPK, AT(topk.topk), "topk"},
    {TOPK, AT(topk.topk_stride_head), "topk_stride_head"},
    {TOPK, AT(topk.topk_stride_row), "topk_stride_row"},
    {TOPK, AT(sparse.block_table_stride), "sparse.block_table_stride"},
    {TOPK, AT(sparse.page_stride), "sparse.page_stride"},
    {TOPK, AT(sparse.table_stride), "sparse.table_stride"},
    {SPARSE, AT(d.num_requests), "num_requests"},
    {SPARSE, AT(d.max_block), "max_block"},
    {SPARSE, AT(table_args.num_heads), "num_heads"},
    {SPARSE, AT(table_args.topk), "topk"},
    {SPARSE, AT(table_args.topk_stride_head), "topk_stride_head"},
    {SPARSE, AT(table_args.topk_stride_row), "topk_stride_row"},
    {SPARSE, AT(table_args.sparse.block_table_stride), "sparse.block_table_stride"},
    {SPARSE, AT(table_args.sparse.page_stride), "sparse.page_stride"},
    {SPARSE, AT(table_args.sparse.table_stride), "sparse.table_stride"},
    {INSERT, AT(insert.key.shape[0]), "key.shape[0]"},
    {INSERT, AT(insert.key.shape[1]), "key.shape[1]"},
    {INSERT, AT(insert.key.shape[2]), "key.shape[2]"},
    {INSERT, AT(insert.key.stride[1]), "key.stride[1]"},
    {INSERT, AT(insert.cache.shape[0]), "cache.shape[0]"},
    {INSERT, AT(insert.cache.shape[1]), "cache.shape[1]"},
    {INSERT, AT(insert.cache.shape[2]), "cache.shape[2]"},
    {INSERT, AT(insert.cache.stride[0]), "cache.stride[0]"},
    {INSERT, AT(insert.cache.stride[1]), "cache.stride[1]"},
    {INSERT, AT(insert.cache.stride[2]), "cache.stride[2]"},
};

static const int64_t extremes[] = {-1,
                                   INT64_MIN,
                                   INT64_MIN + 1,
                                   INT64_MAX,
                                   INT64_MAX - 1,
                                   INT64_MAX / 2,
                                   INT64_MAX / 2 + 1,
                                   INT64_MAX / 4,
                                   INT64_C(1) << 61,
                                   (INT64_C(1) << 61) - 1,
                                   INT64_C(1) << 32,
                                   (int64_t)INT32_MAX + 1,
                                   INT32_MAX,
                                   0,
                                   1,
                                   3};

/* The door alone, no backend: a good but huge stride would lead one out of the world. */
static m3idx_status check_call(m3idx_context *ctx, const world *w, call c, m3idx_resolved *r) {
  switch (c) {
  case PREFILL_SCORE: return m3idx_check_score(ctx, &w->p_score, r);
  case DECODE_SCORE: return m3idx_check_score(ctx, &w->d_score, r);
  case SELECT_BATCH: return m3idx_check_select(ctx, &w->by_batch, r);
  case SELECT_COUNTS: return m3idx_check_select(ctx, &w->by_counts, r);
  case MERGE: return m3idx_check_merge(ctx, &w->merge, r);
  case TOPK: return m3idx_check_topk(ctx, &w->topk, r);
  case SPARSE: return m3idx_check_sparse_table(ctx, &w->table_args, r);
  case INSERT: return m3idx_check_cache_insert(ctx, &w->insert, r);
  case CALLS: break;
  }
  return M3IDX_IO;
}

static void set(world *w, size_t at, int64_t value) { memcpy((char *)w + at, &value, sizeof value); }

/* Device memory, so that contents under a huge stride are not followed. */
START_TEST(one_field) {
  static world w, before;
  m3idx_resolved r;
  for (int v = 0; v < LENGTH(extremes); v++) {
    m3idx_context ctx = {.memory = M3IDX_DEVICE_MEMORY};
    make_world(&w);
    set(&w, fields[_i].at, extremes[v]);
    memcpy(&before, &w, sizeof w);
    const m3idx_status got = check_call(&ctx, &w, fields[_i].call, &r);
    ck_assert(got == M3IDX_OK || got == M3IDX_INVALID);
    ck_assert_int_eq(ctx.message[0] != '\0', got == M3IDX_INVALID);
    ck_assert_mem_eq(&before, &w, sizeof w);
    if (extremes[v] >= 0) continue; /* nothing may be negative, and the sentence says what was */
    if (got != M3IDX_INVALID || !strstr(ctx.message, fields[_i].name))
      ck_abort_msg("%s = %lld: status %d, \"%s\"", fields[_i].name, (long long)extremes[v], (int)got, ctx.message);
  }
}
END_TEST

static uint32_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

START_TEST(many_fields) {
  static world w;
  m3idx_resolved r;
  uint64_t seed = (uint64_t)_i;
  int good = 0, bad = 0;
  make_world(&w);
  for (int k = 0; k < 20000; k++) {
    m3idx_context ctx = {.memory = M3IDX_DEVICE_MEMORY};
    world_arguments(&w);
    for (int n = 0; n < 2 + k % 4; n++) {
      int f = (int)(next_random(&seed) % (uint32_t)LENGTH(fields));
      while (fields[f].call != (call)_i) f = (f + 1) % LENGTH(fields);
      set(&w, fields[f].at, extremes[next_random(&seed) % (uint32_t)LENGTH(extremes)]);
    }
    const m3idx_status got = check_call(&ctx, &w, (call)_i, &r);
    ck_assert(got == M3IDX_OK || got == M3IDX_INVALID);
    ck_assert_int_eq(ctx.message[0] != '\0', got == M3IDX_INVALID);
    *(got ? &bad : &good) += 1;
  }
  ck_assert_int_gt(bad, 0);
  ck_assert_int_gt(good, 0);
}
END_TEST

/* ---- defaults ---- */

START_TEST(resolved) {
  static world w;
  m3idx_context ctx = {.memory = M3IDX_HOST};
  m3idx_resolved r;
  make_world(&w);
  ck_assert_int_eq(check_call(&ctx, &w, DECODE_SCORE, &r), M3IDX_OK);
  ck_assert(r.args.score.batch == &r.batch && r.batch.block_size == 128);
  ck_assert(r.args.score.scale >= 1 && r.args.score.scale <= 1);
  ck_assert(r.args.score.q.stride[0] == W_H * W_D && r.args.score.q.stride[1] == W_D && r.args.score.q.stride[2] == 1);
  ck_assert_int_eq(r.args.score.block_table_stride, W_M);
  ck_assert(r.args.score.score_stride_row == W_M && r.args.score.score_stride_head == W_DT * W_M);
  ck_assert_int_eq(check_call(&ctx, &w, SELECT_BATCH, &r), M3IDX_OK);
  ck_assert(r.args.select.batch == &r.batch);
  ck_assert(r.args.select.score_stride_row == W_M && r.args.select.score_stride_head == W_PT * W_M);
  ck_assert(r.args.select.topk_stride_row == W_K && r.args.select.topk_stride_head == W_PT * W_K);
  ck_assert_int_eq(check_call(&ctx, &w, MERGE, &r), M3IDX_OK);
  ck_assert_int_eq(r.args.merge.keys_stride_part, W_H * W_PT * W_K);
  ck_assert(r.args.merge.topk_stride_row == W_K && r.args.merge.topk_stride_head == W_PT * W_K);
  ck_assert_int_eq(check_call(&ctx, &w, TOPK, &r), M3IDX_OK);
  ck_assert(r.args.topk.batch == &r.batch && r.args.topk.sparse == &r.sparse);
  ck_assert(r.sparse.page_stride == 8 && r.sparse.block_table_stride == W_M && r.sparse.table_stride == 8 * W_K);
  ck_assert_int_eq(check_call(&ctx, &w, SPARSE, &r), M3IDX_OK);
  ck_assert(r.args.sparse_table.batch == &r.batch && r.args.sparse_table.sparse.page_stride == 8);
  ck_assert(r.args.sparse_table.sparse.table_stride == 8 * W_K);
  ck_assert(r.args.sparse_table.topk_stride_row == W_K && r.args.sparse_table.topk_stride_head == W_DT * W_K);
  ck_assert_int_eq(check_call(&ctx, &w, INSERT, &r), M3IDX_OK);
  ck_assert(r.args.cache_insert.key.stride[1] == W_D && r.args.cache_insert.key.stride[2] == 1);
}
END_TEST

/* ---- device memory ---- */

/* Addresses that no process has mapped, far apart: following one would crash. */
static void *nowhere(int i) { return (void *)(uintptr_t)(16 + 64 * (uintptr_t)1024 * (uintptr_t)i); }

static void into_nowhere(world *w) {
  w->p.seq_lens = nowhere(0);
  w->p.cu_seqlens = nowhere(1);
  w->p.prefix_lens = nowhere(2);
  w->d.seq_lens = nowhere(3);
  w->p_score.block_table = w->d_score.block_table = w->topk.block_table = nowhere(4);
  w->p_score.q.data = w->d_score.q.data = w->topk.q.data = nowhere(5);
  w->p_score.index_k.data = w->d_score.index_k.data = w->topk.index_k.data = nowhere(6);
  w->p_score.score = w->d_score.score = nowhere(7);
  w->by_batch.score = w->by_counts.score = nowhere(8);
  w->by_counts.num_blocks = nowhere(9);
  w->by_batch.topk_idx = w->by_counts.topk_idx = w->merge.topk_idx = w->topk.topk_idx = nowhere(10);
  w->by_batch.keys = w->by_counts.keys = w->merge.merged_keys = nowhere(11);
  w->merge.keys = nowhere(12);
  w->sparse.block_table = w->table_args.sparse.block_table = nowhere(13);
  w->sparse.table = w->table_args.sparse.table = nowhere(14);
  w->sparse.context_lens = w->table_args.sparse.context_lens = nowhere(15);
  w->table_args.topk_idx = nowhere(16);
  w->insert.key.data = nowhere(17);
  w->insert.slot_mapping = nowhere(18);
  w->insert.cache.data = nowhere(19);
}

START_TEST(device_is_not_followed) {
  static world w;
  m3idx_context ctx = {.memory = M3IDX_DEVICE_MEMORY};
  m3idx_resolved r;
  make_world(&w);
  into_nowhere(&w);
  if (check_call(&ctx, &w, (call)_i, &r)) ck_abort_msg("call %d: %s", _i, ctx.message);
}
END_TEST

START_TEST(device_pointers_are_judged) {
  static world w;
  m3idx_context ctx = {.memory = M3IDX_DEVICE_MEMORY};
  m3idx_resolved r;
  make_world(&w);
  into_nowhere(&w);
  w.p_score.score = (float *)((char *)nowhere(7) + 1);
  ck_assert_int_eq(check_call(&ctx, &w, PREFILL_SCORE, &r), M3IDX_INVALID);
  ck_assert_ptr_nonnull(strstr(ctx.message, "score = 0x70011 is not aligned to 4 bytes"));
  w.p_score.score = NULL;
  ck_assert_int_eq(check_call(&ctx, &w, PREFILL_SCORE, &r), M3IDX_INVALID);
  w.p_score.score = (float *)((char *)nowhere(6) + 24572); /* the last float of index_k: 3 * 128 * 16 of them */
  ck_assert_int_eq(check_call(&ctx, &w, PREFILL_SCORE, &r), M3IDX_INVALID);
  ck_assert_ptr_nonnull(strstr(ctx.message, "score at 0x6600c..0x66053 overlaps index_k at 0x60010..0x6600f"));
  w.p_score.score = (float *)((char *)nowhere(6) + 24576);
  ck_assert_int_eq(check_call(&ctx, &w, PREFILL_SCORE, &r), M3IDX_OK);
  w.p_score.score = (float *)(UINTPTR_MAX - 3); /* 72 bytes from there pass the last address */
  ck_assert_int_eq(check_call(&ctx, &w, PREFILL_SCORE, &r), M3IDX_INVALID);
  ck_assert_ptr_nonnull(strstr(ctx.message, "+ 72 bytes passes the last address"));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("door_hostile");
  TCase *tcase = tcase_create("door");
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, one_field, 0, LENGTH(fields));
  tcase_add_loop_test(tcase, many_fields, 0, CALLS);
  tcase_add_test(tcase, resolved);
  tcase_add_loop_test(tcase, device_is_not_followed, 0, CALLS);
  tcase_add_test(tcase, device_pointers_are_judged);
  return unit_run(suite);
}
