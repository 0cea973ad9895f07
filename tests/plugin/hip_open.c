/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens backend "hip" and prints the status and, on one line, the details or the reason.  For plugin.sh.
 */
#include <stdio.h>

#include "m3idx.h"

int main(void) {
  m3idx_context *ctx = NULL;
  char why[512] = "";
  const m3idx_options options = {.backend = "hip"};
  const m3idx_status status = m3idx_open(&ctx, &options, why, sizeof why);
  printf("%d %s\n", (int)status, status ? why : m3idx_backend_details(ctx));
  m3idx_close(ctx);
  return 0;
}
