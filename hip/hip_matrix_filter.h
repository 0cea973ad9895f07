/* SPDX-License-Identifier: Apache-2.0
 *
 * The cheap half of scoring on matrix cores: approximate dots of bf16 queries and keys, D = 128, B = 128, whose error
 * hip_bound.h bounds.  A chunk_filter decodes every key element and multiplies it once a row; here the codes go as
 * they are loaded into matrix steps, up to `matrix::N` rows at the price of one.
 *
 * A step wants 16 codes of each of its `matrix::M` rows, and a lane's part of a row is small: if a row were a key, one
 * load of the wave would touch many keys and a piece of a line of each.  So a key takes PHASES rows, each with a part
 * of the key's elements, and lanes side by side load whole lines of 128 bytes.  The queries stand in the columns once a
 * phase with the same part of their elements; a row of one phase with a column of the same phase is a partial dot,
 * the other products of the tile mean nothing, and the partial dots are summed over lanes.  Which elements meet in a
 * step does not matter as long as queries and keys agree.
 */
#ifndef M3IDX_HIP_MATRIX_FILTER_H
#define M3IDX_HIP_MATRIX_FILTER_H

#include "hip_bound.h"
#include "hip_score.h"

namespace hipk {

/* What a lane holds of rows of MATRIX_DIM codes, taken from the fragments' layout. */
namespace share {

/* Codes of one row in a lane's fragment, and how many of them stand side by side. */
constexpr int step_codes() {
  int n = 0;
  for (int e = 0; e < 8; e++) n += matrix::a_row(0, e) == matrix::a_row(0, 0);
  return n;
}
constexpr int run() {
  int e = 1;
  while (e < 8 && matrix::a_row(0, e) == matrix::a_row(0, 0) && matrix::a_k(0, e) == e) e++;
  return e;
}
constexpr int LINE_UNITS = 8;
constexpr int STEP_WORDS = step_codes() / 2;
constexpr int ROWS = 4 / STEP_WORDS;                                  /* of a tile that a lane has a part of */
constexpr int PARTS = matrix::K / (2 * STEP_WORDS);                   /* lanes that share a row */
constexpr int PHASES = LINE_UNITS / PARTS, KEYS = matrix::M / PHASES; /* of a key, and of a tile */
constexpr int UNITS = MATRIX_UNITS / LINE_UNITS;                      /* of a row in a lane, one a line */
constexpr int STEPS = 4 * UNITS / STEP_WORDS;
constexpr int part(int lane) { return matrix::a_k(lane, 0) / run(); }
constexpr int unit(int lane, int phase, int line) { return line * LINE_UNITS + part(lane) * PHASES + phase; }

/* Word w of a fragment comes from row a_row(w) of the lane's, of which it is word a_word(w) of the step; the same of
 * b.  a_first(r): the first element of row r. */
constexpr int a_row(int w) { return matrix::a_row(0, 2 * w) != matrix::a_row(0, 0); }
constexpr int b_row(int w) { return matrix::b_col(0, 2 * w) != matrix::b_col(0, 0); }
constexpr int words_before(int w, int (*row)(int)) {
  int n = 0;
  for (int x = 0; x < w; x++) n += row(x) == row(w);
  return n;
}
constexpr int a_word(int w) { return words_before(w, a_row); }
constexpr int b_word(int w) { return words_before(w, b_row); }
constexpr int first(int r, int (*row)(int)) {
  int w = 0;
  while (row(w) != r) w++;
  return 2 * w;
}
constexpr int a_first(int r) { return first(r, a_row); }
constexpr int b_first(int r) { return first(r, b_row); }

/* Every lane finds the same k at the same word of a row in a as in b. */
constexpr bool agree() {
  for (int lane = 0; lane < WAVE; lane++)
    for (int w = 0; w < 4; w++)
      for (int x = 0; x < 4; x++)
        if (a_word(w) == b_word(x) && matrix::a_k(lane, 2 * w) != matrix::b_k(lane, 2 * x)) return false;
  return true;
}
static_assert(agree(), "a dot's products meet");

/* Columns of queries a phase: 4 or 8.  Of the accumulators that a lane holds, those of one key and one query, whatever
 * their phases, are a slot; there are four of them. */
constexpr int columns(int rows) { return rows <= 4 ? 4 : 8; }
constexpr int SLOTS = 4;
constexpr bool used(int e, int cols) { return matrix::acc_col(0, e) < PHASES * cols; }
constexpr int key_of(int lane, int e) { return matrix::acc_row(lane, e) / PHASES; }
constexpr int query_of(int lane, int e, int cols) { return matrix::acc_col(lane, e) % cols; }
constexpr bool same_slot(int e, int f, int cols) {
  return key_of(0, e) == key_of(0, f) && query_of(0, e, cols) == query_of(0, f, cols);
}
constexpr int next_of(int e, int cols, bool same) { /* the next element of the same slot, or of another */
  for (int f = e + 1; f < matrix::ACC; f++)
    if (used(f, cols) && same_slot(e, f, cols) == same) return f;
  return e + 1;
}
constexpr int twins(int cols) {
  int n = 0;
  for (int e = 0; e < matrix::ACC; e++) n += used(e, cols) && same_slot(0, e, cols);
  return n;
}
template <int Cols> struct slots {
  static constexpr int TWINS = twins(Cols), STEP = next_of(0, Cols, false), TWIN_STEP = next_of(0, Cols, true);
  static constexpr int element(int slot, int twin) { return slot * STEP + twin * TWIN_STEP; }
};
template <int Cols> constexpr bool slots_hold() {
  int n = 0;
  for (int e = 0; e < matrix::ACC; e++) n += used(e, Cols);
  bool hold = n == SLOTS * slots<Cols>::TWINS;
  for (int s = 0; s < SLOTS; s++)
    for (int t = 0; t < SLOTS * slots<Cols>::TWINS; t++) {
      const int e = slots<Cols>::element(s, 0), f = slots<Cols>::element(t % SLOTS, t / SLOTS);
      hold = hold && used(f, Cols) && same_slot(e, f, Cols) == (s == t % SLOTS);
    }
  return hold;
}
/* Whether a lane's element is of one phase, and which bits of the lane move the phase of rows or columns. */
constexpr bool in_phase(int lane, int e, int cols) {
  return matrix::acc_row(lane, e) % PHASES == matrix::acc_col(lane, e) / cols;
}
constexpr int phase_bits(int cols) {
  int bits = 0;
  for (int b = 1; b < WAVE; b *= 2) {
    const int col = matrix::acc_col(b, 0) / cols;
    if (matrix::acc_row(b, 0) % PHASES != 0 || (col != 0 && col < PHASES)) bits |= b;
  }
  return bits;
}
static_assert(PHASES * columns(8) <= matrix::N && KEYS == 8, "a tile is eight keys of eight rows");
static_assert(slots_hold<4>() && slots_hold<8>(), "a lane has four slots");

} // namespace share

/* Sum x over the lanes that differ in the bits of Bits up to Bit, as fold_lanes() does: a lane ends with the first
 * values, those of slots from folded_slot() on. */
template <int Bits, int Count, int Bit = WAVE / 2> HIPK_DEVICE void fold_phases(float (&x)[share::SLOTS]) {
  if constexpr (Bit > 0) {
    if constexpr ((Bits & Bit) == 0) {
      fold_phases<Bits, Count, Bit / 2>(x);
    } else if constexpr (Count > 1) {
      const bool upper = (lane_index() & Bit) != 0;
      HIPK_UNROLL
      for (int i = 0; i < Count / 2; i++) {
        const float keep = upper ? x[i + Count / 2] : x[i], give = upper ? x[i] : x[i + Count / 2];
        x[i] = keep + shuffle_xor<Bit>(give);
      }
      fold_phases<Bits, Count / 2, Bit / 2>(x);
    } else {
      x[0] += shuffle_xor<Bit>(x[0]);
      fold_phases<Bits, 1, Bit / 2>(x);
    }
  }
}
template <int Bits> HIPK_DEVICE int folded_slot(int lane) {
  int slot = 0, count = share::SLOTS;
  HIPK_UNROLL
  for (int bit = WAVE / 2; bit > 0; bit /= 2)
    if ((Bits & bit) && count > 1) {
      count /= 2;
      slot += lane & bit ? count : 0;
    }
  return slot;
}

HIPK_DEVICE uint32_t word_of(const u32x4 &unit, int w) {
  return w == 0 ? unit.x : w == 1 ? unit.y : w == 2 ? unit.z : unit.w;
}

struct matrix_filter {
  static constexpr int TEAM_ELEMS = 8;
  static constexpr int GROUPS = 4; /* of a multiprocessor, if the target asks */
  using query_store = u32x4;       /* units of codes, row r's at matrix_place(r, unit) */
  static constexpr int QUERY_STORES = MATRIX_UNITS;

