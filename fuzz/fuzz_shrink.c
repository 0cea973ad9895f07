/* SPDX-License-Identifier: Apache-2.0
 *
 * The shrinker.  A pass proposes; a trial in a process of its own disposes.  While the data still come from a seed,
 * only the line is edited.  Then its numbers are pinned, and requests, rows, heads, dims and blocks go with their
 * numbers, and the numbers themselves, in ever smaller groups.
 */
#include "fuzz_shrink.h"

#include <stdlib.h>
#include <string.h>

#include "casedata.h"
#include "fuzz_small.h"

enum { MOST_POINTS = 1 << 18 };

typedef struct shrinker {
  const fuzz_shrink_options *o;
  fuzz_kind kind;
  double deadline;
  fuzz_small best;
  int64_t trials;
  bool progress, no_memory;
} shrinker;

static bool over(const shrinker *s) { return s->no_memory || fuzz_interrupted() || fuzz_now() > s->deadline; }

static bool fails(shrinker *s, const fuzz_small *candidate) {
  case_spec spec;
  if (over(s)) return false;
  if (fuzz_small_spec(candidate, &spec)) {
    s->no_memory = true;
    return false;
  }
  s->trials++;
  const fuzz_kind kind = s->o->trial(s->o->user, &spec);
  case_spec_free(&spec);
  return kind == s->kind;
}

/* The candidate becomes the best if it fails; it is used up either way. */
static bool offer(shrinker *s, fuzz_small *candidate) {
  const bool good = fails(s, candidate);
  if (good) {
    fuzz_small_free(&s->best);
    s->best = *candidate;
    s->progress = true;
  } else {
    fuzz_small_free(candidate);
  }
  return good;
}

static bool begin(shrinker *s, fuzz_small *candidate) {
  if (over(s)) return false;
  s->no_memory = fuzz_small_copy(&s->best, candidate) != 0;
  return !s->no_memory;
}

/* ---- single numbers ---- */

/* Smaller values of an integer, the boldest first; how many. */
static int smaller(int64_t value, int64_t least, int64_t step, int64_t out[6]) {
  const int64_t tries[] = {
      least, least + step, value / 2 / step * step, value - value / 4 / step * step, value - 8 * step, value - step};
  int count = 0;
  for (int i = 0; i < 6; i++)
    if (tries[i] >= least && tries[i] < value && (!count || out[count - 1] != tries[i])) out[count++] = tries[i];
  return count;
}

static void try_integer(shrinker *s, int64_t *(*field)(fuzz_small *), int64_t least, int64_t step) {
  int64_t values[6];
  for (bool again = true; again && !over(s);) {
    again = false;
    const int n = smaller(*field(&s->best), least, step, values);
    for (int i = 0; i < n && !again; i++) {
      fuzz_small c;
      if (!begin(s, &c)) return;
      *field(&c) = values[i];
      again = offer(s, &c);
    }
  }
}

static int64_t *heads(fuzz_small *c) { return &c->spec.heads; }
static int64_t *head_dim(fuzz_small *c) { return &c->spec.head_dim; }
static int64_t *topk(fuzz_small *c) { return &c->spec.topk; }
static int64_t *max_block(fuzz_small *c) { return &c->spec.max_block; }
static int64_t *init_blocks(fuzz_small *c) { return &c->spec.init_blocks; }
static int64_t *local_blocks(fuzz_small *c) { return &c->spec.local_blocks; }
static int64_t *query_len(fuzz_small *c) { return &c->spec.decode_query_len; }
static int64_t *num_pages(fuzz_small *c) { return &c->spec.num_pages; }

