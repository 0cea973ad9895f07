/* SPDX-License-Identifier: Apache-2.0
 *
 * The world of door_world.h: its good calls, one change of it, and the judgement of a row.
 */
#include "door_world.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

static void world_inputs(world *w) {
  static const int32_t pages[W_R * W_M] = {2, -7, 99, 0, 1, -1}; /* live: [0][0], [1][0], [1][1]; the rest poison */
  for (int i = 0; i < W_R * W_M; i++) w->block_table[i] = w->attention_table[i] = pages[i];
  for (int i = 0; i < W_DT * W_H * W_D; i++) w->q[i] = (uint16_t)(0x3f80 + i % 7);
  for (int i = 0; i < W_P * 128 * W_D; i++) w->index_k[i] = (float)(i % 11);
  /* Prefill: rows 0, 1 at positions 3, 4 of 5 keys; row 2 at position 130 of 140. */
  w->p_cu_seqlens[1] = 2;
  w->p_cu_seqlens[2] = 3;
  w->p_prefix_lens[0] = 3;
  w->p_prefix_lens[1] = 130;
  w->p_seq_lens[0] = 5;
  w->p_seq_lens[1] = 140;
  w->d_seq_lens[0] = 1; /* its first row stands at position -1 */
  w->d_seq_lens[1] = 140;
  w->num_blocks[1] = 3;
  w->num_blocks[2] = 1;
  w->part_keys[0] = UINT64_C(0xbf800000fffffffe); /* 1.0, block 1, ties to the lower id */
  for (int i = 0; i < W_H * W_DT * W_K; i++) w->chosen[i] = i % W_K == 0 ? 0 : -1;
  w->slots[0] = 383;
  w->slots[1] = -1;
  w->slots[2] = 5;
}

void world_arguments(world *w) {
  w->p = (m3idx_batch){.mode = M3IDX_PREFILL,
                       .num_requests = W_R,
                       .num_rows = W_PT,
                       .max_block = W_M,
                       .block_size = 128,
                       .seq_lens = w->p_seq_lens,
                       .cu_seqlens = w->p_cu_seqlens,
                       .prefix_lens = w->p_prefix_lens};
  w->d = (m3idx_batch){.mode = M3IDX_DECODE,
                       .num_requests = W_R,
                       .num_rows = W_DT,
                       .max_block = W_M,
                       .decode_query_len = 2,
                       .seq_lens = w->d_seq_lens};
  w->p_score = (m3idx_score_args){.batch = &w->p,
                                  .q = {w->q, M3IDX_BF16, {W_PT, W_H, W_D}, {0}},
                                  .index_k = {w->index_k, M3IDX_F32, {W_P, 128, W_D}, {128 * W_D, W_D, 1}},
                                  .block_table = w->block_table,
                                  .score = w->score};
  w->d_score = w->p_score;
  w->d_score.batch = &w->d;
  w->d_score.q.shape[0] = W_DT;
  w->d_score.init_blocks = w->d_score.local_blocks = 1;
  w->by_batch = (m3idx_select_args){.batch = &w->p,
                                    .num_heads = W_H,
                                    .num_rows = W_PT,
                                    .max_block = W_M,
                                    .score = w->scores,
                                    .local_blocks = 1,
                                    .topk = W_K,
                                    .topk_idx = w->topk_idx,
                                    .keys = w->keys};
  w->by_counts = w->by_batch;
  w->by_counts.batch = NULL;
  w->by_counts.num_blocks = w->num_blocks;
  w->merge = (m3idx_merge_args){.num_parts = W_PARTS,
                                .num_heads = W_H,
                                .num_rows = W_PT,
                                .topk = W_K,
                                .keys = w->part_keys,
                                .topk_idx = w->topk_idx,
                                .merged_keys = w->keys};
  w->sparse = (m3idx_sparse_out){.block_table = w->attention_table, .table = w->table, .context_lens = w->context_lens};
  w->topk = (m3idx_topk_args){.batch = &w->d,
                              .q = w->d_score.q,
                              .index_k = w->d_score.index_k,
                              .block_table = w->block_table,
                              .local_blocks = 1,
                              .topk = W_K,
                              .topk_idx = w->topk_idx,
                              .sparse = &w->sparse};
  w->table_args = (m3idx_sparse_table_args){
      .batch = &w->d, .num_heads = W_H, .topk = W_K, .topk_idx = w->chosen, .sparse = w->sparse};
  w->insert = (m3idx_cache_insert_args){.key = {w->new_keys, M3IDX_BF16, {1, W_KEYS, W_D}, {0}},
                                        .slot_mapping = w->slots,
                                        .cache = {w->cache, M3IDX_E4M3FN, {W_P, 128, W_D}, {128 * W_D, W_D, 1}}};
}

