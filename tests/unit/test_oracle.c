/* SPDX-License-Identifier: Apache-2.0
 *
 * The oracle itself, against values worked out by hand from SEMANTICS and, for single products, against the host's
 * own double arithmetic.  Without this a fault that the oracle and the reference share would have no third witness.
 */
#include <math.h>
#include <string.h>

#include "oracle.h"
#include "unit.h"

/* The table of S2.2: one, least positive and largest finite value as code and as number. */
static const struct {
  oracle_format format;
  uint32_t one, largest;
  double least_value, largest_value;
} formats[] = {
    {ORACLE_F32, 0x3f800000, 0x7f7fffff, 0x1p-149, 0x1.fffffep127},
    {ORACLE_F16, 0x3c00, 0x7bff, 0x1p-24, 65504},
    {ORACLE_BF16, 0x3f80, 0x7f7f, 0x1p-133, 0x1.fep127},
    {ORACLE_E4M3FN, 0x38, 0x7e, 0x1p-9, 448},
    {ORACLE_E4M3FNUZ, 0x40, 0x7f, 0x1p-10, 240},
    {ORACLE_E5M2, 0x3c, 0x7b, 0x1p-16, 57344},
    {ORACLE_E5M2FNUZ, 0x40, 0x7f, 0x1p-17, 57344},
};

static double value(oracle_format format, uint32_t code) {
  long mantissa = 0, exponent = 0;
  ck_assert_int_eq(oracle_decode(format, code, &mantissa, &exponent), ORACLE_FINITE);
  return ldexp((double)mantissa, (int)exponent);
}

START_TEST(decode_limits) {
  ck_assert(value(formats[_i].format, 0) == 0);
  ck_assert(value(formats[_i].format, 1) == formats[_i].least_value);
  ck_assert(value(formats[_i].format, formats[_i].one) == 1);
  ck_assert(value(formats[_i].format, formats[_i].largest) == formats[_i].largest_value);
  uint32_t sign = 1u << (oracle_code_bits(formats[_i].format) - 1);
  ck_assert(value(formats[_i].format, sign | formats[_i].largest) == -formats[_i].largest_value);
}
END_TEST

/* Every code above the largest finite one, by S2.2. */
START_TEST(decode_specials) {
  long m, e;
  ck_assert_int_eq(oracle_decode(ORACLE_F32, 0x7f800000, &m, &e), ORACLE_PLUS_INF);
  ck_assert_int_eq(oracle_decode(ORACLE_F32, 0xff800000, &m, &e), ORACLE_MINUS_INF);
  ck_assert_int_eq(oracle_decode(ORACLE_F32, 0x7f800001, &m, &e), ORACLE_NAN);
  ck_assert_int_eq(oracle_decode(ORACLE_F16, 0x7c00, &m, &e), ORACLE_PLUS_INF);
  ck_assert_int_eq(oracle_decode(ORACLE_F16, 0xfc01, &m, &e), ORACLE_NAN);
  ck_assert_int_eq(oracle_decode(ORACLE_BF16, 0xff80, &m, &e), ORACLE_MINUS_INF);
  ck_assert_int_eq(oracle_decode(ORACLE_BF16, 0x7fff, &m, &e), ORACLE_NAN);
  ck_assert_int_eq(oracle_decode(ORACLE_E4M3FN, 0x7f, &m, &e), ORACLE_NAN);
  ck_assert_int_eq(oracle_decode(ORACLE_E4M3FN, 0xff, &m, &e), ORACLE_NAN);
  ck_assert_int_eq(oracle_decode(ORACLE_E5M2, 0x7c, &m, &e), ORACLE_PLUS_INF);
  for (uint32_t code = 0x7d; code <= 0x7f; code++)
    ck_assert_int_eq(oracle_decode(ORACLE_E5M2, code, &m, &e), ORACLE_NAN);
  ck_assert_int_eq(oracle_decode(ORACLE_E4M3FNUZ, 0x80, &m, &e), ORACLE_NAN);
  ck_assert_int_eq(oracle_decode(ORACLE_E5M2FNUZ, 0x80, &m, &e), ORACLE_NAN);
  ck_assert(value(ORACLE_E4M3FN, 0x80) == 0);
  ck_assert(value(ORACLE_E5M2, 0x80) == 0);
}
END_TEST

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* A product of two f32 is exact in double, and the host rounds it to float once: a second opinion on S3.3. */
START_TEST(products_as_the_host) {
  uint64_t state = 1;
  int finite = 0;
  for (int i = 0; i < 200000; i++) {
    uint32_t code[2], want;
    float x[2];
    for (int side = 0; side < 2; side++) {
      state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      code[side] = (uint32_t)(state >> 32);
      memcpy(&x[side], &code[side], sizeof x[side]);
    }
    float rounded = (float)((double)x[0] * (double)x[1]);
    want = rounded == 0 ? 0 : isnan(rounded) ? 0x7fc00000 : bits_of(rounded);
    ck_assert_uint_eq(oracle_block_score(ORACLE_F32, &code[0], ORACLE_F32, &code[1], 1, 1), want);
    finite += isfinite(rounded) && rounded != 0;
  }
  ck_assert_int_gt(finite, 50000);
}
END_TEST

