/* SPDX-License-Identifier: Apache-2.0
 *
 * Case files as case lines, and the list they are kept in.
 */
#include "fuzz_keep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "casefail.h"

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* ---- whether a line makes the same inputs ---- */

static bool same_tensor(const case_file *a, const case_file *b, const char *name) {
  const case_tensor *x = case_find(a, name), *y = case_find(b, name);
  if (!x || !y) return x == y;
  return x->bytes == y->bytes && (x->bytes == 0 || memcmp(x->data, y->data, x->bytes) == 0);
}

/* Live entries only: what nobody may read needs no place in a line. */
static bool same_table(const m3idx_case *a, const int32_t *x, int64_t x_stride, const int32_t *y, int64_t y_stride) {
  if (!x || !y) return x == y;
  for (int64_t r = 0; r < a->R; r++)
    for (int64_t b = 0; b < ceil_div(a->seq_lens[r], a->B); b++)
      if (x[r * x_stride + b] != y[r * y_stride + b]) return false;
  return true;
}

static bool same_scores(const m3idx_case *a, const m3idx_case *b) {
  for (int64_t row = 0; row < a->H * a->T; row++)
    if (memcmp(a->score + row * a->M, b->score + row * b->M, (size_t)a->num_blocks[row % a->T] * sizeof *a->score) != 0)
      return false;
  return true;
}

static bool same_inputs(const case_file *file, const case_file *made) {
  static const char *const names[] = {"q", "index_k", "seq_lens", "cu_seqlens", "prefix_lens", "num_blocks"};
  m3idx_case a, b;
  char ignored[CASE_MESSAGE_BYTES];
  if (case_view(file, &a, ignored) || case_view(made, &b, ignored)) return false;
  if (a.op != b.op || a.R != b.R || a.T != b.T || a.H != b.H || a.D != b.D || a.B != b.B || a.P != b.P || a.M != b.M ||
      a.K != b.K || a.init_blocks != b.init_blocks || a.local_blocks != b.local_blocks ||
      a.decode_query_len != b.decode_query_len || a.page_stride != b.page_stride || a.scale != b.scale ||
      a.sparse_table != b.sparse_table || a.q_dtype != b.q_dtype || a.k_dtype != b.k_dtype ||
      memcmp(&a.contract, &b.contract, sizeof a.contract) != 0)
    return false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!same_tensor(file, made, names[i])) return false;
  if (a.op == CASE_SELECT) return same_scores(&a, &b);
  return same_table(&a, a.block_table, a.block_table_stride, b.block_table, b.block_table_stride) &&
         same_table(&a, a.attention_block_table, a.attention_block_table_stride, b.attention_block_table,
                    b.attention_block_table_stride);
}

static bool makes(const case_spec *spec, const case_file *file) {
  char ignored[CASE_MESSAGE_BYTES];
  case_file made = {0};
  const bool same = !case_generate(spec, &made, ignored) && same_inputs(file, &made);
  case_file_free(&made);
  return same;
}

/* ---- a line of zeros and single elements ---- */

static uint32_t element(const void *data, size_t bytes, int64_t i) {
  switch (bytes) {
  case 4: return ((const uint32_t *)data)[i];
  case 2: return ((const uint16_t *)data)[i];
  default: return ((const uint8_t *)data)[i];
  }
}

static int put(case_spec *s, case_put_tensor tensor, int64_t index, uint32_t bits, char *why) {
  if (s->num_puts == CASE_MAX_LIST)
    return case_fail(why, "more than %d elements are not zero, no line holds them", CASE_MAX_LIST);
  s->puts[s->num_puts++] = (case_put){tensor, index, bits};
  return 0;
}

static int put_tensor(case_spec *s, case_put_tensor tensor, const void *data, size_t bytes, int64_t count, char *why) {
  int bad = 0;
  for (int64_t i = 0; i < count && !bad; i++)
    if (element(data, bytes, i)) bad = put(s, tensor, i, element(data, bytes, i), why);
  return bad;
}

static int put_table(case_spec *s, case_put_tensor tensor, const m3idx_case *c, const int32_t *table, int64_t stride,
                     char *why) {
  int bad = 0;
  for (int64_t r = 0; r < c->R && table && !bad; r++)
    for (int64_t b = 0; b < ceil_div(c->seq_lens[r], c->B) && !bad; b++)
      bad = put(s, tensor, r * (c->M + 1) + b, (uint32_t)table[r * stride + b], why);
  return bad;
}

static int32_t *list_of(const int32_t *from, int64_t count) {
  int32_t *list = malloc((size_t)count * sizeof *list + 1);
  if (list && count) memcpy(list, from, (size_t)count * sizeof *list);
  return list;
}

/* Lists and options of a view, whose contents the door has not judged: a line that says something else is not the
 * case's, and same_inputs() finds it out. */
