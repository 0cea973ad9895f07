/* SPDX-License-Identifier: Apache-2.0
 *
 * From a case line to a case: tensors, page tables and metadata (docs/CASES.md, "Generation").  The numbers
 * come from casedata.c.  Pages are a random permutation and there are no more of them than live blocks; what
 * no implementation may read (dead table entries, score columns past N) is poison.
 */
#include <stdlib.h>
#include <string.h>

#include "casedata.h"
#include "casefail.h"

static case_dtype stored_as(m3idx_dtype dtype) {
  switch (dtype) {
  case M3IDX_F32: return CASE_F32;
  case M3IDX_F16: return CASE_F16;
  case M3IDX_BF16: return CASE_BF16;
  case M3IDX_E4M3FN: return CASE_F8_E4M3;
  case M3IDX_E5M2: return CASE_F8_E5M2;
  default: return CASE_U8; /* fnuz: safetensors has no name for it, the encoding metadata has */
  }
}

static void *add(case_file *file, const char *name, case_dtype dtype, int rank, const int64_t *shape, char *why) {
  case_tensor *t = case_add_tensor(file, name, dtype, rank, shape);
  if (t) return t->data;
  int n = snprintf(why, CASE_MESSAGE_BYTES, "tensor %s: no memory for %s [", name, case_dtype_name(dtype));
  for (int i = 0; i < rank; i++)
    n += snprintf(why + n, CASE_MESSAGE_BYTES - (size_t)n, "%s%lld", i ? ", " : "", (long long)shape[i]);
  snprintf(why + n, CASE_MESSAGE_BYTES - (size_t)n, "]");
  return NULL;
}

static int64_t blocks_of(const case_spec *spec, int64_t r) {
  return spec->seq_lens[r] / spec->block_size + (spec->seq_lens[r] % spec->block_size != 0);
}

/* Pages of the tensor: as many as live blocks unless the line says otherwise. */
static int count_pages(const case_spec *spec, int64_t *pages, char *why) {
  int64_t live = 0;
  for (int64_t r = 0; r < spec->num_requests; r++) live += blocks_of(spec, r);
  *pages = spec->num_pages ? spec->num_pages : live;
  if (*pages > INT32_MAX)
    return case_fail(why, "--seq-lens: %lld live blocks, pages must be at most %lld", (long long)live,
                     (long long)INT32_MAX);
  if (spec->sparse_table && *pages * spec->page_stride * spec->heads > INT64_C(0x80000000))
    return case_fail(why,
                     "--num-pages: %lld pages of %lld attention pages and %lld heads, sparse ids must fit in 31 bits",
                     (long long)*pages, (long long)spec->page_stride, (long long)spec->heads);
  return 0;
}

/* The page of a live entry, the next-th of all, block b of its request.  Where there is one there is a page. */
static int32_t page_of(const case_spec *spec, uint64_t drawn, int64_t pages, const int32_t *order, int64_t next,
                       int64_t b) {
  if (pages < 1) return INT32_MAX;
  switch (spec->table) {
  case CASE_TURNS: return order[next % pages]; /* again from its start when pages are shared */
  case CASE_RANDOM: return order[case_word(drawn, (uint64_t)next) % (uint64_t)pages];
  case CASE_PREFIX: return order[b % pages];
  }
  return 0;
}

/* Live entries name pages; the rest is poison. */
static int fill_table(const case_spec *spec, case_stream stream, int64_t pages, int64_t width, int32_t *table,
                      char *why) {
  int32_t *order = malloc((size_t)(pages + 1) * sizeof *order);
  if (!order) return case_fail(why, "no memory for the order of %lld pages", (long long)pages);
  const uint64_t key = case_stream_key(spec, stream), drawn = case_stream_key(spec, CASE_STREAM_DRAWN) ^ key;
  case_permute(key, pages, order);
  int64_t next = 0;
  for (int64_t r = 0; r < spec->num_requests; r++) {
    int64_t live = blocks_of(spec, r);
    for (int64_t b = 0; b < width; b++) {
      int32_t *entry = &table[r * width + b];
      if (b < live)
        *entry = page_of(spec, drawn, pages, order, next++, b);
      else
        *entry = b & 1 ? -1 : INT32_MAX;
    }
  }
  free(order);
  return 0;
}

static int generate_tables(const case_spec *spec, int64_t pages, int64_t max_block, case_file *out, char *why) {
  const int64_t shape[2] = {spec->num_requests, max_block + 1}; /* one column of poison past the capacity */
  int32_t *table = add(out, "block_table", CASE_I32, 2, shape, why);
  if (!table || fill_table(spec, CASE_STREAM_PAGES, pages, shape[1], table, why)) return -1;
  if (!spec->attention_table) return 0;
  table = add(out, "attention_block_table", CASE_I32, 2, shape, why);
  return table ? fill_table(spec, CASE_STREAM_ATTENTION, pages, shape[1], table, why) : -1;
}

static int generate_lengths(const case_spec *spec, case_file *out, char *why) {
  const int64_t R = spec->num_requests, R1 = R + 1;
  const size_t bytes = (size_t)R * sizeof(int32_t);
  int32_t *seq_lens = add(out, "seq_lens", CASE_I32, 1, &R, why);
  if (!seq_lens) return -1;
  memcpy(seq_lens, spec->seq_lens, bytes);
  if (spec->op == CASE_DECODE) return 0;
  int32_t *cu_seqlens = add(out, "cu_seqlens", CASE_I32, 1, &R1, why);
  int32_t *prefix_lens = cu_seqlens ? add(out, "prefix_lens", CASE_I32, 1, &R, why) : NULL;
  if (!prefix_lens) return -1;
  memcpy(prefix_lens, spec->prefix_lens, bytes);
  for (int64_t r = 0; r < R; r++) cu_seqlens[r + 1] = cu_seqlens[r] + spec->q_lens[r];
  return 0;
}

