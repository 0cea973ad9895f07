/* SPDX-License-Identifier: Apache-2.0
 *
 * The grammar.  Every choice is a word of a stream that the seed and the index give (casedata.h), reduced in 64 bits,
 * so that no host draws another line; nor does a compiler, as long as one expression draws once.  Work is bounded
 * before lengths are drawn: a line is small but for a tail.
 */
#include "fuzz_draw.h"

#include <stdarg.h>
#include <string.h>

#include "casedata.h"

typedef struct draw {
  uint64_t key, next;
  const fuzz_edges *edges;
  fuzz_line *out;
  size_t length;
  int64_t most_products, most_elements; /* of a scorer's dots, and of rows times columns */
  const char *kind;                     /* of the data */
} draw;

static uint64_t word(draw *d) { return case_word(d->key, d->next++); }
static int64_t below(draw *d, int64_t n) { return (int64_t)(word(d) % (uint64_t)n); }
static int64_t in(draw *d, int64_t low, int64_t high) { return low + below(d, high - low + 1); }
/* Once in n. */
static bool once_in(draw *d, int64_t n) { return below(d, n) == 0; }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static void mark(draw *d, fuzz_edge edge) { d->out->edges |= UINT32_C(1) << edge; }

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
say(draw *d, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  const int n = vsnprintf(d->out->text + d->length, sizeof d->out->text - d->length, format, ap);
  va_end(ap);
  if (n > 0) d->length += (size_t)n;
}

/* An edge of the list that is at most `top`, or one beside it; -1 = there is none.  Low ones are likelier, since large
 * cases take longer. */
static int64_t beside(draw *d, const fuzz_counts *counts, int64_t top) {
  int usable = 0;
  while (usable < counts->count && counts->at[usable] <= top) usable++;
  if (!usable) return -1;
  const int64_t high = below(d, 2) ? usable : below(d, usable) + 1, edge = counts->at[below(d, high)],
                at = edge + in(d, -1, 1);
  return at < 0 ? 0 : least(at, top);
}

/* Beside a power of two. */
static int64_t lanes(draw *d, int64_t top) {
  int powers = 0;
  while (powers < 14 && INT64_C(1) << (powers + 1) <= top) powers++;
  const int64_t power = INT64_C(1) << below(d, powers + 1);
  return least(top, power + in(d, -1, 1));
}

/* Beside a multiple of 16, which vectors, groups of lanes and tiles of rows are made of. */
static int64_t vectors(draw *d) {
  const int64_t full = once_in(d, 8) ? 128 : 16 * in(d, 1, 4);
  return full + in(d, -1, 1);
}

static const char *const kinds[] = {"normal", "normal", "ties",  "ties",  "specials", "specials",
                                    "wide",   "wide",   "near",  "near",  "near",     "mixed",
                                    "mixed",  "mixed",  "zeros", "drift", "drift",    "drift"};

static const char *draw_kind(draw *d) { return kinds[below(d, sizeof kinds / sizeof *kinds)]; }

static int64_t draw_topk(draw *d) {
  static const int64_t ks[] = {1, 2, 3, 8, 13, 15, 17, 32, 64, 127, 128};
  if (below(d, 2)) return 16;
  return once_in(d, 4) ? in(d, 1, 128) : ks[below(d, 11)];
}

static void say_contract(draw *d) {
  static const char *const presets[] = {"vllm", "aiter", "atom", "sglang", "flashinfer"};
  static const char *const nans[] = {"-1e30", "-inf", "below", "bits"};
  if (below(d, 2)) {
    say(d, " --contract %s", presets[below(d, 5)]);
    return;
  }
  const char *tie = below(d, 2) ? "higher" : "lower", *nan = nans[below(d, 4)];
  const char *zero = below(d, 2) ? "signed" : "equal";
  say(d, " --contract tie=%s,nan=%s,zero=%s,order=%s", tie, nan, zero, below(d, 2) ? "id" : "score");
}

/* Forced blocks: few, or about K, or about all there are. */
static int64_t forced(draw *d, int64_t topk, int64_t blocks) {
  switch (below(d, 6)) {
  case 0: return most(0, topk + in(d, -1, 1));
  case 1: return most(0, blocks + in(d, -1, 1));
  case 2: return INT32_MAX;
  default: return in(d, 1, 3);
  }
}

