/* SPDX-License-Identifier: Apache-2.0
 *
 * The ordered key under every contract field, and the list of the K best (S3.7, S4.2, S4.3).
 */
#include "ref_key.h"
#include "unit.h"

#define NAN_POS UINT32_C(0x7fc00000)
#define NAN_NEG UINT32_C(0xffc00000)
#define INF UINT32_C(0x7f800000)
#define MINUS_INF UINT32_C(0xff800000)
#define MINUS_1E30 UINT32_C(0xf149f2ca)
#define MINUS_ZERO UINT32_C(0x80000000)

static const m3idx_contract vllm = {M3IDX_TIE_LOWER_ID, M3IDX_NAN_AS_MINUS_1E30, M3IDX_ZERO_EQUAL, M3IDX_ORDER_SCORE};
static const m3idx_contract atom = {M3IDX_TIE_HIGHER_ID, M3IDX_NAN_BELOW_MINUS_INF, M3IDX_ZERO_EQUAL,
                                    M3IDX_ORDER_SCORE};
static const m3idx_contract bits_signed = {M3IDX_TIE_LOWER_ID, M3IDX_NAN_BY_BITS, M3IDX_ZERO_SIGNED, M3IDX_ORDER_ID};
static const m3idx_contract aiter = {M3IDX_TIE_HIGHER_ID, M3IDX_NAN_AS_MINUS_INF, M3IDX_ZERO_SIGNED, M3IDX_ORDER_SCORE};

/* Keys written out from the formula of S4.3. */
static const struct {
  const m3idx_contract *contract;
  uint32_t score;
  int32_t id;
  uint64_t want;
} keys[] = {
    {&vllm, 0x3f800000, 0, UINT64_C(0xbf800000ffffffff)},
    {&vllm, 0xbf800000, 5, UINT64_C(0x407ffffffffffffa)},
    {&vllm, 0, 1, UINT64_C(0x80000000fffffffe)},
    {&vllm, MINUS_ZERO, 1, UINT64_C(0x80000000fffffffe)},
    {&vllm, NAN_NEG, 2, UINT64_C(0x0eb60d35fffffffd)},
    {&vllm, MINUS_1E30, 2, UINT64_C(0x0eb60d35fffffffd)},
    {&vllm, MINUS_INF, INT32_MAX, UINT64_C(0x007fffff80000000)},
    {&vllm, INF, 0, UINT64_C(0xff800000ffffffff)},
    {&vllm, 1, 0, UINT64_C(0x80000001ffffffff)},          /* a subnormal is no zero */
    {&vllm, 0x7f800001, 0, UINT64_C(0x0eb60d35ffffffff)}, /* a signalling NaN is a NaN */
    {&atom, NAN_POS, 0, UINT64_C(0x0000000000000001)},
    {&atom, NAN_NEG, INT32_MAX, UINT64_C(0x0000000080000000)},
    {&atom, MINUS_INF, 0, UINT64_C(0x007fffff00000001)},
    {&atom, MINUS_ZERO, 3, UINT64_C(0x8000000000000004)},
    {&aiter, MINUS_ZERO, 3, UINT64_C(0x7fffffff00000004)},
    {&aiter, 0, 3, UINT64_C(0x8000000000000004)},
    {&aiter, NAN_POS, 3, UINT64_C(0x007fffff00000004)},
    {&bits_signed, NAN_POS, 0, UINT64_C(0xffc00000ffffffff)},
    {&bits_signed, NAN_NEG, 0, UINT64_C(0x003fffffffffffff)},
    {&bits_signed, 0xffffffff, INT32_MAX, UINT64_C(0x0000000080000000)},
    {&bits_signed, MINUS_ZERO, 0, UINT64_C(0x7fffffffffffffff)},
};

START_TEST(key_formula) {
  uint64_t got = ref_key(keys[_i].score, keys[_i].id, keys[_i].contract);
  ck_assert_msg(got == keys[_i].want, "want %016llx got %016llx", (unsigned long long)keys[_i].want,
                (unsigned long long)got);
  ck_assert_int_eq(ref_key_id(got, keys[_i].contract), keys[_i].id);
}
END_TEST