/* S3.1 and S3.3: four products at most, in f32; two tokens where the best is to be found. */
START_TEST(special_dots) {
  const uint32_t one = 0x3f800000, inf = 0x7f800000, minus = 0x80000000, nan = 0x7fc00000;
  const uint32_t ones[2] = {one, one}, zero_one[2] = {0, one};
  ck_assert_uint_eq(oracle_block_score(ORACLE_F32, ones, ORACLE_F32, (uint32_t[]){inf, inf | minus}, 1, 2), nan);
  ck_assert_uint_eq(oracle_block_score(ORACLE_F32, ones, ORACLE_F32, (uint32_t[]){inf, one}, 1, 2), inf);
  ck_assert_uint_eq(oracle_block_score(ORACLE_F32, zero_one, ORACLE_F32, (uint32_t[]){inf, one}, 1, 2), nan);
  ck_assert_uint_eq(oracle_block_score(ORACLE_F32, ones, ORACLE_F32, (uint32_t[]){nan, one}, 1, 2), nan);
  /* Tokens of NaN and -inf give -inf; of NaN and -1 give -1. */
  ck_assert_uint_eq(oracle_block_score(ORACLE_F32, ones, ORACLE_F32, (uint32_t[]){nan, inf | minus}, 2, 1),
                    inf | minus);
  ck_assert_uint_eq(oracle_block_score(ORACLE_F32, ones, ORACLE_F32, (uint32_t[]){one | minus, nan}, 2, 1),
                    one | minus);
  ck_assert_uint_eq(oracle_block_score(ORACLE_F32, ones, ORACLE_F32, (uint32_t[]){nan, nan}, 2, 1), nan);
  /* A cancelled sum and a product of -0 are +0. */
  ck_assert_uint_eq(oracle_block_score(ORACLE_F32, ones, ORACLE_F32, (uint32_t[]){one, one | minus}, 1, 2), 0);
  ck_assert_uint_eq(oracle_block_score(ORACLE_F32, ones, ORACLE_F32, (uint32_t[]){minus}, 1, 1), 0);
}
END_TEST

/* S3.5: 3 * 2^-149 / 2 = 1.5 u, to even 2 u; the negative; -u / 2 is +0; 2^127 * 2; NaN and infinities stay. */
START_TEST(scaled) {
  const uint32_t half = 0x3f000000, two = 0x40000000;
  ck_assert_uint_eq(oracle_scale(3, half), 2);
  ck_assert_uint_eq(oracle_scale(0x80000003, half), 0x80000002);
  ck_assert_uint_eq(oracle_scale(0x80000001, half), 0);
  ck_assert_uint_eq(oracle_scale(0x7f000000, two), 0x7f800000);
  ck_assert_uint_eq(oracle_scale(0x7fc00000, two), 0x7fc00000);
  ck_assert_uint_eq(oracle_scale(0xff800000, half), 0xff800000);
}
END_TEST

