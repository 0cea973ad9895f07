/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints one line for each host backend and format pair: a hash of the bytes that a decode with forced blocks
 * gives.  `./dev portability` compares the lines of different compilers, machines and thread counts.  It needs
 * libc and libm3idx only.  It says nothing about which bytes are right (S3, S4): other tests do.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "m3idx.h"
#include "port_cases.h"

enum { R = 3, H = 2, D = 32, B = 128, P = 9, M = 5, K = 4, SCORES = H * R * M, IDS = H * R * K };

static uint64_t fnv(uint64_t hash, uint32_t word) {
  for (int i = 0; i < 4; i++) hash = (hash ^ (word >> 8 * i & 0xff)) * UINT64_C(0x100000001b3);
  return hash;
}

/* Codes uniform over the format: special values and every exponent occur. */
static void fill(void *data, m3idx_dtype dtype, int64_t count, uint32_t *state) {
  for (int64_t i = 0; i < count; i++) {
    *state = *state * UINT32_C(1664525) + UINT32_C(1013904223);
    uint32_t bits32 = *state ^ *state >> 15;
    uint16_t bits16 = (uint16_t)(*state >> 16);
    uint8_t bits8 = (uint8_t)(*state >> 24);
    size_t bytes = m3idx_dtype_bytes(dtype);
    const void *from = bytes == 4 ? (const void *)&bits32 : bytes == 2 ? (const void *)&bits16 : (const void *)&bits8;
    memcpy((char *)data + (size_t)i * bytes, from, bytes);
  }
}

static int run(m3idx_context *ctx, m3idx_dtype q_type, m3idx_dtype k_type) {
  static const int32_t seq_lens[R] = {640, 7, 300},
                       table[R][M] = {{8, 0, 7, 1, 6}, {2, -1, -1, -1, -1}, {3, 4, 5, -1, -1}};
  static uint32_t q[R * H * D], k[P * B * D]; /* room for the widest format, aligned for all */
  static float score[SCORES];
  static int32_t ids[IDS];
  uint32_t state = 1;
  fill(q, q_type, R * H * D, &state);
  fill(k, k_type, P * B * D, &state);
  const m3idx_batch batch = {.mode = M3IDX_DECODE,
                             .num_requests = R,
                             .num_rows = R,
                             .max_block = M,
                             .block_size = B,
                             .decode_query_len = 1,
                             .seq_lens = seq_lens};
  const m3idx_score_args scores = {.batch = &batch,
                                   .q = {q, q_type, {R, H, D}, {0}},
                                   .index_k = {k, k_type, {P, B, D}, {0}},
                                   .block_table = table[0],
                                   .local_blocks = 1,
                                   .score = score};
  const m3idx_select_args select = {
      .batch = &batch, .num_heads = H, .num_rows = R, .max_block = M, .score = score, .topk = K, .topk_idx = ids};
  if (m3idx_score(ctx, &scores) || m3idx_select(ctx, &select)) {
    fprintf(stderr, "%s: %s\n", m3idx_backend_name(ctx), m3idx_message(ctx));
    return 1;
  }
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (int i = 0; i < SCORES; i++) {
    uint32_t bits;
    memcpy(&bits, &score[i], sizeof bits);
    hash = fnv(hash, bits);
  }
  for (int i = 0; i < IDS; i++) hash = fnv(hash, (uint32_t)ids[i]);
  printf("%s %s %s %016" PRIx64 "\n", m3idx_backend_name(ctx), m3idx_dtype_name(q_type), m3idx_dtype_name(k_type),
         hash);
  return 0;
}

int main(void) {
  static const char *const host[] = {"ref", "cpu"};
  int ran = 0;
  for (size_t i = 0; i < sizeof host / sizeof *host; i++) {
    m3idx_context *ctx;
    const m3idx_options options = {.backend = host[i]};
    char why[512];
    m3idx_status status = m3idx_open(&ctx, &options, why, sizeof why);
    if (status) {
      fprintf(stderr, "%s: %s\n", host[i], why);
      continue;
    }
    for (int q = 0; q < M3IDX_DTYPE_COUNT; q++)
      for (int k = 0; k < M3IDX_DTYPE_COUNT; k++) {
        if (run(ctx, (m3idx_dtype)q, (m3idx_dtype)k)) return 1;
        ran++;
      }
    m3idx_close(ctx);
  }
  if (port_cases(host, sizeof host / sizeof *host)) return 1;
  return ran ? 0 : 1;
}
