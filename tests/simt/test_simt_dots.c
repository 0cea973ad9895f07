/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode scores that a single number decides, under the SIMT executor, byte for byte against ref: sums beside and on
 * midpoints from the least subnormal to infinity (S3.2 to S3.4), the codes about NaN and infinity of every format at
 * many places (S2.2, S3.1, S3.3), and scales that leave binary32 (S3.5).
 *
 * Every request has a page of its own and few tokens, so that one problem holds many cases and costs little.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "casedata.h"
#include "simt_harness.h"

enum { MOST_DIM = 128, MOST_TOKENS = 2 };

typedef struct problem {
  m3idx_dtype q_dtype, k_dtype;
  int64_t requests, heads, dim, block;
  int32_t tokens; /* that every request has */
  float scale;
  void *q, *keys; /* [requests][heads][dim], [requests][block][dim] */
} problem;

static problem problem_of(m3idx_dtype q_dtype, m3idx_dtype k_dtype, int64_t requests, int64_t heads, int64_t dim,
                          int64_t block, int32_t tokens) {
  problem p = {q_dtype, k_dtype, requests, heads, dim, block, tokens, 1.0f, NULL, NULL};
  const size_t q_bytes = (size_t)(requests * heads * dim) * m3idx_dtype_bytes(q_dtype);
  const size_t key_bytes = (size_t)(requests * block * dim) * m3idx_dtype_bytes(k_dtype);
  p.q = calloc(1, q_bytes);
  p.keys = malloc(key_bytes);
  ck_assert(p.q && p.keys);
  memset(p.keys, 0x7f, key_bytes); /* tokens past the last would win or be NaN */
  return p;
}

static void put(void *data, m3idx_dtype dtype, int64_t at, uint32_t code) {
  switch (m3idx_dtype_bytes(dtype)) {
  case 4: ((uint32_t *)data)[at] = code; break;
  case 2: ((uint16_t *)data)[at] = (uint16_t)code; break;
  default: ((uint8_t *)data)[at] = (uint8_t)code; break;
  }
}
static void put_q(const problem *p, int64_t request, int64_t head, int64_t d, uint32_t code) {
  put(p->q, p->q_dtype, (request * p->heads + head) * p->dim + d, code);
}
static void put_key(const problem *p, int64_t request, int64_t token, int64_t d, uint32_t code) {
  put(p->keys, p->k_dtype, (request * p->block + token) * p->dim + d, code);
}

/* Scores of the problem by ref and by every machine; frees its tensors. */
static void check_problem(const char *what, problem *p) {
  const size_t bytes = (size_t)(p->requests * p->heads) * sizeof(float);
  int32_t *table = malloc((size_t)p->requests * sizeof *table), *seq_lens = malloc((size_t)p->requests * sizeof *table);
  ck_assert(table && seq_lens);
  for (int64_t r = 0; r < p->requests; r++) {
    table[r] = (int32_t)r;
    seq_lens[r] = p->tokens;
  }
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = p->requests,
                             .num_rows = p->requests,
                             .max_block = 1,
                             .block_size = p->block,
                             .decode_query_len = 1,
                             .seq_lens = seq_lens};
  void *score[1 + SIMT_ARCHS];
  for (int a = 0; a <= SIMT_ARCHS; a++) {
    char run[160];
    const char *arch = a ? simt_archs[a - 1] : "ref";
    snprintf(run, sizeof run, "%s: %s, q %s, keys %s, scale %a", arch, what, m3idx_dtype_name(p->q_dtype),
             m3idx_dtype_name(p->k_dtype), (double)p->scale);
    m3idx_context *ctx = simt_open(arch);
    score[a] = simt_buffer(bytes);
    const m3idx_score_args args = {
        .batch = &batch,
        .q = {.data = p->q, .dtype = p->q_dtype, .shape = {p->requests, p->heads, p->dim}},
        .index_k = {.data = p->keys, .dtype = p->k_dtype, .shape = {p->requests, p->block, p->dim}},
        .block_table = table,
        .scale = p->scale,
        .score = score[a]};
    ck_assert_msg(m3idx_score(ctx, &args) == M3IDX_OK, "%s: %s", run, m3idx_message(ctx));
    ck_assert(simt_same("score", run, score[0], score[a], bytes, 4));
    simt_close(ctx);
  }
  for (int a = 0; a <= SIMT_ARCHS; a++) ck_assert(simt_buffer_free(score[a], bytes));
  free(table);
  free(seq_lens);
  free(p->q);
  free(p->keys);
}

/* ---- sums beside midpoints ---- */

/* Of the 8-bit integers times 2^e that a format holds: the least e, and the largest. */
static int least_exponent(m3idx_dtype d) { return d == M3IDX_F32 ? -149 : d == M3IDX_F16 ? -24 : -133; }
static int largest_exponent(m3idx_dtype d) { return d == M3IDX_F16 ? 8 : 120; }

