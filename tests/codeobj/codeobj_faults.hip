/* SPDX-License-Identifier: Apache-2.0
 *
 * The liar test of codeobj.py: one kernel that keeps every promise and, with FAULT set, breaks one.  Compiled
 * by the test, never run.
 */
#include <hip/hip_runtime.h>
#include <stdint.h>

#ifndef FAULT
#define FAULT 0
#endif

/* 1: more live values than registers; 2: an array indexed at run time; 3: a called function; 4: group memory
 * that keeps other groups out; 5 to 8: an arrival that is relaxed, only release, only acquire, of too small a scope */
#if FAULT == 1
#define BOUNDS __launch_bounds__(1024, 2)
#else
#define BOUNDS __launch_bounds__(256)
#endif
#if FAULT == 4
constexpr int LDS_WORDS = 12 * 1024;
#else
constexpr int LDS_WORDS = 1024;
#endif

#if FAULT == 3
__device__ __attribute__((noinline)) float called(float x) { return x * x + 1.0f; }
#endif

__global__ BOUNDS void probe(float *values, uint32_t *counter, float *out, int n) {
  __shared__ float lds[LDS_WORDS];
  float sum = values[threadIdx.x];
#if FAULT == 1
  float live[256];
#pragma unroll
  for (int i = 0; i < 256; i++) live[i] = values[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 256; i++) sum += live[i] * live[255 - i] * values[threadIdx.x + 7 * i];
#pragma unroll
  for (int i = 0; i < 256; i++) out[i * 1024 + threadIdx.x] = live[i];
#elif FAULT == 2
  volatile float array[64];
  for (int i = 0; i < 64; i++) array[i] = values[i];
  sum += array[n & 63];
#elif FAULT == 3
  sum = called(sum);
#endif
  for (int i = static_cast<int>(threadIdx.x); i < LDS_WORDS; i += 256) lds[i] = sum;
  __syncthreads();
  out[threadIdx.x] = lds[n];
  __syncthreads();
  if (threadIdx.x == 0) {
#if FAULT == 5
    constexpr int order = __ATOMIC_RELAXED;
#elif FAULT == 6
    constexpr int order = __ATOMIC_RELEASE;
#elif FAULT == 7
    constexpr int order = __ATOMIC_ACQUIRE;
#else
    constexpr int order = __ATOMIC_ACQ_REL;
#endif
#if FAULT == 8
    constexpr int scope = __HIP_MEMORY_SCOPE_WORKGROUP;
#else
    constexpr int scope = __HIP_MEMORY_SCOPE_AGENT;
#endif
    if (__hip_atomic_fetch_add(counter, 1u, order, scope) == gridDim.x - 1) out[n] = values[n];
  }
}
