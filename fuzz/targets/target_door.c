/* SPDX-License-Identifier: Apache-2.0
 *
 * The six calls with arguments of every kind, good and hostile (S7.1, S7.2): accepted exactly where the second door
 * (fuzz_door.h) accepts, a sentence with each refusal, no output byte moved by one; what is accepted is run on ref and
 * cpu, and the whole of the outputs' memory is the same afterwards, gaps and guards too.
 *
 * Shapes whose buffers would not lie in the arenas are judged as device memory is, by address alone.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fuzz_door.h"
#include "fuzz_kit.h"

enum { ARENA = 1 << 16, MAX_ROWS = 4, MAX_BLOCKS = 3, MAX_PAGES = 3, SMALL_K = 4 };

typedef union arena {
  max_align_t align;
  uint8_t bytes[ARENA];
} arena;
static arena inputs, outputs, saved;

/* A value: mostly `good`, sometimes one that somebody could mean, or nobody. */
static int64_t odd(fuzz_bytes *in, int64_t good) {
  static const int64_t strange[] = {-1,
                                    0,
                                    1,
                                    2,
                                    7,
                                    16,
                                    127,
                                    129,
                                    INT32_MAX,
                                    (int64_t)INT32_MAX + 1,
                                    INT64_MAX,
                                    INT64_MAX - 1,
                                    INT64_MAX / 2 + 1,
                                    INT64_MAX / 4,
                                    INT64_MAX / 8,
                                    INT64_MIN,
                                    INT64_C(1) << 61,
                                    (INT64_C(1) << 61) - 1,
                                    INT64_C(1) << 32};
  switch (fuzz_between(in, 0, 31)) {
  case 31: return FUZZ_PICK(in, strange);
  case 30: return good > INT64_MIN ? good - 1 : good;
  case 29: return good < INT64_MAX ? good + 1 : good;
  default: return good;
  }
}

/* good + 0 or 1, where good may be the largest there is. */
static int64_t padded(fuzz_bytes *in, int64_t good) {
  const int64_t more = fuzz_between(in, 0, 1);
  return good < INT64_MAX ? good + more : good;
}

/* A value that an int holds. */
static int32_t odd32(fuzz_bytes *in, int64_t good) {
  const int64_t value = odd(in, good);
  return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}

/* A place in an arena: room after room, but now and then NULL, an odd address, or where another buffer is. */
typedef struct place {
  fuzz_bytes *in;
  size_t input, output;
} place;

static void *take(place *at, bool output, size_t bytes) {
  size_t *used = output ? &at->output : &at->input;
  uint8_t *base = output ? outputs.bytes : inputs.bytes;
  uint8_t *here = base + *used;
  *used = (*used + bytes + 71) / 8 * 8;
  if (*used > ARENA) *used = 0;
  switch (fuzz_between(at->in, 0, 31)) {
  case 31: return NULL;
  case 30: return here + fuzz_between(at->in, 0, 8);
  case 29: return base + 4 * fuzz_between(at->in, 0, 64);
  case 28: return (output ? inputs.bytes : outputs.bytes) + 4 * fuzz_between(at->in, 0, 64);
  default: return here;
  }
}

static void *input(place *at, const void *from, size_t bytes) {
  void *here = take(at, false, bytes);
  const uint8_t *to = here;
  /* Good and odd addresses alike hold what was meant for them, as long as they lie in the inputs. */
  if (here && to >= inputs.bytes && to + bytes <= inputs.bytes + ARENA) memcpy(here, from, bytes);
  return here;
}

