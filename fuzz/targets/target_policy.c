/* SPDX-License-Identifier: Apache-2.0
 *
 * Launch policies and ownership (S8.1 to S8.5) against a second reading: the policies' tables walked as rules, powers
 * of two found by trying them, and every partition counted block by block.
 */
#include <string.h>

#include "fuzz_kit.h"
#include "geometry.h"

/* ---- policies ---- */

/* The largest power of two that is at most `cap` and for which a * p <= b, from 1 up; a >= 0. */
static int64_t largest_power(int64_t cap, long double a, long double b) {
  int64_t p = 1;
  while (p * 2 <= cap && a * (long double)(p * 2) <= b) p *= 2;
  return p;
}

static const int64_t edges[] = {0,    1,    7,    8,    9,     11,    12,    15,     16,     17,          19,
                                20,   64,   65,   127,  128,   129,   256,   512,    513,    4 * 8 * 128, 8191,
                                8192, 8193, 8320, 9216, 16384, 65534, 98304, 131072, 262144, INT32_MAX};

static int64_t count(fuzz_bytes *in) {
  switch (fuzz_between(in, 0, 7)) {
  case 7: return (int64_t)fuzz_word(in, 8);
  case 6: return (int64_t)fuzz_word(in, 4);
  case 5: return fuzz_between(in, 0, 70000);
  case 4: return fuzz_between(in, 0, 80);
  default: return FUZZ_PICK(in, edges);
  }
}

static bool is_count(int64_t x) { return x >= 0 && x <= INT32_MAX; }

static void judge_topk(fuzz_bytes *in, m3idx_arch arch) {
  const int64_t m = count(in), rows = count(in), heads = count(in), k = fuzz_between(in, 0, 3) ? 16 : count(in);
  m3idx_decode_topk_geometry g = {-7, -7, -7, -7, -7, -7};
  const bool good = is_count(m) && is_count(rows) && is_count(heads) && is_count(k);
  FUZZ_REQUIRE((m3idx_decode_topk_policy(m, rows, heads, k, arch, &g) == M3IDX_OK) == good, "decode_topk_policy");
  if (!good) {
    FUZZ_REQUIRE(g.chunks == -7 && g.block == -7, "written after a refusal");
    return;
  }
  const bool tuned = arch == M3IDX_GFX950 && k == 16;
  m3idx_decode_topk_geometry want = {1, 512, 8, 2, 0, 0};
  if (tuned && m >= 1 && m <= 128)
    want = (m3idx_decode_topk_geometry){1, 128, 2, 1, 1, 1};
  else if (tuned && m > 128 && m <= 8192)
    want = (m3idx_decode_topk_geometry){16, 512, 4, 2, 1, 1};
  else /* 64 / lanes >= p, in integers, iff p * lanes <= 64 */
    want.chunks = largest_power(16, (long double)rows * (long double)heads, 64);
  FUZZ_REQUIRE(g.chunks == want.chunks && g.block == want.block && g.warps == want.warps && g.stages == want.stages &&
                   !g.single_tile == !want.single_tile && !g.adaptive_merge == !want.adaptive_merge,
               "M %lld, rows %lld, heads %lld, K %lld, arch %d: %lld chunks of %lld", (long long)m, (long long)rows,
               (long long)heads, (long long)k, (int)arch, (long long)g.chunks, (long long)g.block);
}

