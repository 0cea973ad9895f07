/* SPDX-License-Identifier: Apache-2.0
 *
 * A scan against the filter that keeps its dots: the maxima, which tokens are near them, what sift() makes of that, and
 * the dots that a scan does beside its own.  What the dots may be is test_simd_bound's matter.  x86-64 alone has scans.
 */
#include <math.h>
#include <string.h>

#include "simd_convert.h"
#include "simd_tile.h"
#include "unit.h"

static const simd_isa *const isas[] = {&simd_avx512, &simd_avx512bf16, &simd_amx};
enum { ISAS = sizeof isas / sizeof *isas };

typedef struct problem {
  _Alignas(64) uint16_t q[SIMD_LANES * SIMD_MAX_DIM], k[SIMD_TOKENS * SIMD_MAX_DIM];
  _Alignas(64) float lanes[SIMD_LANES * SIMD_MAX_DIM], row[SIMD_LANES * SIMD_MAX_DIM];
  _Alignas(64) float copy[SIMD_TOKENS * SIMD_MAX_DIM], score[SIMD_TOKENS * SIMD_LANES], room[32 * SIMD_LANES];
  simd_group group;
  simd_page page;
} problem;

static problem p;
static uint64_t state;

static uint32_t draw(void) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(state >> 33);
}

/* Small numbers, so that many tokens tie, or of any size between 1/2 and 2. */
static void fill(uint16_t *to, int count, int small) {
  for (int i = 0; i < count; i++) {
    const float value = small ? (float)(int)(draw() % 3) - 1.0f : simd_float(0x3f000000u + draw() % 0x1000000u);
    to[i] = (uint16_t)(simd_bits(draw() % 2 ? value : -value) >> 16);
  }
}

static void pack(const simd_isa *isa, simd_form form, int tokens, int dim, int lanes) {
  static int32_t len;
  static m3idx_batch batch;
  static m3idx_tensor q, k;
  len = tokens + lanes;
  batch = (m3idx_batch){.mode = M3IDX_DECODE,
                        .num_requests = 1,
                        .num_rows = lanes,
                        .max_block = 3,
                        .block_size = tokens,
                        .decode_query_len = lanes,
                        .seq_lens = &len};
  q = (m3idx_tensor){p.q, M3IDX_BF16, {lanes, 1, dim}, {dim, dim, 1}};
  k = (m3idx_tensor){p.k, M3IDX_BF16, {1, tokens, dim}, {(int64_t)tokens * dim, dim, 1}};
  const simd_call call = {
      .isa = isa, .form = form, .batch = &batch, .q = &q, .index_k = &k, .scale = 1, .heads = 1, .dim = dim};
  p.group.q = p.lanes;
  p.group.row = p.row;
  simd_group_pack(&call, &p.group, 0, 0, 0, lanes);
  simd_page_load(&call, &p.page, 0, tokens, 0, p.copy);
}

/* The definition of simd_near, token by token. */
static void check_near(const char *name, const simd_near *near, int tokens, int lanes, const float *reach,
                       const float *most) {
  int next = 0;
  for (int s = 0; s < near->strips; s++) {
    const int end = s + 1 < near->strips ? near->first[s + 1] : tokens;
    ck_assert_int_eq(near->first[s], next);
    ck_assert_int_le(end - next, 32);
    for (int l = 0; l < lanes; l++) {
      float of_strip = -INFINITY;
      uint32_t bits = 0;
      for (int t = next; t < end; t++) of_strip = fmaxf(of_strip, p.score[t * SIMD_LANES + l]);
      for (int t = next; t < end; t++)
        bits |= (uint32_t)(p.score[t * SIMD_LANES + l] >= of_strip - reach[l]) << (t - next);
      ck_assert_msg(near->most[s][l] == of_strip && near->bits[s][l] == bits, "%s strip %d lane %d", name, s, l);
    }
    next = end;
  }
  ck_assert_int_eq(next, tokens);
  for (int l = 0; l < lanes; l++) {
    float all = -INFINITY;
    for (int t = 0; t < tokens; t++) all = fmaxf(all, p.score[t * SIMD_LANES + l]);
    ck_assert_msg(most[l] == all, "%s lane %d: %a, not %a", name, l, (double)most[l], (double)all);
  }
}

