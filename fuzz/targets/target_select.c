/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection from raw bit patterns (S4): ref, and cpu under one of its instruction sets, against a full sort (the
 * oracle's, which has no keys), with forced blocks (S3.7), every contract, strided and in two parts that are merged
 * (S4.5).
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz_kit.h"
#include "oracle.h"

enum { MAX_ROWS = 4, MAX_HEADS = 2, MAX_COLUMNS = 1100, MAX_K = 128 };

typedef struct problem {
  int64_t heads, rows, columns, topk, init, local, pad, cut;
  m3idx_contract contract;
  int32_t num_blocks[MAX_ROWS];
  float *score;
} problem;

/* Where short rows end, chunks of 128 and classes of 256 begin, and a few in between. */
static int64_t columns(fuzz_bytes *in) {
  static const int64_t edges[] = {0,   1,   15,  16,  17,  31,  33,  63,  65,  127, 128,
                                  129, 130, 191, 255, 256, 257, 385, 511, 513, 1025};
  return fuzz_between(in, 0, 3) ? FUZZ_PICK(in, edges) : fuzz_between(in, 0, MAX_COLUMNS);
}

static void wanted(const problem *p, int64_t head, int64_t row, int32_t *ids) {
  const oracle_contract c = {(unsigned)p->contract.tie, (unsigned)p->contract.nan, (unsigned)p->contract.zero,
                             (unsigned)p->contract.order};
  const int64_t n = p->score ? p->num_blocks[row] : 0;
  uint32_t bits[MAX_COLUMNS];
  for (int64_t b = 0; b < n; b++) {
    memcpy(&bits[b], &p->score[(head * p->rows + row) * (p->columns + p->pad) + b], sizeof bits[b]);
    bits[b] = oracle_force(bits[b], b, n, p->init, p->local);
  }
  oracle_select(bits, 0, n, c, p->topk, ids);
}

static m3idx_select_args args_of(const problem *p) {
  return (m3idx_select_args){.num_blocks = p->num_blocks,
                             .num_heads = p->heads,
                             .num_rows = p->rows,
                             .max_block = p->columns,
                             .score = p->score,
                             .score_stride_row = p->columns + p->pad,
                             .init_blocks = p->init,
                             .local_blocks = p->local,
                             .topk = p->topk,
                             .contract = p->contract};
}

static void take(m3idx_context *ctx, const m3idx_select_args *args) {
  FUZZ_REQUIRE(m3idx_select(ctx, args) == M3IDX_OK, "%s", m3idx_message(ctx));
}

/* The whole row at once, ids and keys; then columns before and after the cut, merged. */
static void judge(m3idx_context *ctx, const problem *p, const int32_t *want, uint64_t *want_keys, bool first) {
  const size_t count = (size_t)(p->heads * p->rows * p->topk);
  int32_t *ids = fuzz_buffer(count * sizeof *ids);
  uint64_t *keys = fuzz_buffer(count * sizeof *keys), *parts = fuzz_buffer(2 * count * sizeof *parts);
  m3idx_select_args args = args_of(p);
  args.topk_idx = ids;
  args.keys = keys;
  take(ctx, &args);
  fuzz_same("topk_idx", want, ids, count, sizeof *ids);
  if (first) memcpy(want_keys, keys, count * sizeof *keys);
  fuzz_same("keys", want_keys, keys, count, sizeof *keys);

  args.topk_idx = NULL;
  args.max_block = p->cut;
  args.score_stride_head = p->rows * args.score_stride_row;
  args.keys = parts;
  take(ctx, &args);
  args.score = p->score ? p->score + p->cut : NULL;
  args.first_block = p->cut;
  args.max_block = p->columns - p->cut;
  args.keys = parts + count;
  take(ctx, &args);
  memset(ids, 0xdb, count * sizeof *ids);
  memset(keys, 0xdb, count * sizeof *keys);
  const m3idx_merge_args merge = {.num_parts = 2,
                                  .num_heads = p->heads,
                                  .num_rows = p->rows,
                                  .topk = p->topk,
                                  .contract = p->contract,
                                  .keys = parts,
                                  .topk_idx = ids,
                                  .merged_keys = keys};
  FUZZ_REQUIRE(m3idx_merge(ctx, &merge) == M3IDX_OK, "%s", m3idx_message(ctx));
  fuzz_same("merged topk_idx", want, ids, count, sizeof *ids);
  fuzz_same("merged keys", want_keys, keys, count, sizeof *keys);
  free(ids);
  free(keys);
  free(parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes in = {data, size};
  problem p;
  p.contract = fuzz_contract(&in);
  p.topk = fuzz_between(&in, 0, 1) ? fuzz_between(&in, 1, MAX_K) : 16;
  p.columns = columns(&in);
  p.heads = fuzz_between(&in, 1, MAX_HEADS);
  p.rows = fuzz_between(&in, 1, MAX_ROWS);
  p.init = fuzz_between(&in, 0, 20) % 7;
  p.local = fuzz_between(&in, 0, 20) % 5;
  p.pad = fuzz_between(&in, 0, 3);
  p.cut = fuzz_between(&in, 0, p.columns);
  for (int64_t t = 0; t < p.rows; t++) {
    const int64_t less = fuzz_between(&in, 0, 255);
    p.num_blocks[t] = (int32_t)(less < p.columns ? p.columns - less : 0);
  }
  const bool vary = fuzz_between(&in, 0, 1);
  m3idx_context *cpu = fuzz_one_cpu(&in);
  /* The last row ends with its last column: reads past it are out of the buffer. */
  const size_t scores = (size_t)(p.heads * p.rows * (p.columns + p.pad) - p.pad);
  p.score = p.columns ? fuzz_buffer(scores * sizeof *p.score) : NULL;
  if (p.score) fuzz_fill(&in, vary, p.score, scores * sizeof *p.score);

  static int32_t want[MAX_HEADS * MAX_ROWS * MAX_K];
  static uint64_t want_keys[MAX_HEADS * MAX_ROWS * MAX_K];
  for (int64_t h = 0; h < p.heads; h++)
    for (int64_t t = 0; t < p.rows; t++) wanted(&p, h, t, &want[(h * p.rows + t) * p.topk]);
  judge(fuzz_context(0), &p, want, want_keys, true);
  judge(cpu, &p, want, want_keys, false);
  free(p.score);
  return 0;
}
