/* SPDX-License-Identifier: Apache-2.0
 *
 * What the host side must ask in each runtime's own way: is there a runtime, and which device is it.
 */
#ifndef M3IDX_HIP_DEVICE_H
#define M3IDX_HIP_DEVICE_H

#include "hip_ops.h"

/* NULL, or the sentence why this process has no runtime to call. */
const char *hipk_runtime_fault();

/* The targets that hip/CMakeLists.txt gives code objects to, as a sentence has them. */
#define HIPK_TARGETS "gfx942 and gfx950"

/* Fill *device, and text with name, architecture, compute units and runtime version, for a person. */
hipError_t hipk_device_query(int ordinal, hipk_device *device, char *text, size_t text_bytes);

#endif
