/* SPDX-License-Identifier: Apache-2.0
 *
 * The host as a target of the kernel files: the names that hip/hip_arch.h asks for, on the SIMT executor.
 * Stands in front of HIP's header of this name.  HIPK_WAVE is 64 or 32.
 */
#ifndef M3IDX_SIMT_TARGET_H
#define M3IDX_SIMT_TARGET_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "hip_layout.h"
#include "simt.h"
#include "simt_matrix.h"

typedef void *hipStream_t;

#define HIPK_TARGET "simt"
#define HIPK_KERNEL(threads) static void
#define HIPK_KERNEL_AT(threads, groups) static void
#define HIPK_MATRIX_KERNEL(threads, groups, half) static void
#define HIPK_DEVICE inline
#define HIPK_LDS(type, name, count) const lds<type> name = group_array<type>(count)
#define HIPK_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace hipk {

constexpr int WAVE = HIPK_WAVE;

/* An index and where it was written. */
struct index_at {
  int64_t value;
  simt::site where;
  template <class I, class = typename std::enable_if<std::is_integral<I>::value>::type>
  index_at(I i, HIPK_HERE) : value(static_cast<int64_t>(i)), where{file, line} {}
};

template <class T> struct gref {
  T *at;
  const simt::range *range;
  simt::site where;
  operator typename std::remove_const<T>::type() const {
    simt::watch(range, at, sizeof(T), false, where);
    return *at;
  }
  const gref &operator=(const T &value) const {
    simt::watch(range, at, sizeof(T), true, where);
    *at = value;
    return *this;
  }
  const gref &operator=(const gref &other) const { return *this = static_cast<T>(other); }
};

template <class T> struct gptr {
  T *at;
  const simt::range *range;
  gref<T> operator[](index_at i) const { return gref<T>{at + i.value, range, i.where}; }
  gptr operator+(int64_t i) const { return gptr{at + i, range}; }
  explicit operator bool() const { return at != nullptr; }
};
template <class T> gptr<T> global(T *pointer) { return gptr<T>{pointer, simt::find_range(pointer)}; }
template <class T> T load(gptr<const unsigned char> base, int64_t byte, HIPK_HERE) {
  T value;
  if (reinterpret_cast<uintptr_t>(base.at + byte) % alignof(T)) simt::misaligned(simt::site{file, line});
  simt::watch(base.range, base.at + byte, sizeof value, false, simt::site{file, line});
  memcpy(&value, base.at + byte, sizeof value);
  return value;
}

template <class T> struct lref {
  T *base;
  uint32_t bound;
  index_at i;
  operator T() const {
    simt::watch_group(base, bound, i.value * static_cast<int64_t>(sizeof(T)), sizeof(T), false, i.where);
    return base[i.value];
  }
  const lref &operator=(const T &value) const {
    simt::watch_group(base, bound, i.value * static_cast<int64_t>(sizeof(T)), sizeof(T), true, i.where);
    base[i.value] = value;
    return *this;
  }
  const lref &operator=(const lref &other) const { return *this = static_cast<T>(other); }
};

/* `base` and `bound` are the whole array's; an offset keeps them. */
template <class T> struct lds {
  T *base;
  uint32_t bound;
  int64_t offset;
  lref<T> operator[](index_at i) const {
    i.value += offset;
    return lref<T>{base, bound, i};
  }
  lds operator+(int64_t i) const { return lds{base, bound, offset + i}; }
};
template <class T> lds<T> group_array(int64_t count, HIPK_HERE) {
  uint32_t bound;
  void *base = simt::group_array(static_cast<size_t>(count) * sizeof(T), simt::site{file, line}, &bound);
  return lds<T>{static_cast<T *>(base), bound, 0};
}

inline int thread_index() { return simt::current_thread; }
inline int group_index() { return simt::current_group; }
inline int group_count() { return simt::current_group_count; }
inline int lane_index() { return simt::current_thread % WAVE; }
inline int wave_index() { return simt::current_thread / WAVE; }

inline void barrier(HIPK_HERE) { simt::barrier(simt::site{file, line}); }
inline void wave_sync(HIPK_HERE) { simt::wave_op(simt::OP_SYNC, nullptr, nullptr, 0, 0, simt::site{file, line}); }
inline uint64_t ballot(bool vote, HIPK_HERE) {
  uint64_t mask;
  simt::wave_op(simt::OP_BALLOT, nullptr, &mask, 0, vote, simt::site{file, line});
  return mask;
}
template <class T> T shuffle(T value, int lane, HIPK_HERE) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most eight bytes");
  T out;
  simt::wave_op(simt::OP_SHUFFLE, &value, &out, sizeof value, lane, simt::site{file, line});
  return out;
}
template <int Mask, class T> T shuffle_xor(T value, HIPK_HERE) {
  return shuffle(value, lane_index() ^ Mask, file, line);
}

