/* SPDX-License-Identifier: Apache-2.0
 *
 * golden_emit TABLE [BACKEND]: the outputs of every golden case line, from every host backend and instruction set or
 * the one named, on standard output:
 *
 *     golden BACKEND PATH TENSOR BYTES CASE-LINE \n  and then BYTES bytes, little-endian
 *
 * PATH is how the tensor came to be: staged (score, select, table), fused (topk), merged (keys of three parts, S4.5)
 * or inserted; inputs are generated.  Paths that give the same tensor have the same digest.  It needs libc and libm3idx
 * only, so that it runs under an emulator; golden_check judges what it says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conform_backends.h"
#include "conform_case.h"
#include "geometry.h"
#include "golden_table.h"

typedef struct emission {
  m3idx_context *ctx;
  const char *backend, *line;
  case_spec spec;
  case_file file;
  m3idx_case c;
  m3idx_batch batch;
} emission;

static int put(void *user, const void *bytes, size_t n) {
  (void)user;
  return fwrite(bytes, 1, n, stdout) == n ? 0 : -1;
}

static bool emit(const emission *e, const char *path, const char *tensor, const case_tensor *t) {
  if (!t) return true; /* an output that this case does not have */
  printf("golden %s %s %s %lu %s\n", e->backend, path, tensor, (unsigned long)t->bytes, e->line);
  return case_tensor_le(t, put, NULL) == 0;
}

static bool refused(const emission *e, const char *what) {
  fprintf(stderr, "golden_emit: %s: %s: %s: %s\n", e->backend, e->line, what, m3idx_message(e->ctx));
  return false;
}

/* Staged or fused, by the function that m3idx run calls. */
static bool emit_run(emission *e, bool staged) {
  static const char *const names[] = {"score", "topk_idx", "sparse_block_table", "sparse_context_lens"};
  char why[CASE_MESSAGE_BYTES];
  const char *path = staged ? "staged" : "fused";
  if (case_run(e->ctx, &e->file, staged, why) != M3IDX_OK) return refused(e, path);
  bool good = true;
  for (int i = e->c.op == CASE_SELECT; i < 4; i++)
    good = good && emit(e, path, names[i], case_find(&e->file, names[i]));
  return good;
}

/* What was generated, so that a wrong input is not taken for a wrong output. */
static bool emit_inputs(const emission *e) {
  unsigned long bytes = 0;
  for (int64_t i = 0; i < e->file.num_tensors; i++) bytes += (unsigned long)e->file.tensors[i].bytes;
  printf("golden %s generated inputs %lu %s\n", e->backend, bytes, e->line);
  for (int64_t i = 0; i < e->file.num_tensors; i++)
    if (case_tensor_le(&e->file.tensors[i], put, NULL)) return false;
  return true;
}

/* Keys of the whole, then of three parts merged; `score` is the case's input or the staged run's output. */
static bool emit_keys(emission *e, const float *score, case_file *out) {
  enum { PARTS = 3 };
  const m3idx_case *c = &e->c;
  const int64_t one = c->H * c->T * c->K, shape[3] = {c->H, c->T, c->K};
  uint64_t *parts = conform_alloc((size_t)(PARTS * one) * sizeof *parts);
  case_tensor *keys = case_add_tensor(out, "keys", CASE_U64, 3, shape);
  m3idx_select_args select;
  case_select_args(c, &e->batch, &select);
  select.score = score;
  select.keys = keys ? keys->data : NULL;
  bool good = (keys && m3idx_select(e->ctx, &select) == M3IDX_OK) || refused(e, "keys");
  good = good && emit(e, "staged", "keys", keys);
  for (int32_t p = 0; good && p < PARTS; p++) {
    const m3idx_range part = m3idx_score_part((int32_t)c->M, PARTS, p);
    m3idx_select_args a = select;
    a.score_stride_row = c->M;
    a.max_block = part.end - part.begin;
    a.first_block = part.begin;
    a.score = score + part.begin;
    a.keys = parts + p * one;
    good = m3idx_select(e->ctx, &a) == M3IDX_OK || refused(e, "keys of a part");
  }
  case_tensor *ids = case_add_tensor(out, "topk_idx", CASE_I32, 3, shape);
  keys = case_find(out, "keys");
  if (good && ids) {
    const m3idx_merge_args merge = {.num_parts = PARTS,
                                    .num_heads = c->H,
                                    .num_rows = c->T,
                                    .topk = c->K,
                                    .contract = c->contract,
                                    .keys = parts,
                                    .topk_idx = ids->data,
                                    .merged_keys = keys->data};
    memset(keys->data, 0xee, keys->bytes);
    good = m3idx_merge(e->ctx, &merge) == M3IDX_OK || refused(e, "merge");
    good = good && emit(e, "merged", "keys", keys) && emit(e, "merged", "topk_idx", ids);
  }
  free(parts);
  return good && ids;
}

