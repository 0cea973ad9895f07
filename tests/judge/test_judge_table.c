/* SPDX-License-Identifier: Apache-2.0
 *
 * Prepared foreign files and the verdict that each must get.  The wanted verdicts are what the fault means by
 * SEMANTICS, written down by hand.  Ids with a dash in front of the list are those of inputs that broke other
 * implementations.
 */
#include <check.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "foreign.h"
#include "rows.h"
#include "unit.h"

#define DECODE "--op decode --seq-lens 700,2600,1300,129 --heads 2 --head-dim 32 --topk 8 --seed 1"
#define SQUARE "--op decode --seq-lens 1300x4 --heads 4 --head-dim 32 --topk 4 --seed 2"
#define PREFILL "--op prefill --q-lens 3,2 --prefix-lens 1000,330 --heads 2 --head-dim 32 --topk 2 --seed 3"
#define NEAR "--op decode --seq-lens 2600x4 --heads 2 --head-dim 128 --topk 8 --data near --seed 4"
#define TIES "--op decode --seq-lens 2600x4 --heads 2 --head-dim 32 --topk 8 --data ties --seed 5"
#define SELECT "--op select --num-blocks 700,900 --topk 16 --seed 6"

enum { ANY = -1 };

typedef struct table_row {
  const char *name, *line;
  foreign_kind kind;
  int block;
  foreign_faults faults;
  void (*spoil)(foreign *f);
  judge_arith arith;
  bool flush;
  /* The wanted verdict: wrong or not, and the worst kind in each part. */
  bool wrong;
  int select, score, swap;
  const char *contract; /* the nearest that explains it */
  const char *hint;
} table_row;

/* ---- spoilers: one fault each ---- */

static int32_t *ids(foreign *f, int64_t h, int64_t t) { return f->topk_idx + (h * f->view.T + t) * f->view.K; }
static float *scores(foreign *f, int64_t h, int64_t t) { return f->score + (h * f->view.T + t) * f->view.M; }

