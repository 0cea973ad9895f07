/* SPDX-License-Identifier: Apache-2.0
 *
 * The seven formats (S2.2) through the calls that read and write them, against the oracle's own codec: every code as a
 * key and as a query beside a one, whose score is the number itself (S3.3, S3.4), and cache insertion, copied bits
 * (S6.1) and conversions to fp8 (S6.2).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_kit.h"
#include "oracle.h"

enum { DIM = 16, BLOCK = 16, MAX_CODES = 64 };

static void put(void *to, m3idx_dtype dtype, size_t at, uint32_t code) {
  const uint8_t byte = (uint8_t)code;
  const uint16_t half = (uint16_t)code;
  switch (m3idx_dtype_bytes(dtype)) {
  case 1: memcpy((uint8_t *)to + at, &byte, sizeof byte); break;
  case 2: memcpy((uint8_t *)to + 2 * at, &half, sizeof half); break;
  default: memcpy((uint8_t *)to + 4 * at, &code, sizeof code); break;
  }
}

static uint32_t get(const void *from, m3idx_dtype dtype, size_t at) {
  uint16_t half;
  uint32_t word;
  switch (m3idx_dtype_bytes(dtype)) {
  case 1: return ((const uint8_t *)from)[at];
  case 2: memcpy(&half, (const uint8_t *)from + 2 * at, sizeof half); return half;
  default: memcpy(&word, (const uint8_t *)from + 4 * at, sizeof word); return word;
  }
}

/* Patterns of 1.0, from the formats' definitions: exponent field = bias. */
static uint32_t one_in(m3idx_dtype dtype) {
  switch (dtype) {
  case M3IDX_F32: return 0x3f800000;
  case M3IDX_F16: return 0x3c00;
  case M3IDX_BF16: return 0x3f80;
  case M3IDX_E4M3FN: return 0x38;
  case M3IDX_E4M3FNUZ: return 0x40;
  case M3IDX_E5M2: return 0x3c;
  default: return 0x40; /* e5m2fnuz */
  }
}

/* The pattern of a score that is this number alone. */
static uint32_t as_score(m3idx_dtype dtype, uint32_t code) {
  long mantissa = 0, exponent = 0;
  uint32_t bits;
  switch (oracle_decode((oracle_format)dtype, code, &mantissa, &exponent)) {
  case ORACLE_NAN: return 0x7fc00000;
  case ORACLE_PLUS_INF: return 0x7f800000;
  case ORACLE_MINUS_INF: return 0xff800000;
  case ORACLE_FINITE: break;
  }
  const float value = (float)ldexp((double)mantissa, (int)exponent) + 0.0f;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* codes[count] as keys (or as queries, each a request of its own) beside the other side's one. */
static void judge_decode(m3idx_context *ctx, m3idx_dtype q, m3idx_dtype k, bool of_key, const uint32_t *codes,
                         const uint32_t *wanted, int64_t count, int64_t place) {
  const int64_t rows = of_key ? 1 : count, pages = of_key ? count : 1;
  void *queries = fuzz_buffer((size_t)(rows * DIM) * m3idx_dtype_bytes(q));
  void *keys = fuzz_buffer((size_t)(pages * DIM) * m3idx_dtype_bytes(k));
  float *score = fuzz_buffer((size_t)(rows * pages) * sizeof *score);
  int32_t lens[MAX_CODES], table[MAX_CODES];
  for (int64_t i = 0; i < rows * DIM; i++)
    put(queries, q, (size_t)i, i % DIM != place ? 0 : of_key ? one_in(q) : codes[i / DIM]);
  for (int64_t i = 0; i < pages * DIM; i++)
    put(keys, k, (size_t)i, i % DIM != place ? 0 : of_key ? codes[i / DIM] : one_in(k));
  for (int64_t r = 0; r < rows; r++) lens[r] = (int32_t)(pages * BLOCK);
  for (int64_t i = 0; i < MAX_CODES; i++) table[i] = of_key ? (int32_t)i : 0;
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = rows,
                             .num_rows = rows,
                             .max_block = pages,
                             .block_size = BLOCK,
                             .decode_query_len = 1,
                             .seq_lens = lens};
  /* All tokens of a page are one key: a stride of 0 repeats it. */
  const m3idx_score_args args = {.batch = &batch,
                                 .q = {queries, q, {rows, 1, DIM}, {DIM, DIM, 1}},
                                 .index_k = {keys, k, {pages, BLOCK, DIM}, {DIM, 0, 1}},
                                 .block_table = table,
                                 .score = score};
  FUZZ_REQUIRE(m3idx_score(ctx, &args) == M3IDX_OK, "%s", m3idx_message(ctx));
  for (int64_t i = 0; i < count; i++) {
    const uint32_t got = get(score, M3IDX_F32, (size_t)i);
    FUZZ_REQUIRE(wanted[i] == got, "%s: %s 0x%x as a %s beside a one of %s is 0x%08x, want 0x%08x",
                 m3idx_backend_details(ctx), m3idx_dtype_name(of_key ? k : q), codes[i], of_key ? "key" : "query",
                 m3idx_dtype_name(of_key ? q : k), got, wanted[i]);
  }
  free(queries);
  free(keys);
  free(score);
}