static void draw_batch(place *at, m3idx_batch *b) {
  static const int64_t sizes[] = {0, 128, 16, 32, 64};
  fuzz_bytes *in = at->in;
  int32_t seq[MAX_ROWS] = {0}, cu[MAX_ROWS + 1] = {0}, prefix[MAX_ROWS] = {0};
  *b = (m3idx_batch){.mode = fuzz_between(in, 0, 1) ? M3IDX_DECODE : M3IDX_PREFILL};
  const int64_t requests = fuzz_between(in, 0, 2), query = fuzz_between(in, 1, 2),
                blocks = fuzz_between(in, 0, MAX_BLOCKS);
  b->block_size = FUZZ_PICK(in, sizes);
  const int64_t most = blocks * (b->block_size ? b->block_size : 128);
  for (int64_t r = 0; r < requests; r++) {
    const int64_t keys = fuzz_between(in, 0, 3) ? fuzz_between(in, 0, most) : most, rows = keys < query ? keys : query;
    seq[r] = odd32(in, keys);
    prefix[r] = odd32(in, keys - rows);
    cu[r + 1] = odd32(in, cu[r] + rows);
  }
  b->num_requests = odd(in, requests);
  b->max_block = odd(in, blocks);
  b->block_size = odd(in, b->block_size);
  b->seq_lens = input(at, seq, sizeof seq);
  if (b->mode == M3IDX_PREFILL) {
    b->num_rows = odd(in, cu[requests]);
    b->decode_query_len = odd(in, 0);
    b->cu_seqlens = input(at, cu, sizeof cu);
    b->prefix_lens = input(at, prefix, sizeof prefix);
  } else {
    b->num_rows = odd(in, requests * query);
    b->decode_query_len = odd(in, query);
    b->cu_seqlens = fuzz_between(in, 0, 31) == 31 ? input(at, cu, sizeof cu) : NULL;
    b->prefix_lens = fuzz_between(in, 0, 31) == 31 ? input(at, prefix, sizeof prefix) : NULL;
  }
  if (fuzz_between(in, 0, 63) == 63) b->mode = (m3idx_mode)2;
}

static void draw_tensor(place *at, m3idx_tensor *t, const int64_t shape[3], bool output) {
  fuzz_bytes *in = at->in;
  const int64_t pad = fuzz_between(in, 0, 7) == 7;
  t->dtype =
      fuzz_between(in, 0, 63) == 63 ? M3IDX_DTYPE_COUNT : (m3idx_dtype)fuzz_between(in, 0, M3IDX_DTYPE_COUNT - 1);
  for (int i = 0; i < 3; i++) t->shape[i] = odd(in, shape[i]);
  const bool dense = fuzz_between(in, 0, 1);
  t->stride[2] = dense ? 0 : odd(in, 1);
  t->stride[1] = dense ? 0 : odd(in, shape[2] + pad);
  t->stride[0] = dense ? 0 : odd(in, shape[1] * (shape[2] + pad));
  t->data = take(at, output, 1 << 14);
}

static void draw_table(place *at, const int32_t **table, int64_t *stride, int64_t blocks, int64_t pages) {
  int32_t entry[3 * (MAX_BLOCKS + 1)];
  for (size_t i = 0; i < sizeof entry / sizeof *entry; i++)
    entry[i] = odd32(at->in, fuzz_between(at->in, 0, pages - 1));
  *table = input(at, entry, sizeof entry);
  *stride = odd(at->in, fuzz_between(at->in, 0, 1) ? 0 : padded(at->in, blocks));
}

static void draw_contract(fuzz_bytes *in, m3idx_contract *c) {
  *c = fuzz_contract(in);
  if (fuzz_between(in, 0, 63) == 63) c->nan = (m3idx_nan)4;
  if (fuzz_between(in, 0, 63) == 63) c->tie = (m3idx_tie)2;
}

static void draw_queries(place *at, const m3idx_batch *b, m3idx_tensor *q, m3idx_tensor *k, const int32_t **table,
                         int64_t *stride) {
  const int64_t dim = fuzz_between(at->in, 0, 3) ? 16 : 32, pages = fuzz_between(at->in, 1, MAX_PAGES);
  const int64_t size = b->block_size ? b->block_size : 128;
  draw_tensor(at, q, (const int64_t[]){b->num_rows, fuzz_between(at->in, 1, 2), dim}, false);
  draw_tensor(at, k, (const int64_t[]){pages, size < 0 || size > 128 ? 16 : size, dim}, false);
  draw_table(at, table, stride, b->max_block, pages);
}

static float draw_scale(fuzz_bytes *in) {
  static const uint32_t odd_scales[] = {0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xbf800000, 1, 0x7f7fffff, 0};
  uint32_t bits = 0x3f800000;
  float scale;
  if (fuzz_between(in, 0, 15) == 15) bits = FUZZ_PICK(in, odd_scales);
  memcpy(&scale, &bits, sizeof scale);
  return scale;
}

typedef struct arguments {
  m3idx_batch batch;
  m3idx_sparse_out sparse;
  m3idx_score_args score;
  m3idx_select_args select;
  m3idx_merge_args merge;
  m3idx_topk_args topk;
  m3idx_sparse_table_args lines;
  m3idx_cache_insert_args insert;
} arguments;

