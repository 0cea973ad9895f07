/* SPDX-License-Identifier: Apache-2.0
 *
 * Single cases in child processes, for the shrinker: whatever a backend does to its process, the answer is a kind.
 * The parent opens no backend, so that a child inherits no threads and no device.
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fuzz_campaign.h"

enum { EXIT_PASSED = 40, EXIT_DIFFERS, EXIT_SENSELESS }; /* of children; any other end is a crash */

const char *fuzz_kind_name(fuzz_kind kind) {
  static const char *const names[FUZZ_KINDS] = {"passed", "different", "crash", "hang", "senseless line"};
  return names[kind];
}

static volatile sig_atomic_t interrupted;
static struct sigaction before[2];
static const int numbers[2] = {SIGINT, SIGTERM};

static void interrupt(int number) {
  (void)number;
  interrupted = 1;
}

void fuzz_interrupts(bool on) {
  const struct sigaction keep = {.sa_handler = interrupt};
  for (int i = 0; i < 2; i++) sigaction(numbers[i], on ? &keep : &before[i], on ? &before[i] : NULL);
}

bool fuzz_interrupted(void) { return interrupted; }

double fuzz_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* POSIX has no anonymous mapping; where /dev/zero is one, MAP_SHARED of it is kept over fork(). */
void *fuzz_shared_alloc(size_t bytes) {
  const int zero = open("/dev/zero", O_RDWR);
  void *map = zero < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, zero, 0);
  if (zero >= 0) close(zero);
  return map == MAP_FAILED ? NULL : map;
}

void fuzz_shared_free(void *memory, size_t bytes) {
  if (memory) munmap(memory, bytes);
}

bool fuzz_wait(long child, double deadline, int *status) {
  long nap = 100000; /* ns, growing: most children of the shrinker end within a millisecond or two */
  for (;;) {
    const pid_t ended = waitpid((pid_t)child, status, WNOHANG);
    if (ended == (pid_t)child) return true;
    if (fuzz_now() > deadline) break;
    nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
    if (nap < 20000000) nap += nap / 4;
  }
  kill((pid_t)child, SIGKILL);
  waitpid((pid_t)child, status, 0);
  return false;
}

static int run_alone(const fuzz_setup *setup, const case_spec *spec) {
  char why[CASE_MESSAGE_BYTES];
  bool unusable;
  fuzz_session session;
  fuzz_outcome outcome = {0};
  case_file file = {0};
  if (case_generate(spec, &file, why)) return EXIT_SENSELESS;
  if (fuzz_open(setup, &session, &unusable, why)) return EXIT_SENSELESS;
  const int bad = fuzz_run_file(&session, &file, "", NULL, &outcome, why);
  fuzz_close(&session);
  case_file_free(&file);
  return bad ? EXIT_SENSELESS : outcome.failed ? EXIT_DIFFERS : EXIT_PASSED;
}

fuzz_kind fuzz_trial(void *user, const case_spec *spec) {
  const fuzz_trial_on *on = user;
  int status;
  fflush(NULL);
  const pid_t child = fork();
  if (child < 0) return FUZZ_SENSELESS;
  if (child == 0) {
    /* What a dying process prints is not asked for. */
    const int null = open("/dev/null", O_WRONLY);
    if (null >= 0 && dup2(null, STDOUT_FILENO) >= 0 && dup2(null, STDERR_FILENO) >= 0) close(null);
    conform_memory_watch();
    exit(run_alone(&on->setup, spec));
  }
  if (!fuzz_wait(child, fuzz_now() + on->hang_seconds, &status)) return FUZZ_HANG;
  if (!WIFEXITED(status)) return FUZZ_CRASH;
  switch (WEXITSTATUS(status)) {
  case EXIT_PASSED: return FUZZ_PASSED;
  case EXIT_DIFFERS: return FUZZ_DIFFERENT;
  case EXIT_SENSELESS: return FUZZ_SENSELESS;
  default: return FUZZ_CRASH;
  }
}