static void transpose(const foreign *f, void *data, size_t row_bytes) {
  const m3idx_case *c = &f->view;
  static char kept[1 << 16];
  ck_assert_uint_le((size_t)(c->H * c->T) * row_bytes, sizeof kept);
  memcpy(kept, data, (size_t)(c->H * c->T) * row_bytes);
  for (int64_t h = 0; h < c->H; h++)
    for (int64_t t = 0; t < c->T; t++)
      memcpy((char *)data + (size_t)(t * c->H + h) * row_bytes, kept + (size_t)(h * c->T + t) * row_bytes, row_bytes);
}
static void transposed_ids(foreign *f) { transpose(f, f->topk_idx, (size_t)f->view.K * 4); }
static void transposed_both(foreign *f) {
  transposed_ids(f);
  transpose(f, f->score, (size_t)f->view.M * 4);
}
static void first_head_everywhere(foreign *f) {
  for (int64_t h = 1; h < f->view.H; h++)
    for (int64_t t = 0; t < f->view.T; t++) {
      memcpy(ids(f, h, t), ids(f, 0, t), (size_t)f->view.K * 4);
      memcpy(scores(f, h, t), scores(f, 0, t), (size_t)f->view.M * 4);
    }
}
static void select_by(foreign *f, const char *name, int64_t cut) {
  m3idx_contract contract;
  ck_assert_int_eq(m3idx_contract_by_name(name, &contract), M3IDX_OK);
  foreign_select(f, &contract, cut);
}
static void nan_by_bits(foreign *f) { select_by(f, "tie=lower,nan=bits,zero=equal,order=score", INT64_MAX); }
static void higher_ids(foreign *f) { select_by(f, "tie=higher,nan=-1e30,zero=equal,order=score", INT64_MAX); }
static void by_aiter(foreign *f) { select_by(f, "aiter", INT64_MAX); }
static void by_sglang(foreign *f) { select_by(f, "sglang", INT64_MAX); }
static void cut_at_128(foreign *f) { select_by(f, "vllm", 128); }
static void cut_at_512(foreign *f) { select_by(f, "vllm", 512); }
static void duplicate(foreign *f) { ids(f, 1, 1)[3] = ids(f, 1, 1)[1]; }
static void hole(foreign *f) { ids(f, 1, 1)[7] = -1; }
static void garbage_tail(foreign *f) { ids(f, 0, 3)[7] = 0; }
static void id_past_n(foreign *f) { ids(f, 0, 0)[5] = 6; }
static void id_past_m(foreign *f) { ids(f, 0, 0)[5] = INT_MAX; }
static void id_minus_two(foreign *f) { ids(f, 0, 0)[7] = -2; }
static void id_in_empty_row(foreign *f) { ids(f, 0, 0)[0] = 0; }
static void swapped(foreign *f) {
  int32_t *row = ids(f, 0, 1), kept = row[0];
  row[0] = row[1];
  row[1] = kept;
}
static void stale_ids(foreign *f) { memcpy(ids(f, 0, 2), ids(f, 0, 1), (size_t)f->view.K * 4); }
static void stale_scores(foreign *f) {
  memcpy(scores(f, 0, 2), scores(f, 0, 1), (size_t)f->view.M * 4);
  stale_ids(f);
}
static void mask(foreign *f, float value) {
  for (int64_t i = 0; i < f->view.H * f->view.T; i++)
    for (int64_t b = tool_row_of(&f->view, i % f->view.T).blocks; b < f->view.M; b++)
      f->score[i * f->view.M + b] = value;
}
static void masked_zero(foreign *f) { mask(f, 0); }
static void masked_nan(foreign *f) { mask(f, NAN); }
static void masked_lowest(foreign *f) { mask(f, -3.402823466e38f); }
static void all_nan(foreign *f) {
  for (int64_t i = 0; i < f->view.H * f->view.T * f->view.M; i++) f->score[i] = NAN;
  select_by(f, "vllm", INT64_MAX);
}
static void coarse_bins(foreign *f) { /* selected by the upper 16 bits of each score */
  static float kept[4096];
  float *score = f->score ? f->score : case_find(&f->theirs, "score")->data;
  size_t n = (size_t)(f->view.H * f->view.T * f->view.M);
  ck_assert_uint_le(n, 4096);
  memcpy(kept, score, n * 4);
  for (size_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &score[i], 4);
    bits &= 0xffff0000;
    memcpy(&score[i], &bits, 4);
  }
  select_by(f, "vllm", INT64_MAX);
  memcpy(score, kept, n * 4);
}
static void stored_as_bf16(foreign *f) {
  for (int64_t i = 0; i < f->view.H * f->view.T * f->view.M; i++) {
    uint32_t bits;
    memcpy(&bits, &f->score[i], 4);
    bits &= 0xffff0000;
    memcpy(&f->score[i], &bits, 4);
  }
  select_by(f, "vllm", INT64_MAX);
}
static void local_kept_over_init(foreign *f) {
  for (int64_t i = 0; i < f->view.H * f->view.T; i++)
    ids(f, i / f->view.T, i % f->view.T)[f->view.K - 1] = (int32_t)tool_row_of(&f->view, i % f->view.T).blocks - 1;
}
static void init_over_local(foreign *f) {
  for (int64_t i = 0; i < f->view.H * f->view.T; i++)
    for (int64_t b = 0; b < f->view.init_blocks; b++) f->score[i * f->view.M + b] = 1e30f;
}
static void forced_scaled(foreign *f) {
  for (int64_t i = 0; i < f->view.H * f->view.T; i++)
    f->score[i * f->view.M + tool_row_of(&f->view, i % f->view.T).blocks - 1] = 2e29f;
}
static void local_first(foreign *f) { /* a forced block as a rank, not as a value */
  for (int64_t i = 0; i < f->view.H * f->view.T; i++)
    ids(f, i / f->view.T, i % f->view.T)[0] = (int32_t)tool_row_of(&f->view, i % f->view.T).blocks - 1;
}
static void local_dropped(foreign *f) {
  f->view.local_blocks = 0;
  select_by(f, "vllm", INT64_MAX);
}
static void without_scores(foreign *f) { case_remove_tensor(&f->theirs, "score"); }
static void without_scores_swapped(foreign *f) {
  swapped(f);
  without_scores(f);
}
static void without_scores_wrong(foreign *f) { /* the worst block in place of the best */
  int64_t worst = 0;
  for (int64_t b = 1; b < tool_row_of(&f->view, 1).blocks; b++)
    if (scores(f, 0, 1)[b] < scores(f, 0, 1)[worst]) worst = b;
  ids(f, 0, 1)[0] = (int32_t)worst;
  without_scores(f);
}
static void outputs_only(foreign *f) {
  while (f->theirs.num_metadata) {
    case_pair *pair = &f->theirs.metadata[--f->theirs.num_metadata];
    free(pair->key);
    free(pair->value);
  }
  case_remove_tensor(&f->theirs, "q");
  case_remove_tensor(&f->theirs, "index_k");
}
static void minus_zero(foreign *f) { scores(f, 0, 0)[0] = -0.0f; }
static void one_ulp_off(foreign *f) { scores(f, 0, 1)[9] = nextafterf(scores(f, 0, 1)[9], INFINITY); }