static void draw_sparse(place *at, m3idx_sparse_out *s, int64_t blocks) {
  static const int64_t strides[] = {0, 8, 16};
  draw_table(at, &s->block_table, &s->block_table_stride, blocks, 1000);
  s->page_stride = odd(at->in, FUZZ_PICK(at->in, strides));
  s->table = take(at, true, 1 << 12);
  s->table_stride = odd(at->in, fuzz_between(at->in, 0, 1) ? 0 : 8 * SMALL_K + fuzz_between(at->in, 0, 1));
  s->context_lens = take(at, true, 64);
}

/* For an array of two heads now and then the stride that takes it to the very end of what bytes can be counted, or an
 * element short of it, or beyond; `rest`: elements from the first of the second head to the last. */
static int64_t far_head(fuzz_bytes *in, int64_t stride, int64_t heads, int64_t rest, int64_t element) {
  if (heads != 2 || rest < 0 || rest > 1 << 20 || fuzz_between(in, 0, 15) != 15) return stride;
  return PTRDIFF_MAX / element - rest - fuzz_between(in, 0, 2);
}

static const void *draw_score(place *at, arguments *a) {
  m3idx_score_args *s = &a->score;
  draw_batch(at, &a->batch);
  s->batch = fuzz_between(at->in, 0, 63) == 63 ? NULL : &a->batch;
  draw_queries(at, &a->batch, &s->q, &s->index_k, &s->block_table, &s->block_table_stride);
  s->scale = draw_scale(at->in);
  s->init_blocks = odd(at->in, a->batch.mode == M3IDX_DECODE ? fuzz_between(at->in, 0, 2) : 0);
  s->local_blocks = odd(at->in, a->batch.mode == M3IDX_DECODE ? fuzz_between(at->in, 0, 2) : 0);
  s->score = take(at, true, 1 << 10);
  s->score_stride_row = odd(at->in, fuzz_between(at->in, 0, 1) ? 0 : padded(at->in, a->batch.max_block));
  s->score_stride_head = odd(at->in, fuzz_between(at->in, 0, 1) ? 0 : 4 * MAX_ROWS * (MAX_BLOCKS + 1));
  const int64_t rows = a->batch.num_rows, blocks = a->batch.max_block;
  if (rows > 0 && rows <= MAX_ROWS && blocks > 0 && blocks <= MAX_BLOCKS && s->score_stride_row <= 2 * MAX_BLOCKS) {
    const int64_t stride = s->score_stride_row ? s->score_stride_row : blocks;
    s->score_stride_head =
        far_head(at->in, s->score_stride_head, s->q.shape[1], (rows - 1) * stride + blocks - 1, sizeof(float));
  }
  return s;
}

static void draw_ids(place *at, int32_t **ids, int64_t *stride_head, int64_t *stride_row, int64_t topk) {
  *ids = take(at, true, 1 << 10);
  *stride_row = odd(at->in, fuzz_between(at->in, 0, 1) ? 0 : topk + fuzz_between(at->in, 0, 1));
  *stride_head = odd(at->in, fuzz_between(at->in, 0, 1) ? 0 : MAX_ROWS * (topk + 1));
}

static const void *draw_select(place *at, arguments *a) {
  m3idx_select_args *s = &a->select;
  fuzz_bytes *in = at->in;
  int32_t blocks[MAX_ROWS + 2];
  const int64_t topk = fuzz_between(in, 1, SMALL_K), columns = fuzz_between(in, 0, MAX_BLOCKS);
  for (int i = 0; i < MAX_ROWS + 2; i++) blocks[i] = odd32(in, fuzz_between(in, 0, columns));
  s->num_rows = odd(in, fuzz_between(in, 0, MAX_ROWS));
  s->max_block = odd(in, columns);
  if (fuzz_between(in, 0, 1)) {
    draw_batch(at, &a->batch);
    s->batch = &a->batch;
    s->num_rows = odd(in, a->batch.num_rows);
    s->max_block = odd(in, a->batch.max_block);
  }
  if (!s->batch || fuzz_between(in, 0, 31) == 31) s->num_blocks = input(at, blocks, sizeof blocks);
  s->num_heads = odd(in, fuzz_between(in, 1, 2));
  s->score = take(at, false, 1 << 10);
  s->score_stride_row = odd(in, fuzz_between(in, 0, 1) ? 0 : s->max_block);
  s->score_stride_head = odd(in, 0);
  s->init_blocks = odd(in, fuzz_between(in, 0, 2));
  s->local_blocks = odd(in, fuzz_between(in, 0, 2));
  s->topk = odd(in, topk);
  draw_contract(in, &s->contract);
  draw_ids(at, &s->topk_idx, &s->topk_stride_head, &s->topk_stride_row, topk);
  if (fuzz_between(in, 0, 3) == 3) {
    s->first_block = odd(in, fuzz_between(in, 0, 3));
    s->topk_idx = fuzz_between(in, 0, 7) == 7 ? s->topk_idx : NULL;
  }
  s->keys = fuzz_between(in, 0, 1) || !s->topk_idx ? take(at, true, 1 << 10) : NULL;
  const bool small = (uint64_t)s->num_heads < 9 && (uint64_t)s->num_rows < 9 && (uint64_t)s->topk < 9;
  const int64_t ids = small ? s->num_heads * s->num_rows * s->topk : -1;
  if (s->topk_idx && s->keys && ids >= 0 && fuzz_between(in, 0, 7) == 7) /* neighbours, or an element short of it */
    s->keys = (uint64_t *)(void *)(s->topk_idx + ids - fuzz_between(in, 0, 1));
  return s;
}

