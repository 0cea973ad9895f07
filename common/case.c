/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases in memory: tensors and metadata under the names of docs/CASES.md, a validated view of them, the
 * descriptors of the view, and the run that adds the outputs.  No file format (casefile.c) and no
 * arithmetic on values: what the contents must satisfy is the door's to judge (S7.1).
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "casefail.h"

/* ---- element types ---- */

static const struct {
  const char *name;
  size_t bytes;
} dtypes[CASE_DTYPE_COUNT] = {
    [CASE_F64] = {"F64", 8},         [CASE_F32] = {"F32", 4},   [CASE_F16] = {"F16", 2},
    [CASE_BF16] = {"BF16", 2},       [CASE_U8] = {"U8", 1},     [CASE_F8_E4M3] = {"F8_E4M3", 1},
    [CASE_F8_E5M2] = {"F8_E5M2", 1}, [CASE_BOOL] = {"BOOL", 1}, [CASE_I8] = {"I8", 1},
    [CASE_I16] = {"I16", 2},         [CASE_U16] = {"U16", 2},   [CASE_I32] = {"I32", 4},
    [CASE_U32] = {"U32", 4},         [CASE_I64] = {"I64", 8},   [CASE_U64] = {"U64", 8},
};

const char *case_dtype_name(case_dtype dtype) { return dtypes[dtype].name; }

size_t case_dtype_bytes(case_dtype dtype) { return dtypes[dtype].bytes; }

int case_dtype_by_name(const char *name, case_dtype *dtype) {
  for (unsigned i = 0; i < CASE_DTYPE_COUNT; i++)
    if (!strcmp(name, dtypes[i].name)) {
      *dtype = (case_dtype)i;
      return 0;
    }
  return -1;
}

/* ---- tensors and metadata ---- */

void case_file_free(case_file *file) {
  for (int64_t i = 0; i < file->num_tensors; i++) {
    free(file->tensors[i].name);
    free(file->tensors[i].data);
  }
  for (int64_t i = 0; i < file->num_metadata; i++) {
    free(file->metadata[i].key);
    free(file->metadata[i].value);
  }
  free(file->tensors);
  free(file->metadata);
  *file = (case_file){0};
}

case_tensor *case_find(const case_file *file, const char *name) {
  for (int64_t i = 0; i < file->num_tensors; i++)
    if (!strcmp(file->tensors[i].name, name)) return &file->tensors[i];
  return NULL;
}

const char *case_metadata(const case_file *file, const char *key) {
  for (int64_t i = 0; i < file->num_metadata; i++)
    if (!strcmp(file->metadata[i].key, key)) return file->metadata[i].value;
  return NULL;
}

static char *copy_text(const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = malloc(bytes);
  return copy ? memcpy(copy, text, bytes) : NULL;
}

int case_tensor_bytes(case_dtype dtype, int rank, const int64_t *shape, size_t *bytes) {
  *bytes = case_dtype_bytes(dtype);
  if (rank < 0 || rank > CASE_MAX_RANK) return -1;
  bool empty = false;
  for (int i = 0; i < rank; i++) {
    if (shape[i] < 0) return -1;
    if (shape[i] == 0) empty = true;
  }
  for (int i = 0; i < rank && !empty; i++) {
    if ((uint64_t)shape[i] > (uint64_t)(PTRDIFF_MAX - 64) / *bytes) return -1;
    *bytes *= (size_t)shape[i];
  }
  if (empty) *bytes = 0;
  return 0;
}

case_tensor *case_add_tensor(case_file *file, const char *name, case_dtype dtype, int rank, const int64_t *shape) {
  case_tensor tensor = {.dtype = dtype, .rank = rank};
  if (case_tensor_bytes(dtype, rank, shape, &tensor.bytes)) return NULL;
  for (int i = 0; i < rank; i++) tensor.shape[i] = shape[i];
  tensor.name = copy_text(name);
  size_t room = (tensor.bytes + 64) / 64 * 64; /* never zero bytes */
  tensor.data = aligned_alloc(64, room);
  case_tensor *slot = case_find(file, name);
  if (tensor.name && tensor.data && !slot) {
    case_tensor *grown = realloc(file->tensors, (size_t)(file->num_tensors + 1) * sizeof *grown);
    if (grown) {
      file->tensors = grown;
      slot = &grown[file->num_tensors++];
      *slot = (case_tensor){0};
    }
  }
  if (!tensor.name || !tensor.data || !slot) {
    free(tensor.name);
    free(tensor.data);
    return NULL;
  }
  memset(tensor.data, 0, room);
  free(slot->name);
  free(slot->data);
  *slot = tensor;
  return slot;
}

