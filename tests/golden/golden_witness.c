/* SPDX-License-Identifier: Apache-2.0
 *
 * The second witness (golden_witness.h).
 */
#include "golden_witness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nettle/sha2.h>

#include "oracle_words.h"

const char *const golden_tensors[GOLDEN_TENSORS] = {
    "inputs", "score", "topk_idx", "keys", "sparse_block_table", "sparse_context_lens", "cache"};

static void *add(witness *w, const char *name, case_dtype dtype, int64_t a, int64_t b, int64_t c) {
  case_tensor *t = case_add_tensor(&w->out, name, dtype, 3, (int64_t[]){a, b, c});
  if (t) return t->data;
  fprintf(stderr, "golden: no memory for %s\n", name);
  exit(2);
}

static uint32_t code_at(const void *data, m3idx_dtype dtype, int64_t i) {
  switch (m3idx_dtype_bytes(dtype)) {
  case 4: return ((const uint32_t *)data)[i];
  case 2: return ((const uint16_t *)data)[i];
  default: return ((const uint8_t *)data)[i];
  }
}

static void codes(const void *data, m3idx_dtype dtype, int64_t first, int64_t count, uint32_t *out) {
  for (int64_t i = 0; i < count; i++) out[i] = code_at(data, dtype, first + i);
}

static uint32_t float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* S2.3 */
static void place_rows(witness *w) {
  const m3idx_case *c = &w->c;
  w->request = conform_alloc((size_t)c->T * sizeof *w->request);
  w->rows = conform_alloc((size_t)c->T * sizeof *w->rows);
  for (int64_t row = 0, r = 0; row < c->T; row++) {
    if (c->op == CASE_SELECT) {
      w->rows[row] = (oracle_row){.position = -1, .blocks = c->num_blocks[row]};
      continue;
    }
    while (c->op == CASE_PREFILL && row >= c->cu_seqlens[r + 1]) r++;
    if (c->op == CASE_DECODE) r = row / c->decode_query_len;
    const bool prefill = c->op == CASE_PREFILL;
    w->request[row] = r;
    w->rows[row] = oracle_row_at(prefill ? c->prefix_lens[r] : c->seq_lens[r] - c->decode_query_len,
                                 prefill ? row - c->cu_seqlens[r] : row % c->decode_query_len, c->seq_lens[r], c->B);
  }
}

/* S3: the score tensor, with the forced values of a decode. */
static uint32_t *scores(witness *w) {
  const m3idx_case *c = &w->c;
  uint32_t q[256], *keys = conform_alloc((size_t)(c->B * c->D) * sizeof *keys);
  uint32_t *score = add(w, "score", CASE_F32, c->H, c->T, c->M);
  for (int64_t i = 0; i < c->H * c->T * c->M; i++) {
    const int64_t block = i % c->M, row = i / c->M % c->T, head = i / c->M / c->T;
    const oracle_row *r = &w->rows[row];
    score[i] = UINT32_C(0xff800000);
    if (block >= r->blocks) continue;
    const int64_t left = r->keys - block * c->B, tokens = left < c->B ? left : c->B;
    const int64_t page = c->block_table[w->request[row] * c->block_table_stride + block];
    codes(c->q, c->q_dtype, (row * c->H + head) * c->D, c->D, q);
    codes(c->index_k, c->k_dtype, page * c->B * c->D, tokens * c->D, keys);
    score[i] = oracle_block_score(format_of(c->q_dtype), q, format_of(c->k_dtype), keys, tokens, (int)c->D);
    if (c->scale != 1) score[i] = oracle_scale(score[i], float_bits(c->scale));
    if (c->op == CASE_DECODE) score[i] = oracle_force(score[i], block, r->blocks, c->init_blocks, c->local_blocks);
  }
  free(keys);
  return score;
}

/* S4.3 in its own words: the rank of a pattern counted from the lowest. */
static uint64_t key_of(uint32_t x, int64_t id, m3idx_contract c) {
  const bool nan = (x & 0x7fffffff) > 0x7f800000;
  uint64_t rank = x < UINT32_C(0x80000000) ? UINT64_C(0x80000000) + x : UINT64_C(0xffffffff) - x;
  if (nan && c.nan == M3IDX_NAN_AS_MINUS_1E30) rank = UINT64_C(0xffffffff) - float_bits(-1e30f);
  if (nan && c.nan == M3IDX_NAN_AS_MINUS_INF) rank = UINT64_C(0x007fffff);
  if (nan && c.nan == M3IDX_NAN_BELOW_MINUS_INF) rank = 0;
  if (c.zero == M3IDX_ZERO_EQUAL && (x == 0 || x == UINT32_C(0x80000000))) rank = UINT64_C(0x80000000);
  return (rank << 32) + (uint64_t)(c.tie == M3IDX_TIE_LOWER_ID ? UINT32_MAX - id : id + 1);
}

