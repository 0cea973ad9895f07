/* SPDX-License-Identifier: Apache-2.0
 *
 * How far a dot that matrix steps have summed may lie from the exact one (docs/CERTIFIED-FILTER.md, "Matrix cores").
 *
 * f starts at zero and takes the D = 128 products of a row q and a key k, 16 a step.  With s = sum |q_d| and P = the
 * largest |k_d|, a finite f has
 *     |f - x| <= E = growth s P + mixed (s + D P) + offset
 * where `mixed` pays for subnormal elements and `offset` for subnormal sums, as long as s P < 2^126; beyond that, and
 * where q or the key holds an infinity or a NaN, f says nothing.
 * A token with f < m - 2E, m the f of another token of the block, cannot hold the block's largest dot; E includes what
 * the comparison in binary32 rounds.
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

/* gfx942: proved from a published bit model of its arithmetic.  Others: assumed, with a margin of some six times what
 * the published models of other units do; gfx950's arithmetic is not published.  Both allow the unit to take subnormal
 * operands, products and sums for zeros.  The probe (hip_probe.h) measures them. */
M3IDX_FN constexpr matrix_bound bound_of(m3idx_arch arch) {
  return {(arch == M3IDX_GFX942 ? 26 : 260) * 0x1p-24, 0x1p-125, MATRIX_DIM * 0x1p-125};
}

/* BOUND_SCALE E of a row as a line over P.  The scale lets the line overflow, and so drop nothing, from some s P
 * between 2^122 and 2^127 on. */
struct row_bound {
  float slope, offset;
};
constexpr double BOUND_SCALE = 0x1p21;

/* `sum`: sum |q_d| in binary64, rounded somehow. */
HIPK_DEVICE row_bound bound_of_row(const matrix_bound &b, double sum) {
  return {static_cast<float>(BOUND_SCALE * (b.growth * sum + b.mixed * MATRIX_DIM)),
          static_cast<float>(BOUND_SCALE * (b.mixed * sum + b.offset))};
}

/* Below which f a token cannot hold the largest dot: `best` is the largest finite f, `peak` P (infinite or NaN where a
 * key holds one).  The answer may be -infinity or a NaN, and f itself infinite or a NaN: ask `f < least`, and keep what
 * is not finite. */
HIPK_DEVICE float least_of(const row_bound &row, float best, float peak) {
  return best - fused(row.slope, peak, row.offset) * static_cast<float>(2 / BOUND_SCALE);
}

} // namespace hipk

#endif