  static HIPK_DEVICE void stage(const score_view &v, int32_t request, int32_t first, int rows, lds<u32x4> q) {
    const gptr<const unsigned char> from = global(static_cast<const unsigned char *>(v.q));
    HIPK_ROLLED
    for (int i = thread_index(); i < rows * MATRIX_UNITS; i += SCORE_THREADS) {
      const int row = i / MATRIX_UNITS, unit = i % MATRIX_UNITS;
      const int64_t at = query_at(v, request, first + row) + unit * 8 * v.q_stride_dim;
      uint32_t codes[8];
      HIPK_UNROLL
      for (int e = 0; e < 8; e++) codes[e] = load<uint16_t>(from, (at + e * v.q_stride_dim) * 2);
      q[matrix_place(row, unit)] = u32x4{codes[0] | codes[1] << 16, codes[2] | codes[3] << 16,
                                         codes[4] | codes[5] << 16, codes[6] | codes[7] << 16};
    }
  }

  /* E of hip_bound.h for a sum of up to four partial dots.  A partial dot is one of all 128 elements of which the
   * others are zero, so it has that bound with its own sum of |q|; the sums of |q| add up to A.  Two roundings more, u
   * each, of sums that are below (1 + growth) A P.  Where that is 2^126 or more f may be anything. */
  static HIPK_DEVICE double error(const score_view &v, float size, float peak) {
    const double a = size, p = peak;
    if (a * p >= 0x1p126) return bits_float(BITS_INF);
    return (v.bound.growth + 3 * 0x1p-24) * a * p + 4 * v.bound.mixed * (a + MATRIX_DIM * p) + 4 * v.bound.offset;
  }

