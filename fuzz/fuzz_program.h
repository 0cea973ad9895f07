/* SPDX-License-Identifier: Apache-2.0
 *
 * A program of somebody else's that turns a case file into one with outputs: started without a shell, watched, and
 * ended when it takes too long.
 *
 * Started anew for each case, or once: then it reads lines of two names, the case's and that for its outputs with a tab
 * between, and answers each with a line, "done" or "unsupported".
 */
#ifndef M3IDX_FUZZ_PROGRAM_H
#define M3IDX_FUZZ_PROGRAM_H

#include "case.h"

enum { FUZZ_EXIT_UNSUPPORTED = 77 }; /* the exit status by which a program says that a case is not for it */

typedef enum fuzz_end {
  FUZZ_END_DONE,        /* exit 0 or "done", and its output can be read */
  FUZZ_END_UNSUPPORTED, /* exit 77 or "unsupported" */
  FUZZ_END_FAILED,      /* another exit status or answer, a signal, or it could not be started */
  FUZZ_END_HANG,
  FUZZ_END_OUTPUT /* exit 0, and no output, or one that is no case file */
} fuzz_end;

typedef struct fuzz_program {
  char **words; /* the caller's; {in} and {out} stand for the paths, wherever they are in a word */
  int count;
  double seconds;  /* a run that takes longer hangs */
  bool serve;      /* started once; no {in} and no {out} */
  long pid;        /* serving: of the program while it lives, else 0 */
  int ask, answer; /* pipes to it and from it */
  char *dir;       /* a fresh one, for nobody else */
  char *in, *out, *log;
} fuzz_program;

/* 0, or -1 and why: no {in} or {out} among the words, no directory.  dir and its contents go with close. */
int fuzz_program_open(char **words, int count, bool serve, double seconds, fuzz_program *p, char *why);
void fuzz_program_close(fuzz_program *p);

/* Write the case, run the program on it, read what it left: *theirs is filled for FUZZ_END_DONE only.  why says what
 * happened, with the end of what the program printed. */
fuzz_end fuzz_program_run(fuzz_program *p, const case_file *file, case_file *theirs, char *why, size_t why_bytes);

#endif