/* One length of one request or row. */
static void try_length(shrinker *s, int which, int64_t r) {
  int64_t values[6];
  const int64_t B = s->best.spec.op == CASE_SELECT ? 1 : s->best.spec.block_size;
  for (bool again = true; again && !over(s);) {
    again = false;
    const case_spec *b = &s->best.spec;
    int32_t *const lists[] = {b->q_lens, b->prefix_lens, b->seq_lens, b->num_blocks};
    if (!lists[which] || r >= fuzz_small_parts(&s->best)) return;
    const int64_t value = lists[which][r];
    for (int64_t step = B; step >= 1 && !again; step = step > 1 ? 1 : 0) {
      const int n = smaller(value, 0, step, values);
      for (int i = 0; i < 2 * n && !again; i++) {
        fuzz_small c;
        if (!begin(s, &c)) return;
        int32_t *const own[] = {c.spec.q_lens, c.spec.prefix_lens, c.spec.seq_lens, c.spec.num_blocks};
        own[which][r] = (int32_t)values[i / 2];
        /* The keys of a prefill follow what makes them up, or stay. */
        if (which < 2 && i % 2 == 0) c.spec.seq_lens[r] -= (int32_t)(value - values[i / 2]);
        if (which < 2 || i % 2 == 0)
          again = offer(s, &c);
        else
          fuzz_small_free(&c);
      }
    }
  }
}

/* ---- options ---- */

/* Simpler values of options that are not counts; the i-th, false past the end. */
static bool simplify(case_spec *s, int i, bool pinned) {
  static const m3idx_dtype pairs[][2] = {{M3IDX_F32, M3IDX_F32}, {M3IDX_BF16, M3IDX_BF16}};
  switch (i) {
  case 0: s->scale = 1; break;
  case 1: s->sparse_table = false; break;
  case 2: s->attention_table = false; break;
  case 3: s->page_stride = 8; break;
  case 4: memset(&s->contract, 0, sizeof s->contract); break;
  case 5: s->contract.order = M3IDX_ORDER_SCORE; break;
  case 6: s->contract.zero = M3IDX_ZERO_EQUAL; break;
  case 7: s->contract.tie = M3IDX_TIE_LOWER_ID; break;
  case 8: s->contract.nan = M3IDX_NAN_AS_MINUS_1E30; break;
  case 9: s->table = CASE_TURNS; break;
  case 10: s->num_pages = 0; break;
  case 11: s->max_block = 0; break;
  case 12: s->seed = 0; break;
  case 13: s->data = CASE_ZEROS; break;
  default:
    if (pinned) return false; /* bits belong to their format */
    if (i == 14) s->data = CASE_TIES;
    if (i == 15) s->data = CASE_NORMAL;
    if (i == 16 || i == 17) memcpy(&s->q_dtype, &pairs[i - 16][0], sizeof s->q_dtype);
    if (i == 16 || i == 17) memcpy(&s->k_dtype, &pairs[i - 16][1], sizeof s->k_dtype);
    if (i == 18) s->seed = 1;
    if (i == 19) s->seed = 2;
    return i < 20;
  }
  return true;
}

/* Data kinds have a rank, so that a try never undoes another. */
static int rank_of(case_data data) {
  return data == CASE_ZEROS ? 0 : data == CASE_TIES ? 1 : data == CASE_NORMAL ? 2 : 3;
}

static int64_t options_weight(const case_spec *s) {
  int64_t w = (s->scale != 1) + s->sparse_table + s->attention_table + (s->page_stride != 8) + (s->table != CASE_TURNS);
  w += (int)s->contract.order + (int)s->contract.zero + (int)s->contract.tie + (int)s->contract.nan;
  w += (s->num_pages != 0) + (s->max_block != 0) + 2 * rank_of(s->data);
  w += s->seed == 0 ? 0 : s->seed == 1 ? 1 : s->seed == 2 ? 2 : 3;
  if (s->op != CASE_SELECT && s->q_dtype == s->k_dtype) w -= s->q_dtype == M3IDX_F32 ? 2 : s->q_dtype == M3IDX_BF16;
  return w;
}

static void try_options(shrinker *s, bool pinned) {
  for (int i = 0; !over(s); i++) {
    fuzz_small c;
    if (!begin(s, &c)) return;
    const bool more = simplify(&c.spec, i, pinned);
    if (more && options_weight(&c.spec) < options_weight(&s->best.spec))
      offer(s, &c);
    else
      fuzz_small_free(&c);
    if (!more) return;
  }
}

