/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers of generated cases (docs/CASES.md, "Data kinds"): a counter-based generator, an integer
 * encoder for every format, and one fill for each tensor.  Internal to case generation.
 */
#ifndef M3IDX_CASEDATA_H
#define M3IDX_CASEDATA_H

#include "case.h"

/* Word i of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) started at key: any word, in any order. */
uint64_t case_word(uint64_t key, uint64_t i);

/* The code of (-1)^negative * m * 2^e, m < 2^60, to nearest, ties to even, saturating to the largest finite
 * value; a zero keeps its sign where the format has one. */
uint32_t case_encode(m3idx_dtype dtype, bool negative, uint64_t m, int e);

/* Fill q [T][H][D], index_k [P][B][D] or score [H][T][M] of a spec; all of them hold zeros. */
void case_fill_q(const case_spec *spec, void *q);
void case_fill_index_k(const case_spec *spec, int64_t pages, void *index_k);
void case_fill_score(const case_spec *spec, int64_t max_block, float *score);

/* Keys of the streams that a seed gives. */
typedef enum case_stream {
  CASE_STREAM_Q,
  CASE_STREAM_K,
  CASE_STREAM_SCORE,
  CASE_STREAM_PAGES,
  CASE_STREAM_ATTENTION,
  CASE_STREAM_BASE,  /* near: the key that all tokens share */
  CASE_STREAM_ROLES, /* near: which coordinate does what */
  CASE_STREAM_SOWN,  /* specials: where and which */
  CASE_STREAM_MIXED, /* mixed: which kind a row, page or run is of */
  CASE_STREAM_DRAWN  /* tables: pages drawn at random */
} case_stream;
uint64_t case_stream_key(const case_spec *spec, case_stream stream);

/* A random permutation of 0..n-1. */
void case_permute(uint64_t key, int64_t n, int32_t *out);

#endif
