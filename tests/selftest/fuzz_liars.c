/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx fuzz with the liars as backends, and with two that no harness survives: one that ends its process, one that
 * does not end its call.  Both do so only where a case has at least two rows and three blocks, so that there is
 * something to shrink.
 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "liars.h"
#include "verb_fuzz.h"

static bool is_the_case(const m3idx_score_args *a) { return a->batch->num_rows >= 2 && a->batch->max_block >= 3; }

static m3idx_status crashes(m3idx_context *ctx, const m3idx_score_args *a) {
  if (is_the_case(a)) raise(SIGKILL);
  return m3idx_backend_ref.score(ctx, a);
}

static m3idx_status hangs(m3idx_context *ctx, const m3idx_score_args *a) {
  while (is_the_case(a)) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
  return m3idx_backend_ref.score(ctx, a);
}

int main(int argc, char **argv) {
  conform_backend extra[MOST_LIARS];
  m3idx_backend crasher = m3idx_backend_ref, sleeper = m3idx_backend_ref;
  int count = liars_list(extra);
  crasher.score = crashes;
  sleeper.score = hangs;
  extra[count++] = (conform_backend){"bad:crashes", &crasher};
  extra[count++] = (conform_backend){"bad:hangs", &sleeper};
  return verb_fuzz_with(argc, (const char **)argv, extra, count);
}
