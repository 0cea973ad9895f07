/* SPDX-License-Identifier: Apache-2.0
 *
 * From the format of a launch's keys to the kernel compiled for it: go.run<T>() for the formats whose numbers are bf16
 * numbers (S2.2).
 */
#ifndef M3IDX_HIP_BY_FORMAT_H
#define M3IDX_HIP_BY_FORMAT_H

#include "hip_format.h"

namespace hipk {

inline bool is_matrix_format(m3idx_dtype t) { return t == M3IDX_BF16 || is_fp8(t); }

template <class Go> void by_matrix_format(m3idx_dtype t, const Go &go) {
  switch (t) {
  case M3IDX_BF16: return go.template run<M3IDX_BF16>();
  case M3IDX_E4M3FN: return go.template run<M3IDX_E4M3FN>();
  case M3IDX_E4M3FNUZ: return go.template run<M3IDX_E4M3FNUZ>();
  case M3IDX_E5M2: return go.template run<M3IDX_E5M2>();
  default: return go.template run<M3IDX_E5M2FNUZ>();
  }
}

} // namespace hipk

#endif