static int generate_attention(const case_spec *spec, int64_t pages, int64_t max_block, case_file *out, char *why) {
  void *q = add(out, "q", stored_as(spec->q_dtype), 3, (int64_t[]){spec->num_rows, spec->heads, spec->head_dim}, why);
  if (!q) return -1;
  case_fill_q(spec, q);
  void *index_k =
      add(out, "index_k", stored_as(spec->k_dtype), 3, (int64_t[]){pages, spec->block_size, spec->head_dim}, why);
  if (!index_k) return -1;
  case_fill_index_k(spec, pages, index_k);
  return generate_tables(spec, pages, max_block, out, why) || generate_lengths(spec, out, why) ? -1 : 0;
}

/* Columns past a row's blocks are NaN and +inf: a selector that reads them takes them (S4.6). */
static int generate_select(const case_spec *spec, int64_t max_block, case_file *out, char *why) {
  static const uint32_t poison[2] = {0x7fc00000u, 0x7f800000u};
  float *score = add(out, "score", CASE_F32, 3, (int64_t[]){spec->heads, spec->num_rows, max_block}, why);
  int32_t *num_blocks = score ? add(out, "num_blocks", CASE_I32, 1, &spec->num_rows, why) : NULL;
  if (!num_blocks) return -1;
  case_fill_score(spec, max_block, score);
  memcpy(num_blocks, spec->num_blocks, (size_t)spec->num_rows * sizeof *num_blocks);
  for (int64_t row = 0; row < spec->heads * spec->num_rows; row++)
    for (int64_t b = num_blocks[row % spec->num_rows]; b < max_block; b++)
      memcpy(&score[row * max_block + b], &poison[b & 1], sizeof *score);
  return 0;
}

/* --put: single elements, over whatever the tensor holds. */
static int generate_puts(const case_spec *spec, case_file *out, char *why) {
  static const char *const names[] = {"q", "index_k", "score", "block_table", "attention_block_table"};
  for (int64_t i = 0; i < spec->num_puts; i++) {
    const case_put *put = &spec->puts[i];
    const char *name = names[put->tensor];
    const case_tensor *t = case_find(out, name);
    if (!t) return case_fail(why, "--put %s:%lld: the case has no such tensor", name, (long long)put->index);
    const size_t width = case_dtype_bytes(t->dtype), count = t->bytes / width;
    if ((uint64_t)put->index >= count)
      return case_fail(why, "--put %s:%lld: must be below %llu, its elements", name, (long long)put->index,
                       (unsigned long long)count);
    if (width < 4 && put->bits >> 8 * width)
      return case_fail(why, "--put %s:%lld=%lx: its elements have %d bits", name, (long long)put->index,
                       (unsigned long)put->bits, (int)(8 * width));
    if (width == 4)
      ((uint32_t *)t->data)[put->index] = put->bits;
    else if (width == 2)
      ((uint16_t *)t->data)[put->index] = (uint16_t)put->bits;
    else
      ((uint8_t *)t->data)[put->index] = (uint8_t)put->bits;
  }
  return 0;
}

static int set_integer(case_file *out, const char *key, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)value);
  return case_set_metadata(out, key, text);
}

static int generate_metadata(const case_spec *spec, int64_t max_block, case_file *out) {
  char contract[96], scale[32];
  m3idx_contract_name(&spec->contract, contract, sizeof contract);
  snprintf(scale, sizeof scale, "%.9g", (double)spec->scale);
  int bad = case_set_metadata(out, "format", CASE_FORMAT) | case_set_metadata(out, "op", case_op_name(spec->op)) |
            set_integer(out, "topk", spec->topk) | set_integer(out, "max_block", max_block) |
            set_integer(out, "init_blocks", spec->init_blocks) | set_integer(out, "local_blocks", spec->local_blocks) |
            case_set_metadata(out, "contract", contract);
  if (spec->op == CASE_DECODE) bad |= set_integer(out, "decode_query_len", spec->decode_query_len);
  if (spec->op != CASE_SELECT)
    bad |= case_set_metadata(out, "scale", scale) | set_integer(out, "page_stride", spec->page_stride) |
           set_integer(out, "sparse_table", spec->sparse_table) |
           case_set_metadata(out, "q_encoding", m3idx_dtype_name(spec->q_dtype)) |
           case_set_metadata(out, "index_k_encoding", m3idx_dtype_name(spec->k_dtype));
  char *line = case_spec_format(spec);
  bad |= line ? case_set_metadata(out, "case_line", line) : -1;
  free(line);
  return bad;
}

m3idx_status case_generate(const case_spec *spec, case_file *out, char *why) {
  case_file file = {0};
  int64_t pages, max_block = spec->max_block ? spec->max_block : case_spec_least_blocks(spec);
  m3idx_status status = M3IDX_OK;
  if (spec->op == CASE_SELECT) {
    if (generate_select(spec, max_block, &file, why)) status = M3IDX_NO_MEMORY;
  } else if (count_pages(spec, &pages, why)) {
    status = M3IDX_INVALID;
  } else if (generate_attention(spec, pages, max_block, &file, why)) {
    status = M3IDX_NO_MEMORY;
  }
  if (!status && generate_puts(spec, &file, why)) status = M3IDX_INVALID;
  if (!status && generate_metadata(spec, max_block, &file)) {
    case_fail(why, "no memory for the metadata");
    status = M3IDX_NO_MEMORY;
  }
  if (status) case_file_free(&file);
  *out = file;
  return status;
}
