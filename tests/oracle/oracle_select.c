/* SPDX-License-Identifier: Apache-2.0
 *
 * The oracle's selection and sparse table (S4, S5): candidates in an array, sorted whole by a comparator that
 * reads like the contract's table.
 */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A score and where it stands: every number, infinities included, is on the middle floor. */
typedef struct candidate {
  int64_t id;
  int floor;        /* -1 below -inf, 0 a number, +1 above +inf */
  float number;     /* floor 0 */
  uint32_t payload; /* other floors: orders NaN by their bits, 0 where NaN are equal */
} candidate;

static candidate candidate_of(uint32_t bits, int64_t id, oracle_contract contract) {
  candidate c = {.id = id};
  bool negative = bits & 0x80000000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude <= 0x7f800000u) {
    memcpy(&c.number, &bits, sizeof bits);
    return c;
  }
  switch (contract.nan) {
  case ORACLE_NAN_1E30: c.number = -1e30f; break;
  case ORACLE_NAN_INF: c.number = -INFINITY; break;
  case ORACLE_NAN_BELOW: c.floor = -1; break;
  case ORACLE_NAN_BITS:
    c.floor = negative ? -1 : 1;
    c.payload = magnitude;
    break;
  }
  return c;
}

/* Does a come before b? */
static bool before(const candidate *a, const candidate *b, oracle_contract contract) {
  if (a->floor != b->floor) return a->floor > b->floor;
  if (a->floor == 0) {
    if (a->number != b->number) return a->number > b->number;
    if (contract.zero == ORACLE_ZERO_SIGNED && a->number == 0) {
      bool a_minus = signbit(a->number), b_minus = signbit(b->number);
      if (a_minus != b_minus) return b_minus;
    }
  } else if (a->payload != b->payload) {
    return a->floor > 0 ? a->payload > b->payload : a->payload < b->payload;
  }
  return contract.tie == ORACLE_LOWER ? a->id < b->id : a->id > b->id;
}

/* Merge sort, best first; spare has room for n. */
static void sort(candidate *c, candidate *spare, int64_t n, oracle_contract contract) {
  if (n < 2) return;
  int64_t half = n / 2;
  sort(c, spare, half, contract);
  sort(c + half, spare, n - half, contract);
  memcpy(spare, c, (size_t)n * sizeof *c);
  for (int64_t i = 0, a = 0, b = half; i < n; i++) {
    bool take_a = b == n || (a < half && before(&spare[a], &spare[b], contract));
    c[i] = take_a ? spare[a++] : spare[b++];
  }
}

static int compare_ids(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return x < y ? -1 : x > y;
}

void oracle_select(const uint32_t *score, int64_t first, int64_t count, oracle_contract contract, int64_t k,
                   int32_t *ids) {
  candidate *all = calloc(2 * (size_t)(count + 1), sizeof *all);
  if (!all) exit(2);
  for (int64_t i = 0; i < count; i++) all[i] = candidate_of(score[i], first + i, contract);
  sort(all, all + count, count, contract);
  int64_t chosen = count < k ? count : k;
  for (int64_t i = 0; i < k; i++) ids[i] = i < chosen ? (int32_t)all[i].id : -1;
  free(all);
  if (contract.order == ORACLE_BY_ID) qsort(ids, (size_t)chosen, sizeof *ids, compare_ids);
}

void oracle_sparse(const int32_t *ids, int64_t k, int64_t position, const int32_t *block_table, int64_t page_stride,
                   int64_t heads, int64_t head, int32_t *out, int32_t *context_len) {
  const int64_t block = 128, pages = 8; /* S5.1: 8 attention pages of 16 tokens */
  memset(out, 0, (size_t)(pages * k) * sizeof *out);
  *context_len = 0;
  if (position < 0) return; /* S5.4 */

  int64_t seen = position + 1, self = position / block, written = 0, tail = -1;
  for (int64_t i = 0; i <= k; i++) {
    int64_t id = i < k ? ids[i] : tail; /* the tail's turn comes after all full blocks */
    if (i < k && id == self) tail = id;
    if (id < 0 || id > self || (i < k && id == self)) continue;
    for (int64_t j = 0; j < pages; j++)
      out[written * pages + j] = (int32_t)((block_table[id] * page_stride + j) * heads + head);
    written++;
  }
  /* S5.3: whole blocks, and of the tail the tokens up to the row's own. */
  if (tail >= 0)
    *context_len = (int32_t)(block * (written - 1) + seen - block * self);
  else
    *context_len = (int32_t)(block * written < seen ? block * written : seen);
}
