/* SPDX-License-Identifier: Apache-2.0
 *
 * Case lines as problems that can be cut down (fuzz_small.h).  What an option forbids is left out by
 * fuzz_small_spec(), so that an edit need not know every rule; whether the result still fails is not asked here.
 */
#include "fuzz_small.h"

#include <stdlib.h>
#include <string.h>

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

static int64_t columns(const case_spec *s) { return s->max_block ? s->max_block : case_spec_least_blocks(s); }

/* ---- points and indices ---- */

/* Extents of a tensor's coordinates, in their order.  Pages have no bound here: generation has it. */
static void extents(const case_spec *s, case_put_tensor tensor, int64_t out[3]) {
  switch (tensor) {
  case CASE_PUT_Q: memcpy(out, (int64_t[]){s->num_rows, s->heads, s->head_dim}, 3 * sizeof *out); break;
  case CASE_PUT_INDEX_K: memcpy(out, (int64_t[]){INT32_MAX, s->block_size, s->head_dim}, 3 * sizeof *out); break;
  case CASE_PUT_SCORE: memcpy(out, (int64_t[]){s->num_rows, s->heads, columns(s)}, 3 * sizeof *out); break;
  case CASE_PUT_BLOCK_TABLE:
  case CASE_PUT_ATTENTION_BLOCK_TABLE:
    memcpy(out, (int64_t[]){s->num_requests, columns(s) + 1, 1}, 3 * sizeof *out);
    break;
  }
}

static fuzz_point point_of(const case_spec *s, const case_put *put) {
  fuzz_point p = {.tensor = put->tensor, .bits = put->bits};
  int64_t e[3] = {0};
  extents(s, put->tensor, e);
  if (put->tensor == CASE_PUT_SCORE) { /* stored [head][row][block] */
    p.at[1] = put->index / (e[2] * e[0]);
    p.at[0] = put->index / e[2] % e[0];
    p.at[2] = put->index % e[2];
  } else {
    p.at[0] = put->index / (e[1] * e[2]);
    p.at[1] = put->index / e[2] % e[1];
    p.at[2] = put->index % e[2];
  }
  return p;
}

/* false: the point is not of this case. */
static bool put_of(const case_spec *s, const fuzz_point *p, case_put *put) {
  int64_t e[3] = {0};
  extents(s, p->tensor, e);
  for (int i = 0; i < 3; i++)
    if (p->at[i] < 0 || p->at[i] >= e[i]) return false;
  if (p->tensor == CASE_PUT_ATTENTION_BLOCK_TABLE && !s->attention_table) return false;
  *put = (case_put){.tensor = p->tensor, .bits = p->bits};
  if (p->tensor == CASE_PUT_SCORE)
    put->index = (p->at[1] * e[0] + p->at[0]) * e[2] + p->at[2];
  else
    put->index = (p->at[0] * e[1] + p->at[1]) * e[2] + p->at[2];
  return true;
}

/* ---- copies ---- */

static int copy_list(int32_t **list, const int32_t *from, int64_t count) {
  *list = NULL;
  if (!from) return 0;
  *list = malloc((size_t)count * sizeof **list + 1);
  if (*list && count) memcpy(*list, from, (size_t)count * sizeof **list);
  return *list ? 0 : -1;
}

static int copy_spec(const case_spec *from, case_spec *out) {
  const int64_t parts = from->op == CASE_SELECT ? from->num_rows : from->num_requests;
  *out = *from;
  out->puts = NULL;
  out->num_puts = 0;
  int bad = copy_list(&out->q_lens, from->q_lens, parts);
  bad |= copy_list(&out->prefix_lens, from->prefix_lens, parts);
  bad |= copy_list(&out->seq_lens, from->seq_lens, parts);
  bad |= copy_list(&out->num_blocks, from->num_blocks, parts);
  return bad;
}

void fuzz_small_free(fuzz_small *small) {
  case_spec_free(&small->spec);
  free(small->points);
  *small = (fuzz_small){0};
}

int fuzz_small_from(const case_spec *spec, fuzz_small *out) {
  *out = (fuzz_small){.num_points = spec->num_puts};
  out->points = malloc((size_t)spec->num_puts * sizeof *out->points + 1);
  if (copy_spec(spec, &out->spec) || !out->points) {
    fuzz_small_free(out);
    return -1;
  }
  for (int64_t i = 0; i < spec->num_puts; i++) out->points[i] = point_of(spec, &spec->puts[i]);
  return 0;
}