static int describe(const m3idx_case *c, case_spec *s, char *why) {
  const int64_t parts = c->op == CASE_SELECT ? c->T : c->R;
  *s = (case_spec){.op = c->op,
                   .num_rows = c->T,
                   .heads = c->H,
                   .topk = c->K,
                   .max_block = c->M,
                   .data = CASE_ZEROS,
                   .init_blocks = c->init_blocks,
                   .local_blocks = c->local_blocks,
                   .contract = c->contract,
                   .scale = c->scale,
                   .page_stride = c->page_stride,
                   .sparse_table = c->sparse_table,
                   .attention_table = c->attention_block_table != NULL};
  if (parts > CASE_MAX_LIST) return case_fail(why, "%lld requests or rows, no line holds them", (long long)parts);
  s->puts = malloc(CASE_MAX_LIST * sizeof *s->puts);
  if (c->op == CASE_SELECT) {
    s->num_blocks = list_of(c->num_blocks, parts);
    return s->puts && s->num_blocks ? 0 : case_fail(why, "out of memory");
  }
  s->num_requests = c->R;
  s->head_dim = c->D;
  s->block_size = c->B;
  s->q_dtype = c->q_dtype;
  s->k_dtype = c->k_dtype;
  s->num_pages = c->P;
  s->decode_query_len = c->op == CASE_DECODE ? c->decode_query_len : 1;
  s->seq_lens = list_of(c->seq_lens, parts);
  if (c->op == CASE_PREFILL) {
    s->prefix_lens = list_of(c->prefix_lens, parts);
    s->q_lens = list_of(c->cu_seqlens + 1, parts);
    for (int64_t r = 0; r < parts && s->q_lens; r++) s->q_lens[r] -= c->cu_seqlens[r];
    if (!s->prefix_lens || !s->q_lens) return case_fail(why, "out of memory");
  }
  return s->puts && s->seq_lens ? 0 : case_fail(why, "out of memory");
}

static int put_all(const m3idx_case *c, case_spec *s, char *why) {
  if (c->op == CASE_SELECT) return put_tensor(s, CASE_PUT_SCORE, c->score, 4, c->H * c->T * c->M, why);
  const size_t q = m3idx_dtype_bytes(c->q_dtype), k = m3idx_dtype_bytes(c->k_dtype);
  return put_tensor(s, CASE_PUT_Q, c->q, q, c->T * c->H * c->D, why) ||
                 put_tensor(s, CASE_PUT_INDEX_K, c->index_k, k, c->P * c->B * c->D, why) ||
                 put_table(s, CASE_PUT_BLOCK_TABLE, c, c->block_table, c->block_table_stride, why) ||
                 put_table(s, CASE_PUT_ATTENTION_BLOCK_TABLE, c, c->attention_block_table,
                           c->attention_block_table_stride, why)
             ? -1
             : 0;
}

/* What the line's parser would refuse of lists that came from a file. */
static int sensible(const m3idx_case *c, char *why) {
  for (int64_t r = 0; r < c->R && c->op != CASE_SELECT; r++)
    if (c->seq_lens[r] < 0 || ceil_div(c->seq_lens[r], c->B) > c->M)
      return case_fail(why, "seq_lens[%lld] is %ld, past the capacity: no line says that", (long long)r,
                       (long)c->seq_lens[r]);
  for (int64_t t = 0; t < c->T && c->op == CASE_SELECT; t++)
    if (c->num_blocks[t] < 0 || c->num_blocks[t] > c->M)
      return case_fail(why, "num_blocks[%lld] is %ld, past the capacity: no line says that", (long long)t,
                       (long)c->num_blocks[t]);
  return 0;
}

char *fuzz_line_of(const case_file *file, char *why) {
  const char *own = case_metadata(file, "case_line");
  char ignored[CASE_MESSAGE_BYTES], *line = NULL;
  m3idx_case c;
  case_spec spec = {0}, again = {0};
  if (case_view(file, &c, why) || sensible(&c, why)) return NULL;
  if (own && !case_spec_parse_line(own, &spec, ignored) && makes(&spec, file)) {
    line = case_spec_format(&spec);
    case_spec_free(&spec);
    return line;
  }
  case_spec_free(&spec);
  int bad = describe(&c, &spec, why) || put_all(&c, &spec, why);
  if (!bad) line = case_spec_format(&spec);
  case_spec_free(&spec);
  if (!line) return NULL;
  bad = case_spec_parse_line(line, &again, why);
  if (!bad && !makes(&again, file)) bad = case_fail(why, "its inputs are none that a line can say");
  case_spec_free(&again);
  if (!bad) return line;
  free(line);
  return NULL;
}

/* ---- the list ---- */

static int is_kept(const char *list, const char *line, char *why) {
  static char text[1 << 18];
  FILE *in = fopen(list, "r");
  int found = 0;
  if (!in) return case_fail(why, "%.200s: cannot read: %s", list, strerror(errno));
  while (!found && fgets(text, sizeof text, in)) {
    text[strcspn(text, "\r\n")] = 0;
    found = !strcmp(text, line);
  }
  fclose(in);
  return found;
}

int fuzz_keep(const char *list, const char *line, const char *reason, char *why) {
  const int found = is_kept(list, line, why);
  if (found) return found;
  FILE *out = fopen(list, "a");
  if (!out) return case_fail(why, "%.200s: cannot write: %s", list, strerror(errno));
  const int bad = fprintf(out, "\n# %s\n%s\n", reason, line) < 0;
  return fclose(out) || bad ? case_fail(why, "%.200s: cannot write: %s", list, strerror(errno)) : 0;
}
