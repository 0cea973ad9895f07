/* SPDX-License-Identifier: Apache-2.0
 *
 * Which lane holds which element of a matrix fragment, and where rows lie in group memory.  Integers only: every
 * target of hip_arch.h includes this, and so do the executor and the tests that model one.
 *
 * A matrix step adds to a tile of M x N accumulators the products of an M x K and a K x N tile of bf16:
 *     acc[row][col] += sum over k < K of a[row][k] * b[col][k]
 * Both operands are given as rows of K codes, so b is addressed by its column.  Element e of lane l of a fragment is
 * a[a_row(l, e)][a_k(l, e)], and so on; two codes share a word, the lower k in the lower half.
 *
 * Matrix rows (M3's D = 128: 256 bytes) lie in group memory in units of 16 bytes, 8 codes, with the units of each row
 * permuted: lanes that read one unit of 8 or 16 neighbouring rows, or 4 units of two, side by side or every second one,
 * then meet different banks.  Whoever writes a row puts unit u of row r at matrix_place(r, u).  A dot does not mind in
 * which order its products come, so a step takes those codes of a row that let a lane load whole units: k of step s is
 * code code_of(s, k) of the row, in a as in b.
 */
#ifndef M3IDX_HIP_LAYOUT_H
#define M3IDX_HIP_LAYOUT_H

#include <stdint.h>

namespace hipk {

/* Sixteen bytes, the widest access of one lane, and eight. */
struct alignas(16) u32x4 {
  uint32_t x, y, z, w;
};
struct alignas(8) u32x2 {
  uint32_t x, y;
};

constexpr int MATRIX_DIM = 128, MATRIX_UNITS = MATRIX_DIM / 8; /* codes of a row, and units */
constexpr int matrix_place(int row, int unit) {
  return row * MATRIX_UNITS + (unit ^ (row & (MATRIX_UNITS - 1)) ^ (row & 1) << 2);
}

template <int Wave> struct matrix_layout;

/* gfx942 and gfx950: v_mfma_f32_32x32x*_bf16.  gfx942 takes two of K = 8 for a step, the first with the lower four
 * codes of each lane. */
template <> struct matrix_layout<64> {
  static constexpr int M = 32, N = 32, K = 16;
  static constexpr int UNIT_STEPS = 1; /* steps that a unit of a lane serves */
  static constexpr int code_of(int step, int k) { return step * K + k; }
  static constexpr int A_WORDS = 4, B_WORDS = 4, ACC = 16;
  static constexpr int ROW_LANES = 32, COL_LANES = 31; /* bits of the lane that move along rows and columns of acc */
  static constexpr int a_row(int lane, int) { return lane % 32; }
  static constexpr int a_k(int lane, int e) { return lane / 32 * 8 + e; }
  static constexpr int b_col(int lane, int) { return lane % 32; }
  static constexpr int b_k(int lane, int e) { return lane / 32 * 8 + e; }
  static constexpr int acc_row(int lane, int e) { return e / 4 * 8 + lane / 32 * 4 + e % 4; }
  static constexpr int acc_col(int lane, int) { return lane % 32; }
};

/* mma.sync.m16n8k16, two of them side by side. */
template <> struct matrix_layout<32> {
  static constexpr int M = 16, N = 16, K = 16;
  static constexpr int UNIT_STEPS = 2;
  static constexpr int code_of(int step, int k) {
    return step / 2 * 32 + k % 8 / 2 * 8 + step % 2 * 4 + k / 8 * 2 + k % 2;
  }
  static constexpr int A_WORDS = 4, B_WORDS = 4, ACC = 8;
  static constexpr int ROW_LANES = 28, COL_LANES = 3;
  static constexpr int a_row(int lane, int e) { return lane / 4 + e / 2 % 2 * 8; }
  static constexpr int a_k(int lane, int e) { return lane % 4 * 2 + e % 2 + e / 4 * 8; }
  static constexpr int b_col(int lane, int e) { return lane / 4 + e / 4 * 8; }
  static constexpr int b_k(int lane, int e) { return lane % 4 * 2 + e % 2 + e / 2 % 2 * 8; }
  static constexpr int acc_row(int lane, int e) { return lane / 4 + e / 2 % 2 * 8; }
  static constexpr int acc_col(int lane, int e) { return lane % 4 * 2 + e % 2 + e / 4 * 8; }
};

} // namespace hipk

#endif