int fuzz_small_copy(const fuzz_small *from, fuzz_small *out) {
  *out = (fuzz_small){.num_points = from->num_points};
  out->points = malloc((size_t)from->num_points * sizeof *out->points + 1);
  if (copy_spec(&from->spec, &out->spec) || !out->points) {
    fuzz_small_free(out);
    return -1;
  }
  if (from->num_points) memcpy(out->points, from->points, (size_t)from->num_points * sizeof *out->points);
  return 0;
}

/* What no line may say is taken back. */
static void normalise(case_spec *s) {
  if (s->op == CASE_PREFILL && s->q_lens && s->prefix_lens && s->seq_lens) {
    s->num_rows = 0;
    for (int64_t r = 0; r < s->num_requests; r++) {
      const int64_t need = (int64_t)s->prefix_lens[r] + s->q_lens[r];
      if (s->seq_lens[r] < need) s->seq_lens[r] = (int32_t)need;
      s->num_rows += s->q_lens[r];
    }
  } else if (s->op == CASE_DECODE) {
    s->num_rows = s->num_requests * s->decode_query_len;
  }
  if (s->max_block && s->max_block < case_spec_least_blocks(s)) s->max_block = 0;
  if (s->block_size != 128) s->sparse_table = false;
  if (!s->sparse_table) s->attention_table = false;
}

int fuzz_small_spec(const fuzz_small *small, case_spec *out) {
  if (copy_spec(&small->spec, out)) {
    case_spec_free(out);
    return -1;
  }
  normalise(out);
  if (!small->num_points) return 0;
  out->puts = malloc((size_t)small->num_points * sizeof *out->puts);
  if (!out->puts) {
    case_spec_free(out);
    return -1;
  }
  for (int64_t i = 0; i < small->num_points; i++)
    out->num_puts += put_of(out, &small->points[i], &out->puts[out->num_puts]);
  return 0;
}

/* ---- pinning ---- */

static uint32_t element(const case_tensor *t, int64_t i) {
  switch (case_dtype_bytes(t->dtype)) {
  case 4: return ((const uint32_t *)t->data)[i];
  case 2: return ((const uint16_t *)t->data)[i];
  default: return ((const uint8_t *)t->data)[i];
  }
}

/* Whether generation would put this element there by itself, or nobody reads it. */
static bool needless(const case_spec *s, const fuzz_point *p) {
  const bool table = p->tensor == CASE_PUT_BLOCK_TABLE || p->tensor == CASE_PUT_ATTENTION_BLOCK_TABLE;
  if (table) return !s->seq_lens || p->at[1] >= ceil_div(s->seq_lens[p->at[0]], s->block_size);
  if (p->tensor == CASE_PUT_SCORE) return p->bits == 0 || !s->num_blocks || p->at[2] >= s->num_blocks[p->at[0]];
  return p->bits == 0;
}

int fuzz_small_pin(const fuzz_small *from, int64_t most, fuzz_small *out) {
  static const char *const names[] = {"q", "index_k", "score", "block_table", "attention_block_table"};
  char why[CASE_MESSAGE_BYTES];
  case_spec spec;
  case_file file = {0};
  int bad = fuzz_small_spec(from, &spec);
  *out = (fuzz_small){0};
  if (bad) return -1;
  bad = case_generate(&spec, &file, why) || copy_spec(&spec, &out->spec);
  out->points = bad ? NULL : malloc((size_t)most * sizeof *out->points + 1);
  bad = bad || !out->points;
  for (int n = 0; n < 5 && !bad; n++) {
    const case_tensor *t = case_find(&file, names[n]);
    const int64_t count = t ? (int64_t)(t->bytes / case_dtype_bytes(t->dtype)) : 0;
    for (int64_t i = 0; i < count && !bad; i++) {
      const case_put put = {(case_put_tensor)n, i, element(t, i)};
      const fuzz_point p = point_of(&spec, &put);
      if (needless(&spec, &p)) continue;
      bad = out->num_points == most;
      if (!bad) out->points[out->num_points++] = p;
    }
  }
  if (!bad && spec.op != CASE_SELECT) out->spec.num_pages = case_find(&file, "index_k")->shape[0];
  out->spec.data = CASE_ZEROS;
  case_file_free(&file);
  case_spec_free(&spec);
  if (bad) fuzz_small_free(out);
  return bad ? -1 : 0;
}

/* ---- edits ---- */

