/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix layout of one wave size: every element of a tile has one place, and a product through load_a, load_b and
 * matrix_step is the product of the rows, for integers that every machine sums exactly.  Built for waves of 64 and 32.
 */
#include <check.h>

#include <vector>

#include "hip_arch.h"

namespace {

using namespace hipk;

constexpr int A_ROWS = 2 * matrix::M, B_ROWS = 2 * matrix::N;

struct product_params {
  const u32x4 *a, *b; /* [rows][MATRIX_UNITS], not permuted */
  float *out;         /* [A_ROWS][B_ROWS] */
};

/* One wave: the tile whose rows begin at M and N, over all of D. */
void product(product_params p) {
  HIPK_LDS(u32x4, a, A_ROWS * MATRIX_UNITS);
  HIPK_LDS(u32x4, b, B_ROWS * MATRIX_UNITS);
  for (int i = thread_index(); i < A_ROWS * MATRIX_UNITS; i += WAVE)
    a[matrix_place(i / MATRIX_UNITS, i % MATRIX_UNITS)] = static_cast<u32x4>(global(p.a)[i]);
  for (int i = thread_index(); i < B_ROWS * MATRIX_UNITS; i += WAVE)
    b[matrix_place(i / MATRIX_UNITS, i % MATRIX_UNITS)] = static_cast<u32x4>(global(p.b)[i]);
  barrier();
  for (int row = 0; row < A_ROWS; row += matrix::M)
    for (int col = 0; col < B_ROWS; col += matrix::N) {
      matrix_acc acc = {};
      for (int step = 0; step < MATRIX_DIM / matrix::K; step++)
        matrix_step(load_a(a, row, step), load_b(b, col, step), acc);
      for (int e = 0; e < matrix::ACC; e++)
        global(p.out)[(row + matrix::acc_row(lane_index(), e)) * B_ROWS + col + matrix::acc_col(lane_index(), e)] =
            acc.v[e];
    }
}

uint16_t code_of(int integer) { return static_cast<uint16_t>(float_bits(static_cast<float>(integer)) >> 16); }

std::vector<u32x4> rows_of(const std::vector<int> &integers) {
  std::vector<u32x4> rows;
  for (size_t i = 0; i < integers.size(); i += 8) {
    uint32_t word[4];
    for (size_t j = 0; j < 4; j++)
      word[j] = code_of(integers[i + 2 * j]) | static_cast<uint32_t>(code_of(integers[i + 2 * j + 1])) << 16;
    rows.push_back(u32x4{word[0], word[1], word[2], word[3]});
  }
  return rows;
}

template <class Row, class K> void one_place_each(int rows, int elements, Row row, K k, int ks) {
  std::vector<int> seen(static_cast<size_t>(rows * ks));
  for (int lane = 0; lane < WAVE; lane++)
    for (int e = 0; e < elements; e++) {
      ck_assert(row(lane, e) >= 0 && row(lane, e) < rows && k(lane, e) >= 0 && k(lane, e) < ks);
      seen[static_cast<size_t>(row(lane, e) * ks + k(lane, e))]++;
    }
  for (int count : seen) ck_assert_int_eq(count, 1);
}

} // namespace

START_TEST(places) {
  one_place_each(matrix::M, 2 * matrix::A_WORDS, matrix::a_row, matrix::a_k, matrix::K);
  one_place_each(matrix::N, 2 * matrix::B_WORDS, matrix::b_col, matrix::b_k, matrix::K);
  one_place_each(matrix::M, matrix::ACC, matrix::acc_row, matrix::acc_col, matrix::N);
}
END_TEST

/* Lanes that differ in ROW_LANES alone hold other rows of the same columns, in COL_LANES alone other columns. */
START_TEST(lanes_of_rows) {
  ck_assert_int_eq(matrix::ROW_LANES ^ matrix::COL_LANES, WAVE - 1);
  for (int lane = 0; lane < WAVE; lane++)
    for (int e = 0; e < matrix::ACC; e++) {
      ck_assert_int_eq(matrix::acc_col(lane, e), matrix::acc_col(lane & matrix::COL_LANES, e));
      ck_assert_int_eq(matrix::acc_row(lane, e), matrix::acc_row(lane & matrix::ROW_LANES, e));
    }
}
END_TEST

