/* SPDX-License-Identifier: Apache-2.0
 *
 * The benchmark alone: the same as `m3idx bench`, without the libraries that the command's other verbs need.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static int usage(FILE *out) {
  fputs("Usage: m3idx_bench [--peers] [--json] [--cpu-time] [--tiny] [--list] [--filter=TEXT] [--threads=N]\n"
        "                   [--repeats=N] [--torch=SCRIPT] [--python=PROGRAM]\n"
        "docs/PERFORMANCE.md says what each does.\n",
        out);
  return out == stdout ? 0 : 2;
}

/* `--name=value`: the value, else NULL. */
static const char *value_of(const char *argument, const char *name) {
  const size_t n = strlen(name);
  return !strncmp(argument, name, n) && argument[n] == '=' ? argument + n + 1 : NULL;
}

static int number(const char *text, int most, int *out) {
  char *end;
  const long n = strtol(text, &end, 10);
  if (*end || end == text || n < 1 || n > most) {
    fprintf(stderr, "m3idx_bench: \"%s\" is no number in 1..%d\n", text, most);
    return -1;
  }
  *out = (int)n;
  return 0;
}

int main(int argc, char **argv) {
  bench_options o = {0};
  for (int i = 1; i < argc; i++) {
    const char *a = argv[i], *value;
    if (!strcmp(a, "--help") || !strcmp(a, "-h")) return usage(stdout);
    if (!strcmp(a, "--list")) {
      bench_list(stdout);
      return 0;
    }
    if (!strcmp(a, "--peers"))
      o.peers = true;
    else if (!strcmp(a, "--json"))
      o.json = true;
    else if (!strcmp(a, "--cpu-time"))
      o.cpu_time = true;
    else if (!strcmp(a, "--tiny"))
      o.tiny = true;
    else if ((value = value_of(a, "--filter")))
      o.filter = value;
    else if ((value = value_of(a, "--torch")))
      o.torch = value;
    else if ((value = value_of(a, "--python")))
      o.python = value;
    else if ((value = value_of(a, "--threads"))) {
      if (number(value, 4096, &o.threads)) return 2;
    } else if ((value = value_of(a, "--repeats"))) {
      if (number(value, BENCH_REPEATS, &o.repeats)) return 2;
    } else {
      fprintf(stderr, "m3idx_bench: %s: no such option\n", a);
      return usage(stderr);
    }
  }
  return bench_run(&o, stdout);
}
