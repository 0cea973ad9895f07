/* SPDX-License-Identifier: Apache-2.0
 *
 * The best sixteen of one tile of keys, sorted, by all threads of a workgroup together.
 *
 * The threads form 32 classes of neighbours.  Each class has a peak, its largest key, and the sixteenth largest peak
 * is a bound: sixteen keys reach it, so none below it is wanted.  About two dozen of 512 random keys do, and never
 * more than half of a tile, because they lie in sixteen classes.  Those find their places by counting: a step of a
 * sort waits for the last, counts do not.  All of it compares whole keys, which differ from one another, so ties,
 * NaN and infinities are nothing special here; 0 is an empty slot and reaches no bound.
 */
#ifndef M3IDX_HIP_TILE_H
#define M3IDX_HIP_TILE_H

#include "hip_best.h"

namespace hipk {

template <int Lanes> HIPK_DEVICE uint64_t class_peak(uint64_t x) {
  if constexpr (Lanes > 1) {
    const uint64_t other = shuffle_xor<Lanes / 2>(x);
    return class_peak<Lanes / 2>(other > x ? other : x);
  }
  return x;
}
template <int Lanes> HIPK_DEVICE int class_sum(int x) {
  if constexpr (Lanes > 1) return class_sum<Lanes / 2>(x + shuffle_xor<Lanes / 2>(x));
  return x;
}

template <int Waves, int Tile> struct tile_best {
  static constexpr int WIDTH = 16, CLASSES = 32, THREADS = Waves * WAVE, SPREAD = THREADS / CLASSES;
  static_assert(SPREAD * CLASSES == THREADS && WAVE % SPREAD == 0, "a class lies within a wave");
  /* The group memory: peaks, the bound, each wave's count, the keys that reach the bound. */
  static constexpr int BOUND = CLASSES, COUNTS = BOUND + 1, KEYS = COUNTS + Waves, ROOM = KEYS + Tile / 2;

  /* The best of keys 0 .. count - 1 of the source (hip_best.h), up to Each a thread, into out[0..WIDTH), empty slots
   * last.  All threads take part; the room is theirs, and out can be read by all afterwards. */
  template <int Each, class Source>
  static HIPK_DEVICE void find(lds<uint64_t> room, lds<uint64_t> out, int count, const Source &source) {
    static_assert(Each * THREADS <= Tile, "the room holds half of a tile");
    const int self = thread_index(), wave = wave_index();
    uint64_t own[Each], peak = 0;
    load_keys<Each, THREADS>(own, self, count, source);
    HIPK_UNROLL
    for (int e = 0; e < Each; e++) peak = own[e] > peak ? own[e] : peak;
    peak = class_peak<SPREAD>(peak);
    const int part = self % SPREAD;
    if (part == 0) room[self / SPREAD] = peak;
    if (self == 0) room[BOUND] = uint64_t{0}; /* all keys are wanted where fewer than 16 classes have any */
    barrier();

    int before = 0; /* peaks; each lane of the class counts its share */
    HIPK_UNROLL
    for (int i = 0; i < CLASSES / SPREAD; i++) before += room[part * (CLASSES / SPREAD) + i] > peak;
    before = class_sum<SPREAD>(before);
    if (part == 0 && before == WIDTH - 1 && peak != 0) room[BOUND] = peak;
    barrier();

    const uint64_t bound = room[BOUND];
    int mine = 0;
    HIPK_UNROLL
    for (int e = 0; e < Each; e++) mine += count_bits(ballot(own[e] >= bound && own[e] != 0));
    if (lane_index() == 0) room[COUNTS + wave] = static_cast<uint64_t>(mine);
    barrier();

    int at = KEYS, all = 0;
    HIPK_UNROLL
    for (int w = 0; w < Waves; w++) {
      const int n = static_cast<int>(static_cast<uint64_t>(room[COUNTS + w]));
      at += w < wave ? n : 0;
      all += n;
    }
    HIPK_UNROLL
    for (int e = 0; e < Each; e++) {
      const bool kept = own[e] >= bound && own[e] != 0;
      const uint64_t mask = ballot(kept);
      if (kept) room[at + count_bits(mask & ((uint64_t{1} << lane_index()) - 1))] = own[e];
      at += count_bits(mask);
    }
    barrier();

    HIPK_ROLLED
    for (int i = self; i < all; i += THREADS) {
      const uint64_t wanted = room[KEYS + i];
      int place = 0;
      HIPK_UNROLL_4
      for (int j = 0; j < all; j++) place += room[KEYS + j] > wanted;
      if (place < WIDTH) out[place] = wanted;
    }
    if (self >= all && self < WIDTH) out[self] = uint64_t{0};
    barrier();
  }
};

} // namespace hipk

#endif
