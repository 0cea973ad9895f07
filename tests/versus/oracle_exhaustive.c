/* SPDX-License-Identifier: Apache-2.0
 *
 * oracle_exhaustive: what can be tried whole, is (S2.2, S3.2 to S3.4, S6.2), through the public API:
 *
 *   codes      every code of each 8- and 16-bit format, as q and as key, times 1 (f32: strata)
 *   products   all 256 x 256 pairs of codes in each of the 4 x 4 pairings of fp8 formats
 *   midpoints  every midpoint of two floats, and a hair to either side, in the subnormals and in the lowest, the
 *              middle and the highest binade (without --full: both ends of each and a sample)
 *   convert    fp8 codes of all bf16 and f16 inputs and of strata of f32 (--full: finer)
 *
 *   oracle_exhaustive [--backend ref|all|...] [--full]
 *
 * Exit 0: everything agrees; 1: something differs, was unsupported or was never compared; 2: bad usage or no such
 * backend here.  Expected values come from the oracle; those of midpoints from their construction, and the oracle
 * is held to a sample of the same.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "m3idx.h"
#include "oracle.h"
#include "versus.h"

enum { D = 16, BATCH = 65536, F32_LOW_STRATA = 6, MAX_REPORTS = 20 };

/* The same formats, as the library and as the oracle name them. */
static const struct {
  m3idx_dtype dtype;
  oracle_format format;
  uint32_t one;
} formats[] = {{M3IDX_F32, ORACLE_F32, 0x3f800000},     {M3IDX_F16, ORACLE_F16, 0x3c00},
               {M3IDX_BF16, ORACLE_BF16, 0x3f80},       {M3IDX_E4M3FN, ORACLE_E4M3FN, 0x38},
               {M3IDX_E4M3FNUZ, ORACLE_E4M3FNUZ, 0x40}, {M3IDX_E5M2, ORACLE_E5M2, 0x3c},
               {M3IDX_E5M2FNUZ, ORACLE_E5M2FNUZ, 0x40}};
enum { FORMATS = sizeof formats / sizeof *formats, FIRST_FP8 = 3 };

typedef struct run {
  m3idx_context *ctx;
  const char *backend;
  bool full;
  long long compared, failed;
  /* BATCH dots or conversions at a time */
  uint32_t (*q)[D], (*k)[D];
  uint32_t *want, *got, *source;
  unsigned char *q_bytes, *k_bytes;
  int32_t *ones, *table;
  int64_t *slots;
} run;

static void *room(size_t n, size_t bytes) {
  void *p = calloc(n, bytes);
  if (p) return p;
  fprintf(stderr, "oracle_exhaustive: out of memory\n");
  exit(2);
}

static void pack(unsigned char *to, const uint32_t *codes, size_t n, size_t bytes) {
  for (size_t i = 0; i < n; i++) {
    uint16_t half = (uint16_t)codes[i];
    if (bytes == 4)
      memcpy(to + 4 * i, &codes[i], 4);
    else if (bytes == 2)
      memcpy(to + 2 * i, &half, 2);
    else
      to[i] = (unsigned char)codes[i];
  }
}

static bool answered(run *r, m3idx_status status, const char *call) {
  if (status == M3IDX_OK) return true;
  if (r->failed++ < MAX_REPORTS)
    printf("FAIL %s: %s: %s: %s\n", r->backend, call, m3idx_status_name(status), m3idx_message(r->ctx));
  return false;
}

/* The n dots q[i] . k[i] against want[i]: n requests of one key each, each with a page of its own. */
static void compare_dots(run *r, const char *part, int q_format, int k_format, int n) {
  size_t q_size = m3idx_dtype_bytes(formats[q_format].dtype), k_size = m3idx_dtype_bytes(formats[k_format].dtype);
  pack(r->q_bytes, r->q[0], (size_t)n * D, q_size);
  pack(r->k_bytes, r->k[0], (size_t)n * D, k_size);
  m3idx_batch batch = {.mode = M3IDX_DECODE,
                       .num_requests = n,
                       .num_rows = n,
                       .max_block = 1,
                       .block_size = 16,
                       .decode_query_len = 1,
                       .seq_lens = r->ones};
  m3idx_score_args args = {.batch = &batch,
                           .q = {r->q_bytes, formats[q_format].dtype, {n, 1, D}, {D, D, 1}},
                           /* Only token 0 of a page is visible, so the others may be the same memory. */
                           .index_k = {r->k_bytes, formats[k_format].dtype, {n, 16, D}, {D, 0, 1}},
                           .block_table = r->table,
                           .score = (float *)(void *)r->got};
  memset(r->got, 0x5a, (size_t)n * sizeof *r->got);
  if (!answered(r, m3idx_score(r->ctx, &args), part)) return;
  for (int i = 0; i < n; i++) {
    r->compared++;
    if (r->got[i] != r->want[i] && r->failed++ < MAX_REPORTS)
      printf("FAIL %s: %s: %s 0x%x 0x%x 0x%x . %s 0x%x 0x%x 0x%x: want 0x%08x got 0x%08x\n", r->backend, part,
             m3idx_dtype_name(formats[q_format].dtype), r->q[i][0], r->q[i][1], r->q[i][2],
             m3idx_dtype_name(formats[k_format].dtype), r->k[i][0], r->k[i][1], r->k[i][2], r->want[i], r->got[i]);
  }
}