static void say_forced(draw *d, int64_t topk, int64_t blocks) {
  if (once_in(d, 4)) {
    say(d, " --init %ld", (long)forced(d, topk, blocks));
    mark(d, FUZZ_EDGE_FORCED);
  }
  if (below(d, 2)) {
    const bool odd = once_in(d, 3);
    say(d, " --local %ld", (long)(odd ? forced(d, topk, blocks) : 1));
    if (odd) mark(d, FUZZ_EDGE_FORCED);
  }
}

/* Tensors that single elements may be put into: rows of `width`, each code of a sign, an exponent and a fraction. */
typedef struct target {
  const char *name;
  int64_t elements, width;
  int exponent_bits, fraction_bits;
} target;

static target target_of(const char *name, int64_t elements, int64_t width, m3idx_dtype dtype) {
  static const int8_t bits[M3IDX_DTYPE_COUNT][2] = {
#define M3IDX_DTYPE(name, value, text, bytes, ebits, fbits, bias, specials) [value] = {ebits, fbits},
#include "dtype.def"
#undef M3IDX_DTYPE
  };
  return (target){name, elements, width, bits[dtype][0], bits[dtype][1]};
}

/* Any bits; or an end of a format: its infinities, NaNs, zeros and subnormals where it has them. */
enum { ANY_END = -1, INFINITE = 0, SUBNORMAL = 4 };
static uint64_t pattern(draw *d, const target *t, int64_t end) {
  const uint64_t any = word(d), one = 1;
  const int bits = 1 + t->exponent_bits + t->fraction_bits;
  const uint64_t sign = any >> 63 << (bits - 1), fraction = (one << t->fraction_bits) - 1;
  const uint64_t all = (one << (bits - 1)) - 1, infinity = all & ~fraction;
  switch (end < 0 ? below(d, 10) : end) {
  case INFINITE:
  case INFINITE + 1: return sign | infinity;
  case 2: return sign | all;
  case 3: return sign | (infinity - 1);
  case SUBNORMAL: return sign | (any & fraction);
  case 5: return sign;
  default: return any & (all << 1 | 1);
  }
}

/* A few elements of any bits, now and then all else zero; and entries of the block table that may name no page, or that
 * nobody may read. */
static void say_data(draw *d, const char *drawn, const target *targets, int count, const target *table, int64_t pages) {
  const bool put = once_in(d, 4), odd = once_in(d, 64);
  const char *kind = put && once_in(d, 3) ? "zeros" : drawn;
  int64_t said = 0;
  say(d, " --data %s --seed %ld", kind, (long)below(d, 1000000));
  if (!strcmp(kind, "mixed")) mark(d, FUZZ_EDGE_MIXED);
  /* Half of the time all meet at one place of their rows, and first an infinity meets a subnormal, which some units
   * take for zero. */
  const bool meet = put && below(d, 2);
  const int64_t place = meet ? below(d, targets->width) : 0, infinite = below(d, count);
  for (int64_t i = 0, n = put ? in(d, meet ? 2 : 1, 8) : 0; i < n; i++) {
    const bool pair = meet && i < count;
    const int64_t of = pair ? i : below(d, count);
    const target *t = &targets[of];
    const uint64_t bits = pattern(d, t, !pair ? ANY_END : of == infinite ? INFINITE : SUBNORMAL);
    if (!t->elements) continue;
    const int64_t any = below(d, t->elements), at = meet ? any / t->width * t->width + place : any;
    say(d, "%s%s:%lld=%lx", said++ ? "," : " --put ", t->name, (long long)at, (unsigned long)bits);
    mark(d, FUZZ_EDGE_PUT);
  }
  if (!odd || !table || !table->elements) return;
  const int64_t entries[] = {pages, pages - 1, -1, 0, INT32_MIN}, entry = entries[below(d, 5)];
  say(d, "%s%s:%lld=%lx", said ? "," : " --put ", table->name, (long long)below(d, table->elements),
      (unsigned long)(uint32_t)entry);
  mark(d, FUZZ_EDGE_ENTRY);
}

/* ---- selection alone ---- */

/* Beside K, or a few more: a search that keeps some in reserve loses the first one there. */
static int64_t about_topk(draw *d, int64_t topk) {
  mark(d, FUZZ_EDGE_TOPK);
  return most(0, topk + (below(d, 2) ? in(d, -1, 1) : in(d, 2, 8)));
}

