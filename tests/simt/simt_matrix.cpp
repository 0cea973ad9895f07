/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of a matrix step.  Integers where a unit works on integers; what is a double here is exact, or its error is
 * accounted for at its place.
 */
#include "simt_matrix.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int LEAST = -126, NONE = -999; /* the exponent of a subnormal, and of no product at all */

/* significand * 2^(exponent - 7) for a code, * 2^(exponent - 23) for a binary32. */
struct number {
  int64_t significand; /* with its sign */
  int exponent;
  bool negative, infinite, nan;
};

number unpack(uint32_t bits, int fraction_bits) {
  const uint32_t fraction = bits & ((1u << fraction_bits) - 1);
  const int field = static_cast<int>(bits >> fraction_bits & 0xff);
  number n;
  n.negative = bits >> (fraction_bits + 8) & 1;
  n.infinite = field == 255 && fraction == 0;
  n.nan = field == 255 && fraction != 0;
  n.exponent = (field == 0 ? 1 : field) - 127;
  n.significand = static_cast<int64_t>(fraction | (field == 0 ? 0 : 1u << fraction_bits));
  if (n.negative) n.significand = -n.significand;
  return n;
}
number of_float(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return unpack(bits, 23);
}

/* 2^exponent for a normal binary64. */
double power(int exponent) {
  const uint64_t bits = static_cast<uint64_t>(exponent + 1023) << 52;
  double x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

int64_t shift_floor(int64_t x, int left) {
  if (left >= 0) return x * (INT64_C(1) << left);
  return left < -62 ? (x < 0 ? -1 : 0) : x >> -left;
}
int64_t shift_trunc(int64_t x, int left) { return x < 0 ? -shift_floor(-x, left) : shift_floor(x, left); }

/* The place of the highest bit. */
int top_of(int64_t x) { return 63 - __builtin_clzll(static_cast<unsigned long long>(x < 0 ? -x : x)); }

/* NaN and infinities among the products and d: true and *out where there are any. */
bool special(const number *a, const number *b, const int *at, int n, float d, float *out) {
  bool nan = std::isnan(d), plus = std::isinf(d) && d > 0, minus = std::isinf(d) && d < 0;
  for (int i = 0; i < n; i++) {
    const number &x = a[at[i]], &y = b[at[i]];
    if (!x.infinite && !y.infinite && !x.nan && !y.nan && x.exponent + y.exponent < 126) continue;
    nan |= x.nan || y.nan || (x.infinite && !y.significand) || (y.infinite && !x.significand);
    const double size = static_cast<double>(std::llabs(x.significand * y.significand)) *
                        power(x.exponent + y.exponent - 14); /* the significand of an infinity is not zero here */
    if (x.infinite || y.infinite || size >= 0x1p128) (x.negative != y.negative ? minus : plus) = true;
  }
  *out = nan || (plus && minus) ? NAN : plus ? INFINITY : -INFINITY;
  return nan || plus || minus;
}

int largest_exponent(const number *a, const number *b, const int *at, int n) {
  int e = NONE;
  for (int i = 0; i < n; i++)
    if (a[at[i]].significand && b[at[i]].significand && a[at[i]].exponent + b[at[i]].exponent > e)
      e = a[at[i]].exponent + b[at[i]].exponent;
  return e;
}

/* Products in units of 2^(e - bits), each cut toward zero. */
int64_t sum_cut(const number *a, const number *b, const int *at, int n, int e, int bits) {
  int64_t sum = 0;
  for (int i = 0; i < n; i++) {
    const int64_t product = a[at[i]].significand * b[at[i]].significand;
    if (product) sum += shift_trunc(product, a[at[i]].exponent + b[at[i]].exponent - 14 + bits - e);
  }
  return sum;
}

bool all_minus_zero(const number *a, const number *b, const int *at, int n, float d) {
  bool all = d == 0 && std::signbit(d);
  for (int i = 0; i < n; i++)
    all = all && a[at[i]].negative != b[at[i]].negative && !(a[at[i]].significand && b[at[i]].significand);
  return all;
}

/* gfx942: the block of 8 products at `at`. */
float add_block(const number *a, const number *b, const int *at, float d) {
  float out;
  if (special(a, b, at, 8, d, &out)) return out;
  const number c = of_float(d);
  const int e_dot = largest_exponent(a, b, at, 8), e = e_dot > c.exponent ? e_dot : c.exponent;
  int64_t s = 256 * shift_floor(c.significand, c.exponent - 23 + 24 - e); /* units of 2^(e - 32) */
  if (e_dot != NONE) s += shift_floor(sum_cut(a, b, at, 8, e_dot, 24), 8 + e_dot - e);
  if (s == 0) return all_minus_zero(a, b, at, 8, d) ? -0.0f : 0.0f;
  const int exponent = top_of(s) + e - 32, floor_at = (exponent < LEAST ? LEAST : exponent) - 31 - (e - 32);
  if (floor_at > 0) s = shift_floor(shift_floor(s, -floor_at), floor_at);
  return static_cast<float>(static_cast<double>(s) * power(e - 32)); /* below 2^40: the product is exact */
}

/* Hopper: sixteen products. */
float add_mma(const number *a, const number *b, const int *at, float d) {
  float out;
  if (special(a, b, at, 16, d, &out)) return out;
  const number c = of_float(d);
  const int e_dot = largest_exponent(a, b, at, 16), e = e_dot > c.exponent ? e_dot : c.exponent;
  int64_t s = shift_trunc(c.significand, c.exponent - 23 + 25 - e); /* units of 2^(e - 25) */
  if (e_dot != NONE) s += sum_cut(a, b, at, 16, e, 25);
  if (s == 0) return 0.0f;
  const int exponent = top_of(s) + e - 25, cut = (exponent < LEAST ? LEAST : exponent) - 23 - (e - 25);
  if (cut > 0) s = shift_trunc(shift_trunc(s, -cut), cut);
  return static_cast<float>(static_cast<double>(s) * power(e - 25));
}

/* ---- the worst that is allowed ---- */

uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

double value_of(const number &n) {
  if (n.nan) return NAN;
  if (n.infinite) return n.negative ? -INFINITY : INFINITY;
  return static_cast<double>(n.significand) * power(n.exponent - 7);
}

/* The farthest binary32 number from v within `error`. */
float farthest(double v, double error, bool up) {
  const double limit = up ? v + error : v - error;
  const float nearest = static_cast<float>(limit);
  if (up ? static_cast<double>(nearest) <= limit : static_cast<double>(nearest) >= limit) return nearest;
  return std::nextafter(nearest, up ? -INFINITY : INFINITY);
}

/* v is summed in binary64, off by some 2^-48 (A + |d|); the last factor leaves that out of what is permitted. */
float add_worst(const number *a, const number *b, const int *at, int n, float d, const simt_matrix_model *m, bool up) {
  double v = static_cast<double>(d), size = 0, elements = 0;
  for (int i = 0; i < n; i++) {
    const double x = value_of(a[at[i]]), y = value_of(b[at[i]]);
    v += x * y;
    if (x != 0 && y != 0) size += std::fmax(std::fabs(x), 0x1p-126) * std::fmax(std::fabs(y), 0x1p-126);
    elements += std::fabs(x) + std::fabs(y);
  }
  if (!std::isfinite(v)) return static_cast<float>(v);
  if (size + std::fabs(static_cast<double>(d)) >= 0x1p127) return 0; /* nothing is promised */
  const double rounded = std::fmax(std::fabs(v), 0x1p-126);
  const bool known = m->unit == SIMT_MATRIX_GFX942;
  const double relative = known ? 8 * size + (1 + 0x1p-7 + 0x1p-8) * rounded : 64 * size + 24 * rounded;
  const double error = 0x1p-24 * relative + 0x1p-126 * (elements + n + 1);
  return farthest(v, error * m->scale * (1 - 0x1p-20), up);
}

bool side_of(simt_matrix_model *m, int row, int col) {
  switch (m->side) {
  case SIMT_MATRIX_UP: return true;
  case SIMT_MATRIX_DOWN: return false;
  case SIMT_MATRIX_ANY: return mixed(++m->seed * UINT64_C(0x9e3779b97f4a7c15)) & 1;
  default:
    return mixed(m->seed + static_cast<uint64_t>(row * SIMT_MATRIX_SIDE + col) * UINT64_C(0x9e3779b97f4a7c15)) & 1;
  }
}

/* Instructions of a step: which ks each takes.  gfx942's has the lower four codes of both halves of a wave first. */
const int halves[2][8] = {{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}};
const int whole[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

float step_of(const number *a, const number *b, float d, simt_matrix_model *m, int row, int col) {
  if (m->adversarial) {
    const bool up = side_of(m, row, col);
    if (m->unit != SIMT_MATRIX_GFX942) return add_worst(a, b, whole, 16, d, m, up);
    for (const auto &half : halves) d = add_worst(a, b, half, 8, d, m, up);
    return d;
  }
  if (m->unit == SIMT_MATRIX_MMA) return add_mma(a, b, whole, d);
  if (m->unit == SIMT_MATRIX_GFX950) return add_block(a, b, whole + 8, add_block(a, b, whole, d));
  for (const auto &half : halves) d = add_block(a, b, half, d);
  return d;
}

} // namespace

void simt_matrix_step(simt_matrix_tile *tile, simt_matrix_model *model) {
  static number a[SIMT_MATRIX_SIDE][SIMT_MATRIX_K], b[SIMT_MATRIX_SIDE][SIMT_MATRIX_K];
  for (int k = 0; k < SIMT_MATRIX_K; k++) {
    for (int row = 0; row < tile->rows; row++) a[row][k] = unpack(tile->a[row][k], 7);
    for (int col = 0; col < tile->cols; col++) b[col][k] = unpack(tile->b[col][k], 7);
  }
  for (int row = 0; row < tile->rows; row++)
    for (int col = 0; col < tile->cols; col++)
      tile->acc[row][col] = step_of(a[row], b[col], tile->acc[row][col], model, row, col);
}

float simt_matrix_dot(const uint16_t *a, const uint16_t *b, simt_matrix_model *model) {
  float d = 0;
  for (int step = 0; step < 128; step += SIMT_MATRIX_K) {
    number x[SIMT_MATRIX_K], y[SIMT_MATRIX_K];
    for (int k = 0; k < SIMT_MATRIX_K; k++) {
      x[k] = unpack(a[step + k], 7);
      y[k] = unpack(b[step + k], 7);
    }
    d = step_of(x, y, d, model, 0, 0);
  }
  return d;
}

bool simt_matrix_named(const char *name, simt_matrix_model *model) {
  static const char *const sides[] = {"up", "down", "any", "place"};
  model->scale = 1;
  model->adversarial = std::strcmp(name, "plausible") != 0;
  if (!model->adversarial) return true;
  for (int i = 0; i < 4; i++)
    if (!std::strcmp(name, sides[i])) {
      model->side = static_cast<simt_matrix_side>(i);
      return true;
    }
  return false;
}

simt_matrix_model *simt_matrix_current(void) {
  static simt_matrix_model model;
  static bool ready = false;
  if (!ready) {
    const char *name = std::getenv("M3IDX_SIMT_MATRIX");
    if (!simt_matrix_named(name ? name : "plausible", &model)) {
      std::fprintf(stderr, "M3IDX_SIMT_MATRIX is '%s', must be plausible, up, down, any or place\n", name);
      std::exit(2);
    }
    ready = true;
  }
  return &model;
}