static uint32_t oracle_dot(const run *r, int q_format, int k_format, int i, int dim) {
  return oracle_block_score(formats[q_format].format, r->q[i], formats[k_format].format, r->k[i], 1, dim);
}

static void clear_dots(run *r) {
  memset(r->q, 0, BATCH * sizeof *r->q);
  memset(r->k, 0, BATCH * sizeof *r->k);
}

/* Code number i of a format's sweep: all of 8 and 16 bits; of f32 the high half all, the low half in strata. */
static const uint32_t low_strata[F32_LOW_STRATA] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};

static int sweep_rounds(int format) { return formats[format].format == ORACLE_F32 ? F32_LOW_STRATA : 1; }
static int sweep_size(int format) { return oracle_code_bits(formats[format].format) == 8 ? 256 : 65536; }
static uint32_t sweep_code(int format, int round, uint32_t i) {
  return formats[format].format == ORACLE_F32 ? i << 16 | low_strata[round] : i;
}

/* c * 1 with c as q, then as key; the element's place moves along. */
static void codes(run *r) {
  for (int f = 0; f < FORMATS; f++)
    for (int round = 0; round < sweep_rounds(f); round++)
      for (int as_key = 0; as_key <= 1; as_key++) {
        int n = sweep_size(f), one = (f + round) % FORMATS;
        clear_dots(r);
        for (int i = 0; i < n; i++) {
          uint32_t code = sweep_code(f, round, (uint32_t)i);
          r->q[i][i % D] = as_key ? formats[one].one : code;
          r->k[i][i % D] = as_key ? code : formats[one].one;
          r->want[i] = oracle_dot(r, as_key ? one : f, as_key ? f : one, i, D);
        }
        compare_dots(r, "codes", as_key ? one : f, as_key ? f : one, n);
      }
}

static void products(run *r) {
  for (int qf = FIRST_FP8; qf < FORMATS; qf++)
    for (int kf = FIRST_FP8; kf < FORMATS; kf++) {
      clear_dots(r);
      for (int i = 0; i < 65536; i++) {
        r->q[i][0] = (uint32_t)i >> 8;
        r->k[i][0] = (uint32_t)i & 0xff;
        r->want[i] = oracle_dot(r, qf, kf, i, 1);
      }
      compare_dots(r, "products", qf, kf, 65536);
    }
}

