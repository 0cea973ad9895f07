/* SPDX-License-Identifier: Apache-2.0
 *
 * What the verbs share: options through popt, messages, exit statuses.
 */
#define _POSIX_C_SOURCE 200809L
#include "tool.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "casefile.h"

int tool_fail(const char *verb, int status, const char *format, ...) {
  va_list ap;
  fprintf(stderr, "%s: ", verb);
  va_start(ap, format);
  vfprintf(stderr, format, ap);
  va_end(ap);
  fputc('\n', stderr);
  return status;
}

int tool_exit_status(m3idx_status status) {
  switch (status) {
  case M3IDX_OK: return EXIT_OK;
  case M3IDX_INVALID:
  case M3IDX_IO: return EXIT_USAGE;
  case M3IDX_UNSUPPORTED:
  case M3IDX_UNAVAILABLE:
  case M3IDX_NO_MEMORY:
  case M3IDX_DEVICE: return EXIT_BACKEND;
  }
  return EXIT_BACKEND;
}

void tool_begin(tool_args *a, int argc, const char **argv, const struct poptOption *options, const char *usage,
                void (*more_help)(FILE *out)) {
  *a = (tool_args){.verb = argv[0], .more_help = more_help, .noun = "file"};
  a->popt = poptGetContext(NULL, argc, argv, options, 0);
  poptSetOtherOptionHelp(a->popt, usage);
}

static int take_files(tool_args *a, int files) {
  const char *file;
  while ((file = poptGetArg(a->popt))) {
    if (a->num_files == files)
      return tool_fail(a->verb, EXIT_USAGE, "%s: one argument too many, %d %s%s wanted (see --help)", file, files,
                       a->noun, files == 1 ? "" : "s");
    a->files[a->num_files++] = file;
  }
  if (a->num_files < files)
    return tool_fail(a->verb, EXIT_USAGE, "%d of %d %s%s given (see --help)", a->num_files, files, a->noun,
                     files == 1 ? "" : "s");
  return EXIT_OK;
}

int tool_next(tool_args *a, int files) {
  int val = poptGetNextOpt(a->popt);
  if (val == TOOL_HELP) {
    poptPrintHelp(a->popt, stdout, 0);
    if (a->more_help) a->more_help(stdout);
    a->done = true;
    return -1;
  }
  if (val >= TOOL_FIRST_OPTION) return val;
  if (val < -1)
    a->status = tool_fail(a->verb, EXIT_USAGE, "%s: %s (see --help)", poptBadOption(a->popt, POPT_BADOPTION_NOALIAS),
                          poptStrerror(val));
  else if (files != TOOL_ANY_FILES)
    a->status = take_files(a, files);
  return -1;
}

bool tool_leave(const tool_args *a) { return a->done || a->status != EXIT_OK; }

void tool_end(tool_args *a) {
  poptFreeContext(a->popt);
  a->popt = NULL;
}

int tool_integer(const char *verb, const char *option, const char *text, int min, int max, int *out) {
  const char *digits = text + (*text == '-');
  long long value = strtoll(text, NULL, 10); /* saturates */
  if (!*digits || strspn(digits, "0123456789") != strlen(digits) || value < min || value > max)
    return tool_fail(verb, EXIT_USAGE, "--%s %s: must be %d..%d", option, text, min, max);
  *out = (int)value;
  return EXIT_OK;
}

int tool_read(const char *verb, const char *path, case_file *out) {
  char why[CASE_MESSAGE_BYTES];
  return casefile_read(path, out, why) ? tool_fail(verb, EXIT_USAGE, "%s", why) : EXIT_OK;
}

int tool_write(const char *verb, const char *path, const case_file *file) {
  static const int interrupts[] = {SIGINT, SIGTERM, SIGHUP};
  char why[CASE_MESSAGE_BYTES];
  sigset_t wait, before;
  sigemptyset(&wait);
  for (size_t i = 0; i < sizeof interrupts / sizeof *interrupts; i++) sigaddset(&wait, interrupts[i]);
  sigprocmask(SIG_BLOCK, &wait, &before);
  signal(SIGXFSZ, SIG_IGN); /* a write past the limit then fails, and says so */
  int bad = casefile_write(path, file, why);
  sigprocmask(SIG_SETMASK, &before, NULL);
  return bad ? tool_fail(verb, EXIT_USAGE, "%s", why) : EXIT_OK;
}

const char *tool_output_name(case_op op, int i) {
  static const char *const names[] = {"score", "topk_idx", "sparse_block_table", "sparse_context_lens"};
  if (op == CASE_SELECT) return i == 0 ? names[1] : NULL; /* score is its input */
  return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}
