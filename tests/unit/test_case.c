/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases in memory (common/case.c, caserun.c): what a view says, that every malformed field is named, and that a
 * run adds all outputs or none.
 */
#include <string.h>

#include "case.h"
#include "unit.h"

static const char decode_line[] = "--op decode --seq-lens 300,0 --decode-query-len 2 --heads 3 --head-dim 32 --topk 5 "
                                  "--init 1 --local 2 --max-block 4 --scale 0.25 --contract atom --page-stride 16 "
                                  "--sparse-table 1 --attention-table 1 --q-dtype f16 --k-dtype e5m2fnuz";
static const char prefill_line[] = "--op prefill --q-lens 3,2 --prefix-lens 300,0 --head-dim 16 --block-size 64";
static const char select_line[] = "--op select --num-blocks 3,0 --heads 2 --topk 4";

static case_file generated(const char *line) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_spec spec;
  case_file file;
  ck_assert_msg(!case_spec_parse_line(line, &spec, why), "%s", why);
  ck_assert_msg(!case_generate(&spec, &file, why), "%s", why);
  case_spec_free(&spec);
  return file;
}

START_TEST(decode_view) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_file file = generated(decode_line);
  m3idx_case c;
  ck_assert_msg(!case_view(&file, &c, why), "%s", why);
  ck_assert_int_eq(c.op, CASE_DECODE);
  const int64_t want[] = {2, 4, 3, 32, 128, 3, 4, 5, 1, 2, 2, 16};
  const int64_t got[] = {
      c.R, c.T, c.H, c.D, c.B, c.P, c.M, c.K, c.init_blocks, c.local_blocks, c.decode_query_len, c.page_stride};
  ck_assert_mem_eq(got, want, sizeof want);
  ck_assert(c.scale == 0.25f && c.sparse_table);
  ck_assert_int_eq(c.contract.nan, M3IDX_NAN_BELOW_MINUS_INF);
  ck_assert_int_eq(c.q_dtype, M3IDX_F16);
  ck_assert_int_eq(c.k_dtype, M3IDX_E5M2FNUZ);
  ck_assert_ptr_eq(c.q, case_find(&file, "q")->data);
  ck_assert_ptr_eq(c.attention_block_table, case_find(&file, "attention_block_table")->data);
  ck_assert_int_eq(c.block_table_stride, 5);
  ck_assert_ptr_null(c.cu_seqlens);
  case_file_free(&file);
}
END_TEST

/* Metadata with defaults may be absent; unknown metadata and tensors are no one's business. */
START_TEST(defaults_and_strangers) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_file file = generated(prefill_line), kept = {0};
  static const char *const optional[] = {"contract",         "scale",    "page_stride", "sparse_table", "q_encoding",
                                         "index_k_encoding", "case_line"};
  for (int64_t i = 0; i < file.num_metadata; i++) {
    bool drop = false;
    for (size_t o = 0; o < sizeof optional / sizeof *optional; o++)
      drop = drop || !strcmp(file.metadata[i].key, optional[o]);
    if (!drop) case_set_metadata(&kept, file.metadata[i].key, file.metadata[i].value);
  }
  case_set_metadata(&kept, "author", "someone");
  kept.tensors = file.tensors;
  kept.num_tensors = file.num_tensors;
  file.tensors = NULL;
  file.num_tensors = 0;
  case_add_tensor(&kept, "mine", CASE_F64, 1, (int64_t[]){3});
  m3idx_case c;
  ck_assert_msg(!case_view(&kept, &c, why), "%s", why);
  ck_assert_int_eq(c.page_stride, 8);
  ck_assert_int_eq(c.contract.tie, M3IDX_TIE_LOWER_ID);
  ck_assert(c.scale == 1 && !c.sparse_table);
  ck_assert_int_eq(c.T, 5);
  ck_assert_int_eq(c.B, 64);
  case_file_free(&kept);
  case_file_free(&file);
}
END_TEST

/* ---- malformed metadata; value NULL removes the field ---- */

