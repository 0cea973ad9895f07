/* SPDX-License-Identifier: Apache-2.0
 *
 * conform on the SIMT executor: the harness with the HIP kernels as backends, once for each machine.
 */
#include "conform.h"
#include "simt_backend.h"

int main(int argc, char **argv) {
  const conform_backend machines[] = {
      {"simt-gfx942", simt_backend("gfx942")},
      {"simt-gfx950", simt_backend("gfx950")},
      {"simt-wave32", simt_backend("wave32")},
  };
  return conform_main(argc, (const char *const *)argv, machines, sizeof machines / sizeof *machines);
}
