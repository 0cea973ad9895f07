/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx fuzz with the liars as backends, with two that no harness survives (one ends its process, one does not end its
 * call, and only where a case has at least two rows and three blocks, so that there is something to shrink), and with
 * one whose lie hangs on the numbers.
 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdbool.h>
#include <string.h>
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

/* From block 2 on, a score whose last four bits are all set is one ulp off. */
static m3idx_status rare(m3idx_context *ctx, const m3idx_score_args *a) {
  const m3idx_status status = m3idx_backend_ref.score(ctx, a);
  for (int64_t head = 0; head < a->q.shape[1]; head++)
    for (int64_t row = 0; row < a->batch->num_rows; row++)
      for (int64_t block = 2; block < a->batch->max_block; block++) {
        uint32_t bits;
        float *at = a->score + head * a->score_stride_head + row * a->score_stride_row + block;
        memcpy(&bits, at, sizeof bits);
        if ((bits & 15) == 15) bits--;
        memcpy(at, &bits, sizeof bits);
      }
  return status;
}

int main(int argc, char **argv) {
  conform_backend extra[MOST_LIARS];
  m3idx_backend crasher = m3idx_backend_ref, sleeper = m3idx_backend_ref;
  int count = liars_list(extra);
  m3idx_backend off = m3idx_backend_ref;
  off.score = rare;
  crasher.score = crashes;
  sleeper.score = hangs;
  extra[count++] = (conform_backend){"bad:crashes", &crasher};
  extra[count++] = (conform_backend){"bad:hangs", &sleeper};
  extra[count++] = (conform_backend){"bad:rare", &off};
  return verb_fuzz_with(argc, (const char **)argv, extra, count, false);
}