  /* The keys of one turn of the loop in dots(), on their way. */
  static constexpr int TILES = 2, TURN = TILES * share::KEYS;
  using part_of_tile = u32x4[share::ROWS][share::UNITS];
  template <int> struct turn { part_of_tile tile[TILES]; };
  template <class Turn>
  static HIPK_DEVICE void fetch(const score_view &v, Turn &keys, gptr<const unsigned char> page, int base, int end) {
    const int lane = lane_index();
    const int64_t token_bytes = v.k_stride_token * 2;
    HIPK_UNROLL
    for (int t = 0; t < TILES; t++) {
      HIPK_UNROLL
      for (int r = 0; r < share::ROWS; r++) {
        const int at = matrix::a_row(lane, share::a_first(r)), token = base + t * share::KEYS + at / share::PHASES;
        const int64_t byte = token * token_bytes + share::unit(lane, at % share::PHASES, 0) * 16;
        HIPK_UNROLL
        for (int c = 0; c < share::UNITS; c++) {
          keys.tile[t][r][c] = u32x4{};
          if (token < end) keys.tile[t][r][c] = load<u32x4>(page, byte + c * (share::LINE_UNITS * 16));
        }
      }
    }
  }

  /* Dots of rows row..row+Rows-1 of q, of which the last may be past `rows`, with the tokens of a span, by one wave,
   * into out[r * DOT_PITCH + token]; `keys` was fetched where the span begins, and is fetched at the next one's.
   * Returns P, infinite or NaN where a key holds such a number.  Entries up to the next multiple of TURN past the
   * span's first may be written too. */
  template <int Rows>
  static HIPK_DEVICE float dots(const score_view &v, lds<u32x4> q, int row, int rows, lds<float> out, turn<Rows> &keys,
                                const key_span &span, const key_span &next) {
    constexpr int COLS = share::columns(Rows), BITS = share::phase_bits(COLS);
    using slots = share::slots<COLS>;
    constexpr int LEFT = share::SLOTS >> ((BITS & (BITS - 1)) != 0 ? 2 : 1); /* slots that a lane ends with */
    const int lane = lane_index();
    u32x4 query[share::ROWS][share::UNITS];
    HIPK_UNROLL
    for (int r = 0; r < share::ROWS; r++) {
      const int col = matrix::b_col(lane, share::b_first(r)), of = col % COLS, phase = col / COLS;
      const bool wanted = phase < share::PHASES && of < Rows && row + of < rows;
      HIPK_UNROLL
      for (int c = 0; c < share::UNITS; c++) {
        query[r][c] = u32x4{};
        if (matrix::b_col(0, share::b_first(r)) < share::PHASES * COLS && wanted)
          query[r][c] = q[matrix_place(row + of, share::unit(lane, phase, c))];
      }
    }
    /* Where this lane's sums go. */
    const int slot = folded_slot<BITS>(lane);
    int to[LEFT] = {};
    bool mine[LEFT] = {};
    HIPK_UNROLL
    for (int i = 0; i < LEFT; i++) {
      HIPK_UNROLL
      for (int s = 0; s < share::SLOTS; s++) {
        const int e = slots::element(s, 0), of = share::query_of(lane, e, COLS);
        if (s != slot + i) continue;
        to[i] = of * DOT_PITCH + share::key_of(lane, e);
        mine[i] = of < Rows && matrix::acc_col(lane, e) < share::PHASES * COLS;
      }
    }

    uint32_t peaks = 0;
    int base = span.from;
    bool more;
    HIPK_ROLLED
    do {
      HIPK_UNROLL
      for (int t = 0; t < TILES; t++) {
        const matrix_acc acc = sum_of(keys.tile[t], query);
        float sum[share::SLOTS] = {};
        HIPK_UNROLL
        for (int s = 0; s < share::SLOTS; s++) {
          HIPK_UNROLL
          for (int twin = 0; twin < slots::TWINS; twin++) {
            const int e = slots::element(s, twin);
            sum[s] = share::in_phase(lane, e, COLS) ? acc.v[e] : sum[s];
          }
        }
        fold_phases<BITS, share::SLOTS>(sum);
        HIPK_UNROLL
        for (int i = 0; i < LEFT; i++)
          if (mine[i]) out[to[i] + base + t * share::KEYS] = sum[i];
        peaks = larger_halves(peaks, peaks_of(keys.tile[t]));
      }
      base += TURN;
      more = base < span.end;
      fetch(v, keys, more ? span.page : next.page, more ? base : next.from, more ? span.end : next.end);
    } while (more);
    return wave_peak(peaks);
  }

