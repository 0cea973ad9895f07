/* SPDX-License-Identifier: Apache-2.0
 *
 * oracle_random: one random case of m3idx_cache_insert (S6), refused pairs of formats included.
 */
#include "oracle_random.h"

#include <stdio.h>
#include <string.h>

static bool wide(m3idx_dtype dtype) { return m3idx_dtype_bytes(dtype) > 1; }

verdict random_cache_insert(trial *t) {
  static const int64_t block_sizes[] = {16, 32, 64, 128};
  m3idx_dtype from = random_dtype(t), to = one_in(t, 3) ? from : random_dtype(t);
  int64_t n = random_below(t, 7), D = 16 * random_in(t, 1, 4), P = random_in(t, 1, 3);
  int64_t B = block_sizes[random_below(t, 4)], slots = P * B;
  if (one_in(t, 8)) D = 16 * random_in(t, 1, 16);
  palette p = random_palette(t, from);
  m3idx_tensor key = random_tensor(t, from, (const int64_t[]){1, n, D}, &p);

  m3idx_tensor cache = {.dtype = to, .shape = {P, B, D}, .stride = {0, D + random_below(t, 3), 1}};
  cache.stride[0] = B * cache.stride[1] + random_below(t, 9);
  int64_t elements = (P - 1) * cache.stride[0] + (B - 1) * cache.stride[1] + D;
  output out = make_output(t, "cache", elements, m3idx_dtype_bytes(to));

  /* Slots all different: a random start and a step prime to every number of slots (2^a or 3 * 2^a). */
  int64_t *slot = trial_alloc(t, (size_t)n * sizeof *slot), start = random_below(t, slots);
  for (int64_t i = 0; i < n; i++) {
    slot[i] = one_in(t, 5) ? (one_in(t, 2) ? -1 : INT64_MIN + random_below(t, 99)) : (start + i * 37) % slots;
    if (slot[i] < 0) continue;
    m3idx_tensor want = cache;
    want.data = out.want;
    for (int64_t d = 0; d < D; d++) {
      uint32_t code = tensor_get(&key, 0, i, d);
      if (from != to && !wide(to)) code = oracle_convert(format_of(from), code, format_of(to));
      tensor_set(&want, slot[i] / B, slot[i] % B, d, code);
    }
  }

  cache.data = out.got;
  m3idx_cache_insert_args args = {.key = tensor_told(t, key), .slot_mapping = slot, .cache = cache};
  m3idx_status status = m3idx_cache_insert(t->ctx, &args);
  verdict v = conclude(t, status, "cache_insert", &out, 1);
  if (n == 0 || from == to || (wide(from) && !wide(to))) return v;
  if (status == M3IDX_UNSUPPORTED) return v == VERDICT_UNSUPPORTED ? VERDICT_PASS : v; /* as it must be (S6.2) */
  snprintf(t->why, sizeof t->why, "cache_insert: %s into %s: want UNSUPPORTED got %s", m3idx_dtype_name(from),
           m3idx_dtype_name(to), m3idx_status_name(status));
  return VERDICT_FAIL;
}
