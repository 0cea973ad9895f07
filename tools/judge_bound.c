/* SPDX-License-Identifier: Apache-2.0
 *
 * The set of scores that a declared arithmetic can honestly arrive at, in two stages: doubles with an error of their
 * own, and where those cannot tell two floats apart, or anything may overflow, exact integers.  docs/JUDGE.md.
 */
#include "judge_bound.h"

#include <float.h>
#include <math.h>

#include "casefail.h"
#include "mfma.h"

static const char *const names[] = {"exact", "f32", "bf16-mma", "cdna3-mfma", NULL};

const char *judge_arith_name(judge_arith arith) { return names[arith]; }

static bool is_fp8(m3idx_dtype dtype) { return m3idx_dtype_bytes(dtype) == 1; }

int judge_bound_of(judge_arith arith, bool flush, int k_block, int head_dim, m3idx_dtype q, m3idx_dtype k,
                   judge_bound *out, char *why) {
  bool f32 = q == M3IDX_F32 || k == M3IDX_F32;
  *out = (judge_bound){.arith = arith, .head_dim = head_dim, .flush = flush};
  if (flush && (arith == JUDGE_EXACT || arith == JUDGE_CDNA3_MFMA))
    return case_fail(why, "--flush: --arith %s keeps subnormals", judge_arith_name(arith));
  if (arith == JUDGE_EXACT) return 0;
  if (arith == JUDGE_CDNA3_MFMA) {
    mfma_unit unit;
    if (mfma_unit_of(q, k, k_block, &unit, why)) return -1;
  }
  if (arith == JUDGE_F32 || (arith == JUDGE_CDNA3_MFMA && f32)) {
    out->e = 256 * head_dim + 2;
    return 0;
  }
  if (f32 || (q != k && !is_fp8(q) && !is_fp8(k)))
    return case_fail(why, "--arith %s: a matrix unit takes q as %s with keys as %s only after a rounding",
                     judge_arith_name(arith), m3idx_dtype_name(q), m3idx_dtype_name(k));
  out->exponents = true;
  if (arith == JUDGE_BF16_MMA) {
    int ops = k_block ? 2 * ((head_dim + k_block - 1) / k_block) : head_dim;
    int c = head_dim + 2 * (ops < head_dim ? ops : head_dim);
    out->e = 512 * c + (c + 15) / 16;
  } else {
    /* Blocks of 8 unless the unit for fp8 is declared, whose blocks of 16 have two sums more. */
    int block = k_block == 16 ? 16 : 8;
    out->e = 256 * (block == 16 ? 10 : 8) + 516 * (head_dim / block) + 1;
  }
  return 0;
}

/* ---- sets ---- */

judge_set judge_set_point(float value) {
  judge_set set = {.low = value, .high = value, .finite = isfinite(value)};
  set.nan = isnan(value);
  set.plus_inf = isinf(value) && value > 0;
  set.minus_inf = isinf(value) && value < 0;
  return set;
}

bool judge_set_has(const judge_set *set, float value) {
  if (isnan(value)) return set->nan;
  if (isinf(value)) return value > 0 ? set->plus_inf : set->minus_inf;
  return set->finite && set->low <= value && value <= set->high;
}

/* A subnormal end of the set may have become zero. */
static void snap(judge_set *set) {
  if (set->low > 0 && set->low < FLT_MIN) set->low = 0;
  if (set->high < 0 && set->high > -FLT_MIN) set->high = 0;
}

void judge_set_scale(judge_set *set, float scale, bool flush) {
  if (scale == 1 || !set->finite) return;
  if (flush) snap(set);
  /* Products of two floats are exact in double, so this rounds once. */
  set->low = (float)((double)set->low * (double)scale);
  set->high = (float)((double)set->high * (double)scale);
  if (flush) snap(set);
  set->plus_inf |= isinf(set->high) && set->high > 0;
  set->minus_inf |= isinf(set->low) && set->low < 0;
  set->finite = set->low < INFINITY && set->high > -INFINITY;
  if (isinf(set->high)) set->high = FLT_MAX;
  if (isinf(set->low)) set->low = -FLT_MAX;
}

/* The set of a maximum from the sets of what it is taken over, NaN left out (S3.3). */
typedef struct merge {
  judge_set any; /* what some token can be */
  float floor;   /* what tokens that are no NaN must reach, -inf = nothing */
  bool all_nan;
} merge;

static void merge_token(merge *m, const judge_set *token) {
  if (token->finite) {
    m->any.low = m->any.finite && m->any.low < token->low ? m->any.low : token->low;
    m->any.high = m->any.finite && m->any.high > token->high ? m->any.high : token->high;
    m->any.finite = true;
  }
  m->any.plus_inf |= token->plus_inf;
  m->any.minus_inf |= token->minus_inf;
  if (token->nan) return;
  m->all_nan = false;
  float least = token->minus_inf ? -INFINITY : token->finite ? token->low : INFINITY;
  if (least > m->floor) m->floor = least;
}

