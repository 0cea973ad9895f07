/* SPDX-License-Identifier: Apache-2.0
 *
 * Small problems of raw bit patterns: scores (S3) and the fused selection with its sparse table (S4, S5), by cpu under
 * one of its instruction sets against ref, both modes, all pairs of formats, shared pages, strided tensors; one score,
 * the ids and one row of the table also against the oracle, which shares nothing with either.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_kit.h"
#include "oracle.h"

enum { MAX_REQUESTS = 3, MAX_ROWS = 12, MAX_HEADS = 3, MAX_DIM = 256, MAX_BLOCKS = 4, MAX_PAGES = 5, MAX_K = 8 };

typedef struct problem {
  m3idx_batch batch;
  int32_t seq_lens[MAX_REQUESTS], cu_seqlens[MAX_REQUESTS + 1], prefix_lens[MAX_REQUESTS];
  int32_t table[MAX_REQUESTS * MAX_BLOCKS];
  m3idx_tensor q, k;
  float scale;
  int64_t heads, init, local, topk, page_stride;
  m3idx_contract contract;
  bool sparse;
  size_t scores, ids; /* elements of the outputs */
} problem;

typedef struct outputs {
  float *score;
  int32_t *ids, *table, *context;
} outputs;

static int32_t length(fuzz_bytes *in, int64_t most) {
  static const int64_t near[] = {0, 1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 257};
  const int64_t n = fuzz_between(in, 0, 2) ? FUZZ_PICK(in, near) : fuzz_between(in, 0, most);
  return (int32_t)(n < most ? n : most);
}

/* Lengths, and a table whose pages may repeat. */
static void rows(fuzz_bytes *in, problem *p) {
  static const int64_t sizes[] = {16, 16, 32, 64, 128};
  m3idx_batch *b = &p->batch;
  *b = (m3idx_batch){.mode = (m3idx_mode)fuzz_between(in, 0, 1), .num_requests = fuzz_between(in, 1, MAX_REQUESTS)};
  b->block_size = p->sparse ? 128 : FUZZ_PICK(in, sizes);
  b->max_block = fuzz_between(in, 1, MAX_BLOCKS);
  const int64_t most = b->max_block * b->block_size, query_len = fuzz_between(in, 1, MAX_ROWS / MAX_REQUESTS);
  for (int64_t r = 0; r < b->num_requests; r++) {
    p->seq_lens[r] = length(in, most);
    const int32_t rest = p->seq_lens[r] < query_len ? p->seq_lens[r] : (int32_t)query_len;
    const int32_t count = (int32_t)fuzz_between(in, 0, rest);
    p->prefix_lens[r] = (int32_t)fuzz_between(in, 0, 3) ? p->seq_lens[r] - count : (p->seq_lens[r] - count) / 2;
    p->cu_seqlens[r + 1] = p->cu_seqlens[r] + count;
  }
  b->seq_lens = p->seq_lens;
  if (b->mode == M3IDX_DECODE) {
    b->decode_query_len = query_len;
    b->num_rows = b->num_requests * query_len;
  } else {
    b->cu_seqlens = p->cu_seqlens;
    b->prefix_lens = p->prefix_lens;
    b->num_rows = p->cu_seqlens[b->num_requests];
  }
  p->k.shape[0] = fuzz_between(in, 1, MAX_PAGES);
  for (int64_t i = 0; i < b->num_requests * b->max_block; i++)
    p->table[i] = (int32_t)fuzz_between(in, 0, p->k.shape[0] - 1);
}

/* Dense, padded, or repeating along one axis; the buffer ends with the last element. */
static void tensor(fuzz_bytes *in, m3idx_tensor *t, const int64_t shape[3]) {
  const int64_t pad = fuzz_between(in, 0, 20) % 3, step = fuzz_between(in, 0, 8) ? 1 : 2;
  t->dtype = (m3idx_dtype)fuzz_between(in, 0, M3IDX_DTYPE_COUNT - 1);
  for (int i = 0; i < 3; i++) t->shape[i] = shape[i];
  t->stride[2] = step;
  t->stride[1] = shape[2] * step + pad;
  t->stride[0] = fuzz_between(in, 0, 8) ? shape[1] * t->stride[1] : 0;
}

static size_t elements(const m3idx_tensor *t) {
  if (!t->shape[0] || !t->shape[1] || !t->shape[2]) return 0;
  return (size_t)((t->shape[0] - 1) * t->stride[0] + (t->shape[1] - 1) * t->stride[1] +
                  (t->shape[2] - 1) * t->stride[2] + 1);
}

