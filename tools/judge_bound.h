/* SPDX-License-Identifier: Apache-2.0
 *
 * Which scores a declared arithmetic can honestly arrive at.  The bounds and their proofs are docs/JUDGE.md; the
 * letters are that page's.
 */
#ifndef M3IDX_JUDGE_BOUND_H
#define M3IDX_JUDGE_BOUND_H

#include "judge_number.h"

typedef enum judge_arith { JUDGE_EXACT, JUDGE_F32, JUDGE_BF16_MMA, JUDGE_CDNA3_MFMA, JUDGE_ARITHS } judge_arith;
const char *judge_arith_name(judge_arith arith); /* NULL past the end */

/* |f - x| <= e 2^-32 (A + X) + 4 D h + F for one dot. */
typedef struct judge_bound {
  judge_arith arith;
  int head_dim;
  int64_t e;
  bool exponents; /* X counts: products are aligned by the fields of their operands */
  bool flush;     /* h is 2^-126 and F counts, else h is 2^-149 */
} judge_bound;

/* The bound of an arithmetic for D = head_dim.  k_block: products a matrix unit adds at once, 0 = not declared.
 * 0, or -1 and a sentence if the arithmetic cannot have such inputs. */
int judge_bound_of(judge_arith arith, bool flush, int k_block, int head_dim, m3idx_dtype q, m3idx_dtype k,
                   judge_bound *out, char *why);

/* The floats that a block's score may be: low..high if finite, and each special value by its flag. */
typedef struct judge_set {
  float low, high;
  bool finite, plus_inf, minus_inf, nan;
} judge_set;

judge_set judge_set_point(float value);
bool judge_set_has(const judge_set *set, float value);
/* Scores times scale, rounded once more (S3.5); with flush, subnormals may become zero on either side. */
void judge_set_scale(judge_set *set, float scale, bool flush);

/* One query: D numbers from data[index], and as doubles; low as in judge_number, the least of them. */
typedef struct judge_query {
  const judge_codec *codec;
  const void *data;
  int64_t index;
  int low;
  bool subnormal;
  double value[256];
} judge_query;
void judge_query_load(judge_query *query, const judge_codec *codec, const void *data, int64_t index, int head_dim);

/* One page of keys, the same way. */
typedef struct judge_tile {
  const judge_codec *codec;
  const void *data;
  int64_t index;
  int low[128];
  bool subnormal[128];
  double value[128 * 256];
} judge_tile;
void judge_tile_load(judge_tile *tile, const judge_codec *codec, const void *data, int64_t index, int tokens,
                     int head_dim);

/* The set of a block whose first `tokens` tokens are visible.  Not for JUDGE_EXACT. */
judge_set judge_block(const judge_bound *bound, const judge_query *query, const judge_tile *tile, int tokens);

#endif
