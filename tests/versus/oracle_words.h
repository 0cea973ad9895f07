/* SPDX-License-Identifier: Apache-2.0
 *
 * Formats and contracts of the library as the oracle names them.  The oracle itself knows neither (oracle.h).
 */
#ifndef M3IDX_ORACLE_WORDS_H
#define M3IDX_ORACLE_WORDS_H

#include "m3idx.h"
#include "oracle.h"

static inline oracle_format format_of(m3idx_dtype dtype) {
  switch (dtype) {
  case M3IDX_F32: return ORACLE_F32;
  case M3IDX_F16: return ORACLE_F16;
  case M3IDX_BF16: return ORACLE_BF16;
  case M3IDX_E4M3FN: return ORACLE_E4M3FN;
  case M3IDX_E4M3FNUZ: return ORACLE_E4M3FNUZ;
  case M3IDX_E5M2: return ORACLE_E5M2;
  case M3IDX_E5M2FNUZ: return ORACLE_E5M2FNUZ;
  case M3IDX_DTYPE_COUNT: break;
  }
  return ORACLE_FORMATS;
}

static inline oracle_contract contract_of(m3idx_contract c) {
  oracle_contract o;
  o.tie = c.tie == M3IDX_TIE_LOWER_ID ? ORACLE_LOWER : ORACLE_HIGHER;
  o.nan = c.nan == M3IDX_NAN_AS_MINUS_1E30     ? ORACLE_NAN_1E30
          : c.nan == M3IDX_NAN_AS_MINUS_INF    ? ORACLE_NAN_INF
          : c.nan == M3IDX_NAN_BELOW_MINUS_INF ? ORACLE_NAN_BELOW
                                               : ORACLE_NAN_BITS;
  o.zero = c.zero == M3IDX_ZERO_EQUAL ? ORACLE_ZERO_EQUAL : ORACLE_ZERO_SIGNED;
  o.order = c.order == M3IDX_ORDER_SCORE ? ORACLE_BY_SCORE : ORACLE_BY_ID;
  return o;
}

#endif
