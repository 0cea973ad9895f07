/* SPDX-License-Identifier: Apache-2.0
 *
 * CPUID and XCR0, and the permission that Linux wants before a process may touch AMX tiles.
 */
#define _GNU_SOURCE /* syscall() */
#include "simd_x86.h"

#include <cpuid.h>
#include <stdint.h>
#include <string.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* XCR0 components that the operating system saves. */
enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xe6, XCR0_TILES = 0x60000 };

static uint64_t saved_state(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static int all(uint64_t value, uint64_t bits) { return (value & bits) == bits; }

static int tiles_permitted(void) {
#ifdef __linux__
  enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 }; /* asm/prctl.h, Documentation/x86/xstate */
  return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA) == 0;
#else
  return 0;
#endif
}

int simd_x86_has(simd_x86_set set) {
  uint32_t a, b, c, d, b7, d7, a71 = 0, unused;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
  if (!__get_cpuid_count(7, 0, &a, &b7, &unused, &d7)) return 0;
  if (a >= 1) __get_cpuid_count(7, 1, &a71, &b, &unused, &d);
  const uint64_t saved = saved_state();
  const int avx2 =
      all(c, bit_FMA | bit_AVX | bit_F16C) && all(b7, bit_AVX2 | bit_BMI | bit_BMI2) && all(saved, XCR0_AVX);
  const int avx512 =
      avx2 && all(b7, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL) && all(saved, XCR0_AVX512);
  const int bf16 = avx512 && (a71 & 1u << 5);
  switch (set) {
  case SIMD_X86_AVX2: return avx2;
  case SIMD_X86_AVX512: return avx512;
  case SIMD_X86_AVX512BF16: return bf16;
  case SIMD_X86_AMX: return avx512 && all(d7, 1u << 22 | 1u << 24) && all(saved, XCR0_TILES) && tiles_permitted();
  }
  return 0;
}

int simd_x86_is_intel(void) {
  uint32_t most, name[3];
  return __get_cpuid(0, &most, &name[0], &name[2], &name[1]) && !memcmp(name, "GenuineIntel", sizeof name);
}