/* One row under the five presets of S4.2: ids 0..7 score 1, NaN, -1e30, -inf, -NaN, +0, -0, 1. */
START_TEST(contracts) {
  const uint32_t score[8] = {0x3f800000, 0x7fc00000, 0xf149f2ca, 0xff800000, 0xffc00000, 0, 0x80000000, 0x3f800000};
  static const struct {
    oracle_contract contract;
    int32_t want[8];
  } rows[] = {
      {{ORACLE_LOWER, ORACLE_NAN_1E30, ORACLE_ZERO_EQUAL, ORACLE_BY_SCORE}, {0, 7, 5, 6, 1, 2, 4, 3}},
      {{ORACLE_HIGHER, ORACLE_NAN_INF, ORACLE_ZERO_SIGNED, ORACLE_BY_SCORE}, {7, 0, 5, 6, 2, 4, 3, 1}},
      {{ORACLE_HIGHER, ORACLE_NAN_BELOW, ORACLE_ZERO_EQUAL, ORACLE_BY_SCORE}, {7, 0, 6, 5, 2, 3, 4, 1}},
      {{ORACLE_LOWER, ORACLE_NAN_BITS, ORACLE_ZERO_SIGNED, ORACLE_BY_SCORE}, {1, 0, 7, 5, 6, 2, 3, 4}},
  };
  int32_t ids[8];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    oracle_select(score, 0, 8, rows[i].contract, 8, ids);
    for (int k = 0; k < 8; k++) ck_assert_int_eq(ids[k], rows[i].want[k]);
  }
  /* sglang's four best: 1, 1 and the zeros; flashinfer's: NaN, 1, 1, +0; by id.  Ids begin at 100. */
  oracle_select(score, 100, 8, (oracle_contract){ORACLE_LOWER, ORACLE_NAN_INF, ORACLE_ZERO_EQUAL, ORACLE_BY_ID}, 4,
                ids);
  ck_assert(ids[0] == 100 && ids[1] == 105 && ids[2] == 106 && ids[3] == 107);
  oracle_select(score, 100, 8, (oracle_contract){ORACLE_LOWER, ORACLE_NAN_BITS, ORACLE_ZERO_SIGNED, ORACLE_BY_ID}, 4,
                ids);
  ck_assert(ids[0] == 100 && ids[1] == 101 && ids[2] == 105 && ids[3] == 107);
  /* More slots than blocks. */
  oracle_select(score, 0, 1, rows[0].contract, 3, ids);
  ck_assert(ids[0] == 0 && ids[1] == -1 && ids[2] == -1);
}
END_TEST

/* S2.3: positions -2..1 of a request of 2 keys; a prefill row past its prefix of 100, blocks of 16. */
START_TEST(rows) {
  static const int64_t keys[4] = {0, 0, 1, 2}, blocks[4] = {0, 0, 1, 1};
  for (int i = 0; i < 4; i++) {
    oracle_row row = oracle_row_at(-2, i, 2, 128);
    ck_assert(row.position == i - 2 && row.keys == keys[i] && row.blocks == blocks[i]);
  }
  oracle_row row = oracle_row_at(100, 12, 500, 16);
  ck_assert(row.position == 112 && row.keys == 113 && row.blocks == 8);
}
END_TEST

/* S3.7 with N = 6, init 2, local 5: block 0 init, 1..5 local. */
START_TEST(forced) {
  for (int64_t block = 0; block < 6; block++)
    ck_assert_uint_eq(oracle_force(7, block, 6, 2, 5), block == 0 ? 0x7149f2ca : 0x6fa18f08);
  ck_assert_uint_eq(oracle_force(7, 6, 6, 9, 9), 7);
  ck_assert_uint_eq(oracle_force(7, 3, 6, 2, 1), 7);
}
END_TEST

