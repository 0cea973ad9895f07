/* SPDX-License-Identifier: Apache-2.0
 *
 * A libamdhip64.so.7 with one MI300X that computes nothing: device memory is host memory, and a launch is a line
 * on standard output.  Compiled against HIP's own headers, so that the plugin meets the runtime's real interface:
 * code objects registered before the first call, kernels launched by the handles that were registered.
 */
#include <hip/hip_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace {

struct wrapper { /* what clang hands to __hipRegisterFatBinary */
  unsigned magic, version;
  const void *bundle, *unused;
};
struct kernel {
  const void *host;
  const char *name;
} kernels[256];
int num_kernels;
struct {
  dim3 grid, group;
  size_t shared;
  hipStream_t stream;
} pushed;
hipError_t last = hipSuccess;

#define EXPORT extern "C" __attribute__((visibility("default")))

} // namespace

EXPORT void **__hipRegisterFatBinary(const void *data) {
  static void *handle;
  const wrapper *w = static_cast<const wrapper *>(data);
  if (w->magic != 0x48495046 || w->version != 1 || memcmp(w->bundle, "__CLANG_OFFLOAD_BUNDLE__", 24) != 0)
    printf("not a fat binary\n");
  return &handle;
}
EXPORT void __hipUnregisterFatBinary(void **) {}
EXPORT void __hipRegisterFunction(void **, const void *host, char *, const char *name, unsigned, void *, void *, dim3 *,
                                  dim3 *, int *) {
  if (num_kernels < 256) kernels[num_kernels++] = kernel{host, name};
}
EXPORT hipError_t __hipPushCallConfiguration(dim3 grid, dim3 group, size_t shared, hipStream_t stream) {
  pushed = {grid, group, shared, stream};
  return hipSuccess;
}
EXPORT hipError_t __hipPopCallConfiguration(dim3 *grid, dim3 *group, size_t *shared, hipStream_t *stream) {
  *grid = pushed.grid;
  *group = pushed.group;
  *shared = pushed.shared;
  *stream = pushed.stream;
  return hipSuccess;
}
EXPORT hipError_t hipLaunchKernel(const void *host, dim3 grid, dim3 group, void **args, size_t, hipStream_t) {
  for (int i = 0; i < num_kernels; i++)
    if (kernels[i].host == host && args[0] != nullptr) {
      printf("launch %s %u %u\n", kernels[i].name, grid.x, group.x);
      return hipSuccess;
    }
  return last = hipErrorInvalidDeviceFunction;
}

EXPORT hipError_t hipGetDeviceCount(int *count) {
  *count = 1;
  return hipSuccess;
}
EXPORT hipError_t hipGetDevice(int *device) {
  *device = 0;
  return hipSuccess;
}
EXPORT hipError_t hipSetDevice(int) { return hipSuccess; }
EXPORT hipError_t hipGetDeviceProperties(hipDeviceProp_t *properties, int) {
  memset(properties, 0, sizeof *properties);
  strcpy(properties->name, "AMD Instinct MI300X");
  strcpy(properties->gcnArchName, "gfx942:sramecc+:xnack-");
  properties->multiProcessorCount = 304;
  return hipSuccess;
}
EXPORT hipError_t hipRuntimeGetVersion(int *version) {
  *version = 70051831;
  return hipSuccess;
}
EXPORT hipError_t hipMalloc(void **pointer, size_t bytes) {
  *pointer = calloc(1, bytes);
  return *pointer != nullptr ? hipSuccess : hipErrorOutOfMemory;
}
EXPORT hipError_t hipFree(void *pointer) {
  free(pointer);
  return hipSuccess;
}
EXPORT hipError_t hipMemsetAsync(void *to, int value, size_t bytes, hipStream_t) {
  memset(to, value, bytes);
  return hipSuccess;
}
EXPORT hipError_t hipMemcpy(void *to, const void *from, size_t bytes, hipMemcpyKind) {
  memcpy(to, from, bytes);
  return hipSuccess;
}
EXPORT hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t) {
  return hipMemcpy(to, from, bytes, kind);
}
EXPORT hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }
EXPORT hipError_t hipGetLastError() {
  const hipError_t error = last;
  last = hipSuccess;
  return error;
}
EXPORT const char *hipGetErrorString(hipError_t) { return "an error of the fake"; }
