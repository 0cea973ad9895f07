/* SPDX-License-Identifier: Apache-2.0
 *
 * The wide accumulator and its one rounding (S3.2 to S3.4).  Expected patterns are derived by hand: each
 * row says how.
 */
#include "ref_wide.h"
#include "unit.h"

/* A number that is a power of two: (-1)^negative * 2^exponent, exponent in -149..127. */
static ref_number power(int negative, int exponent) {
  if (exponent >= -126) return (ref_number){REF_FINITE, negative, UINT32_C(1) << 23, exponent - 23};
  return (ref_number){REF_FINITE, negative, UINT32_C(1) << (exponent + 149), -149};
}

/* A term (-1)^negative * 2^exponent of a sum, as the product of two such numbers. */
static void add_power(ref_wide *wide, int negative, int exponent) {
  int half = exponent / 2;
  ref_wide_add_product(wide, power(negative, half), power(0, exponent - half));
}

START_TEST(width) {
  /* The derivation in ref_wide.h, evaluated: 2^-149 squared, (2^24 - 1) * 2^104 squared, 2^8 terms. */
  ck_assert_int_eq(REF_WIDE_MIN_EXPONENT, -298);
  ck_assert_int_eq(REF_WIDE_MAX_EXPONENT, 208);
  ck_assert_int_eq(REF_WIDE_BITS, 562);
  ck_assert_int_eq(REF_WIDE_DIGITS, 18);
}
END_TEST

/* Sums of signed powers of two.  A term is given as exponent + 1000 with the sum's sign outside. */
enum { P = 1000, TERMS = 6 };
static const struct {
  const char *what;
  int term[TERMS]; /* +-(P + exponent), 0 ends */
  uint32_t want;
} sums[] = {
    {"nothing", {0}, 0x00000000},
    {"1", {P}, 0x3f800000},
    {"-1", {-P}, 0xbf800000},
    {"1 - 1 is +0", {P, -P}, 0x00000000},
    {"cancel", {P + 30, -(P + 30), P - 20}, 0x35800000},
    {"cancel", {P + 30, P - 20, -(P + 30)}, 0x35800000},
    {"cancel", {P - 20, P + 30, -(P + 30)}, 0x35800000},
    {"cancel", {-(P + 30), P + 30, P - 20}, 0x35800000},
    {"cancel", {-(P + 30), P - 20, P + 30}, 0x35800000},
    {"cancel", {P - 20, -(P + 30), P + 30}, 0x35800000},
    {"cancel over the whole width", {P + 254, P - 298, -(P + 254), P - 100}, 0x0d800000},
    /* 1 + 2^-24 is the midpoint of 1 and 1 + 2^-23; 1 + 3 * 2^-24 that of 1 + 2^-23 and 1 + 2^-22. */
    {"midpoint to even, down", {P, P - 24}, 0x3f800000},
    {"midpoint and 2^-80", {P, P - 24, P - 80}, 0x3f800001},
    {"midpoint and the next bit", {P, P - 24, P - 25}, 0x3f800001},
    {"midpoint less 2^-80", {P, P - 24, -(P - 80)}, 0x3f800000},
    {"midpoint to even, up", {P, P - 23, P - 24}, 0x3f800002},
    {"that midpoint less 2^-80", {P, P - 23, P - 24, -(P - 80)}, 0x3f800001},
    {"that midpoint and 2^-298", {P, P - 24, P - 298}, 0x3f800001},
    {"negative midpoint to even", {-P, -(P - 24)}, 0xbf800000},
    {"negative midpoint, away by 2^-80", {-P, -(P - 24), -(P - 80)}, 0xbf800001},
    /* 2 - 2^-24 lies half an ulp below 2: the carry runs through all 24 bits into the exponent. */
    {"carry into the exponent", {P + 1, -(P - 24)}, 0x40000000},
    {"just below that", {P + 1, -(P - 24), -(P - 90)}, 0x3fffffff},
    /* Subnormals: multiples of 2^-149. */
    {"2^-149", {P - 149}, 0x00000001},
    {"half of it ties to +0", {P - 150}, 0x00000000},
    {"minus half of it is +0 too", {-(P - 150)}, 0x00000000},
    {"just above half", {P - 150, P - 298}, 0x00000001},
    {"minus just above half", {-(P - 150), -(P - 298)}, 0x80000001},
    {"the least sum", {P - 298}, 0x00000000},
    {"the least sum, negative", {-(P - 298)}, 0x00000000},
    {"1.5 quanta to even", {P - 149, P - 150}, 0x00000002},
    {"2.5 quanta to even", {P - 148, P - 150}, 0x00000002},
    {"2^-126 - 2^-149, the largest subnormal", {P - 126, -(P - 149)}, 0x007fffff},
    {"a tie from there into the normals", {P - 126, -(P - 150)}, 0x00800000},
    {"below that tie", {P - 126, -(P - 150), -(P - 298)}, 0x007fffff},
    {"2^-126", {P - 126}, 0x00800000},
    /* Overflow: the largest float is 2^128 - 2^104, its upper midpoint 2^128 - 2^103. */
    {"largest float", {P + 128, -(P + 104)}, 0x7f7fffff},
    {"just below the midpoint", {P + 128, -(P + 103), -(P - 298)}, 0x7f7fffff},
    {"the midpoint ties to infinity", {P + 128, -(P + 103)}, 0x7f800000},
    {"the same, negative", {-(P + 128), P + 103}, 0xff800000},
    {"2^128", {P + 128}, 0x7f800000},
    {"1.5 * 2^128 is no NaN", {P + 128, P + 127}, 0x7f800000},
    {"-2^254", {-(P + 254)}, 0xff800000},
    {"the least bit below a huge sum", {P + 254, -(P - 298)}, 0x7f800000},
    {"2^127 and the least bit", {P + 127, P - 298}, 0x7f000000},
};

