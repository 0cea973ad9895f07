/* SPDX-License-Identifier: Apache-2.0
 *
 * The fuzzer's stream of lines (fuzz/fuzz_draw.c): the same on every machine, every line a case, and no axis left out.
 */
#include <string.h>

#include "case.h"
#include "fuzz_campaign.h"
#include "fuzz_draw.h"
#include "unit.h"

enum { LINES = 20000 };

static fuzz_edges edges;

/* ---- the stream ---- */

static uint64_t fnv(uint64_t hash, const char *text) {
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  return (hash ^ '\n') * UINT64_C(0x100000001b3);
}

/* Frozen where these were first drawn, and drawn alike by gcc and clang, by 32-bit x86 and by big-endian s390x.  A
 * grammar that changes needs another FUZZ_GRAMMAR. */
static const struct {
  uint64_t seed;
  unsigned ops;
  uint64_t want;
} streams[] = {
    {0, FUZZ_OPS_ALL, UINT64_C(0x8f92c5215fe2b564)},
    {UINT64_C(18446744073709551615), FUZZ_OPS_ALL, UINT64_C(0xdc9ec7015e683a3d)},
    {1, 1u << CASE_SELECT, UINT64_C(0x89fc83bc211bff6f)},
};

START_TEST(stream) {
  fuzz_line line;
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (uint64_t i = 0; i < LINES; i++) {
    fuzz_draw(&edges, streams[_i].seed, i, streams[_i].ops, &line);
    hash = fnv(hash, line.text);
  }
  ck_assert_msg(hash == streams[_i].want, "stream %d is 0x%08lx%08lx", _i, (unsigned long)(hash >> 32),
                (unsigned long)(hash & UINT32_MAX));
}
END_TEST

/* A line is a function of seed and index: backwards, and with others in between, it is the same. */
START_TEST(line_by_line) {
  static fuzz_line forwards[500];
  fuzz_line line;
  for (uint64_t i = 0; i < 500; i++) fuzz_draw(&edges, 3, i, FUZZ_OPS_ALL, &forwards[i]);
  for (uint64_t i = 500; i-- > 0;) {
    fuzz_draw(&edges, 4, i, FUZZ_OPS_ALL, &line);
    fuzz_draw(&edges, 3, i, FUZZ_OPS_ALL, &line);
    ck_assert_str_eq(line.text, forwards[i].text);
    ck_assert_uint_eq(line.edges, forwards[i].edges);
  }
}
END_TEST

/* ---- what it covers ---- */

typedef struct census {
  int64_t op[3], size[FUZZ_SIZES], pair[7][7], contract[FUZZ_CONTRACTS], data[CASE_DATA_KINDS], table[3],
      edge[FUZZ_EDGES], block[4];
  int64_t none, one, negative, shared, dims[17];
} census;

static void count(census *n, const fuzz_line *line, const case_spec *s) {
  n->op[s->op]++;
  n->size[line->size]++;
  n->contract[fuzz_contract_number(&s->contract)]++;
  n->data[s->data]++;
  for (int e = 0; e < FUZZ_EDGES; e++) n->edge[e] += line->edges >> e & 1;
  if (s->op == CASE_SELECT) return;
  n->pair[s->q_dtype][s->k_dtype]++;
  n->table[s->table]++;
  n->block[s->block_size == 16 ? 0 : s->block_size == 32 ? 1 : s->block_size == 64 ? 2 : 3]++;
  n->dims[s->head_dim / 16]++;
  for (int64_t r = 0; r < s->num_requests; r++) {
    n->none += s->seq_lens[r] == 0;
    n->one += s->seq_lens[r] == 1;
    n->negative += s->op == CASE_DECODE && s->seq_lens[r] < s->decode_query_len;
  }
}

