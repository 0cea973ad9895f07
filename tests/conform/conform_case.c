/* SPDX-License-Identifier: Apache-2.0
 *
 * From a case line to guarded inputs and ref's outputs: staged score, selection and table, on one thread.
 */
#include "conform_case.h"

#include <stdlib.h>
#include <string.h>

#include "casedata.h"

static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* S2.3, row by row in the order of the batch. */
static void reckon_rows(conform_case *k) {
  const m3idx_case *c = &k->c;
  k->rows = conform_alloc((size_t)c->T * sizeof *k->rows);
  int64_t row = 0;
  for (int64_t r = 0; c->op != CASE_SELECT && r < c->R; r++) {
    const bool prefill = c->op == CASE_PREFILL;
    const int64_t count = prefill ? c->cu_seqlens[r + 1] - c->cu_seqlens[r] : c->decode_query_len;
    const int64_t first = prefill ? c->prefix_lens[r] : c->seq_lens[r] - c->decode_query_len;
    for (int64_t i = 0; i < count; i++, row++) {
      const int64_t keys = clamp(first + i + 1, 0, c->seq_lens[r]);
      k->rows[row] = (conform_row){r, first + i, keys, (keys + c->B - 1) / c->B};
    }
  }
  for (; row < c->T; row++) k->rows[row] = (conform_row){-1, -1, 0, c->num_blocks[row]};
  for (row = 0; row < c->T; row++) {
    if (k->most_keys < k->rows[row].keys) k->most_keys = k->rows[row].keys;
    if (k->most_blocks < k->rows[row].blocks) k->most_blocks = k->rows[row].blocks;
  }
}

/* Moves a tensor into guarded memory; NULL stays NULL. */
static const void *guard(conform_input *input, const case_file *file, const char *name) {
  const case_tensor *t = case_find(file, name);
  if (!t) return NULL;
  conform_input_copy(input, name, t->data, t->bytes);
  return input->data;
}

static void guard_all(conform_case *k, const case_file *file) {
  m3idx_case *c = &k->c;
  c->q = guard(&k->q, file, "q");
  c->index_k = guard(&k->index_k, file, "index_k");
  c->block_table = guard(&k->block_table, file, "block_table");
  c->attention_block_table = guard(&k->attention_block_table, file, "attention_block_table");
  c->seq_lens = guard(&k->seq_lens, file, "seq_lens");
  c->cu_seqlens = guard(&k->cu_seqlens, file, "cu_seqlens");
  c->prefix_lens = guard(&k->prefix_lens, file, "prefix_lens");
  c->num_blocks = guard(&k->num_blocks, file, "num_blocks");
  c->score = guard(&k->score, file, "score");
}

/* A poisoned array of ref's, so that an element ref forgets shows. */
static void *witness(int64_t elements, size_t element_bytes) {
  void *p = conform_alloc((size_t)elements * element_bytes);
  conform_poison(p, (size_t)elements * element_bytes, element_bytes);
  return p;
}

static bool complete(const void *data, int64_t elements, size_t element_bytes) {
  unsigned char poison[8];
  conform_poison(poison, sizeof poison, element_bytes);
  for (int64_t i = 0; i < elements; i++)
    if (!memcmp((const unsigned char *)data + (size_t)i * element_bytes, poison, element_bytes)) return false;
  return true;
}

static int bad(char *why, const char *step, const char *sentence) {
  snprintf(why, CASE_MESSAGE_BYTES, "ref: %s: %s", step, sentence);
  return -1;
}

static int want_score(m3idx_context *ref, conform_case *k, char *why) {
  const m3idx_case *c = &k->c;
  const int64_t elements = c->H * c->T * c->M;
  m3idx_score_args args;
  case_score_args(c, &k->batch, &args);
  args.score = k->want_score = witness(elements, sizeof(float));
  if (m3idx_score(ref, &args)) return bad(why, "score", m3idx_message(ref));
  return complete(k->want_score, elements, sizeof(float)) ? 0 : bad(why, "score", "left an element unwritten");
}

