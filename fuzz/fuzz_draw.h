/* SPDX-License-Identifier: Apache-2.0
 *
 * The fuzzer's stream of case lines: line i of a seed is the same on every machine, whatever ran before it.
 *
 * The grammar's mass sits on edges.  Those of chunks, splits and tiles are not written down here: fuzz_edges_find()
 * asks the launch policies (S8) where their answers change.
 */
#ifndef M3IDX_FUZZ_DRAW_H
#define M3IDX_FUZZ_DRAW_H

#include "case.h"

/* What a line is aimed at; a line has any number of them. */
typedef enum fuzz_edge {
#define FUZZ_EDGE(name, text, what) FUZZ_EDGE_##name,
#include "fuzz_edge.def"
#undef FUZZ_EDGE
  FUZZ_EDGES
} fuzz_edge;

typedef enum fuzz_size { FUZZ_SMALL, FUZZ_MEDIUM, FUZZ_LARGE, FUZZ_SIZES } fuzz_size;

enum { FUZZ_MOST_EDGES = 64, FUZZ_LINE_BYTES = 4096, FUZZ_OPS_ALL = 7 };

/* Ascending counts at which something changes: each is the first of its kind, so that the one before it is the last
 * of another. */
typedef struct fuzz_counts {
  int count;
  int64_t at[FUZZ_MOST_EDGES];
} fuzz_counts;

typedef struct fuzz_edges {
  fuzz_counts select_blocks;  /* blocks of a row, or capacity: S8.1, S8.2 */
  fuzz_counts decode_reqs;    /* requests of a decode: S8.3, S8.4 */
  fuzz_counts prefill_rows;   /* query rows of a request: S8.5, its tiles too */
  fuzz_counts prefill_tokens; /* keys that the capacity holds: S8.5 */
  bool light;                 /* lines are smaller, for backends that are a thousand times slower than a machine */
} fuzz_edges;

void fuzz_edges_find(fuzz_edges *out);

typedef struct fuzz_line {
  char text[FUZZ_LINE_BYTES]; /* a case line, not canonical */
  case_op op;
  fuzz_size size;
  uint32_t edges; /* bit fuzz_edge */
} fuzz_line;

/* Line `index` of `seed`; ops has bit case_op for those that may be drawn, at least one. */
void fuzz_draw(const fuzz_edges *edges, uint64_t seed, uint64_t index, unsigned ops, fuzz_line *out);

const char *fuzz_edge_name(fuzz_edge edge);
const char *fuzz_size_name(fuzz_size size);

#endif
