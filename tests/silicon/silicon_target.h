/* SPDX-License-Identifier: Apache-2.0
 *
 * NVIDIA GPUs as a target of the HIP sources, compiled by nvcc: the names of hip/hip_arch.h for waves of 32, and
 * the runtime functions that the host side calls.  The build puts it in front as <hip/hip_runtime.h>.  Renames
 * only: what a name does here it does by one CUDA function or instruction.  The host part reads as plain C++.
 */
#ifndef M3IDX_SILICON_TARGET_H
#define M3IDX_SILICON_TARGET_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "hip_layout.h"

/* ---- the runtime ---- */

typedef cudaError_t hipError_t;
typedef cudaStream_t hipStream_t;
typedef cudaEvent_t hipEvent_t;
typedef cudaGraph_t hipGraph_t;
typedef cudaGraphExec_t hipGraphExec_t;
typedef cudaMemcpyKind hipMemcpyKind;

#define hipSuccess cudaSuccess
#define hipErrorOutOfMemory cudaErrorMemoryAllocation
#define hipErrorNoDevice cudaErrorNoDevice
#define hipErrorInvalidDevice cudaErrorInvalidDevice
#define hipErrorInsufficientDriver cudaErrorInsufficientDriver
#define hipMemcpyHostToDevice cudaMemcpyHostToDevice
#define hipMemcpyDeviceToHost cudaMemcpyDeviceToHost
#define hipMemcpyDeviceToDevice cudaMemcpyDeviceToDevice
#define hipStreamNonBlocking cudaStreamNonBlocking
#define hipStreamCaptureModeGlobal cudaStreamCaptureModeGlobal

#define hipDeviceSynchronize cudaDeviceSynchronize
#define hipEventCreate cudaEventCreate
#define hipEventElapsedTime cudaEventElapsedTime
#define hipEventRecord cudaEventRecord
#define hipEventSynchronize cudaEventSynchronize
#define hipFree cudaFree
#define hipGetDevice cudaGetDevice
#define hipGetDeviceCount cudaGetDeviceCount
#define hipGetErrorString cudaGetErrorString
#define hipGetLastError cudaGetLastError
#define hipGraphExecDestroy cudaGraphExecDestroy
#define hipGraphDestroy cudaGraphDestroy
#define hipGraphInstantiate cudaGraphInstantiate
#define hipGraphLaunch cudaGraphLaunch
#define hipMalloc cudaMalloc
#define hipMemcpy cudaMemcpy
#define hipMemcpyAsync cudaMemcpyAsync
#define hipMemset cudaMemset
#define hipMemsetAsync cudaMemsetAsync
#define hipSetDevice cudaSetDevice
#define hipStreamBeginCapture cudaStreamBeginCapture
#define hipStreamCreateWithFlags cudaStreamCreateWithFlags
#define hipStreamDestroy cudaStreamDestroy
#define hipStreamEndCapture cudaStreamEndCapture
#define hipStreamSynchronize cudaStreamSynchronize

/* ---- the device ---- */

#define HIPK_TARGET "silicon"

#ifdef __CUDACC__
#include <cuda_fp16.h>

#define HIPK_KERNEL(threads) __global__ void __launch_bounds__(threads)
#define HIPK_KERNEL_AT(threads, groups) __global__ void __launch_bounds__(threads, groups)
#define HIPK_MATRIX_KERNEL(threads, groups, half) HIPK_KERNEL_AT(threads, groups)
#define HIPK_DEVICE __device__ __forceinline__
#define HIPK_LDS(type, name, count) __shared__ __align__(16) type name[count]

