/* SPDX-License-Identifier: Apache-2.0
 *
 * Peer: selection by the C++ library, row by row.
 */
#include "bench.h"
#include "bench_sort.h"

#ifdef M3IDX_BENCH_CXX
static int run(bench_contender *c, bench_world *w) {
  const int64_t n = w->shape->blocks;
  for (int64_t row = 0; row < w->lanes; row++)
    bench_sort_row(w->score + row * n, n, BENCH_TOPK, c->entry->kind == BENCH_NTH_ELEMENT, w->rooms,
                   w->ids + row * BENCH_TOPK);
  return 0;
}
#endif

void bench_sort_begin(bench_contender *c, bench_world *w) {
  (void)w;
#ifdef M3IDX_BENCH_CXX
  snprintf(c->detail, sizeof c->detail, "64-bit keys");
  if (c->threads == 1)
    c->run = run;
  else
    snprintf(c->absent, sizeof c->absent, "this peer has one thread");
#else
  snprintf(c->absent, sizeof c->absent, "built without a C++ compiler");
#endif
}
