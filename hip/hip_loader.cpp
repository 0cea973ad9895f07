/* SPDX-License-Identifier: Apache-2.0
 *
 * Binds the few runtime functions that this room calls, by name.  A plugin linked to libamdhip64 would carry
 * one major version of it: it could not load beside the other, and a process that has its own copy already (a
 * framework's) would get a second runtime that knows none of its streams and pointers.  So the plugin takes
 * the runtime that the process has, else one it finds, and says why when there is none.
 * Not part of the builds that run the same sources without a HIP runtime (tests/simt, tests/silicon).
 */
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "hip_device.h"

namespace {

/* Newest first.  The functions below have the same signature in both. */
const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6"};

void *runtime;
char fault[M3IDX_MESSAGE_BYTES];

/* Threads that look at once find the same address. */
void *bind(void **known, const char *name) {
  void *function = __atomic_load_n(known, __ATOMIC_RELAXED);
  if (function == nullptr && runtime != nullptr) {
    function = dlsym(runtime, name);
    __atomic_store_n(known, function, __ATOMIC_RELAXED);
  }
  return function;
}

/* Before the constructors that register code objects: theirs is the default, last priority. */
__attribute__((constructor(101))) void load_runtime() {
  for (const char *name : names)
    if (runtime == nullptr) runtime = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  char reason[sizeof fault / 2] = "neither libamdhip64.so.7 nor libamdhip64.so.6 is on the loader's path";
  for (const char *name : names) {
    if (runtime == nullptr) runtime = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (runtime != nullptr) return;
    /* An error that begins with the name itself only says that there is no such file. */
    const char *error = dlerror();
    if (error != nullptr && strncmp(error, name, strlen(name)) != 0) snprintf(reason, sizeof reason, "%s", error);
  }
  /* /dev/kfd is the driver's; /dev/dxg takes its place under WSL. */
  const bool device = access("/dev/kfd", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
  snprintf(fault, sizeof fault, "%sno HIP runtime loads: %s",
           device ? "" : "this machine shows no AMD GPU (no /dev/kfd), and ", reason);
}

} // namespace

const char *hipk_runtime_fault() { return runtime == nullptr ? fault : nullptr; }

/* name(params) calls the runtime's function of that name with args; `otherwise` without a runtime. */
#define FORWARD(result, name, params, args, otherwise)                                        \
  extern "C" result name params {                                                             \
    static void *known;                                                                       \
    result(*const function) params = reinterpret_cast<result(*) params>(bind(&known, #name)); \
    return function != nullptr ? function args : otherwise;                                   \
  }
#define FORWARD_ERROR(name, params, args) FORWARD(hipError_t, name, params, args, hipErrorNotInitialized)

FORWARD_ERROR(hipGetDeviceCount, (int *count), (count))
FORWARD_ERROR(hipGetDevice, (int *device), (device))
FORWARD_ERROR(hipSetDevice, (int device), (device))
FORWARD_ERROR(hipGetDeviceProperties, (hipDeviceProp_t * properties, int device), (properties, device))
FORWARD_ERROR(hipRuntimeGetVersion, (int *version), (version))
FORWARD_ERROR(hipMalloc, (void **pointer, size_t bytes), (pointer, bytes))
FORWARD_ERROR(hipFree, (void *pointer), (pointer))
FORWARD_ERROR(hipMemsetAsync, (void *to, int value, size_t bytes, hipStream_t stream), (to, value, bytes, stream))
FORWARD_ERROR(hipMemcpy, (void *to, const void *from, size_t bytes, hipMemcpyKind kind), (to, from, bytes, kind))
FORWARD_ERROR(hipMemcpyAsync, (void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t stream),
              (to, from, bytes, kind, stream))
FORWARD_ERROR(hipStreamSynchronize, (hipStream_t stream), (stream))
FORWARD_ERROR(hipGetLastError, (), ())
FORWARD(const char *, hipGetErrorString, (hipError_t error), (error), "no HIP runtime")

/* What clang's own code for `kernel<<<...>>>` and for the code objects calls. */
FORWARD_ERROR(hipLaunchKernel,
              (const void *kernel, dim3 grid, dim3 group, void **args, size_t shared, hipStream_t stream),
              (kernel, grid, group, args, shared, stream))
FORWARD_ERROR(__hipPushCallConfiguration, (dim3 grid, dim3 group, size_t shared, hipStream_t stream),
              (grid, group, shared, stream))
FORWARD_ERROR(__hipPopCallConfiguration, (dim3 * grid, dim3 *group, size_t *shared, hipStream_t *stream),
              (grid, group, shared, stream))
FORWARD(void **, __hipRegisterFatBinary, (const void *data), (data), nullptr)
FORWARD(void, __hipUnregisterFatBinary, (void **modules), (modules), void())
FORWARD(void, __hipRegisterFunction,
        (void **modules, const void *host, char *device, const char *name, unsigned limit, void *tid, void *bid,
         dim3 *block, dim3 *grid, int *wave),
        (modules, host, device, name, limit, tid, bid, block, grid, wave), void())
