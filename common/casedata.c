/* SPDX-License-Identifier: Apache-2.0
 *
 * Data kinds of generated cases (docs/CASES.md, "Data kinds").  Integer arithmetic only: the same seed gives
 * the same bytes on every host, compiler and libm.  Word i of a tensor's stream depends on nothing but the
 * seed, the tensor and i.
 */
#include <string.h>

#include "casedata.h"

/* ---- random words ---- */

static const uint64_t GAMMA = 0x9e3779b97f4a7c15u;

uint64_t case_word(uint64_t key, uint64_t i) {
  uint64_t z = key + (i + 1) * GAMMA;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

uint64_t case_stream_key(const case_spec *spec, case_stream stream) { return case_word(spec->seed, stream); }

/* 0..n-1; the bias of the remainder is below n / 2^32. */
static uint32_t below(uint64_t word, uint32_t n) { return (uint32_t)((word >> 32) * n >> 32); }

void case_permute(uint64_t key, int64_t n, int32_t *out) {
  for (int64_t i = 0; i < n; i++) out[i] = (int32_t)i;
  for (int64_t i = n - 1; i > 0; i--) {
    int64_t j = below(case_word(key, (uint64_t)i), (uint32_t)i + 1);
    int32_t held = out[i];
    out[i] = out[j];
    out[j] = held;
  }
}

/* ---- formats ---- */

typedef enum specials { IEEE, FN, FNUZ } specials;

static const struct {
  size_t bytes;
  int exponent_bits, fraction_bits, bias;
  specials specials;
} formats[M3IDX_DTYPE_COUNT] = {
#define M3IDX_DTYPE(name, value, text, bytes, ebits, fbits, bias, specials) \
  [value] = {bytes, ebits, fbits, bias, specials},
#include "dtype.def"
#undef M3IDX_DTYPE
};

static uint32_t sign_bit(m3idx_dtype d) { return UINT32_C(1) << (formats[d].exponent_bits + formats[d].fraction_bits); }

static uint32_t largest_finite(m3idx_dtype d) {
  uint32_t all = sign_bit(d) - 1;
  if (formats[d].specials == FNUZ) return all;
  if (formats[d].specials == FN) return all - 1;
  return all - (UINT32_C(1) << formats[d].fraction_bits);
}

static uint32_t largest_exponent(m3idx_dtype d) { return largest_finite(d) >> formats[d].fraction_bits; }

static uint32_t with_sign(m3idx_dtype d, bool negative, uint32_t code) {
  bool no_minus_zero = formats[d].specials == FNUZ && code == 0;
  return negative && !no_minus_zero ? code | sign_bit(d) : code;
}

static int top_bit(uint64_t m) {
  int top = -1;
  for (; m; m >>= 1) top++;
  return top;
}

uint32_t case_encode(m3idx_dtype d, bool negative, uint64_t m, int e) {
  if (m == 0) return with_sign(d, negative, 0);
  int fraction = formats[d].fraction_bits, lowest = 1 - formats[d].bias;
  int top = top_bit(m) + e;
  int unit = (top > lowest ? top : lowest) - fraction; /* exponent of the code's last bit */
  int drop = unit - e;
  uint64_t kept;
  if (drop <= 0) {
    kept = m << -drop;
  } else if (drop > 61) {
    kept = 0;
  } else {
    uint64_t rest = m & ((UINT64_C(1) << drop) - 1), half = UINT64_C(1) << (drop - 1);
    kept = m >> drop;
    if (rest > half || (rest == half && kept & 1)) kept++;
  }
  /* A kept that carries into the next binade carries into the exponent field as it should. */
  uint64_t code = ((uint64_t)(unit + fraction - lowest) << fraction) + kept;
  if (code > largest_finite(d)) code = largest_finite(d);
  return with_sign(d, negative, (uint32_t)code);
}

static void put(void *data, m3idx_dtype d, int64_t i, uint32_t code) {
  switch (formats[d].bytes) {
  case 4: ((uint32_t *)data)[i] = code; break;
  case 2: ((uint16_t *)data)[i] = (uint16_t)code; break;
  default: ((uint8_t *)data)[i] = (uint8_t)code; break;
  }
}

/* ---- normal and ties ---- */

/* Irwin-Hall: twelve uniform 16-bit integers have standard deviation 2^16; 32 more bits fill in below. */
static uint32_t normal_code(m3idx_dtype d, uint64_t key, uint64_t i) {
  int64_t sum = -(int64_t)(12 * 65535 / 2);
  for (uint64_t w = 0; w < 3; w++) {
    uint64_t word = case_word(key, 4 * i + w);
    for (int part = 0; part < 64; part += 16) sum += (int64_t)(word >> part & 65535);
  }
  int64_t low = (int64_t)(case_word(key, 4 * i + 3) >> 32) - (INT64_C(1) << 31);
  int64_t m = sum * (INT64_C(1) << 32) + low;
  return case_encode(d, m < 0, (uint64_t)(m < 0 ? -m : m), -48);
}

/* Elements first .. last - 1 of a tensor, like every fill below. */
static void fill_normal(m3idx_dtype d, uint64_t key, int64_t first, int64_t last, void *out) {
  for (int64_t i = first; i < last; i++) put(out, d, i, normal_code(d, key, (uint64_t)i));
}

/* Integers -most..most. */
static void fill_ties(m3idx_dtype d, uint64_t key, int64_t first, int64_t last, uint32_t most, void *out) {
  for (int64_t i = first; i < last; i++) {
    int64_t value = (int64_t)below(case_word(key, (uint64_t)i), 2 * most + 1) - most;
    put(out, d, i, case_encode(d, value < 0, (uint64_t)(value < 0 ? -value : value), 0));
  }
}

/* ---- specials ---- */

static uint32_t nan_code(m3idx_dtype d, bool negative, uint64_t word) {
  if (formats[d].specials == FNUZ) return sign_bit(d);
  if (formats[d].specials == FN) return with_sign(d, negative, sign_bit(d) - 1);
  uint32_t payload = UINT32_C(1) << (formats[d].fraction_bits - 1); /* quiet, or any payload but none */
  if (word & 1) payload = 1 + below(word, (UINT32_C(1) << formats[d].fraction_bits) - 1);
  return with_sign(d, negative, (largest_finite(d) + 1) | payload);
}

static uint32_t special_code(m3idx_dtype d, uint64_t word) {
  uint32_t smallest_normal = UINT32_C(1) << formats[d].fraction_bits;
  bool negative = word >> 8 & 1;
  switch (word % 6) {
  case 0: return nan_code(d, negative, word >> 9);
  case 1: return with_sign(d, negative, largest_finite(d) + (formats[d].specials == IEEE)); /* inf where there is */
  case 2: return with_sign(d, negative, 0);
  case 3: return with_sign(d, negative, 1 + below(word, smallest_normal - 1)); /* subnormal */
  case 4: return with_sign(d, negative, word >> 9 & 1 ? 1 : smallest_normal);
  default: return with_sign(d, negative, largest_finite(d));
  }
}

/* A row has one special in one case of eight. */
static void sow_row(const case_spec *spec, m3idx_dtype d, int64_t r, void *out) {
  uint64_t key = case_stream_key(spec, CASE_STREAM_SOWN) ^ GAMMA, word = case_word(key, 2 * (uint64_t)r);
  int64_t D = spec->head_dim;
  if (word & 7) return;
  put(out, d, r * D + below(word, (uint32_t)D), special_code(d, case_word(key, 2 * (uint64_t)r + 1)));
}

/* A page has 0..3 specials; one page in sixteen has a NaN in every token. */
static void sow_page(const case_spec *spec, m3idx_dtype d, int64_t p, void *out) {
  uint64_t key = case_stream_key(spec, CASE_STREAM_SOWN);
  int64_t B = spec->block_size, D = spec->head_dim;
  uint64_t page = case_word(key, (uint64_t)p);
  for (uint64_t i = 0; i < (page & 3); i++)
    put(out, d, p * B * D + below(case_word(page, 2 * i), (uint32_t)(B * D)),
        special_code(d, case_word(page, 2 * i + 1)));
  if (page >> 2 & 15) return;
  for (int64_t b = 0; b < B; b++) {
    uint64_t word = case_word(page, 16 + (uint64_t)b);
    put(out, d, (p * B + b) * D + below(word, (uint32_t)D), nan_code(d, word >> 1 & 1, word));
  }
}

/* Every fourth score is special, among them the values that forced blocks take (S3.7) and that contracts give
 * to NaN (S4.3), and their neighbours. */
static void sow_scores(const case_spec *spec, int64_t first, int64_t last, float *out) {
  static const uint32_t borders[] = {0x7149f2cau, 0x7149f2c9u, 0x7149f2cbu, 0x6fa18f08u, 0x6fa18f07u, 0x6fa18f09u};
  uint64_t key = case_stream_key(spec, CASE_STREAM_SOWN);
  for (int64_t i = first; i < last; i++) {
    uint64_t word = case_word(key, (uint64_t)i);
    if (word & 3) continue;
    uint32_t code = special_code(M3IDX_F32, word >> 3);
    if (word & 4) code = with_sign(M3IDX_F32, word >> 3 & 1, borders[below(word, 6)]);
    memcpy(out + i, &code, sizeof code);
  }
}

/* ---- wide ---- */

/* A finite code whose exponent field is uniform in 0..ceiling. */
static uint32_t wide_code(m3idx_dtype d, uint32_t ceiling, uint64_t word) {
  uint32_t code = below(word, ceiling + 1) << formats[d].fraction_bits;
  code |= (uint32_t)word & ((UINT32_C(1) << formats[d].fraction_bits) - 1);
  if (code > largest_finite(d)) code = largest_finite(d);
  return with_sign(d, word >> 31 & 1, code);
}

/* Query row or page `at` of `width` elements has a ceiling for its exponents.  Without ceilings the sums of the wide
 * formats would all overflow and no two blocks would differ. */
static void fill_wide(m3idx_dtype d, uint64_t key, int64_t at, int64_t width, void *out) {
  uint32_t ceiling = below(case_word(key ^ GAMMA, (uint64_t)at), largest_exponent(d) + 1);
  for (int64_t i = at * width; i < (at + 1) * width; i++)
    put(out, d, i, wide_code(d, ceiling, case_word(key, (uint64_t)i)));
}

/* ---- near ----
 * Every token is one shared base key plus a few tiny coordinates.  A coordinate's role comes from a permutation:
 *   0..3  tiny: q holds 2^u (0, 1, 2) or its least (3), so that k moves the dot by quarters of a float ulp (0, 1),
 *         by sixteenths (2), and by next to nothing (3), where u is the exponent of the ulp of the row's dot X
 *   4, 5  two products that cancel, as large as the formats allow
 *   6..   the base: q and k are 4..7 times 2^4, equal in sign but for one coordinate in sixteen; X is the same for
 *         all tokens and |X| / 2^8 is an integer in 16 (15 D/16 - 6) - 49 D/16 >= 95 .. 49 * 234 < 2^14, so u is
 *         in -9..-2 and every format holds 2^u, a quarter and 2^-4
 * Token t of a page moves the dot by sum of w_i * j_i, with j_i at most the page's own J_i; one token reaches all. */
enum { TINY = 4, FIRST_BASE = 6, BASE_EXPONENT = 4, FAR = -60, HUGE_EXPONENT = 40, MAX_D = 256 };
static const int tiny_exponent[TINY - 1] = {-2, -2, -4};

typedef struct near_base {
  int32_t role[MAX_D];
  uint32_t size[MAX_D]; /* 4..7 */
  bool negative[MAX_D];
} near_base;

/* The base of the near rows and pages of a case; zeros where it has none. */
static near_base near_of(const case_spec *spec) {
  near_base b = {0};
  uint64_t key = case_stream_key(spec, CASE_STREAM_BASE);
  if (spec->data != CASE_NEAR && spec->data != CASE_MIXED) return b;
  case_permute(case_stream_key(spec, CASE_STREAM_ROLES), spec->head_dim, b.role);
  for (int64_t i = 0; i < spec->head_dim; i++) {
    uint64_t word = case_word(key, (uint64_t)i);
    b.size[i] = 4 + (uint32_t)(word & 3);
    b.negative[i] = word >> 2 & 1;
  }
  return b;
}

/* Exponents of a format: its least positive value, and its largest binade (at least 1.75 times 2^that is finite). */
static int least_exponent(m3idx_dtype d) { return 1 - formats[d].bias - formats[d].fraction_bits; }
static int top_exponent(m3idx_dtype d) { return (int)largest_exponent(d) - formats[d].bias; }

static int larger(int a, int b) { return a > b ? a : b; }
static int smaller(int a, int b) { return a < b ? a : b; }

static void near_row(const case_spec *spec, const near_base *b, uint64_t row, int64_t first, void *q) {
  m3idx_dtype d = spec->q_dtype;
  bool flip = (row & 3) == 0;
  int64_t sum = 0; /* X in units of 2^(2 * BASE_EXPONENT) */
  for (int64_t i = 0; i < spec->head_dim; i++) {
    if (b->role[i] < FIRST_BASE) continue;
    uint32_t size = 4 + (uint32_t)(case_word(row, (uint64_t)i) & 3);
    bool against = b->role[i] % 16 == 15;
    sum += against ? -(int64_t)(size * b->size[i]) : (int64_t)(size * b->size[i]);
    put(q, d, first + i, case_encode(d, (b->negative[i] != against) != flip, size, BASE_EXPONENT));
  }
  int ulp = top_bit((uint64_t)sum) + 2 * BASE_EXPONENT - 23;
  for (int64_t i = 0; i < spec->head_dim; i++) {
    int32_t role = b->role[i];
    if (role >= FIRST_BASE) continue;
    int e = role < TINY - 1 ? ulp
            : role < TINY   ? larger(FAR, least_exponent(d))
                            : smaller(HUGE_EXPONENT, top_exponent(d));
    put(q, d, first + i, case_encode(d, role >= TINY && row >> 2 & 1, 1, e));
  }
}

static void near_page(const case_spec *spec, const near_base *b, uint64_t page, int64_t first, void *index_k) {
  m3idx_dtype d = spec->k_dtype;
  uint32_t winner = below(page, (uint32_t)spec->block_size);
  for (int64_t t = 0; t < spec->block_size; t++) {
    uint64_t token = case_word(page, (uint64_t)t);
    int huge = (int)below(token, (uint32_t)smaller(HUGE_EXPONENT, top_exponent(d)) + 1);
    for (int64_t i = 0; i < spec->head_dim; i++) {
      int32_t role = b->role[i];
      uint32_t code;
      if (role >= FIRST_BASE) {
        code = case_encode(d, b->negative[i], b->size[i], BASE_EXPONENT);
      } else if (role >= TINY) {
        code = case_encode(d, role > TINY, 1, huge);
      } else {
        int j = (int)((page >> 3 * role & 7) % 7) - 3; /* J_i */
        if (t != winner) j -= (int)(token >> 2 * role & 3);
        code = case_encode(d, j < 0, (uint64_t)(j < 0 ? -j : j),
                           role < TINY - 1 ? tiny_exponent[role] : larger(FAR, least_exponent(d)));
      }
      put(index_k, d, first + t * spec->head_dim + i, code);
    }
  }
}

/* ---- drift ----
 * Sums in which a float errs as much as it can.  One coordinate, the crest, holds a product X = 2^x that all others
 * stand beside: each of those is a little less, or a little more, than half an ulp of X, which a sum in float loses, or
 * takes for a whole one.  A role is what a permutation gives to a coordinate other than the crest:
 *   0     the tip: on pages of tips it holds 0, 1 or 3 halves of an ulp, so that dots lie on midpoints of floats
 *   1     the whisker: on half of the pages of tips, a product 2^-26 to 2^-89 of X as far as the formats reach
 *   2..   the drift: q holds 5/4 of its unit, k 3/4 of its own (15/16 of half an ulp) or 7/8 (35/32)
 * The ratio 2^-24 of half an ulp to X is shared out between q and k as their ranges allow.  The crest is the row's
 * largest element and the page's, so that no bound is larger than it must be.  X is 2^-1 where the formats reach down
 * to that: a scale of 2^-149 then rounds between two of the least floats; or 2^-150, half of the least of them. */
enum {
  HALF_ULP = 24,
  LEAST_SHARE = 2,
  WIDEST_SHARE = 22,
  TAME = 100,
  NEAREST_WHISKER = 26,
  TIP = 0,
  WHISKER = 1,
  FIRST_DRIFT = 2
};

typedef struct drift_base {
  int32_t role[MAX_D]; /* of the crest -1 */
  int q, k;            /* exponents of the crest */
  int q_share, k_share, x, q_whisker;
} drift_base;

/* Exponents between which a format has two fraction bits, within reason; one is left for rows and pages to double. */
static int drift_low(m3idx_dtype d) { return larger(least_exponent(d) + 2, -TAME); }
static int drift_high(m3idx_dtype d) { return smaller(top_exponent(d), TAME) - 1; }

static drift_base drift_of(const case_spec *spec) {
  drift_base b = {0};
  if (spec->data != CASE_DRIFT) return b;
  const uint64_t key = case_stream_key(spec, CASE_STREAM_ROLES), word = case_word(key, MAX_D);
  const int q_low = drift_low(spec->q_dtype), q_high = drift_high(spec->q_dtype);
  const int k_low = drift_low(spec->k_dtype), k_high = drift_high(spec->k_dtype);
  const int least = larger(LEAST_SHARE, HALF_ULP - smaller(WIDEST_SHARE, k_high - k_low));
  const int most = smaller(WIDEST_SHARE, q_high - q_low);
  b.q_share = larger(least, most - (int)(word & 3));
  b.k_share = HALF_ULP - b.q_share;
  int x = word >> 2 & 1 ? -1 : word >> 32 & 3 ? (int)below(word, 24) - 8 : -150;
  x = smaller(larger(x, q_low + b.q_share + k_low + b.k_share), q_high + k_high);
  b.q = larger(q_low + b.q_share, smaller(q_high, x - (k_low + b.k_share)));
  if (x - b.q > k_high) b.q = x - k_high;
  b.k = x - b.q;
  b.x = x;
  b.q_whisker = larger(least_exponent(spec->q_dtype), (x - NEAREST_WHISKER - 32) / 2);
  case_permute(key, spec->head_dim, b.role);
  const int64_t crest = word >> 3 & 1 ? word >> 4 & 1 : below(word << 5, (uint32_t)spec->head_dim);
  for (int64_t i = 0; i < spec->head_dim; i++)
    if (b.role[i] == spec->head_dim - 1) b.role[i] = b.role[crest];
  b.role[crest] = -1;
  return b;
}

static void drift_row(const case_spec *spec, const drift_base *b, uint64_t row, int64_t first, void *q) {
  const m3idx_dtype d = spec->q_dtype;
  const bool negative = (row & 3) == 0;
  const int e = b->q + (int)(row >> 2 & 1);
  for (int64_t i = 0; i < spec->head_dim; i++) {
    const int32_t role = b->role[i];
    uint32_t code = case_encode(d, negative, 1, e);
    if (role == TIP) code = case_encode(d, negative, 1, e - b->q_share);
    if (role == WHISKER) code = case_encode(d, negative, 1, b->q_whisker);
    if (role >= FIRST_DRIFT) code = case_encode(d, negative, 5, e - b->q_share - 2);
    put(q, d, first + i, code);
  }
}

static void drift_page(const case_spec *spec, const drift_base *b, uint64_t page, int64_t first, void *index_k) {
  const m3idx_dtype d = spec->k_dtype;
  const int e = b->k + (int)(page & 1), unit = e - b->k_share;
  const uint32_t drifting = (uint32_t)spec->head_dim - 1 - FIRST_DRIFT;
  const bool small = b->x < -126; /* below 2^-126 half an ulp of X is no half of a float's */
  const bool tips = small || (page >> 1 & 7) < 3, whiskers = page >> 4 & 1, level = page >> 16 & 1;
  const bool lopsided = (page >> 5 & 3) == 0, second = page >> 7 & 1; /* one half of the tokens is zero */
  const uint32_t tip = small ? 0 : (uint32_t)(page >> 8 & 3);
  const int whisker = larger(least_exponent(d), b->x - NEAREST_WHISKER - (int)(page >> 10 & 63) - b->q_whisker);
  for (int64_t t = 0; t < spec->block_size; t++) {
    const uint64_t token = case_word(page, (uint64_t)t);
    const bool up = token & 1;
    if (lopsided && (2 * t >= spec->block_size) == second) continue;
    /* So many coordinates drift; on level pages a token that rounds up has at most 6/7 of them, so that its true sum
     * stays below that of one that rounds down in all. */
    const uint32_t most = up && level ? drifting * 6 / 7 : drifting, many = t % 4 == 3 ? most : below(token, most + 1);
    const uint32_t turn = (uint32_t)(token >> 3 & 255);
    for (int64_t i = 0; i < spec->head_dim; i++) {
      const int32_t role = b->role[i];
      uint32_t code = 0;
      if (role < 0) code = case_encode(d, false, 1, e);
      if (role == TIP && tips) code = case_encode(d, false, tip == 2 ? 3 : tip, unit);
      if (role == WHISKER && tips && whiskers) code = case_encode(d, token >> 2 & 1, token >> 1 & 1, whisker);
      if (role >= FIRST_DRIFT && !tips && ((uint32_t)(role - FIRST_DRIFT) + turn) % drifting < many)
        code = up ? case_encode(d, false, 7, unit - 3) : case_encode(d, false, 3, unit - 2);
      put(index_k, d, first + t * spec->head_dim + i, code);
    }
  }
}

/* ---- tensors: each query row, page and run of scores by its kind ---- */

enum { MIXED_RUN = 16 }; /* columns of a row of scores that are of one kind */

/* The kind of row, page or run i: the case's, or where that is mixed one of the five before it. */
static case_data kind_of(const case_spec *spec, uint64_t salt, int64_t i) {
  if (spec->data != CASE_MIXED) return spec->data;
  return (case_data)below(case_word(case_stream_key(spec, CASE_STREAM_MIXED) ^ salt, (uint64_t)i), CASE_NEAR + 1);
}

void case_fill_q(const case_spec *spec, void *q) {
  uint64_t key = case_stream_key(spec, CASE_STREAM_Q);
  m3idx_dtype d = spec->q_dtype;
  int64_t rows = spec->num_rows * spec->heads, D = spec->head_dim;
  const near_base base = near_of(spec);
  const drift_base drift = drift_of(spec);
  for (int64_t r = 0; r < rows; r++) {
    int64_t first = r * D, last = first + D;
    switch (kind_of(spec, GAMMA, r)) {
    case CASE_NORMAL: fill_normal(d, key, first, last, q); break;
    case CASE_TIES: fill_ties(d, key, first, last, 1, q); break;
    case CASE_SPECIALS:
      fill_normal(d, key, first, last, q);
      sow_row(spec, d, r, q);
      break;
    case CASE_WIDE: fill_wide(d, key, r, D, q); break;
    case CASE_NEAR: near_row(spec, &base, case_word(key, (uint64_t)r), first, q); break;
    case CASE_DRIFT: drift_row(spec, &drift, case_word(key, (uint64_t)r), first, q); break;
    case CASE_MIXED:
    case CASE_ZEROS: break;
    }
  }
}

void case_fill_index_k(const case_spec *spec, int64_t pages, void *index_k) {
  uint64_t key = case_stream_key(spec, CASE_STREAM_K);
  m3idx_dtype d = spec->k_dtype;
  int64_t width = spec->block_size * spec->head_dim;
  const near_base base = near_of(spec);
  const drift_base drift = drift_of(spec);
  for (int64_t p = 0; p < pages; p++) {
    int64_t first = p * width, last = first + width;
    switch (kind_of(spec, 0, p)) {
    case CASE_NORMAL: fill_normal(d, key, first, last, index_k); break;
    case CASE_TIES: fill_ties(d, key, first, last, 1, index_k); break;
    case CASE_SPECIALS:
      fill_normal(d, key, first, last, index_k);
      sow_page(spec, d, p, index_k);
      break;
    case CASE_WIDE: fill_wide(d, key, p, width, index_k); break;
    case CASE_NEAR: near_page(spec, &base, case_word(key, (uint64_t)p), first, index_k); break;
    case CASE_DRIFT: drift_page(spec, &drift, case_word(key, (uint64_t)p), first, index_k); break;
    case CASE_MIXED:
    case CASE_ZEROS: break;
    }
  }
}

static void fill_scores(const case_spec *spec, case_data kind, int64_t first, int64_t last, float *score) {
  uint64_t key = case_stream_key(spec, CASE_STREAM_SCORE);
  switch (kind) {
  case CASE_NORMAL: fill_normal(M3IDX_F32, key, first, last, score); break;
  case CASE_TIES: fill_ties(M3IDX_F32, key, first, last, 4, score); break;
  case CASE_SPECIALS:
    fill_normal(M3IDX_F32, key, first, last, score);
    sow_scores(spec, first, last, score);
    break;
  case CASE_WIDE:
    for (int64_t i = first; i < last; i++)
      put(score, M3IDX_F32, i, wide_code(M3IDX_F32, largest_exponent(M3IDX_F32), case_word(key, (uint64_t)i)));
    break;
  case CASE_NEAR: /* 1 and the seven floats above it */
    for (int64_t i = first; i < last; i++)
      put(score, M3IDX_F32, i,
          case_encode(M3IDX_F32, false, (UINT64_C(1) << 23) + (case_word(key, (uint64_t)i) & 7), -23));
    break;
  case CASE_DRIFT: /* the same on both sides of zero */
    for (int64_t i = first; i < last; i++) {
      const uint64_t word = case_word(key, (uint64_t)i);
      put(score, M3IDX_F32, i, case_encode(M3IDX_F32, word >> 3 & 1, (UINT64_C(1) << 23) + (word & 7), -23));
    }
    break;
  case CASE_MIXED:
  case CASE_ZEROS: break;
  }
}

void case_fill_score(const case_spec *spec, int64_t max_block, float *score) {
  int64_t rows = spec->heads * spec->num_rows, runs = max_block / MIXED_RUN + 1;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t run = 0; run < runs; run++) {
      int64_t first = run * MIXED_RUN, last = first + MIXED_RUN < max_block ? first + MIXED_RUN : max_block;
      fill_scores(spec, kind_of(spec, 0, r * runs + run), r * max_block + first, r * max_block + last, score);
    }
}