/* Blocks of a row, at most `top`. */
static int64_t row_blocks(draw *d, int64_t topk, int64_t top) {
  int64_t n = -1;
  switch (below(d, 8)) {
  case 0:
  case 1:
  case 2:
    n = beside(d, &d->edges->select_blocks, top);
    if (n >= 0) mark(d, FUZZ_EDGE_CHUNKS);
    break;
  case 3: n = about_topk(d, topk); break;
  case 4:
  case 5:
    mark(d, FUZZ_EDGE_LANES);
    n = lanes(d, top);
    break;
  case 6:
    mark(d, FUZZ_EDGE_SHORT);
    n = below(d, 3);
    break;
  default: break;
  }
  return n >= 0 ? least(n, top) : below(d, least(top, 300) + 1);
}

static void draw_select(draw *d) {
  const int64_t topk = draw_topk(d), heads = once_in(d, 3) ? in(d, 2, 4) : 1, rows = once_in(d, 3) ? in(d, 2, 8) : 1;
  const int64_t top = most(8, d->most_elements / (heads * rows));
  /* Ids that 16 bits do not hold, as the last of a row is that --local asks for. */
  const int64_t wide = d->out->size == FUZZ_LARGE && once_in(d, 3) ? least(top, 65536 + below(d, 3)) : -1;
  int64_t longest = 0;
  say(d, "--op select --num-blocks ");
  for (int64_t r = 0; r < rows; r++) {
    const int64_t n = r == 0 && wide >= 0 ? wide : row_blocks(d, topk, top);
    longest = most(longest, n);
    say(d, "%s%ld", r ? "," : "", (long)n);
  }
  say(d, " --heads %ld --topk %ld", (long)heads, (long)topk);
  int64_t columns = longest;
  if (once_in(d, 4)) {
    const int64_t edge = beside(d, &d->edges->select_blocks, top);
    columns = most(longest, below(d, 2) ? edge : longest + in(d, 1, 40));
    say(d, " --max-block %ld", (long)columns);
    mark(d, FUZZ_EDGE_CAPACITY);
  }
  say_contract(d);
  say_forced(d, topk, longest);
  const target numbers = target_of("score", heads * rows * columns, most(1, columns), M3IDX_F32);
  say_data(d, draw_kind(d), &numbers, 1, NULL, 0);
}

/* ---- queries and keys ---- */

typedef struct shape {
  int64_t B, D, H, K, R, query_len; /* rows of a request; prefill: of the longest */
  int64_t blocks;                   /* most blocks of a request */
  bool split;                       /* lengths beside whole turns of the decode scorer's chunks */
  int64_t share;                    /* blocks of a request, where all have about as many */
  bool table;                       /* the sparse table of more ids than a wave has lanes */
  bool tall;                        /* a tile of 128 rows, in a capacity that splits it */
  m3idx_dtype q, k;
} shape;

static m3idx_dtype draw_dtype(draw *d) { return once_in(d, 4) ? M3IDX_BF16 : (m3idx_dtype)below(d, M3IDX_DTYPE_COUNT); }

/* One line in six is for what small lines of any shape never reach; where that takes many blocks or rows, it is about
 * who takes which, and numbers are those that cost least. */
static void draw_special_shape(draw *d, shape *s, bool decode) {
  const int64_t which = below(d, 24);
  int64_t products = 0;
  if (which < 2) { /* what matrix kernels are written for */
    s->D = s->B = 128;
    s->H = once_in(d, 3) ? 2 : 1;
    s->R = once_in(d, 3) ? 2 : 1;
    s->tall = !decode && once_in(d, d->edges->light ? 4 : 24);
    if (below(d, 2)) s->q = s->k = M3IDX_BF16;
    if (s->query_len > 6) s->query_len = in(d, 1, 6);
    if (s->tall) {
      s->query_len = in(d, 127, 129);
      s->H = s->R = 1;
    }
    products = 2 * s->D * s->B * s->H * s->R * s->query_len * (s->tall ? 1 : in(d, 1, 3));
    d->most_elements = most(d->most_elements, 20000);
    mark(d, FUZZ_EDGE_MODEL);
  } else if (decode && which < (d->edges->light ? 5 : 3) && once_in(d, d->edges->light ? 4 : 24)) {
    /* more blocks than S8.3 gives programs to */
    int64_t budget = 0;
    s->D = 128;
    s->B = 16;
    s->q = s->k = M3IDX_BF16;
    s->H = s->query_len = 1;
    s->R = in(d, 1, 3);
    if (m3idx_decode_score_budget(s->R, s->D, s->q, s->k, M3IDX_GFX950, &budget) == M3IDX_OK) s->share = budget / s->R;
    products = s->D * s->B * (budget + 8);
  } else if (which < (d->edges->light ? 5 : 3)) { /* decode: programs that take several blocks */
    const int64_t reqs = once_in(d, 2) ? beside(d, &d->edges->decode_reqs, 129) : 1;
    s->D = s->B = 16;
    s->H = s->query_len = 1;
    s->R = decode ? most(1, reqs) : 1;
    s->split = decode;
    products = s->R == 1 ? 300000 : 160000;
  } else if (which == 5) { /* a row of many blocks, most of which are not chosen */
    s->D = s->B = 16;
    s->H = s->R = s->query_len = 1;
  } else if (which == 6 && once_in(d, 2)) {
    s->D = 16;
    s->B = 128;
    s->H = s->R = s->query_len = 1;
    s->K = in(d, 63, 128);
    s->table = true;
    products = s->D * s->B * (s->K + 2);
  }
  d->most_products = most(d->most_products, products);
  if (s->tall || s->split || s->share || s->table) d->kind = "normal";
}

