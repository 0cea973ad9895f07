/* SPDX-License-Identifier: Apache-2.0
 *
 * Elapsed time on a terminal while a long call runs.  The library calls nothing back, so an alarm ticks each
 * second; its handler uses only what POSIX allows in one.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "tool.h"

static const char *volatile text;
static volatile sig_atomic_t seconds;

/* Append as much of `words` as fits before `room`. */
static size_t append(char *line, size_t n, size_t room, const char *words) {
  while (*words && n < room) line[n++] = *words++;
  return n;
}

static void tick(int signal_number) {
  enum { ROOM = 160 };
  char line[ROOM + 32];
  int saved = errno;
  (void)signal_number;
  size_t n = append(line, 0, ROOM, "\r");
  n = append(line, n, ROOM, text);
  n = append(line, n, ROOM + 2, ", ");
  unsigned value = (unsigned)++seconds, scale = 1;
  while (value / scale >= 10) scale *= 10;
  for (; scale; scale /= 10) line[n++] = (char)('0' + value / scale % 10);
  n = append(line, n, sizeof line, " s");
  ssize_t written = write(STDERR_FILENO, line, n);
  (void)written; /* a terminal that went away is no reason to stop */
  alarm(1);
  errno = saved;
}

void progress_begin(const char *what, bool quiet) {
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  text = NULL;
  if (quiet || !isatty(STDERR_FILENO)) return;
  sigemptyset(&action.sa_mask);
  seconds = 0;
  text = what;
  if (sigaction(SIGALRM, &action, NULL) == 0) alarm(1);
}

void progress_end(void) {
  if (!text) return;
  alarm(0);
  signal(SIGALRM, SIG_IGN);
  text = NULL;
  if (seconds) fputs("\r\033[K", stderr);
}
