/* SPDX-License-Identifier: Apache-2.0
 *
 * The probe's rows and its judgement (hip_probe.h), for the host.
 */
#include "hip_probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hip_bound.h"

namespace {

constexpr int D = hipk::MATRIX_DIM;

struct random_codes {
  uint64_t state;
  uint32_t next() {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return static_cast<uint32_t>(state >> 33);
  }
  /* Any sign and fraction, exponents within `spread` of `exponent`. */
  uint16_t code(int exponent, int spread) {
    const int field = 127 + exponent + static_cast<int>(next() % static_cast<uint32_t>(2 * spread + 1)) - spread;
    return static_cast<uint16_t>((next() & 0x807f) | static_cast<uint32_t>(field) << 7);
  }
};

double value_of(uint16_t code) {
  const uint32_t bits = static_cast<uint32_t>(code) << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return static_cast<double>(x);
}
/* Of a number that bf16 holds. */
uint16_t code_of(double value) {
  const float x = static_cast<float>(value);
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

void fill_row(uint16_t *row, double value) {
  for (int k = 0; k < D; k++) row[k] = code_of(value);
}

} // namespace

/* Against the row of ones, unless said otherwise. */
static void fill_known(uint16_t (*a)[D], uint16_t (*b)[D]) {
  static const int distance[] = {1, 4, 8, 16, 24, 31, 64, 127};
  for (int i = 0; i < 8; i++) { /* terms that cancel: what was cut off under them is lost */
    fill_row(a[i], 1);
    a[i][0] = code_of(0x1p30);
    a[i][distance[i]] = code_of(-0x1p30);
  }
  /* A large product, then sums on either side of half a unit of its last place, or less than it can see. */
  static const double tail[] = {0x1.fep-25,  0x1.02p-24, 0x1.fep-24, -0x1.fep-26,
                                -0x1.02p-25, 0x1p-40,    -0x1p-60,   0x1p-133};
  for (int i = 0; i < 8; i++)
    for (int k = 0; k < D; k++) a[8 + i][k] = code_of(k == 0 ? 1 : k % 4 == 0 ? tail[i] : 0);
  for (int k = 0; k < D; k++) {
    a[16][k] = code_of(0x1p-133 * (k + 1)); /* subnormals; exact against ones */
    a[17][k] = code_of(k % 2 ? 0x1p-126 : -0x1.fcp-127);
    a[18][k] = code_of(k % 2 ? 0x1p-70 : 0x1p-64); /* subnormal products, against 2^-70 */
    a[19][k] = code_of(k % 2 ? 0x1p62 : 0x1p61);   /* sums up to 2^125, against 2^56 */
    a[20][k] = code_of(k % 2 ? 0x1p62 : -0x1p62);
    a[21][k] = code_of(k < D / 2 ? 1 : -1);
    b[3][k] = code_of(k % 2 ? 1 : -1);
    b[4][k] = code_of(0x1p-133 * (k % 7));
  }
  fill_row(b[0], 1);
  fill_row(b[1], 0x1p-16);
  fill_row(b[2], 0x1p56);
  fill_row(b[5], 0x1p-70);
  fill_row(b[6], -1);
}

void hipk_probe_fill(hipk_probe *probe) {
  random_codes random = {1};
  memset(probe, 0, sizeof *probe);
  static const int spreads[] = {0, 1, 3, 8, 24};
  for (int i = 0; i < HIPK_PROBE_ROWS; i++)
    for (int k = 0; k < D; k++) {
      probe->a[i][k] = random.code(0, spreads[i % 5]);
      probe->b[i][k] = random.code(0, spreads[i / 5 % 5] / 2);
    }
  for (int i = 40; i < HIPK_PROBE_ROWS; i++) /* and rows that meet themselves: nothing cancels */
    memcpy(probe->b[i], probe->a[i], sizeof probe->b[i]);
  fill_known(probe->a, probe->b);
}

double hipk_probe_worst(m3idx_arch arch, const hipk_probe *probe) {
  const hipk::matrix_bound bound = hipk::bound_of(arch);
  double worst = 0;
  for (int i = 0; i < HIPK_PROBE_ROWS; i++)
    for (int j = 0; j < HIPK_PROBE_ROWS; j++) {
      double sum = 0, size = 0, elements = 0;
      for (int k = 0; k < D; k++) {
        const double x = value_of(probe->a[i][k]), y = value_of(probe->b[j][k]);
        sum += x * y; /* products are exact; the sum is off by less than 2^-45 of `size` */
        size += fabs(x * y);
        elements += fabs(x) + fabs(y);
      }
      if (size >= 0x1p126) continue; /* nothing is promised */
      const double allowed = bound.growth * size + bound.mixed * elements + bound.offset;
      const double error = fabs(static_cast<double>(probe->out[i][j]) - sum) + 0x1p-45 * size;
      if (!(error <= worst * allowed)) worst = error / allowed;
      if (worst != worst) return worst;
    }
  return worst;
}

void hipk_probe_conclude(double worst, hipk_device *device, char *text, size_t text_bytes) {
  const size_t length = strlen(text);
  device->matrix = worst <= 1;
  snprintf(text + length, text_bytes - length,
           device->matrix ? "; matrix steps err by %.2f of their bound"
                          : "; matrix steps err by %.2f of their bound: scores do without them",
           worst);
}