/* The steps take every code of a row once, and a lane's codes of the steps of a unit are that unit. */
START_TEST(codes) {
  constexpr int STEPS = MATRIX_DIM / matrix::K;
  uint32_t seen[MATRIX_DIM] = {};
  for (int step = 0; step < STEPS; step++)
    for (int k = 0; k < matrix::K; k++) {
      ck_assert(matrix::code_of(step, k) >= 0 && matrix::code_of(step, k) < MATRIX_DIM);
      seen[matrix::code_of(step, k)]++;
    }
  for (uint32_t count : seen) ck_assert_uint_eq(count, 1);
  for (int lane = 0; lane < WAVE; lane++)
    for (int step = 0; step < STEPS; step++) {
      const int first = step - step % matrix::UNIT_STEPS;
      const int unit = matrix::code_of(first, matrix::a_k(lane, 0)) / 8;
      for (int e = 0; e < 2 * matrix::A_WORDS; e++)
        ck_assert_int_eq(matrix::code_of(step, matrix::a_k(lane, e)) / 8, unit);
      for (int e = 0; e < 2 * matrix::B_WORDS; e++)
        ck_assert_int_eq(matrix::code_of(step, matrix::b_k(lane, e)) / 8, unit);
    }
}
END_TEST

/* Units of a row are permuted among themselves, and 8 neighbouring rows (16 on 64 banks) have a unit at as many
 * different places modulo 8 (16); so have 4 units of 2 neighbours, side by side or every second one. */
START_TEST(permuted) {
  for (int unit = 0; unit < MATRIX_UNITS; unit++) {
    for (int first = 0; first < 128; first += 8) {
      uint32_t seen = 0;
      for (int row = first; row < first + 8; row++) {
        ck_assert_int_eq(matrix_place(row, unit) / MATRIX_UNITS, row);
        seen |= 1u << matrix_place(row, unit) % 8;
      }
      ck_assert_uint_eq(seen, 0xff);
    }
    for (int first = 0; first < 128; first += 16) {
      uint32_t seen = 0;
      for (int row = first; row < first + 16; row++) seen |= 1u << matrix_place(row, unit) % 16;
      ck_assert_uint_eq(seen, 0xffff);
    }
  }
  for (int row = 0; row < 128; row += 2)
    for (int unit = 0; unit < MATRIX_UNITS; unit += 4) {
      uint32_t beside = 0, apart = 0;
      for (int i = 0; i < 8; i++) {
        beside |= 1u << matrix_place(row + i / 4, unit + i % 4) % 8;
        apart |= 1u << matrix_place(row + i / 4, unit / 8 * 8 + unit / 4 % 2 + i % 4 * 2) % 8;
      }
      ck_assert_uint_eq(beside, 0xff);
      ck_assert_uint_eq(apart, 0xff);
    }
}
END_TEST

START_TEST(small_integers) {
  uint64_t state = 1;
  std::vector<int> a(A_ROWS * MATRIX_DIM), b(B_ROWS * MATRIX_DIM);
  for (std::vector<int> *side : {&a, &b})
    for (int &x : *side) {
      state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
      x = static_cast<int>(state >> 60) - 8;
    }
  const std::vector<u32x4> a_rows = rows_of(a), b_rows = rows_of(b);
  std::vector<float> out(A_ROWS * B_ROWS, -1.0f);
  simt::configure({1, WAVE, 65536});
  simt::allow(a_rows.data(), a_rows.size() * sizeof(u32x4), false);
  simt::allow(b_rows.data(), b_rows.size() * sizeof(u32x4), false);
  simt::allow(out.data(), out.size() * sizeof(float), true);
  launch(product, 1, WAVE, nullptr, product_params{a_rows.data(), b_rows.data(), out.data()});
  ck_assert_msg(!simt::failure(), "%s", simt::failure());
  simt::forbid_all();
  for (int row = 0; row < A_ROWS; row++)
    for (int col = 0; col < B_ROWS; col++) {
      int dot = 0;
      for (int k = 0; k < MATRIX_DIM; k++)
        dot += a[static_cast<size_t>(row * MATRIX_DIM + k)] * b[static_cast<size_t>(col * MATRIX_DIM + k)];
      const float got = out[static_cast<size_t>(row * B_ROWS + col)];
      ck_assert_msg(got == static_cast<float>(dot), "row %d, column %d: want %d, got %g", row, col, dot,
                    static_cast<double>(got));
    }
}
END_TEST

int main() {
  Suite *suite = suite_create("simt_layout");
  TCase *tcase = tcase_create("layout");
  tcase_set_timeout(tcase, 0);
  tcase_add_test(tcase, places);
  tcase_add_test(tcase, lanes_of_rows);
  tcase_add_test(tcase, codes);
  tcase_add_test(tcase, permuted);
  tcase_add_test(tcase, small_integers);
  suite_add_tcase(suite, tcase);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed ? 1 : 0;
}
