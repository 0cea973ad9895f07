/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of the best keys in group memory, kept by one wave.
 *
 * A run is `width` keys, a power of two.  Sorted means descending.  The best of two sorted runs a, b: position
 * by position the larger of a[j] and b[width-1-j] is a bitonic run of the `width` largest of both, and the last
 * phase of a bitonic sort puts it in order.  All of it compares whole keys, so ties, NaN and infinities are
 * nothing special here, and 0 (empty) sinks to the end.
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

/* A wave's running list: `width` keys, then room for Fresh new ones (at least a run). */
template <int Fresh, int MaxWidth> struct best_list {
  static constexpr int ROOM = MaxWidth + (Fresh > MaxWidth ? Fresh : MaxWidth);
  lds<uint64_t> keys;
  int width;
  bool filled;

  HIPK_DEVICE void begin(lds<uint64_t> room, int list_width) {
    keys = room;
    width = list_width;
    filled = false;
  }

  /* Offer up to Fresh keys: key(i) for i < count, i < Fresh. */
  template <class Key> HIPK_DEVICE void offer(int count, Key key) {
    const int first = filled ? width : 0, fresh = Fresh > width ? Fresh : width;
    const uint64_t least = filled ? static_cast<uint64_t>(keys[width - 1]) : 0;
    bool better = false;
    for (int i = lane_index(); i < fresh; i += WAVE) {
      const uint64_t offered = i < count && i < Fresh ? key(i) : 0;
      better = better || offered > least;
      keys[first + i] = offered;
    }
    if (filled && !ballot(better)) return;
    wave_sync();
    sort_runs(keys + first, fresh, width);
    fold_runs(keys, (first + fresh) / width, width, width);
    filled = true;
  }

  /* An untouched list is all empty slots.  In any case all lanes have read what they wanted of it. */
  HIPK_DEVICE void end() {
    for (int i = lane_index(); i < width && !filled; i += WAVE) keys[i] = uint64_t{0};
    wave_sync();
  }
};

} // namespace hipk

#endif
