/* SPDX-License-Identifier: Apache-2.0
 *
 * Bounds, first writes and races.
 *
 * An access is marked with its thread, its group's count of barriers (phase) and its wave's count of wave_sync
 * and barriers (wave phase).  An earlier access is ordered before a later one if
 *   same thread                 always
 *   same wave                   if either count has moved on
 *   same group                  if the phase has moved on
 *   another group A             if A's phase of that access was released to this one: arrive() publishes all
 *                               phases that the arriving group had finished (accesses before its last barrier)
 *                               and what it had itself acquired; the arriving lane acquires at once, its group
 *                               with the next barrier.
 * A granule keeps its last write and its last read (several readers of one phase count as several), so of many
 * races on one granule the nearest are seen.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "simt_state.h"

namespace simt {

enum : uint16_t { SEVERAL_OF_WAVE = 0x8000, SEVERAL_OF_GROUP = 0xffff };

int group::wave_size(int wave) const {
  const int rest = threads - wave * m.wave_lanes;
  return rest < m.wave_lanes ? rest : m.wave_lanes;
}

static void join(clock &into, const clock &from) {
  for (const auto &entry : from) {
    uint32_t &known = into[entry.first];
    if (known < entry.second) known = entry.second;
  }
}

void group::advance_phase() {
  phase++;
  join(known, pending);
  pending.clear();
  pending_thread = -1;
}

void order_atomic(const void *counter, enum order order) {
  group &g = *m.here;
  clock &released = m.released[counter];
  clock before = released;
  if (order & RELEASE) {
    clock mine = g.known;
    mine[g.index] = g.phase;
    join(released, mine);
  }
  if (order & ACQUIRE) {
    join(g.pending, before);
    g.pending_thread = current_thread;
  }
}

/* ---- buffers ---- */

void allow(const void *buffer, size_t bytes, bool writable, unsigned granule) {
  if (!buffer || !bytes) return;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(buffer);
  range r = {begin, begin + bytes, writable, granule, nullptr};
  if (writable) {
    r.cells = static_cast<cell *>(std::calloc(bytes / granule + 2, sizeof(cell)));
    if (!r.cells) fail("no memory to watch %zu bytes", bytes);
  }
  m.ranges.push_back(r);
}

void forbid_all() {
  for (range &r : m.ranges) std::free(r.cells);
  m.ranges.clear();
  m.failed = false;
}

/* A launch happens after all of the launches before it. */
void clear_cells() {
  for (range &r : m.ranges)
    if (r.cells) {
      const size_t count = (r.end - r.begin) / r.granule + 2;
      std::free(r.cells);
      r.cells = static_cast<cell *>(std::calloc(count, sizeof(cell)));
      if (!r.cells) fail("no memory to watch %zu granules", count);
    }
}

/* NULL for a pointer into none of them, which only an access turns into a failure: an empty array may be anywhere. */
range *find_range(const void *pointer) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(pointer);
  for (range &r : m.ranges)
    if (at >= r.begin && at < r.end) return &r;
  return nullptr;
}

/* ---- races ---- */

static bool ordered(const mark &earlier) {
  const group &g = *m.here;
  if (!earlier.used) return true;
  if (earlier.group != g.index) {
    auto known = g.known.find(earlier.group);
    if (known != g.known.end() && earlier.phase < known->second) return true;
    if (g.pending_thread != current_thread) return false;
    known = g.pending.find(earlier.group);
    return known != g.pending.end() && earlier.phase < known->second;
  }
  if (earlier.thread == current_thread || earlier.phase != g.phase) return true;
  const int wave = current_thread / m.wave_lanes;
  const bool same_wave = earlier.thread == (SEVERAL_OF_WAVE | wave) ||
                         (earlier.thread < SEVERAL_OF_WAVE && earlier.thread / m.wave_lanes == wave);
  return same_wave && earlier.wave_phase != g.wave_phase[static_cast<size_t>(wave)];
}

static void stamp(mark &mark, bool write, site where) {
  const group &g = *m.here;
  const int wave = current_thread / m.wave_lanes;
  uint16_t thread = static_cast<uint16_t>(current_thread);
  if (!write && mark.group == g.index && !ordered(mark)) { /* readers side by side: remember that they are several */
    const bool same_wave = mark.thread == (SEVERAL_OF_WAVE | wave) ||
                           (mark.thread < SEVERAL_OF_WAVE && mark.thread / m.wave_lanes == wave);
    thread = static_cast<uint16_t>(same_wave ? SEVERAL_OF_WAVE | wave : SEVERAL_OF_GROUP);
  }
  mark.group = g.index;
  mark.phase = g.phase;
  mark.wave_phase = g.wave_phase[static_cast<size_t>(wave)];
  mark.thread = thread;
  mark.used = true;
  mark.where = where;
}

