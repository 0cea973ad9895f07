/* SPDX-License-Identifier: Apache-2.0
 *
 * Random inputs of oracle_random and the memory of a case.  Every number comes from the case's own seed.
 */
#include "oracle_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 64 };

/* splitmix64 */
uint64_t random_bits(trial *t) {
  uint64_t z = t->state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

int64_t random_below(trial *t, int64_t n) { return (int64_t)(random_bits(t) % (uint64_t)n); }
int64_t random_in(trial *t, int64_t low, int64_t high) { return low + random_below(t, high - low + 1); }
bool one_in(trial *t, int64_t n) { return random_below(t, n) == 0; }

m3idx_contract random_contract(trial *t) {
  static const char *const presets[] = {"vllm", "aiter", "atom", "sglang", "flashinfer"};
  m3idx_contract c;
  int64_t i = random_below(t, 10);
  if (i < 5 && m3idx_contract_by_name(presets[i], &c) == M3IDX_OK) return c;
  c.tie = (m3idx_tie)random_below(t, 2);
  c.nan = (m3idx_nan)random_below(t, 4);
  c.zero = (m3idx_zero)random_below(t, 2);
  c.order = (m3idx_order)random_below(t, 2);
  return c;
}

int64_t random_topk(trial *t) { return one_in(t, 8) ? random_in(t, 1, 128) : random_in(t, 1, 9); }

void *trial_alloc(trial *t, size_t bytes) {
  if (t->num_blocks == t->capacity) {
    t->capacity = 2 * t->capacity + 16;
    t->blocks = realloc(t->blocks, t->capacity * sizeof *t->blocks);
  }
  unsigned char *p = malloc(bytes ? bytes : 1);
  if (!t->blocks || !p) {
    fprintf(stderr, "oracle_random: out of memory\n");
    exit(2);
  }
  t->blocks[t->num_blocks++] = p;
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t noise = random_bits(t);
    memcpy(p + i, &noise, bytes - i < 8 ? bytes - i : 8);
  }
  return p;
}

void trial_free(trial *t) {
  for (size_t i = 0; i < t->num_blocks; i++) free(t->blocks[i]);
  free(t->blocks);
  t->blocks = NULL;
  t->num_blocks = t->capacity = 0;
}

output make_output(trial *t, const char *name, int64_t elements, size_t element_bytes) {
  output o = {.name = name, .bytes = (size_t)elements * element_bytes, .element_bytes = element_bytes};
  size_t all = o.bytes + 2 * GUARD_BYTES;
  o.before_all = trial_alloc(t, all);
  o.got_all = trial_alloc(t, all);
  o.want_all = trial_alloc(t, all);
  memcpy(o.got_all, o.before_all, all);
  memcpy(o.want_all, o.before_all, all);
  o.got = o.got_all + GUARD_BYTES;
  o.want = o.want_all + GUARD_BYTES;
  return o;
}

static unsigned long long element_bits(const unsigned char *p, size_t bytes) {
  uint32_t v32;
  uint64_t v64;
  uint16_t v16;
  switch (bytes) {
  case 8: memcpy(&v64, p, 8); return v64;
  case 4: memcpy(&v32, p, 4); return v32;
  case 2: memcpy(&v16, p, 2); return v16;
  default: return *p;
  }
}

static bool same_bytes(trial *t, const output *o, const unsigned char *expected) {
  size_t all = o->bytes + 2 * GUARD_BYTES, i = 0;
  if (!memcmp(o->got_all, expected, all)) return true;
  while (o->got_all[i] == expected[i]) i++;
  if (i < GUARD_BYTES || i >= GUARD_BYTES + o->bytes) {
    snprintf(t->why, sizeof t->why, "%s: the guard at byte %ld was written", o->name, (long)i - GUARD_BYTES);
    return false;
  }
  size_t element = (i - GUARD_BYTES) / o->element_bytes, at = GUARD_BYTES + element * o->element_bytes;
  int digits = 2 * (int)o->element_bytes;
  snprintf(t->why, sizeof t->why, "%s[%lu]: want 0x%0*llx got 0x%0*llx", o->name, (unsigned long)element, digits,
           element_bits(expected + at, o->element_bytes), digits, element_bits(o->got_all + at, o->element_bytes));
  return false;
}

