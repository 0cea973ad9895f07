/* SPDX-License-Identifier: Apache-2.0
 *
 * test_judge_honest COUNT [SEED]: COUNT random implementations on random small cases, each honest by one declaration,
 * never draw a "wrong"; and each, with one score moved one float past what the declaration allows, always does.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "foreign.h"
#include "rows.h"

static int below(uint64_t *state, int n) { return (int)(foreign_random(state) % (uint64_t)n); }

static void random_line(uint64_t *state, judge_arith arith, char *line, size_t bytes) {
  static const char *const data[] = {"normal", "ties", "specials", "wide", "near"};
  static const char *const formats[] = {"bf16", "f16", "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "f32"};
  static const char *const contracts[] = {"vllm", "aiter", "atom", "sglang", "flashinfer"};
  int q = below(state, arith == JUDGE_F32 ? 7 : 6), k = below(state, 3) ? q : 2 + below(state, 4);
  int n = snprintf(line, bytes,
                   "--heads %d --head-dim %d --block-size %d --topk %d --init %d --local %d --q-dtype %s --k-dtype %s "
                   "--data %s --contract %s --scale %s --seed %u ",
                   1 + below(state, 2), 16 << below(state, 3), 16 << below(state, 2), 1 + below(state, 6),
                   below(state, 4) ? 0 : 1, below(state, 2), formats[q], formats[k], data[below(state, 5)],
                   contracts[below(state, 5)], below(state, 3) ? "1" : "0.0883883461", (unsigned)below(state, 1 << 30));
  if (below(state, 2))
    snprintf(line + n, bytes - (size_t)n, "--op decode --seq-lens %d,%d --decode-query-len %d", below(state, 300),
             1 + below(state, 100), 1 + below(state, 2));
  else
    snprintf(line + n, bytes - (size_t)n, "--op prefill --q-lens %d,1 --prefix-lens %d,%d", 1 + below(state, 2),
             below(state, 200), below(state, 60));
}

typedef struct implementation {
  judge_options options;
  foreign_kind kind;
  int block;
} implementation;

static implementation random_implementation(uint64_t *state) {
  static const foreign_kind f32[] = {FOREIGN_RANDOM,   FOREIGN_RANDOM,   FOREIGN_RANDOM, FOREIGN_F32,
                                     FOREIGN_FMA_DOWN, FOREIGN_PAIRWISE, FOREIGN_SPLIT,  FOREIGN_PERMUTED};
  implementation i = {.options.arith = JUDGE_F32, .kind = f32[below(state, 8)]};
  int which = below(state, 8);
  if (which == 0) i = (implementation){{.arith = JUDGE_F32, .flush = true}, FOREIGN_FLUSH, 0};
  if (which == 1) i = (implementation){{.arith = JUDGE_BF16_MMA}, FOREIGN_MMA, 1 << below(state, 6)};
  if (which == 2) {
    int block = 4 << below(state, 3);
    i = (implementation){{.arith = JUDGE_BF16_MMA, .k_block = block}, FOREIGN_MMA, block};
  }
  if (which == 3) i = (implementation){{.arith = JUDGE_CDNA3_MFMA}, FOREIGN_MFMA_PERMUTED, 0};
  return i;
}

/* Move one score of a row just past the set that the report shows for it. */
static bool spoil(foreign *f, const judge_report *r, uint64_t *state) {
  int64_t i = below(state, (int)(f->view.H * f->view.T));
  const judge_row *row = &r->row[i];
  float forced;
  int64_t b = row->score_block;
  if (b < 0 || b >= row->blocks || (f->view.op == CASE_DECODE && judge_forced(&f->view, row->blocks, b, &forced)))
    return false;
  if (!isfinite(row->score_got)) return false;
  bool up = below(state, 2);
  float past = nextafterf(up ? row->score_high : row->score_low, up ? INFINITY : -INFINITY);
  if (!isfinite(past)) return false;
  f->score[i * f->view.M + b] = past;
  return true;
}

static int try_one(uint64_t seed, long *spoiled) {
  const foreign_faults none = {0};
  char line[512], why[CASE_MESSAGE_BYTES] = "";
  uint64_t state = seed;
  foreign f;
  judge_report r;
  implementation i = random_implementation(&state);
  judge_bound bound;
  case_spec spec;
  bool impossible = true;
  while (impossible) { /* until a line whose formats the arithmetic takes */
    random_line(&state, i.options.arith, line, sizeof line);
    if (case_spec_parse_line(line, &spec, why)) {
      printf("%s: %s\n", line, why);
      return 1;
    }
    impossible = judge_bound_of(i.options.arith, i.options.flush, i.options.k_block, (int)spec.head_dim, spec.q_dtype,
                                spec.k_dtype, &bound, why) != 0;
    case_spec_free(&spec);
  }
  foreign_make(&f, line, i.kind, i.block, state, &none);
  if (below(&state, 4) == 0 && f.view.sparse_table == 0) case_remove_tensor(&f.theirs, "topk_idx");
  int bad = judge_run(&i.options, &f.golden, &f.theirs, &r, why);
  bool wrong = !bad && judge_wrong(&r);
  if (bad || wrong)
    printf("seed %llu: %s, kind %d, block %d: %s\n", (unsigned long long)seed, line, i.kind, i.block,
           bad ? why : "judged wrong");
  if (wrong) judge_text(&r, "golden", "theirs", stdout);
  if (!bad && !wrong && spoil(&f, &r, &state)) {
    judge_free(&r);
    bad = judge_run(&i.options, &f.golden, &f.theirs, &r, why) || !judge_score_wrong(&r);
    ++*spoiled;
    if (bad) printf("seed %llu: %s: a score past the bound was let through\n", (unsigned long long)seed, line);
  }
  judge_free(&r);
  foreign_free(&f);
  return bad || wrong;
}

int main(int argc, char **argv) {
  long count = argc > 1 ? strtol(argv[1], NULL, 10) : 300, failed = 0, spoiled = 0;
  uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  for (long i = 0; i < count; i++) failed += try_one(seed * 1000003 + (uint64_t)i, &spoiled);
  printf("%ld honest implementations, %ld made dishonest by one float, %ld judged amiss\n", count, spoiled, failed);
  return failed || count < 1 || spoiled < count / 4 ? EXIT_FAILURE : EXIT_SUCCESS;
}
