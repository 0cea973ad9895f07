/* SPDX-License-Identifier: Apache-2.0
 *
 * How far a dot that matrix steps have summed may lie from the exact one (docs/CERTIFIED-FILTER.md, "Matrix cores").
 *
 * f starts at zero and takes the D = 128 products of a row q and a key k, 16 a step.  Then, x the exact dot,
 *     |f - x| <= growth A + mixed (sum |q_d| + sum |k_d|) + offset = E,        A = sum |q_d k_d| < 2^126,
 * where `mixed` pays for subnormal elements and `offset` for subnormal sums.  Beyond that, and where q or k holds an
 * infinity or a NaN, f says nothing.  No device runtime is needed to read this file.
 */
#ifndef M3IDX_HIP_BOUND_H
#define M3IDX_HIP_BOUND_H

#include "geometry.h"
#include "hip_layout.h"
#include "m3idx.h"

namespace hipk {

struct matrix_bound {
  double growth, mixed, offset;
};

/* gfx942: proved from a published bit model of its arithmetic.  Others: assumed, twice and more of what the published
 * models of other units do at their worst; gfx950's arithmetic is not published.  Both allow the unit to take subnormal
 * operands, products and sums for zeros.  The probe (hip_probe.h) measures them. */
M3IDX_FN constexpr matrix_bound bound_of(m3idx_arch arch) {
  return {(arch == M3IDX_GFX942 ? 26 : 260) * 0x1p-24, 0x1p-125, MATRIX_DIM * 0x1p-125};
}

/* E of all rows with a block's keys, as a line over |q|: A <= |q| |k|, and sum |x_d| <= sqrt(D) |x|.  `norm`: at least
 * the largest |k| of the block. */
struct block_bound {
  float slope, offset;
};
M3IDX_FN block_bound bound_of_block(const matrix_bound &b, float norm) {
  const float growth = static_cast<float>(b.growth), mixed = 12 * static_cast<float>(b.mixed);
  return {growth * norm + mixed, mixed * norm + static_cast<float>(b.offset)};
}

/* Below which f a token cannot hold the largest dot of a row of norm |q| <= row_norm, `best` the largest f of the
 * block's tokens. */
M3IDX_FN float least_of(const block_bound &b, float best, float row_norm) {
  return best - 2 * (b.slope * row_norm + b.offset);
}

} // namespace hipk

#endif
