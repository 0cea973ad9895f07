/* SPDX-License-Identifier: Apache-2.0
 *
 * One fault of each kind that `./dev sanitize` looks for, and one sound loop.  `planted_faults KIND` commits it;
 * the run is worth something only where the tool reports it and stays silent on "none".
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1000 };

/* What the library does: threads write disjoint outputs. */
static int none(void) {
  static int out[COUNT];
#pragma omp parallel for num_threads(4) schedule(static)
  for (int i = 0; i < COUNT; i++) out[i] = i;
  return out[COUNT - 1] == COUNT - 1 ? 0 : 1;
}

/* Threads share one output. */
static int race(void) {
  static int last;
#pragma omp parallel for num_threads(4) schedule(static, 1)
  for (int i = 0; i < COUNT; i++) last = last + i;
  return last < 0;
}

static int overrun(void) {
  volatile int at = COUNT;
  char *bytes = calloc(COUNT, 1);
  if (!bytes) return 1;
  bytes[at] = 1;
  free(bytes);
  return 0;
}

static int overflow(void) {
  volatile int large = INT_MAX;
  return large + 1 == 0;
}

static int uninitialised(void) {
  int *number = malloc(sizeof *number);
  if (!number) return 1;
  int sum = *(volatile int *)number + 1;
  free(number);
  if (sum > 5) puts("above");
  return 0;
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    int (*commit)(void);
  } kinds[] = {{"none", none}, {"race", race}, {"overrun", overrun}, {"overflow", overflow}, {"uninit", uninitialised}};
  for (size_t i = 0; argc == 2 && i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(argv[1], kinds[i].name)) return kinds[i].commit();
  fputs("usage: planted_faults none|race|overrun|overflow|uninit\n", stderr);
  return 2;
}
