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

#include "m3idx.h"

#define CASE_MAX_LIST 4096    /* requests a case line can name */
#define CASE_MESSAGE_BYTES 512

typedef enum case_op { CASE_PREFILL, CASE_DECODE, CASE_SELECT } case_op;

/* Data kinds of generated q and index_k (and of score, for select). */
typedef enum case_data {
  CASE_NORMAL,   /* standard normal, rounded to the format */
  CASE_TIES,     /* small integers: many equal dots */
  CASE_SPECIALS, /* normal with NaN, inf, +-0, subnormals sown in */
  CASE_WIDE,     /* exponents uniform over the format's whole range */
  CASE_NEAR      /* block maxima closer than a float ulp: only exact arithmetic orders them */
} case_data;

/* Everything a case line can say.  Lists are owned by the spec (case_spec_free). */
typedef struct case_spec {
  case_op op;
  int64_t num_requests;       /* entries of the lists below */
  int32_t *q_lens;            /* prefill --q-lens */
  int32_t *prefix_lens;       /* prefill --prefix-lens */
  int32_t *seq_lens;          /* decode --seq-lens; prefill: default prefix + q_len */
  int64_t decode_query_len;   /* --decode-query-len */
  int64_t num_rows;           /* select: entries of num_blocks; else derived */
  int32_t *num_blocks;        /* select --num-blocks */
  int64_t heads, head_dim, topk, block_size, max_block; /* max_block 0 = the least that fits */
  int64_t init_blocks, local_blocks;
  m3idx_dtype q_dtype, k_dtype;
  m3idx_contract contract;
  float scale;
  int64_t page_stride;
  bool sparse_table;
  case_data data;
  uint64_t seed;
  int64_t num_pages;          /* --num-pages; 0 = exactly the live pages; less than live = pages are shared */
} case_spec;

/* Element types a case file can hold. */
typedef enum case_dtype {
  CASE_F32, CASE_F16, CASE_BF16, CASE_F8_E4M3, CASE_F8_E5M2, CASE_U8, CASE_I32, CASE_I64, CASE_U64,
  CASE_DTYPE_COUNT
} case_dtype;

typedef struct case_tensor {
  char *name;
  case_dtype dtype;
  int rank;
  int64_t shape[4];
  size_t bytes;
  void *data; /* dense row-major, host byte order, aligned to 64 bytes; owned */
} case_tensor;

typedef struct case_pair { char *key, *value; } case_pair;

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
 * All return 0, or -1 with a sentence in why[CASE_MESSAGE_BYTES] that names the option, value and bound. */
int case_spec_parse(int argc, const char *const *argv, case_spec *out, char *why);
int case_spec_parse_line(const char *line, case_spec *out, char *why);
void case_spec_free(case_spec *spec);
/* The canonical line: options in a fixed order, defaults omitted.  parse(format(s)) == s.  malloc'd, NULL = no memory. */
char *case_spec_format(const case_spec *spec);
/* The options as help text for `m3idx gen --help`, from the same table as the parser. */
const char *case_spec_help(void);

/* ---- generation (casegen.c): inputs and metadata of a spec; same bytes on every host ---- */
int case_generate(const case_spec *spec, case_file *out, char *why);

/* ---- files in memory (case.c) ---- */
void case_file_free(case_file *file);
case_tensor *case_find(const case_file *file, const char *name); /* NULL = absent */
const char *case_metadata(const case_file *file, const char *key); /* NULL = absent */
/* Add (or replace) a tensor with zeroed data / a metadata pair.  NULL / -1 = no memory. */
case_tensor *case_add_tensor(case_file *file, const char *name, case_dtype dtype, int rank, const int64_t *shape);
int case_set_metadata(case_file *file, const char *key, const char *value);
/* Decode names, shapes and metadata into a view; pointers stay owned by file.  Malformed = -1 and why. */
int case_view(const case_file *file, m3idx_case *out, char *why);
/* Fill descriptors of a case; outputs are left NULL.  batch must outlive the args. */
void case_batch(const m3idx_case *c, m3idx_batch *batch);
void case_score_args(const m3idx_case *c, const m3idx_batch *batch, m3idx_score_args *args);
void case_topk_args(const m3idx_case *c, const m3idx_batch *batch, m3idx_topk_args *args);
void case_select_args(const m3idx_case *c, const m3idx_batch *batch, m3idx_select_args *args);
/* Run the case's op on ctx and add its outputs (docs/CASES.md) to file.  with_score false takes the fused path.
 * Returns the library's status; the sentence is in why. */
m3idx_status case_run(m3idx_context *ctx, case_file *file, bool with_score, char *why);
/* One tensor's bytes as little-endian, for files and digests: calls sink() with consecutive pieces. */
int case_tensor_le(const case_tensor *tensor, int (*sink)(void *user, const void *bytes, size_t n), void *user);

#endif
