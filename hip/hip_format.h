/* SPDX-License-Identifier: Apache-2.0
 *
 * Number formats on the device (S2.2): every code of every format is a binary32 number, infinity or NaN, and
 * decoding makes exactly that.  The hip room's own codec; shares only the numbering of dtype.def.
 */
#ifndef M3IDX_HIP_FORMAT_H
#define M3IDX_HIP_FORMAT_H

#include "geometry.h"
#include "hip_arch.h"
#include "m3idx.h"

namespace hipk {

M3IDX_FN constexpr bool is_fp8(m3idx_dtype t) { return t != M3IDX_F32 && t != M3IDX_F16 && t != M3IDX_BF16; }
M3IDX_FN constexpr bool is_fnuz(m3idx_dtype t) { return t == M3IDX_E4M3FNUZ || t == M3IDX_E5M2FNUZ; }
M3IDX_FN constexpr bool is_e5m2(m3idx_dtype t) { return t == M3IDX_E5M2 || t == M3IDX_E5M2FNUZ; }
M3IDX_FN constexpr int bytes_of(m3idx_dtype t) { return t == M3IDX_F32 ? 4 : is_fp8(t) ? 1 : 2; }

/* All ones if a < b, for a and b below 2^31: selection by arithmetic, which costs a GPU no lane masks. */
HIPK_DEVICE uint32_t ones_if_less(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(static_cast<int32_t>(a - b) >> 31);
}

/* The seven bits after the sign, placed on binary32's fields, are the number up to a power of two; subnormals of
 * the format are subnormals there, and the multiplication is exact for both. Without WithNan a NaN code of a format
 * that has no infinity is some number. */
template <m3idx_dtype T, bool WithNan = true> HIPK_DEVICE float decode_fp8(uint32_t code) {
  const uint32_t magnitude = code & 0x7f, sign = (code & 0x80) << 24;
  /* 2^(127 - bias), bias 7, 8, 15, 16 */
  constexpr uint32_t rebias = static_cast<uint32_t>(127 + 127 - ((is_e5m2(T) ? 15 : 7) + (is_fnuz(T) ? 1 : 0))) << 23;
  uint32_t bits = float_bits(bits_float(magnitude << (is_e5m2(T) ? 21 : 20)) * bits_float(rebias));
  if constexpr (WithNan && is_fnuz(T)) bits |= ones_if_less(code ^ 0x80, 1) & 0x7fc00000u;
  if constexpr (WithNan && T == M3IDX_E4M3FN) bits |= ones_if_less(0x7e, magnitude) & 0x7fc00000u;
  if constexpr (T == M3IDX_E5M2)
    bits |= ones_if_less(0x7b, magnitude) & 0x7f800000u; /* the fraction stays: inf or NaN */
  return bits_float(sign | bits);
}

template <m3idx_dtype T> HIPK_DEVICE float decode(uint32_t code) {
  if constexpr (T == M3IDX_F32)
    return bits_float(code);
  else if constexpr (T == M3IDX_BF16)
    return bits_float(code << 16);
  else if constexpr (T == M3IDX_F16)
    return half_float(static_cast<uint16_t>(code));
  else
    return decode_fp8<T>(code);
}

/* The format known only to the launch: the same arithmetic with its constants as data. */
struct format_view {
  float rebias;                           /* 2^(127 - bias) */
  uint32_t magnitude_mask, inf, nan_from; /* magnitudes: of infinity, and of the least NaN; none = out of reach */
  int32_t shift, bytes;                   /* shift: from a code's fraction to binary32's */
  bool negative_zero_is_nan;
};

/* Significant bits of a number of the format. */
inline int significand_bits(const format_view &f) { return 24 - f.shift; }

inline format_view view_format(m3idx_dtype t) {
  switch (t) {
  case M3IDX_F32: return {1.0f, 0x7fffffffu, 0x7f800000u, 0x7f800001u, 0, 4, false};
  case M3IDX_F16: return {0x1p112f, 0x7fffu, 0x7c00u, 0x7c01u, 13, 2, false};
  case M3IDX_BF16: return {1.0f, 0x7fffu, 0x7f80u, 0x7f81u, 16, 2, false};
  case M3IDX_E4M3FN: return {0x1p120f, 0x7fu, 0x80u, 0x7fu, 20, 1, false};
  case M3IDX_E4M3FNUZ: return {0x1p119f, 0x7fu, 0x80u, 0x80u, 20, 1, true};
  case M3IDX_E5M2: return {0x1p112f, 0x7fu, 0x7cu, 0x7du, 21, 1, false};
  default: return {0x1p111f, 0x7fu, 0x80u, 0x80u, 21, 1, true};
  }
}

HIPK_DEVICE float decode_as(uint32_t code, const format_view &f) {
  const uint32_t magnitude = code & f.magnitude_mask, sign = code & (f.magnitude_mask + 1) ? 0x80000000u : 0;
  uint32_t bits = float_bits(bits_float(magnitude << f.shift) * f.rebias);
  bits = magnitude == f.inf ? 0x7f800000u : bits;
  const bool nan = magnitude >= f.nan_from || (f.negative_zero_is_nan && magnitude == 0 && sign);
  return bits_float(nan ? 0x7fc00000u : sign | bits);
}

HIPK_DEVICE uint32_t load_code(gptr<const unsigned char> base, int64_t element, int bytes) {
  if (bytes == 4) return load<uint32_t>(base, element * 4);
  if (bytes == 1) return load<uint8_t>(base, element);
  return load<uint16_t>(base, element * 2);
}

/* Eight elements of a key, as they are loaded and as numbers. */
constexpr int CHUNK = 8;
template <int Bytes> struct chunk_bits;
template <> struct chunk_bits<2> { using type = u32x4; };
template <> struct chunk_bits<1> { using type = u32x2; };
template <m3idx_dtype T> using chunk = typename chunk_bits<bytes_of(T)>::type;

HIPK_DEVICE void forget(u32x2 &c) {
  forget(c.x);
  forget(c.y);
}
HIPK_DEVICE void forget(u32x4 &c) {
  forget(c.x);
  forget(c.y);
  forget(c.z);
  forget(c.w);
}

template <m3idx_dtype T> HIPK_DEVICE void decode_pair(uint32_t word, float *out) {
  if constexpr (T == M3IDX_BF16) {
    out[0] = bits_float(word << 16);
    out[1] = bits_float(word & 0xffff0000u);
  } else {
    out[0] = decode<T>(word & 0xffff);
    out[1] = decode<T>(word >> 16);
  }
}

/* A NaN anywhere in a key makes its dot NaN (S3.1), so one test for the four codes of a word is enough: the first
 * takes the mark and the NaN codes themselves count as the number their bits would be. */
template <m3idx_dtype T> HIPK_DEVICE void decode_four(uint32_t word, float *out) {
  HIPK_UNROLL
  for (int i = 0; i < 4; i++) out[i] = decode_fp8<T, false>(word >> 8 * i & 0xff);
  if constexpr (T == M3IDX_E5M2) return;
  const uint32_t zeros = is_fnuz(T) ? word ^ 0x80808080u : ~word & 0x7f7f7f7fu; /* a zero byte for each NaN */
  if ((zeros - 0x01010101u) & ~zeros & 0x80808080u) out[0] = bits_float(0x7fc00000u);
}

template <m3idx_dtype T> HIPK_DEVICE void decode_chunk(const u32x4 &raw, float (&out)[CHUNK]) {
  decode_pair<T>(raw.x, out);
  decode_pair<T>(raw.y, out + 2);
  decode_pair<T>(raw.z, out + 4);
  decode_pair<T>(raw.w, out + 6);
}
template <m3idx_dtype T> HIPK_DEVICE void decode_chunk(const u32x2 &raw, float (&out)[CHUNK]) {
  decode_four<T>(raw.x, out);
  decode_four<T>(raw.y, out + 4);
}

/* S6.2: to nearest, ties to even, saturating; x decoded from f32, f16 or bf16. */
HIPK_DEVICE uint8_t encode_fp8(float x, m3idx_dtype dtype) {
  const uint32_t bits = float_bits(x), magnitude = bits & 0x7fffffffu;
  const uint32_t sign = bits >> 24 & 0x80;
  if (magnitude > 0x7f800000u) return is_fnuz(dtype) ? 0x80 : 0x7f;
  const int fraction = is_e5m2(dtype) ? 2 : 3;
  const int bias = (is_e5m2(dtype) ? 15 : 7) + (is_fnuz(dtype) ? 1 : 0);
  const uint32_t largest = is_fnuz(dtype) ? 0x7f : dtype == M3IDX_E4M3FN ? 0x7e : 0x7b;
  /* value = significand * 2^(exponent - 150); binary32's subnormals are far below half the least fp8 number. */
  const int exponent = static_cast<int>(magnitude >> 23);
  const uint32_t significand = (magnitude & 0x7fffff) | (exponent ? 0x800000 : 0);
  const int field = exponent - 127 + bias; /* the fp8 exponent field, if normal */
  int drop = 23 - fraction;
  if (field < 1) drop += 1 - field;
  if (drop > 31) drop = 31;
  uint32_t kept = significand >> drop;
  const uint32_t rest = significand & ((1u << drop) - 1), half = 1u << (drop - 1);
  if (rest > half || (rest == half && (kept & 1))) kept++;
  /* kept brings its hidden bit, and a carry, into the exponent field; infinity and what is too large saturate. */
  uint32_t code = field < 1 ? kept : (static_cast<uint32_t>(field - 1) << fraction) + kept;
  if (field > 31 || code > largest) code = largest;
  if (code == 0 && is_fnuz(dtype)) return 0;
  return static_cast<uint8_t>(code | sign);
}

} // namespace hipk

#endif