inline uint32_t float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float bits_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
inline uint64_t double_bits(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline double bits_double(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
/* binary16 to binary32: move the fraction, rebias the exponent by a multiplication that also makes subnormals. */
inline float half_float(uint16_t x) {
  const uint32_t magnitude = static_cast<uint32_t>(x & 0x7fff) << 13, sign = static_cast<uint32_t>(x & 0x8000) << 16;
  if (magnitude >= 0x0f800000) return bits_float(sign | 0x70000000 | magnitude);
  return bits_float(sign | float_bits(bits_float(magnitude) * 0x1p112f));
}
inline float fused(float a, float b, float c) { return fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return fma(a, b, c); }
inline float magnitude(float x) { return fabsf(x); }
inline float larger(float a, float b) { return fmaxf(a, b); }
inline float square_root(float x) { return sqrtf(x); }
inline uint32_t larger_halves(uint32_t a, uint32_t b) {
  const uint32_t low = (a & 0xffff) > (b & 0xffff) ? a : b, high = a >> 16 > b >> 16 ? a : b;
  return (high & 0xffff0000u) | (low & 0xffff);
}
inline int count_bits(uint64_t mask) { return __builtin_popcountll(mask); }
inline int lowest_bit(uint64_t mask) { return __builtin_ctzll(mask); }
inline int highest_bit(uint64_t mask) { return 63 - __builtin_clzll(mask); }

inline uint32_t arrive(gptr<uint32_t> counter, HIPK_HERE) {
  return simt::fetch_add(counter.at, 1, simt::ACQUIRE_RELEASE, simt::site{file, line});
}
inline void reset(gptr<uint32_t> counter, HIPK_HERE) { simt::store(counter.at, 0, simt::site{file, line}); }
inline void raise(gptr<uint32_t> flag, HIPK_HERE) { simt::store(flag.at, 1, simt::site{file, line}); }

/* At once, which is one of the times at which it may happen.  Waves of 32 play a target that has it. */
constexpr bool ASYNC_COPY = WAVE == 32;
inline void copy_async(lds<u32x4> to, gptr<const unsigned char> from, int64_t byte, HIPK_HERE) {
  to[index_at(0, file, line)] = load<u32x4>(from, byte, file, line);
}
inline void copies_done() {}

/* ---- matrix steps: simt_matrix.h does the arithmetic of the whole wave's tile ---- */

using simt_layout = matrix_layout<WAVE>;
struct matrix_a {
  uint16_t codes[2 * simt_layout::A_WORDS];
};
struct matrix_b {
  uint16_t codes[2 * simt_layout::B_WORDS];
};
struct matrix_acc {
  float v[simt_layout::ACC];
};

template <class F> F fragment_of(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) {
  F f;
  const uint32_t words[4] = {w0, w1, w2, w3};
  for (int e = 0; e < 8; e++) f.codes[e] = static_cast<uint16_t>(words[e / 2] >> 16 * (e % 2));
  return f;
}
inline matrix_a a_of(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) {
  return fragment_of<matrix_a>(w0, w1, w2, w3);
}
inline matrix_b b_of(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) {
  return fragment_of<matrix_b>(w0, w1, w2, w3);
}

/* The `count` codes whose rows and ks the layout's functions say. */
inline void load_codes(lds<u32x4> rows, int row, int step, int count, int (*row_of)(int, int), int (*k_of)(int, int),
                       uint16_t *codes, simt::site where) {
  ballot(true, where.file, where.line); /* the whole wave is here */
  int at = -1;
  u32x4 unit = {};
  for (int e = 0; e < count; e++) {
    const int k = simt_layout::code_of(step, k_of(lane_index(), e)),
              place = matrix_place(row + row_of(lane_index(), e), k / 8);
    if (place != at) unit = rows[index_at(at = place, where.file, where.line)];
    const uint32_t words[4] = {unit.x, unit.y, unit.z, unit.w};
    codes[e] = static_cast<uint16_t>(words[k / 2 % 4] >> 16 * (k % 2));
  }
}
inline matrix_a load_a(lds<u32x4> rows, int row, int step, HIPK_HERE) {
  matrix_a a;
  load_codes(rows, row, step, 2 * simt_layout::A_WORDS, simt_layout::a_row, simt_layout::a_k, a.codes,
             simt::site{file, line});
  return a;
}
inline matrix_b load_b(lds<u32x4> rows, int row, int step, HIPK_HERE) {
  matrix_b b;
  load_codes(rows, row, step, 2 * simt_layout::B_WORDS, simt_layout::b_col, simt_layout::b_k, b.codes,
             simt::site{file, line});
  return b;
}

template <class Fragment> uint32_t fragment_word(const Fragment &f, int i) {
  return f.codes[2 * i] | static_cast<uint32_t>(f.codes[2 * i + 1]) << 16;
}

struct matrix_lane {
  const matrix_a *a;
  const matrix_b *b;
  matrix_acc *acc;
};
inline void step_of_wave(void *const *lanes) {
  using L = simt_layout;
  static simt_matrix_tile tile;
  tile.rows = L::M;
  tile.cols = L::N;
  for (int lane = 0; lane < WAVE; lane++) {
    const matrix_lane *l = static_cast<const matrix_lane *>(lanes[lane]);
    for (int e = 0; e < 2 * L::A_WORDS; e++) tile.a[L::a_row(lane, e)][L::a_k(lane, e)] = l->a->codes[e];
    for (int e = 0; e < 2 * L::B_WORDS; e++) tile.b[L::b_col(lane, e)][L::b_k(lane, e)] = l->b->codes[e];
    for (int e = 0; e < L::ACC; e++) tile.acc[L::acc_row(lane, e)][L::acc_col(lane, e)] = l->acc->v[e];
  }
  simt_matrix_step(&tile, simt_matrix_current());
  for (int lane = 0; lane < WAVE; lane++) {
    const matrix_lane *l = static_cast<const matrix_lane *>(lanes[lane]);
    for (int e = 0; e < L::ACC; e++) l->acc->v[e] = tile.acc[L::acc_row(lane, e)][L::acc_col(lane, e)];
  }
}
inline void matrix_step(const matrix_a &a, const matrix_b &b, matrix_acc &acc, HIPK_HERE) {
  matrix_lane lane = {&a, &b, &acc};
  simt::wave_call(step_of_wave, &lane, simt::site{file, line});
}

inline void forget(uint32_t &) {}
template <class P> const P &reread(const P &params) { return params; }

template <class P> void launch(void (*kernel)(P), int64_t groups, int threads, hipStream_t, const P &params) {
  simt::run(groups, threads, [&] { kernel(params); });
}

} // namespace hipk

#endif
