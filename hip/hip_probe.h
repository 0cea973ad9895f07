/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the matrix steps of a device keep within hip_bound.h: rows that would show a larger error, all products of
 * two sets of them on the device, and their distance from the exact sums.
 *
 * A probe can only refute.  It runs once a process and device, when the first context opens: not at the first score,
 * whose stream may be in the middle of a capture and must not be waited for.  hip_backend.cpp runs it.
 */
#ifndef M3IDX_HIP_PROBE_H
#define M3IDX_HIP_PROBE_H

#include <stdint.h>

#include "hip_layout.h"
#include "hip_ops.h"

enum { HIPK_PROBE_ROWS = 64 };

struct hipk_probe {
  alignas(16) uint16_t a[HIPK_PROBE_ROWS][hipk::MATRIX_DIM]; /* codes of bf16 */
  alignas(16) uint16_t b[HIPK_PROBE_ROWS][hipk::MATRIX_DIM];
  float out[HIPK_PROBE_ROWS][HIPK_PROBE_ROWS]; /* out[i][j]: a[i] by b[j] */
};

void hipk_probe_fill(hipk_probe *probe);
/* `probe` is device memory; a and b are filled, out is computed. */
void hipk_probe_launch(hipStream_t stream, hipk_probe *probe);
/* The largest error as a multiple of what is allowed: above 1, or a NaN, the steps must not be relied on. */
double hipk_probe_worst(m3idx_arch arch, const hipk_probe *probe);
/* Set device->matrix, and append the verdict to the sentence in text. */
void hipk_probe_conclude(double worst, hipk_device *device, char *text, size_t text_bytes);

#endif
