/* SPDX-License-Identifier: Apache-2.0
 *
 * The m3idx command: one table of verbs.  Each verb is a file verb_NAME.c.
 */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

static const tool_verb verbs[] = {
    {"gen", "make a case from a case line", verb_gen},
    {"run", "add a case's outputs: make its golden", verb_run},
    {"verify", "compare outputs with a golden, and explain", verb_verify},
    {"judge", "judge outputs that are not exact, without a tolerance", verb_judge},
    {"fuzz", "pit backends against each other on drawn cases", verb_fuzz},
    {"digest", "print a SHA-256 for each output", verb_digest},
    {"policy", "print a launch policy", verb_policy},
    {"bench", "measure the library, and peers beside it", verb_bench},
    {"info", "print version, build and backends", verb_info},
};
enum { VERBS = sizeof verbs / sizeof *verbs };

static void usage(FILE *out) {
  fputs("Usage: m3idx VERB [OPTION...]   (m3idx VERB --help says more)\n\n", out);
  for (int i = 0; i < VERBS; i++) fprintf(out, "  %-8s%s\n", verbs[i].name, verbs[i].summary);
  fputs("\nExit status: 0 done, or the same; 1 different, or wrong; 2 bad usage or input; 3 the backend cannot, or no "
        "memory.\n",
        out);
}

/* Output that could not be written is a failure, whatever the verb thinks. */
static int finish(int status) {
  if ((fflush(stdout) || ferror(stdout)) && status != EXIT_USAGE)
    return tool_fail("m3idx", EXIT_USAGE, "cannot write to standard output");
  return status;
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "";
  if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
    usage(stdout);
    return finish(EXIT_OK);
  }
  if (!strcmp(name, "--version")) {
    printf("m3idx %s\n", m3idx_version());
    return finish(EXIT_OK);
  }
  for (int i = 0; i < VERBS; i++) {
    if (strcmp(name, verbs[i].name) != 0) continue;
    char title[32];
    const char **rest = malloc((size_t)argc * sizeof *rest);
    if (!rest) return tool_fail("m3idx", EXIT_BACKEND, "out of memory");
    snprintf(title, sizeof title, "m3idx %s", name);
    rest[0] = title;
    for (int a = 2; a < argc; a++) rest[a - 1] = argv[a];
    rest[argc - 1] = NULL;
    int status = finish(verbs[i].run(argc - 1, rest));
    free(rest);
    return status;
  }
  if (*name)
    tool_fail("m3idx", EXIT_USAGE, "%s: no such verb", name);
  else
    tool_fail("m3idx", EXIT_USAGE, "which verb?");
  usage(stderr);
  return EXIT_USAGE;
}