void case_remove_tensor(case_file *file, const char *name) {
  case_tensor *tensor = case_find(file, name);
  if (!tensor) return;
  free(tensor->name);
  free(tensor->data);
  int64_t at = tensor - file->tensors;
  file->num_tensors--;
  memmove(tensor, tensor + 1, (size_t)(file->num_tensors - at) * sizeof *tensor);
}

int case_set_metadata(case_file *file, const char *key, const char *value) {
  char *text = copy_text(value);
  if (!text) return -1;
  for (int64_t i = 0; i < file->num_metadata; i++)
    if (!strcmp(file->metadata[i].key, key)) {
      free(file->metadata[i].value);
      file->metadata[i].value = text;
      return 0;
    }
  char *name = copy_text(key);
  case_pair *grown = name ? realloc(file->metadata, (size_t)(file->num_metadata + 1) * sizeof *grown) : NULL;
  if (!grown) {
    free(name);
    free(text);
    return -1;
  }
  file->metadata = grown;
  grown[file->num_metadata++] = (case_pair){name, text};
  return 0;
}

int case_tensor_le(const case_tensor *tensor, int (*sink)(void *user, const void *bytes, size_t n), void *user) {
  const uint16_t probe = 1;
  const unsigned char *bytes = tensor->data;
  size_t width = case_dtype_bytes(tensor->dtype);
  if (*(const unsigned char *)&probe == 1 || width == 1) return tensor->bytes ? sink(user, bytes, tensor->bytes) : 0;
  unsigned char piece[4096];
  for (size_t at = 0; at < tensor->bytes;) {
    size_t n = tensor->bytes - at < sizeof piece ? tensor->bytes - at : sizeof piece;
    for (size_t i = 0; i < n; i++) piece[i] = bytes[at + i / width * width + (width - 1 - i % width)];
    int bad = sink(user, piece, n);
    if (bad) return bad;
    at += n;
  }
  return 0;
}

/* ---- the view ---- */

static int view_integer(const case_file *file, const char *key, int64_t min, int64_t max, const char *fallback,
                        int64_t *out, char *why) {
  const char *text = case_metadata(file, key);
  if (!text) text = fallback;
  if (!text) return case_fail(why, "metadata %s: missing", key);
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  bool digits = *text && strspn(text + (*text == '-'), "0123456789") == strlen(text + (*text == '-'));
  if (!digits || end == text) return case_fail(why, "metadata %s: \"%.80s\" is not an integer", key, text);
  if (errno || value < min || value > max)
    return case_fail(why, "metadata %s: %.80s, must be %lld..%lld", key, text, (long long)min, (long long)max);
  *out = value;
  return 0;
}

int case_scale(const char *text, float *scale) {
  char *end;
  const float value = strtof(text, &end);
  if (!*text || !strchr(".0123456789", *text) || end == text || *end || !(value > 0) || isinf(value)) return -1;
  *scale = value;
  return 0;
}

static int view_text(const case_file *file, m3idx_case *c, char *why) {
  const char *format = case_metadata(file, "format"), *op = case_metadata(file, "op");
  const char *contract = case_metadata(file, "contract"), *scale = case_metadata(file, "scale");
  if (!format) return case_fail(why, "metadata format: missing, must be \"" CASE_FORMAT "\"");
  if (strcmp(format, CASE_FORMAT) != 0)
    return case_fail(why, "metadata format: \"%.80s\", must be \"" CASE_FORMAT "\"", format);
  if (!op) return case_fail(why, "metadata op: missing, must be prefill, decode or select");
  for (c->op = CASE_PREFILL; strcmp(op, case_op_name(c->op)) != 0; c->op = (case_op)(c->op + 1))
    if (c->op == CASE_SELECT) return case_fail(why, "metadata op: \"%.80s\", must be prefill, decode or select", op);
  if (m3idx_contract_by_name(contract ? contract : "vllm", &c->contract) != M3IDX_OK)
    return case_fail(why, "metadata contract: \"%.80s\" is neither a preset nor the four fields", contract);
  c->scale = 1;
  if (scale && case_scale(scale, &c->scale))
    return case_fail(why, "metadata scale: \"%.80s\", must be a finite number above 0", scale);
  return 0;
}