/* sift() has what pick() has, and of strips that reach `least` others that are near their strip's largest. */
static void check_sift(const simd_isa *isa, const simd_near *near, int tokens, int lanes, const float *reach,
                       const float *most) {
  static uint16_t want[SIMD_LANES * SIMD_TOKENS + 1], got[SIMD_LANES * SIMD_TOKENS + 1];
  static uint8_t seen[SIMD_TOKENS][SIMD_LANES];
  float least[SIMD_LANES];
  int one_each, last = -1;
  for (int l = 0; l < SIMD_LANES; l++) least[l] = l < lanes ? most[l] - reach[l] : NAN;
  const int count = isa->pick(p.score, tokens, least, want), sifted = isa->sift(near, least, got, &one_each);
  memset(seen, 0, sizeof seen);
  for (int i = 0; i < sifted; i++) {
    const int t = got[i] >> 8, l = got[i] & 0xff;
    ck_assert(t < tokens && l < lanes && !seen[t][l]);
    ck_assert(p.score[t * SIMD_LANES + l] >= least[l] - reach[l]);
    seen[t][l] = 1;
    if (one_each)
      ck_assert_int_eq(l, i);
    else
      ck_assert_int_ge(t, last);
    last = t;
  }
  for (int i = 0; i < count; i++) ck_assert_int_eq(seen[want[i] >> 8][want[i] & 0xff], 1);
  if (one_each) ck_assert_int_eq(sifted, SIMD_LANES);
}

static void check_all(const simd_isa *isa, simd_form form, int tokens, int dim, int lanes, float wide) {
  static simd_near near;
  static uint16_t list[SIMD_LANES + 3];
  static double want[SIMD_LANES + 3], got[SIMD_LANES + 3];
  const simd_filter *filter = form == SIMD_BF16 ? &isa->bf16 : &isa->f32;
  float reach[SIMD_LANES], most[SIMD_LANES], again[SIMD_LANES], center[SIMD_LANES];
  double unit;
  pack(isa, form, tokens, dim, lanes);
  for (int l = 0; l < SIMD_LANES; l++) reach[l] = wide * (float)(l % 5);
  for (int i = 0; i < SIMD_LANES + 3; i++)
    list[i] = (uint16_t)(draw() % (uint32_t)tokens << 8 | draw() % (uint32_t)lanes);
  ck_assert_int_eq(simd_split(isa, &p.group, &p.page, center, &unit), 1);
  isa->dots(&p.group, &p.page, list, SIMD_LANES + 3, SIMD_SPLIT, center, NULL, want);
  if (isa->enter) isa->enter();
  filter->run(p.group.q, p.page.keys, p.page.stride_bytes, tokens, lanes, p.group.padded_dim, p.score, &p.page.next);
  simd_later later = {&p.group, &p.page, list, center, got, SIMD_LANES + 3, 1};
  simd_scan scan = {p.room, most, &near, reach, &later};
  filter->scan(&p.group, &p.page, tokens, &scan);
  scan = (simd_scan){p.room, again, NULL, reach, NULL};
  filter->scan(&p.group, &p.page, tokens, &scan);
  if (isa->leave) isa->leave();
  check_near(isa->name, &near, tokens, lanes, reach, most);
  check_sift(isa, &near, tokens, lanes, reach, most);
  for (int l = 0; l < lanes; l++) ck_assert(most[l] == again[l]);
  ck_assert(later.done >= 1 && later.done <= later.count);
  for (int i = 1; i < later.done; i++) ck_assert(got[i] == want[i]);
  if (isa == &simd_amx && form == SIMD_BF16 && tokens == SIMD_TOKENS) ck_assert_int_eq(later.done, 1 + SIMD_LANES);
}

START_TEST(test_scan) {
  static const int dims[] = {16, 32, 48, 128, 176, 256};
  const int dim = dims[_i % 6], small = _i / 6;
  state = (uint64_t)_i;
  for (int i = 0; i < ISAS; i++)
    for (int form = SIMD_F32; form <= SIMD_BF16 && isas[i]->present(); form++) {
      if (!(form == SIMD_F32 ? isas[i]->f32.scan : isas[i]->bf16.scan)) continue;
      for (int tokens = SIMD_STRIP_STEP; tokens <= SIMD_TOKENS; tokens += SIMD_STRIP_STEP)
        for (int lanes = SIMD_LANES / 2 + 1; lanes <= SIMD_LANES; lanes += 5) {
          fill(p.q, SIMD_LANES * dim, small);
          fill(p.k, SIMD_TOKENS * dim, small);
          check_all(isas[i], (simd_form)form, tokens, dim, lanes, tokens % 32 ? 0.25f : 0x1p-12f);
        }
    }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("simd_scan");
  TCase *tcase = tcase_create("simd_scan");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, test_scan, 0, 12);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
