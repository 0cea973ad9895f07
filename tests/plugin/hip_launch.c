/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens backend "hip", prints its details and calls every operation once; for plugin.sh, which reads what the fake
 * runtime (fake_amdhip64.cpp) says of the launches.  Results are not looked at: nothing computes them.
 */
#include <stdio.h>
#include <string.h>

#include "m3idx.h"

enum { D = 128, B = 128, M = 4, K = 16 };

static m3idx_context *ctx;
static int failed;

static void called(const char *op, m3idx_status status) {
  printf("%s %d %s\n", op, (int)status, status ? m3idx_message(ctx) : "");
  fflush(stdout);
  failed |= status != M3IDX_OK;
}

int main(void) {
  static uint16_t q[D], keys[M * B * D];
  static float score[M];
  static int32_t idx[K], table[8 * K], context_len;
  static uint64_t part[K];
  const int32_t seq_len = M * B, blocks[M] = {0, 1, 2, 3};
  const int64_t slot = 5;
  char why[512];
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (m3idx_open(&ctx, &(m3idx_options){.backend = "hip"}, why, sizeof why)) {
    printf("%s\n", why);
    return 1;
  }
  printf("%s\n", m3idx_backend_details(ctx));
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = 1,
                             .num_rows = 1,
                             .max_block = M,
                             .decode_query_len = 1,
                             .seq_lens = &seq_len};
  const m3idx_tensor q_tensor = {q, M3IDX_BF16, {1, 1, D}, {0}}, key_tensor = {keys, M3IDX_BF16, {M, B, D}, {0}};
  const m3idx_sparse_out sparse = {.block_table = blocks, .table = table, .context_lens = &context_len};
  called("score",
         m3idx_score(
             ctx, &(m3idx_score_args){
                      .batch = &batch, .q = q_tensor, .index_k = key_tensor, .block_table = blocks, .score = score}));
  called("select", m3idx_select(ctx, &(m3idx_select_args){.batch = &batch,
                                                          .num_heads = 1,
                                                          .num_rows = 1,
                                                          .max_block = M,
                                                          .score = score,
                                                          .topk = K,
                                                          .topk_idx = idx}));
  called(
      "merge",
      m3idx_merge(ctx, &(m3idx_merge_args){
                           .num_parts = 1, .num_heads = 1, .num_rows = 1, .topk = K, .keys = part, .topk_idx = idx}));
  called("topk", m3idx_topk(ctx, &(m3idx_topk_args){.batch = &batch,
                                                    .q = q_tensor,
                                                    .index_k = key_tensor,
                                                    .block_table = blocks,
                                                    .topk = K,
                                                    .topk_idx = idx,
                                                    .sparse = &sparse}));
  memset(idx, 0xff, sizeof idx); /* all slots empty, whatever came back */
  called("sparse_table",
         m3idx_sparse_table(ctx, &(m3idx_sparse_table_args){
                                     .batch = &batch, .num_heads = 1, .topk = K, .topk_idx = idx, .sparse = sparse}));
  called("cache_insert", m3idx_cache_insert(ctx, &(m3idx_cache_insert_args){.key = {q, M3IDX_BF16, {1, 1, D}, {0}},
                                                                            .slot_mapping = &slot,
                                                                            .cache = key_tensor}));
  m3idx_close(ctx);
  return failed;
}
