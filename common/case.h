/* SPDX-License-Identifier: Apache-2.0
 *
 * A case: one problem in memory, inputs and (perhaps) outputs under the fixed names of docs/CASES.md.
 * The command, the conformance harness, the goldens and the fuzzer all speak case lines:
 *
 *     --op decode --seq-lens 7,129 --heads 2 --head-dim 128 --topk 16 --local 1 --data ties --seed 3
 *
 * which are at once a test's name, the arguments of `m3idx gen`, a repro and a golden's key.
 * Nothing here needs more than libc, so the harness runs wherever the library does; the safetensors
 * reader and writer are casefile.h.
 */
#ifndef M3IDX_CASE_H
#define M3IDX_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "m3idx.h"

#define CASE_MAX_LIST 4096               /* requests, or rows of a select, that a case line can name */
#define CASE_MAX_BLOCKS (INT32_MAX / 16) /* blocks of the longest request there can be */
#define CASE_MESSAGE_BYTES 512

typedef enum case_op { CASE_PREFILL, CASE_DECODE, CASE_SELECT } case_op;

/* Data kinds of generated q and index_k (and of score, for select). */
typedef enum case_data {
  CASE_NORMAL,   /* standard normal, rounded to the format */
  CASE_TIES,     /* -1, 0 and 1: many equal dots */
  CASE_SPECIALS, /* normal with NaN, inf, +-0, subnormals sown in */
  CASE_WIDE,     /* exponents over the format's whole range, under a ceiling for each page and row */
  CASE_NEAR,     /* block maxima a few ulps and less apart: only exact arithmetic rounds and orders them */
  CASE_MIXED,    /* each query row, page and run of scores is of one of the kinds above */
  CASE_ZEROS,    /* nothing but +0, to put elements into */
  CASE_DRIFT     /* a float sum errs nearly as much as it can; midpoints of floats, and a hair beside them */
} case_data;
#define CASE_DATA_KINDS (CASE_DRIFT + 1)

/* Which pages the live entries of a block table name. */
typedef enum case_table {
  CASE_TURNS,  /* all pages in a random order, in turn through the requests */
  CASE_RANDOM, /* any page anywhere: a request may read one twice, or share it with another */
  CASE_PREFIX  /* block b of every request is the same page, as with a cached prefix */
} case_table;

/* One element overwritten after the data kind has filled its tensor. */
typedef enum case_put_tensor {
  CASE_PUT_Q,
  CASE_PUT_INDEX_K,
  CASE_PUT_SCORE,
  CASE_PUT_BLOCK_TABLE,
  CASE_PUT_ATTENTION_BLOCK_TABLE
} case_put_tensor;
typedef struct case_put {
  case_put_tensor tensor;
  int64_t index; /* of the dense tensor */
  uint32_t bits; /* of the element */
} case_put;

/* Everything a case line can say.  Lists are owned by the spec (case_spec_free). */
typedef struct case_spec {
  case_op op;
  int64_t num_requests;                                 /* entries of the lists below; select 0 */
  int32_t *q_lens;                                      /* prefill --q-lens */
  int32_t *prefix_lens;                                 /* prefill --prefix-lens */
  int32_t *seq_lens;                                    /* decode --seq-lens; prefill: default prefix + q_len */
  int64_t decode_query_len;                             /* --decode-query-len */
  int64_t num_rows;                                     /* T: entries of num_blocks, or derived from the lists above */
  int32_t *num_blocks;                                  /* select --num-blocks */
  int64_t heads, head_dim, topk, block_size, max_block; /* max_block 0 = the least that fits */
  int64_t init_blocks, local_blocks;
  m3idx_dtype q_dtype, k_dtype;
  m3idx_contract contract;
  float scale;
  int64_t page_stride;
  bool sparse_table;
  bool attention_table; /* the sparse table gets a block table of its own */
  case_data data;
  uint64_t seed;
  int64_t num_pages; /* --num-pages; 0 = exactly the live pages; less than live = pages are shared */
  case_table table;
  int64_t num_puts;
  case_put *puts; /* in the order in which they are done */
} case_spec;

#define CASE_FORMAT "m3idx-case/1"
#define CASE_MAX_RANK 8

/* Element types a case file can hold, in the order their data is laid out (docs/CASES.md). */
typedef enum case_dtype {
  CASE_U64,
  CASE_I64,
  CASE_F64,
  CASE_F32,
  CASE_U32,
  CASE_I32,
  CASE_BF16,
  CASE_F16,
  CASE_U16,
  CASE_I16,
  CASE_F8_E4M3,
  CASE_F8_E5M2,
  CASE_I8,
  CASE_U8,
  CASE_BOOL,
  CASE_DTYPE_COUNT
} case_dtype;

typedef struct case_tensor {
  char *name;
  case_dtype dtype;
  int rank;
  int64_t shape[CASE_MAX_RANK];
  size_t bytes;
  void *data; /* dense row-major, host byte order, aligned to 64 bytes; owned */
} case_tensor;

typedef struct case_pair {
  char *key, *value;
} case_pair;

typedef struct case_file {
  int64_t num_tensors;
  case_tensor *tensors;
  int64_t num_metadata; /* every metadata pair, known and unknown, in file order */
  case_pair *metadata;
} case_file;