/* A query whose products are placed one by one; key element d is 2^key[d]. */
typedef struct sum {
  const problem *p;
  int64_t request, head;
  const int *key;
  bool used[MOST_DIM], negative;
  simt_rng *rng;
} sum;

/* The product m 2^e, m < 2^8, at a free place where the query's element is exact; false where none is found. */
static bool add(sum *s, int64_t m, int e) {
  const m3idx_dtype d = s->p->q_dtype;
  for (int tries = 0; tries < 60; tries++) {
    const int at = (int)simt_below(s->rng, s->p->dim), own = e - s->key[at];
    if (s->used[at] || own < least_exponent(d) || own > largest_exponent(d)) continue;
    s->used[at] = true;
    put_q(s->p, s->request, s->head, at, case_encode(d, (m < 0) != s->negative, (uint64_t)(m < 0 ? -m : m), own));
    return true;
  }
  return false;
}

/* A sum half a unit above kept * 2^last, what binary32 keeps, or that and a little more or less, far below; and a pair
 * of products that cancel, far above or below, so that no binary64 sum is exact.  False where the formats cannot. */
static bool beside_midpoint(sum *s, int last) {
  int64_t kept = simt_below(s->rng, 5) == 0 ? 0xffffff : 0x800000 + simt_below(s->rng, 0x800000);
  if (last == -149) kept >>= simt_below(s->rng, 26); /* subnormal */
  for (int part = 0; part < 24; part += 8)
    if ((kept >> part & 0xff) != 0 && !add(s, kept >> part & 0xff, last + part)) return false;
  if (!add(s, 1, last - 1)) return false;
  const int64_t m = 128 + simt_below(s->rng, 128);
  const int far = last - 60 + (int)simt_below(s->rng, 140);
  if (simt_below(s->rng, 2) && add(s, m, far) && !add(s, -m, far)) return false;
  if (simt_below(s->rng, 3)) add(s, simt_below(s->rng, 2) ? 1 : -1, last - 2 - (int)simt_below(s->rng, 100));
  return true;
}

static const struct {
  m3idx_dtype q_dtype, k_dtype;
  int64_t dim, block;
  int key_least, key_most; /* exponents of the keys */
} mixes[] = {{M3IDX_BF16, M3IDX_BF16, 128, 128, -70, 70},    {M3IDX_F16, M3IDX_BF16, 128, 128, -60, 60},
             {M3IDX_F32, M3IDX_F16, 128, 128, -24, 15},      {M3IDX_BF16, M3IDX_E4M3FN, 128, 128, -9, 8},
             {M3IDX_F16, M3IDX_E5M2FNUZ, 128, 128, -17, 15}, {M3IDX_F32, M3IDX_F32, 64, 16, -90, 90},
             {M3IDX_BF16, M3IDX_BF16, 48, 32, -90, 90}};
enum { MIXES = sizeof mixes / sizeof *mixes };

START_TEST(midpoints) {
  problem p = problem_of(mixes[_i].q_dtype, mixes[_i].k_dtype, 24, 4, mixes[_i].dim, mixes[_i].block, 1);
  simt_rng rng = {(uint64_t)_i + 1};
  const int least = mixes[_i].key_least, range = mixes[_i].key_most - least + 1;
  int lowest = least + least_exponent(p.q_dtype) + 1, highest = mixes[_i].key_most + largest_exponent(p.q_dtype) - 16;
  int made = 0;
  lowest = lowest < -149 ? -149 : lowest;
  highest = highest > 106 ? 106 : highest; /* from 105 on infinity */
  for (int64_t r = 0; r < p.requests; r++) {
    const int two[2] = {least + (int)simt_below(&rng, range), least + (int)simt_below(&rng, range)};
    int key[MOST_DIM];
    for (int d = 0; d < p.dim; d++) {
      key[d] = two[simt_below(&rng, 2)];
      put_key(&p, r, 0, d, case_encode(p.k_dtype, false, 1, key[d]));
    }
    for (int64_t h = 0; h < p.heads; h++)
      for (int tries = 0; tries < 40; tries++) {
        sum s = {&p, r, h, key, {false}, simt_below(&rng, 2) != 0, &rng};
        const int64_t end = simt_below(&rng, 8);
        const int last = end < 2    ? lowest
                         : end == 2 ? highest - (int)simt_below(&rng, 3)
                                    : lowest + (int)simt_below(&rng, highest - lowest + 1);
        for (int d = 0; d < p.dim; d++) put_q(&p, r, h, d, 0);
        if (!beside_midpoint(&s, last)) continue;
        made++;
        break;
      }
  }
  ck_assert_int_gt(made, 3 * p.requests); /* of four a request */
  check_problem("beside a midpoint", &p);
}
END_TEST

