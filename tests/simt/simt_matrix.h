/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of one matrix step, for the SIMT executor: a whole tile at a time, by a model that a test selects.
 *
 * plausible    what the unit is known or guessed to do.
 *                gfx942  two instructions of a block of 8 products, as published: products cut toward zero at 24
 *                        fraction bits under the largest exponent, a floor at the sum with the accumulator, one
 *                        rounding to nearest
 *                gfx950  the same arithmetic with the blocks in order of k: a guess, nothing is published
 *                mma     as published for Hopper: 16 products and the accumulator cut toward zero at 25 fraction
 *                        bits under the largest exponent, the sum cut to binary32
 * adversarial  the worst that CERTIFIED-FILTER.md allows the unit: in each instruction the exact sum, then the
 *              farthest binary32 number within the permitted error, to the side that `side` says.  `scale` != 1
 *              permits another multiple of the error: more than 1 is a unit that breaks the assumption.  Where the
 *              magnitudes add up to 2^127 or more the result is 0.
 */
#ifndef M3IDX_SIMT_MATRIX_H
#define M3IDX_SIMT_MATRIX_H

#include <stdbool.h>
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

typedef enum simt_matrix_unit { SIMT_MATRIX_GFX942, SIMT_MATRIX_GFX950, SIMT_MATRIX_MMA } simt_matrix_unit;
/* Where the error goes: up, down, anywhere (drawn anew each time), or always to one side for a place of the tile. */
typedef enum simt_matrix_side {
  SIMT_MATRIX_UP,
  SIMT_MATRIX_DOWN,
  SIMT_MATRIX_ANY,
  SIMT_MATRIX_BY_PLACE
} simt_matrix_side;
typedef struct simt_matrix_model {
  simt_matrix_unit unit;
  bool adversarial;
  simt_matrix_side side;
  double scale;
  uint64_t seed;
} simt_matrix_model;

void simt_matrix_step(simt_matrix_tile *tile, simt_matrix_model *model);

/* Sums of 128 products on one element, as eight steps do it. */
float simt_matrix_dot(const uint16_t *a, const uint16_t *b, simt_matrix_model *model);

/* "plausible", "up", "down", "any" or "place" into the model; false for another name. */
bool simt_matrix_named(const char *name, simt_matrix_model *model);

/* The model of the launches to come; the unit follows from the machine.  Plausible at first, or what the environment's
 * M3IDX_SIMT_MATRIX names. */
simt_matrix_model *simt_matrix_current(void);

#ifdef __cplusplus
}
#endif
#endif
