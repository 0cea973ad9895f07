/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of one matrix step, for the SIMT executor: a whole tile at a time, by a model that a test selects.
 */
#ifndef M3IDX_SIMT_MATRIX_H
#define M3IDX_SIMT_MATRIX_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SIMT_MATRIX_SIDE = 32, SIMT_MATRIX_K = 16 };

/* acc[row][col] += sum over k of a[row][k] * b[col][k]; a and b are codes of bf16. */
typedef struct simt_matrix_tile {
  int rows, cols;
  uint16_t a[SIMT_MATRIX_SIDE][SIMT_MATRIX_K], b[SIMT_MATRIX_SIDE][SIMT_MATRIX_K];
  float acc[SIMT_MATRIX_SIDE][SIMT_MATRIX_SIDE];
} simt_matrix_tile;

void simt_matrix_step(simt_matrix_tile *tile);

#ifdef __cplusplus
}
#endif
#endif