static const void *draw_merge(place *at, arguments *a) {
  m3idx_merge_args *m = &a->merge;
  fuzz_bytes *in = at->in;
  uint64_t keys[2 * 2 * MAX_ROWS * SMALL_K];
  const int64_t topk = fuzz_between(in, 1, SMALL_K), heads = fuzz_between(in, 1, 2),
                rows = fuzz_between(in, 0, MAX_ROWS);
  draw_contract(in, &m->contract);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const uint64_t id = (uint64_t)odd(in, fuzz_between(in, 0, 255)), low = (uint32_t)id;
    const uint64_t half = m->contract.tie == M3IDX_TIE_LOWER_ID ? UINT32_MAX - low : low + 1;
    keys[i] = fuzz_between(in, 0, 3) ? fuzz_word(in, 2) << 48 | (half & UINT32_MAX) : 0;
  }
  m->num_parts = odd(in, fuzz_between(in, 1, 2));
  m->num_heads = odd(in, heads);
  m->num_rows = odd(in, rows);
  m->topk = odd(in, topk);
  m->keys = input(at, keys, sizeof keys);
  m->keys_stride_part = odd(in, fuzz_between(in, 0, 1) ? 0 : heads * rows * topk);
  draw_ids(at, &m->topk_idx, &m->topk_stride_head, &m->topk_stride_row, topk);
  if (fuzz_between(in, 0, 3) == 3) m->topk_idx = NULL;
  m->merged_keys = fuzz_between(in, 0, 1) ? take(at, true, 1 << 10) : NULL;
  return m;
}

static const void *draw_topk(place *at, arguments *a) {
  m3idx_topk_args *t = &a->topk;
  fuzz_bytes *in = at->in;
  const int64_t topk = fuzz_between(in, 1, SMALL_K);
  draw_batch(at, &a->batch);
  t->batch = &a->batch;
  draw_queries(at, &a->batch, &t->q, &t->index_k, &t->block_table, &t->block_table_stride);
  t->scale = draw_scale(in);
  t->init_blocks = odd(in, fuzz_between(in, 0, 2));
  t->local_blocks = odd(in, fuzz_between(in, 0, 2));
  t->topk = odd(in, topk);
  draw_contract(in, &t->contract);
  draw_ids(at, &t->topk_idx, &t->topk_stride_head, &t->topk_stride_row, topk);
  if (fuzz_between(in, 0, 1)) {
    draw_sparse(at, &a->sparse, a->batch.max_block);
    t->sparse = &a->sparse;
  }
  return t;
}

static const void *draw_lines(place *at, arguments *a) {
  m3idx_sparse_table_args *l = &a->lines;
  const int64_t topk = fuzz_between(at->in, 1, SMALL_K);
  int32_t ids[2 * MAX_ROWS * (SMALL_K + 1)];
  draw_batch(at, &a->batch);
  l->batch = &a->batch;
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) ids[i] = odd32(at->in, fuzz_between(at->in, 0, MAX_BLOCKS) - 1);
  l->num_heads = odd(at->in, fuzz_between(at->in, 1, 2));
  l->topk = odd(at->in, topk);
  l->topk_idx = input(at, ids, sizeof ids);
  l->topk_stride_row = odd(at->in, 0);
  l->topk_stride_head = odd(at->in, 0);
  draw_sparse(at, &l->sparse, a->batch.max_block);
  return l;
}

