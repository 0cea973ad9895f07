/* SPDX-License-Identifier: Apache-2.0
 *
 * Generated cases as `./dev portability` sees them: one line for each case with a hash of its inputs, which are
 * the same bytes on every host (docs/CASES.md, "Generation"), and one for its outputs on each host backend.
 */
#include "port_cases.h"

#include <inttypes.h>
#include <stdio.h>

#include "case.h"

/* FNV-1a over little-endian bytes. */
static int fnv(void *user, const void *bytes, size_t n) {
  uint64_t *hash = user;
  for (size_t i = 0; i < n; i++) *hash = (*hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
  return 0;
}

/* Tensors from `first` on, in the order in which they were added. */
static uint64_t hash_of(const case_file *file, int64_t first) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (int64_t i = first; i < file->num_tensors; i++) case_tensor_le(&file->tensors[i], fnv, &hash);
  return hash;
}

static int run_case(const char *line, const char *const *backends, int count) {
  char why[CASE_MESSAGE_BYTES];
  case_spec spec;
  case_file file;
  if (case_spec_parse_line(line, &spec, why)) {
    fprintf(stderr, "%s: %s\n", line, why);
    return 1;
  }
  int bad = case_generate(&spec, &file, why);
  case_spec_free(&spec);
  if (!bad) printf("%s: inputs %016" PRIx64 "\n", line, hash_of(&file, 0));
  int64_t inputs = file.num_tensors;
  for (int b = 0; b < count && !bad; b++) {
    m3idx_context *ctx;
    if (m3idx_open(&ctx, &(m3idx_options){.backend = backends[b]}, why, sizeof why)) continue; /* port_smoke says so */
    bad = case_run(ctx, &file, true, why) != M3IDX_OK;
    if (!bad) printf("  %s outputs %016" PRIx64 "\n", backends[b], hash_of(&file, inputs));
    m3idx_close(ctx);
  }
  if (bad) fprintf(stderr, "%s: %s\n", line, why);
  case_file_free(&file);
  return bad;
}

int port_cases(const char *const *backends, int count) {
  static const char *const kinds[] = {"normal", "ties", "specials", "wide", "near"};
  static const char *const ops[] = {"--op decode --seq-lens 7,0,300 --decode-query-len 2 --local 1 --sparse-table 1",
                                    "--op prefill --q-lens 2,3 --prefix-lens 40,0 --block-size 16 --scale 0.3"};
  char line[512];
  for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
    for (int q = 0; q < M3IDX_DTYPE_COUNT; q++)
      for (int op = 0; op < 2; op++) {
        int k = (q + (int)kind + 3 * op) % M3IDX_DTYPE_COUNT;
        snprintf(line, sizeof line, "%s --head-dim 16 --topk 3 --q-dtype %s --k-dtype %s --data %s --seed %d", ops[op],
                 m3idx_dtype_name((m3idx_dtype)q), m3idx_dtype_name((m3idx_dtype)k), kinds[kind], q);
        if (run_case(line, backends, count)) return 1;
      }
    snprintf(line, sizeof line, "--op select --num-blocks 0,5,300 --contract aiter --data %s", kinds[kind]);
    if (run_case(line, backends, count)) return 1;
  }
  return 0;
}
