/* SPDX-License-Identifier: Apache-2.0
 *
 * The oracle's rows and scores (S2.3, S3) with MPFR.
 *
 * A dot is the correctly rounded sum of exact products: mpfr_sum to 24 bits with exponents unbounded, then
 * mpfr_check_range and mpfr_subnormalize to binary32, which use the sum's ternary value and so round once.
 * Each dot is rounded before the largest is taken; S3.3 does it in the other order, and rounding is monotone.
 * MPFR's own rules for NaN and infinities in products and sums are those of S3.1.
 */
#include "oracle.h"

#include <math.h>
#include <string.h>

#include <mpfr.h>

enum {
  MAX_HEAD_DIM = 256,
  OPERAND_BITS = 24, /* the widest mantissa, f32's */
  BINARY32_BITS = 24,
  /* MPFR's mantissas lie in [1/2, 1): the least subnormal 2^-149 has exponent -148, the largest finite 128. */
  BINARY32_EMIN = -148,
  BINARY32_EMAX = 128
};

static const uint32_t canonical_nan = 0x7fc00000; /* S3.3 */

oracle_row oracle_row_at(int64_t first, int64_t i, int64_t seq_len, int64_t block_size) {
  oracle_row row = {.position = first + i};
  row.keys = row.position < 0 ? 0 : row.position >= seq_len ? seq_len : row.position + 1;
  while (row.blocks * block_size < row.keys) row.blocks++;
  return row;
}

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static void set_code(mpfr_t x, oracle_format format, uint32_t code) {
  long mantissa, exponent;
  switch (oracle_decode(format, code, &mantissa, &exponent)) {
  case ORACLE_FINITE: mpfr_set_si_2exp(x, mantissa, exponent, MPFR_RNDN); break;
  case ORACLE_PLUS_INF: mpfr_set_inf(x, 1); break;
  case ORACLE_MINUS_INF: mpfr_set_inf(x, -1); break;
  case ORACLE_NAN: mpfr_set_nan(x); break;
  }
}

/* x holds 24 bits of an unbounded result and ternary says on which side it fell; finish in binary32. */
static uint32_t finish(mpfr_t x, int ternary) {
  if (mpfr_nan_p(x)) return canonical_nan;
  mpfr_exp_t emin = mpfr_get_emin(), emax = mpfr_get_emax();
  mpfr_set_emin(BINARY32_EMIN);
  mpfr_set_emax(BINARY32_EMAX);
  ternary = mpfr_check_range(x, ternary, MPFR_RNDN);
  mpfr_subnormalize(x, ternary, MPFR_RNDN);
  float rounded = mpfr_get_flt(x, MPFR_RNDN);
  mpfr_set_emin(emin);
  mpfr_set_emax(emax);
  return mpfr_zero_p(x) ? 0 : bits_of(rounded); /* S3.4 */
}

uint32_t oracle_block_score(oracle_format q_format, const uint32_t *q, oracle_format k_format, const uint32_t *keys,
                            int64_t tokens, int head_dim) {
  mpfr_t query[MAX_HEAD_DIM], product[MAX_HEAD_DIM], key, dot;
  mpfr_ptr terms[MAX_HEAD_DIM];
  mpfr_init2(key, OPERAND_BITS);
  mpfr_init2(dot, BINARY32_BITS);
  for (int d = 0; d < head_dim; d++) {
    mpfr_init2(query[d], OPERAND_BITS);
    mpfr_init2(product[d], 2 * OPERAND_BITS); /* exact */
    set_code(query[d], q_format, q[d]);
    terms[d] = product[d];
  }

  uint32_t best = canonical_nan;
  for (int64_t t = 0; t < tokens; t++) {
    for (int d = 0; d < head_dim; d++) {
      set_code(key, k_format, keys[t * head_dim + d]);
      mpfr_mul(product[d], query[d], key, MPFR_RNDN);
    }
    int ternary = mpfr_sum(dot, terms, (unsigned long)head_dim, MPFR_RNDN);
    uint32_t rounded = finish(dot, ternary);
    if (rounded == canonical_nan) continue;
    if (best == canonical_nan || float_of(rounded) > float_of(best)) best = rounded;
  }

  for (int d = 0; d < head_dim; d++) {
    mpfr_clear(query[d]);
    mpfr_clear(product[d]);
  }
  mpfr_clear(dot);
  mpfr_clear(key);
  return best;
}

uint32_t oracle_scale(uint32_t score, uint32_t scale_bits) {
  mpfr_t x, factor;
  mpfr_init2(x, BINARY32_BITS);
  mpfr_init2(factor, BINARY32_BITS);
  set_code(x, ORACLE_F32, score);
  set_code(factor, ORACLE_F32, scale_bits);
  int ternary = mpfr_mul(x, x, factor, MPFR_RNDN);
  uint32_t scaled = finish(x, ternary);
  mpfr_clear(factor);
  mpfr_clear(x);
  return scaled;
}

uint32_t oracle_force(uint32_t score, int64_t block, int64_t blocks, int64_t init_blocks, int64_t local_blocks) {
  if (block >= blocks) return score;
  if (blocks - block <= local_blocks) return bits_of(1e29f); /* S3.7: local overwrites init */
  if (block < init_blocks) return bits_of(1e30f);
  return score;
}