/* Patterns from the least to the greatest value; ordered() must rise along them. */
START_TEST(ordered_rises) {
  static const uint32_t rising[] = {MINUS_INF,  0xff7fffff, MINUS_1E30, 0xbf800000, 0x80800000, 0x80000001, MINUS_ZERO,
                                    0x00000000, 0x00000001, 0x00800000, 0x3f800000, 0x7f7fffff, INF};
  for (size_t i = 1; i < sizeof rising / sizeof *rising; i++)
    ck_assert_uint_lt(ref_ordered(rising[i - 1]), ref_ordered(rising[i]));
  ck_assert_uint_eq(ref_float_bits(1.0f), 0x3f800000);
}
END_TEST

/* S3.7: local overwrites init; values, written as the patterns of 1e30f and 1e29f. */
START_TEST(forced_values) {
  ck_assert_uint_eq(ref_forced(7, 4, 10, 0, 0), 7);
  ck_assert_uint_eq(ref_forced(7, 0, 10, 1, 1), 0x7149f2ca);
  ck_assert_uint_eq(ref_forced(7, 1, 10, 1, 1), 7);
  ck_assert_uint_eq(ref_forced(7, 8, 10, 1, 1), 7);
  ck_assert_uint_eq(ref_forced(7, 9, 10, 1, 1), 0x6fa18f08);
  ck_assert_uint_eq(ref_forced(NAN_POS, 9, 10, 1, 1), 0x6fa18f08);
  /* overlap: init 2, local 3, N = 2: both local. */
  ck_assert_uint_eq(ref_forced(7, 0, 2, 2, 3), 0x6fa18f08);
  ck_assert_uint_eq(ref_forced(7, 1, 2, 2, 3), 0x6fa18f08);
  ck_assert_uint_eq(ref_forced(7, 0, 1, INT64_MAX, 0), 0x7149f2ca);
  ck_assert_uint_eq(ref_forced(7, 0, 1, 0, INT64_MAX), 0x6fa18f08);
}
END_TEST

START_TEST(best_keeps_the_largest) {
  static const uint64_t offered[] = {5, 9, 0, 1, 7, 7, 3, 9, 2, 8};
  static const uint64_t want[] = {9, 9, 8, 7};
  ref_best best;
  ref_best_clear(&best, 4);
  for (size_t i = 0; i < sizeof offered / sizeof *offered; i++) ref_best_offer(&best, offered[i]);
  for (int i = 0; i < 4; i++) ck_assert_uint_eq(best.key[i], want[i]);
  ref_best_clear(&best, 1);
  ref_best_offer(&best, 1);
  ref_best_offer(&best, 6);
  ref_best_offer(&best, 4);
  ck_assert_uint_eq(best.key[0], 6);
}
END_TEST

/* Scores 1, 3, 3, 2 for ids 10, 20, 30, 40: by score with either tie, by id, and the -1 of an unused slot. */
START_TEST(ids_in_the_contracts_order) {
  static const uint32_t scores[] = {0x3f800000, 0x40400000, 0x40400000, 0x40000000};
  static const struct {
    m3idx_tie tie;
    m3idx_order order;
    int32_t want[5];
  } rows[] = {{M3IDX_TIE_LOWER_ID, M3IDX_ORDER_SCORE, {20, 30, 40, 10, -1}},
              {M3IDX_TIE_HIGHER_ID, M3IDX_ORDER_SCORE, {30, 20, 40, 10, -1}},
              {M3IDX_TIE_LOWER_ID, M3IDX_ORDER_ID, {10, 20, 30, 40, -1}},
              {M3IDX_TIE_HIGHER_ID, M3IDX_ORDER_ID, {10, 20, 30, 40, -1}}};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    m3idx_contract contract = {rows[r].tie, M3IDX_NAN_BY_BITS, M3IDX_ZERO_EQUAL, rows[r].order};
    int32_t got[5];
    ref_best best;
    ref_best_clear(&best, 5);
    for (int i = 0; i < 4; i++) ref_best_offer(&best, ref_key(scores[i], 10 * (i + 1), &contract));
    ref_best_ids(&best, &contract, got);
    for (int i = 0; i < 5; i++) ck_assert_int_eq(got[i], rows[r].want[i]);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("ref_key");
  TCase *tcase = tcase_create("ref_key");
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, key_formula, 0, sizeof keys / sizeof *keys);
  tcase_add_test(tcase, ordered_rises);
  tcase_add_test(tcase, forced_values);
  tcase_add_test(tcase, best_keeps_the_largest);
  tcase_add_test(tcase, ids_in_the_contracts_order);
  return unit_run(suite);
}
