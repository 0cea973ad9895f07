/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels may ask of a GPU, and the only file that knows how a GPU is asked: architectures, wave size,
 * lanes, cross-lane operations, barriers, group memory (LDS), scoped atomics, launches.
 *
 * The kernel files are one source for three targets.  This header carries HIP's own (gfx942, gfx950).  Another
 * target puts its own <hip/hip_runtime.h> in front, defines HIPK_TARGET and provides the same names:
 * tests/silicon renames them for nvcc, tests/simt executes them on the host and watches every access.
 *
 * The dialect that all targets agree on:
 *   - Global memory is reached through gptr<T> (made by global()), group memory through lds<T> (declared by
 *     HIPK_LDS).  Both are plain pointers on a GPU.  `p[i]` reads or writes one element; load<T>(p, byte)
 *     reads a T from a byte pointer.
 *   - A cross-lane operation or wave_sync() is reached by all lanes of the wave together, a barrier() by all
 *     lanes of the group.  No lane returns before another's cross-lane operation or barrier.
 *   - Lanes of a wave see one another's memory after wave_sync(), lanes of a group after barrier(), groups only
 *     through arrive().  Shuffles and ballots order no memory.
 *   - A mask has one bit a lane; bits at or past WAVE are zero.
 *   - matrix_step(a, b, acc) is a cross-lane operation.  a_of and b_of make a fragment of a lane's own words.  load_a
 *     and load_b fill a fragment from rows that lie in group memory as hip_layout.h says: M (N) rows from `row` on, the
 *     codes of `step`; they are reached by the whole wave as well.  acc.v[e] is the accumulator at (matrix::acc_row,
 *     matrix::acc_col); with `matrix_acc acc = {}` it starts at zero.  What a step rounds is hip_bound.h's matter.
 *     fragment_word(f, i) is a lane's elements 2 i and 2 i + 1.
 *   - copy_async moves 16 bytes from global to group memory; the lane may touch neither before its copies_done().
 *     Targets without ASYNC_COPY wait at the call, and code that cares loads into registers instead.
 * Nothing here judges numbers: float arithmetic is IEEE, subnormals kept, contraction only by fused().
 */
#ifndef M3IDX_HIP_ARCH_H
#define M3IDX_HIP_ARCH_H

#include <hip/hip_runtime.h>
#include <stdint.h>

#include "hip_layout.h"

/* Before a loop over a lane's own array, which stays in registers only if every index is a constant; and before a
 * loop that is rare or long, and must not fill the registers with its unrolled self.  Four steps at once hide the
 * reads of a loop behind one another. */
#if defined(__HIP__) || defined(__CUDACC__)
#define HIPK_UNROLL _Pragma("unroll")
#define HIPK_ROLLED _Pragma("unroll 1")
#define HIPK_UNROLL_4 _Pragma("unroll 4")
#else
#define HIPK_UNROLL
#define HIPK_UNROLL_4
#define HIPK_ROLLED
#endif

#ifndef HIPK_TARGET

#define HIPK_KERNEL(threads) __global__ __launch_bounds__(threads) void
/* `groups` of them shall fit a multiprocessor together; a hint, which AMD's compiler does without. */
#define HIPK_KERNEL_AT(threads, groups) HIPK_KERNEL(threads)
/* The same for a kernel of matrix steps.  AMD's compiler gives one of up to 512 threads half of the registers, which is
 * said of those that `half` is enough for: accumulators then are vector registers like any other, and nothing moves
 * between two files. */
#define HIPK_MATRIX_KERNEL(threads, groups, half) __global__ __launch_bounds__((half) ? 512 : (threads)) void
#define HIPK_DEVICE __device__ __forceinline__
#define HIPK_LDS(type, name, count) __shared__ __attribute__((aligned(16))) type name[count]