static void read_problem(fuzz_bytes *in, problem *p) {
  static const int64_t dims[] = {16, 16, 32, 48, 64, 128, 256};
  static const float scales[] = {1.0f, 0.08838834764f /* 1/sqrt(128) */, 0x1p-149f, 0x1p127f, 3.0f, 0x1.fffffep127f};
  p->contract = fuzz_contract(in);
  p->sparse = fuzz_between(in, 0, 3) == 3;
  p->scale = fuzz_between(in, 0, 1) ? FUZZ_PICK(in, scales) : 1.0f;
  rows(in, p);
  p->heads = fuzz_between(in, 1, MAX_HEADS);
  int64_t dim = FUZZ_PICK(in, dims);
  /* Multiplications of ref, at most. */
  while (dim > 16 && p->batch.num_rows * p->heads * p->batch.max_block * p->batch.block_size * dim > 1 << 16) dim /= 2;
  dim = (dim + 15) / 16 * 16;
  tensor(in, &p->q, (const int64_t[]){p->batch.num_rows, p->heads, dim});
  tensor(in, &p->k, (const int64_t[]){p->k.shape[0], p->batch.block_size, dim});
  p->init = fuzz_between(in, 0, 9) % 4;
  p->local = fuzz_between(in, 0, 9) % 3;
  p->topk = fuzz_between(in, 1, MAX_K);
  p->page_stride = fuzz_between(in, 0, 1) ? 16 : 8;
  const bool vary = fuzz_between(in, 0, 1);
  m3idx_tensor *both[] = {&p->q, &p->k};
  fuzz_bytes from = *in;
  for (int i = 0; i < 2; i++) {
    const size_t bytes = elements(both[i]) * m3idx_dtype_bytes(both[i]->dtype);
    both[i]->data = fuzz_buffer(bytes);
    fuzz_fill(&from, vary, both[i]->data, bytes);
    /* The keys begin where the payload's second half does, so that they are not the queries again. */
    from.at += from.left / 2;
    from.left -= from.left / 2;
  }
  p->scores = (size_t)(p->heads * p->batch.num_rows * p->batch.max_block);
  p->ids = (size_t)(p->heads * p->batch.num_rows * p->topk);
}

static outputs make_outputs(const problem *p) {
  return (outputs){fuzz_buffer(p->scores * sizeof(float)), fuzz_buffer(p->ids * sizeof(int32_t)),
                   fuzz_buffer(8 * p->ids * sizeof(int32_t)), fuzz_buffer(p->ids * sizeof(int32_t))};
}

static void free_outputs(outputs *o) {
  free(o->score);
  free(o->ids);
  free(o->table);
  free(o->context);
}

static void run(m3idx_context *ctx, const problem *p, outputs *o) {
  const bool decode = p->batch.mode == M3IDX_DECODE; /* S3.7: prefill scores stay pure */
  const m3idx_score_args score = {.batch = &p->batch,
                                  .q = p->q,
                                  .index_k = p->k,
                                  .block_table = p->table,
                                  .scale = p->scale,
                                  .init_blocks = decode ? p->init : 0,
                                  .local_blocks = decode ? p->local : 0,
                                  .score = o->score};
  const m3idx_sparse_out sparse = {
      .block_table = p->table, .page_stride = p->page_stride, .table = o->table, .context_lens = o->context};
  const m3idx_topk_args topk = {.batch = &p->batch,
                                .q = p->q,
                                .index_k = p->k,
                                .block_table = p->table,
                                .scale = p->scale,
                                .init_blocks = p->init,
                                .local_blocks = p->local,
                                .topk = p->topk,
                                .contract = p->contract,
                                .topk_idx = o->ids,
                                .sparse = p->sparse ? &sparse : NULL};
  FUZZ_REQUIRE(m3idx_score(ctx, &score) == M3IDX_OK, "%s", m3idx_message(ctx));
  FUZZ_REQUIRE(m3idx_topk(ctx, &topk) == M3IDX_OK, "%s", m3idx_message(ctx));
}

static uint32_t code_at(const m3idx_tensor *t, int64_t i, int64_t j, int64_t k) {
  const size_t bytes = m3idx_dtype_bytes(t->dtype);
  const uint8_t *at =
      (const uint8_t *)t->data + (size_t)(i * t->stride[0] + j * t->stride[1] + k * t->stride[2]) * bytes;
  uint16_t half;
  uint32_t word;
  if (bytes == 1) return *at;
  if (bytes == 2) {
    memcpy(&half, at, sizeof half);
    return half;
  }
  memcpy(&word, at, sizeof word);
  return word;
}

