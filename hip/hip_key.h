/* SPDX-License-Identifier: Apache-2.0
 *
 * The ordered key (S4.3) and forced values (S3.7), written for the device and for itself: ref has its own.
 */
#ifndef M3IDX_HIP_KEY_H
#define M3IDX_HIP_KEY_H

#include "hip_arch.h"
#include "m3idx.h"

namespace hipk {

constexpr uint32_t BITS_INIT = 0x7149f2cau;       /* 1e30f */
constexpr uint32_t BITS_LOCAL = 0x6fa18f08u;      /* 1e29f */
constexpr uint32_t BITS_MINUS_1E30 = 0xf149f2cau; /* -1e30f */
constexpr uint32_t BITS_MINUS_INF = 0xff800000u;
constexpr uint32_t BITS_INF = 0x7f800000u;
constexpr uint32_t BITS_NAN = 0x7fc00000u;

/* The blocks of a row whose value is forced: ids below init, and from local_begin on (S3.7: local wins). */
struct forced_blocks {
  int32_t init, local;
};

HIPK_DEVICE uint32_t forced_bits(uint32_t bits, int32_t id, int32_t blocks, forced_blocks forced) {
  if (id >= blocks - forced.local) return BITS_LOCAL; /* both in 0..2^31-1 */
  return id < forced.init ? BITS_INIT : bits;
}

/* S4.2, then the order of patterns.  Ordered 0 is taken by no pattern of this function but NaN below -inf: the
 * -NaN of all ones, which also maps to 0, comes second only to the id half of the key. */
HIPK_DEVICE uint32_t ordered_bits(uint32_t bits, m3idx_contract contract) {
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > BITS_INF) {
    if (contract.nan == M3IDX_NAN_AS_MINUS_1E30) bits = BITS_MINUS_1E30;
    if (contract.nan == M3IDX_NAN_AS_MINUS_INF) bits = BITS_MINUS_INF;
    if (contract.nan == M3IDX_NAN_BELOW_MINUS_INF) return 0;
  }
  if (magnitude == 0 && contract.zero == M3IDX_ZERO_EQUAL) bits = 0;
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

/* Never 0, the empty slot: the id half is not. */
HIPK_DEVICE uint64_t block_key(uint32_t bits, int32_t id, m3idx_contract contract) {
  const uint32_t tie =
      contract.tie == M3IDX_TIE_LOWER_ID ? 0xffffffffu - static_cast<uint32_t>(id) : static_cast<uint32_t>(id) + 1;
  return static_cast<uint64_t>(ordered_bits(bits, contract)) << 32 | tie;
}

/* The id of a key; -1 of an empty slot under either tie rule. */
HIPK_DEVICE int32_t key_block(uint64_t key, m3idx_tie tie) {
  const uint32_t half = static_cast<uint32_t>(key);
  return static_cast<int32_t>(tie == M3IDX_TIE_LOWER_ID ? 0xffffffffu - half : half - 1);
}

} // namespace hipk

#endif