static void judge_score(fuzz_bytes *in, m3idx_arch arch) {
  const int64_t reqs = count(in), dim = fuzz_between(in, 0, 3) ? 128 : count(in);
  const m3idx_dtype q = fuzz_between(in, 0, 3) ? M3IDX_BF16 : (m3idx_dtype)fuzz_between(in, 0, M3IDX_DTYPE_COUNT);
  const m3idx_dtype k = fuzz_between(in, 0, 3) ? M3IDX_BF16 : (m3idx_dtype)fuzz_between(in, 0, M3IDX_DTYPE_COUNT);
  const bool good = is_count(reqs) && is_count(dim) && q != M3IDX_DTYPE_COUNT && k != M3IDX_DTYPE_COUNT;
  const bool tuned = arch == M3IDX_GFX950 && dim == 128 && q == M3IDX_BF16 && k == M3IDX_BF16;
  m3idx_decode_score_geometry g = {-7, -7};
  int64_t budget = -7;
  FUZZ_REQUIRE((m3idx_decode_score_budget(reqs, dim, q, k, arch, &budget) == M3IDX_OK) == good, "decode_score_budget");
  FUZZ_REQUIRE((m3idx_decode_score_split(reqs, dim, q, k, arch, &g) == M3IDX_OK) == good, "decode_score_split");
  if (!good) {
    FUZZ_REQUIRE(budget == -7 && g.chunks == -7, "written after a refusal");
    return;
  }
  const int64_t want = !tuned || reqs < 1 || reqs > 11 ? 0 : reqs < 9 ? 1024 : 768;
  FUZZ_REQUIRE(budget == want, "budget of %lld requests is %lld, want %lld", (long long)reqs, (long long)budget,
               (long long)want);
  const bool high = tuned && reqs > 19 && reqs < 65;
  const int64_t chunks = largest_power(256, (long double)reqs, high ? 1024 : 512);
  FUZZ_REQUIRE(g.chunks == chunks && !g.high_batch == !high, "%lld requests: %lld chunks, want %lld", (long long)reqs,
               (long long)g.chunks, (long long)chunks);
}

static void judge_prefill(fuzz_bytes *in, m3idx_arch arch) {
  const int64_t query = count(in), seq = count(in), reqs = count(in), heads = count(in);
  const int64_t units = fuzz_between(in, 0, 1) ? 304 : count(in);
  const bool good = is_count(query) && is_count(seq) && is_count(reqs) && is_count(heads) && is_count(units) && units;
  m3idx_prefill_score_geometry g = {-7, -7};
  FUZZ_REQUIRE((m3idx_prefill_score_policy(query, seq, reqs, heads, units, arch, &g) == M3IDX_OK) == good,
               "prefill_score_policy");
  if (!good) {
    FUZZ_REQUIRE(g.block_q == -7, "written after a refusal");
    return;
  }
  int64_t splits = 1;
  const bool split = arch == M3IDX_GFX942 && query >= 128 && seq >= 8192;
  if (split) {
    const long double tiles = (long double)((query + 127) / 128) * (long double)reqs * (long double)heads;
    const int64_t blocks = (seq + 127) / 128;
    /* p splits: 8 p <= blocks, and tiles * (p - 1) < 4 * units, which is p <= ceil(4 units / tiles). */
    while (splits < 16 && 16 * splits <= blocks &&
           (tiles < 1 ? 1 : tiles) * (long double)(2 * splits - 1) < (long double)(4 * units))
      splits *= 2;
  }
  FUZZ_REQUIRE(g.block_q == (split ? 128 : 64) && g.splits == splits,
               "%lld queries, %lld keys, %lld requests, %lld heads, %lld units: %lld, %lld; want %lld splits",
               (long long)query, (long long)seq, (long long)reqs, (long long)heads, (long long)units,
               (long long)g.block_q, (long long)g.splits, (long long)splits);
}

/* ---- ownership ---- */

enum { MAX_BLOCKS = 4096, MAX_PARTS = 300 };
static uint8_t owned[MAX_BLOCKS];

static void own(m3idx_range r, int32_t n, const char *what) {
  FUZZ_REQUIRE(0 <= r.begin && r.begin <= r.end && r.end <= n, "%s: [%d, %d) of %d", what, (int)r.begin, (int)r.end,
               (int)n);
  for (int32_t b = r.begin; b < r.end; b++) owned[b]++;
}

static void judge_owned(int32_t n, const char *what) {
  for (int32_t b = 0; b < n; b++)
    FUZZ_REQUIRE(owned[b] == 1, "%s: block %d of %d has %d owners", what, (int)b, (int)n, owned[b]);
  memset(owned, 0, (size_t)n);
}

