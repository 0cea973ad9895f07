/* SPDX-License-Identifier: Apache-2.0
 *
 * The probe's products (hip_probe.h): one wave a tile, with the loads and steps that the scorer uses.
 */
#include "hip_arch.h"
#include "hip_probe.h"

namespace hipk {

struct probe_view {
  const u32x4 *a, *b; /* [HIPK_PROBE_ROWS][MATRIX_UNITS] */
  float *out;
};
constexpr int PROBE_COLUMNS = HIPK_PROBE_ROWS / matrix::N;

HIPK_KERNEL(WAVE) probe_steps(probe_view v) {
  HIPK_LDS(u32x4, a, matrix::M * MATRIX_UNITS);
  HIPK_LDS(u32x4, b, matrix::N * MATRIX_UNITS);
  const int row = group_index() / PROBE_COLUMNS * matrix::M, col = group_index() % PROBE_COLUMNS * matrix::N;
  for (int i = thread_index(); i < matrix::M * MATRIX_UNITS; i += WAVE)
    a[matrix_place(i / MATRIX_UNITS, i % MATRIX_UNITS)] = static_cast<u32x4>(global(v.a)[row * MATRIX_UNITS + i]);
  for (int i = thread_index(); i < matrix::N * MATRIX_UNITS; i += WAVE)
    b[matrix_place(i / MATRIX_UNITS, i % MATRIX_UNITS)] = static_cast<u32x4>(global(v.b)[col * MATRIX_UNITS + i]);
  barrier();
  matrix_acc acc = {};
  HIPK_UNROLL
  for (int step = 0; step < MATRIX_DIM / matrix::K; step++) matrix_step(load_a(a, 0, step), load_b(b, 0, step), acc);
  const gptr<float> out = global(v.out);
  HIPK_UNROLL
  for (int e = 0; e < matrix::ACC; e++)
    out[(row + matrix::acc_row(lane_index(), e)) * HIPK_PROBE_ROWS + col + matrix::acc_col(lane_index(), e)] = acc.v[e];
}

} // namespace hipk

void hipk_probe_launch(hipStream_t stream, hipk_probe *probe) {
  using namespace hipk;
  const probe_view v = {reinterpret_cast<const u32x4 *>(&probe->a), reinterpret_cast<const u32x4 *>(&probe->b),
                        &probe->out[0][0]};
  launch(probe_steps, HIPK_PROBE_ROWS / matrix::M * PROBE_COLUMNS, WAVE, stream, v);
}