void make_world(world *w) {
  memset(w, 0, sizeof *w);
  memset(w->score, 0xa5, sizeof w->score);
  memset(w->topk_idx, 0xa5, sizeof w->topk_idx);
  memset(w->keys, 0xa5, sizeof w->keys);
  memset(w->table, 0xa5, sizeof w->table);
  memset(w->context_lens, 0xa5, sizeof w->context_lens);
  memset(w->cache, 0xa5, sizeof w->cache);
  world_inputs(w);
  world_arguments(w);
}

m3idx_status make_call(m3idx_context *ctx, const world *w, call c) {
  switch (c) {
  case PREFILL_SCORE: return m3idx_score(ctx, &w->p_score);
  case DECODE_SCORE: return m3idx_score(ctx, &w->d_score);
  case SELECT_BATCH: return m3idx_select(ctx, &w->by_batch);
  case SELECT_COUNTS: return m3idx_select(ctx, &w->by_counts);
  case MERGE: return m3idx_merge(ctx, &w->merge);
  case TOPK: return m3idx_topk(ctx, &w->topk);
  case SPARSE: return m3idx_sparse_table(ctx, &w->table_args);
  case INSERT: return m3idx_cache_insert(ctx, &w->insert);
  case CALLS: break;
  }
  return M3IDX_IO;
}

static void apply(world *w, const change *c) {
  char *at = (char *)w + c->at, *pointer;
  const int32_t narrow = (int32_t)c->value;
  const uint32_t bits = (uint32_t)c->value;
  switch (c->kind) {
  case NO_CHANGE: break;
  case I64:
  case KEY: memcpy(at, &c->value, sizeof c->value); break;
  case I32: memcpy(at, &narrow, sizeof narrow); break;
  case BITS: memcpy(at, &bits, sizeof bits); break;
  case NIL:
    pointer = NULL;
    memcpy(at, &pointer, sizeof pointer);
    break;
  case MOVE:
    memcpy(&pointer, at, sizeof pointer);
    pointer += c->value;
    memcpy(at, &pointer, sizeof pointer);
    break;
  case INTO:
    pointer = (char *)w + c->value;
    memcpy(at, &pointer, sizeof pointer);
    break;
  }
}

/* The same judgement of every backend; a good call leaves the same world whoever made it. */
void judge_row(const row *r) {
  static world w, before, first;
  make_world(&w);
  for (size_t i = 0; i < sizeof r->changes / sizeof *r->changes; i++) apply(&w, &r->changes[i]);
  memcpy(&before, &w, sizeof w);
  for (int b = 0; b < door_count; b++) {
    m3idx_context *ctx = door_ctx[b];
    memcpy(&w, &before, sizeof w);
    const m3idx_status got = make_call(ctx, &w, r->call), want = r->want ? M3IDX_INVALID : M3IDX_OK;
    const char *name = m3idx_backend_name(ctx), *message = m3idx_message(ctx);
    if (got != want) ck_abort_msg("%s, %s: want status %d, got %d: %s", name, r->id, (int)want, (int)got, message);
    if (b == 0) memcpy(&first, &w, sizeof w);
    if (!r->want && memcmp(&first, &w, sizeof w) != 0) ck_abort_msg("%s, %s: differs from ref", name, r->id);
    if (!r->want) continue;
    if (!strstr(message, r->want)) ck_abort_msg("%s, %s: want \"%s\" in \"%s\"", name, r->id, r->want, message);
    if (memcmp(&before, &w, sizeof w) != 0) ck_abort_msg("%s, %s: a refused call wrote", name, r->id); /* S7.2 */
  }
}

m3idx_context *door_ctx[DOOR_BACKENDS];
int door_count;

void door_open(void) {
  for (int i = 0; m3idx_backend_list(i); i++) {
    const m3idx_options options = {.backend = m3idx_backend_list(i), .num_threads = 1};
    char why[512];
    if (!strcmp(options.backend, "hip")) continue; /* needs a device; the conformance harness covers it */
    ck_assert_int_lt(door_count, DOOR_BACKENDS);
    if (m3idx_open(&door_ctx[door_count++], &options, why, sizeof why)) ck_abort_msg("%s", why);
  }
  ck_assert_str_eq(m3idx_backend_name(door_ctx[0]), "ref");
}

void door_close(void) {
  while (door_count > 0) m3idx_close(door_ctx[--door_count]);
}