/* ---- the table ---- */

#define RIGHT3 .select = SELECT_RIGHT, .score = SCORE_RIGHT
#define WRONG .wrong = true

static const table_row table[] = {
    /* honest */
    {"exact", DECODE, FOREIGN_EXACT, .arith = JUDGE_EXACT, RIGHT3, .swap = SWAP_SAME},
    {"exact as f32", DECODE, FOREIGN_EXACT, .arith = JUDGE_F32, RIGHT3, .swap = SWAP_SAME},
    {"f32 ascending", NEAR, FOREIGN_F32, .arith = JUDGE_F32, RIGHT3, .swap = ANY},
    {"f32 fused descending", NEAR, FOREIGN_FMA_DOWN, .arith = JUDGE_F32, RIGHT3, .swap = ANY},
    {"f32 pairwise", NEAR, FOREIGN_PAIRWISE, .arith = JUDGE_F32, RIGHT3, .swap = ANY},
    {"f32 split into chains", NEAR, FOREIGN_SPLIT, .arith = JUDGE_F32, RIGHT3, .swap = ANY},
    {"f32 any tree", NEAR, FOREIGN_RANDOM, .arith = JUDGE_F32, RIGHT3, .swap = ANY},
    {"f32 permuted k", DECODE, FOREIGN_PERMUTED, .arith = JUDGE_F32, RIGHT3, .swap = ANY},
    {"f32 on exact ties", TIES, FOREIGN_RANDOM, .arith = JUDGE_F32, RIGHT3, .swap = SWAP_SAME},
    {"f32 specials", DECODE " --data specials", FOREIGN_F32, .arith = JUDGE_F32, RIGHT3, .swap = ANY},
    {"f32 wide f32", DECODE " --data wide --q-dtype f32 --k-dtype f32", FOREIGN_RANDOM, .arith = JUDGE_F32, RIGHT3,
     .swap = ANY},
    {"f32 flushed", DECODE " --data wide", FOREIGN_FLUSH, .arith = JUDGE_F32, .flush = true, RIGHT3, .swap = ANY},
    {"f32 scaled", DECODE " --scale 0.088388346", FOREIGN_F32, .arith = JUDGE_F32, RIGHT3, .swap = ANY},
    {"f32 forced, prefill", PREFILL " --local 1 --init 1", FOREIGN_F32, .arith = JUDGE_F32, RIGHT3, .swap = ANY},
    {"mma 4", NEAR, FOREIGN_MMA, 4, .arith = JUDGE_BF16_MMA, RIGHT3, .swap = ANY},
    {"mma 16 fp8", DECODE " --q-dtype e4m3fn --k-dtype e5m2", FOREIGN_MMA, 16, .arith = JUDGE_BF16_MMA, RIGHT3,
     .swap = ANY},
    {"mma 32 f16 wide", DECODE " --q-dtype f16 --k-dtype f16 --data wide", FOREIGN_MMA, 32, .arith = JUDGE_BF16_MMA,
     RIGHT3, .swap = ANY},
    {"gfx942 bf16", NEAR, FOREIGN_MFMA, .arith = JUDGE_CDNA3_MFMA, RIGHT3, .swap = ANY},
    {"gfx942 permuted k", DECODE, FOREIGN_MFMA_PERMUTED, .arith = JUDGE_CDNA3_MFMA, RIGHT3, .swap = ANY},
    {"gfx942 fp8", DECODE " --q-dtype e4m3fnuz --k-dtype e5m2fnuz --data wide", FOREIGN_MFMA, 16,
     .arith = JUDGE_CDNA3_MFMA, RIGHT3, .swap = ANY},
    {"topk_idx alone, f32", NEAR, FOREIGN_F32, .spoil = without_scores, .arith = JUDGE_F32, RIGHT3, .swap = ANY},
    {"outputs alone", DECODE, FOREIGN_F32, .spoil = outputs_only, .arith = JUDGE_F32, RIGHT3, .swap = ANY},
    {"one ulp off, f32", DECODE, FOREIGN_EXACT, .spoil = one_ulp_off, .arith = JUDGE_F32, RIGHT3, .swap = SWAP_SAME},

    /* declared to be what they are not */
    {"f32 declared exact", NEAR, FOREIGN_F32, .arith = JUDGE_EXACT, WRONG, .select = SELECT_RIGHT,
     .score = SCORE_OUTSIDE, .swap = ANY},
    {"bf16 sums declared f32", DECODE, FOREIGN_HALF, .arith = JUDGE_F32, WRONG, .select = SELECT_RIGHT,
     .score = SCORE_OUTSIDE, .swap = ANY},
    {"bf16 sums declared mma", DECODE, FOREIGN_HALF, .arith = JUDGE_BF16_MMA, WRONG, .select = SELECT_RIGHT,
     .score = SCORE_OUTSIDE, .swap = ANY},
    {"scores stored as bf16", DECODE, FOREIGN_F32, .spoil = stored_as_bf16, .arith = JUDGE_F32, WRONG,
     .select = SELECT_RIGHT, .score = SCORE_OUTSIDE, .swap = ANY},
    {"one ulp off, exact", DECODE, FOREIGN_EXACT, .spoil = one_ulp_off, .arith = JUDGE_EXACT, WRONG,
     .select = SELECT_RIGHT, .score = SCORE_OUTSIDE, .swap = SWAP_SAME},
    {"-0 for a score, exact", DECODE, FOREIGN_EXACT, .spoil = minus_zero, .arith = JUDGE_EXACT, WRONG, .select = ANY,
     .score = SCORE_OUTSIDE, .swap = SWAP_SAME},

    /* wrong scores */
    {"fp8-0x80: keys by the twin's encoding", DECODE " --k-dtype e4m3fnuz", FOREIGN_F32,
     .faults = {.other_encoding = true}, .arith = JUDGE_F32, WRONG, .select = SELECT_RIGHT, .score = SCORE_OUTSIDE,
     .swap = SWAP_SAME},
    {"left-pad: blocks begin a token late", DECODE, FOREIGN_F32, .faults = {.token_shift = 1}, .arith = JUDGE_F32,
     WRONG, .select = SELECT_RIGHT, .score = SCORE_OUTSIDE, .swap = ANY},
    {"last element of the dot left out", DECODE, FOREIGN_F32, .faults = {.skip_last_d = 1}, .arith = JUDGE_F32, WRONG,
     .select = SELECT_RIGHT, .score = SCORE_OUTSIDE, .swap = ANY},
    {"last token unseen", DECODE, FOREIGN_F32, .faults = {.tokens_more = -1}, .arith = JUDGE_F32, WRONG,
     .select = SELECT_RIGHT, .score = SCORE_SPECIAL, .swap = ANY},
    {"sees the future", PREFILL, FOREIGN_F32, .faults = {.tokens_more = 16}, .arith = JUDGE_F32, WRONG,
     .select = SELECT_RIGHT, .score = SCORE_OUTSIDE, .swap = ANY},
    {"scale forgotten", DECODE " --scale 0.5", FOREIGN_F32, .faults = {.no_scale = true}, .arith = JUDGE_F32, WRONG,
     .select = SELECT_RIGHT, .score = SCORE_OUTSIDE, .swap = SWAP_SAME},
    {"per-head: head 0 for every head", SQUARE, FOREIGN_F32, .spoil = first_head_everywhere, .arith = JUDGE_F32, WRONG,
     .select = SELECT_RIGHT, .score = SCORE_OUTSIDE, .swap = SWAP_WRONG},
    {"stale row", SQUARE, FOREIGN_F32, .spoil = stale_scores, .arith = JUDGE_F32, WRONG, .select = SELECT_RIGHT,
     .score = SCORE_OUTSIDE, .swap = SWAP_WRONG, .hint = "right answer of the row before"},
    {"all NaN", SQUARE, FOREIGN_F32, .spoil = all_nan, .arith = JUDGE_F32, WRONG, .select = SELECT_RIGHT,
     .score = SCORE_SPECIAL, .swap = SWAP_WRONG, .hint = "every score is NaN"},
    {"dirty-tail: zeros past N", DECODE, FOREIGN_F32, .spoil = masked_zero, .arith = JUDGE_F32, WRONG,
     .select = SELECT_RIGHT, .score = SCORE_MASKED, .swap = ANY, .hint = "must be -inf"},
    {"dirty-tail: NaN past N", DECODE, FOREIGN_EXACT, .spoil = masked_nan, .arith = JUDGE_EXACT, WRONG,
     .select = SELECT_RIGHT, .score = SCORE_MASKED, .swap = SWAP_SAME},
    {"lowest float past N", DECODE, FOREIGN_EXACT, .spoil = masked_lowest, .arith = JUDGE_BF16_MMA, WRONG,
     .select = SELECT_RIGHT, .score = SCORE_MASKED, .swap = SWAP_SAME},
    {"overlap: init over local", "--op decode --seq-lens 200 --head-dim 32 --topk 4 --init 2 --local 3", FOREIGN_F32,
     .spoil = init_over_local, .arith = JUDGE_F32, WRONG, .select = SELECT_RIGHT, .score = SCORE_FORCED,
     .swap = SWAP_SAME},
    {"forced value scaled", DECODE " --local 1 --scale 2", FOREIGN_F32, .spoil = forced_scaled, .arith = JUDGE_F32,
     WRONG, .select = SELECT_RIGHT, .score = SCORE_FORCED, .swap = ANY},

    /* wrong selections */
    {"layout-th: T = H", SQUARE, FOREIGN_EXACT, .spoil = transposed_ids, .arith = JUDGE_EXACT, WRONG,
     .select = SELECT_MISSING, .score = SCORE_RIGHT, .swap = SWAP_WRONG, .hint = "topk_idx is right if its rows"},
    {"layout-th: T = H, scores too", SQUARE, FOREIGN_EXACT, .spoil = transposed_both, .arith = JUDGE_F32, WRONG,
     .select = SELECT_RIGHT, .score = SCORE_OUTSIDE, .swap = SWAP_WRONG, .hint = "layout is transposed"},
    {"layout-th: T = 5", PREFILL, FOREIGN_EXACT, .spoil = transposed_ids, .arith = JUDGE_F32, WRONG,
     .select = SELECT_CAUSAL, .score = SCORE_RIGHT, .swap = SWAP_WRONG, .hint = "topk_idx is right if its rows"},
    {"nan-row: NaN by its bits", SELECT " --data specials", .spoil = nan_by_bits, WRONG, .select = SELECT_MISSING,
     .score = SCORE_RIGHT, .swap = SWAP_WRONG, .contract = "tie=lower,nan=bits,zero=equal,order=score"},
    {"nan-many: an id twice", DECODE, FOREIGN_EXACT, .spoil = duplicate, .arith = JUDGE_F32, WRONG,
     .select = SELECT_DUPLICATE, .score = SCORE_RIGHT, .swap = SWAP_WRONG},
    {"nan-vs-sentinel: an empty slot", DECODE, FOREIGN_EXACT, .spoil = hole, .arith = JUDGE_F32, WRONG,
     .select = SELECT_HOLE, .score = SCORE_RIGHT, .swap = SWAP_WRONG},
    {"all-equal: higher ids", TIES, FOREIGN_F32, .spoil = higher_ids, .arith = JUDGE_F32, WRONG, .select = SELECT_TIE,
     .score = SCORE_RIGHT, .swap = SWAP_TIE, .contract = "tie=higher,nan=-1e30,zero=equal,order=score"},
    {"zeros-8320: higher ids", "--op select --num-blocks 8320 --topk 128 --data ties", .spoil = higher_ids, WRONG,
     .select = SELECT_TIE, .score = SCORE_RIGHT, .swap = SWAP_TIE,
     .contract = "tie=higher,nan=-1e30,zero=equal,order=score"},
    {"another contract, aiter", SELECT " --data specials", .spoil = by_aiter, WRONG, .select = ANY,
     .score = SCORE_RIGHT, .swap = ANY, .contract = "*"},
    {"another contract, sglang", DECODE, FOREIGN_EXACT, .spoil = by_sglang, .arith = JUDGE_EXACT, WRONG,
     .select = SELECT_ORDER, .score = SCORE_RIGHT, .swap = SWAP_ORDER,
     .contract = "tie=lower,nan=-1e30,zero=equal,order=id"},
    {"near-one: coarse bins", NEAR, FOREIGN_EXACT, .spoil = coarse_bins, .arith = JUDGE_EXACT, WRONG,
     .select = SELECT_MISSING, .score = SCORE_RIGHT, .swap = SWAP_WRONG},
    {"ramp: N cut at 128", SELECT, .spoil = cut_at_128, WRONG, .select = SELECT_MISSING, .score = SCORE_RIGHT,
     .swap = SWAP_WRONG, .hint = "is N cut at 128"},
    {"capacity-live: N cut at 512", SELECT, .spoil = cut_at_512, WRONG, .select = SELECT_MISSING, .score = SCORE_RIGHT,
     .swap = SWAP_WRONG, .hint = "is N cut at 512"},
    {"shared-high-bits: stale ids", SQUARE, FOREIGN_EXACT, .spoil = stale_ids, .arith = JUDGE_F32, WRONG,
     .select = SELECT_MISSING, .score = SCORE_RIGHT, .swap = SWAP_WRONG, .hint = "right answer of the row before"},
    {"swapped order", DECODE, FOREIGN_EXACT, .spoil = swapped, .arith = JUDGE_F32, WRONG, .select = SELECT_ORDER,
     .score = SCORE_RIGHT, .swap = SWAP_ORDER},
    {"swapped order, no scores", DECODE, FOREIGN_EXACT, .spoil = without_scores_swapped, .arith = JUDGE_F32, WRONG,
     RIGHT3, .swap = SWAP_ORDER},
    {"wrong block, no scores", DECODE, FOREIGN_EXACT, .spoil = without_scores_wrong, .arith = JUDGE_BF16_MMA, WRONG,
     RIGHT3, .swap = SWAP_WRONG},
    {"tail garbage", DECODE, FOREIGN_EXACT, .spoil = garbage_tail, .arith = JUDGE_F32, WRONG, .select = SELECT_TAIL,
     .score = SCORE_RIGHT, .swap = SWAP_WRONG},
    {"dirty-tail: a masked block taken", DECODE, FOREIGN_EXACT, .spoil = id_past_n, .arith = JUDGE_F32, WRONG,
     .select = SELECT_CAUSAL, .score = SCORE_RIGHT, .swap = SWAP_WRONG},
    {"id past the capacity", DECODE, FOREIGN_EXACT, .spoil = id_past_m, .arith = JUDGE_F32, WRONG,
     .select = SELECT_RANGE, .score = SCORE_RIGHT, .swap = SWAP_WRONG},
    {"id -2 in the tail", DECODE, FOREIGN_EXACT, .spoil = id_minus_two, .arith = JUDGE_F32, WRONG,
     .select = SELECT_RANGE, .score = SCORE_RIGHT, .swap = SWAP_WRONG},
    {"qlen-past-seq: an id in an empty row", "--op decode --seq-lens 2 --decode-query-len 4 --head-dim 32 --topk 2",
     FOREIGN_EXACT, .spoil = id_in_empty_row, .arith = JUDGE_F32, WRONG, .select = SELECT_CAUSAL, .score = SCORE_RIGHT,
     .swap = SWAP_WRONG},
    {"init-eats-local: local kept", PREFILL " --init 8 --local 1", FOREIGN_EXACT, .spoil = local_kept_over_init,
     .arith = JUDGE_F32, WRONG, .select = SELECT_FORCED, .score = SCORE_RIGHT, .swap = SWAP_FORCED},
    {"outrank: local as a rank", PREFILL " --local 1 --scale 1e36", FOREIGN_EXACT, .spoil = local_first,
     .arith = JUDGE_F32, WRONG, .select = SELECT_MISSING, .score = SCORE_RIGHT, .swap = SWAP_FORCED},
    {"local dropped", PREFILL " --local 1", FOREIGN_EXACT, .spoil = local_dropped, .arith = JUDGE_F32, WRONG,
     .select = SELECT_FORCED, .score = SCORE_RIGHT, .swap = SWAP_FORCED},
};
enum { ROWS = sizeof table / sizeof *table };