/* S5: position 300 is 45 tokens into block 2.  Ids 1, 9 (past it), 2 (the tail), -1, 0 with pages 10, 20, 30. */
START_TEST(sparse) {
  const int32_t ids[5] = {1, 9, 2, -1, 0}, pages[3] = {10, 20, 30};
  int32_t table[40], context;
  oracle_sparse(ids, 5, 300, pages, 16, 2, 1, table, &context);
  for (int j = 0; j < 8; j++) {
    ck_assert_int_eq(table[j], (20 * 16 + j) * 2 + 1);
    ck_assert_int_eq(table[8 + j], (10 * 16 + j) * 2 + 1);
    ck_assert_int_eq(table[16 + j], (30 * 16 + j) * 2 + 1);
    ck_assert_int_eq(table[24 + j] | table[32 + j], 0);
  }
  ck_assert_int_eq(context, 128 + 128 + 45);
  oracle_sparse(ids, 1, 300, pages, 8, 1, 0, table, &context); /* no tail */
  ck_assert_int_eq(table[7], 167);
  ck_assert_int_eq(context, 128);
  oracle_sparse((int32_t[]){0, 0, 0}, 3, 299, pages, 8, 1, 0, table, &context); /* repeated: at most causal */
  ck_assert_int_eq(context, 300);
  oracle_sparse(ids, 5, -1, pages, 8, 1, 0, table, &context);
  for (int j = 0; j < 40; j++) ck_assert_int_eq(table[j], 0);
  ck_assert_int_eq(context, 0);
}
END_TEST

/* S6.2, f32 into e4m3fn and e4m3fnuz: below, on and above the tie of 17 between 16 and 18; ends; NaN and -0. */
START_TEST(converted) {
  const uint32_t tie = bits_of(17);
  ck_assert_uint_eq(oracle_convert(ORACLE_F32, tie - 1, ORACLE_E4M3FN), 0x58);
  ck_assert_uint_eq(oracle_convert(ORACLE_F32, tie, ORACLE_E4M3FN), 0x58);
  ck_assert_uint_eq(oracle_convert(ORACLE_F32, tie + 1, ORACLE_E4M3FN), 0x59);
  ck_assert_uint_eq(oracle_convert(ORACLE_F32, bits_of(-19), ORACLE_E4M3FN), 0xda);
  ck_assert_uint_eq(oracle_convert(ORACLE_F32, 0xff800000, ORACLE_E4M3FN), 0xfe);
  ck_assert_uint_eq(oracle_convert(ORACLE_F32, 0xff800001, ORACLE_E4M3FN), 0x7f);
  ck_assert_uint_eq(oracle_convert(ORACLE_F32, 0x80000000, ORACLE_E4M3FN), 0x80);
  ck_assert_uint_eq(oracle_convert(ORACLE_F32, 0x7f800000, ORACLE_E5M2), 0x7b);
  ck_assert_uint_eq(oracle_convert(ORACLE_F16, 0x7e00, ORACLE_E5M2), 0x7f);
  ck_assert_uint_eq(oracle_convert(ORACLE_BF16, 0xffc0, ORACLE_E4M3FNUZ), 0x80);
  ck_assert_uint_eq(oracle_convert(ORACLE_F32, 0x80000001, ORACLE_E5M2FNUZ), 0);
  ck_assert_uint_eq(oracle_convert(ORACLE_F32, bits_of(0x1.8p-18f), ORACLE_E5M2FNUZ), 1);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("oracle");
  TCase *tcase = tcase_create("by hand");
  tcase_add_loop_test(tcase, decode_limits, 0, (int)(sizeof formats / sizeof *formats));
  tcase_add_test(tcase, decode_specials);
  tcase_add_test(tcase, products_as_the_host);
  tcase_add_test(tcase, special_dots);
  tcase_add_test(tcase, scaled);
  tcase_add_test(tcase, contracts);
  tcase_add_test(tcase, rows);
  tcase_add_test(tcase, forced);
  tcase_add_test(tcase, sparse);
  tcase_add_test(tcase, converted);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
