/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two halves of the SIMT executor share: simt.cpp runs lanes, simt_watch.cpp judges their accesses.
 */
#ifndef M3IDX_SIMT_STATE_H
#define M3IDX_SIMT_STATE_H

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "simt.h"
#include "simt_fiber.h"

namespace simt {

enum lane_state { READY, AT_WAVE_OP, AT_BARRIER, AT_ATOMIC, DONE, LOST };
enum { MAX_RESIDENT = 6, MAX_LANES = 1024 };

struct lane {
  fiber *stack = nullptr; /* from its first step to its last */
  lane_state state = DONE;
  site where{"", 0};
  enum wave_op op = OP_SYNC;
  const void *in = nullptr;
  void *out = nullptr;
  size_t bytes = 0;
  int choice = 0;
  wave_function function = nullptr;
};

/* For each group whose accesses are known to have happened: those of phases below the value. */
using clock = std::unordered_map<uint32_t, uint32_t>;

struct array {
  site where;
  size_t begin, bytes;
};

struct group {
  uint32_t index = 0, phase = 0; /* phase: barriers passed */
  bool ended = false;
  std::unique_ptr<lane[]> lanes{new lane[MAX_LANES]};
  int threads = 0;
  std::vector<uint32_t> wave_phase;
  clock known, pending; /* pending: acquired by one lane, the group's after its next barrier */
  int pending_thread = -1;
  std::vector<array> arrays;
  size_t array_bytes = 0;
  std::vector<unsigned char> memory;
  std::vector<cell> cells;

  int waves() const { return static_cast<int>(wave_phase.size()); }
  lane &at(int thread) { return lanes[static_cast<size_t>(thread)]; }
  int wave_size(int wave) const;
  void advance_phase();
};

struct machine {
  uint64_t rng = 1;
  int wave_lanes = 64;
  size_t group_bytes = 65536;
  bool failed = false;
  char message[512] = "";
  uint64_t groups_run = 0;
  const std::function<void()> *body = nullptr;
  simt::group *here = nullptr;
  simt::lane *lane_here = nullptr; /* NULL on the host's stack */
  std::deque<range> ranges;
  std::unordered_map<const void *, clock> released; /* by counter */
  std::deque<fiber> fibers;
  std::vector<fiber *>
      idle; /* the last one used comes first: most lanes end at once, on a stack that is in the cache */
  simt::group groups[MAX_RESIDENT];
  uint64_t random();
};
extern machine m;

/* Keep the first failure.  On a lane it does not return. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void fail(const char *format, ...);
void say_site(char *text, size_t bytes, site where);
void order_atomic(const void *counter, enum order order);
void clear_cells();

} // namespace simt

#endif
