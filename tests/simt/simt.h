/* SPDX-License-Identifier: Apache-2.0
 *
 * A host executor for the kernels of hip/: every lane is a fiber, every access is watched.
 *
 * What stops a launch with a sentence (simt::failure()):
 *   - lanes of a wave at different cross-lane operations, or lanes of a group at different barriers, or a lane
 *     that returned while others wait at one: both lines are named;
 *   - an access outside the launch's buffers or a group array, a write to an input, a group array read before
 *     anything was written there;
 *   - a data race, in group memory or in global memory: two accesses, one of them a write, that neither
 *     wave_sync(), barrier() nor arrive() puts in an order.  Both lines are named.  Whether the values happened
 *     to be right does not matter, nor which came first in this run.
 * Groups start in a seeded random order, several are resident, and every atomic may hand over to another group.
 * Group memory starts as random bytes.
 *
 * Not modelled: instruction timing, caches, forward progress of waiting groups (no kernel here waits for
 * another group), and reorderings of one lane's own accesses.
 */
#ifndef M3IDX_SIMT_H
#define M3IDX_SIMT_H

#include <cstddef>
#include <cstdint>
#include <functional>

namespace simt {

/* Where in a kernel something happens; made by default arguments at the place of use. */
struct site {
  const char *file;
  int line;
};

/* The shadow of one granule of memory: its last write and last read. */
struct mark {
  uint32_t group, phase, wave_phase;
  uint16_t thread; /* or several of one wave, or several of one group */
  bool used;
  site where;
};
struct cell {
  mark write, read;
};

/* A buffer that a launch may touch. */
struct range {
  uintptr_t begin, end;
  bool writable;
  unsigned granule; /* bytes one cell stands for */
  cell *cells;      /* writable buffers only; zeroed lazily */
};

/* ---- the host's side ---- */

struct options {
  uint64_t seed;
  int wave;           /* lanes */
  size_t group_bytes; /* group memory a workgroup may have */
};
void configure(const options &);
void allow(const void *buffer, size_t bytes, bool writable, unsigned granule = 4);
void forbid_all(); /* forget the buffers and the failure */
/* The first failure since forbid_all(), or NULL. */
const char *failure();
/* Groups run since the program began, so that a test can tell that something ran. */
uint64_t groups_run();
void run(int64_t groups, int threads, const std::function<void()> &lane);

/* ---- the kernel's side: called on a lane ---- */

extern int current_thread, current_group, current_group_count, current_wave_lanes;

range *find_range(const void *pointer);
void misaligned(site where);
void watch(const range *range, const void *at, size_t bytes, bool write, site where);
void *group_array(size_t bytes, site where, uint32_t *bound);
void watch_group(const void *base, uint32_t bound, int64_t byte, size_t bytes, bool write, site where);

enum wave_op { OP_SYNC, OP_BALLOT, OP_SHUFFLE, OP_CALL };
/* All lanes of the wave bring `in` (bytes) and `choice`; returns when all are there.  Ballot: *out = mask of
 * lanes with choice != 0.  Shuffle: out = the `in` of lane `choice`. */
void wave_op(wave_op op, const void *in, void *out, size_t bytes, int choice, site where);
/* All lanes of a whole wave bring `data`; `function` sees them all, by lane, and then all go on. */
typedef void (*wave_function)(void *const *data);
void wave_call(wave_function function, void *data, site where);
void barrier(site where);
enum order { RELAXED = 0, ACQUIRE = 1, RELEASE = 2, ACQUIRE_RELEASE = 3 };
uint32_t fetch_add(uint32_t *counter, uint32_t value, order order, site where);
void store(uint32_t *counter, uint32_t value, site where);

} // namespace simt

#endif
