/* SPDX-License-Identifier: Apache-2.0
 *
 * Geometry (S8.2 to S8.5): for every geometry a policy can return, each block is owned exactly once.  A
 * partition is shown by walking the programs in order: each range begins where the last one ended, the first
 * at 0 and the last at N, so no block is missed and none is taken twice.
 */
#include <stdio.h>
#include <string.h>

#include "geometry.h"
#include "m3idx.h"
#include "unit.h"

#define LENGTH(a) (int)(sizeof(a) / sizeof *(a))
enum { MAX_PARTS = 256 };

/* A 64-bit linear congruential generator; the high bits are the good ones. */
static uint32_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

/* ---- what the policies can return, asked of the policies themselves ---- */

typedef struct found {
  int count;
  struct {
    int64_t chunks, block, max_block; /* max_block: the most seen with single_tile, else 0 */
  } at[32];
} found;

static void find_topk_geometries(found *f) {
  static const m3idx_arch arches[] = {M3IDX_ARCH_OTHER, M3IDX_GFX942, M3IDX_GFX950};
  f->count = 0;
  for (int a = 0; a < LENGTH(arches); a++)
    for (int64_t max_block = 0; max_block <= 8200; max_block++)
      for (int64_t rows = 0; rows <= 65; rows += 1 + (max_block > 1) * 12) {
        m3idx_decode_topk_geometry g;
        int i = 0;
        ck_assert_int_eq(m3idx_decode_topk_policy(max_block, rows, 1, 16, arches[a], &g), M3IDX_OK);
        while (i < f->count && (f->at[i].chunks != g.chunks || f->at[i].block != g.block ||
                                (f->at[i].max_block != 0) != (g.single_tile != 0)))
          i++;
        ck_assert_int_lt(i, LENGTH(f->at));
        if (i == f->count) f->count++;
        f->at[i].chunks = g.chunks;
        f->at[i].block = g.block;
        f->at[i].max_block = g.single_tile ? max_block : 0; /* max_block only grows in this loop */
      }
}

/* parts[i] true: some policy cuts a row's blocks into i equal strides. */
static void find_score_parts(int parts[MAX_PARTS + 1]) {
  memset(parts, 0, (MAX_PARTS + 1) * sizeof *parts);
  for (int arch = M3IDX_ARCH_OTHER; arch <= M3IDX_GFX950; arch++)
    for (int64_t reqs = 0; reqs <= 1100; reqs++) {
      m3idx_decode_score_geometry g;
      m3idx_prefill_score_geometry p;
      ck_assert_int_eq(m3idx_decode_score_split(reqs, 128, M3IDX_BF16, M3IDX_BF16, (m3idx_arch)arch, &g), M3IDX_OK);
      ck_assert_int_le(g.chunks, MAX_PARTS);
      parts[g.chunks] = 1;
      for (int64_t seq_len = 4096; seq_len <= 1 << 20; seq_len *= 2) {
        ck_assert_int_eq(m3idx_prefill_score_policy(128 * reqs, seq_len, 1, 1, 304, (m3idx_arch)arch, &p), M3IDX_OK);
        parts[p.splits] = 1;
      }
    }
}

/* ---- partitions of a row ---- */

static void topk_partition(int32_t n, int32_t chunks, int32_t block, int32_t tile_capacity) {
  const int32_t active = m3idx_topk_active(n, chunks, block);
  int32_t at = 0, least = INT32_MAX, most = 0;
  for (int32_t c = 0; c < chunks; c++) {
    const m3idx_range r = m3idx_topk_chunk(n, active, c);
    if (r.begin != at || r.end < r.begin || (c >= active && r.end != r.begin))
      ck_abort_msg("n %d chunks %d block %d: chunk %d owns %d..%d, want a range that begins at %d", n, chunks, block, c,
                   r.begin, r.end, at);
    at = r.end;
    if (c >= active) continue;
    if (r.end - r.begin < least) least = r.end - r.begin;
    if (r.end - r.begin > most) most = r.end - r.begin;
  }
  ck_assert_int_eq(at, n);
  ck_assert_int_le(most - least, 1);
  /* As many chunks as there are tiles, no more; each has work unless the row is empty. */
  ck_assert(active >= 1 && active <= chunks);
  ck_assert(active == chunks || (int64_t)active * block >= n);
  ck_assert(active == 1 || (int64_t)(active - 1) * block < n);
  ck_assert(n == 0 || least >= 1);
  if (n <= tile_capacity) ck_assert_int_le(most, block); /* single_tile */
}

static void score_partition(int32_t n, int32_t parts) {
  int32_t at = 0;
  const int64_t s = ((int64_t)n + parts - 1) / parts;
  for (int32_t c = 0; c < parts; c++) {
    const m3idx_range r = m3idx_score_part(n, parts, c);
    const int64_t want_end = s * (c + 1) < n ? s * (c + 1) : n; /* S8.4, in 64 bits */
    if (r.begin != at || r.end != want_end || r.end < r.begin)
      ck_abort_msg("n %d parts %d: part %d owns %d..%d, want %d..%lld", n, parts, c, r.begin, r.end, at,
                   (long long)want_end);
    at = r.end;
  }
  ck_assert_int_eq(at, n);
}

