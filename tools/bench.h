/* SPDX-License-Identifier: Apache-2.0
 *
 * The benchmark: fixed shapes, ours and peers in turn within each repetition, medians, and the bars of
 * docs/PERFORMANCE.md.  Needs libc and libm3idx only, and is handed a case that somebody read: it is built with the
 * m3idx command (verb bench) and alone (m3idx_bench).  Peers are found at run time; one that is missing says so.
 */
#ifndef M3IDX_BENCH_H
#define M3IDX_BENCH_H

#include <stdbool.h>
#include <stdio.h>

#include "case.h"

enum { BENCH_ENTRIES = 20, BENCH_REPEATS = 99, BENCH_REASON_BYTES = 256, BENCH_PAGE = 128, BENCH_TOPK = 16 };

typedef enum bench_kind {
  BENCH_SCORE,
  BENCH_SELECTED, /* queries and keys straight to selected blocks */
  BENCH_SELECT,
  BENCH_FILTER,   /* scores without the exact stage */
  BENCH_OURS_END, /* those before are ours, those after are peers */
  BENCH_SGEMM,
  BENCH_SGEMM_MAX,
  BENCH_ONEDNN_MAX,
  BENCH_PLAIN, /* plain C: f32 dots, f32 maxima, a full sort */
  BENCH_READ,
  BENCH_PARTIAL_SORT,
  BENCH_NTH_ELEMENT,
  BENCH_TORCH_BF16_MAX,
  BENCH_TORCH_BF16_TOPK,
  BENCH_TORCH_F32_MAX
} bench_kind;

typedef struct bench_entry {
  const char *label;
  bench_kind kind;
  const char *isa; /* M3IDX_ISA of ours, "avx2" also of sgemm; NULL = the best present */
  int threads;     /* 0 = as many as the run has */
} bench_entry;

typedef enum bench_data {
  BENCH_NORMAL,
  BENCH_CASE,
  BENCH_TIES,
  BENCH_RANDOM,
  BENCH_ASCENDING,
  BENCH_EQUAL,
  BENCH_NAN
} bench_data;
typedef enum bench_form { BENCH_PREFILL, BENCH_DECODE, BENCH_ARRAY } bench_form;

/* A problem and who solves it.  ARRAY: `rows` rows of `blocks` floats.  Else bf16, blocks of 128. */
typedef struct bench_shape {
  const char *name;
  bench_form form;
  bench_data data;
  int64_t requests, rows, heads, blocks; /* rows and blocks of one request */
  int cores;                             /* left out on smaller machines unless a filter names it */
  bench_entry entries[BENCH_ENTRIES];
} bench_shape;

/* got = rate of `ours` over rate of `other`, both entries of the shape; reached when got >= bar, with at_most when
 * 1 / got <= bar. */
typedef struct bench_bar {
  const char *shape, *ours, *other;
  double bar;
  bool at_most;
} bench_bar;

extern const bench_shape bench_shapes[];
extern const int bench_num_shapes;
enum { BENCH_OF_CASE = 2, BENCH_CASE_ROWS = 512 };
/* Those of a case: its data and normal data, ours alone. */
void bench_shapes_of(const m3idx_case *c, bench_shape shapes[BENCH_OF_CASE]);
extern const bench_bar bench_bars[];
extern const int bench_num_bars;

typedef struct bench_options {
  const char *filter; /* shapes whose name contains it; NULL = all that fit the machine */
  int threads;        /* 0 = the OpenMP default */
  int repeats;        /* 0 = 7 */
  bool peers, json;
  bool cpu_time;      /* entries of one thread by that thread's processor time */
  bool tiny;          /* the shapes cut down, to try the program and not the machine */
  const char *torch;  /* the script torch_peer.py; NULL = leave torch out */
  const char *python; /* the interpreter that has torch; NULL = python3 */
  /* Instead of the fixed shapes: the data of this case, and normal data of the same size.  See bench_takes. */
  const m3idx_case *given;
} bench_options;