/* One row by the oracle: all its scores, then its ids and its line of the table. */
static void judge_row(const problem *p, const outputs *o, int64_t head, int64_t row) {
  static uint32_t query[MAX_DIM], keys[128 * MAX_DIM];
  const m3idx_batch *b = &p->batch;
  const bool decode = b->mode == M3IDX_DECODE;
  int64_t r = 0;
  uint32_t scale_bits, scores[MAX_BLOCKS];
  memcpy(&scale_bits, &p->scale, sizeof scale_bits);
  while (decode ? (r + 1) * b->decode_query_len <= row : p->cu_seqlens[r + 1] <= row) r++;
  const int64_t first = decode ? p->seq_lens[r] - b->decode_query_len : p->prefix_lens[r];
  const oracle_row at =
      oracle_row_at(first, row - (decode ? r * b->decode_query_len : p->cu_seqlens[r]), p->seq_lens[r], b->block_size);
  const int64_t dim = p->q.shape[2], lane = head * b->num_rows + row;
  for (int64_t d = 0; d < dim; d++) query[d] = code_at(&p->q, row, head, d);
  for (int64_t block = 0; block < b->max_block; block++) {
    uint32_t want = 0xff800000, got; /* S3.6 */
    if (block < at.blocks) {
      const int64_t left = at.keys - block * b->block_size, tokens = left < b->block_size ? left : b->block_size;
      for (int64_t t = 0; t < tokens; t++)
        for (int64_t d = 0; d < dim; d++) keys[t * dim + d] = code_at(&p->k, p->table[r * b->max_block + block], t, d);
      const uint32_t bits =
          oracle_block_score((oracle_format)p->q.dtype, query, (oracle_format)p->k.dtype, keys, tokens, (int)dim);
      scores[block] = oracle_force(oracle_scale(bits, scale_bits), block, at.blocks, p->init, p->local);
      want = decode ? scores[block] : oracle_scale(bits, scale_bits);
    }
    memcpy(&got, &o->score[lane * b->max_block + block], sizeof got);
    FUZZ_REQUIRE(want == got, "ref: score of head %d, row %d, block %d is 0x%08x, the oracle says 0x%08x", (int)head,
                 (int)row, (int)block, got, want);
  }
  const oracle_contract c = {(unsigned)p->contract.tie, (unsigned)p->contract.nan, (unsigned)p->contract.zero,
                             (unsigned)p->contract.order};
  int32_t ids[MAX_K], pages[8 * MAX_K], context;
  oracle_select(scores, 0, at.blocks, c, p->topk, ids);
  fuzz_same("ref: topk_idx", ids, &o->ids[lane * p->topk], (size_t)p->topk, sizeof *ids);
  if (!p->sparse) return;
  oracle_sparse(ids, p->topk, at.position, &p->table[r * b->max_block], p->page_stride, p->heads, head, pages,
                &context);
  const int64_t line = row * p->heads + head;
  fuzz_same("ref: sparse table", pages, &o->table[line * 8 * p->topk], (size_t)(8 * p->topk), sizeof *pages);
  fuzz_same("ref: context", &context, &o->context[line], 1, sizeof context);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes in = {data, size};
  static problem p;
  m3idx_context *cpu = fuzz_one_cpu(&in);
  p = (problem){0};
  read_problem(&in, &p);
  const int64_t lanes = p.heads * p.batch.num_rows, lane = lanes ? fuzz_between(&in, 0, lanes - 1) : 0;
  outputs want = make_outputs(&p);
  run(fuzz_context(0), &p, &want);
  if (lanes) judge_row(&p, &want, lane / p.batch.num_rows, lane % p.batch.num_rows);
  outputs got = make_outputs(&p);
  run(cpu, &p, &got);
  fuzz_same("score", want.score, got.score, p.scores, sizeof *want.score);
  fuzz_same("topk_idx", want.ids, got.ids, p.ids, sizeof *want.ids);
  fuzz_same("sparse table", want.table, got.table, 8 * p.ids, sizeof *want.table);
  fuzz_same("context", want.context, got.context, p.ids, sizeof *want.context);
  free_outputs(&got);
  free_outputs(&want);
  free(p.q.data);
  free(p.k.data);
  return 0;
}