/* Edges of every tile width and of what int32 holds. */
static const int32_t edges[] = {8191,  8192,    8193,    65535,           65536,         65537,
                                99999, 1 << 24, 1 << 30, INT32_MAX - 256, INT32_MAX - 1, INT32_MAX};

START_TEST(topk_chunks) {
  found f;
  find_topk_geometries(&f);
  /* 16 x 512 comes with and without single_tile. */
  ck_assert_int_eq(f.count, 7);
  for (int i = 0; i < f.count; i++) {
    const int32_t chunks = (int32_t)f.at[i].chunks, block = (int32_t)f.at[i].block, tile = (int32_t)f.at[i].max_block;
    uint64_t seed = 1;
    for (int32_t n = 0; n <= 2000; n++) topk_partition(n, chunks, block, tile);
    for (int32_t c = 1; c <= chunks + 1; c++) /* where one more chunk wakes, and where the extra moves on */
      for (int32_t d = -1; d <= 1; d++) {
        topk_partition(c * block + d, chunks, block, tile);
        topk_partition(chunks * 1000 + c + d, chunks, block, tile);
      }
    for (int e = 0; e < LENGTH(edges); e++) topk_partition(edges[e], chunks, block, tile);
    for (int k = 0; k < 2000; k++) topk_partition((int32_t)(next_random(&seed) % 65537), chunks, block, tile);
  }
}
END_TEST

START_TEST(score_parts) {
  int parts[MAX_PARTS + 1], seen = 0;
  find_score_parts(parts);
  for (int32_t p = 1; p <= MAX_PARTS; p++) {
    uint64_t seed = 2;
    if (!parts[p]) continue;
    seen++;
    for (int32_t n = 0; n <= 2000; n++) score_partition(n, p);
    for (int32_t s = 1; s * p <= 65536; s += 1 + s / 8)
      for (int32_t d = -1; d <= 1; d++) score_partition(s * p + d, p);
    for (int e = 0; e < LENGTH(edges); e++) score_partition(edges[e], p);
    for (int k = 0; k < 500; k++) score_partition((int32_t)(next_random(&seed) % 65537), p);
  }
  ck_assert_int_eq(seen, 9); /* 1, 2, 4 .. 256 */
}
END_TEST

/* ---- prefill: (query tile, split) owns rows x columns ---- */

/* Each row in one tile, each block some row of the tile sees in one split of it. */
static void prefill_request(int32_t prefix, int32_t q_len, int32_t seq_len, int32_t block_q, int32_t splits) {
  int32_t row = 0;
  const int32_t tiles = (q_len + block_q - 1) / block_q;
  for (int32_t t = 0; t < tiles; t++) {
    const m3idx_range rows = m3idx_tile_rows(q_len, block_q, t);
    const int32_t n = m3idx_tile_blocks(prefix, seq_len, rows, 128);
    int32_t widest = 0, at = 0;
    ck_assert_int_eq(rows.begin, row);
    ck_assert(rows.end > rows.begin && rows.end - rows.begin <= block_q);
    for (; row < rows.end; row++) { /* S2.3: n = clamp(p + 1, 0, seq_len), N = ceil(n / B) */
      const int64_t p = (int64_t)prefix + row, keys = p + 1 < seq_len ? p + 1 : seq_len;
      if ((keys + 127) / 128 > widest) widest = (int32_t)((keys + 127) / 128);
    }
    ck_assert_int_eq(n, widest);
    for (int32_t c = 0; c < splits; c++) {
      const m3idx_range r = m3idx_score_part(n, splits, c);
      ck_assert_int_eq(r.begin, at);
      at = r.end;
    }
    ck_assert_int_eq(at, n);
  }
  ck_assert_int_eq(row, q_len);
  const m3idx_range past = m3idx_tile_rows(q_len, block_q, tiles);
  ck_assert_int_eq(past.begin, past.end);
  ck_assert_int_eq(m3idx_tile_blocks(prefix, seq_len, past, 128), 0);
}

START_TEST(prefill_tiles) {
  static const int32_t q_lens[] = {0, 1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000};
  static const int32_t prefixes[] = {0, 1, 126, 127, 128, 8191, 8192, 65535};
  const int32_t splits = 1 << _i;
  uint64_t seed = 3;
  for (int i = 0; i < LENGTH(q_lens); i++)
    for (int j = 0; j < LENGTH(prefixes); j++)
      for (int32_t more = 0; more <= 129; more += 43)
        for (int32_t block_q = 64; block_q <= 128; block_q += 64)
          prefill_request(prefixes[j], q_lens[i], prefixes[j] + q_lens[i] + more, block_q, splits);
  for (int k = 0; k < 200; k++) {
    const int32_t prefix = (int32_t)(next_random(&seed) % 100000), q_len = (int32_t)(next_random(&seed) % 3000);
    prefill_request(prefix, q_len, prefix + q_len, k % 2 ? 64 : 128, splits);
  }
  prefill_request(INT32_MAX - 300, 300, INT32_MAX, 128, splits);
}
END_TEST