/* FNV-1a */
static void digest_output(trial *t, const output *o) {
  for (size_t i = 0; i < o->bytes; i++)
    t->digest = (t->digest ^ ((const unsigned char *)o->got)[i]) * UINT64_C(0x100000001b3);
}

verdict conclude(trial *t, m3idx_status status, const char *call, const output *outputs, int num_outputs) {
  for (int i = 0; i < num_outputs; i++)
    if (!same_bytes(t, &outputs[i], status == M3IDX_OK ? outputs[i].want_all : outputs[i].before_all))
      return VERDICT_FAIL;
  for (int i = 0; i < num_outputs; i++) digest_output(t, &outputs[i]);
  if (status == M3IDX_OK) return VERDICT_PASS;
  snprintf(t->why, sizeof t->why, "%s: %s: %s", call, m3idx_status_name(status), m3idx_message(t->ctx));
  return status == M3IDX_UNSUPPORTED ? VERDICT_UNSUPPORTED : VERDICT_FAIL;
}

/* ---- formats ---- */

m3idx_dtype random_dtype(trial *t) { return (m3idx_dtype)random_below(t, M3IDX_DTYPE_COUNT); }

/* The codes of 1 and of infinity, 0 where there is none. */
static const struct {
  uint32_t one, infinity;
} known[ORACLE_FORMATS] = {
    [ORACLE_F32] = {0x3f800000, 0x7f800000}, [ORACLE_F16] = {0x3c00, 0x7c00},
    [ORACLE_BF16] = {0x3f80, 0x7f80},        [ORACLE_E4M3FN] = {0x38, 0},
    [ORACLE_E4M3FNUZ] = {0x40, 0},           [ORACLE_E5M2] = {0x3c, 0x7c},
    [ORACLE_E5M2FNUZ] = {0x40, 0},
};

static bool finite_code(oracle_format f, uint32_t code) {
  long m, e;
  return oracle_decode(f, code, &m, &e) == ORACLE_FINITE;
}

palette random_palette(trial *t, m3idx_dtype dtype) {
  static const int kinds[] = {ANY_CODE, ANY_FINITE, NEARBY, NEARBY, NEARBY, GRID, GRID, SPECIALS};
  palette p = {.format = format_of(dtype)};
  int bits = oracle_code_bits(p.format);
  uint32_t magnitudes = bits == 32 ? 0x80000000u : 1u << (bits - 1);
  int kind = kinds[random_below(t, (int64_t)(sizeof kinds / sizeof *kinds))];
  memcpy(&p.kind, &kind, sizeof p.kind);
  p.span = 1u << random_in(t, 1, bits - 3);
  p.low = one_in(t, 2) ? known[p.format].one - p.span / 2 : (uint32_t)random_below(t, magnitudes);
  if (p.low > magnitudes - p.span) p.low = magnitudes - p.span;
  for (int i = 0; i < 3; i++) p.grid[i] = one_in(t, 3) ? 0 : p.low + (uint32_t)random_below(t, p.span);
  return p;
}

uint32_t palette_code(trial *t, const palette *p) {
  uint32_t sign = 1u << (oracle_code_bits(p->format) - 1);
  uint32_t code = (uint32_t)random_bits(t) & (sign | (sign - 1));
  switch (p->kind) {
  case ANY_CODE: return code;
  case ANY_FINITE: break;
  case NEARBY: code = (code & sign) | (p->low + (uint32_t)random_below(t, p->span)); break;
  case GRID: code = (code & sign) | p->grid[random_below(t, 3)]; break;
  case SPECIALS:
    code = (code & sign) | (p->low + (uint32_t)random_below(t, p->span));
    switch (random_below(t, 16)) {
    case 0: return (code & sign) | (known[p->format].infinity ? known[p->format].infinity : sign - 1);
    case 1: return (code & sign) | (one_in(t, 4) ? sign - 1 : 0);
    case 2: return (code & sign) | (uint32_t)random_below(t, 3); /* zero and the least subnormals */
    default: break;
    }
    break;
  }
  return finite_code(p->format, code) ? code : 0;
}

