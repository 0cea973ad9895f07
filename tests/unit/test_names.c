/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of formats, statuses, contracts and architectures (common/names.c), both ways.
 */
#include <string.h>

#include "m3idx.h"
#include "unit.h"

static const struct {
  const char *name;
  m3idx_dtype dtype;
  size_t bytes;
} dtypes[] = {{"f32", M3IDX_F32, 4},          {"f16", M3IDX_F16, 2},           {"bf16", M3IDX_BF16, 2},
              {"e4m3fn", M3IDX_E4M3FN, 1},    {"e4m3fnuz", M3IDX_E4M3FNUZ, 1}, {"e5m2", M3IDX_E5M2, 1},
              {"e5m2fnuz", M3IDX_E5M2FNUZ, 1}};

START_TEST(dtype_names) {
  m3idx_dtype got = M3IDX_DTYPE_COUNT;
  ck_assert_int_eq(m3idx_dtype_by_name(dtypes[_i].name, &got), M3IDX_OK);
  ck_assert_int_eq(got, dtypes[_i].dtype);
  ck_assert_str_eq(m3idx_dtype_name(dtypes[_i].dtype), dtypes[_i].name);
  ck_assert_uint_eq(m3idx_dtype_bytes(dtypes[_i].dtype), dtypes[_i].bytes);
}
END_TEST

START_TEST(unknown_names) {
  m3idx_dtype dtype = M3IDX_BF16;
  ck_assert_int_eq(m3idx_dtype_by_name("f64", &dtype), M3IDX_INVALID);
  ck_assert_int_eq(m3idx_dtype_by_name(NULL, &dtype), M3IDX_INVALID);
  ck_assert_int_eq(dtype, M3IDX_BF16);
  ck_assert_ptr_null(m3idx_dtype_name(M3IDX_DTYPE_COUNT));
  ck_assert_uint_eq(m3idx_dtype_bytes(M3IDX_DTYPE_COUNT), 0);
  ck_assert_int_eq(m3idx_arch_by_name("gfx942"), M3IDX_GFX942);
  ck_assert_int_eq(m3idx_arch_by_name("gfx950"), M3IDX_GFX950);
  ck_assert_int_eq(m3idx_arch_by_name("gfx90a"), M3IDX_ARCH_OTHER);
  ck_assert_int_eq(m3idx_arch_by_name(NULL), M3IDX_ARCH_OTHER);
  ck_assert_str_eq(m3idx_status_name(M3IDX_OK), "success");
  ck_assert_str_eq(m3idx_status_name((m3idx_status)99), "unknown status");
  ck_assert_str_eq(m3idx_version(), "0.1.0");
}
END_TEST

/* Presets as the table of S4.2 lists them. */
static const struct {
  const char *name;
  m3idx_contract want;
} contracts[] = {
    {"vllm", {M3IDX_TIE_LOWER_ID, M3IDX_NAN_AS_MINUS_1E30, M3IDX_ZERO_EQUAL, M3IDX_ORDER_SCORE}},
    {"aiter", {M3IDX_TIE_HIGHER_ID, M3IDX_NAN_AS_MINUS_INF, M3IDX_ZERO_SIGNED, M3IDX_ORDER_SCORE}},
    {"atom", {M3IDX_TIE_HIGHER_ID, M3IDX_NAN_BELOW_MINUS_INF, M3IDX_ZERO_EQUAL, M3IDX_ORDER_SCORE}},
    {"sglang", {M3IDX_TIE_LOWER_ID, M3IDX_NAN_AS_MINUS_INF, M3IDX_ZERO_EQUAL, M3IDX_ORDER_ID}},
    {"flashinfer", {M3IDX_TIE_LOWER_ID, M3IDX_NAN_BY_BITS, M3IDX_ZERO_SIGNED, M3IDX_ORDER_ID}},
    {"tie=higher,nan=bits,zero=equal,order=id",
     {M3IDX_TIE_HIGHER_ID, M3IDX_NAN_BY_BITS, M3IDX_ZERO_EQUAL, M3IDX_ORDER_ID}},
    {"tie=lower,nan=below,zero=signed,order=score",
     {M3IDX_TIE_LOWER_ID, M3IDX_NAN_BELOW_MINUS_INF, M3IDX_ZERO_SIGNED, M3IDX_ORDER_SCORE}},
};

START_TEST(contract_names) {
  m3idx_contract got = {0};
  char text[64];
  ck_assert_int_eq(m3idx_contract_by_name(contracts[_i].name, &got), M3IDX_OK);
  ck_assert_int_eq(got.tie, contracts[_i].want.tie);
  ck_assert_int_eq(got.nan, contracts[_i].want.nan);
  ck_assert_int_eq(got.zero, contracts[_i].want.zero);
  ck_assert_int_eq(got.order, contracts[_i].want.order);
  m3idx_contract_name(&contracts[_i].want, text, sizeof text);
  ck_assert_str_eq(text, contracts[_i].name);
}
END_TEST

/* All 32 combinations: the name of each leads back to it, and no two share a name. */
START_TEST(free_contracts) {
  static char names[32][64];
  for (int i = 0; i < 32; i++) {
    const m3idx_contract want = {(m3idx_tie)(i & 1), (m3idx_nan)(i >> 1 & 3), (m3idx_zero)(i >> 3 & 1),
                                 (m3idx_order)(i >> 4 & 1)};
    m3idx_contract got = {0};
    m3idx_contract_name(&want, names[i], sizeof names[i]);
    ck_assert_int_eq(m3idx_contract_by_name(names[i], &got), M3IDX_OK);
    ck_assert(got.tie == want.tie && got.nan == want.nan && got.zero == want.zero && got.order == want.order);
    for (int j = 0; j < i; j++) ck_assert_str_ne(names[i], names[j]);
  }
}
END_TEST

static const char *const not_contracts[] = {"",
                                            "VLLM",
                                            "tie=lower",
                                            "tie=lower,nan=bits,zero=equal",
                                            "tie=low,nan=bits,zero=equal,order=id",
                                            "tie=lower,nan=bits,zero=equal,order=id,",
                                            "nan=bits,tie=lower,zero=equal,order=id",
                                            "tie=lower;nan=bits;zero=equal;order=id"};

START_TEST(bad_contract_names) {
  m3idx_contract got = {M3IDX_TIE_HIGHER_ID, M3IDX_NAN_BY_BITS, M3IDX_ZERO_SIGNED, M3IDX_ORDER_ID};
  ck_assert_int_eq(m3idx_contract_by_name(not_contracts[_i], &got), M3IDX_INVALID);
  ck_assert_int_eq(m3idx_contract_by_name(NULL, &got), M3IDX_INVALID);
  ck_assert_int_eq(got.nan, M3IDX_NAN_BY_BITS);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("names");
  TCase *tcase = tcase_create("names");
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, dtype_names, 0, sizeof dtypes / sizeof *dtypes);
  tcase_add_test(tcase, unknown_names);
  tcase_add_loop_test(tcase, contract_names, 0, sizeof contracts / sizeof *contracts);
  tcase_add_test(tcase, free_contracts);
  tcase_add_loop_test(tcase, bad_contract_names, 0, sizeof not_contracts / sizeof *not_contracts);
  return unit_run(suite);
}