namespace hipk {

constexpr int WAVE = 64; /* gfx942 and gfx950 alike */

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
/* The wave's number in its group; uniform, and said so to the compiler. */
HIPK_DEVICE int wave_index() { return __builtin_amdgcn_readfirstlane(static_cast<int>(threadIdx.x / WAVE)); }

HIPK_DEVICE void barrier() { __syncthreads(); }
HIPK_DEVICE void wave_sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

HIPK_DEVICE uint64_t ballot(bool vote) { return __ballot(vote); }
template <class T> HIPK_DEVICE T shuffle(T value, int lane) { return __shfl(value, lane, WAVE); }
template <int Mask, class T> HIPK_DEVICE T shuffle_xor(T value) { return __shfl_xor(value, Mask, WAVE); }

HIPK_DEVICE uint32_t float_bits(float x) { return __float_as_uint(x); }
HIPK_DEVICE float bits_float(uint32_t x) { return __uint_as_float(x); }
HIPK_DEVICE uint64_t double_bits(double x) { return static_cast<uint64_t>(__double_as_longlong(x)); }
HIPK_DEVICE double bits_double(uint64_t x) { return __longlong_as_double(static_cast<long long>(x)); }
HIPK_DEVICE float half_float(uint16_t x) { return static_cast<float>(__builtin_bit_cast(_Float16, x)); }
HIPK_DEVICE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HIPK_DEVICE double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
HIPK_DEVICE float magnitude(float x) { return __builtin_fabsf(x); }
HIPK_DEVICE float larger(float a, float b) { return __builtin_fmaxf(a, b); } /* a NaN gives way */
HIPK_DEVICE float square_root(float x) { return __builtin_sqrtf(x); }
/* The larger of both lower halves and of both upper halves, as unsigned numbers. */
HIPK_DEVICE uint32_t larger_halves(uint32_t a, uint32_t b) {
  typedef unsigned short halves __attribute__((ext_vector_type(2)));
  return __builtin_bit_cast(uint32_t,
                            __builtin_elementwise_max(__builtin_bit_cast(halves, a), __builtin_bit_cast(halves, b)));
}
HIPK_DEVICE int count_bits(uint64_t mask) { return __popcll(mask); }
HIPK_DEVICE int lowest_bit(uint64_t mask) { return __ffsll(static_cast<unsigned long long>(mask)) - 1; } /* mask != 0 */
HIPK_DEVICE int highest_bit(uint64_t mask) { return 63 - __clzll(static_cast<long long>(mask)); }        /* mask != 0 */

/* Count one more arrival and return how many there were, acquire-release at the scope of the device: who sees
 * all others counted sees all that they wrote before they arrived. */
HIPK_DEVICE uint32_t arrive(gptr<uint32_t> counter) {
  return __hip_atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
HIPK_DEVICE void reset(gptr<uint32_t> counter) {
  __hip_atomic_store(counter, 0u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

HIPK_DEVICE void raise(gptr<uint32_t> flag) {
  __hip_atomic_store(flag, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

/* The compiler forgets what it knows of x: what is computed from it is computed here, not before the loop. */
HIPK_DEVICE void forget(uint32_t &x) { asm volatile("" : "+v"(x)); }

/* The kernel's own parameters again, read where they are used: `params` is the only parameter of the kernel.
 * Keeps what only the end of a kernel needs out of scalar registers until then. */
template <class P> HIPK_DEVICE const P &reread(const P &) {
  auto segment = __builtin_amdgcn_kernarg_segment_ptr(); /* in the address space of constants */
  asm volatile("" : "+s"(segment));
  return *(const P *)segment;
}

constexpr bool ASYNC_COPY = false;
HIPK_DEVICE void copy_async(lds<u32x4> to, gptr<const unsigned char> from, int64_t byte) {
  *to = load<u32x4>(from, byte);
}
HIPK_DEVICE void copies_done() {}

/* ---- matrix steps ---- */

struct matrix_a {
  u32x4 codes;
};
struct matrix_b {
  u32x4 codes;
};
struct matrix_acc {
  float v __attribute__((ext_vector_type(16)));
};

/* Fragments from registers: word w holds elements 2 w and 2 w + 1. */
HIPK_DEVICE matrix_a a_of(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) { return {{w0, w1, w2, w3}}; }
HIPK_DEVICE matrix_b b_of(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) { return {{w0, w1, w2, w3}}; }

/* A lane's codes of a step are one unit of its row. */
HIPK_DEVICE matrix_a load_a(lds<u32x4> rows, int row, int step) {
  return {rows[matrix_place(row + lane_index() % 32, 2 * step + lane_index() / 32)]};
}
HIPK_DEVICE matrix_b load_b(lds<u32x4> rows, int row, int step) {
  return {rows[matrix_place(row + lane_index() % 32, 2 * step + lane_index() / 32)]};
}
template <class Fragment> HIPK_DEVICE uint32_t fragment_word(const Fragment &f, int i) {
  return i == 0 ? f.codes.x : i == 1 ? f.codes.y : i == 2 ? f.codes.z : f.codes.w;
}
HIPK_DEVICE void matrix_step(const matrix_a &a, const matrix_b &b, matrix_acc &acc) {
#if defined(__gfx942__)
  typedef short codes __attribute__((ext_vector_type(4)));
  struct halves {
    codes low, high;
  };
  const halves x = __builtin_bit_cast(halves, a.codes), y = __builtin_bit_cast(halves, b.codes);
  acc.v = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(x.low, y.low, acc.v, 0, 0, 0);
  acc.v = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(x.high, y.high, acc.v, 0, 0, 0);
#elif defined(__gfx950__)
  typedef __bf16 codes __attribute__((ext_vector_type(8)));
  acc.v = __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(codes, a.codes),
                                                  __builtin_bit_cast(codes, b.codes), acc.v, 0, 0, 0);
#elif defined(__HIP_DEVICE_COMPILE__)
#error "no matrix step for this target"
#else
  (void)a, (void)b, (void)acc; /* the host's pass only reads it */
#endif
}

template <class P> void launch(void (*kernel)(P), int64_t groups, int threads, hipStream_t stream, const P &params) {
  kernel<<<dim3(static_cast<unsigned>(groups)), dim3(static_cast<unsigned>(threads)), 0, stream>>>(params);
}

} // namespace hipk

#endif

namespace hipk {

using matrix = matrix_layout<WAVE>;

} // namespace hipk

#endif