static uint32_t float_bits(double exactly) {
  float x = (float)exactly;
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* One midpoint: the dot of 2^c with significand * 2^-23, half a unit of that, and a hair of either sign or none.
 * The float below it has the pattern ((c + 126) << 23) + significand, subnormals (c = -126) included; the dot
 * rounds to it or to the next pattern, which at the top is that of infinity.  A zero keeps no sign (S3.4). */
static void set_midpoint(run *r, int i, int c, uint32_t significand, int side, bool negative) {
  double sign = negative ? -1 : 1;
  r->q[i][0] = float_bits(sign * ldexp((double)significand, -23));
  r->q[i][1] = float_bits(sign * ldexp(1, -24));
  r->q[i][2] = float_bits(sign * ldexp((double)side, -83));
  r->k[i][0] = r->k[i][1] = r->k[i][2] = float_bits(ldexp(1, c));
  uint32_t bits = ((uint32_t)(c + 126) << 23) + significand;
  if (side > 0 || (side == 0 && significand % 2 == 1)) bits++;
  r->want[i] = bits && negative ? bits | 0x80000000 : bits;
}

static void flush_midpoints(run *r, int n) {
  for (int i = 0; i < n; i += 61) {
    uint32_t by_oracle = oracle_dot(r, 0, 0, i, 3);
    if (by_oracle != r->want[i] && r->failed++ < MAX_REPORTS)
      printf("FAIL oracle: midpoint 0x%x * 0x%x: want 0x%08x got 0x%08x\n", r->q[i][0], r->k[i][0], r->want[i],
             by_oracle);
  }
  compare_dots(r, "midpoints", 0, 0, n);
}

static void midpoints(run *r) {
  static const struct {
    int c;
    uint32_t first;
  } binades[] = {{-126, 0}, {-126, 1u << 23}, {0, 1u << 23}, {127, 1u << 23}};
  enum { END = 1024, SAMPLE = 997 };
  int n = 0;
  clear_dots(r);
  for (int b = 0; b < 4; b++)
    for (uint32_t s = 0; s < 1u << 23; s++) {
      bool end = s < END || s >= (1u << 23) - END;
      if (!r->full && !end && s % SAMPLE != 0) continue;
      for (int side = -1; side <= 1; side++) {
        set_midpoint(r, n++, binades[b].c, binades[b].first + s, side, s / 2 % 2 == 1);
        if (n < BATCH) continue;
        flush_midpoints(r, n);
        n = 0;
      }
    }
  flush_midpoints(r, n);
}

/* n codes of r->source (n a multiple of D) into an fp8 cache. */
static void compare_conversions(run *r, int from, int to, int n) {
  const uint32_t *source = r->source;
  int rows = n / D, pages = (rows + 15) / 16;
  pack(r->q_bytes, source, (size_t)n, m3idx_dtype_bytes(formats[from].dtype));
  memset(r->k_bytes, 0x5a, (size_t)pages * 16 * D);
  m3idx_cache_insert_args args = {.key = {r->q_bytes, formats[from].dtype, {1, rows, D}, {0, 0, 0}},
                                  .slot_mapping = r->slots,
                                  .cache = {r->k_bytes, formats[to].dtype, {pages, 16, D}, {0, 0, 0}}};
  if (!answered(r, m3idx_cache_insert(r->ctx, &args), "convert")) return;
  for (int i = 0; i < n; i++) {
    uint32_t want = oracle_convert(formats[from].format, source[i], formats[to].format);
    r->compared++;
    if (r->k_bytes[i] != want && r->failed++ < MAX_REPORTS)
      printf("FAIL %s: convert: %s 0x%x into %s: want 0x%02x got 0x%02x\n", r->backend,
             m3idx_dtype_name(formats[from].dtype), source[i], m3idx_dtype_name(formats[to].dtype), want,
             r->k_bytes[i]);
  }
}

static void convert(run *r) {
  for (int from = 0; from < FIRST_FP8; from++)
    for (int to = FIRST_FP8; to < FORMATS; to++)
      for (int round = 0; round < sweep_rounds(from); round++) {
        for (uint32_t i = 0; i < 65536; i++) r->source[i] = sweep_code(from, round, i);
        compare_conversions(r, from, to, 65536);
      }
  if (!r->full) return;
  /* f32: every high 20 bits, the low 12 at both ends and in the middle. */
  static const uint32_t low[] = {0, 1, 0x7ff, 0x800, 0x801, 0xfff};
  for (int to = FIRST_FP8; to < FORMATS; to++)
    for (int stratum = 0; stratum < 6; stratum++)
      for (uint32_t high = 0; high < 1u << 20; high += 65536) {
        for (uint32_t i = 0; i < 65536; i++) r->source[i] = (high + i) << 12 | low[stratum];
        compare_conversions(r, 0, to, 65536);
      }
}

static const struct {
  const char *name;
  void (*run)(run *r);
} parts[] = {{"codes", codes}, {"products", products}, {"midpoints", midpoints}, {"convert", convert}};

static int judge(m3idx_context *ctx, const char *backend, void *user) {
  run *r = user;
  bool empty = false;
  r->ctx = ctx;
  r->backend = backend;
  long long failed_before = r->failed;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    long long before = r->compared, failed = r->failed;
    parts[i].run(r);
    printf("%-10s %10lld compared %lld failed\n", parts[i].name, r->compared - before, r->failed - failed);
    if (r->compared == before) empty = true;
  }
  return r->failed > failed_before || empty;
}

int main(int argc, char **argv) {
  run r = {.full = false};
  const char *backend = "ref";
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--full")) {
      r.full = true;
    } else if (!strcmp(argv[i], "--backend") && i + 1 < argc) {
      backend = argv[++i];
    } else {
      fprintf(stderr, "usage: oracle_exhaustive [--backend NAME|all] [--full]\n");
      return 2;
    }
  }
  r.q = room(BATCH, sizeof *r.q);
  r.k = room(BATCH, sizeof *r.k);
  r.want = room(BATCH, sizeof *r.want);
  r.got = room(BATCH, sizeof *r.got);
  r.source = room(BATCH, sizeof *r.source);
  r.q_bytes = room(BATCH * D, 4);
  r.k_bytes = room(BATCH * D, 4);
  r.ones = room(BATCH, sizeof *r.ones);
  r.table = room(BATCH, sizeof *r.table);
  r.slots = room(BATCH, sizeof *r.slots);
  for (int i = 0; i < BATCH; i++) {
    r.ones[i] = 1;
    r.table[i] = i;
    r.slots[i] = i;
  }
  int rc = versus_each(backend, 0, judge, &r);
  void *all[] = {r.q, r.k, r.want, r.got, r.source, r.q_bytes, r.k_bytes, r.ones, r.table, r.slots};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  return rc;
}
