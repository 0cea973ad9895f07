/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend table and contexts (S7.3): a name takes exactly that backend or fails with its reason; "auto"
 * passes on and says so; a slot that is missing is UNSUPPORTED with a sentence; plugins are judged before use.
 * Plugins are the fakes of fake_plugin.c in PLUGIN_DIR; one lies beside this program under the real name.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>

#include "m3idx.h"
#include "unit.h"

static char why[512];

static m3idx_context *open_as(const char *name, m3idx_status want) {
  const m3idx_options options = {.backend = name};
  m3idx_context *ctx = (m3idx_context *)why; /* must be overwritten either way */
  memset(why, 'x', sizeof why - 1);
  const m3idx_status got = m3idx_open(&ctx, &options, why, sizeof why);
  if (got != want) ck_abort_msg("open(%s): want status %d, got %d: %s", name, (int)want, (int)got, why);
  ck_assert_int_eq(ctx == NULL, want != M3IDX_OK);
  ck_assert_int_eq(why[0] == '\0', want == M3IDX_OK);
  return ctx;
}

static void plugin(const char *file) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", PLUGIN_DIR, file);
  ck_assert_int_eq(setenv("M3IDX_HIP_PLUGIN", path, 1), 0);
}

static void has(const char *text, const char *part) {
  if (!strstr(text, part)) ck_abort_msg("want \"%s\" in \"%s\"", part, text);
}

static int listed(const char *name) {
  for (int i = 0; m3idx_backend_list(i); i++)
    if (!strcmp(m3idx_backend_list(i), name)) return 1;
  return 0;
}

START_TEST(list) {
  ck_assert_str_eq(m3idx_backend_list(0), "ref");
  ck_assert(listed("hip"));
  ck_assert_ptr_null(m3idx_backend_list(-1));
  ck_assert_ptr_null(m3idx_backend_list(1000));
}
END_TEST

START_TEST(ref_by_name) {
  m3idx_context *ctx = open_as("ref", M3IDX_OK);
  ck_assert_str_eq(m3idx_backend_name(ctx), "ref");
  has(m3idx_backend_reason(ctx), "ref");
  ck_assert_str_ne(m3idx_backend_details(ctx), "");
  ck_assert_str_eq(m3idx_message(ctx), "");
  m3idx_close(ctx);
  m3idx_close(NULL);
}
END_TEST

START_TEST(bad_options) {
  m3idx_context *ctx = NULL;
  ck_assert_ptr_null(open_as("REF", M3IDX_INVALID));
  has(why, "\"REF\"");
  ck_assert_ptr_null(open_as("", M3IDX_INVALID));
  const m3idx_options threads = {.backend = "ref", .num_threads = -1}, device = {.backend = "ref", .device = -2};
  ck_assert_int_eq(m3idx_open(&ctx, &threads, why, sizeof why), M3IDX_INVALID);
  has(why, "num_threads = -1");
  ck_assert_int_eq(m3idx_open(&ctx, &device, why, sizeof why), M3IDX_INVALID);
  has(why, "device = -2");
  ck_assert_int_eq(m3idx_open(NULL, NULL, why, sizeof why), M3IDX_INVALID);
  has(why, "ctx is NULL");
  ck_assert_int_eq(m3idx_open(&ctx, &threads, NULL, 0), M3IDX_INVALID); /* nowhere to say why */
  memset(why, 'x', sizeof why);
  ck_assert_int_eq(m3idx_open(&ctx, &threads, why, 5), M3IDX_INVALID); /* cut, ended, not past its end */
  ck_assert_str_eq(why, "num_");
  ck_assert_int_eq(why[5], 'x');
  ck_assert_int_eq(m3idx_open(&ctx, &threads, why + 5, 0), M3IDX_INVALID);
  ck_assert_int_eq(why[5], 'x');
}
END_TEST

START_TEST(null_context) {
  const m3idx_score_args args = {0};
  size_t bytes = 7;
  ck_assert_int_eq(m3idx_score(NULL, &args), M3IDX_INVALID);
  ck_assert_int_eq(m3idx_plan(NULL, M3IDX_OP_score, &args, &bytes), M3IDX_INVALID);
  ck_assert_int_eq(m3idx_set_stream(NULL, NULL, M3IDX_HOST), M3IDX_INVALID);
  ck_assert_int_eq(m3idx_set_workspace(NULL, NULL, 0), M3IDX_INVALID);
  ck_assert_str_ne(m3idx_message(NULL), "");
  ck_assert_str_eq(m3idx_backend_name(NULL), "");
  ck_assert_str_eq(m3idx_backend_reason(NULL), "");
  ck_assert_str_eq(m3idx_backend_details(NULL), "");
  ck_assert_uint_eq(bytes, 7);
}
END_TEST

