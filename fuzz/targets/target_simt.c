/* SPDX-License-Identifier: Apache-2.0
 *
 * The HIP kernels on the host executor, which watches every access, against ref: selection of raw patterns (S4), small
 * decode scores (S3) and the fused operation with its table (S5), on all three machines.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz_kit.h"
#include "simt_backend.h"

enum { MACHINES = 3, MAX_COLUMNS = 1100, MAX_REQUESTS = 3, MAX_BLOCKS = 4 };

static m3idx_context *machine(int i) {
  static const char *const names[MACHINES] = {"gfx942", "gfx950", "wave32"};
  static m3idx_context ctx[MACHINES];
  if (!ctx[i].backend) {
    ctx[i].backend = simt_backend(names[i]);
    FUZZ_REQUIRE(ctx[i].backend && ctx[i].backend->open(&ctx[i]) == M3IDX_OK, "no machine %s", names[i]);
  }
  return &ctx[i];
}

/* Ids and keys of one call, by ref and by the machine. */
static void judge_select(fuzz_bytes *in, m3idx_context *simt) {
  static const int64_t widths[] = {1, 2, 63, 64, 65, 127, 128, 129, 130, 255, 256, 257, 511, 512, 513, 640, 1025};
  int32_t blocks[2];
  m3idx_select_args a = {.num_blocks = blocks, .num_heads = 1, .contract = fuzz_contract(in)};
  a.topk = fuzz_between(in, 0, 1) ? 16 : fuzz_between(in, 1, 128);
  a.max_block = fuzz_between(in, 0, 3) ? FUZZ_PICK(in, widths) : fuzz_between(in, 1, MAX_COLUMNS);
  a.num_rows = fuzz_between(in, 1, 2);
  a.init_blocks = fuzz_between(in, 0, 11) % 4;
  a.local_blocks = fuzz_between(in, 0, 11) % 3;
  for (int t = 0; t < 2; t++) {
    const int64_t less = fuzz_between(in, 0, 255) / 2;
    blocks[t] = (int32_t)(less < a.max_block ? a.max_block - less : 0);
  }
  const bool vary = fuzz_between(in, 0, 1);
  const size_t scores = (size_t)(a.num_rows * a.max_block), count = (size_t)(a.num_rows * a.topk);
  float *score = fuzz_buffer(scores * sizeof *score);
  int32_t *ids[2];
  uint64_t *keys[2];
  fuzz_fill(in, vary, score, scores * sizeof *score);
  a.score = score;
  for (int i = 0; i < 2; i++) {
    m3idx_context *ctx = i ? simt : fuzz_context(0);
    a.topk_idx = ids[i] = fuzz_buffer(count * sizeof *ids[i]);
    a.keys = keys[i] = fuzz_buffer(count * sizeof *keys[i]);
    FUZZ_REQUIRE(m3idx_select(ctx, &a) == M3IDX_OK, "%s", m3idx_message(ctx));
  }
  fuzz_same("topk_idx", ids[0], ids[1], count, sizeof **ids);
  fuzz_same("keys", keys[0], keys[1], count, sizeof **keys);
  for (int i = 0; i < 2; i++) {
    free(ids[i]);
    free(keys[i]);
  }
  free(score);
}

