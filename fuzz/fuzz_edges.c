/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the launch policies in force change their answers (S8.1, S8.3 to S8.5), found by asking them for every count.
 * So a policy that is tuned moves the fuzzer's edges with it.
 */
#include <string.h>

#include "fuzz_draw.h"
#include "geometry.h"

enum { MOST_BLOCKS = 10000, MOST_REQS = 130, MOST_ROWS = 300, MOST_TOKENS = 20000 };

static void add(fuzz_counts *counts, int64_t at) {
  int i = counts->count;
  for (int j = 0; j < counts->count; j++)
    if (counts->at[j] == at) return;
  if (counts->count == FUZZ_MOST_EDGES) return;
  for (; i > 0 && counts->at[i - 1] > at; i--) counts->at[i] = counts->at[i - 1];
  counts->at[i] = at;
  counts->count++;
}

/* What a policy answers for one count; zeros where it refuses. */
typedef struct answer {
  int64_t at[3];
} answer;

/* The answer for n, noted as an edge where it is not that for n - 1, which *before holds. */
static void follow(fuzz_counts *out, int64_t n, answer now, answer *before) {
  if (memcmp(&now, before, sizeof now) != 0) add(out, n);
  *before = now;
}

/* What a selector launch does with n blocks in a capacity of n. */
static answer select_of(int64_t n, int64_t rows, int64_t topk, m3idx_arch arch) {
  m3idx_decode_topk_geometry g;
  if (m3idx_decode_topk_policy(n, rows, 1, topk, arch, &g) != M3IDX_OK) return (answer){0};
  return (answer){{g.chunks, g.block, m3idx_topk_active((int32_t)n, (int32_t)g.chunks, (int32_t)g.block)}};
}

static void find_select(fuzz_counts *out) {
  static const int64_t topks[] = {16, 13}, rows[] = {1, 16};
  for (int arch = M3IDX_ARCH_OTHER; arch <= M3IDX_GFX950; arch++)
    for (int k = 0; k < 2; k++)
      for (int r = 0; r < 2; r++) {
        answer before = select_of(0, rows[r], topks[k], (m3idx_arch)arch);
        for (int64_t n = 1; n <= MOST_BLOCKS; n++)
          follow(out, n, select_of(n, rows[r], topks[k], (m3idx_arch)arch), &before);
      }
}

static answer decode_of(int64_t reqs, int64_t head_dim, m3idx_arch arch) {
  m3idx_decode_score_geometry g;
  int64_t budget;
  if (m3idx_decode_score_budget(reqs, head_dim, M3IDX_BF16, M3IDX_BF16, arch, &budget) != M3IDX_OK ||
      m3idx_decode_score_split(reqs, head_dim, M3IDX_BF16, M3IDX_BF16, arch, &g) != M3IDX_OK)
    return (answer){0};
  return (answer){{budget, g.chunks, g.high_batch}};
}

static void find_decode(fuzz_counts *out) {
  for (int arch = M3IDX_ARCH_OTHER; arch <= M3IDX_GFX950; arch++)
    for (int64_t head_dim = 64; head_dim <= 128; head_dim *= 2) {
      answer before = decode_of(0, head_dim, (m3idx_arch)arch);
      for (int64_t reqs = 1; reqs <= MOST_REQS; reqs++)
        follow(out, reqs, decode_of(reqs, head_dim, (m3idx_arch)arch), &before);
    }
}

/* Tiles and splits of one request; its last tile is whole where the next row starts another. */
static answer prefill_of(int64_t rows, int64_t tokens, m3idx_arch arch) {
  m3idx_prefill_score_geometry g;
  if (m3idx_prefill_score_policy(rows, tokens, 1, 1, 304, arch, &g) != M3IDX_OK) return (answer){0};
  return (answer){{g.block_q, g.splits, (rows + g.block_q - 1) / g.block_q}};
}

static void find_prefill(fuzz_counts *rows, fuzz_counts *tokens) {
  for (int arch = M3IDX_ARCH_OTHER; arch <= M3IDX_GFX950; arch++) {
    answer before = prefill_of(0, MOST_TOKENS, (m3idx_arch)arch);
    for (int64_t n = 1; n <= MOST_ROWS; n++) follow(rows, n, prefill_of(n, MOST_TOKENS, (m3idx_arch)arch), &before);
    before = prefill_of(MOST_ROWS, 0, (m3idx_arch)arch);
    for (int64_t n = 1; n <= MOST_TOKENS; n++) follow(tokens, n, prefill_of(MOST_ROWS, n, (m3idx_arch)arch), &before);
  }
}

void fuzz_edges_find(fuzz_edges *out) {
  memset(out, 0, sizeof *out);
  find_select(&out->select_blocks);
  find_decode(&out->decode_reqs);
  find_prefill(&out->prefill_rows, &out->prefill_tokens);
}
