/* SPDX-License-Identifier: Apache-2.0
 *
 * Fibers: a stack and a place to go on.  x86-64 saves seven registers; elsewhere ucontext does the work.
 * AddressSanitizer is told of every switch.  A fiber that is dropped half-way runs no destructors, which device
 * code has none of.
 */
#ifndef M3IDX_SIMT_FIBER_H
#define M3IDX_SIMT_FIBER_H

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt {

class fiber {
public:
  fiber() = default;
  fiber(const fiber &) = delete;
  fiber &operator=(const fiber &) = delete;
  ~fiber();
  void start(void (*entry)(void *), void *argument); /* takes effect at the first enter() */
  void enter();                                      /* from the host stack: run until leave() */
  void leave();                                      /* from the fiber: back to enter() */

private:
  static void trampoline();
  void *stack_ = nullptr;
  void (*entry_)(void *) = nullptr;
  void *argument_ = nullptr;
#if defined(__x86_64__)
  void *self_ = nullptr, *host_ = nullptr;
#else
  ucontext_t self_, host_;
#endif
  /* AddressSanitizer's frames, where it checks for use after return.  A fiber keeps them from start to start: making
   * and unmapping them for each lane of each group took longer than the tests. */
  [[maybe_unused]] void *self_fake_ = nullptr, *host_fake_ = nullptr;
  [[maybe_unused]] const void *host_bottom_ = nullptr;
  [[maybe_unused]] std::size_t host_size_ = 0;
};

} // namespace simt

#endif
