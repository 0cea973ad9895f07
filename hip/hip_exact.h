/* SPDX-License-Identifier: Apache-2.0
 *
 * The exact dot of one query and one key, rounded once (S3.1 to S3.4), by a team of 16 lanes.
 *
 * First in binary64.  A product of two binary32 numbers has at most 48 significant bits and lies between 2^-298
 * and 2^256, so it is exact there, and infinities and NaN follow S3.1 by themselves: any NaN product, and +inf
 * with -inf, give NaN in any order of summation.  Along any path at most 20 roundings happen (16 sums in
 * a lane, 4 over lanes), each of relative size u = 2^-53, so with A = sum |q k| as computed (20 roundings of its own)
 *     |sum - exact| <= 20u / (1 - 20u)^2 A,  and forming sum -+ E rounds by at most u |sum| <= 1.01 u A:
 * E = 32 u A = 2^-48 A bounds both.  If sum - E and sum + E round to one binary32 number, that is the score.
 *
 * Else the sum may lie on a midpoint, which short significands often do.  A product of b significant bits is a multiple
 * of a power of two that is at least |product| 2^-b; with m the least nonzero |product|, every product and every
 * partial sum is a multiple of one power of two g >= m 2^-b.  If A <= m 2^(52 - b), which leaves a factor 2 for the
 * roundings of A, all partial sums are below 2^53 g and so exact, and sum, rounded, is the score.
 *
 * Else in a fixed-point number of 640 bits, bit 0 = 2^-298: lane i of the team holds 40 of its bits in a 64-bit
 * integer, adds its part of every product, and carries run once at the end.  |dot| < 2^(256+8) needs 562 bits;
 * a lane's integer stays below 256 * 2^40.
 */
#ifndef M3IDX_HIP_EXACT_H
#define M3IDX_HIP_EXACT_H

#include "hip_arch.h"