/* ---- codes ---- */

/* Codes about infinity, NaN and zero, and one in the middle; both signs. */
static uint32_t special_code(m3idx_dtype d, int i) {
  static const uint32_t of_byte[] = {0x7b, 0x7c, 0x7d, 0x7e, 0x7f, 0, 1, 0x40};
  static const uint32_t beside_inf[] = {UINT32_MAX, 0, 1, 2, 0x55};
  const uint32_t inf = d == M3IDX_F32 ? 0x7f800000 : d == M3IDX_F16 ? 0x7c00 : 0x7f80;
  const uint32_t sign = UINT32_C(1) << (8 * m3idx_dtype_bytes(d) - 1);
  const int of = i % 8;
  const uint32_t code = m3idx_dtype_bytes(d) == 1 ? of_byte[of] : of < 5 ? inf + beside_inf[of] : (uint32_t)(of - 5);
  return code | (i & 8 ? sign : 0);
}

/* A token of ones, which wins, with a special code among them, and one of halves; queries of ones, with a special code,
 * and of zeros. */
START_TEST(codes) {
  enum { CODES = 16, PLACES = 4 };
  const m3idx_dtype k_dtype = (m3idx_dtype)(_i % M3IDX_DTYPE_COUNT);
  const m3idx_dtype q_dtype = (m3idx_dtype)((_i * 3 + 2) % M3IDX_DTYPE_COUNT);
  const bool plain = _i >= M3IDX_DTYPE_COUNT;
  problem p = problem_of(q_dtype, k_dtype, CODES * PLACES, 3, plain ? 32 : 128, plain ? 16 : 128, 2);
  simt_rng rng = {(uint64_t)_i + 1};
  p.scale = _i % 2 ? 0.3f : 1.0f;
  for (int r = 0; r < CODES * PLACES; r++) {
    const int place = r / CODES; /* of a word of four */
    for (int d = 0; d < p.dim; d++) {
      put_key(&p, r, 0, d, case_encode(k_dtype, false, 1, 0));
      put_key(&p, r, 1, d, case_encode(k_dtype, false, 1, -1));
      for (int h = 0; h < 2; h++) put_q(&p, r, h, d, case_encode(q_dtype, false, 1, 0));
    }
    put_key(&p, r, 0, 4 * simt_below(&rng, p.dim / 4) + place, special_code(k_dtype, r));
    put_q(&p, r, 1, 4 * simt_below(&rng, p.dim / 4) + place, special_code(q_dtype, r / 2 + 5 * place));
  }
  check_problem("codes", &p);
}
END_TEST

/* ---- scales ---- */

/* Products of two numbers of any size and sign, scaled out of binary32 at both ends: to zeros, subnormals, infinity. */
START_TEST(scales) {
  static const float scale[] = {0x1p-149f, 0x1.8p-130f, 0x1.fffffep-1f, 0x1.2p100f, 0x1.fffffep127f};
  enum { SCALES = sizeof scale / sizeof *scale };
  for (int i = 0; i < SCALES; i++) {
    const m3idx_dtype k_dtype = (m3idx_dtype)(_i % M3IDX_DTYPE_COUNT);
    const m3idx_dtype q_dtype = k_dtype == M3IDX_BF16 ? k_dtype : (m3idx_dtype)((_i + i) % M3IDX_DTYPE_COUNT);
    problem p = problem_of(q_dtype, k_dtype, 12, 4, 128, 128, 1);
    simt_rng rng = {(uint64_t)(_i * SCALES + i)};
    p.scale = scale[i];
    for (int64_t r = 0; r < p.requests; r++) {
      for (int d = 0; d < p.dim; d++)
        put_key(&p, r, 0, d,
                case_encode(k_dtype, simt_below(&rng, 2) != 0, 1 + (uint64_t)simt_below(&rng, 15),
                            (int)simt_below(&rng, 12) - 9));
      for (int64_t h = 0; h < p.heads; h++)
        put_q(&p, r, h, simt_below(&rng, p.dim),
              case_encode(q_dtype, simt_below(&rng, 2) != 0, 1 + (uint64_t)simt_below(&rng, 7),
                          (int)simt_below(&rng, 8) - 7));
    }
    check_problem("scaled", &p);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("simt_dots");
  TCase *tcase = tcase_create("dots");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, midpoints, 0, MIXES);
  tcase_add_loop_test(tcase, codes, 0, M3IDX_DTYPE_COUNT + 3);
  tcase_add_loop_test(tcase, scales, 0, M3IDX_DTYPE_COUNT);
  suite_add_tcase(suite, tcase);
  return simt_run(suite);
}