/* Half of all lines have blocks of 16, which leave room for many. */
static shape draw_shape(draw *d, bool decode) {
  static const int64_t sizes[] = {16, 16, 16, 32, 64, 128, 128}, dims[] = {16, 16, 16, 32, 48, 64, 80, 128, 128, 256};
  shape s = {0};
  s.q = draw_dtype(d);
  s.k = draw_dtype(d);
  s.B = sizes[below(d, 7)];
  s.D = once_in(d, 4) ? 16 * in(d, 1, 16) : dims[below(d, 10)];
  s.H = once_in(d, 3) ? in(d, 2, 4) : 1;
  s.K = draw_topk(d);
  s.R = once_in(d, 2) ? in(d, 1, 5) : 1;
  s.query_len = decode ? (once_in(d, 2) ? in(d, 2, 5) : 1) : in(d, 1, 6);
  if (once_in(d, 6)) s.query_len = vectors(d);
  if (decode && d->out->size != FUZZ_SMALL && once_in(d, 2)) {
    const int64_t reqs = beside(d, &d->edges->decode_reqs, 129);
    if (reqs > 0) s.R = reqs;
    mark(d, FUZZ_EDGE_SPLIT);
  }
  if (!decode && d->out->size != FUZZ_SMALL && once_in(d, 2)) {
    const int64_t rows = beside(d, &d->edges->prefill_rows, 260);
    if (rows > 0) s.query_len = rows;
    mark(d, FUZZ_EDGE_QTILE);
  }
  draw_special_shape(d, &s, decode);
  while (s.D > 16 && d->most_products / (s.D * s.H * s.R * s.query_len * s.B) < 2) s.D = s.D / 32 * 16;
  while (s.B > 16 && d->most_products / (s.D * s.H * s.R * s.query_len * s.B) < 2) s.B /= 2;
  while (s.R > 1 && d->most_products / (s.D * s.H * s.R * s.query_len * s.B) < 2) s.R /= 2;
  s.blocks = most(2, d->most_products / (s.D * s.H * s.R * s.query_len * s.B));
  return s;
}

/* Blocks of a request so that the decode scorer's chunks (S8.4) are just full, or just not. */
static int64_t split_blocks(draw *d, const shape *s, int64_t arch) {
  m3idx_decode_score_geometry g;
  if (m3idx_decode_score_split(s->R, s->D, s->q, s->k, (m3idx_arch)arch, &g) != M3IDX_OK || g.chunks >= s->blocks)
    return -1;
  mark(d, FUZZ_EDGE_SPLIT);
  const int64_t turns = s->blocks / g.chunks, full = g.chunks * (below(d, 2) ? turns : in(d, 1, turns));
  return full + in(d, -1, 1);
}