static int view_metadata(const case_file *file, m3idx_case *c, char *why) {
  int64_t sparse = 0;
  if (view_text(file, c, why) || view_integer(file, "topk", 1, 128, NULL, &c->K, why) ||
      view_integer(file, "max_block", 0, CASE_MAX_BLOCKS, NULL, &c->M, why) ||
      view_integer(file, "init_blocks", 0, INT32_MAX, NULL, &c->init_blocks, why) ||
      view_integer(file, "local_blocks", 0, INT32_MAX, NULL, &c->local_blocks, why) ||
      view_integer(file, "page_stride", 8, 16, "8", &c->page_stride, why) ||
      view_integer(file, "sparse_table", 0, 1, "0", &sparse, why))
    return -1;
  c->sparse_table = sparse != 0;
  if (c->page_stride != 8 && c->page_stride != 16)
    return case_fail(why, "metadata page_stride: %lld, must be 8 or 16", (long long)c->page_stride);
  if (c->op == CASE_SELECT && c->sparse_table)
    return case_fail(why, "metadata sparse_table: 1, must be 0 with op select, which knows no positions");
  if (c->op == CASE_DECODE)
    return view_integer(file, "decode_query_len", 1, INT32_MAX, NULL, &c->decode_query_len, why);
  return 0;
}

/* The tensor must be there, with this type and rank; a dimension >= 0 must match. */
static int view_tensor(const case_file *file, const char *name, case_dtype dtype, int rank, const int64_t *shape,
                       const case_tensor **out, char *why) {
  const case_tensor *t = *out = case_find(file, name);
  if (!t) return case_fail(why, "tensor %s: missing", name);
  if (dtype != CASE_DTYPE_COUNT && t->dtype != dtype)
    return case_fail(why, "tensor %s: dtype %s, must be %s", name, case_dtype_name(t->dtype), case_dtype_name(dtype));
  if (t->rank != rank) return case_fail(why, "tensor %s: rank %d, must be %d", name, t->rank, rank);
  for (int i = 0; i < rank; i++)
    if (shape[i] >= 0 && t->shape[i] != shape[i])
      return case_fail(why, "tensor %s: dimension %d is %lld, must be %lld", name, i, (long long)t->shape[i],
                       (long long)shape[i]);
  return 0;
}

/* The number format of q or index_k: what its dtype says, or for U8 what <name>_encoding says. */
static int view_encoding(const case_file *file, const case_tensor *t, m3idx_dtype *out, char *why) {
  static const struct {
    case_dtype dtype;
    m3idx_dtype format;
  } says[] = {{CASE_F32, M3IDX_F32},
              {CASE_F16, M3IDX_F16},
              {CASE_BF16, M3IDX_BF16},
              {CASE_F8_E4M3, M3IDX_E4M3FN},
              {CASE_F8_E5M2, M3IDX_E5M2}};
  char key[64];
  snprintf(key, sizeof key, "%s_encoding", t->name);
  const char *encoding = case_metadata(file, key);
  m3idx_dtype named = M3IDX_F32;
  if (encoding && m3idx_dtype_by_name(encoding, &named) != M3IDX_OK)
    return case_fail(why, "metadata %s: \"%.80s\" is no number format", key, encoding);
  for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
    if (says[i].dtype != t->dtype) continue;
    *out = says[i].format;
    if (!encoding || named == *out) return 0;
    return case_fail(why, "metadata %s: %s, but tensor %s is %s", key, encoding, t->name, case_dtype_name(t->dtype));
  }
  if (t->dtype != CASE_U8)
    return case_fail(why, "tensor %s: dtype %s, must be F32, F16, BF16, F8_E4M3, F8_E5M2, or U8 with %s", t->name,
                     case_dtype_name(t->dtype), key);
  if (!encoding) return case_fail(why, "metadata %s: missing, tensor %s is U8", key, t->name);
  if (m3idx_dtype_bytes(named) != 1)
    return case_fail(why, "metadata %s: %s is not one byte, but tensor %s is U8", key, encoding, t->name);
  *out = named;
  return 0;
}