static const struct {
  const char *line, *key, *value, *want;
} fields[] = {
    {decode_line, "format", NULL, "metadata format: missing"},
    {decode_line, "format", "m3idx-case/2", "metadata format: \"m3idx-case/2\", must be"},
    {decode_line, "op", NULL, "metadata op: missing"},
    {decode_line, "op", "Decode", "metadata op: \"Decode\", must be prefill, decode or select"},
    {decode_line, "topk", NULL, "metadata topk: missing"},
    {decode_line, "topk", "", "metadata topk: \"\" is not an integer"},
    {decode_line, "topk", "0", "metadata topk: 0, must be 1..128"},
    {decode_line, "topk", "129", "metadata topk: 129, must be 1..128"},
    {decode_line, "topk", "-", "metadata topk: \"-\" is not an integer"},
    {decode_line, "topk", " 5", "metadata topk: \" 5\" is not an integer"},
    {decode_line, "topk", "5.0", "metadata topk: \"5.0\" is not an integer"},
    {decode_line, "topk", "99999999999999999999", "metadata topk: 99999999999999999999, must be 1..128"},
    {decode_line, "max_block", NULL, "metadata max_block: missing"},
    {decode_line, "max_block", "-1", "metadata max_block: -1, must be 0.."},
    {decode_line, "max_block", "6", "tensor block_table: dimension 1 is 5, must be at least max_block = 6"},
    {decode_line, "init_blocks", NULL, "metadata init_blocks: missing"},
    {decode_line, "init_blocks", "-1", "metadata init_blocks: -1, must be 0.."},
    {decode_line, "local_blocks", NULL, "metadata local_blocks: missing"},
    {decode_line, "local_blocks", "x", "metadata local_blocks: \"x\" is not an integer"},
    {decode_line, "decode_query_len", NULL, "metadata decode_query_len: missing"},
    {decode_line, "decode_query_len", "0", "metadata decode_query_len: 0, must be 1.."},
    {decode_line, "decode_query_len", "3", "tensor q: dimension 0 is 4, must be 6"},
    {decode_line, "decode_query_len", "2147483647", "metadata decode_query_len: 2147483647 for 2 requests"},
    {decode_line, "contract", "llama", "metadata contract: \"llama\" is neither"},
    {decode_line, "scale", "0", "metadata scale: \"0\", must be a finite number above 0"},
    {decode_line, "scale", "inf", "metadata scale: \"inf\", must be"},
    {decode_line, "scale", "nan", "metadata scale: \"nan\", must be"},
    {decode_line, "scale", "1 ", "metadata scale: \"1 \", must be"},
    {decode_line, "scale", " 1", "metadata scale: \" 1\", must be"},
    {decode_line, "scale", "+1", "metadata scale: \"+1\", must be"},
    {decode_line, "scale", "", "metadata scale: \"\", must be"},
    {decode_line, "scale", "x", "metadata scale: \"x\", must be"},
    {decode_line, "scale", ".", "metadata scale: \".\", must be"},
    {decode_line, "scale", "1e39", "metadata scale: \"1e39\", must be"},
    {decode_line, "page_stride", "12", "metadata page_stride: 12, must be 8 or 16"},
    {decode_line, "page_stride", "32", "metadata page_stride: 32, must be 8..16"},
    {decode_line, "sparse_table", "yes", "metadata sparse_table: \"yes\" is not an integer"},
    {decode_line, "q_encoding", "bf16", "metadata q_encoding: bf16, but tensor q is F16"},
    {decode_line, "q_encoding", "half", "metadata q_encoding: \"half\" is no number format"},
    {decode_line, "index_k_encoding", NULL, "metadata index_k_encoding: missing, tensor index_k is U8"},
    {decode_line, "index_k_encoding", "f16", "metadata index_k_encoding: f16 is not one byte"},
    {select_line, "sparse_table", "1", "metadata sparse_table: 1, must be 0 with op select"},
    {select_line, "max_block", "4", "tensor score: dimension 2 is 3, must be 4"},
};

static void remove_metadata(case_file *file, const char *key) {
  for (int64_t i = 0; i < file->num_metadata; i++)
    if (!strcmp(file->metadata[i].key, key)) {
      free(file->metadata[i].key);
      free(file->metadata[i].value);
      file->metadata[i] = file->metadata[--file->num_metadata];
    }
}

START_TEST(malformed_metadata) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_file file = generated(fields[_i].line);
  if (fields[_i].value)
    case_set_metadata(&file, fields[_i].key, fields[_i].value);
  else
    remove_metadata(&file, fields[_i].key);
  m3idx_case c;
  ck_assert_int_eq(case_view(&file, &c, why), -1);
  ck_assert_msg(strstr(why, fields[_i].want) == why, "want \"%s...\"\n  got \"%s\"", fields[_i].want, why);
  case_file_free(&file);
}
END_TEST

/* ---- malformed tensors; rank -1 removes the tensor ---- */

