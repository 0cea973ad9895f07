/* SPDX-License-Identifier: Apache-2.0
 *
 * Fibers for the SIMT executor.
 */
#include "simt_fiber.h"

#include <cstdint>
#include <cstdlib>
#include <new>
#include <sys/mman.h>

#if defined(__has_feature) /* clang; gcc defines a macro */
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define FIBER_ASAN 1
#else
#define FIBER_ASAN 0
#endif

namespace simt {

static constexpr std::size_t STACK_BYTES = FIBER_ASAN ? 256 * 1024 : 64 * 1024;
static fiber *starting;

#if defined(__x86_64__)
extern "C" void simt_fiber_switch(void **save, void *load);
/* System V: rbx, rbp and r12 to r15 belong to the caller.  The floating-point environment never changes here. */
asm(R"(
.text
.p2align 4
.type simt_fiber_switch, @function
simt_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_fiber_switch, .-simt_fiber_switch
)");
#endif

fiber::~fiber() {
  if (stack_) munmap(stack_, STACK_BYTES);
}

void fiber::trampoline() {
  fiber *self = starting;
#if FIBER_ASAN
  __sanitizer_finish_switch_fiber(self->self_fake_, &self->host_bottom_, &self->host_size_);
#endif
  self->entry_(self->argument_);
  self->leave();
  std::abort(); /* entered again after it ended: a fault of the executor itself */
}

void fiber::start(void (*entry)(void *), void *argument) {
  if (!stack_) {
    stack_ = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack_ == MAP_FAILED) {
      stack_ = nullptr;
      throw std::bad_alloc();
    }
  }
  entry_ = entry;
  argument_ = argument;
#if FIBER_ASAN
  __asan_unpoison_memory_region(stack_, STACK_BYTES); /* a dropped fiber left its frames' red zones */
#endif
#if defined(__x86_64__)
  /* As simt_fiber_switch leaves a stack: six registers and where to return to, 8 short of a multiple of 16. */
  uintptr_t *top = reinterpret_cast<uintptr_t *>(static_cast<char *>(stack_) + STACK_BYTES) - 8;
  for (int i = 0; i < 6; i++) top[i] = 0;
  top[6] = reinterpret_cast<uintptr_t>(&fiber::trampoline);
  top[7] = 0;
  self_ = top;
#else
  getcontext(&self_);
  self_.uc_stack.ss_sp = stack_;
  self_.uc_stack.ss_size = STACK_BYTES;
  self_.uc_link = nullptr;
  makecontext(&self_, reinterpret_cast<void (*)()>(&fiber::trampoline), 0);
#endif
}

void fiber::enter() {
  starting = this;
#if FIBER_ASAN
  __sanitizer_start_switch_fiber(&host_fake_, stack_, STACK_BYTES);
#endif
#if defined(__x86_64__)
  simt_fiber_switch(&host_, self_);
#else
  swapcontext(&host_, &self_);
#endif
#if FIBER_ASAN
  __sanitizer_finish_switch_fiber(host_fake_, nullptr, nullptr);
#endif
}

void fiber::leave() {
#if FIBER_ASAN
  __sanitizer_start_switch_fiber(&self_fake_, host_bottom_, host_size_);
#endif
#if defined(__x86_64__)
  simt_fiber_switch(&self_, host_);
#else
  swapcontext(&self_, &host_);
#endif
#if FIBER_ASAN
  __sanitizer_finish_switch_fiber(self_fake_, &host_bottom_, &host_size_);
#endif
}

} // namespace simt