/* ---- tensors ---- */

static int64_t tensor_at(const m3idx_tensor *x, int64_t i, int64_t j, int64_t k) {
  return i * x->stride[0] + j * x->stride[1] + k * x->stride[2];
}

uint32_t tensor_get(const m3idx_tensor *x, int64_t i, int64_t j, int64_t k) {
  const unsigned char *p =
      (const unsigned char *)x->data + tensor_at(x, i, j, k) * (int64_t)m3idx_dtype_bytes(x->dtype);
  uint32_t v32;
  uint16_t v16;
  switch (m3idx_dtype_bytes(x->dtype)) {
  case 4: memcpy(&v32, p, 4); return v32;
  case 2: memcpy(&v16, p, 2); return v16;
  default: return *p;
  }
}

void tensor_set(const m3idx_tensor *x, int64_t i, int64_t j, int64_t k, uint32_t code) {
  unsigned char *p = (unsigned char *)x->data + tensor_at(x, i, j, k) * (int64_t)m3idx_dtype_bytes(x->dtype);
  uint16_t v16 = (uint16_t)code;
  switch (m3idx_dtype_bytes(x->dtype)) {
  case 4: memcpy(p, &code, 4); break;
  case 2: memcpy(p, &v16, 2); break;
  default: *p = (unsigned char)code; break;
  }
}

/* Axes in random order of nesting, each padded now and then; sometimes an axis has stride 0. */
static void random_tensor_strides(trial *t, m3idx_tensor *x) {
  if (one_in(t, 5)) {
    x->stride[2] = 1;
    x->stride[1] = x->shape[2];
    x->stride[0] = x->shape[1] * x->shape[2];
    return;
  }
  int axes[3] = {2, 1, 0};
  if (one_in(t, 3)) {
    int a = (int)random_below(t, 3), b = (int)random_below(t, 3), swap = axes[a];
    axes[a] = axes[b];
    axes[b] = swap;
  }
  int64_t stride = one_in(t, 4) ? random_in(t, 1, 3) : 1;
  for (int i = 0; i < 3; i++) {
    x->stride[axes[i]] = stride;
    stride *= x->shape[axes[i]] > 0 ? x->shape[axes[i]] : 1;
    if (one_in(t, 3)) stride += random_below(t, 5);
  }
  if (one_in(t, 12)) x->stride[random_below(t, 3)] = 0;
}

m3idx_tensor random_tensor(trial *t, m3idx_dtype dtype, const int64_t shape[3], const palette *p) {
  m3idx_tensor x = {.dtype = dtype, .shape = {shape[0], shape[1], shape[2]}};
  random_tensor_strides(t, &x);
  bool empty = !shape[0] || !shape[1] || !shape[2];
  int64_t elements = empty ? 0 : 1 + tensor_at(&x, shape[0] - 1, shape[1] - 1, shape[2] - 1);
  x.data = trial_alloc(t, (size_t)elements * m3idx_dtype_bytes(dtype));
  if (empty) return x;
  for (int64_t i = 0; i < shape[0]; i++)
    for (int64_t j = 0; j < shape[1]; j++)
      for (int64_t k = 0; k < shape[2]; k++) tensor_set(&x, i, j, k, palette_code(t, p));
  return x;
}

m3idx_tensor tensor_told(trial *t, m3idx_tensor x) {
  bool dense = x.stride[2] == 1 && x.stride[1] == x.shape[2] && x.stride[0] == x.shape[1] * x.shape[2];
  if (dense && one_in(t, 2)) x.stride[0] = x.stride[1] = x.stride[2] = 0;
  return x;
}

/* ---- batches ---- */

static int64_t blocks_of(int64_t keys, int64_t block_size) { return (keys + block_size - 1) / block_size; }