START_TEST(auto_passes_over) {
  plugin("fake_dead.so");
  m3idx_context *ctx = open_as("auto", M3IDX_OK);
  const char *want = listed("cpu") ? "cpu" : "ref";
  ck_assert_str_eq(m3idx_backend_name(ctx), want);
  has(m3idx_backend_reason(ctx), "auto took ");
  has(m3idx_backend_reason(ctx), "hip: no device here (fake error 100)");
  if (!listed("cpu")) has(m3idx_backend_reason(ctx), "cpu: backend cpu is not in this build");
  m3idx_close(ctx);
  ctx = open_as(NULL, M3IDX_OK); /* NULL = auto */
  ck_assert_str_eq(m3idx_backend_name(ctx), want);
  m3idx_close(ctx);
  ck_assert_int_eq(m3idx_open(&ctx, NULL, NULL, 0), M3IDX_OK); /* no options = auto */
  ck_assert_str_eq(m3idx_backend_name(ctx), want);
  m3idx_close(ctx);
}
END_TEST

/* "hip" never becomes something else: each way a plugin can be wrong is UNAVAILABLE with its reason. */
static const struct {
  const char *file, *want;
} wrong[] = {{"fake_old.so", "ABI 2, this library needs 1"},
             {"fake_null.so", "gives no backend through m3idx_plugin_backend"},
             {"fake_dumb.so", "gives no backend through m3idx_plugin_backend"},
             {"fake_dead.so", "no device here (fake error 100)"},
             {"absent.so", "absent.so"},
             {"not_elf.so", "not_elf.so"}};

START_TEST(wrong_plugins) {
  plugin(wrong[_i].file);
  ck_assert_ptr_null(open_as("hip", M3IDX_UNAVAILABLE));
  has(why, wrong[_i].want);
}
END_TEST

static void good_plugin(m3idx_context *ctx) {
  ck_assert_str_eq(m3idx_backend_name(ctx), "hip");
  ck_assert_str_eq(m3idx_backend_details(ctx), "fake device 0");
  m3idx_close(ctx);
}

START_TEST(plugin_by_name_and_auto) {
  plugin("fake_good.so");
  good_plugin(open_as("hip", M3IDX_OK));
  m3idx_context *ctx = open_as("auto", M3IDX_OK);
  ck_assert_str_eq(m3idx_backend_reason(ctx), "auto took hip");
  good_plugin(ctx);
}
END_TEST

START_TEST(plugin_beside) {
  unsetenv("M3IDX_HIP_PLUGIN");
  good_plugin(open_as("hip", M3IDX_OK));
  ck_assert_int_eq(setenv("M3IDX_HIP_PLUGIN", "", 1), 0); /* empty = not set */
  good_plugin(open_as("hip", M3IDX_OK));
}
END_TEST

/* Two contexts on one plugin: closing one leaves the other working. */
START_TEST(two_contexts) {
  plugin("fake_good.so");
  m3idx_context *a = open_as("hip", M3IDX_OK), *b = open_as("hip", M3IDX_OK);
  m3idx_close(a);
  good_plugin(b);
}
END_TEST

/* One prefill row of one request; block_size, scale and strides left to their defaults. */
typedef struct tiny {
  float q[16], k[128 * 16], score[4];
  int32_t seq_lens[1], cu_seqlens[2], prefix_lens[1], block_table[4];
  m3idx_batch batch;
  m3idx_score_args args;
} tiny;

static void make_tiny(tiny *t) {
  memset(t, 0, sizeof *t);
  t->seq_lens[0] = t->cu_seqlens[1] = 1;
  t->batch = (m3idx_batch){.num_requests = 1,
                           .num_rows = 1,
                           .max_block = 4,
                           .seq_lens = t->seq_lens,
                           .cu_seqlens = t->cu_seqlens,
                           .prefix_lens = t->prefix_lens};
  t->args = (m3idx_score_args){.batch = &t->batch,
                               .q = {.data = t->q, .dtype = M3IDX_F32, .shape = {1, 1, 16}},
                               .index_k = {.data = t->k, .dtype = M3IDX_F32, .shape = {1, 128, 16}},
                               .block_table = t->block_table,
                               .score = t->score};
}

