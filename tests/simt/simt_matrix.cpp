/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of a matrix step.
 */
#include "simt_matrix.h"

#include <cstring>

namespace {

double value_of(uint16_t code) {
  const uint32_t bits = static_cast<uint32_t>(code) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return static_cast<double>(x);
}

} // namespace

void simt_matrix_step(simt_matrix_tile *tile) {
  for (int row = 0; row < tile->rows; row++)
    for (int col = 0; col < tile->cols; col++) {
      double sum = static_cast<double>(tile->acc[row][col]);
      for (int k = 0; k < SIMT_MATRIX_K; k++) sum += value_of(tile->a[row][k]) * value_of(tile->b[col][k]);
      tile->acc[row][col] = static_cast<float>(sum);
    }
}
