/* SPDX-License-Identifier: Apache-2.0
 *
 * The harness of test_public_bugs_*.c: backends, poisoned outputs, one-row calls.
 */
#include "public_bugs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"

enum { MAX_BACKENDS = 8 };
static const char *backends[MAX_BACKENDS];
static int num_backends;
static const char *running_backend;

static void find_backends(void) {
  const char *name;
  for (int i = 0; (name = m3idx_backend_list(i)) && num_backends < MAX_BACKENDS; i++) {
    m3idx_context *ctx;
    char why[512];
    if (m3idx_open(&ctx, &(m3idx_options){.backend = name}, why, sizeof why) == M3IDX_OK) {
      printf("backend %s: %s\n", name, m3idx_backend_details(ctx));
      m3idx_close(ctx);
      backends[num_backends++] = name;
    } else {
      printf("backend %s: not run here: %s\n", name, why);
    }
  }
}

int bug_main(const char *name, const bug *bugs, size_t num_bugs) {
  find_backends();
  Suite *suite = suite_create(name);
  for (size_t i = 0; i < num_bugs; i++) {
    TCase *tcase = tcase_create(bugs[i].id);
    tcase_add_loop_test(tcase, bugs[i].test, 0, num_backends);
    suite_add_tcase(suite, tcase);
  }
  return unit_run(suite);
}

m3idx_context *bug_open(int i) {
  m3idx_context *ctx;
  ck_assert_int_eq(m3idx_open(&ctx, &(m3idx_options){.backend = backends[i]}, NULL, 0), M3IDX_OK);
  running_backend = backends[i];
  return ctx;
}

bool bug_ok(m3idx_context *ctx, m3idx_status status) {
  if (status == M3IDX_UNSUPPORTED && strcmp(running_backend, "ref") != 0) {
    printf("UNSUPPORTED %s: %s\n", running_backend, m3idx_message(ctx));
    return false;
  }
  ck_assert_msg(status == M3IDX_OK, "%s: %s: %s", running_backend, m3idx_status_name(status), m3idx_message(ctx));
  return true;
}

static void *allocate(int64_t n, size_t bytes) {
  void *p = calloc((size_t)n, bytes);
  ck_assert_ptr_nonnull(p);
  return p;
}

int32_t *bug_poisoned(int64_t n) {
  int32_t *p = allocate(n + 1, sizeof *p);
  for (int64_t i = 0; i <= n; i++) p[i] = BUG_POISON;
  return p;
}

void bug_expect(const int32_t *want, const int32_t *got, int64_t n, const char *what) {
  for (int64_t i = 0; i < n; i++)
    ck_assert_msg(want[i] == got[i], "%s: %s[%ld]: want %d (0x%08x) got %d (0x%08x)", running_backend, what, (long)i,
                  (int)want[i], (unsigned)want[i], (int)got[i], (unsigned)got[i]);
}

int32_t *bug_select(m3idx_context *ctx, const bug_row *row) {
  int32_t blocks = (int32_t)row->blocks, *ids = bug_poisoned(row->topk);
  m3idx_select_args args = {.num_blocks = &blocks,
                            .num_heads = 1,
                            .num_rows = 1,
                            .max_block = row->columns,
                            .score = row->score,
                            .init_blocks = row->init_blocks,
                            .local_blocks = row->local_blocks,
                            .topk = row->topk,
                            .topk_idx = ids};
  ck_assert_int_eq(m3idx_contract_by_name(row->contract ? row->contract : "vllm", &args.contract), M3IDX_OK);
  if (bug_ok(ctx, m3idx_select(ctx, &args))) {
    ck_assert_int_eq(ids[row->topk], BUG_POISON);
    return ids;
  }
  free(ids);
  return NULL;
}

