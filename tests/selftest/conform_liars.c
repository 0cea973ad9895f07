/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance harness with the liars as backends.
 */
#include "liars.h"

int main(int argc, char **argv) {
  conform_backend extra[MOST_LIARS];
  return conform_main(argc, (const char *const *)argv, extra, liars_list(extra));
}
