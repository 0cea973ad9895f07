/* SPDX-License-Identifier: Apache-2.0
 *
 * One small good call of every operation, all arguments and buffers in one struct, so that a test can change a
 * field by its offset and see afterwards that no byte of the world moved.  Shared by the tests of the door (S7).
 */
#ifndef M3IDX_DOOR_WORLD_H
#define M3IDX_DOOR_WORLD_H

#include <stddef.h>

#include "m3idx.h"

/* H, P, M; D; K; prefill and decode have 2 requests, prefill 3 rows, decode 2 * 2. */
enum { W_H = 2, W_P = 3, W_M = 3, W_D = 16, W_K = 4, W_R = 2, W_PT = 3, W_DT = 4, W_PARTS = 2, W_KEYS = 3 };

typedef enum call { PREFILL_SCORE, DECODE_SCORE, SELECT_BATCH, SELECT_COUNTS, MERGE, TOPK, SPARSE, INSERT, CALLS } call;

typedef struct world {
  /* inputs */
  uint16_t q[W_DT * W_H * W_D]; /* bf16 */
  float index_k[W_P * 128 * W_D];
  char gap_before[2048];
  int32_t block_table[W_R * W_M], attention_table[W_R * W_M];
  char gap_after[2048]; /* an output on a table touches nothing else */
  int32_t p_seq_lens[W_R], p_cu_seqlens[W_R + 1], p_prefix_lens[W_R], d_seq_lens[W_R];
  float scores[W_H * W_PT * W_M];
  int32_t num_blocks[W_PT];
  uint64_t part_keys[W_PARTS * W_H * W_PT * W_K];
  int32_t chosen[W_H * W_DT * W_K];
  uint16_t new_keys[W_KEYS * W_D]; /* bf16 */
  int64_t slots[W_KEYS];
  /* outputs */
  float score[W_H * W_DT * W_M];
  int32_t topk_idx[W_H * W_DT * W_K];
  uint64_t keys[W_H * W_DT * W_K];
  int32_t table[W_DT * W_H * 8 * W_K], context_lens[W_DT * W_H];
  uint8_t cache[W_P * 128 * W_D]; /* e4m3fn */
  /* arguments */
  m3idx_batch p, d;
  m3idx_score_args p_score, d_score;
  m3idx_select_args by_batch, by_counts;
  m3idx_merge_args merge;
  m3idx_topk_args topk;
  m3idx_sparse_out sparse;
  m3idx_sparse_table_args table_args;
  m3idx_cache_insert_args insert;
} world;

void make_world(world *w);
void world_arguments(world *w); /* only the arguments anew */
m3idx_status make_call(m3idx_context *ctx, const world *w, call c);

/* One change: the field at byte `at` of the world. */
typedef enum change_kind {
  NO_CHANGE,
  I64,  /* int64_t = value */
  I32,  /* int32_t, or an enumerator = value */
  BITS, /* float with these bits */
  KEY,  /* uint64_t = value */
  NIL,  /* pointer = NULL */
  MOVE, /* pointer += value bytes */
  INTO  /* pointer = world + value */
} change_kind;

typedef struct change {
  change_kind kind;
  size_t at;
  int64_t value;
} change;

#define AT(field) offsetof(world, field)

typedef struct row {
  const char *id;
  call call;
  change changes[8];
  const char *want; /* part of the sentence; NULL = the call is good */
} row;

/* The largest int64_t and a value whose products with anything above 1 leave 64 bits. */
#define MOST INT64_MAX
#define HALF (INT64_MAX / 2 + 1)

/* Change a good world as the row says, make the call on each backend and compare status, sentence and bytes. */
void judge_row(const row *r);

/* Fixtures of a test case: a context on each backend that works in host memory, ref first. */
enum { DOOR_BACKENDS = 4 };
extern m3idx_context *door_ctx[DOOR_BACKENDS];
extern int door_count;
void door_open(void);
void door_close(void);

#endif