static int view_select(const case_file *file, m3idx_case *c, char *why) {
  const case_tensor *t;
  if (view_tensor(file, "score", CASE_F32, 3, (int64_t[]){-1, -1, c->M}, &t, why)) return -1;
  c->H = t->shape[0];
  c->T = t->shape[1];
  c->score = t->data;
  if (c->H < 1) return case_fail(why, "tensor score: dimension 0 is 0, must be at least 1");
  if (view_tensor(file, "num_blocks", CASE_I32, 1, &c->T, &t, why)) return -1;
  c->num_blocks = t->data;
  return 0;
}

static int view_table(const case_file *file, const char *name, const m3idx_case *c, const int32_t **table,
                      int64_t *stride, char *why) {
  const case_tensor *t;
  if (view_tensor(file, name, CASE_I32, 2, (int64_t[]){c->R, -1}, &t, why)) return -1;
  if (t->shape[1] < c->M)
    return case_fail(why, "tensor %s: dimension 1 is %lld, must be at least max_block = %lld", name,
                     (long long)t->shape[1], (long long)c->M);
  *table = t->data;
  *stride = t->shape[1];
  return 0;
}

static int view_batch(const case_file *file, m3idx_case *c, char *why) {
  const case_tensor *t;
  if (view_tensor(file, "seq_lens", CASE_I32, 1, (int64_t[]){-1}, &t, why)) return -1;
  c->R = t->shape[0];
  c->seq_lens = t->data;
  if (view_table(file, "block_table", c, &c->block_table, &c->block_table_stride, why)) return -1;
  if (c->sparse_table && case_find(file, "attention_block_table") &&
      view_table(file, "attention_block_table", c, &c->attention_block_table, &c->attention_block_table_stride, why))
    return -1;
  if (c->op == CASE_DECODE) {
    if (c->decode_query_len != 0 && c->R > INT32_MAX / c->decode_query_len)
      return case_fail(why, "metadata decode_query_len: %lld for %lld requests, rows must be at most %lld",
                       (long long)c->decode_query_len, (long long)c->R, (long long)INT32_MAX);
    c->T = c->R * c->decode_query_len;
    return 0;
  }
  c->T = -1; /* q says */
  if (view_tensor(file, "cu_seqlens", CASE_I32, 1, (int64_t[]){c->R + 1}, &t, why)) return -1;
  c->cu_seqlens = t->data;
  if (view_tensor(file, "prefix_lens", CASE_I32, 1, &c->R, &t, why)) return -1;
  c->prefix_lens = t->data;
  return 0;
}

static int view_numbers(const case_file *file, m3idx_case *c, char *why) {
  const case_tensor *t;
  if (view_tensor(file, "q", CASE_DTYPE_COUNT, 3, (int64_t[]){c->T, -1, -1}, &t, why) ||
      view_encoding(file, t, &c->q_dtype, why))
    return -1;
  c->q = t->data;
  c->T = t->shape[0];
  c->H = t->shape[1];
  c->D = t->shape[2];
  if (c->H < 1) return case_fail(why, "tensor q: dimension 1 is 0, must be at least 1");
  if (view_tensor(file, "index_k", CASE_DTYPE_COUNT, 3, (int64_t[]){-1, -1, c->D}, &t, why) ||
      view_encoding(file, t, &c->k_dtype, why))
    return -1;
  c->index_k = t->data;
  c->P = t->shape[0];
  c->B = t->shape[1];
  if (c->D < 16 || c->D > 256 || c->D % 16)
    return case_fail(why, "tensor q: dimension 2 is %lld, must be a multiple of 16 in 16..256", (long long)c->D);
  if (c->B < 16 || c->B > 128 || (c->B & (c->B - 1)))
    return case_fail(why, "tensor index_k: dimension 1 is %lld, must be 16, 32, 64 or 128", (long long)c->B);
  if (c->sparse_table && c->B != 128)
    return case_fail(why, "tensor index_k: dimension 1 is %lld, must be 128 with sparse_table 1", (long long)c->B);
  return 0;
}

int case_view(const case_file *file, m3idx_case *out, char *why) {
  m3idx_case c = {0};
  *out = c;
  if (view_metadata(file, &c, why)) return -1;
  if (c.op == CASE_SELECT ? view_select(file, &c, why) : view_batch(file, &c, why) || view_numbers(file, &c, why))
    return -1;
  *out = c;
  return 0;
}
