/* SPDX-License-Identifier: Apache-2.0
 *
 * What the verbs of the m3idx command share: exit statuses, option parsing, messages, progress.
 */
#ifndef M3IDX_TOOL_H
#define M3IDX_TOOL_H

#include <popt.h>
#include <stdbool.h>

#include "case.h"

/* Exit statuses of every verb (docs/CASES.md, "The command"). */
enum { EXIT_OK = 0, EXIT_DIFFERENT = 1, EXIT_USAGE = 2, EXIT_BACKEND = 3 };

/* A verb runs with argv[0] = "m3idx VERB" and returns an exit status. */
typedef struct tool_verb {
  const char *name;
  const char *summary;
  int (*run)(int argc, const char **argv);
} tool_verb;

int verb_gen(int argc, const char **argv);
int verb_run(int argc, const char **argv);
int verb_verify(int argc, const char **argv);
int verb_judge(int argc, const char **argv);
int verb_digest(int argc, const char **argv);
int verb_bench(int argc, const char **argv);
int verb_policy(int argc, const char **argv);
int verb_info(int argc, const char **argv);
int verb_fuzz(int argc, const char **argv);

/* `argv[0]: sentence` on standard error; returns `status`. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
int tool_fail(const char *verb, int status, const char *format, ...);

/* The exit status for a library status that is not M3IDX_OK. */
int tool_exit_status(m3idx_status status);

/* Values of option.val that tool_next() handles itself. */
enum { TOOL_HELP = 1, TOOL_FIRST_OPTION = 16, TOOL_ANY_FILES = -1 };
#define TOOL_HELP_OPTION \
  { "help", 'h', POPT_ARG_NONE, NULL, TOOL_HELP, "print this text and exit", NULL }

/* An option parser over one verb's arguments. */
typedef struct tool_args {
  poptContext popt;
  const char *verb;
  void (*more_help)(FILE *out); /* after the options; may be NULL */
  const char *files[2];         /* arguments that are no options */
  const char *noun;             /* what messages call one of them */
  int num_files;
  int status; /* exit status after tool_next() returned -1: EXIT_OK to go on, else to leave; see done */
  bool done;  /* help was printed */
} tool_args;

void tool_begin(tool_args *a, int argc, const char **argv, const struct poptOption *options, const char *usage,
                void (*more_help)(FILE *out));
/* The next option's val >= TOOL_FIRST_OPTION, or -1 at the end: then exactly `files` file arguments were there and
 * a->status is EXIT_OK, or a message was printed.  TOOL_ANY_FILES leaves them to the caller. */
int tool_next(tool_args *a, int files);
/* Whether to leave now, with a->status. */
bool tool_leave(const tool_args *a);
void tool_end(tool_args *a);

/* An option's text as an integer in min..max, EXIT_OK; else a message that names all of it, and EXIT_USAGE. */
int tool_integer(const char *verb, const char *option, const char *text, int min, int max, int *out);

/* Read a case file or print why not; EXIT_OK or EXIT_USAGE. */
int tool_read(const char *verb, const char *path, case_file *out);

/* Write a case file or print why not; EXIT_OK or EXIT_USAGE.  An interrupt waits until the file is whole, so that
 * nothing is left beside it. */
int tool_write(const char *verb, const char *path, const case_file *file);

/* ---- progress (progress.c) ----
 * While work goes on past a second, "WHAT, N s" on standard error if that is a terminal.  WHAT outlives it. */
void progress_begin(const char *what, bool quiet);
void progress_end(void);

/* ---- outputs of a case, in the order of docs/CASES.md; NULL past the end ---- */
const char *tool_output_name(case_op op, int i);

#endif