START_TEST(sum_rounds_once) {
  ref_wide wide;
  ref_wide_zero(&wide);
  for (int i = 0; i < TERMS && sums[_i].term[i]; i++) {
    int term = sums[_i].term[i];
    add_power(&wide, term < 0, (term < 0 ? -term : term) - P);
  }
  ck_assert_msg(ref_wide_round(&wide) == sums[_i].want, "%s: want %08x got %08x", sums[_i].what,
                (unsigned)sums[_i].want, (unsigned)ref_wide_round(&wide));
}
END_TEST

/* 256 products of the largest floats fill the width, and subtracting them leaves exactly what else there was. */
START_TEST(largest_sums) {
  const ref_number largest = {REF_FINITE, 0, 0xffffff, 104}, minus = {REF_FINITE, 1, 0xffffff, 104};
  const ref_number least = {REF_FINITE, 0, 1, -149};
  ref_wide wide;
  ref_wide_zero(&wide);
  for (int i = 0; i < 256; i++) ref_wide_add_product(&wide, largest, largest);
  ck_assert_uint_eq(ref_wide_round(&wide), 0x7f800000);
  ref_wide_zero(&wide);
  for (int i = 0; i < 256; i++) ref_wide_add_product(&wide, minus, largest);
  ck_assert_uint_eq(ref_wide_round(&wide), 0xff800000);

  ref_wide_zero(&wide);
  for (int i = 0; i < 127; i++) {
    ref_wide_add_product(&wide, largest, largest);
    ref_wide_add_product(&wide, minus, largest);
  }
  ref_wide_add_product(&wide, least, least);
  ck_assert_uint_eq(ref_wide_round(&wide), 0);
  ref_wide_add_product(&wide, (ref_number){REF_FINITE, 0, 3, 0}, (ref_number){REF_FINITE, 0, 5, 0});
  ck_assert_uint_eq(ref_wide_round(&wide), 0x41700000); /* 15, the 2^-298 far below its half ulp */
}
END_TEST

/* 128 products of 2^120 sum to 2^127; twice as many to 2^128, past the largest float. */
START_TEST(overflow) {
  ref_wide wide;
  ref_wide_zero(&wide);
  for (int i = 0; i < 128; i++) add_power(&wide, 0, 120);
  ck_assert_uint_eq(ref_wide_round(&wide), 0x7f000000);
  for (int i = 0; i < 128; i++) add_power(&wide, 0, 120);
  ck_assert_uint_eq(ref_wide_round(&wide), 0x7f800000);
}
END_TEST

/* A full 48-bit product at every digit offset: (2^24 - 1)^2 = 2^48 - 2^25 + 1 rounds down to
 * (2^24 - 2) * 2^24, because the rest, 1, is less than half of 2^24. */
START_TEST(every_offset) {
  for (int exponent = -149; exponent <= 51; exponent++) {
    ref_wide wide;
    ref_wide_zero(&wide);
    ref_wide_add_product(&wide, (ref_number){REF_FINITE, 0, 0xffffff, exponent},
                         (ref_number){REF_FINITE, 1, 0xffffff, 0});
    /* Top bit at exponent + 47. */
    int biased = exponent + 47 + 127;
    ck_assert_uint_eq(ref_wide_round(&wide), 0x80000000 | (uint32_t)biased << 23 | 0x7ffffe);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("ref_wide");
  TCase *tcase = tcase_create("ref_wide");
  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, width);
  tcase_add_loop_test(tcase, sum_rounds_once, 0, sizeof sums / sizeof *sums);
  tcase_add_test(tcase, largest_sums);
  tcase_add_test(tcase, overflow);
  tcase_add_test(tcase, every_offset);
  return unit_run(suite);
}
