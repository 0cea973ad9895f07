/* SPDX-License-Identifier: Apache-2.0
 *
 * Every instruction set of this machine against the reference, byte for byte: scores and fused selections of
 * generated cases (S3, S4, S5).  Strided and special operands are test_simd_views.c, the bound test_simd_bound.c.
 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <stdio.h>
#include <string.h>

#include "case.h"
#include "unit.h"

static const char *const isas[] = {"scalar", "avx2", "avx512", "avx512bf16", "amx", "neon"};
enum { ISAS = sizeof isas / sizeof *isas };

/* Each line is there for something that the CPU path does differently. */
static const char *const lines[] = {
    /* causality inside a tile, a tile that starts mid-page, several groups of lanes */
    "--op prefill --q-lens 70,3 --prefix-lens 100,0 --heads 1 --topk 2 --seed 1",
    "--op prefill --q-lens 40,1,9 --prefix-lens 0,700,250 --heads 4 --topk 3 --seed 2",
    /* more lanes than a tile holds */
    "--op prefill --q-lens 130 --prefix-lens 200 --heads 4 --head-dim 16 --topk 2 --seed 3",
    "--op prefill --q-lens 90 --prefix-lens 30 --heads 2 --head-dim 256 --topk 2 --seed 4",
    /* more pages than a range, so that several units share a row */
    "--op decode --seq-lens 5000,1 --decode-query-len 2 --heads 2 --head-dim 32 --topk 5 --local 1 --seed 5",
    "--op decode --seq-lens 2,0,640 --decode-query-len 4 --heads 1 --topk 4 --init 1 --local 2 --seed 6",
    "--op decode --seq-lens 700,90 --heads 3 --block-size 16 --head-dim 48 --topk 16 --sparse-table 0 --seed 7",
    "--op decode --seq-lens 1000,257 --heads 2 --topk 4 --local 1 --sparse-table 1 --page-stride 16 --seed 8",
    /* the longest selections, in tiles that their keys make narrower, with and without parts to merge */
    "--op decode --seq-lens 3000 --heads 2 --block-size 16 --head-dim 16 --topk 128 --local 1 --seed 29",
    "--op prefill --q-lens 150 --prefix-lens 2200 --block-size 16 --head-dim 16 --topk 128 --contract atom --seed 30",
    "--op decode --seq-lens 4000 --block-size 16 --head-dim 16 --topk 100 --data ties --contract flashinfer --seed 31",
    /* few lanes: pages that are streamed and not packed */
    "--op decode --seq-lens 900,130 --decode-query-len 3 --head-dim 80 --data specials --topk 4 --seed 32",
    "--op decode --seq-lens 900 --heads 2 --head-dim 256 --k-dtype bf16 --q-dtype f32 --data near --topk 4 --seed 33",
    /* head dims that no vector or tile divides */
    "--op decode --seq-lens 300 --decode-query-len 3 --head-dim 80 --topk 3 --seed 9",
    "--op decode --seq-lens 300 --decode-query-len 17 --head-dim 176 --topk 3 --seed 10",
    "--op prefill --q-lens 33 --prefix-lens 95 --block-size 32 --head-dim 112 --topk 3 --seed 11",
    "--op prefill --q-lens 17 --prefix-lens 47 --block-size 64 --head-dim 208 --topk 3 --scale 0.088388346 --seed 12",
    /* exponents over the whole range: overflow, underflow, bounds that say nothing */
    "--op decode --seq-lens 400 --decode-query-len 5 --heads 2 --data wide --topk 4 --seed 13",
    "--op decode --seq-lens 400 --decode-query-len 5 --q-dtype f32 --k-dtype f32 --data wide --topk 4 --seed 14",
    "--op decode --seq-lens 400 --decode-query-len 5 --q-dtype e5m2 --k-dtype bf16 --data wide --scale 1e-20 --seed 15",
    /* maxima that only exact arithmetic orders */
    "--op decode --seq-lens 900 --decode-query-len 3 --heads 2 --data near --topk 4 --seed 16",
    "--op decode --seq-lens 900 --decode-query-len 3 --q-dtype f32 --k-dtype f32 --data near --topk 4 --seed 17",
    "--op prefill --q-lens 20 --prefix-lens 300 --q-dtype f16 --k-dtype f16 --data near --topk 4 --seed 18",
    /* many tokens at the maximum, ties of blocks */
    "--op decode --seq-lens 2000 --decode-query-len 5 --heads 2 --data ties --topk 8 --seed 19",
    "--op decode --seq-lens 2000 --data ties --topk 8 --contract aiter --seed 20",
    "--op prefill --q-lens 20 --prefix-lens 900 --heads 2 --data ties --topk 4 --contract sglang --seed 21",
    /* infinities and NaN in some tokens and rows, under every NaN rule */
    "--op decode --seq-lens 700 --decode-query-len 8 --heads 2 --data specials --topk 6 --seed 22",
    "--op decode --seq-lens 700 --data specials --topk 6 --contract aiter --seed 23",
    "--op decode --seq-lens 700 --data specials --topk 6 --contract atom --q-dtype f16 --seed 24",
    "--op decode --seq-lens 700 --data specials --topk 6 --contract flashinfer --k-dtype e4m3fn --seed 25",
    "--op prefill --q-lens 12 --prefix-lens 200 --heads 3 --data specials --q-dtype e4m3fnuz --k-dtype e5m2 --seed 26",
    /* no rows, no keys, capacity beyond the live blocks */
    "--op decode --seq-lens 0,0 --max-block 3 --topk 2 --seed 27",
    "--op prefill --q-lens 0,2,0 --prefix-lens 5,0,0 --max-block 9 --topk 4 --seed 28",
};
enum { LINES = sizeof lines / sizeof *lines };