START_TEST(slots) {
  static tiny t;
  plugin("fake_good.so");
  m3idx_context *ctx = open_as("hip", M3IDX_OK);
  make_tiny(&t);
  ck_assert_int_eq(m3idx_score(ctx, &t.args), M3IDX_DEVICE); /* the slot's own status and sentence */
  ck_assert_str_eq(m3idx_message(ctx), "fake fault, block_size 128, scale 1");
  int32_t ids[1] = {7};
  const m3idx_topk_args topk = {.batch = &t.batch,
                                .q = t.args.q,
                                .index_k = t.args.index_k,
                                .block_table = t.block_table,
                                .topk = 1,
                                .topk_idx = ids};
  ck_assert_int_eq(m3idx_topk(ctx, &topk), M3IDX_UNSUPPORTED);
  ck_assert_str_eq(m3idx_message(ctx), "backend hip does not implement topk");
  ck_assert_int_eq(ids[0], 7);
  t.batch.num_requests = t.batch.num_rows = t.args.q.shape[0] = t.cu_seqlens[1] = 0;
  ck_assert_int_eq(m3idx_score(ctx, &t.args), M3IDX_OK); /* nothing to write: the slot, which fails, is not called */
  make_tiny(&t);
  m3idx_topk_args bad = topk;
  bad.topk = 0;
  ck_assert_int_eq(m3idx_topk(ctx, &bad), M3IDX_INVALID); /* the door comes before the slot */
  m3idx_close(ctx);
}
END_TEST

START_TEST(plan) {
  static tiny t;
  size_t bytes = 7;
  plugin("fake_good.so");
  m3idx_context *hip = open_as("hip", M3IDX_OK), *ref = open_as("ref", M3IDX_OK);
  make_tiny(&t);
  ck_assert_int_eq(m3idx_plan(hip, M3IDX_OP_score, &t.args, &bytes), M3IDX_OK);
  ck_assert_uint_eq(bytes, 4);
  ck_assert_int_eq(m3idx_plan(ref, M3IDX_OP_score, &t.args, &bytes), M3IDX_OK);
  ck_assert_uint_eq(bytes, 0);
  bytes = 7;
  ck_assert_int_eq(m3idx_plan(hip, M3IDX_OP_COUNT, &t.args, &bytes), M3IDX_INVALID);
  has(m3idx_message(hip), "op = 6");
  ck_assert_int_eq(m3idx_plan(hip, M3IDX_OP_score, NULL, &bytes), M3IDX_INVALID);
  ck_assert_int_eq(m3idx_plan(hip, M3IDX_OP_score, &t.args, NULL), M3IDX_INVALID);
  has(m3idx_message(hip), "workspace_bytes is NULL");
  t.args.scale = -1;
  ck_assert_int_eq(m3idx_plan(hip, M3IDX_OP_score, &t.args, &bytes), M3IDX_INVALID);
  has(m3idx_message(hip), "scale = -1");
  ck_assert_uint_eq(bytes, 7);
  m3idx_close(hip);
  m3idx_close(ref);
}
END_TEST

START_TEST(stream_and_workspace) {
  _Alignas(8) char room[64];
  plugin("fake_good.so");
  m3idx_context *hip = open_as("hip", M3IDX_OK), *ref = open_as("ref", M3IDX_OK);
  ck_assert_int_eq(m3idx_set_stream(hip, room, M3IDX_DEVICE_MEMORY), M3IDX_OK);
  ck_assert_int_eq(m3idx_set_stream(hip, NULL, (m3idx_memory)2), M3IDX_INVALID);
  has(m3idx_message(hip), "memory = 2");
  ck_assert_int_eq(m3idx_set_stream(ref, NULL, M3IDX_HOST), M3IDX_OK);
  ck_assert_int_eq(m3idx_set_stream(ref, NULL, M3IDX_DEVICE_MEMORY), M3IDX_UNSUPPORTED);
  ck_assert_int_eq(m3idx_set_stream(ref, room, M3IDX_HOST), M3IDX_UNSUPPORTED);
  has(m3idx_message(ref), "backend ref works in host memory");
  ck_assert_int_eq(m3idx_set_workspace(hip, room, sizeof room), M3IDX_OK);
  ck_assert_int_eq(m3idx_set_workspace(hip, room + 4, 8), M3IDX_INVALID);
  has(m3idx_message(hip), "not aligned to 8 bytes");
  ck_assert_int_eq(m3idx_set_workspace(hip, NULL, 8), M3IDX_INVALID);
  has(m3idx_message(hip), "workspace_bytes = 8");
  ck_assert_int_eq(m3idx_set_workspace(hip, NULL, 0), M3IDX_OK);
  m3idx_close(hip);
  m3idx_close(ref);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("backend");
  TCase *tcase = tcase_create("backend");
  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, list);
  tcase_add_test(tcase, ref_by_name);
  tcase_add_test(tcase, bad_options);
  tcase_add_test(tcase, null_context);
  tcase_add_test(tcase, auto_passes_over);
  tcase_add_loop_test(tcase, wrong_plugins, 0, sizeof wrong / sizeof *wrong);
  tcase_add_test(tcase, plugin_by_name_and_auto);
  tcase_add_test(tcase, plugin_beside);
  tcase_add_test(tcase, two_contexts);
  tcase_add_test(tcase, slots);
  tcase_add_test(tcase, plan);
  tcase_add_test(tcase, stream_and_workspace);
  return unit_run(suite);
}
