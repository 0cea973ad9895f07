/* SPDX-License-Identifier: Apache-2.0
 *
 * The seven formats read and fp8 written (S2.2, S6.2).  Values are derived from the table of S2.2 by hand;
 * doubles hold every one of them exactly.
 */
#include <math.h>
#include <string.h>

#include "ref_format.h"
#include "unit.h"

static double value_of(ref_number number) {
  double magnitude = ldexp((double)number.significand, number.exponent);
  return number.negative ? -magnitude : magnitude;
}

static ref_number decode_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return ref_decode(bits, M3IDX_F32);
}

static const struct {
  m3idx_dtype dtype;
  uint32_t code;
  double want;
} finite[] = {
    {M3IDX_F32, 0x00000000, 0.0},
    {M3IDX_F32, 0x80000000, -0.0},
    {M3IDX_F32, 0x3f800000, 1.0},
    {M3IDX_F32, 0x00000001, 0x1p-149},
    {M3IDX_F32, 0x807fffff, -0x1.fffffcp-127},
    {M3IDX_F32, 0x00800000, 0x1p-126},
    {M3IDX_F32, 0xff7fffff, -0x1.fffffep127},
    {M3IDX_F16, 0x3c00, 1.0},
    {M3IDX_F16, 0x0001, 0x1p-24},
    {M3IDX_F16, 0x83ff, -0x1.ff8p-15},
    {M3IDX_F16, 0x0400, 0x1p-14},
    {M3IDX_F16, 0x7bff, 65504.0},
    {M3IDX_F16, 0x8000, -0.0},
    {M3IDX_BF16, 0x3f80, 1.0},
    {M3IDX_BF16, 0x0001, 0x1p-133},
    {M3IDX_BF16, 0x0080, 0x1p-126},
    {M3IDX_BF16, 0xff7f, -0x1.fep127},
    {M3IDX_E4M3FN, 0x38, 1.0},
    {M3IDX_E4M3FN, 0x01, 0x1p-9},
    {M3IDX_E4M3FN, 0x07, 0x7p-9},
    {M3IDX_E4M3FN, 0x08, 0x1p-6},
    {M3IDX_E4M3FN, 0x7e, 448.0},
    {M3IDX_E4M3FN, 0xfe, -448.0},
    {M3IDX_E4M3FN, 0x80, -0.0},
    {M3IDX_E4M3FNUZ, 0x38, 0.5},
    {M3IDX_E4M3FNUZ, 0x40, 1.0},
    {M3IDX_E4M3FNUZ, 0x01, 0x1p-10},
    {M3IDX_E4M3FNUZ, 0x7f, 240.0},
    {M3IDX_E4M3FNUZ, 0xff, -240.0},
    {M3IDX_E4M3FNUZ, 0x7e, 224.0},
    {M3IDX_E5M2, 0x3c, 1.0},
    {M3IDX_E5M2, 0x01, 0x1p-16},
    {M3IDX_E5M2, 0x04, 0x1p-14},
    {M3IDX_E5M2, 0x7b, 57344.0},
    {M3IDX_E5M2, 0x80, -0.0},
    {M3IDX_E5M2FNUZ, 0x3c, 0.5},
    {M3IDX_E5M2FNUZ, 0x01, 0x1p-17},
    {M3IDX_E5M2FNUZ, 0x04, 0x1p-15},
    {M3IDX_E5M2FNUZ, 0x7f, 57344.0},
    {M3IDX_E5M2FNUZ, 0xfb, -28672.0},
};

START_TEST(decode_finite) {
  ref_number got = ref_decode(finite[_i].code, finite[_i].dtype);
  ck_assert_int_eq(got.class, REF_FINITE);
  ck_assert_int_eq(got.negative, signbit(finite[_i].want) != 0);
  ck_assert_msg(value_of(got) == finite[_i].want, "%s %x: want %a got %a", m3idx_dtype_name(finite[_i].dtype),
                (unsigned)finite[_i].code, finite[_i].want, value_of(got));
}
END_TEST

