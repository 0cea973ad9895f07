/* SPDX-License-Identifier: Apache-2.0
 *
 * conform: the harness on the library's own backends.
 */
#include "conform.h"

int main(int argc, char **argv) { return conform_main(argc, (const char *const *)argv, NULL, 0); }
