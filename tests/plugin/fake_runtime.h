/* SPDX-License-Identifier: Apache-2.0
 *
 * A device runtime that is no device: memory of the host, watched.  Stands in front as <hip/hip_runtime.h> for
 * test_hip_host, which runs the plugin's host side on it.  It fails on demand, and it notices a copy whose
 * device side is no live device allocation, or whose host side is one.
 */
#ifndef M3IDX_FAKE_RUNTIME_H
#define M3IDX_FAKE_RUNTIME_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hipError_t {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorInsufficientDriver = 35,
  hipErrorNoDevice = 100,
  hipErrorInvalidDevice = 101,
  hipErrorUnknown = 999
} hipError_t;
typedef enum hipMemcpyKind { hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2 } hipMemcpyKind;
typedef struct fake_stream *hipStream_t;

hipError_t hipGetDeviceCount(int *count);
hipError_t hipGetDevice(int *device);
hipError_t hipSetDevice(int device);
hipError_t hipMalloc(void **pointer, size_t bytes);
hipError_t hipFree(void *pointer);
hipError_t hipMemsetAsync(void *to, int value, size_t bytes, hipStream_t stream);
hipError_t hipMemcpy(void *to, const void *from, size_t bytes, hipMemcpyKind kind);
hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipGetLastError(void);
const char *hipGetErrorString(hipError_t error);

/* ---- what the test asks of it ---- */

/* The call after `calls` more fails, with `error`; negative = none.  Returns whether the last one set came up. */
int fake_fail_after(int calls, hipError_t error);
/* The whole of [pointer, pointer + bytes) is in one live device allocation. */
int fake_is_device(const void *pointer, size_t bytes);
size_t fake_allocations(void); /* live ones */
int fake_current_device(void);
void fake_runtime_fault(const char *fault); /* what hipk_runtime_fault() says; NULL = nothing */
void fake_arch(const char *name);           /* of the device */
void fake_matrix_error(double relative);    /* of the sums that the probe sees; 0 at first */

#ifdef __cplusplus
}
#endif
#endif