static const struct {
  const char *line, *name;
  case_dtype dtype;
  int rank;
  int64_t shape[3];
  const char *want;
} tensors[] = {
    {decode_line, "q", 0, -1, {0}, "tensor q: missing"},
    {decode_line, "index_k", 0, -1, {0}, "tensor index_k: missing"},
    {decode_line, "block_table", 0, -1, {0}, "tensor block_table: missing"},
    {decode_line, "seq_lens", 0, -1, {0}, "tensor seq_lens: missing"},
    {prefill_line, "cu_seqlens", 0, -1, {0}, "tensor cu_seqlens: missing"},
    {prefill_line, "prefix_lens", 0, -1, {0}, "tensor prefix_lens: missing"},
    {select_line, "score", 0, -1, {0}, "tensor score: missing"},
    {select_line, "num_blocks", 0, -1, {0}, "tensor num_blocks: missing"},
    {decode_line, "q", CASE_F64, 3, {4, 3, 32}, "tensor q: dtype F64, must be F32, F16"},
    {decode_line, "q", CASE_F16, 2, {4, 96}, "tensor q: rank 2, must be 3"},
    {decode_line, "q", CASE_F16, 3, {5, 3, 32}, "tensor q: dimension 0 is 5, must be 4"},
    {decode_line, "q", CASE_F16, 3, {4, 0, 32}, "tensor q: dimension 1 is 0, must be at least 1"},
    {decode_line, "q", CASE_F16, 3, {4, 3, 16}, "tensor index_k: dimension 2 is 32, must be 16"},
    {decode_line, "q", CASE_U8, 3, {4, 3, 32}, "metadata q_encoding: f16 is not one byte"},
    {decode_line, "index_k", CASE_U8, 3, {3, 64, 32}, "tensor index_k: dimension 1 is 64, must be 128 with"},
    {prefill_line, "index_k", CASE_BF16, 3, {7, 48, 16}, "tensor index_k: dimension 1 is 48, must be 16, 32"},
    {prefill_line, "index_k", CASE_BF16, 3, {7, 8, 16}, "tensor index_k: dimension 1 is 8, must be 16, 32"},
    {prefill_line, "index_k", CASE_BF16, 3, {7, 256, 16}, "tensor index_k: dimension 1 is 256, must be 16, 32"},
    {decode_line, "block_table", CASE_I64, 2, {2, 5}, "tensor block_table: dtype I64, must be I32"},
    {decode_line, "block_table", CASE_I32, 2, {3, 5}, "tensor block_table: dimension 0 is 3, must be 2"},
    {decode_line, "attention_block_table", CASE_I32, 2, {2, 3}, "tensor attention_block_table: dimension 1 is 3"},
    {decode_line, "seq_lens", CASE_I32, 2, {1, 2}, "tensor seq_lens: rank 2, must be 1"},
    {prefill_line, "cu_seqlens", CASE_I32, 1, {2}, "tensor cu_seqlens: dimension 0 is 2, must be 3"},
    {prefill_line, "prefix_lens", CASE_I32, 1, {3}, "tensor prefix_lens: dimension 0 is 3, must be 2"},
    {select_line, "score", CASE_F16, 3, {2, 2, 3}, "tensor score: dtype F16, must be F32"},
    {select_line, "score", CASE_F32, 3, {0, 2, 3}, "tensor score: dimension 0 is 0, must be at least 1"},
    {select_line, "num_blocks", CASE_I32, 1, {3}, "tensor num_blocks: dimension 0 is 3, must be 2"},
};

START_TEST(malformed_tensors) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_file file = generated(tensors[_i].line);
  if (tensors[_i].rank < 0)
    case_remove_tensor(&file, tensors[_i].name);
  else
    ck_assert_ptr_nonnull(
        case_add_tensor(&file, tensors[_i].name, tensors[_i].dtype, tensors[_i].rank, tensors[_i].shape));
  m3idx_case c;
  ck_assert_int_eq(case_view(&file, &c, why), -1);
  ck_assert_msg(strstr(why, tensors[_i].want) == why, "want \"%s...\"\n  got \"%s\"", tensors[_i].want, why);
  case_file_free(&file);
}
END_TEST

START_TEST(head_dim_of_view) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_file file = generated(prefill_line);
  const int64_t dims[] = {0, 8, 24, 272};
  case_add_tensor(&file, "q", CASE_BF16, 3, (int64_t[]){5, 1, dims[_i]});
  case_add_tensor(&file, "index_k", CASE_BF16, 3, (int64_t[]){7, 64, dims[_i]});
  m3idx_case c;
  ck_assert_int_eq(case_view(&file, &c, why), -1);
  ck_assert_msg(strstr(why, "tensor q: dimension 2 is ") == why, "%s", why);
  case_file_free(&file);
}
END_TEST

