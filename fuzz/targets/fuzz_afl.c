/* SPDX-License-Identifier: Apache-2.0
 *
 * The same targets under AFL++: a persistent loop over inputs in shared memory (afl-clang-fast defines the macros).
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz_kit.h"

/* What the macros expand to is not ours to mend. */
#pragma clang diagnostic ignored "-Wgnu-statement-expression"
#pragma clang diagnostic ignored "-Wshorten-64-to-32"

__AFL_FUZZ_INIT()

int main(void) {
  __AFL_INIT();
  const unsigned char *shared = __AFL_FUZZ_TESTCASE_BUF;
  while (__AFL_LOOP(10000)) {
    const size_t size = (size_t)__AFL_FUZZ_TESTCASE_LEN;
    unsigned char *exact = malloc(size ? size : 1);
    if (!exact) return 1;
    memcpy(exact, shared, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
  }
  return 0;
}
