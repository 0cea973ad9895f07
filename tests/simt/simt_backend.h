/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of hip/ as a host backend for tests, run by the SIMT executor.
 */
#ifndef M3IDX_SIMT_BACKEND_H
#define M3IDX_SIMT_BACKEND_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* arch: "gfx942" and "gfx950" (waves of 64, that architecture's launch policies and group memory) or "wave32"
 * (waves of 32 with the policies of gfx950, as on an NVIDIA GPU).  NULL for another name.  Matrix steps follow
 * simt_matrix.h's current model; a context opens with the probe's verdict on it.  A call answers
 * M3IDX_DEVICE with the executor's sentence when a kernel does something that simt.h forbids, or leaves a
 * completion counter that is not 0.  Not for several threads at a time. */
const m3idx_backend *simt_backend(const char *arch);

/* The order in which groups and lanes run follows from the seed and the calls since.  1 at first. */
void simt_backend_seed(uint64_t seed);
/* Compute units of every machine, which policies ask for; 0 = each its own, as at first. */
void simt_backend_units(int units);
/* Workgroups run since the program began. */
uint64_t simt_backend_groups(void);

#ifdef __cplusplus
}
#endif
#endif
