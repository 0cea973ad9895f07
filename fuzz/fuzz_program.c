/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs are executed by their words, never by a shell, so that no path and no quote can mean anything else.  What
 * they print goes to a file; its end is shown when something is wrong.
 */
#define _POSIX_C_SOURCE 200809L
#include "fuzz_program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "casefail.h"
#include "casefile.h"
#include "fuzz_campaign.h"

static char *joined(const char *a, const char *b) {
  const size_t bytes = strlen(a) + strlen(b) + 1;
  char *text = malloc(bytes);
  if (text) snprintf(text, bytes, "%s%s", a, b);
  return text;
}

/* ---- opening ---- */

static bool names(char **words, int count, const char *what) {
  for (int i = 0; i < count; i++)
    if (strstr(words[i], what)) return true;
  return false;
}

/* Where files of a moment go: in memory where there is a place, as each is flushed when it is written. */
static const char *scratch(void) {
  const char *named = getenv("TMPDIR");
  if (named && *named) return named;
  return access("/dev/shm", W_OK | X_OK) ? "/tmp" : "/dev/shm";
}

int fuzz_program_open(char **words, int count, bool serve, double seconds, fuzz_program *p, char *why) {
  *p = (fuzz_program){.words = words, .count = count, .serve = serve, .seconds = seconds};
  if (!count) return case_fail(why, "--exec: no program");
  if (!serve && !names(words, count, "{in}")) return case_fail(why, "--exec: no {in}, where the case file's name goes");
  if (!serve && !names(words, count, "{out}"))
    return case_fail(why, "--exec: no {out}, where the name of its outputs goes");
  p->dir = joined(scratch(), "/m3idx-fuzz-XXXXXX");
  if (!p->dir || !mkdtemp(p->dir)) {
    case_fail(why, "%.200s: cannot make a directory: %s", p->dir ? p->dir : "", strerror(errno));
    free(p->dir);
    *p = (fuzz_program){0};
    return -1;
  }
  p->in = joined(p->dir, "/case.safetensors");
  p->out = joined(p->dir, "/out.safetensors");
  p->log = joined(p->dir, "/log");
  if (p->in && p->out && p->log) return 0;
  fuzz_program_close(p);
  return case_fail(why, "out of memory");
}

/* waitpid()'s status of a serving program that is ended now. */
static int dismiss(fuzz_program *p) {
  int status = 0;
  if (!p->pid) return 0;
  close(p->ask);
  close(p->answer);
  fuzz_wait(p->pid, fuzz_now() + 0.2, &status); /* the closed pipe is how it knows */
  kill((pid_t)-p->pid, SIGKILL);
  p->pid = 0;
  return status;
}

void fuzz_program_close(fuzz_program *p) {
  dismiss(p);
  if (p->in) unlink(p->in);
  if (p->out) unlink(p->out);
  if (p->log) unlink(p->log);
  if (p->dir) rmdir(p->dir);
  free(p->dir);
  free(p->in);
  free(p->out);
  free(p->log);
  *p = (fuzz_program){0};
}

/* ---- running ---- */

/* A word with the paths in their places; malloc'd. */
static char *filled(const fuzz_program *p, const char *word) {
  size_t bytes = strlen(word) + 1;
  for (const char *at = word; *at; at++) bytes += *at == '{' ? strlen(p->in) + strlen(p->out) : 0;
  char *text = malloc(bytes), *to = text;
  for (const char *at = word; text && *at;) {
    const bool in = !strncmp(at, "{in}", 4), out = !strncmp(at, "{out}", 5);
    const char *path = in ? p->in : p->out;
    if (in || out) {
      memcpy(to, path, strlen(path));
      to += strlen(path);
      at += in ? 4 : 5;
    } else {
      *to++ = *at++;
    }
  }
  if (text) *to = 0;
  return text;
}

/* Never returns: in the child.  in and out are its standard streams, -1 = nothing and the log. */
static void become(const fuzz_program *p, char *const *argv, int in, int out) {
  const int log = open(p->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  setpgid(0, 0); /* so that what it starts ends with it */
  signal(SIGPIPE, SIG_DFL);
  if (in < 0) in = open("/dev/null", O_RDONLY);
  if (!argv[0] || log < 0 || in < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(out < 0 ? log : out, STDOUT_FILENO) < 0 ||
      dup2(log, STDERR_FILENO) < 0)
    _exit(126);
  execvp(argv[0], argv);
  dprintf(STDERR_FILENO, "%s: cannot be run: %s\n", argv[0], strerror(errno));
  _exit(127);
}

static void free_words(char **argv) {
  for (int i = 0; argv && argv[i]; i++) free(argv[i]);
  free(argv);
}

static char **filled_words(const fuzz_program *p) {
  char **argv = calloc((size_t)p->count + 1, sizeof *argv);
  bool good = argv != NULL;
  for (int i = 0; i < p->count && good; i++) good = (argv[i] = filled(p, p->words[i])) != NULL;
  if (good) return argv;
  free_words(argv);
  return NULL;
}

/* Its end, and waitpid()'s status. */
static fuzz_end start(const fuzz_program *p, int *status) {
  char **argv = filled_words(p);
  if (!argv) return FUZZ_END_FAILED;
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) become(p, argv, -1, -1);
  free_words(argv);
  if (pid < 0) return FUZZ_END_FAILED;
  const bool ended = fuzz_wait(pid, fuzz_now() + p->seconds, status);
  kill(-pid, SIGKILL);
  if (!ended) return FUZZ_END_HANG;
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == FUZZ_EXIT_UNSUPPORTED) return FUZZ_END_UNSUPPORTED;
  return WIFEXITED(*status) && WEXITSTATUS(*status) == 0 ? FUZZ_END_DONE : FUZZ_END_FAILED;
}