/* S6: where the pair of formats has a conversion. */
static bool emit_insert(emission *e, case_file *out) {
  conform_insert in = conform_insert_make(e->spec.seed, &e->c);
  const size_t element = m3idx_dtype_bytes(in.cache_dtype);
  const case_dtype stored = element == 4 ? CASE_U32 : element == 2 ? CASE_U16 : CASE_U8;
  case_tensor *cache = case_add_tensor(out, "cache", stored, 3, (int64_t[]){in.P, in.B, in.D});
  m3idx_cache_insert_args a = {.key = {.dtype = in.key_dtype, .shape = {1, in.n, in.D}},
                               .slot_mapping = in.slots,
                               .cache = {.dtype = in.cache_dtype, .shape = {in.P, in.B, in.D}}};
  memcpy(&a.key.data, &in.keys, sizeof in.keys);
  a.cache.data = cache ? cache->data : NULL;
  const m3idx_status status = cache ? m3idx_cache_insert(e->ctx, &a) : M3IDX_NO_MEMORY;
  free(in.slots);
  if (status == M3IDX_UNSUPPORTED) return true;
  return status == M3IDX_OK ? emit(e, "inserted", "cache", cache) : refused(e, "cache_insert");
}

static bool emit_line(m3idx_context *ctx, const char *backend, const char *line) {
  emission e = {.ctx = ctx, .backend = backend, .line = line};
  case_file out = {0};
  char why[CASE_MESSAGE_BYTES];
  if (case_spec_parse_line(line, &e.spec, why) || case_generate(&e.spec, &e.file, why) ||
      case_view(&e.file, &e.c, why)) {
    fprintf(stderr, "golden_emit: %s: %s\n", line, why);
    return false;
  }
  case_batch(&e.c, &e.batch);
  const bool attention = e.c.op != CASE_SELECT;
  bool good = emit_inputs(&e) && emit_run(&e, true);
  const case_tensor *score = case_find(&e.file, "score"); /* input or output */
  good = good && score && emit_keys(&e, score->data, &out);
  if (attention) good = good && emit_insert(&e, &out) && emit_run(&e, false);
  case_file_free(&out);
  case_file_free(&e.file);
  case_spec_free(&e.spec);
  return good;
}

int main(int argc, char **argv) {
  golden_table table;
  conform_opened *backends;
  bool good = true;
  int ran = 0;
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: golden_emit TABLE [BACKEND]\n");
    return 2;
  }
  if (!golden_read(argv[1], &table)) return 2;
  const int count = conform_open_all(argc > 2 ? argv[2] : "all", 0, NULL, 0, &backends);
  for (int b = 0; b < count; b++) {
    if (!backends[b].ctx) fprintf(stderr, "%s: not run here: %s\n", backends[b].name, backends[b].reason);
    if (!backends[b].ctx) continue;
    ran++;
    for (int i = 0; good && i < table.count; i++)
      if (golden_begins(&table, i)) good = emit_line(backends[b].ctx, backends[b].name, table.row[i].line);
  }
  conform_close_all(backends, count);
  golden_free(&table);
  if (!ran) fprintf(stderr, "golden_emit: no backend ran\n");
  return good && ran && fflush(stdout) == 0 ? 0 : 1;
}