static void judge_parts(fuzz_bytes *in) {
  static const int32_t tiles[] = {128, 512, 16};
  const int32_t n = (int32_t)fuzz_between(in, 0, MAX_BLOCKS), parts = (int32_t)fuzz_between(in, 1, MAX_PARTS);
  const int32_t chunks = 1 << fuzz_between(in, 0, 4), tile = FUZZ_PICK(in, tiles);
  const int32_t active = m3idx_topk_active(n, chunks, tile);
  /* S8.2: active = max(1, min(chunks, ceil(N / block))) */
  int32_t want = 1;
  while (want < chunks && want * tile < n) want++;
  FUZZ_REQUIRE(active == want, "%d blocks, %d chunks of %d: %d active, want %d", (int)n, (int)chunks, (int)tile,
               (int)active, (int)want);
  for (int32_t c = 0; c < chunks; c++) {
    const m3idx_range r = m3idx_topk_chunk(n, active, c);
    own(r, n, "chunk");
    FUZZ_REQUIRE(c >= active || r.end - r.begin == n / active + (c < n % active), "chunk %d of %d", (int)c,
                 (int)active);
  }
  judge_owned(n, "chunks");
  for (int32_t c = 0; c < parts; c++) {
    const m3idx_range r = m3idx_score_part(n, parts, c);
    own(r, n, "part");
    const int32_t s = (n + parts - 1) / parts;
    FUZZ_REQUIRE(r.begin == r.end || r.begin == c * s, "part %d of %d begins at %d", (int)c, (int)parts, (int)r.begin);
  }
  judge_owned(n, "parts");
  const int32_t block_q = 1 << fuzz_between(in, 0, 7);
  for (int32_t t = 0; t <= n / block_q; t++) own(m3idx_tile_rows(n, block_q, t), n, "tile");
  judge_owned(n, "tiles");
}

static void judge_map(fuzz_bytes *in) {
  enum { MAX_REQUESTS = 12 };
  int32_t seq[MAX_REQUESTS], at[MAX_REQUESTS + 1] = {0};
  const int32_t reqs = (int32_t)fuzz_between(in, 1, MAX_REQUESTS), size = 1 << fuzz_between(in, 4, 7);
  const int32_t budget = (int32_t)fuzz_between(in, 1, 1024);
  for (int32_t r = 0; r < reqs; r++) {
    seq[r] = (int32_t)fuzz_between(in, 0, 300 * size) - size;
    at[r + 1] = at[r] + (seq[r] > 0 ? (seq[r] + size - 1) / size : 0);
    FUZZ_REQUIRE(m3idx_request_blocks(seq[r], size) == at[r + 1] - at[r], "%d keys", (int)seq[r]);
  }
  const int32_t all = at[reqs], per = m3idx_blocks_per_program(seq, reqs, size, budget);
  FUZZ_REQUIRE(per >= 1 && (int64_t)per * budget >= all && (per == 1 || (int64_t)(per - 1) * budget < all),
               "%d blocks, budget %d: %d a program", (int)all, (int)budget, (int)per);
  bool done = false;
  for (int32_t p = 0; p < m3idx_balanced_grid(reqs, budget); p++) {
    const m3idx_work w = m3idx_balanced_work(seq, reqs, size, per, p);
    FUZZ_REQUIRE(!done || w.request < 0, "program %d works after the work ended", (int)p);
    done = w.request < 0;
    if (done) continue;
    FUZZ_REQUIRE(w.request < reqs && w.blocks.begin % per == 0, "program %d", (int)p);
    own((m3idx_range){at[w.request] + w.blocks.begin, at[w.request] + w.blocks.end}, at[w.request + 1], "program");
  }
  judge_owned(all, "programs");
}

static void judge_tile(fuzz_bytes *in) {
  const int32_t size = 1 << fuzz_between(in, 4, 7), prefix = (int32_t)fuzz_between(in, 0, 1000);
  const int32_t rows = (int32_t)fuzz_between(in, 0, 500), seq = prefix + rows + (int32_t)fuzz_between(in, 0, 3);
  for (int32_t t = 0; t * 64 <= rows; t++) {
    const m3idx_range tile = m3idx_tile_rows(rows, 64, t);
    int32_t want = 0; /* S2.3 for each of the tile's rows */
    for (int32_t i = tile.begin; i < tile.end; i++) {
      const int32_t n = prefix + i + 1 < seq ? prefix + i + 1 : seq;
      if ((n + size - 1) / size > want) want = (n + size - 1) / size;
    }
    FUZZ_REQUIRE(m3idx_tile_blocks(prefix, seq, tile, size) == want, "tile %d", (int)t);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes in = {data, size};
  const m3idx_arch arch = (m3idx_arch)fuzz_between(&in, 0, 2);
  switch (fuzz_between(&in, 0, 5)) {
  case 0: judge_topk(&in, arch); break;
  case 1: judge_score(&in, arch); break;
  case 2: judge_prefill(&in, arch); break;
  case 3: judge_parts(&in); break;
  case 4: judge_map(&in); break;
  default: judge_tile(&in); break;
  }
  return 0;
}