static judge_set merged(const merge *m) {
  judge_set set = m->any;
  set.nan = m->all_nan;
  set.minus_inf = m->any.minus_inf && m->floor == -INFINITY;
  set.finite = m->any.finite && m->floor <= m->any.high;
  if (set.low < m->floor) set.low = m->floor;
  return set;
}

/* ---- loading ---- */

static void load(const judge_codec *codec, const void *data, int64_t index, int n, double *value, int *low,
                 bool *subnormal) {
  *low = JUDGE_NO_BITS;
  *subnormal = false;
  for (int d = 0; d < n; d++) {
    judge_number x = judge_at(codec, data, index + d);
    value[d] = x.value;
    if (x.low < *low) *low = x.low;
    *subnormal |= x.subnormal;
  }
}

void judge_query_load(judge_query *query, const judge_codec *codec, const void *data, int64_t index, int head_dim) {
  query->codec = codec;
  query->data = data;
  query->index = index;
  load(codec, data, index, head_dim, query->value, &query->low, &query->subnormal);
}

void judge_tile_load(judge_tile *tile, const judge_codec *codec, const void *data, int64_t index, int tokens,
                     int head_dim) {
  tile->codec = codec;
  tile->data = data;
  tile->index = index;
  for (int t = 0; t < tokens; t++)
    load(codec, data, index + (int64_t)t * head_dim, head_dim, tile->value + t * head_dim, &tile->low[t],
         &tile->subnormal[t]);
}

/* ---- one dot in doubles ---- */

typedef struct sums {
  double x, a;           /* sum of products, of their magnitudes */
  double excess, lost;   /* X and F */
  bool exact;            /* theorem 3: every order gives x itself */
  double error, rounded; /* the bound, and what all of this may be off by for having been computed in double */
} sums;

static void sum_double(const double *q, const double *k, int n, sums *s) {
  double x[4] = {0}, a[4] = {0};
  for (int d = 0; d < n; d += 4)
    for (int i = 0; i < 4; i++) {
      double p = q[d + i] * k[d + i];
      x[i] += p;
      a[i] += fabs(p);
    }
  s->x = (x[0] + x[1]) + (x[2] + x[3]);
  s->a = (a[0] + a[1]) + (a[2] + a[3]);
}

/* Walks the products that have a subnormal operand. */
static void sum_subnormals(const judge_bound *bound, const judge_query *query, const judge_tile *tile, int t, sums *s) {
  int64_t index = tile->index + (int64_t)t * bound->head_dim;
  for (int d = 0; d < bound->head_dim; d++) {
    judge_number q = judge_at(query->codec, query->data, query->index + d);
    judge_number k = judge_at(tile->codec, tile->data, index + d);
    if (q.low == JUDGE_NO_BITS || k.low == JUDGE_NO_BITS || !(q.subnormal || k.subnormal)) continue;
    if (bound->exponents) s->excess += ldexp(1, q.exponent + k.exponent);
    if (bound->flush) s->lost += fabs(q.value * k.value);
  }
}

static double h_of(const judge_bound *bound) { return ldexp(4.0 * bound->head_dim, bound->flush ? -126 : -149); }

static void sum_pair(const judge_bound *bound, const judge_query *query, const judge_tile *tile, int t, sums *s) {
  *s = (sums){0};
  sum_double(query->value, tile->value + (int64_t)t * bound->head_dim, bound->head_dim, s);
  if (query->subnormal || tile->subnormal[t]) sum_subnormals(bound, query, tile, t, s);
  int64_t low = (int64_t)query->low + tile->low[t]; /* every product is a multiple of 2^low */
  s->exact = low >= (bound->flush ? -126 : -149) && s->lost == 0 &&
             (low > JUDGE_NO_BITS / 2 || s->a + s->excess <= ldexp(1, (int)low + 23));
  if (s->exact) return;
  s->error = ldexp((double)bound->e, -32) * (s->a + s->excess) + h_of(bound) + s->lost;
  s->rounded = 0x1p-42 * (s->a + s->excess + h_of(bound) + s->lost);
}

/* ---- one dot in integers ---- */

/* Exact P, the sum of the positive products, and Q, that of the negative ones' magnitudes; X and F. */
typedef struct wides {
  judge_wide p, q, excess, lost;
  bool plus_inf, minus_inf, nan, risky; /* risky: an infinity meets a subnormal, which may be read as zero */
} wides;