static void race(const char *memory, const char *earlier, const mark &mark, const char *later, site where) {
  char first[128], second[128], who[32];
  say_site(first, sizeof first, mark.where);
  say_site(second, sizeof second, where);
  if (mark.thread == SEVERAL_OF_GROUP)
    std::snprintf(who, sizeof who, "several threads");
  else if (mark.thread & SEVERAL_OF_WAVE)
    std::snprintf(who, sizeof who, "several lanes of wave %d", mark.thread & ~SEVERAL_OF_WAVE);
  else
    std::snprintf(who, sizeof who, "thread %d", mark.thread);
  fail("race in %s memory: %s at %s (group %u, %s) and %s at %s (group %u, thread %d) are not ordered", memory, earlier,
       first, mark.group, who, later, second, m.here->index, current_thread);
}

static void judge(cell &c, const char *memory, bool write, site where) {
  if (!ordered(c.write)) race(memory, "the write", c.write, write ? "the write" : "the read", where);
  if (write && !ordered(c.read)) race(memory, "the read", c.read, "the write", where);
  stamp(write ? c.write : c.read, write, where);
}

void watch(const range *r, const void *at, size_t bytes, bool write, site where) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(at);
  if (!r) {
    char text[128];
    say_site(text, sizeof text, where);
    fail("%s: %s through a pointer into no buffer of the launch (group %u, thread %d)", text, write ? "write" : "read",
         m.here->index, current_thread);
  }
  if (begin < r->begin || begin + bytes > r->end || (write && !r->writable)) {
    char text[128];
    say_site(text, sizeof text, where);
    fail("%s: %s of %zu bytes at byte %lld of %s of %zu bytes (group %u, thread %d)", text, write ? "write" : "read",
         bytes, static_cast<long long>(begin - r->begin), r->writable ? "a buffer" : "an input", r->end - r->begin,
         m.here->index, current_thread);
  }
  if (!r->cells) return;
  const size_t first = (begin - r->begin) / r->granule, last = (begin + bytes - 1 - r->begin) / r->granule;
  for (size_t i = first; i <= last; i++) judge(r->cells[i], "global", write, where);
}

void misaligned(site where) {
  char text[128];
  say_site(text, sizeof text, where);
  fail("%s: a load from an address that is not a multiple of its size", text);
}

/* ---- group memory ---- */

void *group_array(size_t bytes, site where, uint32_t *bound) {
  group &g = *m.here;
  *bound = static_cast<uint32_t>(bytes);
  for (const array &a : g.arrays)
    if (a.where.line == where.line && a.bytes == bytes && !std::strcmp(a.where.file, where.file))
      return &g.memory[a.begin];
  const size_t begin = (g.array_bytes + 15) / 16 * 16;
  if (begin + bytes > m.group_bytes) {
    char text[128];
    say_site(text, sizeof text, where);
    fail("%s: group memory of %zu bytes, the architecture has %zu", text, begin + bytes, m.group_bytes);
  }
  for (size_t i = begin / 4; i < (begin + bytes + 3) / 4; i += 2) {
    const uint64_t poison = m.random();
    std::memcpy(&g.memory[4 * i], &poison, i + 1 < g.cells.size() ? 8 : 4);
  }
  std::memset(&g.cells[begin / 4], 0, ((begin + bytes + 3) / 4 - begin / 4) * sizeof(cell));
  g.arrays.push_back(array{where, begin, bytes});
  g.array_bytes = begin + bytes;
  return &g.memory[begin];
}

void watch_group(const void *base, uint32_t bound, int64_t byte, size_t bytes, bool write, site where) {
  group &g = *m.here;
  char text[128];
  if (byte < 0 || byte + static_cast<int64_t>(bytes) > static_cast<int64_t>(bound)) {
    say_site(text, sizeof text, where);
    fail("%s: %s of %zu bytes at byte %lld of a group array of %u (group %u, thread %d)", text,
         write ? "write" : "read", bytes, static_cast<long long>(byte), bound, g.index, current_thread);
  }
  const size_t begin =
      static_cast<size_t>(static_cast<const unsigned char *>(base) - g.memory.data()) + static_cast<size_t>(byte);
  for (size_t i = begin / 4; i <= (begin + bytes - 1) / 4; i++) {
    if (!write && !g.cells[i].write.used) {
      say_site(text, sizeof text, where);
      fail("%s: group memory read before anything was written there (group %u, thread %d)", text, g.index,
           current_thread);
    }
    judge(g.cells[i], "group", write, where);
  }
}

} // namespace simt