/* S4: ids, and keys in the order of the ids best first. */
static int32_t *selection(witness *w, const uint32_t *score) {
  const m3idx_case *c = &w->c;
  int32_t *ids = add(w, "topk_idx", CASE_I32, c->H, c->T, c->K), best[128];
  uint64_t *keys = add(w, "keys", CASE_U64, c->H, c->T, c->K);
  uint32_t *line = conform_alloc((size_t)c->M * sizeof *line);
  const bool force = c->op != CASE_DECODE; /* S3.7 */
  for (int64_t i = 0; i < c->H * c->T; i++) {
    const int64_t N = w->rows[i % c->T].blocks;
    oracle_contract contract = contract_of(c->contract);
    for (int64_t b = 0; b < N; b++) {
      line[b] = score[i * c->M + b];
      if (force) line[b] = oracle_force(line[b], b, N, c->init_blocks, c->local_blocks);
    }
    oracle_select(line, 0, N, contract, c->K, ids + i * c->K);
    contract.order = ORACLE_BY_SCORE;
    oracle_select(line, 0, N, contract, c->K, best);
    for (int64_t k = 0; k < c->K; k++)
      keys[i * c->K + k] = best[k] < 0 ? 0 : key_of(line[best[k]], best[k], c->contract);
  }
  free(line);
  return ids;
}

/* S5 */
static void sparse(witness *w, const int32_t *ids) {
  const m3idx_case *c = &w->c;
  const int32_t *table = c->attention_block_table ? c->attention_block_table : c->block_table;
  const int64_t stride = c->attention_block_table ? c->attention_block_table_stride : c->block_table_stride;
  int32_t *out = add(w, "sparse_block_table", CASE_I32, 1, c->T * c->H, 8 * c->K);
  int32_t *context = add(w, "sparse_context_lens", CASE_I32, 1, 1, c->T * c->H);
  for (int64_t row = 0; row < c->T; row++)
    for (int64_t h = 0; h < c->H; h++)
      oracle_sparse(ids + (h * c->T + row) * c->K, c->K, w->rows[row].position, table + w->request[row] * stride,
                    c->page_stride, c->H, h, out + (row * c->H + h) * 8 * c->K, context + row * c->H + h);
}

/* S6: a copy, or the nearest code where a wide format meets an fp8 one; nothing for other pairs. */
static void insertion(witness *w) {
  const m3idx_case *c = &w->c;
  const size_t from = m3idx_dtype_bytes(c->q_dtype), to = m3idx_dtype_bytes(c->k_dtype);
  if (c->q_dtype != c->k_dtype && (from == 1 || to != 1)) return;
  conform_insert in = conform_insert_make(w->spec.seed, c);
  unsigned char *cache = add(w, "cache", to == 4 ? CASE_U32 : to == 2 ? CASE_U16 : CASE_U8, in.P, in.B, in.D);
  for (int64_t i = 0; i < in.n; i++)
    for (int64_t d = 0; d < in.D && in.slots[i] >= 0; d++) {
      const int64_t at = in.slots[i] * in.D + d;
      const unsigned char *key = (const unsigned char *)in.keys + (size_t)(i * in.D + d) * from;
      if (c->q_dtype == c->k_dtype)
        memcpy(cache + (size_t)at * to, key, to);
      else
        cache[at] = (unsigned char)oracle_convert(format_of(c->q_dtype), code_at(in.keys, c->q_dtype, i * in.D + d),
                                                  format_of(c->k_dtype));
    }
  free(in.slots);
}

void golden_witness_case(witness *w) {
  char why[CASE_MESSAGE_BYTES];
  if (case_view(&w->file, &w->c, why)) {
    fprintf(stderr, "golden: %s: %s\n", w->line, why);
    exit(2);
  }
  place_rows(w);
  const bool attention = w->c.op != CASE_SELECT;
  const int32_t *ids = selection(w, attention ? scores(w) : (const uint32_t *)(const void *)w->c.score);
  if (attention && w->c.sparse_table) sparse(w, ids);
}

void golden_witness_line(witness *w) {
  char why[CASE_MESSAGE_BYTES];
  if (case_spec_parse_line(w->line, &w->spec, why) || case_generate(&w->spec, &w->file, why)) {
    fprintf(stderr, "golden: %s: %s\n", w->line, why);
    exit(2);
  }
  golden_witness_case(w);
  if (w->c.op != CASE_SELECT) insertion(w);
}

void golden_witness_free(witness *w) {
  case_file_free(&w->file);
  case_file_free(&w->out);
  case_spec_free(&w->spec);
  free(w->request);
  free(w->rows);
}

static int update(void *user, const void *bytes, size_t n) {
  sha256_update(user, n, bytes);
  return 0;
}

bool golden_witness_digest(const witness *w, int i, char hex[GOLDEN_HEX + 1]) {
  struct sha256_ctx sha;
  uint8_t sum[SHA256_DIGEST_SIZE];
  const case_tensor *t = i == GOLDEN_INPUTS ? w->file.tensors : case_find(&w->out, golden_tensors[i]);
  if (!t) return false;
  sha256_init(&sha);
  for (int64_t n = i == GOLDEN_INPUTS ? w->file.num_tensors : 1; n > 0; n--, t++) case_tensor_le(t, update, &sha);
  sha256_digest(&sha, sizeof sum, sum);
  for (size_t b = 0; b < sizeof sum; b++) sprintf(hex + 2 * b, "%02x", sum[b]);
  return true;
}