/* ---- the test ---- */

static int worst_of(const int64_t *count, int kinds) {
  int worst = 0;
  for (int kind = 0; kind < kinds; kind++)
    if (count[kind]) worst = kind;
  return worst;
}

static bool hinted(const judge_report *r, const char *text) {
  for (int i = 0; i < r->num_hints; i++)
    if (strstr(r->hint[i], text)) return true;
  return false;
}

START_TEST(verdict_of_a_prepared_file) {
  const table_row *row = &table[_i];
  char why[CASE_MESSAGE_BYTES] = "", name[96] = "none";
  foreign f;
  judge_report r;
  foreign_make(&f, row->line, row->kind, row->block, (uint64_t)_i, &row->faults);
  if (row->spoil) row->spoil(&f);
  judge_options options = {.arith = row->arith, .flush = row->flush};
  if (row->kind == FOREIGN_MFMA) options.k_block = row->block;
  ck_assert_msg(!judge_run(&options, &f.golden, &f.theirs, &r, why), "%s: %s", row->name, why);
  int select = worst_of(r.select_count, SELECT_KINDS), score = worst_of(r.score_count, SCORE_KINDS);
  int swap = worst_of(r.swap_count, SWAP_KINDS);
  if (r.num_fits) m3idx_contract_name(&r.fits[0], name, sizeof name);
  bool good = judge_wrong(&r) == row->wrong && (row->select == ANY || row->select == select) &&
              (row->score == ANY || row->score == score) && (row->swap == ANY || row->swap == swap);
  good = good && (row->contract ? r.num_fits > 0 && (*row->contract == '*' || !strcmp(row->contract, name)) : true);
  good = good && (!row->hint || hinted(&r, row->hint));
  ck_assert_msg(good, "%s: got %s, selection %s, scores %s, end to end %s, contract %s, hint \"%s\"", row->name,
                judge_wrong(&r) ? "wrong" : "not wrong", judge_select_word((judge_select_kind)select),
                judge_score_word((judge_score_kind)score), judge_swap_word((judge_swap_kind)swap), name, r.hint[0]);
  judge_free(&r);
  foreign_free(&f);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("judge table");
  TCase *prepared = tcase_create("prepared files");
  tcase_add_loop_test(prepared, verdict_of_a_prepared_file, 0, ROWS);
  suite_add_tcase(suite, prepared);
  return unit_run(suite);
}
