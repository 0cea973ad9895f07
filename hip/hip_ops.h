/* SPDX-License-Identifier: Apache-2.0
 *
 * The seam between the backend (hip_backend.cpp: devices, buffers, streams, status) and the kernel files
 * (hip_<op>.hip: what is supported, geometry, kernels, launch).  Declarations only.
 *
 * Every source of this room includes <hip/hip_runtime.h> and nothing else of a device runtime.  The tests
 * that run the same sources elsewhere (tests/simt, tests/silicon) put another header of that name in front.
 */
#ifndef M3IDX_HIP_OPS_H
#define M3IDX_HIP_OPS_H

#include <hip/hip_runtime.h>

#include "backend.h"

/* What a launcher may ask about the device. */
struct hipk_device {
  m3idx_arch arch; /* whose launch policies apply */
  int compute_units;
  bool matrix;             /* its matrix steps keep within hip_bound.h, as far as the probe can tell */
  m3idx_arch prefill_arch; /* whose prefill policy applies (S8.5) */
};

/* A workspace is [HIPK_COUNTERS completion counters of uint32][scratch of the launch].  The counters stand at
 * the same place for every op and shape, so a workspace that one launch left dirty is ready for any other:
 * scratch is never read before it is written, counters are zero before and after every launch (S8.2).  A
 * launch of more rows than counters is cut into several. */
enum { HIPK_COUNTERS = 65536 };

struct hipk_launch {
  const hipk_device *device;
  hipStream_t stream;
  uint32_t *counters; /* [HIPK_COUNTERS], all zero */
  void *scratch;      /* the bytes that hipk_<op>_plan asked for, aligned to 256 */
};

/* Two functions an op, behind the door and with every default resolved; all pointers name device memory.
 *   plan    M3IDX_OK and the bytes of scratch, or M3IDX_UNSUPPORTED with a sentence.  Pure: calls no runtime.
 *   launch  Enqueues on at->stream and returns: allocates nothing, waits for nothing, so a stream that is
 *           being captured into a graph is as good as any.  Geometry comes from shapes and capacity, never
 *           from lengths in device memory.  Called only where plan said M3IDX_OK; the caller asks
 *           hipGetLastError() afterwards. */
#define HIPK_OP(name)                                                                                             \
  m3idx_status hipk_##name##_plan(m3idx_context *ctx, const hipk_device *device, const m3idx_##name##_args *args, \
                                  size_t *scratch_bytes);                                                         \
  void hipk_##name##_launch(const hipk_launch *at, const m3idx_##name##_args *args);
#include "hip_ops.def"
#undef HIPK_OP

#endif