/* Blocks of fewer tokens, as many of them. */
static void try_block_size(shrinker *s) {
  for (int64_t B = 16; B < s->best.spec.block_size && !over(s); B *= 2) {
    fuzz_small c;
    if (!begin(s, &c)) return;
    const int64_t old = c.spec.block_size;
    c.spec.block_size = B;
    for (int64_t r = 0; r < c.spec.num_requests; r++) {
      c.spec.seq_lens[r] = (int32_t)(c.spec.seq_lens[r] / old * B + (c.spec.seq_lens[r] % old ? 1 : 0));
      if (c.spec.prefix_lens) c.spec.prefix_lens[r] = (int32_t)(c.spec.prefix_lens[r] / old * B);
    }
    if (offer(s, &c)) return;
  }
}

/* ---- parts ---- */

/* Groups of requests or rows, from half of them down to one. */
static void try_parts(shrinker *s) {
  for (int64_t group = fuzz_small_parts(&s->best) / 2; group >= 1 && !over(s); group /= 2)
    for (int64_t first = 0; first + group <= fuzz_small_parts(&s->best) && !over(s);) {
      fuzz_small c;
      if (fuzz_small_parts(&s->best) == group) break; /* never none */
      if (!begin(s, &c)) return;
      fuzz_small_drop_parts(&c, first, group);
      if (!offer(s, &c)) first += group;
    }
}

static void try_rows(shrinker *s) {
  const bool decode = s->best.spec.op == CASE_DECODE;
  for (int64_t r = 0; r < (decode ? 1 : s->best.spec.num_requests) && !over(s); r++)
    for (int back = 0; back < (decode ? 1 : 2); back++)
      for (int64_t all; !over(s);) {
        fuzz_small c;
        bool good = false;
        all = decode ? s->best.spec.decode_query_len - 1 : s->best.spec.q_lens[r];
        for (int64_t n = all; n >= 1 && !good; n /= 2) {
          if (!begin(s, &c)) return;
          fuzz_small_drop_rows(&c, r, n, !back);
          good = offer(s, &c);
        }
        if (!good) break;
      }
}

static void repeat(shrinker *s, void (*edit)(fuzz_small *), int64_t *(*field)(fuzz_small *), int64_t least) {
  while (!over(s) && *field(&s->best) > least) {
    fuzz_small c;
    if (!begin(s, &c)) return;
    edit(&c);
    if (!offer(s, &c)) return;
  }
}

static int64_t longest_of(const case_spec *s) { return case_spec_least_blocks(s); }

static void try_blocks(shrinker *s) {
  const bool select = s->best.spec.op == CASE_SELECT;
  while (!over(s) && longest_of(&s->best.spec) > 1) {
    fuzz_small c;
    if (!begin(s, &c)) return;
    (select ? fuzz_small_drop_column : fuzz_small_drop_block)(&c);
    if (!offer(s, &c)) return;
  }
}

/* ---- points ---- */

static bool of_table(const fuzz_point *p) {
  return p->tensor == CASE_PUT_BLOCK_TABLE || p->tensor == CASE_PUT_ATTENTION_BLOCK_TABLE;
}

/* Points that are numbers; those of tables stand behind them. */
static int64_t numbers_of(const fuzz_small *s) {
  int64_t n = s->num_points;
  while (n > 0 && of_table(&s->points[n - 1])) n--;
  return n;
}

/* Groups of points, from all of them down to one.  Entries of tables go last of all: while they stand, requests and
 * blocks can go without the others' pages changing. */
static void try_points(shrinker *s, bool tables) {
  for (int64_t group = s->best.num_points; group >= 1 && !over(s); group /= 2)
    for (int64_t first = 0; !over(s);) {
      fuzz_small c;
      const int64_t all = tables ? s->best.num_points : numbers_of(&s->best);
      const int64_t end = first + group < all ? first + group : all;
      if (first >= all) break;
      if (!begin(s, &c)) return;
      memmove(c.points + first, c.points + end, (size_t)(c.num_points - end) * sizeof *c.points);
      c.num_points -= end - first;
      if (!offer(s, &c)) first += group;
    }
}