static int64_t random_request(trial *t, m3idx_batch *b, int64_t r, int64_t max_keys, int32_t *seq, int32_t *cu,
                              int32_t *prefix) {
  if (b->mode == M3IDX_DECODE) {
    seq[r] = one_in(t, 6) ? 0 : (int32_t)random_in(t, 1, max_keys);
    return b->decode_query_len;
  }
  int64_t rows = one_in(t, 5) ? 0 : random_in(t, 1, 4);
  prefix[r] = rows && one_in(t, 3) ? 0 : (int32_t)random_below(t, max_keys);
  seq[r] = prefix[r] + (int32_t)rows + (one_in(t, 3) ? (int32_t)random_below(t, max_keys) : 0);
  cu[r + 1] = cu[r] + (int32_t)rows;
  return rows;
}

random_batch make_batch(trial *t, int64_t block_size, int64_t max_keys) {
  random_batch rb = {{.mode = one_in(t, 2) ? M3IDX_PREFILL : M3IDX_DECODE}, NULL, NULL};
  m3idx_batch *b = &rb.batch;
  b->num_requests = one_in(t, 40) ? 0 : random_in(t, 1, 3);
  b->block_size = block_size == 128 && one_in(t, 2) ? 0 : block_size;
  b->decode_query_len = b->mode == M3IDX_DECODE ? random_in(t, 1, 4) : 0;
  size_t requests = (size_t)b->num_requests;
  int32_t *seq = trial_alloc(t, requests * sizeof *seq);
  int32_t *cu = trial_alloc(t, (requests + 1) * sizeof *cu);
  int32_t *prefix = trial_alloc(t, requests * sizeof *prefix);
  int64_t live = 0;
  cu[0] = 0;
  for (int64_t r = 0; r < b->num_requests; r++) {
    b->num_rows += random_request(t, b, r, max_keys, seq, cu, prefix);
    if (live < blocks_of(seq[r], block_size)) live = blocks_of(seq[r], block_size);
  }
  b->max_block = live + (one_in(t, 2) ? random_below(t, 4) : 0);
  b->seq_lens = seq;
  if (b->mode == M3IDX_PREFILL) {
    b->cu_seqlens = cu;
    b->prefix_lens = prefix;
  }

  rb.request = trial_alloc(t, (size_t)b->num_rows * sizeof *rb.request);
  rb.rows = trial_alloc(t, (size_t)b->num_rows * sizeof *rb.rows);
  int64_t row = 0;
  for (int64_t r = 0; r < b->num_requests; r++) {
    int64_t rows = b->mode == M3IDX_DECODE ? b->decode_query_len : cu[r + 1] - cu[r];
    int64_t first = b->mode == M3IDX_DECODE ? seq[r] - b->decode_query_len : prefix[r];
    for (int64_t i = 0; i < rows; i++, row++) {
      rb.request[row] = r;
      rb.rows[row] = oracle_row_at(first, i, seq[r], block_size);
    }
  }
  return rb;
}

int32_t *random_block_table(trial *t, const m3idx_batch *b, int64_t num_pages, int64_t *stride) {
  int64_t block_size = b->block_size ? b->block_size : 128;
  int64_t width = b->max_block + (one_in(t, 2) ? random_below(t, 4) : 0);
  *stride = width == b->max_block && one_in(t, 2) ? 0 : width;
  int32_t *table = trial_alloc(t, (size_t)(b->num_requests * width) * sizeof *table);
  for (int64_t r = 0; r < b->num_requests; r++) {
    int64_t live = blocks_of(b->seq_lens[r], block_size);
    for (int64_t i = 0; i < width; i++)
      if (i < live)
        table[r * width + i] = (int32_t)random_below(t, num_pages);
      else if (one_in(t, 2))
        table[r * width + i] = one_in(t, 2) ? -1 : INT32_MAX; /* else the noise stays */
  }
  return table;
}

strides random_strides(trial *t, int64_t heads, int64_t rows, int64_t width) {
  strides s = {.row = width + (one_in(t, 2) ? random_below(t, 5) : 0)};
  s.head = rows * s.row + (one_in(t, 3) ? random_below(t, 9) : 0);
  s.told_row = s.row == width && one_in(t, 2) ? 0 : s.row;
  s.told_head = s.head == rows * s.row && one_in(t, 2) ? 0 : s.head;
  if (heads && rows && width) s.elements = (heads - 1) * s.head + (rows - 1) * s.row + width;
  return s;
}
