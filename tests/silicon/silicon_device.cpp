/* SPDX-License-Identifier: Apache-2.0
 *
 * hip_device.h on the CUDA runtime.
 */
#include "hip_device.h"

const char *hipk_runtime_fault() { return nullptr; }

hipError_t hipk_device_query(int ordinal, hipk_device *device, char *text, size_t text_bytes) {
  cudaDeviceProp properties;
  int runtime = 0;
  hipError_t error = cudaGetDeviceProperties(&properties, ordinal);
  if (error == hipSuccess) error = cudaRuntimeGetVersion(&runtime);
  if (error != hipSuccess) return error;
  /* The launch policies know no NVIDIA part; gfx950's geometries are the ones with most to show. */
  device->arch = M3IDX_GFX950;
  /* Except in prefill, where gfx942 has the larger tiles and the splits. */
  device->prefill_arch = M3IDX_GFX942;
  device->compute_units = properties.multiProcessorCount;
  snprintf(text, text_bytes, "sm_%d%d (%s), %d multiprocessors, CUDA runtime %d.%d, policies of gfx950",
           properties.major, properties.minor, properties.name, properties.multiProcessorCount, runtime / 1000,
           runtime % 1000 / 10);
  return hipSuccess;
}
