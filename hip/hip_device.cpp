/* SPDX-License-Identifier: Apache-2.0
 *
 * hip_device.h on a ROCm runtime.
 */
#include "hip_device.h"

#include <string.h>

hipError_t hipk_device_query(int ordinal, hipk_device *device, char *text, size_t text_bytes) {
  hipDeviceProp_t properties;
  int runtime = 0;
  hipError_t error = hipGetDeviceProperties(&properties, ordinal);
  if (error == hipSuccess) error = hipRuntimeGetVersion(&runtime);
  if (error != hipSuccess) return error;
  /* "gfx942:sramecc+:xnack-": the target, then its features. */
  char target[sizeof properties.gcnArchName];
  snprintf(target, sizeof target, "%s", properties.gcnArchName);
  target[strcspn(target, ":")] = '\0';
  device->arch = m3idx_arch_by_name(target);
  device->prefill_arch = device->arch;
  device->compute_units = properties.multiProcessorCount;
  snprintf(text, text_bytes, "%s (%s), %d compute units, HIP runtime %d.%d.%d", properties.gcnArchName, properties.name,
           properties.multiProcessorCount, runtime / 10000000, runtime / 100000 % 100, runtime % 100000);
  return hipSuccess;
}