int64_t fuzz_small_parts(const fuzz_small *small) {
  return small->spec.op == CASE_SELECT ? small->spec.num_rows : small->spec.num_requests;
}

static bool of_rows(const fuzz_point *p) { return p->tensor == CASE_PUT_Q || p->tensor == CASE_PUT_SCORE; }
static bool of_table(const fuzz_point *p) {
  return p->tensor == CASE_PUT_BLOCK_TABLE || p->tensor == CASE_PUT_ATTENTION_BLOCK_TABLE;
}

/* Takes coordinate values first .. first + count - 1 of the chosen points away; later ones move down. */
static void cut(fuzz_small *s, bool (*chosen)(const fuzz_point *), int which, int64_t first, int64_t count) {
  int64_t kept = 0;
  for (int64_t i = 0; i < s->num_points; i++) {
    fuzz_point p = s->points[i];
    if (chosen(&p) && p.at[which] >= first) {
      if (p.at[which] < first + count) continue;
      p.at[which] -= count;
    }
    s->points[kept++] = p;
  }
  s->num_points = kept;
}

static int64_t first_row(const case_spec *s, int64_t r) {
  if (s->op == CASE_DECODE) return r * s->decode_query_len;
  if (s->op == CASE_SELECT) return r;
  int64_t row = 0;
  for (int64_t i = 0; i < r; i++) row += s->q_lens[i];
  return row;
}

static void cut_list(int32_t *list, int64_t all, int64_t first, int64_t count) {
  if (list) memmove(list + first, list + first + count, (size_t)(all - first - count) * sizeof *list);
}

void fuzz_small_drop_parts(fuzz_small *small, int64_t first, int64_t count) {
  case_spec *s = &small->spec;
  const int64_t all = fuzz_small_parts(small), row = first_row(s, first), rows = first_row(s, first + count) - row;
  cut(small, of_rows, 0, row, rows);
  cut(small, of_table, 0, first, count);
  cut_list(s->q_lens, all, first, count);
  cut_list(s->prefix_lens, all, first, count);
  cut_list(s->seq_lens, all, first, count);
  cut_list(s->num_blocks, all, first, count);
  s->num_rows -= rows;
  if (s->op != CASE_SELECT) s->num_requests -= count;
}

void fuzz_small_drop_rows(fuzz_small *small, int64_t r, int64_t count, bool front) {
  case_spec *s = &small->spec;
  if (s->op == CASE_DECODE) {
    for (int64_t i = s->num_requests - 1; i >= 0; i--) cut(small, of_rows, 0, i * s->decode_query_len, count);
    s->decode_query_len -= count;
    s->num_rows = s->num_requests * s->decode_query_len;
    return;
  }
  cut(small, of_rows, 0, first_row(s, r) + (front ? 0 : s->q_lens[r] - count), count);
  s->q_lens[r] -= (int32_t)count;
  s->num_rows -= count;
  if (front)
    s->prefix_lens[r] += (int32_t)count;
  else
    s->seq_lens[r] -= (int32_t)count;
}

void fuzz_small_drop_head(fuzz_small *small) {
  cut(small, of_rows, 1, 0, 1);
  small->spec.heads--;
}

static bool of_dims(const fuzz_point *p) { return p->tensor == CASE_PUT_Q || p->tensor == CASE_PUT_INDEX_K; }
static bool of_score(const fuzz_point *p) { return p->tensor == CASE_PUT_SCORE; }

void fuzz_small_drop_dims(fuzz_small *small) {
  cut(small, of_dims, 2, 0, 16);
  small->spec.head_dim -= 16;
}

void fuzz_small_drop_column(fuzz_small *small) {
  case_spec *s = &small->spec;
  cut(small, of_score, 2, 0, 1);
  for (int64_t r = 0; r < s->num_rows; r++) s->num_blocks[r] -= s->num_blocks[r] > 0;
  if (s->max_block > 1) s->max_block--;
}

void fuzz_small_drop_block(fuzz_small *small) {
  case_spec *s = &small->spec;
  cut(small, of_table, 1, 0, 1);
  for (int64_t r = 0; r < s->num_requests; r++) {
    const int32_t B = (int32_t)s->block_size, keys = s->seq_lens[r];
    s->seq_lens[r] = keys > B ? keys - B : 0;
    if (!s->prefix_lens) continue;
    s->prefix_lens[r] = s->prefix_lens[r] > B ? s->prefix_lens[r] - B : 0;
  }
  if (s->max_block > 1) s->max_block--;
}