static int want_selection(m3idx_context *ref, conform_case *k, char *why) {
  const m3idx_case *c = &k->c;
  const int64_t elements = c->H * c->T * c->K;
  m3idx_select_args args;
  case_select_args(c, &k->batch, &args);
  if (c->op != CASE_SELECT) args.score = k->want_score;
  args.topk_idx = k->want_ids = witness(elements, sizeof(int32_t));
  args.keys = k->want_keys = witness(elements, sizeof(uint64_t));
  if (m3idx_select(ref, &args)) return bad(why, "select", m3idx_message(ref));
  return complete(k->want_ids, elements, sizeof(int32_t)) && complete(k->want_keys, elements, sizeof(uint64_t))
             ? 0
             : bad(why, "select", "left an element unwritten");
}

static int want_sparse(m3idx_context *ref, conform_case *k, char *why) {
  const m3idx_case *c = &k->c;
  const int64_t lines = c->T * c->H;
  m3idx_sparse_table_args args = {.batch = &k->batch, .num_heads = c->H, .topk = c->K, .topk_idx = k->want_ids};
  case_sparse_out(c, &args.sparse);
  args.sparse.table = k->want_table = witness(lines * 8 * c->K, sizeof(int32_t));
  args.sparse.context_lens = k->want_context = witness(lines, sizeof(int32_t));
  if (m3idx_sparse_table(ref, &args)) return bad(why, "sparse_table", m3idx_message(ref));
  return complete(k->want_table, lines * 8 * c->K, sizeof(int32_t)) && complete(k->want_context, lines, sizeof(int32_t))
             ? 0
             : bad(why, "sparse_table", "left an element unwritten");
}

int conform_case_from(m3idx_context *ref, const case_file *file, const char *line, uint64_t seed, conform_case *k,
                      char *why) {
  *k = (conform_case){.line = line, .seed = seed};
  int failed = case_view(file, &k->c, why);
  if (!failed) {
    guard_all(k, file);
    case_batch(&k->c, &k->batch);
    failed = (k->c.op != CASE_SELECT && want_score(ref, k, why)) || want_selection(ref, k, why) ||
             (k->c.op != CASE_SELECT && k->c.B == 128 && want_sparse(ref, k, why));
  }
  if (failed)
    conform_case_free(k);
  else
    reckon_rows(k); /* now that the door has judged the contents (S7.1) */
  return failed ? -1 : 0;
}

int conform_case_make(m3idx_context *ref, const char *line, conform_case *k, char *why) {
  case_file file = {0};
  case_spec spec;
  *k = (conform_case){.line = line};
  int failed = case_spec_parse_line(line, &spec, why);
  if (!failed) failed = case_generate(&spec, &file, why) || conform_case_from(ref, &file, line, spec.seed, k, why);
  case_spec_free(&spec);
  case_file_free(&file);
  return failed ? -1 : 0;
}

void conform_case_free(conform_case *k) {
  conform_input *const inputs[] = {&k->q,        &k->index_k,    &k->block_table, &k->attention_block_table,
                                   &k->seq_lens, &k->cu_seqlens, &k->prefix_lens, &k->num_blocks,
                                   &k->score};
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) conform_input_free(inputs[i]);
  free(k->rows);
  free(k->want_score);
  free(k->want_ids);
  free(k->want_keys);
  free(k->want_table);
  free(k->want_context);
  *k = (conform_case){0};
}

conform_insert conform_insert_make(uint64_t seed, const m3idx_case *c) {
  enum { MOST_KEYS = 200, STREAM = 100 };
  conform_insert in = {
      .n = c->T * c->H, .D = c->D, .B = c->B, .key_dtype = c->q_dtype, .cache_dtype = c->k_dtype, .keys = c->q};
  if (in.n > MOST_KEYS) in.n = MOST_KEYS;
  in.P = in.n / in.B + 2;
  int32_t *order = conform_alloc((size_t)(in.P * in.B) * sizeof *order);
  in.slots = conform_alloc((size_t)in.n * sizeof *in.slots);
  const uint64_t key = case_word(seed, STREAM);
  case_permute(key, in.P * in.B, order);
  for (int64_t i = 0; i < in.n; i++) {
    const uint64_t word = case_word(key, (uint64_t)i);
    in.slots[i] = i % 5 < 4 ? order[i] : word & 1 ? -1 : INT64_MIN + (int64_t)(word >> 40);
  }
  free(order);
  return in;
}