static m3idx_context *open_isa(const char *backend, const char *isa, int threads, char *why) {
  m3idx_context *ctx = NULL;
  const m3idx_options options = {.backend = backend, .num_threads = threads};
  if (isa) setenv("M3IDX_ISA", isa, 1);
  const m3idx_status status = m3idx_open(&ctx, &options, why, CASE_MESSAGE_BYTES);
  unsetenv("M3IDX_ISA");
  ck_assert_msg(status == M3IDX_OK || status == M3IDX_UNAVAILABLE, "%s %s: %s", backend, isa ? isa : "", why);
  return ctx;
}

/* The tensors that a run adds are the same bytes in both files. */
static void same(const case_file *want, const case_file *got, const char *line, const char *isa, int threads) {
  for (int64_t i = 0; i < want->num_tensors; i++) {
    const case_tensor *w = &want->tensors[i], *g = case_find(got, w->name);
    ck_assert_msg(g && g->bytes == w->bytes, "%s: %s has no %s", line, isa, w->name);
    for (size_t at = 0; at < w->bytes; at += 4)
      if (memcmp((const char *)w->data + at, (const char *)g->data + at, 4) != 0) {
        uint32_t a, b;
        memcpy(&a, (const char *)w->data + at, 4);
        memcpy(&b, (const char *)g->data + at, 4);
        ck_abort_msg("%s: %s, %d threads: %s[%zu]: want 0x%08x got 0x%08x", line, isa, threads, w->name, at / 4, a, b);
      }
  }
}

static void check_line(const char *line, m3idx_dtype q, m3idx_dtype k, int use_dtypes) {
  char why[CASE_MESSAGE_BYTES];
  case_spec spec;
  ck_assert_msg(!case_spec_parse_line(line, &spec, why), "%s: %s", line, why);
  if (use_dtypes) {
    spec.q_dtype = q;
    spec.k_dtype = k;
  }
  char *name = case_spec_format(&spec);
  for (int with_score = 0; with_score < 2; with_score++) {
    case_file want;
    m3idx_context *ref = open_isa("ref", NULL, 0, why);
    ck_assert_msg(!case_generate(&spec, &want, why), "%s: %s", name, why);
    ck_assert_msg(case_run(ref, &want, with_score, why) == M3IDX_OK, "%s: %s", name, why);
    m3idx_close(ref);
    for (int i = 0; i < ISAS; i++)
      for (int threads = 1; threads <= 5; threads += 2) {
        case_file got;
        m3idx_context *cpu = open_isa("cpu", isas[i], threads, why);
        if (!cpu) continue;
        ck_assert(!case_generate(&spec, &got, why));
        ck_assert_msg(case_run(cpu, &got, with_score, why) == M3IDX_OK, "%s: %s: %s", name, isas[i], why);
        same(&want, &got, name, isas[i], threads);
        case_file_free(&got);
        m3idx_close(cpu);
      }
    case_file_free(&want);
  }
  free(name);
  case_spec_free(&spec);
}

START_TEST(test_lines) { check_line(lines[_i], M3IDX_BF16, M3IDX_BF16, 0); }
END_TEST

/* Every pair of formats on one small problem of each kind of data. */
START_TEST(test_formats) {
  static const char *const kinds[] = {"normal", "specials", "wide"};
  const m3idx_dtype q = (m3idx_dtype)(_i / M3IDX_DTYPE_COUNT), k = (m3idx_dtype)(_i % M3IDX_DTYPE_COUNT);
  for (int i = 0; i < 3; i++) {
    char line[200];
    snprintf(line, sizeof line, "--op decode --seq-lens 200 --decode-query-len 3 --head-dim 48 --topk 2 --data %s",
             kinds[i]);
    check_line(line, q, k, 1);
  }
}
END_TEST

/* A word that no build knows, and one that this machine lacks. */
START_TEST(test_words) {
  char why[CASE_MESSAGE_BYTES];
  m3idx_context *ctx = NULL;
  const m3idx_options options = {.backend = "cpu"};
  setenv("M3IDX_ISA", "sse9", 1);
  ck_assert_int_eq(m3idx_open(&ctx, &options, why, sizeof why), M3IDX_INVALID);
  ck_assert_ptr_nonnull(strstr(why, "scalar, avx2, avx512, avx512bf16, amx, neon"));
#if defined(__x86_64__)
  setenv("M3IDX_ISA", "neon", 1);
#else
  setenv("M3IDX_ISA", "avx2", 1);
#endif
  ck_assert_int_eq(m3idx_open(&ctx, &options, why, sizeof why), M3IDX_UNAVAILABLE);
  unsetenv("M3IDX_ISA");
  ck_assert_int_eq(m3idx_open(&ctx, &options, why, sizeof why), M3IDX_OK);
  ck_assert_ptr_nonnull(strstr(m3idx_backend_details(ctx), "isa "));
  char chosen[sizeof why * 2];
  snprintf(chosen, sizeof chosen, "%s", m3idx_backend_details(ctx));
  m3idx_close(ctx);
  setenv("M3IDX_ISA", "", 1); /* as good as unset */
  ck_assert_int_eq(m3idx_open(&ctx, &options, why, sizeof why), M3IDX_OK);
  ck_assert_str_eq(chosen, m3idx_backend_details(ctx));
  unsetenv("M3IDX_ISA");
  m3idx_close(ctx);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("simd_match");
  TCase *tcase = tcase_create("simd_match");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, test_lines, 0, LINES);
  tcase_add_loop_test(tcase, test_formats, 0, M3IDX_DTYPE_COUNT * M3IDX_DTYPE_COUNT);
  tcase_add_test(tcase, test_words);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
