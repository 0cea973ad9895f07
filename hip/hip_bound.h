/* SPDX-License-Identifier: Apache-2.0
 *
 * How far a dot that matrix steps have summed may lie from the exact one (docs/CERTIFIED-FILTER.md, "Matrix cores").
 *
 * f starts at zero and takes the D = 128 products of a row q and a key k, 16 a step.  With s = sum |q_d| and P = the
 * largest |k_d|, a finite f has
 *     |f - x| <= E = growth s P + mixed (s + D P) + offset
 * where `mixed` pays for subnormal elements and `offset` for subnormal sums.  An f that is not finite says nothing (no
 * unit here returns from an infinity or a NaN to a number), so no overflow needs to be excluded beforehand.
 * A token with f < m - 2E, m a finite f of another token of the block, cannot hold the block's largest dot; E includes
 * what the comparison in binary32 rounds.
 */
#ifndef M3IDX_HIP_BOUND_H
#define M3IDX_HIP_BOUND_H

#include "geometry.h"
#include "hip_arch.h"
#include "m3idx.h"

namespace hipk {

struct matrix_bound {
  double growth, mixed, offset;
};

/* gfx942: proved from a published bit model of its arithmetic.  Others: assumed, with a margin of some ten times what
 * any published model does; gfx950's arithmetic is not published.  The probe (hip_probe.h) measures both. */
M3IDX_FN constexpr matrix_bound bound_of(m3idx_arch arch) {
  return arch == M3IDX_GFX942 ? matrix_bound{26 * 0x1p-24, 26 * 0x1p-150, MATRIX_DIM * 0x1p-149}
                              : matrix_bound{260 * 0x1p-24, 0x1p-125, MATRIX_DIM * 0x1p-125};
}

/* E of a row as a line over P. */
struct row_bound {
  float slope, offset;
};

/* `sum`: sum |q_d| in binary64.  A row with an infinity or a NaN gets a bound that drops no token. */
HIPK_DEVICE row_bound bound_of_row(const matrix_bound &b, double sum) {
  return {static_cast<float>(b.growth * sum + b.mixed * MATRIX_DIM), static_cast<float>(b.mixed * sum + b.offset)};
}

/* The f below which a token cannot hold the largest dot; `best` the largest finite f, `peak` P, infinite or NaN where a
 * key holds one.  A NaN answer drops nothing: ask `f < least`. */
HIPK_DEVICE float least_of(const row_bound &row, float best, float peak) {
  return best - 2 * fused(row.slope, peak, row.offset);
}

} // namespace hipk

#endif