  /* This lane's share of a key, or of a query, as its team of 16 evaluates it. */
  static HIPK_DEVICE void fetch_team(const score_view &v, gptr<const unsigned char> page, int token, int lane,
                                     float (&key)[TEAM_ELEMS]) {
    decode_chunk<M3IDX_BF16>(load<u32x4>(page, (token * v.k_stride_token + lane * 8) * 2), key);
  }
  static HIPK_DEVICE void query_team(lds<u32x4> q, int row, int lane, const score_view &, float (&query)[TEAM_ELEMS]) {
    const u32x4 unit = q[matrix_place(row, lane)];
    decode_chunk<M3IDX_BF16>(unit, query);
  }

private:
  static HIPK_DEVICE uint32_t step_word(const part_of_tile &rows, int row, int step, int word) {
    const int at = step * share::STEP_WORDS + word;
    return word_of(rows[row][at / 4], at % 4);
  }
  static HIPK_DEVICE matrix_acc sum_of(const part_of_tile &key, const part_of_tile &query) {
    matrix_acc acc = {};
    HIPK_UNROLL
    for (int s = 0; s < share::STEPS; s++) {
      uint32_t a[4], b[4];
      HIPK_UNROLL
      for (int w = 0; w < 4; w++) {
        a[w] = step_word(key, share::a_row(w), s, share::a_word(w));
        b[w] = step_word(query, share::b_row(w), s, share::b_word(w));
      }
      matrix_step(a_of(a[0], a[1], a[2], a[3]), b_of(b[0], b[1], b[2], b[3]), acc);
    }
    return acc;
  }
  /* The order of magnitudes is that of their patterns. */
  static HIPK_DEVICE uint32_t peaks_of(const part_of_tile &key) {
    uint32_t peaks = 0;
    HIPK_UNROLL
    for (int r = 0; r < share::ROWS; r++) {
      HIPK_UNROLL
      for (int i = 0; i < 4 * share::UNITS; i++)
        peaks = larger_halves(peaks, word_of(key[r][i / 4], i % 4) & 0x7fff7fffu);
    }
    return peaks;
  }
  static HIPK_DEVICE float wave_peak(uint32_t peaks) {
    peaks = peaks >> 16 > (peaks & 0xffff) ? peaks >> 16 : peaks & 0xffff;
    if constexpr (WAVE == 64) peaks = larger_halves(peaks, shuffle_xor<WAVE / 2>(peaks));
    peaks = larger_halves(peaks, shuffle_xor<16>(peaks));
    peaks = larger_halves(peaks, shuffle_xor<8>(peaks));
    peaks = larger_halves(peaks, shuffle_xor<4>(peaks));
    peaks = larger_halves(peaks, shuffle_xor<2>(peaks));
    return bits_float(larger_halves(peaks, shuffle_xor<1>(peaks)) << 16);
  }
};

} // namespace hipk

#endif