/* Shapes that no tensor has leave the file as it was; what can be has the bytes of its product. */
START_TEST(sizes) {
  static const int64_t two[] = {3, 5}, negative[] = {3, -1}, none[] = {INT64_MAX, 0}, most[] = {INT64_MAX, 3};
  case_file file = {0};
  size_t bytes = 0;
  ck_assert_int_eq(case_tensor_bytes(CASE_F64, 2, two, &bytes), 0);
  ck_assert_uint_eq(bytes, 120);
  ck_assert_int_eq(case_tensor_bytes(CASE_F64, 0, NULL, &bytes), 0);
  ck_assert_uint_eq(bytes, 8);
  ck_assert_int_eq(case_tensor_bytes(CASE_F64, 2, none, &bytes), 0);
  ck_assert_uint_eq(bytes, 0);
  ck_assert_int_eq(case_tensor_bytes(CASE_F64, -1, two, &bytes), -1);
  ck_assert_int_eq(case_tensor_bytes(CASE_F64, CASE_MAX_RANK + 1, two, &bytes), -1);
  ck_assert_int_eq(case_tensor_bytes(CASE_U8, 2, negative, &bytes), -1);
  ck_assert_int_eq(case_tensor_bytes(CASE_U8, 2, most, &bytes), -1);
  ck_assert_ptr_null(case_add_tensor(&file, "a", CASE_U8, 2, negative));
  ck_assert_ptr_null(case_add_tensor(&file, "a", CASE_U8, 2, most));
  ck_assert_int_eq(file.num_tensors, 0);
}
END_TEST

/* ---- little-endian bytes in pieces, and a sink that refuses ---- */

typedef struct collected {
  unsigned char bytes[20000];
  size_t size;
  int refuse;
} collected;

static int collect(void *user, const void *bytes, size_t n) {
  collected *c = user;
  if (c->refuse) return c->refuse;
  memcpy(c->bytes + c->size, bytes, n);
  c->size += n;
  return 0;
}

START_TEST(little_endian) {
  case_file file = {0};
  case_tensor *t = case_add_tensor(&file, "t", CASE_U32, 1, (int64_t[]){5000});
  for (uint32_t i = 0; i < 5000; i++) ((uint32_t *)t->data)[i] = i * 2654435761u;
  static collected c;
  ck_assert_int_eq(case_tensor_le(t, collect, &c), 0);
  ck_assert_uint_eq(c.size, 20000);
  for (uint32_t i = 0; i < 20000; i++) ck_assert_uint_eq(c.bytes[i], (i / 4 * 2654435761u) >> i % 4 * 8 & 255);
  c.refuse = 7;
  ck_assert_int_eq(case_tensor_le(t, collect, &c), 7);
  case_file_free(&file);
}
END_TEST

/* ---- runs ---- */

START_TEST(outputs_of_a_run) {
  static const char *const all[] = {decode_line, prefill_line, select_line};
  char why[CASE_MESSAGE_BYTES] = "";
  case_file file = generated(all[_i]);
  m3idx_context *ctx;
  ck_assert_int_eq(m3idx_open(&ctx, &(m3idx_options){.backend = "ref"}, why, sizeof why), M3IDX_OK);
  int64_t inputs = file.num_tensors;
  bool select = _i == 2, sparse = _i == 0;
  ck_assert_msg(case_run(ctx, &file, true, why) == M3IDX_OK, "%s", why);
  ck_assert_int_eq(file.num_tensors, inputs + (select ? 1 : 2) + (sparse ? 2 : 0));
  case_tensor *topk = case_find(&file, "topk_idx");
  int32_t *scored = malloc(topk->bytes);
  memcpy(scored, topk->data, topk->bytes);
  if (sparse) {
    case_tensor *table = case_find(&file, "sparse_block_table");
    ck_assert_int_eq(table->shape[0], 4 * 3);
    ck_assert_int_eq(table->shape[1], 8 * 5);
    ck_assert_int_eq(case_find(&file, "sparse_context_lens")->shape[0], 4 * 3);
  }
  /* The fused run gives the same selection and leaves no score of the run before it. */
  ck_assert_msg(case_run(ctx, &file, false, why) == M3IDX_OK, "%s", why);
  ck_assert((case_find(&file, "score") != NULL) == select);
  topk = case_find(&file, "topk_idx");
  ck_assert_mem_eq(topk->data, scored, topk->bytes);
  free(scored);
  m3idx_close(ctx);
  case_file_free(&file);
}
END_TEST