static const struct {
  m3idx_dtype dtype;
  uint32_t code;
  ref_class class;
  int negative; /* of an infinity */
} special[] = {
    {M3IDX_F32, 0x7f800000, REF_INF, 0}, {M3IDX_F32, 0xff800000, REF_INF, 1}, {M3IDX_F32, 0x7f800001, REF_NAN, 0},
    {M3IDX_F32, 0xffffffff, REF_NAN, 0}, {M3IDX_F16, 0x7c00, REF_INF, 0},     {M3IDX_F16, 0xfc00, REF_INF, 1},
    {M3IDX_F16, 0x7c01, REF_NAN, 0},     {M3IDX_BF16, 0x7f80, REF_INF, 0},    {M3IDX_BF16, 0xff80, REF_INF, 1},
    {M3IDX_BF16, 0xffc0, REF_NAN, 0},    {M3IDX_E4M3FN, 0x7f, REF_NAN, 0},    {M3IDX_E4M3FN, 0xff, REF_NAN, 0},
    {M3IDX_E4M3FNUZ, 0x80, REF_NAN, 0},  {M3IDX_E5M2, 0x7c, REF_INF, 0},      {M3IDX_E5M2, 0xfc, REF_INF, 1},
    {M3IDX_E5M2, 0x7d, REF_NAN, 0},      {M3IDX_E5M2, 0x7f, REF_NAN, 0},      {M3IDX_E5M2, 0xfe, REF_NAN, 0},
    {M3IDX_E5M2FNUZ, 0x80, REF_NAN, 0},
};

START_TEST(decode_special) {
  ref_number got = ref_decode(special[_i].code, special[_i].dtype);
  ck_assert_int_eq(got.class, special[_i].class);
  if (got.class == REF_INF) ck_assert_int_eq(got.negative, special[_i].negative);
}
END_TEST

/* S2.2: the fnuz twin of a finite non-zero byte is worth half, and values rise with the code. */
START_TEST(fnuz_is_half) {
  static const m3idx_dtype twins[2][2] = {{M3IDX_E4M3FN, M3IDX_E4M3FNUZ}, {M3IDX_E5M2, M3IDX_E5M2FNUZ}};
  for (int pair = 0; pair < 2; pair++) {
    double last = -1.0;
    for (uint32_t code = 0; code < 0x80; code++) {
      ref_number full = ref_decode(code, twins[pair][0]), half = ref_decode(code, twins[pair][1]);
      ck_assert_int_eq(half.class, REF_FINITE);
      ck_assert(value_of(half) > last);
      last = value_of(half);
      if (full.class == REF_FINITE) ck_assert(value_of(full) == 2 * last);
      if (code) ck_assert(value_of(ref_decode(code | 0x80, twins[pair][1])) == -last);
    }
  }
}
END_TEST

static const m3idx_dtype fp8[] = {M3IDX_E4M3FN, M3IDX_E4M3FNUZ, M3IDX_E5M2, M3IDX_E5M2FNUZ};

/* Every finite code is its own nearest; the midpoint of two neighbours goes to the even one, and the floats
 * beside it to the nearer. */
START_TEST(encode_nearest_even) {
  m3idx_dtype dtype = fp8[_i];
  ck_assert(ref_is_fp8(dtype));
  for (uint32_t code = 0; code < 0x80; code++) {
    ref_number at = ref_decode(code, dtype), next = ref_decode(code + 1, dtype);
    if (at.class != REF_FINITE) continue;
    ck_assert_uint_eq(ref_encode_fp8(at, dtype), code);
    if (code) ck_assert_uint_eq(ref_encode_fp8(ref_decode(code | 0x80, dtype), dtype), code | 0x80);
    if (code == 0x7f || next.class != REF_FINITE) continue;
    float middle = (float)((value_of(at) + value_of(next)) / 2);
    uint32_t even = code & 1 ? code + 1 : code;
    ck_assert_uint_eq(ref_encode_fp8(decode_float(middle), dtype), even);
    ck_assert_uint_eq(ref_encode_fp8(decode_float(nextafterf(middle, 0)), dtype), code);
    ck_assert_uint_eq(ref_encode_fp8(decode_float(nextafterf(middle, INFINITY)), dtype), code + 1);
  }
}
END_TEST