static void judge_score(fuzz_bytes *in, m3idx_context *simt) {
  static const int64_t sizes[] = {16, 32, 128, 128};
  int32_t seq[MAX_REQUESTS], table[MAX_REQUESTS * MAX_BLOCKS];
  m3idx_batch b = {.mode = M3IDX_DECODE, .num_requests = fuzz_between(in, 1, 2), .seq_lens = seq};
  const bool sparse = fuzz_between(in, 0, 1);
  b.block_size = sparse ? 128 : FUZZ_PICK(in, sizes);
  b.max_block = fuzz_between(in, 1, b.block_size == 128 ? 2 : MAX_BLOCKS);
  b.decode_query_len = fuzz_between(in, 1, 3);
  b.num_rows = b.num_requests * b.decode_query_len;
  for (int64_t r = 0; r < b.num_requests; r++) seq[r] = (int32_t)fuzz_between(in, 0, b.max_block * b.block_size);
  for (int i = 0; i < MAX_REQUESTS * MAX_BLOCKS; i++) table[i] = (int32_t)fuzz_between(in, 0, 1);
  const int64_t heads = fuzz_between(in, 1, 2), dim = fuzz_between(in, 0, 1) ? 128 : 16, topk = fuzz_between(in, 1, 4);
  const m3idx_dtype q = (m3idx_dtype)fuzz_between(in, 0, M3IDX_DTYPE_COUNT - 1);
  const m3idx_dtype k = (m3idx_dtype)fuzz_between(in, 0, M3IDX_DTYPE_COUNT - 1);
  const float scale = fuzz_between(in, 0, 1) ? 1.0f : 0.08838834764f;
  const int64_t init = fuzz_between(in, 0, 7) % 3, local = fuzz_between(in, 0, 7) % 3;
  const m3idx_contract contract = fuzz_contract(in);
  const bool vary = fuzz_between(in, 0, 1);
  const size_t q_bytes = (size_t)(b.num_rows * heads * dim) * m3idx_dtype_bytes(q);
  const size_t k_bytes = (size_t)(2 * b.block_size * dim) * m3idx_dtype_bytes(k);
  void *queries = fuzz_buffer(q_bytes), *keys = fuzz_buffer(k_bytes);
  fuzz_bytes from = *in;
  fuzz_fill(&from, vary, queries, q_bytes);
  from.at += from.left / 2;
  from.left -= from.left / 2;
  fuzz_fill(&from, vary, keys, k_bytes);
  const m3idx_tensor tensor_q = {queries, q, {b.num_rows, heads, dim}, {0}};
  const m3idx_tensor tensor_k = {keys, k, {2, b.block_size, dim}, {0}};
  const size_t scores = (size_t)(heads * b.num_rows * b.max_block), ids = (size_t)(heads * b.num_rows * topk);
  float *score[2];
  int32_t *out[2]; /* ids, then the table, then the context lengths */
  for (int i = 0; i < 2; i++) {
    m3idx_context *ctx = i ? simt : fuzz_context(0);
    score[i] = fuzz_buffer(scores * sizeof **score);
    out[i] = fuzz_buffer(10 * ids * sizeof **out);
    const m3idx_score_args args = {.batch = &b,
                                   .q = tensor_q,
                                   .index_k = tensor_k,
                                   .block_table = table,
                                   .scale = scale,
                                   .init_blocks = init,
                                   .local_blocks = local,
                                   .score = score[i]};
    const m3idx_sparse_out lines = {.block_table = table, .table = out[i] + ids, .context_lens = out[i] + 9 * ids};
    const m3idx_topk_args fused = {.batch = &b,
                                   .q = tensor_q,
                                   .index_k = tensor_k,
                                   .block_table = table,
                                   .scale = scale,
                                   .init_blocks = init,
                                   .local_blocks = local,
                                   .topk = topk,
                                   .contract = contract,
                                   .topk_idx = out[i],
                                   .sparse = sparse ? &lines : NULL};
    FUZZ_REQUIRE(m3idx_score(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
    FUZZ_REQUIRE(m3idx_topk(ctx, &fused) == M3IDX_OK, "%s", m3idx_message(ctx));
  }
  fuzz_same("score", score[0], score[1], scores, sizeof **score);
  fuzz_same("topk_idx and table", out[0], out[1], 10 * ids, sizeof **out);
  for (int i = 0; i < 2; i++) {
    free(score[i]);
    free(out[i]);
  }
  free(queries);
  free(keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes in = {data, size};
  m3idx_context *simt = machine((int)fuzz_between(&in, 0, MACHINES - 1));
  simt_backend_seed(fuzz_word(&in, 1)); /* the order in which lanes and groups run */
  if (fuzz_between(&in, 0, 1))
    judge_select(&in, simt);
  else
    judge_score(&in, simt);
  return 0;
}