static const void *draw_insert(place *at, arguments *a) {
  static const int64_t sizes[] = {16, 32, 64, 128};
  m3idx_cache_insert_args *c = &a->insert;
  fuzz_bytes *in = at->in;
  const int64_t size = FUZZ_PICK(in, sizes), pages = fuzz_between(in, 0, 2), rows = fuzz_between(in, 0, MAX_ROWS);
  int64_t slots[MAX_ROWS + 2];
  for (int i = 0; i < MAX_ROWS + 2; i++)
    slots[i] = odd(in, fuzz_between(in, 0, 1) ? i : fuzz_between(in, 0, pages * size));
  draw_tensor(at, &c->key, (const int64_t[]){1, rows, 16}, false);
  draw_tensor(at, &c->cache, (const int64_t[]){pages, size, 16}, true);
  if (fuzz_between(in, 0, 1)) c->cache.dtype = c->key.dtype;
  c->slot_mapping = input(at, slots, sizeof slots);
  return c;
}

static const void *draw(place *at, m3idx_op op, arguments *a) {
  switch (op) {
  case M3IDX_OP_score: return draw_score(at, a);
  case M3IDX_OP_select: return draw_select(at, a);
  case M3IDX_OP_merge: return draw_merge(at, a);
  case M3IDX_OP_topk: return draw_topk(at, a);
  case M3IDX_OP_sparse_table: return draw_lines(at, a);
  default: return draw_insert(at, a);
  }
}

static m3idx_status call(m3idx_context *ctx, m3idx_op op, const void *args) {
  switch (op) {
#define M3IDX_OP(name, what) \
  case M3IDX_OP_##name:      \
    return m3idx_##name(ctx, args);
#include "ops.def"
#undef M3IDX_OP
  default: return M3IDX_IO;
  }
}

static m3idx_status check(m3idx_context *ctx, m3idx_op op, const void *args) {
  static m3idx_resolved r;
  switch (op) {
#define M3IDX_OP(name, what) \
  case M3IDX_OP_##name:      \
    return m3idx_check_##name(ctx, args, &r);
#include "ops.def"
#undef M3IDX_OP
  default: return M3IDX_IO;
  }
}

static bool inside(const door_view *v) {
  for (int i = 0; i < v->count; i++) {
    const door_buffer *b = &v->at[i];
    const uintptr_t base = (uintptr_t)inputs.bytes, other = (uintptr_t)outputs.bytes;
    const bool in = b->begin >= base && (long double)(b->begin - base) + b->bytes <= ARENA;
    const bool out = b->begin >= other && (long double)(b->begin - other) + b->bytes <= ARENA;
    if (!in && !out) return false;
  }
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes in = {data, size};
  place at = {&in, 0, 0};
  arguments a;
  door_view view;
  const m3idx_op op = (m3idx_op)fuzz_between(&in, 0, M3IDX_OP_COUNT - 1);
  memset(&a, 0, sizeof a);
  memset(&inputs, 0x3c, sizeof inputs); /* small positive numbers in every format */
  memset(&outputs, 0xdb, sizeof outputs);
  const void *args = draw(&at, op, &a);
  fuzz_fill(&in, true, inputs.bytes + ARENA / 2, ARENA / 2); /* keys and queries of the later buffers */
  memcpy(&saved, &outputs, sizeof saved);
  bool good = door_shapes(op, args, &view);
  if (!inside(&view)) {
    m3idx_context far = {.memory = M3IDX_DEVICE_MEMORY};
    FUZZ_REQUIRE((check(&far, op, args) == M3IDX_OK) == good, "op %d far away: %s", (int)op, far.message);
    return 0;
  }
  if (good && op == M3IDX_OP_merge && a.merge.num_parts > 1 << 16) return 0; /* of nothing: minutes under sanitizers */
  good = good && door_contents(op, args);
  for (int i = 0; fuzz_context(i); i++) {
    m3idx_context *ctx = fuzz_context(i);
    memset(&outputs, 0xdb, sizeof outputs);
    const m3idx_status status = call(ctx, op, args);
    const bool taken = status == M3IDX_OK || status == M3IDX_UNSUPPORTED;
    FUZZ_REQUIRE(taken || status == M3IDX_INVALID, "op %d: status %d", (int)op, (int)status);
    FUZZ_REQUIRE(taken == good, "op %d: status %d: %s", (int)op, (int)status, status ? m3idx_message(ctx) : "accepted");
    FUZZ_REQUIRE(status == M3IDX_OK || m3idx_message(ctx)[0], "op %d: no sentence", (int)op);
    if (i == 0 && status == M3IDX_OK) memcpy(&saved, &outputs, sizeof saved);
    fuzz_same("outputs", saved.bytes, outputs.bytes, ARENA, 1);
  }
  return 0;
}