/* The operands of a shape, and what its contenders write. */
typedef struct bench_world {
  const bench_shape *shape;
  const bench_options *options;
  int64_t lanes, keys, pages; /* rows * heads of all requests; keys of a request; pages of all */
  int64_t head_dim;           /* 128, or the case's */
  m3idx_batch batch;
  m3idx_tensor q, index_k;
  int32_t *table, *seq_lens, *cu_seqlens, *prefix_lens, *num_blocks;
  float *qf, *kf;  /* f32 copies, made if a peer wants them; page p of a request is its tokens 128 p .. */
  float *score;    /* [lanes][blocks]; ARRAY: the input */
  int32_t *ids;    /* [lanes][TOPK] */
  float *product;  /* room for BENCH_CHUNK_PAGES pages of dots of every lane of a request */
  uint64_t *rooms; /* blocks keys a thread, for the sorting peers */
  uint64_t sink;   /* keeps what a read loop read */
} bench_world;
enum { BENCH_CHUNK_PAGES = 16 };

/* 0, or -1 and a reason.  threads = the most that a contender uses. */
int bench_world_make(bench_world *w, const bench_shape *shape, const bench_options *options, int threads, char *reason);
void bench_world_free(bench_world *w);
/* Whether a case can be timed; if not, the reason. */
bool bench_takes(const m3idx_case *c, char *reason);
bool bench_wants_f32(const bench_shape *shape);

/* A contender, ready to run.  run() does the whole work once and returns 0; seconds() is set where it is timed
 * elsewhere. */
typedef struct bench_contender {
  const bench_entry *entry;
  int threads;
  char absent[BENCH_REASON_BYTES]; /* why it cannot run; "" = it can */
  char detail[64];                 /* the instruction set or the library */
  m3idx_context *ctx;
  void *peer; /* of the peer's own */
  int (*run)(struct bench_contender *c, bench_world *w);
  double elsewhere; /* seconds that run() measured itself, 0 = measure it from outside */
  double seconds[BENCH_REPEATS];
} bench_contender;

/* Each returns with c->run set or c->absent filled.  `finish` undoes it. */
void bench_ours_begin(bench_contender *c, bench_world *w);
void bench_ours_finish(bench_contender *c);
void bench_blas_begin(bench_contender *c, bench_world *w);
void bench_plain_begin(bench_contender *c, bench_world *w);
void bench_sort_begin(bench_contender *c, bench_world *w);
void bench_onednn_begin(bench_contender *c, bench_world *w);
void bench_onednn_finish(bench_contender *c);
void bench_torch_begin(bench_contender *c, bench_world *w);
void bench_torch_finish(bench_contender *c);
void bench_torch_end(void); /* after the last */

/* most[lane][block] of each 128 dots of product[lane][pages * 128], lanes 0 .. lanes - 1 (bench_plain.c). */
void bench_maxima(const float *product, int64_t lanes, int64_t pages, float *most, int64_t stride, int threads);

/* Compare what ours writes with the reference on some rows of the shape; 0, or -1 and a reason. */
int bench_check(bench_contender *c, bench_world *w, char *reason);

/* Run and report.  0, 1 = a result of ours differs from the reference, 2 = bad options, 3 = cannot run. */
int bench_run(const bench_options *options, FILE *out);
void bench_list(FILE *out);

/* The rate of one contender, for the bars. */
typedef struct bench_rate {
  const char *shape, *label;
  double rate;
  char absent[BENCH_REASON_BYTES]; /* "" = there is a rate */
} bench_rate;

/* bench_report.c: begin, then each shape or why it is left out, then end. */
typedef struct bench_report {
  FILE *out;
  const bench_options *options;
  int threads, repeats;
  int results; /* so far */
  bench_rate *rates;
} bench_report;

void bench_report_begin(bench_report *r);
void bench_report_shape(bench_report *r, const bench_world *w, const bench_contender *c, int count);
void bench_report_left_out(bench_report *r, const bench_shape *shape, const char *reason);
void bench_report_end(bench_report *r);

#endif
