/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a target over files and folders without a fuzzer: fuzz_replay PATH...; prints how many inputs it took.
 * Exit status: 0 all were taken, 2 a path that cannot be read, or no input at all.  A finding ends the program by
 * abort(), after a line that names the input.
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz_kit.h"

enum { MAX_INPUT = 1 << 24 };
static char current[4096]; /* what is being run, for whoever reads the core or the log */

static int one_file(const char *path) {
  FILE *file = fopen(path, "rb");
  uint8_t *bytes = malloc(MAX_INPUT), *exact;
  if (!file || !bytes) {
    fprintf(stderr, "fuzz_replay: cannot read %s\n", path);
    if (file) fclose(file);
    free(bytes);
    return -1;
  }
  const size_t size = fread(bytes, 1, MAX_INPUT, file);
  fclose(file);
  exact = malloc(size ? size : 1); /* its end is the input's, which a sanitizer watches */
  if (!exact) {
    free(bytes);
    return -1;
  }
  memcpy(exact, bytes, size);
  free(bytes);
  snprintf(current, sizeof current, "%s", path);
  LLVMFuzzerTestOneInput(exact, size);
  free(exact);
  return 1;
}

/* Inputs taken, or -1. */
static int one_path(const char *path) {
  struct stat st;
  int taken = 0, n = 0;
  if (stat(path, &st) || !S_ISDIR(st.st_mode)) return one_file(path);
  DIR *folder = opendir(path);
  if (!folder) return -1;
  for (struct dirent *entry; n >= 0 && (entry = readdir(folder));) {
    char inside[4096];
    if (entry->d_name[0] == '.') continue;
    if (snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name) >= (int)sizeof inside) continue;
    n = one_path(inside);
    taken += n > 0 ? n : 0;
  }
  closedir(folder);
  return n < 0 ? -1 : taken;
}

static void name_current(void) { fprintf(stderr, "fuzz_replay: the input is %s\n", current); }

int main(int argc, char **argv) {
  int taken = 0;
  fuzz_at_stop = name_current;
  for (int i = 1; i < argc; i++) {
    const int n = one_path(argv[i]);
    if (n < 0) return 2;
    taken += n;
  }
  printf("%d inputs\n", taken);
  return taken ? 0 : 2;
}