/* S6.2 */
static bool converts(m3idx_dtype from, m3idx_dtype to) {
  return (from == M3IDX_F32 || from == M3IDX_F16 || from == M3IDX_BF16) && m3idx_dtype_bytes(to) == 1;
}

static void judge_insert(m3idx_context *ctx, m3idx_dtype from, m3idx_dtype to, const uint32_t *codes,
                         const uint32_t *wanted, int64_t count) {
  const int64_t rows = count / DIM, pages = (rows + BLOCK - 1) / BLOCK;
  const size_t bytes = (size_t)(pages * BLOCK * DIM) * m3idx_dtype_bytes(to);
  void *key = fuzz_buffer((size_t)(rows * DIM) * m3idx_dtype_bytes(from));
  uint8_t *cache = fuzz_buffer(bytes), *before = fuzz_buffer(bytes);
  int64_t slots[MAX_CODES];
  for (int64_t i = 0; i < rows * DIM; i++) put(key, from, (size_t)i, codes[i]);
  for (int64_t i = 0; i < rows; i++) slots[i] = i % 3 == 2 ? -i : rows - 1 - i; /* backwards; a third writes nothing */
  const m3idx_cache_insert_args args = {
      .key = {key, from, {1, rows, DIM}, {0}}, .slot_mapping = slots, .cache = {cache, to, {pages, BLOCK, DIM}, {0}}};
  const m3idx_status status = m3idx_cache_insert(ctx, &args);
  if (rows && from != to && !converts(from, to)) {
    FUZZ_REQUIRE(status == M3IDX_UNSUPPORTED, "%s into %s: status %d", m3idx_dtype_name(from), m3idx_dtype_name(to),
                 (int)status);
    fuzz_same("cache after a refusal", before, cache, bytes, 1);
  } else {
    FUZZ_REQUIRE(status == M3IDX_OK, "%s", m3idx_message(ctx));
    for (int64_t i = 0; i < rows; i++)
      for (int64_t d = 0; slots[i] >= 0 && d < DIM; d++)
        put(before, to, (size_t)(slots[i] * DIM + d), wanted[i * DIM + d]);
    fuzz_same("cache", before, cache, (size_t)(pages * BLOCK * DIM), m3idx_dtype_bytes(to));
  }
  free(key);
  free(cache);
  free(before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes in = {data, size};
  uint32_t codes[MAX_CODES], words[MAX_CODES], wanted[MAX_CODES];
  const m3idx_dtype q = (m3idx_dtype)fuzz_between(&in, 0, M3IDX_DTYPE_COUNT - 1);
  const m3idx_dtype k = (m3idx_dtype)fuzz_between(&in, 0, M3IDX_DTYPE_COUNT - 1);
  const bool of_key = fuzz_between(&in, 0, 1), vary = fuzz_between(&in, 0, 1);
  const int64_t count = fuzz_between(&in, 1, MAX_CODES), place = fuzz_between(&in, 0, DIM - 1);
  m3idx_context *both[] = {fuzz_context(0), fuzz_one_cpu(&in)};
  fuzz_fill(&in, vary, words, sizeof words);
  const m3idx_dtype side = of_key ? k : q;
  for (int64_t c = 0; c < count; c++) wanted[c] = as_score(side, codes[c] = get(words, side, (size_t)c));
  for (int i = 0; i < 2; i++) judge_decode(both[i], q, k, of_key, codes, wanted, count, place);
  for (int64_t c = 0; c < count; c++) {
    wanted[c] = codes[c] = get(words, q, (size_t)c);
    if (q != k && converts(q, k)) wanted[c] = oracle_convert((oracle_format)q, codes[c], (oracle_format)k);
  }
  for (int i = 0; i < 2; i++) judge_insert(both[i], q, k, codes, wanted, count);
  return 0;
}
