/* SPDX-License-Identifier: Apache-2.0
 *
 * What the coverage-guided targets share.  A target is one LLVMFuzzerTestOneInput(), alone in its file; libFuzzer, the
 * AFL++ loop (fuzz_afl.c) or the replay of a folder (fuzz_replay.c) calls it.
 *
 * An input is read from both ends: parameters from the tail, a byte or two each, and the payload (scores, keys, codes)
 * from the head.  So a mutation of the payload leaves the shape as it was, and a longer payload moves no parameter.
 */
#ifndef M3IDX_FUZZ_KIT_H
#define M3IDX_FUZZ_KIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend.h"

/* What is left of an input. */
typedef struct fuzz_bytes {
  const uint8_t *at;
  size_t left;
} fuzz_bytes;

/* The last `width` bytes, the very last one lowest; 0 for bytes that are not there. */
static inline uint64_t fuzz_word(fuzz_bytes *in, int width) {
  uint64_t word = 0;
  for (int i = 0; i < width; i++)
    if (in->left) word |= (uint64_t)in->at[--in->left] << (8 * i);
  return word;
}

/* low..high from as many bytes as the range needs; high - low < 2^32.  Out of bytes it is low. */
static inline int64_t fuzz_between(fuzz_bytes *in, int64_t low, int64_t high) {
  const uint64_t span = (uint64_t)(high - low) + 1;
  const int width = span <= 1 << 8 ? 1 : span <= 1 << 16 ? 2 : 4;
  return low + (int64_t)(fuzz_word(in, width) % (span ? span : 1));
}

/* One of count values. */
#define FUZZ_PICK(in, values) ((values)[fuzz_between(in, 0, (int64_t)(sizeof(values) / sizeof *(values)) - 1)])

/* `bytes` of payload: the head as far as it goes, and from there on the head again, every repeat xored with a word of
 * its own if `vary`, so that a small input is either many equal numbers or many different ones.  Takes nothing: call
 * it after the parameters have been read. */
void fuzz_fill(const fuzz_bytes *in, bool vary, void *to, size_t bytes);

/* A contract, each field from the tail. */
m3idx_contract fuzz_contract(fuzz_bytes *in);

/* Says where and why, and stops the program: the fuzzer keeps the input. */
#define FUZZ_REQUIRE(condition, ...)                                          \
  do {                                                                        \
    if (!(condition)) fuzz_stop(__FILE__, __LINE__, #condition, __VA_ARGS__); \
  } while (0)
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
_Noreturn void
fuzz_stop(const char *file, int line, const char *condition, const char *format, ...);
extern void (*fuzz_at_stop)(void); /* called before the end, if set */

/* Both arrays have the same `count` elements of `width` bytes; the first that differs is shown. */
void fuzz_same(const char *what, const void *want, const void *got, size_t count, size_t width);

/* Contexts, one thread each, opened once: 0 is ref, then cpu under each instruction set of this machine; NULL past
 * them. */
m3idx_context *fuzz_context(int i);

/* cpu under the instruction set that the tail names. */
m3idx_context *fuzz_one_cpu(fuzz_bytes *in);

/* A buffer of its own for each call, so that the address sanitizer sees its ends; filled with a poison byte. */
void *fuzz_buffer(size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
