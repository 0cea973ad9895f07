/* SPDX-License-Identifier: Apache-2.0
 *
 * Peer: torch, in a Python process of its own that times itself and waits while others run (peers/torch_peer.py has
 * the protocol).  One process serves the whole benchmark.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

typedef struct child {
  pid_t pid; /* 0 = none */
  FILE *to, *from;
  char dead[BENCH_REASON_BYTES]; /* why there will be none; "" = there may be */
} child;
static child torch;

static int start(const char *python, const char *script) {
  int in[2], out[2];
  if (pipe(in)) return -1;
  if (pipe(out)) {
    close(in[0]);
    close(in[1]);
    return -1;
  }
  signal(SIGPIPE, SIG_IGN); /* a child that is gone is an error to report, not to die of */
  torch.pid = fork();
  if (torch.pid == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    close(in[0]);
    close(in[1]);
    close(out[0]);
    close(out[1]);
    execlp(python, python, script, "--serve", (char *)NULL);
    dprintf(STDOUT_FILENO, "no %s: %s\n", python, strerror(errno)); /* not printf(): the parent's buffer is here too */
    _exit(3);
  }
  close(in[0]);
  close(out[1]);
  torch.to = fdopen(in[1], "w");
  torch.from = fdopen(out[0], "r");
  return torch.pid > 0 && torch.to && torch.from ? 0 : -1;
}

void bench_torch_end(void) {
  if (torch.to) fclose(torch.to);
  if (torch.from) fclose(torch.from);
  if (torch.pid > 0) waitpid(torch.pid, NULL, 0);
  torch = (child){0};
}

/* The answer to a line, without its newline; NULL = the child is gone.  One that ended before it was asked may have
 * said why. */
static char *ask(const char *line, char *answer, int bytes) {
  fputs(line, torch.to);
  fflush(torch.to);
  if (!fgets(answer, bytes, torch.from)) return NULL;
  answer[strcspn(answer, "\n")] = 0;
  return answer;
}

static int run(bench_contender *c, bench_world *w) {
  char line[32], answer[BENCH_REASON_BYTES];
  (void)w;
  snprintf(line, sizeof line, "run %d\n", *(int *)c->peer);
  c->elsewhere = ask(line, answer, sizeof answer) ? strtod(answer, NULL) : 0;
  return c->elsewhere > 0 ? 0 : -1;
}

/* The job's slot, or -1 and torch.dead or c->absent. */
static int make(bench_contender *c, const bench_shape *s) {
  const char *const kind = c->entry->kind == BENCH_TORCH_BF16_MAX    ? "bf16-max"
                           : c->entry->kind == BENCH_TORCH_BF16_TOPK ? "bf16-topk"
                                                                     : "f32-max";
  char line[128], answer[BENCH_REASON_BYTES];
  int slot = 0, used = 0;
  snprintf(line, sizeof line, "make %s %lld %lld %d\n", kind, (long long)(s->rows * s->heads), (long long)s->blocks,
           c->threads);
  if (!ask(line, answer, sizeof answer)) {
    snprintf(torch.dead, sizeof torch.dead, "the process for torch ended");
  } else if (sscanf(answer, "ok %d %n", &slot, &used) == 1) {
    snprintf(c->detail, sizeof c->detail, "%.63s", answer + used);
    return slot;
  } else {
    /* Without torch the script says so instead of answering, and ends. */
    snprintf(torch.dead, sizeof torch.dead, "%s", strncmp(answer, "no ", 3) == 0 ? answer + 3 : answer);
  }
  return -1;
}

void bench_torch_begin(bench_contender *c, bench_world *w) {
  const bench_options *o = w->options;
  if (!o->torch) {
    snprintf(c->absent, sizeof c->absent, "not asked for (--torch names torch_peer.py)");
    return;
  }
  if (!torch.pid && !*torch.dead && start(o->python ? o->python : "python3", o->torch))
    snprintf(torch.dead, sizeof torch.dead, "no process for torch: %s", strerror(errno));
  const int slot = *torch.dead ? -1 : make(c, w->shape);
  c->peer = slot < 0 ? NULL : malloc(sizeof slot);
  if (c->peer) {
    memcpy(c->peer, &slot, sizeof slot);
    c->run = run;
  } else {
    snprintf(c->absent, sizeof c->absent, "%s", *torch.dead ? torch.dead : "no memory");
  }
}

void bench_torch_finish(bench_contender *c) {
  char line[32], answer[BENCH_REASON_BYTES];
  if (!c->peer) return;
  snprintf(line, sizeof line, "drop %d\n", *(int *)c->peer);
  ask(line, answer, sizeof answer);
  free(c->peer);
  c->peer = NULL;
}