/* Every line parses and can be generated; every choice is made, and each edge by one line in 500 at least. */
START_TEST(census_of_lines) {
  static census n;
  fuzz_line line;
  case_spec spec;
  char why[CASE_MESSAGE_BYTES];
  for (uint64_t i = 0; i < LINES; i++) {
    case_file file = {0};
    fuzz_draw(&edges, 7, i, FUZZ_OPS_ALL, &line);
    ck_assert_msg(!case_spec_parse_line(line.text, &spec, why), "%s: %s", line.text, why);
    ck_assert_int_eq(spec.op, line.op);
    if (i % 16 == 0) ck_assert_msg(!case_generate(&spec, &file, why), "%s: %s", line.text, why);
    count(&n, &line, &spec);
    case_file_free(&file);
    case_spec_free(&spec);
  }
  for (int i = 0; i < 3; i++) ck_assert_int_gt(n.op[i], LINES / 4);
  for (int i = 0; i < FUZZ_SIZES; i++) ck_assert_int_gt(n.size[i], 0);
  ck_assert_int_gt(n.size[FUZZ_SMALL], LINES * 9 / 10);
  for (int q = 0; q < 7; q++)
    for (int k = 0; k < 7; k++) ck_assert_msg(n.pair[q][k] > LINES / 500, "formats %d and %d", q, k);
  for (int i = 0; i < FUZZ_CONTRACTS; i++) ck_assert_msg(n.contract[i] > LINES / 500, "contract %d", i);
  for (int i = 0; i < CASE_DATA_KINDS; i++) ck_assert_msg(n.data[i] > LINES / 50, "%s", case_data_name((case_data)i));
  for (int i = 0; i < 3; i++) ck_assert_int_gt(n.table[i], LINES / 50);
  for (int i = 0; i < 4; i++) ck_assert_int_gt(n.block[i], LINES / 100);
  for (int i = 1; i <= 16; i++) ck_assert_msg(n.dims[i] > 0, "head dim %d", 16 * i);
  for (int e = 0; e < FUZZ_EDGES; e++) ck_assert_msg(n.edge[e] > LINES / 500, "%s", fuzz_edge_name((fuzz_edge)e));
  ck_assert_int_gt(n.none, LINES / 100);
  ck_assert_int_gt(n.one, LINES / 100);
  ck_assert_int_gt(n.negative, LINES / 100);
}
END_TEST

START_TEST(only_those_ops) {
  fuzz_line line;
  for (uint64_t i = 0; i < 300; i++) {
    fuzz_draw(&edges, 7, i, 1u << CASE_PREFILL | 1u << CASE_SELECT, &line);
    ck_assert(line.op == CASE_PREFILL || line.op == CASE_SELECT);
  }
}
END_TEST

/* ---- edges, as the tables of S8.1 to S8.5 have them ---- */

static bool has(const fuzz_counts *counts, int64_t at) {
  for (int i = 0; i < counts->count; i++)
    if (counts->at[i] == at) return true;
  return false;
}

START_TEST(edges_of_the_law) {
  /* S8.1: 1, 129 and 8193 begin a row of the table; S8.2: a tile of 512 and one more block wake another chunk. */
  static const int64_t blocks[] = {1, 129, 513, 1025, 8193};
  /* S8.3: no budget from 12 on, 768 from 9; S8.4: 20 and 65 bound high_batch, 33 halves its chunks, 3 halves 256. */
  static const int64_t reqs[] = {9, 12, 20, 33, 65, 3};
  /* S8.5: tiles of 64 rows; 128 rows and 8192 keys begin the split launch, whose tiles have 128. */
  static const int64_t rows[] = {65, 128, 129, 257}, tokens[] = {8192};
  for (int i = 0; i < 5; i++) ck_assert_int_eq(has(&edges.select_blocks, blocks[i]), 1);
  for (int i = 0; i < 6; i++) ck_assert_int_eq(has(&edges.decode_reqs, reqs[i]), 1);
  for (int i = 0; i < 4; i++) ck_assert_int_eq(has(&edges.prefill_rows, rows[i]), 1);
  for (int i = 0; i < 1; i++) ck_assert_int_eq(has(&edges.prefill_tokens, tokens[i]), 1);
  ck_assert_int_eq(has(&edges.select_blocks, 128), 0); /* the last of its kind, not the first */
  for (int i = 1; i < edges.select_blocks.count; i++)
    ck_assert_int_lt(edges.select_blocks.at[i - 1], edges.select_blocks.at[i]);
  ck_assert_int_lt(edges.select_blocks.count, FUZZ_MOST_EDGES); /* none was left out */
}
END_TEST

int main(void) {
  Suite *suite = suite_create("fuzz_draw");
  TCase *tcase = tcase_create("fuzz_draw");
  fuzz_edges_find(&edges);
  suite_add_tcase(suite, tcase);
  tcase_set_timeout(tcase, 120);
  tcase_add_loop_test(tcase, stream, 0, sizeof streams / sizeof *streams);
  tcase_add_test(tcase, line_by_line);
  tcase_add_test(tcase, census_of_lines);
  tcase_add_test(tcase, only_those_ops);
  tcase_add_test(tcase, edges_of_the_law);
  return unit_run(suite);
}
