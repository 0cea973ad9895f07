/* SPDX-License-Identifier: Apache-2.0
 *
 * The ordered key (S4.3) and insertion into a list of the K best.  Knows nothing of where scores come from.
 */
#include "ref_key.h"

#include <string.h>

#define INIT_BITS UINT32_C(0x7149f2ca)       /* 1e30f */
#define LOCAL_BITS UINT32_C(0x6fa18f08)      /* 1e29f */
#define MINUS_1E30_BITS UINT32_C(0xf149f2ca) /* -1e30f */
#define MINUS_INF_BITS UINT32_C(0xff800000)
#define LOWEST_BITS UINT32_C(0xffffffff) /* the pattern that ref_ordered() maps to 0, below -inf */
#define SIGN_BIT UINT32_C(0x80000000)

uint32_t ref_float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

uint32_t ref_ordered(uint32_t bits) { return bits ^ (bits & SIGN_BIT ? UINT32_C(0xffffffff) : SIGN_BIT); }

uint32_t ref_forced(uint32_t bits, int64_t block, int64_t blocks, int64_t init_blocks, int64_t local_blocks) {
  if (block >= blocks - local_blocks) return LOCAL_BITS;
  if (block < init_blocks) return INIT_BITS;
  return bits;
}

/* The contract's NaN and zero rules (S4.2): the pattern that stands for the score in the order. */
static uint32_t ranked_bits(uint32_t bits, const m3idx_contract *contract) {
  uint32_t magnitude = bits & ~SIGN_BIT;
  if (magnitude > UINT32_C(0x7f800000)) switch (contract->nan) {
    case M3IDX_NAN_AS_MINUS_1E30: return MINUS_1E30_BITS;
    case M3IDX_NAN_AS_MINUS_INF: return MINUS_INF_BITS;
    case M3IDX_NAN_BELOW_MINUS_INF: return LOWEST_BITS;
    case M3IDX_NAN_BY_BITS: return bits;
    }
  if (magnitude == 0 && contract->zero == M3IDX_ZERO_EQUAL) return 0;
  return bits;
}

uint64_t ref_key(uint32_t score_bits, int64_t id, const m3idx_contract *contract) {
  uint64_t ordered = ref_ordered(ranked_bits(score_bits, contract));
  uint64_t tie = contract->tie == M3IDX_TIE_LOWER_ID ? UINT32_MAX - (uint64_t)id : (uint64_t)id + 1;
  return ordered << 32 | tie;
}

int32_t ref_key_id(uint64_t key, const m3idx_contract *contract) {
  uint32_t tie = (uint32_t)(key & UINT32_MAX);
  return (int32_t)(contract->tie == M3IDX_TIE_LOWER_ID ? UINT32_MAX - tie : tie - 1);
}

void ref_best_clear(ref_best *best, int64_t topk) {
  memset(best->key, 0, sizeof best->key);
  best->topk = topk;
}

void ref_best_offer(ref_best *best, uint64_t key) {
  int64_t at = best->topk - 1;
  if (key <= best->key[at]) return;
  for (; at > 0 && best->key[at - 1] < key; at--) best->key[at] = best->key[at - 1];
  best->key[at] = key;
}

void ref_best_ids(const ref_best *best, const m3idx_contract *contract, int32_t *ids) {
  int64_t used = 0;
  for (; used < best->topk && best->key[used]; used++) {
    int32_t id = ref_key_id(best->key[used], contract);
    int64_t at = used;
    if (contract->order == M3IDX_ORDER_ID)
      for (; at > 0 && ids[at - 1] > id; at--) ids[at] = ids[at - 1];
    ids[at] = id;
  }
  for (; used < best->topk; used++) ids[used] = -1;
}
