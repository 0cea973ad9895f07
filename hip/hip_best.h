/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of the best keys in group memory, kept by one wave.
 *
 * A run is `width` keys, a power of two.  Sorted means descending.  The best of two sorted runs a, b: position
 * by position the larger of a[j] and b[width-1-j] is a bitonic run of the `width` largest of both, and the last
 * phase of a bitonic sort puts it in order.  All of it compares whole keys, so ties, NaN and infinities are
 * nothing special here, and 0 (empty) sinks to the end.
 *
 * Short lists take another way: a step of a sort waits for the last, but a key's place among few is a count, and
 * counts do not wait for one another.
 */
#ifndef M3IDX_HIP_BEST_H
#define M3IDX_HIP_BEST_H

#include "hip_arch.h"

namespace hipk {

HIPK_DEVICE void order_pair(lds<uint64_t> keys, int low, int high, bool descending) {
  const uint64_t a = keys[low], b = keys[high];
  if (descending ? a < b : b < a) {
    keys[low] = b;
    keys[high] = a;
  }
}

/* Sort every run of keys[0..count), count a multiple of width. */
HIPK_DEVICE void sort_runs(lds<uint64_t> keys, int count, int width) {
  for (int size = 2; size <= width; size *= 2)
    for (int stride = size / 2; stride > 0; stride /= 2) {
      for (int pair = lane_index(); pair < count / 2; pair += WAVE) {
        const int low = 2 * pair - (pair & (stride - 1));
        order_pair(keys, low, low + stride, (low & (width - 1) & size) == 0);
      }
      wave_sync();
    }
}

/* Sorted runs begin `pitch` keys apart; the best of all of them end up, sorted, in the first. */
HIPK_DEVICE void fold_runs(lds<uint64_t> keys, int runs, int pitch, int width) {
  while (runs > 1) {
    const int half = (runs + 1) / 2, pairs = (runs - half) * width;
    for (int i = lane_index(); i < pairs; i += WAVE) {
      const int at = i & (width - 1), run = i / width;
      const uint64_t a = keys[run * pitch + at], b = keys[(run + half) * pitch + width - 1 - at];
      if (a < b) keys[run * pitch + at] = b;
    }
    wave_sync();
    for (int stride = width / 2; stride > 0; stride /= 2) {
      for (int i = lane_index(); i < pairs / 2; i += WAVE) {
        const int low = 2 * i - (i & (stride - 1)), run = low / width;
        const int from = run * pitch + (low & (width - 1));
        order_pair(keys, from, from + stride, true);
      }
      wave_sync();
    }
    runs = half;
  }
}

/* The best of `lists` sorted lists, which begin `pitch` keys apart, into out, sorted; shared by `threads` threads of
 * which this is `self`.  A key's place is the number of keys before it, found in each list by bisection; of equal
 * keys those of earlier lists and places come first. */
HIPK_DEVICE void merge_lists(lds<uint64_t> out, lds<uint64_t> keys, int lists, int pitch, int width, int self,
                             int threads) {
  constexpr int TOGETHER = 4; /* bisections under way at once */
  HIPK_ROLLED
  for (int i = self; i < lists * width; i += threads) {
    const int own = i / width, at = i & (width - 1);
    const uint64_t key = keys[own * pitch + at];
    int place = 0;
    HIPK_ROLLED
    for (int first = 0; first < lists; first += TOGETHER) {
      int before[TOGETHER] = {};
      HIPK_ROLLED
      for (int step = width; step > 0; step /= 2) {
        HIPK_UNROLL
        for (int l = 0; l < TOGETHER; l++) {
          const int list = first + l, last = before[l] + step - 1;
          const uint64_t other = keys[(list < lists ? list : own) * pitch + (last & (width - 1))];
          const bool first_of_equals = list < own || (list == own && last < at);
          const bool comes = other > key || (first_of_equals && other == key);
          before[l] += comes && last < width && list < lists ? step : 0;
        }
      }
      HIPK_UNROLL
      for (int l = 0; l < TOGETHER; l++) place += before[l];
    }
    if (place < width) out[place] = key;
  }
}

/* Keys self, self + Step, ... below count, the rest 0.  A source gives its key i in two halves, key(load(i), i), so
 * that all loads are under way before the first key is made. */
template <int Each, int Step, class Source>
HIPK_DEVICE void load_keys(uint64_t (&own)[Each], int self, int count, const Source &source) {
  decltype(source.load(0)) raw[Each];
  HIPK_UNROLL
  for (int e = 0; e < Each; e++) {
    raw[e] = 0;
    if (e * Step + self < count) raw[e] = source.load(e * Step + self);
  }
  HIPK_UNROLL
  for (int e = 0; e < Each; e++) own[e] = e * Step + self < count ? source.key(raw[e], e * Step + self) : uint64_t{0};
}

/* Of keys[0..count), how many come before keys[at] = key, not 0; of equal ones the earlier. */
HIPK_DEVICE int place_of(lds<uint64_t> keys, int count, uint64_t key, int at) {
  int before = 0;
  HIPK_UNROLL_4
  for (int i = 0; i < count; i++) before += keys[i] > key - (i < at ? 1 : 0);
  return before;
}

/* A wave's running list: the best `held` keys so far, sorted, then room for Fresh new ones (at least a run). */
template <int Fresh, int MaxWidth> struct best_list {
  static constexpr int ROOM = MaxWidth + (Fresh > MaxWidth ? Fresh : MaxWidth);
  static constexpr int FEW = 16; /* up to this width keys find their places by counting, past it by sorting */
  static constexpr int EACH = Fresh / WAVE;
  static_assert(Fresh % WAVE == 0 && FEW <= WAVE, "a lane holds as many keys as the next");
  lds<uint64_t> keys;
  int width, held;

  HIPK_DEVICE void begin(lds<uint64_t> room, int list_width) {
    keys = room;
    width = list_width;
    held = 0;
  }

  /* Offer up to Fresh keys: key(i) for i < count, i < Fresh. */
  template <class Key> HIPK_DEVICE void offer(int count, Key key) {
    uint64_t own[EACH];
    HIPK_UNROLL
    for (int e = 0; e < EACH; e++) {
      const int i = e * WAVE + lane_index();
      own[e] = i < count ? key(i) : 0;
    }
    offer_own(own);
  }
  /* Offer keys 0 .. count - 1 of a source that loads, up to Fresh. */
  template <class Source> HIPK_DEVICE void offer_loaded(int count, const Source &source) {
    uint64_t own[EACH];
    load_keys<EACH, WAVE>(own, lane_index(), count, source);
    offer_own(own);
  }

  /* An untouched list is all empty slots.  In any case all lanes have read what they wanted of it. */
  HIPK_DEVICE void end() {
    for (int i = held + lane_index(); i < width; i += WAVE) keys[i] = uint64_t{0};
    wave_sync();
  }

private:
  HIPK_DEVICE void offer_own(const uint64_t (&own)[EACH]) {
    if (MaxWidth <= FEW || width <= FEW)
      offer_few(own);
    else
      offer_many(own);
  }

  /* A key below which none of own[] is among the `width` best: that of the lane whose best key comes last of the
   * `width` best lanes' ones, or 0. */
  HIPK_DEVICE uint64_t lower_bound(const uint64_t (&own)[EACH]) {
    uint64_t best = own[0];
    HIPK_UNROLL
    for (int e = 1; e < EACH; e++) best = own[e] > best ? own[e] : best;
    keys[held + lane_index()] = best;
    wave_sync();
    const int place = place_of(keys + held, WAVE, best, lane_index());
    const uint64_t last = ballot(best != 0 && place == width - 1);
    wave_sync();
    return last ? shuffle(best, lowest_bit(last)) : 0;
  }

  /* Put what can be among the best behind the list, then each key into its place. */
  HIPK_DEVICE void offer_few(const uint64_t (&own)[EACH]) {
    uint64_t least = 0;
    if (held == width) least = keys[width - 1];
    int better = 0;
    HIPK_UNROLL
    for (int e = 0; e < EACH; e++) better += count_bits(ballot(own[e] > least));
    if (better == 0) return;
    if (better > 2 * FEW) {
      const uint64_t bound = lower_bound(own);
      least = bound > least ? bound - 1 : least;
    }
    int all = held;
    HIPK_UNROLL
    for (int e = 0; e < EACH; e++) {
      const uint64_t mask = ballot(own[e] > least);
      if (own[e] > least) keys[all + count_bits(mask & ((uint64_t{1} << lane_index()) - 1))] = own[e];
      all += count_bits(mask);
    }
    wave_sync();
    uint64_t mine[EACH + 1];
    int place[EACH + 1];
    HIPK_UNROLL
    for (int e = 0; e <= EACH; e++) {
      const int at = e * WAVE + lane_index();
      mine[e] = 0;
      place[e] = width;
      if (at < all) {
        mine[e] = keys[at];
        place[e] = place_of(keys, all, mine[e], at);
      }
    }
    wave_sync();
    HIPK_UNROLL
    for (int e = 0; e <= EACH; e++)
      if (place[e] < width) keys[place[e]] = mine[e];
    held = all < width ? all : width;
    wave_sync();
  }

  HIPK_DEVICE void offer_many(const uint64_t (&own)[EACH]) {
    const int first = held, fresh = Fresh > width ? Fresh : width;
    const uint64_t least = held ? static_cast<uint64_t>(keys[width - 1]) : 0;
    bool better = false;
    HIPK_UNROLL
    for (int e = 0; e < EACH; e++) {
      better = better || own[e] > least;
      keys[first + e * WAVE + lane_index()] = own[e];
    }
    for (int i = Fresh + lane_index(); i < fresh; i += WAVE) keys[first + i] = uint64_t{0};
    if (held && !ballot(better)) return;
    wave_sync();
    sort_runs(keys + first, fresh, width);
    fold_runs(keys, (first + fresh) / width, width, width);
    held = width;
  }
};

} // namespace hipk

#endif