namespace hipk {

constexpr int WAVE = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

template <class T> using gptr = T *;
template <class T> using lds = T *;
template <class T> HIPK_DEVICE gptr<T> global(T *pointer) { return pointer; }
template <class T> HIPK_DEVICE T load(gptr<const unsigned char> base, int64_t byte) {
  return *reinterpret_cast<const T *>(base + byte);
}

HIPK_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
HIPK_DEVICE int group_index() { return static_cast<int>(blockIdx.x); }
HIPK_DEVICE int group_count() { return static_cast<int>(gridDim.x); }
HIPK_DEVICE int lane_index() { return static_cast<int>(threadIdx.x & (WAVE - 1)); }
/* No shuffle: kernels ask where lanes have parted, and there a wave-wide shuffle never returns. */
HIPK_DEVICE int wave_index() { return static_cast<int>(threadIdx.x / WAVE); }

HIPK_DEVICE void barrier() { __syncthreads(); }
HIPK_DEVICE void wave_sync() { __syncwarp(); }

HIPK_DEVICE uint64_t ballot(bool vote) { return __ballot_sync(ALL_LANES, vote); }
template <class T> HIPK_DEVICE T shuffle(T value, int lane) { return __shfl_sync(ALL_LANES, value, lane); }
template <int Mask, class T> HIPK_DEVICE T shuffle_xor(T value) { return __shfl_xor_sync(ALL_LANES, value, Mask); }

HIPK_DEVICE uint32_t float_bits(float x) { return __float_as_uint(x); }
HIPK_DEVICE float bits_float(uint32_t x) { return __uint_as_float(x); }
HIPK_DEVICE uint64_t double_bits(double x) { return static_cast<uint64_t>(__double_as_longlong(x)); }
HIPK_DEVICE double bits_double(uint64_t x) { return __longlong_as_double(static_cast<long long>(x)); }
HIPK_DEVICE float half_float(uint16_t x) { return __half2float(__ushort_as_half(x)); }
HIPK_DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
HIPK_DEVICE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
HIPK_DEVICE float magnitude(float x) { return fabsf(x); }
HIPK_DEVICE float larger(float a, float b) { return fmaxf(a, b); }
HIPK_DEVICE float square_root(float x) { return __fsqrt_rn(x); }
HIPK_DEVICE uint32_t larger_halves(uint32_t a, uint32_t b) { return __vmaxu2(a, b); }
HIPK_DEVICE int count_bits(uint64_t mask) { return __popcll(mask); }
HIPK_DEVICE int lowest_bit(uint64_t mask) { return __ffsll(static_cast<long long>(mask)) - 1; }
HIPK_DEVICE int highest_bit(uint64_t mask) { return 63 - __clzll(static_cast<long long>(mask)); }

HIPK_DEVICE uint32_t arrive(gptr<uint32_t> counter) {
  return __nv_atomic_fetch_add(counter, 1u, __NV_ATOMIC_ACQ_REL, __NV_THREAD_SCOPE_DEVICE);
}
HIPK_DEVICE void reset(gptr<uint32_t> counter) {
  __nv_atomic_store_n(counter, 0u, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);
}

HIPK_DEVICE void raise(gptr<uint32_t> flag) {
  __nv_atomic_store_n(flag, 1u, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);
}

constexpr bool ASYNC_COPY = true;
HIPK_DEVICE void copy_async(lds<u32x4> to, gptr<const unsigned char> from, int64_t byte) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(__cvta_generic_to_global(from + byte))
               : "memory");
}
HIPK_DEVICE void copies_done() { asm volatile("cp.async.wait_all;" : : : "memory"); }

/* ---- matrix steps ---- */

struct matrix_a {
  uint32_t w[4];
};
struct matrix_b {
  uint32_t w[4];
};
struct matrix_acc {
  float v[8];
};

HIPK_DEVICE matrix_a a_of(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) { return {{w0, w1, w2, w3}}; }
HIPK_DEVICE matrix_b b_of(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) { return {{w0, w1, w2, w3}}; }

/* A lane's words of a row and step: half a unit.  The compiler reads a unit once for both of its steps. */
HIPK_DEVICE u32x2 half_unit(lds<u32x4> rows, int row, int step) {
  const u32x4 unit = rows[matrix_place(row + lane_index() / 4, step / 2 * 4 + lane_index() % 4)];
  return step % 2 ? u32x2{unit.z, unit.w} : u32x2{unit.x, unit.y};
}
HIPK_DEVICE matrix_a load_a(lds<u32x4> rows, int row, int step) {
  const u32x2 low = half_unit(rows, row, step), high = half_unit(rows, row + 8, step);
  return {{low.x, high.x, low.y, high.y}};
}
HIPK_DEVICE matrix_b load_b(lds<u32x4> rows, int row, int step) {
  const u32x2 low = half_unit(rows, row, step), high = half_unit(rows, row + 8, step);
  return {{low.x, low.y, high.x, high.y}};
}
template <class Fragment> HIPK_DEVICE uint32_t fragment_word(const Fragment &f, int i) { return f.w[i]; }
HIPK_DEVICE void mma_half(const matrix_a &a, uint32_t b0, uint32_t b1, float *c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.w[0]), "r"(a.w[1]), "r"(a.w[2]), "r"(a.w[3]), "r"(b0), "r"(b1));
}
HIPK_DEVICE void matrix_step(const matrix_a &a, const matrix_b &b, matrix_acc &acc) {
  mma_half(a, b.w[0], b.w[1], acc.v);
  mma_half(a, b.w[2], b.w[3], acc.v + 4);
}

HIPK_DEVICE void forget(uint32_t &x) { asm volatile("" : "+r"(x)); }
template <class P> HIPK_DEVICE const P &reread(const P &params) { return params; }
template <class P> void launch(void (*kernel)(P), int64_t groups, int threads, hipStream_t stream, const P &params) {
  kernel<<<dim3(static_cast<unsigned>(groups)), dim3(static_cast<unsigned>(threads)), 0, stream>>>(params);
}

} // namespace hipk
#endif
#endif