/* S7.1: what the door refuses leaves the file as it was. */
START_TEST(refused_run) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_file file = generated(decode_line);
  int64_t before = file.num_tensors;
  m3idx_context *ctx;
  ck_assert_int_eq(m3idx_open(&ctx, &(m3idx_options){.backend = "ref"}, why, sizeof why), M3IDX_OK);
  ((int32_t *)case_find(&file, "seq_lens")->data)[1] = -1;
  ck_assert_int_eq(case_run(ctx, &file, true, why), M3IDX_INVALID);
  ck_assert_msg(strstr(why, "seq_lens") != NULL, "%s", why);
  ck_assert_int_eq(file.num_tensors, before);
  case_remove_tensor(&file, "q");
  ck_assert_int_eq(case_run(ctx, &file, true, why), M3IDX_INVALID);
  ck_assert_str_eq(why, "tensor q: missing");
  m3idx_close(ctx);
  case_file_free(&file);
}
END_TEST

/* ---- what the data kinds do to scores ---- */

static case_file scored(const char *data, int q, int k) {
  char line[256], why[CASE_MESSAGE_BYTES] = "";
  snprintf(line, sizeof line,
           "--op decode --seq-lens 4096 --decode-query-len 8 --heads 2 --head-dim 32 --q-dtype %s --k-dtype %s "
           "--data %s --seed 1",
           m3idx_dtype_name((m3idx_dtype)q), m3idx_dtype_name((m3idx_dtype)k), data);
  case_file file = generated(line);
  m3idx_context *ctx;
  ck_assert_int_eq(m3idx_open(&ctx, &(m3idx_options){.backend = "ref"}, why, sizeof why), M3IDX_OK);
  ck_assert_msg(case_run(ctx, &file, true, why) == M3IDX_OK, "%s", why);
  m3idx_close(ctx);
  return file;
}

/* Near, in every pair of formats: a row's 31 full blocks lie within 10 ulps (the dots within 8 ulps of X, which may
 * stand just above a power of two), in at least two values, and far fewer values than blocks. */
START_TEST(near_scores) {
  case_file file = scored("near", _i / M3IDX_DTYPE_COUNT, _i % M3IDX_DTYPE_COUNT);
  const uint32_t *bits = case_find(&file, "score")->data;
  for (int row = 0; row < 16; row++) {
    uint32_t low = UINT32_MAX, high = 0, values = 0;
    for (int b = 0; b < 31; b++) {
      uint32_t score = bits[row * 32 + b];
      bool seen = false;
      for (int a = 0; a < b; a++) seen = seen || bits[row * 32 + a] == score;
      values += !seen;
      if (score < low) low = score;
      if (score > high) high = score;
    }
    ck_assert_uint_le(high - low, 10);
    ck_assert_uint_ge(values, 2);
    ck_assert_uint_lt(values, 12);
  }
  case_file_free(&file);
}
END_TEST

/* Wide, in every format: most scores are finite and most rows' scores differ, up to overflow in the wide formats. */
START_TEST(wide_scores) {
  case_file file = scored("wide", _i, _i);
  const uint32_t *bits = case_find(&file, "score")->data;
  int infinite = 0, equal = 0;
  for (int row = 0; row < 16; row++)
    for (int b = 0; b < 32; b++) {
      uint32_t score = bits[row * 32 + b];
      infinite += (score & 0x7fffffff) == 0x7f800000;
      bool twice = false;
      for (int a = 0; a < b; a++) twice = twice || bits[row * 32 + a] == score;
      equal += twice;
    }
  ck_assert_int_lt(infinite, 16 * 32 / 2);
  ck_assert_int_lt(equal, 16 * 32 / 2);
  if (_i == M3IDX_F32 || _i == M3IDX_BF16) ck_assert_int_gt(infinite, 0);
  case_file_free(&file);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("case");
  TCase *tcase = tcase_create("case");
  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, decode_view);
  tcase_add_test(tcase, defaults_and_strangers);
  tcase_add_loop_test(tcase, malformed_metadata, 0, sizeof fields / sizeof *fields);
  tcase_add_loop_test(tcase, malformed_tensors, 0, sizeof tensors / sizeof *tensors);
  tcase_add_loop_test(tcase, head_dim_of_view, 0, 4);
  tcase_add_test(tcase, sizes);
  tcase_add_test(tcase, little_endian);
  tcase_add_loop_test(tcase, outputs_of_a_run, 0, 3);
  tcase_add_test(tcase, refused_run);
  tcase_add_loop_test(tcase, near_scores, 0, M3IDX_DTYPE_COUNT * M3IDX_DTYPE_COUNT);
  tcase_add_loop_test(tcase, wide_scores, 0, M3IDX_DTYPE_COUNT);
  return unit_run(suite);
}
