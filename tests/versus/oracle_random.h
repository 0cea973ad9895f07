/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of oracle_random share: a seeded generator, the memory of one case, outputs that are written
 * twice (by the library and from the oracle) over the same noise, and random inputs.
 */
#ifndef ORACLE_RANDOM_H
#define ORACLE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "m3idx.h"
#include "oracle_words.h"

typedef enum verdict { VERDICT_PASS, VERDICT_FAIL, VERDICT_UNSUPPORTED } verdict;

/* One case: the library's context, the case's random numbers, and every block it allocated. */
typedef struct trial {
  m3idx_context *ctx;
  uint64_t state;
  void **blocks;
  size_t num_blocks, capacity;
  uint64_t digest; /* of all outputs compared */
  char why[512];   /* of the first difference, or the library's message */
} trial;

/* ---- random numbers (random_fill.c) ----
 * C leaves the order of initializers, arguments and operands open: one random call in each such expression. */
uint64_t random_bits(trial *t);
int64_t random_below(trial *t, int64_t n);              /* 0 .. n - 1, n >= 1 */
int64_t random_in(trial *t, int64_t low, int64_t high); /* both ends included */
bool one_in(trial *t, int64_t n);
m3idx_contract random_contract(trial *t); /* a preset or any four fields */
int64_t random_topk(trial *t);

/* ---- memory: freed by trial_free() ---- */
void *trial_alloc(trial *t, size_t bytes); /* exactly this many bytes, of noise */
void trial_free(trial *t);

/* An output the library writes (got) and the oracle's version of it (want), alike in noise and in the guards
 * around them until somebody writes. */
typedef struct output {
  const char *name;
  size_t bytes, element_bytes;
  unsigned char *got_all, *want_all, *before_all; /* guards included */
  void *got, *want;
} output;
output make_output(trial *t, const char *name, int64_t elements, size_t element_bytes);
/* Judge a call by its status and every byte of its outputs: after OK they are the oracle's, after UNSUPPORTED
 * they are as before (S7.2).  On FAIL t->why says what differs, and where first. */
verdict conclude(trial *t, m3idx_status status, const char *call, const output *outputs, int num_outputs);

/* ---- inputs (random_fill.c) ---- */
m3idx_dtype random_dtype(trial *t);

/* How the elements of a tensor are drawn. */
typedef struct palette {
  enum { ANY_CODE, ANY_FINITE, NEARBY, GRID, SPECIALS } kind;
  oracle_format format;
  uint32_t low, span; /* NEARBY and SPECIALS: magnitudes low .. low + span - 1 */
  uint32_t grid[3];   /* GRID */
} palette;
palette random_palette(trial *t, m3idx_dtype dtype);
uint32_t palette_code(trial *t, const palette *p);

/* A tensor of noise with random strides (permuted, padded, repeated or dense), elements from the palette. */
m3idx_tensor random_tensor(trial *t, m3idx_dtype dtype, const int64_t shape[3], const palette *p);
/* The same tensor as a call may be told of it: strides of 0 for a dense one. */
m3idx_tensor tensor_told(trial *t, m3idx_tensor x);
uint32_t tensor_get(const m3idx_tensor *x, int64_t i, int64_t j, int64_t k);
void tensor_set(const m3idx_tensor *x, int64_t i, int64_t j, int64_t k, uint32_t code);

/* A batch and, for each row, its request and what it sees. */
typedef struct random_batch {
  m3idx_batch batch;
  int64_t *request; /* [T] */
  oracle_row *rows; /* [T] */
} random_batch;
random_batch make_batch(trial *t, int64_t block_size, int64_t max_keys);
/* [R][stride] of pages below num_pages where live; what lies past them must not be read. */
int32_t *random_block_table(trial *t, const m3idx_batch *b, int64_t num_pages, int64_t *stride);

/* ---- one random case of an operation each ---- */
verdict random_score(trial *t);
verdict random_topk_fused(trial *t);
verdict random_select(trial *t);
verdict random_parts(trial *t);
verdict random_sparse_table(trial *t);
verdict random_cache_insert(trial *t);

/* A sparse table to write, in two outputs {table, context_lens}, and what the oracle says it holds, given the
 * oracle's own topk_idx (random_sparse.c). */
m3idx_sparse_out random_sparse_out(trial *t, const m3idx_batch *b, int64_t heads, int64_t topk, output outputs[2]);
void want_sparse(const random_batch *rb, const m3idx_sparse_out *sparse, int64_t heads, int64_t topk,
                 const int32_t *topk_idx, int64_t stride_head, int64_t stride_row, output outputs[2]);

/* The strides of an [H][T][width] output: what the call is told (0 where that means the same) and what it means. */
typedef struct strides {
  int64_t head, row, told_head, told_row, elements;
} strides;
strides random_strides(trial *t, int64_t heads, int64_t rows, int64_t width);

#endif