static const struct {
  m3idx_dtype from;
  uint32_t code;
  m3idx_dtype to;
  uint32_t want;
} encoded[] = {
    /* fp8-store: bf16 +-1e4 (0x461c = 9984), +-448, +-464, +-240, +-248, +-2^-10, -0. */
    {M3IDX_BF16, 0x461c, M3IDX_E4M3FN, 0x7e},
    {M3IDX_BF16, 0xc61c, M3IDX_E4M3FN, 0xfe},
    {M3IDX_BF16, 0x461c, M3IDX_E4M3FNUZ, 0x7f},
    {M3IDX_BF16, 0xc61c, M3IDX_E4M3FNUZ, 0xff},
    {M3IDX_BF16, 0x43e0, M3IDX_E4M3FN, 0x7e},   /* 448 */
    {M3IDX_BF16, 0x43e8, M3IDX_E4M3FN, 0x7e},   /* 464, midway to the code that is NaN */
    {M3IDX_BF16, 0xc3e8, M3IDX_E4M3FN, 0xfe},   /* -464 */
    {M3IDX_BF16, 0x4370, M3IDX_E4M3FNUZ, 0x7f}, /* 240 */
    {M3IDX_BF16, 0x4378, M3IDX_E4M3FNUZ, 0x7f}, /* 248 */
    {M3IDX_BF16, 0xc378, M3IDX_E4M3FNUZ, 0xff}, /* -248 */
    {M3IDX_BF16, 0x4370, M3IDX_E4M3FN, 0x77},   /* 240 = 15 * 2^4: exponent field 14, fraction 7 */
    {M3IDX_BF16, 0x4378, M3IDX_E4M3FN, 0x78},   /* 248: midway of 240 and 256, to even */
    {M3IDX_BF16, 0x3a80, M3IDX_E4M3FN, 0x00},   /* 2^-10: half of the least, to even */
    {M3IDX_BF16, 0xba80, M3IDX_E4M3FN, 0x80},   /* a zero keeps its sign */
    {M3IDX_BF16, 0x3a80, M3IDX_E4M3FNUZ, 0x01},
    {M3IDX_BF16, 0xba80, M3IDX_E4M3FNUZ, 0x81},
    {M3IDX_BF16, 0xba00, M3IDX_E4M3FNUZ, 0x00}, /* -2^-11: half of the least, and no -0 */
    {M3IDX_BF16, 0x8000, M3IDX_E4M3FN, 0x80},
    {M3IDX_BF16, 0x8000, M3IDX_E4M3FNUZ, 0x00},
    {M3IDX_BF16, 0x8000, M3IDX_E5M2, 0x80},
    {M3IDX_BF16, 0x8000, M3IDX_E5M2FNUZ, 0x00},
    {M3IDX_F32, 0x47600000, M3IDX_E5M2, 0x7b}, /* 57344 */
    {M3IDX_F32, 0x47700000, M3IDX_E5M2, 0x7b}, /* 61440, midway to where infinity stands */
    {M3IDX_F32, 0x7f7fffff, M3IDX_E5M2, 0x7b},
    {M3IDX_F32, 0x7f800000, M3IDX_E5M2, 0x7b},
    {M3IDX_F32, 0xff800000, M3IDX_E5M2, 0xfb},
    {M3IDX_F32, 0xff800000, M3IDX_E4M3FN, 0xfe},
    {M3IDX_F32, 0x7f800000, M3IDX_E4M3FNUZ, 0x7f},
    {M3IDX_F32, 0xff7fffff, M3IDX_E5M2FNUZ, 0xff},
    {M3IDX_F32, 0x7fc00000, M3IDX_E4M3FN, 0x7f},
    {M3IDX_F32, 0xff800001, M3IDX_E4M3FN, 0x7f},
    {M3IDX_F32, 0xffffffff, M3IDX_E5M2, 0x7f},
    {M3IDX_F16, 0xfe00, M3IDX_E4M3FNUZ, 0x80},
    {M3IDX_BF16, 0x7fc0, M3IDX_E5M2FNUZ, 0x80},
    {M3IDX_F32, 0x00000001, M3IDX_E4M3FN, 0x00},
    {M3IDX_F32, 0x80000001, M3IDX_E5M2, 0x80},
    {M3IDX_F32, 0x80000001, M3IDX_E5M2FNUZ, 0x00},
    /* f16 subnormals among e5m2fnuz's normals: 0x0280 = 640 * 2^-24 = 1.25 * 2^-15, exactly 0x05;
     * 0x02c0 = 704 * 2^-24 = 1.375 * 2^-15, midway of 0x05 and 0x06. */
    {M3IDX_F16, 0x0280, M3IDX_E5M2FNUZ, 0x05},
    {M3IDX_F16, 0x02c0, M3IDX_E5M2FNUZ, 0x06},
    {M3IDX_F16, 0x0040, M3IDX_E5M2FNUZ, 0x00}, /* 2^-18: half of the least */
    {M3IDX_F16, 0x0041, M3IDX_E5M2FNUZ, 0x01},
    {M3IDX_F16, 0x8001, M3IDX_E4M3FN, 0x80},
    {M3IDX_F16, 0x7bff, M3IDX_E5M2, 0x7b}, /* 65504 */
};

