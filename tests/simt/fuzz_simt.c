/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx fuzz with the HIP kernels on the SIMT executor: --backends ref,simt takes them on every machine, simt:gfx942 on
 * one.
 */
#include "conform.h"
#include "simt_backend.h"
#include "verb_fuzz.h"

int main(int argc, char **argv) {
  const conform_backend machines[] = {
      {"simt:gfx942", simt_backend("gfx942")},
      {"simt:gfx950", simt_backend("gfx950")},
      {"simt:wave32", simt_backend("wave32")},
  };
  return verb_fuzz_with(argc, (const char **)argv, machines, sizeof machines / sizeof *machines, true);
}