static m3idx_dtype dtype_of(const case_spec *s, case_put_tensor tensor) {
  return tensor == CASE_PUT_Q ? s->q_dtype : tensor == CASE_PUT_INDEX_K ? s->k_dtype : M3IDX_F32;
}

/* 1, -1 and 2, in this order, for numbers that are none of them; else fewer bits. */
static void try_numbers(shrinker *s) {
  for (int64_t i = 0; i < numbers_of(&s->best) && !over(s); i++) {
    const fuzz_point p = s->best.points[i];
    const m3idx_dtype d = dtype_of(&s->best.spec, p.tensor);
    const int width = (int)(8 * m3idx_dtype_bytes(d));
    uint32_t simple[6] = {case_encode(d, false, 1, 0), case_encode(d, true, 1, 0), case_encode(d, false, 2, 0)};
    for (int v = 3; v < 6; v++) simple[v] = p.bits >> (6 - v) * width / 5 << (6 - v) * width / 5;
    for (int v = 0; v < 6 && p.bits != simple[v]; v++) {
      fuzz_small c;
      if (!begin(s, &c)) return;
      c.points[i].bits = simple[v];
      if (offer(s, &c)) break;
    }
  }
}

/* ---- the whole ---- */

static void line_passes(shrinker *s, bool pinned) {
  const bool select = s->best.spec.op == CASE_SELECT;
  try_parts(s);
  if (!select) try_rows(s);
  if (pinned) try_blocks(s);
  try_integer(s, heads, 1, 1);
  if (pinned) repeat(s, fuzz_small_drop_head, heads, 1);
  if (!select) try_integer(s, head_dim, 16, 16);
  if (pinned && !select) repeat(s, fuzz_small_drop_dims, head_dim, 16);
  if (!select) try_block_size(s);
  for (int64_t r = 0; r < fuzz_small_parts(&s->best); r++)
    for (int which = 0; which < 4; which++) try_length(s, which, r);
  if (s->best.spec.op == CASE_DECODE) try_integer(s, query_len, 1, 1);
  try_integer(s, topk, 1, 1);
  try_options(s, pinned);
  if (s->best.spec.max_block) try_integer(s, max_block, 1, 1);
  try_integer(s, init_blocks, 0, 1);
  try_integer(s, local_blocks, 0, 1);
  if (s->best.spec.num_pages) try_integer(s, num_pages, 1, 1);
}

static void fixpoint(shrinker *s, bool pinned) {
  do {
    s->progress = false;
    if (pinned) try_points(s, false);
    line_passes(s, pinned);
    if (pinned) try_numbers(s);
  } while (s->progress && !over(s));
}

static int finish(shrinker *s, fuzz_shrunk *out) {
  const int bad = s->no_memory || fuzz_small_spec(&s->best, &out->spec);
  out->finished = !over(s);
  out->trials = s->trials;
  fuzz_small_free(&s->best);
  return bad ? -1 : 0;
}

int fuzz_shrink(const fuzz_shrink_options *options, const case_spec *spec, fuzz_shrunk *out) {
  shrinker s = {.o = options, .deadline = fuzz_now() + options->seconds, .trials = 1};
  fuzz_small pinned;
  *out = (fuzz_shrunk){0};
  out->kind = s.kind = options->trial(options->user, spec);
  if (fuzz_small_from(spec, &s.best)) return -1;
  if (s.kind == FUZZ_PASSED || s.kind == FUZZ_SENSELESS) {
    out->kind = FUZZ_PASSED;
    return finish(&s, out);
  }
  fixpoint(&s, false);
  if (!over(&s) && !fuzz_small_pin(&s.best, MOST_POINTS, &pinned) && offer(&s, &pinned)) {
    fixpoint(&s, true);
    try_points(&s, true);
    fixpoint(&s, true);
  }
  return finish(&s, out);
}