START_TEST(encode_codes) {
  uint8_t got = ref_encode_fp8(ref_decode(encoded[_i].code, encoded[_i].from), encoded[_i].to);
  ck_assert_msg(got == encoded[_i].want, "%s %x to %s: want %02x got %02x", m3idx_dtype_name(encoded[_i].from),
                (unsigned)encoded[_i].code, m3idx_dtype_name(encoded[_i].to), (unsigned)encoded[_i].want, got);
}
END_TEST

START_TEST(elements) {
  const uint32_t u32[2] = {0, 0x12345678};
  const uint16_t u16[4] = {0, 1, 2, 0xabcd};
  const uint8_t u8[6] = {0, 1, 2, 3, 4, 0xef};
  ck_assert_uint_eq(ref_load(&u32[1], M3IDX_F32), 0x12345678);
  m3idx_tensor tensor = {(void *)(uintptr_t)u16, M3IDX_BF16, {2, 2, 1}, {2, 1, 7}};
  ck_assert_uint_eq(ref_load(ref_element(&tensor, 1, 1, 0), M3IDX_BF16), 0xabcd);
  tensor = (m3idx_tensor){(void *)(uintptr_t)u8, M3IDX_E5M2, {9, 2, 3}, {0, 3, 1}};
  ck_assert_uint_eq(ref_load(ref_element(&tensor, 8, 1, 2), M3IDX_E5M2), 0xef);
  ck_assert(!ref_is_fp8(M3IDX_F32) && !ref_is_fp8(M3IDX_F16) && !ref_is_fp8(M3IDX_BF16));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("ref_format");
  TCase *tcase = tcase_create("ref_format");
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, decode_finite, 0, sizeof finite / sizeof *finite);
  tcase_add_loop_test(tcase, decode_special, 0, sizeof special / sizeof *special);
  tcase_add_test(tcase, fnuz_is_half);
  tcase_add_loop_test(tcase, encode_nearest_even, 0, sizeof fp8 / sizeof *fp8);
  tcase_add_loop_test(tcase, encode_codes, 0, sizeof encoded / sizeof *encoded);
  tcase_add_test(tcase, elements);
  return unit_run(suite);
}