/* ---- the balanced decode map ---- */

static void balanced_batch(const int32_t *seq_lens, int32_t reqs, int32_t budget) {
  int32_t next[16] = {0}, last = 0, busy = 0;
  int64_t sum = 0;
  const int32_t per = m3idx_blocks_per_program(seq_lens, reqs, 128, budget), grid = m3idx_balanced_grid(reqs, budget);
  for (int32_t r = 0; r < reqs; r++) sum += seq_lens[r] > 0 ? ((int64_t)seq_lens[r] + 127) / 128 : 0;
  ck_assert_int_ge((int64_t)per * budget, sum); /* the least number of blocks a program that fits the budget */
  ck_assert(per == 1 || (int64_t)(per - 1) * budget < sum);
  for (int32_t program = 0; program < grid; program++) {
    const m3idx_work w = m3idx_balanced_work(seq_lens, reqs, 128, per, program);
    const int32_t size = w.blocks.end - w.blocks.begin;
    if (w.request < 0 ? size != 0
                      : program != busy || w.request < last || w.request >= reqs || size < 1 || size > per ||
                            w.blocks.begin != next[w.request])
      ck_abort_msg("%d requests, budget %d: program %d has request %d, blocks %d..%d; %d programs had work before",
                   reqs, budget, program, w.request, w.blocks.begin, w.blocks.end, busy);
    if (w.request < 0) continue;
    busy++; /* so that no idle program stands before a busy one */
    last = w.request;
    next[w.request] = w.blocks.end;
  }
  for (int32_t r = 0; r < reqs; r++)
    ck_assert_int_eq(next[r], seq_lens[r] > 0 ? ((int64_t)seq_lens[r] + 127) / 128 : 0);
}

/* Of 2^31 - 1 blocks a program may own all; of more than an int32 holds, that many (S8.3). */
START_TEST(balanced_share) {
  int32_t seq_lens[3] = {INT32_MAX, INT32_MAX, INT32_MAX};
  ck_assert_int_eq(m3idx_blocks_per_program(seq_lens, 0, 1, 1), 1);
  ck_assert_int_eq(m3idx_blocks_per_program(seq_lens, 1, 1, 1), INT32_MAX);
  ck_assert_int_eq(m3idx_blocks_per_program(seq_lens, 3, 1, 1), INT32_MAX);
  ck_assert_int_eq(m3idx_blocks_per_program(seq_lens, 3, 1, 2), INT32_MAX);
  ck_assert_int_eq(m3idx_blocks_per_program(seq_lens, 2, 1, 3), 1431655765); /* ceil(4294967294 / 3) */
}
END_TEST

START_TEST(balanced_map) {
  const int32_t reqs = _i;
  int32_t seq_lens[16];
  int64_t budget = 0;
  uint64_t seed = (uint64_t)reqs;
  ck_assert_int_eq(m3idx_decode_score_budget(reqs, 128, M3IDX_BF16, M3IDX_BF16, M3IDX_GFX950, &budget), M3IDX_OK);
  ck_assert_int_gt(budget, 0);
  static const int32_t same[] = {-1, 0, 1, 127, 128, 129, 8191, 8192, 8193, 131072, 1048576, INT32_MAX};
  for (int i = 0; i < LENGTH(same); i++) { /* zero, short and full batches */
    for (int32_t r = 0; r < reqs; r++) seq_lens[r] = same[i];
    balanced_batch(seq_lens, reqs, (int32_t)budget);
    seq_lens[reqs - 1] = 0; /* a padded request at the end, then in front */
    balanced_batch(seq_lens, reqs, (int32_t)budget);
    seq_lens[reqs - 1] = same[i];
    seq_lens[0] = 0;
    balanced_batch(seq_lens, reqs, (int32_t)budget);
  }
  for (int32_t total = (int32_t)budget - 2; total <= (int32_t)budget + 2; total++) { /* the sum around the budget */
    for (int32_t r = 0; r < reqs; r++) seq_lens[r] = 128;
    seq_lens[0] = 128 * (total - (reqs - 1));
    balanced_batch(seq_lens, reqs, (int32_t)budget);
  }
  for (int k = 0; k < 400; k++) { /* ragged: lengths of every magnitude, a few padded */
    for (int32_t r = 0; r < reqs; r++)
      seq_lens[r] = next_random(&seed) % 5 ? (int32_t)(next_random(&seed) >> (next_random(&seed) % 28)) : 0;
    balanced_batch(seq_lens, reqs, (int32_t)budget);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("geometry");
  TCase *tcase = tcase_create("partitions");
  tcase_set_timeout(tcase, 60);
  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, topk_chunks);
  tcase_add_test(tcase, score_parts);
  tcase_add_loop_test(tcase, prefill_tiles, 0, 5); /* 1, 2 .. 16 splits */
  tcase_add_test(tcase, balanced_share);
  tcase_add_loop_test(tcase, balanced_map, 1, 12); /* the request counts that have a budget */
  return unit_run(suite);
}