/* ---- serving ---- */

static bool begin_serving(fuzz_program *p) {
  int to[2] = {-1, -1}, from[2] = {-1, -1};
  char **argv = filled_words(p);
  pid_t pid = -1;
  signal(SIGPIPE, SIG_IGN); /* a program that is gone is found out by its pipe */
  if (argv && !pipe(to) && !pipe(from)) {
    for (int i = 0; i < 2; i++) fcntl(to[i], F_SETFD, FD_CLOEXEC);
    for (int i = 0; i < 2; i++) fcntl(from[i], F_SETFD, FD_CLOEXEC);
    fflush(NULL);
    pid = fork();
    if (pid == 0) become(p, argv, to[0], from[1]);
  }
  free_words(argv);
  if (to[0] >= 0) close(to[0]);
  if (from[1] >= 0) close(from[1]);
  if (pid > 0) {
    p->pid = pid;
    p->ask = to[1];
    p->answer = from[0];
    return true;
  }
  if (to[1] >= 0) close(to[1]);
  if (from[0] >= 0) close(from[0]);
  return false;
}

/* One line without its end; false = the program is gone, or the time is up. */
static bool read_line(const fuzz_program *p, char *line, size_t bytes, bool *late) {
  const double deadline = fuzz_now() + p->seconds;
  for (size_t n = 0; n + 1 < bytes;) {
    struct pollfd ready = {.fd = p->answer, .events = POLLIN};
    const double left = deadline - fuzz_now();
    *late = left <= 0;
    if (*late) return false;
    if (poll(&ready, 1, left > 1 ? 1000 : (int)(1000 * left) + 1) <= 0) continue;
    if (read(p->answer, line + n, 1) != 1) return false;
    if (line[n] == '\n') {
      line[n] = 0;
      return true;
    }
    n++;
  }
  return false;
}

static fuzz_end serve(fuzz_program *p, int *status, char *line, size_t bytes) {
  bool late = false;
  *line = 0;
  if (!p->pid && !begin_serving(p)) return FUZZ_END_FAILED;
  if (dprintf(p->ask, "%s\t%s\n", p->in, p->out) > 0 && read_line(p, line, bytes, &late)) {
    if (!strcmp(line, "done")) return FUZZ_END_DONE;
    if (!strcmp(line, "unsupported")) return FUZZ_END_UNSUPPORTED;
    return FUZZ_END_FAILED;
  }
  *line = 0;
  if (late) kill((pid_t)-p->pid, SIGKILL);
  *status = dismiss(p);
  return late ? FUZZ_END_HANG : FUZZ_END_FAILED;
}

/* ---- a run ---- */

/* The end of what it printed, behind what is in `why` already. */
static void quote(const fuzz_program *p, char *why, size_t bytes) {
  char tail[1024];
  FILE *log = fopen(p->log, "r");
  if (!log) return;
  size_t got = 0;
  if (!fseek(log, 0, SEEK_END)) {
    const long size = ftell(log), from = size > (long)sizeof tail - 1 ? size - (long)sizeof tail + 1 : 0;
    if (size > 0 && !fseek(log, from, SEEK_SET)) got = fread(tail, 1, sizeof tail - 1, log);
  }
  fclose(log);
  for (size_t i = 0; i < got; i++) /* reports are UTF-8 */
    if ((unsigned char)tail[i] > 126 || ((unsigned char)tail[i] < 32 && tail[i] != '\n')) tail[i] = '?';
  tail[got] = 0;
  const size_t used = strlen(why);
  if (got) snprintf(why + used, bytes - used, "\n  it printed:\n%s", tail);
}

fuzz_end fuzz_program_run(fuzz_program *p, const case_file *file, case_file *theirs, char *why, size_t why_bytes) {
  char sentence[CASE_MESSAGE_BYTES], answer[256] = "";
  int status = 0;
  *theirs = (case_file){0};
  *why = 0;
  unlink(p->out); /* or the outputs of the case before would be judged */
  if (casefile_write(p->in, file, sentence)) {
    snprintf(why, why_bytes, "%s", sentence);
    return FUZZ_END_FAILED;
  }
  fuzz_end end = p->serve ? serve(p, &status, answer, sizeof answer) : start(p, &status);
  if (end == FUZZ_END_HANG) snprintf(why, why_bytes, "the program took more than %g s", p->seconds);
  if (end == FUZZ_END_FAILED && *answer)
    snprintf(why, why_bytes, "the program answered \"%s\"", answer);
  else if (end == FUZZ_END_FAILED && WIFSIGNALED(status))
    snprintf(why, why_bytes, "the program was ended by signal %d", WTERMSIG(status));
  else if (end == FUZZ_END_FAILED)
    snprintf(why, why_bytes, "the program ended with status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  if (end == FUZZ_END_DONE && casefile_read(p->out, theirs, sentence)) {
    snprintf(why, why_bytes, "the program's output: %s", sentence);
    end = FUZZ_END_OUTPUT;
  }
  if (end != FUZZ_END_DONE) quote(p, why, why_bytes);
  return end;
}