static void wide_product(const judge_bound *bound, judge_number q, judge_number k, wides *w) {
  if (!isfinite(q.value) || !isfinite(k.value)) {
    double p = q.value * k.value;
    w->nan |= isnan(p);
    w->plus_inf |= isinf(p) && p > 0;
    w->minus_inf |= isinf(p) && p < 0;
    w->risky |= bound->flush && (q.subnormal || k.subnormal);
    return;
  }
  if (q.low == JUDGE_NO_BITS || k.low == JUDGE_NO_BITS) return;
  uint64_t m = (uint64_t)ldexp(fabs(q.value), -q.low) * (uint64_t)ldexp(fabs(k.value), -k.low);
  judge_wide_add((q.value < 0) == (k.value < 0) ? &w->p : &w->q, 1, m, q.low + k.low);
  if (!q.subnormal && !k.subnormal) return;
  if (bound->exponents) judge_wide_add(&w->excess, 1, 1, q.exponent + k.exponent);
  if (bound->flush) judge_wide_add(&w->lost, 1, m, q.low + k.low);
}

static void sum_wide(const judge_bound *bound, const judge_query *query, const judge_tile *tile, int t, wides *w) {
  int64_t index = tile->index + (int64_t)t * bound->head_dim;
  *w = (wides){0};
  for (int d = 0; d < bound->head_dim; d++)
    wide_product(bound, judge_at(query->codec, query->data, query->index + d),
                 judge_at(tile->codec, tile->data, index + d), w);
  judge_wide *all[] = {&w->p, &w->q, &w->excess, &w->lost};
  for (int i = 0; i < 4; i++) judge_wide_carry(all[i]);
}

/* The set of one token, by the exact bound. */
static judge_set token_set(const judge_bound *bound, const judge_query *query, const judge_tile *tile, int t) {
  wides w;
  judge_set set = {0};
  sums s;
  sum_pair(bound, query, tile, t, &s);
  sum_wide(bound, query, tile, t, &w);
  judge_wide error, edge;
  judge_wide_zero(&error);
  if (!s.exact) {
    judge_wide_add(&error, 1, 4 * (uint64_t)bound->head_dim, bound->flush ? -126 : -149);
    judge_wide_carry(&error);
    judge_wide_add_times(&error, &w.p, bound->e, true);
    judge_wide_add_times(&error, &w.q, bound->e, true);
    judge_wide_add_times(&error, &w.excess, bound->e, true);
    judge_wide_add_times(&error, &w.lost, 1, false);
  }
  edge = error;
  judge_wide_add_times(&edge, &w.p, 1, false);
  bool over = judge_wide_float(&edge, false) == FLT_MAX; /* a partial sum may pass the largest float */
  edge = error;
  judge_wide_add_times(&edge, &w.q, 1, false);
  bool under = judge_wide_float(&edge, false) == FLT_MAX;
  if (w.nan || (w.plus_inf && w.minus_inf)) {
    set.nan = true;
  } else if (w.plus_inf || w.minus_inf) {
    set.plus_inf = w.plus_inf;
    set.minus_inf = w.minus_inf;
    set.nan = w.risky || (w.plus_inf ? under : over);
  } else {
    set.plus_inf = over;
    set.minus_inf = under;
    set.nan = over && under;
    edge = w.p;
    judge_wide_add_times(&edge, &w.q, -1, false);
    judge_wide x = edge;
    judge_wide_add_times(&edge, &error, -1, false);
    judge_wide_add_times(&x, &error, 1, false);
    set.low = judge_wide_float(&edge, true);
    set.high = judge_wide_float(&x, false);
    set.finite = set.low <= set.high && isfinite(set.low) && isfinite(set.high);
  }
  return set;
}

static judge_set exact_block(const judge_bound *bound, const judge_query *query, const judge_tile *tile, int tokens) {
  merge m = {.floor = -INFINITY, .all_nan = true};
  for (int t = 0; t < tokens; t++) {
    judge_set token = token_set(bound, query, tile, t);
    merge_token(&m, &token);
  }
  return merged(&m);
}

/* ---- a block ---- */

static float float_above(double x) {
  float f = (float)x;
  return (double)f < x ? nextafterf(f, INFINITY) : f;
}
static float float_below(double x) { return -float_above(-x); }

judge_set judge_block(const judge_bound *bound, const judge_query *query, const judge_tile *tile, int tokens) {
  /* The largest x - E and x + E over the tokens lie in low[0]..low[1] and high[0]..high[1]. */
  double low[2] = {-INFINITY, -INFINITY}, high[2] = {-INFINITY, -INFINITY};
  for (int t = 0; t < tokens; t++) {
    sums s;
    sum_pair(bound, query, tile, t, &s);
    if (!(s.a + s.error < 0x1p126)) return exact_block(bound, query, tile, tokens); /* NaN and infinities too */
    low[0] = fmax(low[0], s.x - s.error - s.rounded);
    low[1] = fmax(low[1], s.x - s.error + s.rounded);
    high[0] = fmax(high[0], s.x + s.error - s.rounded);
    high[1] = fmax(high[1], s.x + s.error + s.rounded);
  }
  judge_set set = {.low = float_above(low[0]), .high = float_below(high[0]), .finite = true};
  if (set.low != float_above(low[1]) || set.high != float_below(high[1]))
    return exact_block(bound, query, tile, tokens);
  return set;
}