/* The named contracts as the table of S4.2 has them. */
static oracle_contract oracle_contract_of(const char *name) {
  if (!name || !strcmp(name, "vllm"))
    return (oracle_contract){ORACLE_LOWER, ORACLE_NAN_1E30, ORACLE_ZERO_EQUAL, ORACLE_BY_SCORE};
  if (!strcmp(name, "aiter"))
    return (oracle_contract){ORACLE_HIGHER, ORACLE_NAN_INF, ORACLE_ZERO_SIGNED, ORACLE_BY_SCORE};
  if (!strcmp(name, "atom"))
    return (oracle_contract){ORACLE_HIGHER, ORACLE_NAN_BELOW, ORACLE_ZERO_EQUAL, ORACLE_BY_SCORE};
  if (!strcmp(name, "sglang")) return (oracle_contract){ORACLE_LOWER, ORACLE_NAN_INF, ORACLE_ZERO_EQUAL, ORACLE_BY_ID};
  ck_assert_str_eq(name, "flashinfer");
  return (oracle_contract){ORACLE_LOWER, ORACLE_NAN_BITS, ORACLE_ZERO_SIGNED, ORACLE_BY_ID};
}

void bug_select_expect(m3idx_context *ctx, const bug_row *row, const int32_t *want) {
  int32_t *got = bug_select(ctx, row);
  if (!got) return;
  uint32_t *bits = allocate(row->blocks + 1, sizeof *bits);
  int32_t *ids = allocate(row->topk, sizeof *ids);
  if (row->blocks) memcpy(bits, row->score, (size_t)row->blocks * sizeof *bits);
  for (int64_t i = 0; i < row->blocks; i++)
    bits[i] = oracle_force(bits[i], i, row->blocks, row->init_blocks, row->local_blocks);
  oracle_select(bits, 0, row->blocks, oracle_contract_of(row->contract), row->topk, ids);
  bug_expect(ids, got, row->topk, "ids, by the oracle");
  if (want) bug_expect(want, got, row->topk, "ids, by hand");
  free(ids);
  free(bits);
  free(got);
}

void bug_score_expect(m3idx_context *ctx, const bug_dots *dots, const uint32_t *want_bits) {
  enum { B = 16 };
  size_t key_bytes = (size_t)dots->dim * m3idx_dtype_bytes(dots->k_dtype);
  unsigned char *cache = allocate(dots->blocks * B, key_bytes);
  int32_t *table = allocate(dots->blocks, sizeof *table), *score = bug_poisoned(dots->blocks);
  int32_t seq_len = (int32_t)(dots->blocks * B);
  for (int64_t b = 0; b < dots->blocks; b++) {
    table[b] = (int32_t)b;
    for (size_t t = 0; t < B; t++)
      memcpy(cache + ((size_t)b * B + t) * key_bytes, (const unsigned char *)dots->keys + (size_t)b * key_bytes,
             key_bytes);
  }
  m3idx_batch batch = {.mode = M3IDX_DECODE,
                       .num_requests = 1,
                       .num_rows = 1,
                       .max_block = dots->blocks,
                       .block_size = B,
                       .decode_query_len = 1,
                       .seq_lens = &seq_len};
  unsigned char query[1024];
  memcpy(query, dots->q, (size_t)dots->dim * m3idx_dtype_bytes(dots->q_dtype));
  m3idx_score_args args = {.batch = &batch,
                           .q = {query, dots->q_dtype, {1, 1, dots->dim}, {0, 0, 0}},
                           .index_k = {cache, dots->k_dtype, {dots->blocks, B, dots->dim}, {0, 0, 0}},
                           .block_table = table,
                           .score = (float *)(void *)score};
  if (bug_ok(ctx, m3idx_score(ctx, &args))) {
    for (int64_t b = 0; b < dots->blocks; b++)
      ck_assert_msg((uint32_t)score[b] == want_bits[b], "%s: score[%ld]: want 0x%08x got 0x%08x", running_backend,
                    (long)b, (unsigned)want_bits[b], (unsigned)score[b]);
    ck_assert_int_eq(score[dots->blocks], BUG_POISON);
  }
  free(score);
  free(table);
  free(cache);
}

uint32_t bug_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

double bug_random(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (double)(*state >> 40) / 16777216.0;
}