/* Keys of a request. */
static int64_t draw_keys(draw *d, const shape *s) {
  int64_t blocks = -1;
  if (once_in(d, 10)) {
    mark(d, FUZZ_EDGE_SHORT);
    return below(d, 3);
  }
  if (s->split || once_in(d, 3)) blocks = split_blocks(d, s, below(d, 3));
  if (s->table) blocks = s->K + in(d, -1, 2);
  if (s->share) blocks = s->share + in(d, 0, 2);
  if (blocks < 0 && once_in(d, 3)) {
    blocks = beside(d, &d->edges->select_blocks, s->blocks);
    if (blocks >= 0) mark(d, FUZZ_EDGE_CHUNKS);
  }
  if (blocks < 0 && once_in(d, 4)) blocks = about_topk(d, s->K);
  if (blocks < 0) blocks = once_in(d, 2) ? lanes(d, s->blocks) : in(d, 1, s->blocks);
  blocks = most(1, least(blocks, s->blocks));
  if (once_in(d, 4)) return most(1, blocks * s->B - below(d, s->B));
  mark(d, FUZZ_EDGE_BLOCK);
  return blocks * s->B + in(d, -1, 1);
}

static int64_t blocks_of(int64_t keys, int64_t B) { return keys / B + (keys % B != 0); }

typedef struct lengths {
  int64_t rows, longest, live; /* query rows of all, blocks of the longest request, blocks of all */
} lengths;

static void count_request(lengths *n, const shape *s, int64_t keys) {
  n->longest = most(n->longest, blocks_of(keys, s->B));
  n->live += blocks_of(keys, s->B);
}

static lengths say_decode(draw *d, const shape *s) {
  lengths n = {.rows = s->R * s->query_len};
  say(d, "--op decode --seq-lens ");
  for (int64_t r = 0; r < s->R; r++) {
    const int64_t keys = draw_keys(d, s);
    say(d, "%s%ld", r ? "," : "", (long)keys);
    count_request(&n, s, keys);
    if (keys < s->query_len) mark(d, FUZZ_EDGE_SHORT);
  }
  if (s->query_len > 1) say(d, " --decode-query-len %ld", (long)s->query_len);
  return n;
}

static lengths say_prefill(draw *d, const shape *s) {
  enum { MOST_REQUESTS = 8 };
  int64_t rows[MOST_REQUESTS], prefix[MOST_REQUESTS], keys[MOST_REQUESTS];
  lengths n = {0};
  bool longer = false;
  for (int64_t r = 0; r < s->R; r++) {
    rows[r] = r == 0 ? s->query_len : below(d, 6) ? in(d, 1, s->query_len) : 0;
    prefix[r] = draw_keys(d, s);
    if (below(d, 2)) { /* S2.3: the first query just begins, or just ends, a block */
      static const int64_t residues[] = {0, 1, -1, -2};
      prefix[r] = most(0, prefix[r] / s->B * s->B + residues[below(d, 4)]);
      mark(d, FUZZ_EDGE_PREFIX);
    }
    keys[r] = prefix[r] + rows[r];
    if (once_in(d, 6)) {
      keys[r] += in(d, 1, 2 * s->B);
      longer = true;
    }
    n.rows += rows[r];
    count_request(&n, s, keys[r]);
  }
  say(d, "--op prefill --q-lens ");
  for (int64_t r = 0; r < s->R; r++) say(d, "%s%ld", r ? "," : "", (long)rows[r]);
  say(d, " --prefix-lens ");
  for (int64_t r = 0; r < s->R; r++) say(d, "%s%ld", r ? "," : "", (long)prefix[r]);
  if (longer) say(d, " --seq-lens ");
  for (int64_t r = 0; r < s->R && longer; r++) say(d, "%s%ld", r ? "," : "", (long)keys[r]);
  return n;
}

/* Capacity above the live length, beside an edge of any policy that reads it; returns it. */
static int64_t say_capacity(draw *d, const shape *s, const lengths *n) {
  const int64_t top = most(n->longest, d->most_elements / most(1, n->rows * s->H));
  int64_t capacity = n->longest + in(d, 0, 3);
  if (below(d, 2)) capacity = beside(d, &d->edges->select_blocks, top);
  if (s->tall) capacity = 64 * in(d, 1, 2) + in(d, -1, 1); /* 8192 keys, and twice that (S8.5) */
  if (once_in(d, 4)) {
    const int64_t tokens = beside(d, &d->edges->prefill_tokens, top * s->B);
    if (tokens > 0) capacity = blocks_of(tokens, s->B);
  }
  if (capacity <= 0 || capacity < n->longest || capacity > top) return n->longest;
  say(d, " --max-block %ld", (long)capacity);
  mark(d, FUZZ_EDGE_CAPACITY);
  return capacity;
}

