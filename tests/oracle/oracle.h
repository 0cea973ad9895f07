/* SPDX-License-Identifier: Apache-2.0
 *
 * The oracle: a second meaning of SEMANTICS S2 to S6 by other means, to judge the first.
 *
 *   numbers   MPFR: exact products, one correctly rounded sum for each dot (mpfr_sum), one subnormalisation
 *   select    a full sort by a comparator written from the contract's table, no 64-bit keys
 *   convert   the nearest of all 256 codes by exact comparison with midpoints, no rounding arithmetic
 *
 * It takes plain arguments, knows nothing of the library's headers and shares no arithmetic with ref/.  It
 * gathers nothing: keys arrive as the row sees them, token by token.  It is slow, and for one thread.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include <stdbool.h>
#include <stdint.h>

/* ---- numbers (S2.2) ---- */

typedef enum oracle_format {
  ORACLE_F32,
  ORACLE_F16,
  ORACLE_BF16,
  ORACLE_E4M3FN,
  ORACLE_E4M3FNUZ,
  ORACLE_E5M2,
  ORACLE_E5M2FNUZ,
  ORACLE_FORMATS
} oracle_format;

typedef enum oracle_kind { ORACLE_FINITE, ORACLE_PLUS_INF, ORACLE_MINUS_INF, ORACLE_NAN } oracle_kind;

int oracle_code_bits(oracle_format format);

/* A code as a number: finite ones are mantissa * 2^exponent exactly (-0 has mantissa 0). */
oracle_kind oracle_decode(oracle_format format, uint32_t code, long *mantissa, long *exponent);

/* The code of an 8-bit format for a 16- or 32-bit number (S6.2). */
uint32_t oracle_convert(oracle_format from, uint32_t code, oracle_format to);

/* ---- rows (S2.3) ---- */

typedef struct oracle_row {
  int64_t position; /* p, may be negative */
  int64_t keys;     /* n */
  int64_t blocks;   /* N */
} oracle_row;

/* Row i of a request whose first row stands at `first`: prefix_len, or seq_len - decode_query_len. */
oracle_row oracle_row_at(int64_t first, int64_t i, int64_t seq_len, int64_t block_size);

/* ---- scores (S3), as binary32 bits ---- */

/* q[head_dim] and keys[tokens][head_dim] are codes; tokens >= 1. */
uint32_t oracle_block_score(oracle_format q_format, const uint32_t *q, oracle_format k_format, const uint32_t *keys,
                            int64_t tokens, int head_dim);
uint32_t oracle_scale(uint32_t score, uint32_t scale_bits); /* S3.5 */
/* The value a block is forced to (S3.7), or `score` itself. */
uint32_t oracle_force(uint32_t score, int64_t block, int64_t blocks, int64_t init_blocks, int64_t local_blocks);

/* ---- selection (S4) ---- */

typedef struct oracle_contract {
  enum { ORACLE_LOWER, ORACLE_HIGHER } tie;
  enum { ORACLE_NAN_1E30, ORACLE_NAN_INF, ORACLE_NAN_BELOW, ORACLE_NAN_BITS } nan;
  enum { ORACLE_ZERO_EQUAL, ORACLE_ZERO_SIGNED } zero;
  enum { ORACLE_BY_SCORE, ORACLE_BY_ID } order;
} oracle_contract;

/* The k best of score[count], whose ids are first, first + 1, ...; the rest of ids[k] is -1. */
void oracle_select(const uint32_t *score, int64_t first, int64_t count, oracle_contract contract, int64_t k,
                   int32_t *ids);

/* ---- sparse table (S5) ---- */

/* One row of the page-16 table: out[8 * k], *context_len.  block_table is the request's. */
void oracle_sparse(const int32_t *ids, int64_t k, int64_t position, const int32_t *block_table, int64_t page_stride,
                   int64_t heads, int64_t head, int32_t *out, int32_t *context_len);

#endif
