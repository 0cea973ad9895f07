/* SPDX-License-Identifier: Apache-2.0
 *
 * A case line made ready: guarded inputs, what each row sees, and what ref says every operation writes.
 */
#ifndef M3IDX_CONFORM_CASE_H
#define M3IDX_CONFORM_CASE_H

#include "case.h"
#include "conform_memory.h"

/* Where a row stands and what it sees (S2.3), by the harness's own reckoning.  op select: request and position -1. */
typedef struct conform_row {
  int64_t request, position, keys, blocks;
} conform_row;

typedef struct conform_case {
  const char *line;
  uint64_t seed; /* of what calls draw beside the case's own data */
  m3idx_case c;  /* its pointers lead to the inputs below */
  m3idx_batch batch;
  conform_row *rows; /* [T] */
  int64_t most_keys, most_blocks;

  conform_input q, index_k, block_table, attention_block_table, seq_lens, cu_seqlens, prefix_lens, num_blocks;
  conform_input score; /* op select: the given one */

  /* By ref, dense; NULL where the operation has no meaning for the case. */
  float *want_score;     /* [H][T][M] */
  int32_t *want_ids;     /* [H][T][K] */
  uint64_t *want_keys;   /* [H][T][K] */
  int32_t *want_table;   /* [T*H][8K] */
  int32_t *want_context; /* [T*H] */
} conform_case;

/* 0, or -1 and a sentence in why[CASE_MESSAGE_BYTES].  `line` must outlive the case. */
int conform_case_make(m3idx_context *ref, const char *line, conform_case *out, char *why);
/* The same from a case in memory, which is not needed afterwards; `line` is what failures call it. */
int conform_case_from(m3idx_context *ref, const case_file *file, const char *line, uint64_t seed, conform_case *out,
                      char *why);
void conform_case_free(conform_case *k);

/* Keys to insert into a cache, derived from the case: q's rows as keys, k_dtype as the cache's format, and slots in
 * random order of which every fifth is negative (S6.1). */
typedef struct conform_insert {
  int64_t n, D, B, P;
  m3idx_dtype key_dtype, cache_dtype;
  const void *keys; /* [n][D] dense */
  int64_t *slots;   /* [n]; owned */
} conform_insert;
conform_insert conform_insert_make(uint64_t seed, const m3idx_case *c);

#endif