namespace hipk {

constexpr int TEAM = 16, DIGIT_BITS = 40, LEAST_EXPONENT = -298;
constexpr int64_t DIGIT_MASK = (int64_t{1} << DIGIT_BITS) - 1;

HIPK_DEVICE int team_lane() { return lane_index() & (TEAM - 1); }
HIPK_DEVICE int team_base() { return lane_index() & ~(TEAM - 1); }
HIPK_DEVICE uint32_t team_ballot(bool vote) { return static_cast<uint32_t>(ballot(vote) >> team_base()) & 0xffff; }

template <class T> HIPK_DEVICE T team_sum(T x) {
  x += shuffle_xor<8>(x);
  x += shuffle_xor<4>(x);
  x += shuffle_xor<2>(x);
  return x + shuffle_xor<1>(x);
}
HIPK_DEVICE float team_max(float x) {
  x = larger(x, shuffle_xor<8>(x));
  x = larger(x, shuffle_xor<4>(x));
  x = larger(x, shuffle_xor<2>(x));
  return larger(x, shuffle_xor<1>(x));
}

/* The 40 bits of product * 2^298 that lie above bit 40 * team_lane(), with the product's sign. */
HIPK_DEVICE int64_t digit_of(double product) {
  const uint64_t bits = double_bits(product), fraction = bits & 0xfffffffffffffu;
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  if (exponent == 0) return 0; /* a zero: no product is subnormal in binary64 */
  uint64_t significand = fraction | uint64_t{1} << 52;
  int place = exponent - 1075 - LEAST_EXPONENT; /* of bit 0 of the significand */
  if (place < 0) {
    significand >>= -place; /* zeros: every product is a multiple of 2^-298 */
    place = 0;
  }
  const int shift = place - DIGIT_BITS * team_lane();
  if (shift >= DIGIT_BITS || shift <= -53) return 0;
  const uint64_t part = shift >= 0 ? significand << shift : significand >> -shift;
  const int64_t digit = static_cast<int64_t>(part) & DIGIT_MASK;
  return bits >> 63 ? -digit : digit;
}

/* Run the carries: every lane's integer becomes its digit, 0 <= digit < 2^40.  Returns the carry out of the top,
 * the same in the whole team: 0, or -1 for a negative number. */
HIPK_DEVICE int64_t carry_digits(int64_t &mine) {
  int64_t carry = 0, digit = 0;
  HIPK_ROLLED
  for (int i = 0; i < TEAM; i++) {
    const int64_t sum = shuffle(mine, team_base() + i) + carry;
    if (team_lane() == i) digit = sum & DIGIT_MASK;
    carry = sum >> DIGIT_BITS;
  }
  mine = digit;
  return carry;
}

/* window * 2^exponent, plus less than its last bit if sticky, to nearest even; window has 25 bits or more.  A number
 * that is dropped by more than the window's 64 bits is below half of 2^-149, and none is dropped by just these. */
static_assert((-149 - 64 - 16 - LEAST_EXPONENT) % DIGIT_BITS != 0, "the exponents of wide_sum()'s windows");
HIPK_DEVICE uint32_t round_window(uint64_t window, int exponent, bool sticky) {
  const int top = exponent + highest_bit(window);
  const int quantum = top - 23 < -149 ? -149 : top - 23; /* exponent of the result's last bit */
  const int drop = quantum - exponent;                   /* 1 or more */
  uint32_t kept = 0;
  if (drop < 64) {
    const uint64_t rest = window & ((uint64_t{1} << drop) - 1), half = uint64_t{1} << (drop - 1);
    kept = static_cast<uint32_t>(window >> drop);
    if (rest > half || (rest == half && (sticky || (kept & 1)))) kept++;
  }
  /* The hidden bit and a carry add into the exponent field; 0x7f800000 and above is overflow. */
  const uint32_t bits = (static_cast<uint32_t>(quantum + 149) << 23) + kept;
  return bits < 0x7f800000u ? bits : 0x7f800000u;
}

/* Sum the team's N products a lane exactly and round. */
template <int N> HIPK_DEVICE float wide_sum(const double (&products)[N]) {
  int64_t digit = 0;
  HIPK_ROLLED
  for (int i = 0; i < N; i++) {
    double mine = products[0];
    HIPK_UNROLL
    for (int j = 1; j < N; j++) mine = i == j ? products[j] : mine;
    HIPK_ROLLED
    for (int lane = 0; lane < TEAM; lane++) digit += digit_of(shuffle(mine, team_base() + lane));
  }
  int64_t magnitude = digit;
  const bool negative = carry_digits(magnitude) < 0;
  if (negative) digit = -digit;
  carry_digits(digit);
  const uint32_t live = team_ballot(digit != 0);
  const int high = live ? highest_bit(live) : 0;
  const uint64_t first = static_cast<uint64_t>(shuffle(digit, team_base() + high));
  const uint64_t below = static_cast<uint64_t>(shuffle(digit, team_base() + (high > 0 ? high - 1 : 0)));
  if (!live) return 0.0f;
  const uint64_t second = high > 0 ? below : 0;
  const bool sticky = (second & 0xffff) != 0 || (high > 1 && (live & ((1u << (high - 1)) - 1)) != 0);
  const uint64_t window = first << 24 | second >> 16; /* 40 + 24 bits */
  const uint32_t bits = round_window(window, LEAST_EXPONENT + DIGIT_BITS * (high - 1) + 16, sticky);
  return bits_float(bits && negative ? bits | 0x80000000u : bits); /* S3.4 */
}

struct team_dot_result {
  float value; /* rounded; an infinity as S3.1 says; +0 for any zero */
  bool nan;
};

HIPK_DEVICE double team_min(double x) {
  double other = shuffle_xor<8>(x);
  x = other < x ? other : x;
  other = shuffle_xor<4>(x);
  x = other < x ? other : x;
  other = shuffle_xor<2>(x);
  x = other < x ? other : x;
  other = shuffle_xor<1>(x);
  return other < x ? other : x;
}

/* Whether the binary64 sum of the team's products is exact: `size` is A, `ratio` 2^(52 - b). */
template <int N> HIPK_DEVICE bool sum_is_exact(const double (&products)[N], double size, double ratio) {
  double least = 0x1p1023;
  HIPK_UNROLL
  for (int i = 0; i < N; i++) {
    const double p = products[i] < 0 ? -products[i] : products[i];
    if (p != 0 && p < least) least = p;
  }
  return size <= team_min(least) * ratio;
}

/* Every lane of the wave takes part; the result is the same in all lanes of a team.  A team without work brings
 * zeros.  `ratio`: 2^(52 - b) for products of b significant bits. */
template <int N> HIPK_DEVICE team_dot_result team_dot(const float (&q)[N], const float (&k)[N], double ratio) {
  double products[N], sums[2] = {}, sizes[2] = {}; /* two of each, so that a sum waits for half the others */
  HIPK_UNROLL
  for (int i = 0; i < N; i++) {
    products[i] = static_cast<double>(q[i]) * static_cast<double>(k[i]);
    sums[i % 2] += products[i];
    sizes[i % 2] += products[i] < 0 ? -products[i] : products[i];
  }
  const double sum = team_sum(sums[0] + sums[1]), size = team_sum(sizes[0] + sizes[1]);
  team_dot_result result;
  result.nan = sum != sum;
  const double bound = size * 0x1p-48;
  const float low = static_cast<float>(sum - bound), high = static_cast<float>(sum + bound);
  result.value = low;
  const bool infinite = !result.nan && sum - sum != 0;
  if (infinite) result.value = sum > 0 ? bits_float(0x7f800000u) : bits_float(0xff800000u);
  bool open = !result.nan && !infinite && low != high;
  if (ballot(open)) {
    const bool exact = sum_is_exact(products, size, ratio);
    if (open && exact) result.value = static_cast<float>(sum);
    open = open && !exact;
  }
  if (ballot(open)) {
    const float exact = wide_sum(products);
    if (open) result.value = exact;
  }
  if (result.value == 0) result.value = 0.0f;
  return result;
}

} // namespace hipk

#endif