/* A case ready to run: the decoded metadata and where its tensors are. */
typedef struct m3idx_case {
  case_op op;
  int64_t R, T, H, D, B, P, M, K;
  int64_t init_blocks, local_blocks, decode_query_len, page_stride;
  m3idx_contract contract;
  float scale;
  bool sparse_table;
  m3idx_dtype q_dtype, k_dtype;
  const void *q, *index_k;
  const int32_t *block_table, *attention_block_table; /* the latter NULL = block_table */
  int64_t block_table_stride, attention_block_table_stride;
  const int32_t *seq_lens, *cu_seqlens, *prefix_lens, *num_blocks;
  const float *score; /* select: input; else NULL */
} m3idx_case;

/* ---- case lines (caseline.c) ----
 * Options are `--key value` or `--key=value`, each at most once; a list is `7,129` and `8192x32` repeats.
 * Numbers are read and written with '.', so the program's LC_NUMERIC must be "C" (it is, unless set).
 * All return 0, or -1 with a sentence in why[CASE_MESSAGE_BYTES] that names the option, value and bound.
 * After -1 there is nothing to free. */
int case_spec_parse(int argc, const char *const *argv, case_spec *out, char *why);
int case_spec_parse_line(const char *line, case_spec *out, char *why);
void case_spec_free(case_spec *spec);
/* The canonical line: options in a fixed order, defaults omitted.  parse(format(s)) == s.  malloc'd, NULL = no memory.
 */
char *case_spec_format(const case_spec *spec);
/* The options as help text for `m3idx gen --help`, from the same table as the parser. */
void case_spec_help(FILE *out);
/* Key of option i without its dashes, NULL past the end: each takes one argument. */
const char *case_spec_option(int i);
/* The ops (bit case_op) that it means something to. */
unsigned case_spec_option_ops(int i);
const char *case_op_name(case_op op);
const char *case_data_name(case_data data);
const char *case_table_name(case_table table);
/* Blocks of the longest row: the least max_block that fits. */
int64_t case_spec_least_blocks(const case_spec *spec);

/* ---- generation (casegen.c): inputs and metadata of a spec; same bytes on every host ----
 * M3IDX_OK, or M3IDX_INVALID or M3IDX_NO_MEMORY with a sentence in why and nothing to free. */
m3idx_status case_generate(const case_spec *spec, case_file *out, char *why);

/* ---- cases in memory (case.c) ---- */
void case_file_free(case_file *file);
case_tensor *case_find(const case_file *file, const char *name);   /* NULL = absent */
const char *case_metadata(const case_file *file, const char *key); /* NULL = absent */
/* Add (or replace) a tensor with zeroed data / a metadata pair.  NULL / -1 = no memory, or more bytes than
 * there can be.  Moves the case_tensor structs (not their data): find them again. */
case_tensor *case_add_tensor(case_file *file, const char *name, case_dtype dtype, int rank, const int64_t *shape);
void case_remove_tensor(case_file *file, const char *name); /* absent: nothing */
const char *case_dtype_name(case_dtype dtype);              /* the file's name: "F32", "F8_E4M3", ... */
size_t case_dtype_bytes(case_dtype dtype);
int case_dtype_by_name(const char *name, case_dtype *dtype); /* -1 = unknown */
/* Bytes of a dense tensor; -1 = a bad rank, a negative dimension, or more than memory can address. */
int case_tensor_bytes(case_dtype dtype, int rank, const int64_t *shape, size_t *bytes);
int case_set_metadata(case_file *file, const char *key, const char *value);
/* One tensor's bytes as little-endian, for files and digests: calls sink() with consecutive
 * pieces until it returns other than 0, and returns that. */
int case_tensor_le(const case_tensor *tensor, int (*sink)(void *user, const void *bytes, size_t n), void *user);
/* A scale as text (S3.5), in lines and in files: a finite binary32 number above 0, without a sign.  -1 = none. */
int case_scale(const char *text, float *scale);
/* Decode names, shapes and metadata into a view; pointers stay owned by file.  Malformed = -1 and why. */
int case_view(const case_file *file, m3idx_case *out, char *why);

/* ---- descriptors and the run (caserun.c) ----
 * Fill descriptors of a case; outputs are left NULL.  batch must outlive the args.  With op select batch is unused;
 * for prefill and decode the caller sets the score that select reads. */
void case_batch(const m3idx_case *c, m3idx_batch *batch);
void case_score_args(const m3idx_case *c, const m3idx_batch *batch, m3idx_score_args *args);
void case_topk_args(const m3idx_case *c, const m3idx_batch *batch, m3idx_topk_args *args);
void case_select_args(const m3idx_case *c, const m3idx_batch *batch, m3idx_select_args *args);
void case_sparse_out(const m3idx_case *c, m3idx_sparse_out *out);
/* Run the case's op on ctx and put its outputs (docs/CASES.md) into file, in place of earlier ones.  with_score
 * false takes the fused path, which leaves no score.  Returns the library's status, the sentence in why; file is
 * unchanged unless M3IDX_OK. */
m3idx_status case_run(m3idx_context *ctx, case_file *file, bool with_score, char *why);

#endif
