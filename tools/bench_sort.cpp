// SPDX-License-Identifier: Apache-2.0
//
// Peers from the C++ library: selection by std::partial_sort and by std::nth_element on 64-bit keys, which hold the
// order of the default contract.  Making the keys is part of the work.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>

#include "bench_sort.h"

namespace {

// S4.2 and S4.3, contract "vllm": NaN as -1e30, zeros equal, lower ids first.
std::uint64_t key_of(float score, std::int64_t id) {
  std::uint32_t bits;
  std::memcpy(&bits, &score, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) bits = 0xf149f2cau;
  if ((bits & 0x7fffffffu) == 0) bits = 0;
  const std::uint32_t ordered = bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
  return static_cast<std::uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
}

} // namespace

extern "C" void bench_sort_row(const float *score, std::int64_t n, std::int64_t topk, int by_nth_element,
                               std::uint64_t *room, std::int32_t *ids) {
  const std::int64_t k = std::min(n, topk);
  for (std::int64_t i = 0; i < n; i++) room[i] = key_of(score[i], i);
  if (by_nth_element) {
    if (k < n) std::nth_element(room, room + k, room + n, std::greater<std::uint64_t>());
    std::sort(room, room + k, std::greater<std::uint64_t>());
  } else {
    std::partial_sort(room, room + k, room + n, std::greater<std::uint64_t>());
  }
  for (std::int64_t i = 0; i < topk; i++)
    ids[i] = i < k ? static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(room[i])) : -1;
}
