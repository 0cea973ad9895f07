/* SPDX-License-Identifier: Apache-2.0
 *
 * What a wrong file looks like as a whole: a layout, a stale row, a truncated row; and what no verdict covers.  Hints
 * for a person; no verdict depends on them.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "judge.h"

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
hint(judge_report *out, const char *format, ...) {
  va_list ap;
  if (out->num_hints == JUDGE_HINTS) return;
  va_start(ap, format);
  vsnprintf(out->hint[out->num_hints++], CASE_MESSAGE_BYTES, format, ap);
  va_end(ap);
}

/* Whether got, read as [T][H], is want, and the two orders are not the same thing. */
static bool transposed(const m3idx_case *c, const void *want, const void *got, size_t row_bytes) {
  if (row_bytes == 0 || c->H < 2 || c->T < 2) return false;
  for (int64_t h = 0; h < c->H; h++)
    for (int64_t t = 0; t < c->T; t++)
      if (memcmp((const char *)want + (size_t)(h * c->T + t) * row_bytes,
                 (const char *)got + (size_t)(t * c->H + h) * row_bytes, row_bytes) != 0)
        return false;
  return true;
}

static bool row_wrong(const judge_row *row) { return row->select != SELECT_RIGHT || row->swap >= SWAP_ORDER; }

/* Wrong rows that are what the row before them, or the next head, should be. */
static void hint_stale(const judge_case *j, judge_report *out) {
  const m3idx_case *c = &out->view;
  size_t bytes = (size_t)c->K * sizeof *j->got;
  int64_t wrong = 0, before = 0;
  for (int64_t i = 0; i < c->H * c->T; i++) {
    if (!row_wrong(&out->row[i])) continue;
    wrong++;
    before += i % c->T > 0 && memcmp(j->got + i * c->K, j->want + (i - 1) * c->K, bytes) == 0;
  }
  if (wrong && before)
    hint(out, "%lld of %lld wrong rows are the right answer of the row before them: is something stale?",
         (long long)before, (long long)wrong);
}

/* No id at or past a power of two although rows see more. */
static void hint_truncated(const judge_case *j, judge_report *out) {
  const m3idx_case *c = &out->view;
  int64_t got = -1, want = -1;
  for (int64_t i = 0; i < c->H * c->T * c->K; i++) {
    if (j->got[i] > got) got = j->got[i];
    if (j->want[i] > want) want = j->want[i];
  }
  for (int64_t edge = 64; edge <= 65536; edge *= 2)
    if (got < edge && got >= edge - edge / 4 && want >= edge) {
      hint(out, "no id is above %lld, the right ones reach %lld: is N cut at %lld?", (long long)got, (long long)want,
           (long long)edge);
      return;
    }
}

void judge_hints(const judge_case *j, judge_report *out) {
  const m3idx_case *c = &out->view;
  if (out->has_table)
    hint(out, "sparse_block_table and sparse_context_lens are not judged: m3idx verify compares them");
  if (!judge_wrong(out)) return;
  if (j->got && transposed(c, j->want, j->got, (size_t)c->K * sizeof *j->got))
    hint(out, "topk_idx is right if its rows are [T=%lld][H=%lld]: the layout is transposed", (long long)c->T,
         (long long)c->H);
  if (c->op != CASE_SELECT && j->score && transposed(c, j->exact, j->score, (size_t)c->M * sizeof *j->score))
    hint(out, "score is right if its rows are [T=%lld][H=%lld]: the layout is transposed", (long long)c->T,
         (long long)c->H);
  int64_t nan = 0, all = c->H * c->T * c->M;
  for (int64_t i = 0; c->op != CASE_SELECT && j->score && i < all; i++) nan += isnan(j->score[i]) != 0;
  if (nan && nan == all) hint(out, "every score is NaN");
  if (out->score_count[SCORE_MASKED])
    hint(out, "columns at or past N must be -inf (0xff800000) in %lld rows", (long long)out->score_count[SCORE_MASKED]);
  if (!j->got || !(judge_select_wrong(out) || judge_swap_wrong(out))) return;
  hint_stale(j, out);
  hint_truncated(j, out);
}
