/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a row of a case stands and what it sees (S2.3).  Nothing here relies on the contents of a file being valid.
 */
#include "rows.h"

static int64_t clamp(int64_t x, int64_t most) { return x < 0 ? 0 : x > most ? most : x; }

tool_row tool_row_of(const m3idx_case *c, int64_t t) {
  tool_row row = {0};
  int64_t position;
  if (c->op == CASE_SELECT) {
    row.blocks = clamp(c->num_blocks[t], c->M);
    return row;
  }
  if (c->R == 0) return row; /* rows of no request */
  if (c->op == CASE_DECODE) {
    row.request = t / c->decode_query_len;
    position = c->seq_lens[row.request] - c->decode_query_len + t % c->decode_query_len;
  } else {
    while (row.request + 1 < c->R && c->cu_seqlens[row.request + 1] <= t) row.request++;
    position = (int64_t)c->prefix_lens[row.request] + t - c->cu_seqlens[row.request];
  }
  row.keys = clamp(position + 1, clamp(c->seq_lens[row.request], INT64_MAX));
  row.blocks = clamp(row.keys / c->B + (row.keys % c->B != 0), c->M);
  return row;
}