static int64_t say_pages(draw *d, const lengths *n) {
  int64_t pages = n->live;
  if (once_in(d, 5) && n->live) {
    pages = once_in(d, 3) ? n->live + in(d, 1, 3) : in(d, 1, most(1, n->live / 2));
    say(d, " --num-pages %ld", (long)pages);
    if (pages < n->live) mark(d, FUZZ_EDGE_SHARED);
  }
  if (once_in(d, 4)) {
    say(d, " --table %s", below(d, 2) ? "random" : "prefix");
    mark(d, FUZZ_EDGE_SHARED);
  }
  return pages;
}

static void draw_attention(draw *d, bool decode) {
  static const char *const scales[] = {"0.0883883461", "1.00000012", "0.333333343", "3e38", "1e-38", "1.4e-45", "2"};
  d->kind = draw_kind(d);
  if (d->edges->light && strcmp(d->kind, "normal") != 0 && strcmp(d->kind, "wide") != 0) d->most_products /= 8;
  shape s = draw_shape(d, decode);
  if (!decode) s.R = least(s.R, 4);
  const lengths n = decode ? say_decode(d, &s) : say_prefill(d, &s);
  say(d, " --heads %ld --head-dim %ld --topk %ld --block-size %ld", (long)s.H, (long)s.D, (long)s.K, (long)s.B);
  const int64_t capacity = s.tall || below(d, 2) ? say_capacity(d, &s, &n) : n.longest;
  say_forced(d, s.K, n.longest);
  say(d, " --q-dtype %s --k-dtype %s", m3idx_dtype_name(s.q), m3idx_dtype_name(s.k));
  say_contract(d);
  if (once_in(d, 4)) {
    /* Under the least scale, dots of drift lie between two of the least floats. */
    const char *scale = !strcmp(d->kind, "drift") && below(d, 2) ? "1.4e-45" : scales[below(d, 7)];
    say(d, " --scale %s", scale);
    mark(d, FUZZ_EDGE_SCALE);
  }
  if (s.B == 128 && (s.table || below(d, 2))) {
    say(d, " --page-stride %d", below(d, 2) ? 16 : 8);
    say(d, " --sparse-table 1 --attention-table %d", (int)below(d, 2));
    mark(d, FUZZ_EDGE_TABLE);
  }
  const int64_t pages = say_pages(d, &n);
  const target numbers[] = {target_of("q", n.rows * s.H * s.D, s.D, s.q),
                            target_of("index_k", pages * s.B * s.D, s.D, s.k)};
  say_data(d, d->kind, numbers, 2, &(target){.name = "block_table", .elements = s.R * (capacity + 1)}, pages);
}

/* ---- lines ---- */

/* Most lines are small; selections have the longer tail, as their edges lie further out and cost less. */
static fuzz_size draw_size(draw *d, case_op op) {
  const int64_t rare = below(d, 4096);
  if (op == CASE_SELECT) return rare < 8 ? FUZZ_LARGE : rare < 256 ? FUZZ_MEDIUM : FUZZ_SMALL;
  return rare < 2 ? FUZZ_LARGE : rare < 64 ? FUZZ_MEDIUM : FUZZ_SMALL;
}

void fuzz_draw(const fuzz_edges *edges, uint64_t seed, uint64_t index, unsigned ops, fuzz_line *out) {
  static const int64_t products[FUZZ_SIZES] = {32000, 400000, 6000000}, elements[FUZZ_SIZES] = {1600, 20000, 200000};
  enum { STREAM = 0x66757a7a }; /* apart from what the seed gives to cases */
  draw d = {.key = case_word(case_word(seed, STREAM), index), .edges = edges, .out = out};
  out->text[0] = 0;
  out->edges = 0;
  do out->op = (case_op)below(&d, 3);
  while (!(ops >> out->op & 1));
  out->size = draw_size(&d, out->op);
  if (edges->light && out->op != CASE_SELECT) out->size = FUZZ_SMALL;
  d.most_products = products[out->size];
  d.most_elements = elements[out->size];
  if (out->op == CASE_SELECT)
    draw_select(&d);
  else
    draw_attention(&d, out->op == CASE_DECODE);
}

const char *fuzz_edge_name(fuzz_edge edge) {
  static const char *const names[] = {
#define FUZZ_EDGE(name, text, what) text,
#include "fuzz_edge.def"
#undef FUZZ_EDGE
  };
  return names[edge];
}

const char *fuzz_size_name(fuzz_size size) {
  static const char *const names[FUZZ_SIZES] = {"small", "medium", "large"};
  return names[size];
}
