/* SPDX-License-Identifier: Apache-2.0
 *
 * Case lines from any text: a line that parses has a canonical form that parses to the same, and a small one makes a
 * case that is good, runs on ref and cpu alike, staged and fused; one that does not parse gets a sentence, and so does
 * one whose list is longer than lists may be.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "fuzz_kit.h"

/* Elements of what a line would have generated and computed; a few milliseconds at most. */
static bool is_small(const case_spec *s) {
  enum { MOST = 1 << 13 };
  const int64_t blocks = s->max_block ? s->max_block : case_spec_least_blocks(s);
  if (s->num_rows > 16 || s->num_requests > 16 || s->heads > 4 || blocks > 300) return false;
  if (s->op == CASE_SELECT) return true;
  int64_t live = 0;
  for (int64_t r = 0; r < s->num_requests; r++) live += s->seq_lens[r] / s->block_size + 1;
  const int64_t pages = s->num_pages ? s->num_pages : live;
  return pages <= 8 && pages * s->block_size * s->head_dim <= MOST * 4 &&
         s->num_rows * s->heads * blocks * s->block_size * s->head_dim <= MOST * 16;
}

static bool same_bytes(const case_tensor *a, const case_tensor *b) {
  return !a == !b && (!a || (a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0));
}

/* topk_idx of ref's staged run is every other run's. */
static void judge_runs(case_file *file, const char *line) {
  char why[CASE_MESSAGE_BYTES];
  case_file want = {0};
  for (int i = 0; fuzz_context(i); i++)
    for (int staged = 1; staged >= 0; staged--) {
      static const char *const names[] = {"topk_idx", "sparse_block_table", "sparse_context_lens", "score"};
      const m3idx_status status = case_run(fuzz_context(i), file, staged != 0, why);
      FUZZ_REQUIRE(status == M3IDX_OK, "%s: %s", line, why);
      for (int n = 0; n < 3 + staged; n++) {
        const case_tensor *got = case_find(file, names[n]);
        if (i == 0 && staged && got && strcmp(names[n], "score") != 0) {
          case_tensor *kept = case_add_tensor(&want, names[n], got->dtype, got->rank, got->shape);
          FUZZ_REQUIRE(kept != NULL, "no memory");
          memcpy(kept->data, got->data, got->bytes);
        }
        if (strcmp(names[n], "score") != 0)
          FUZZ_REQUIRE(same_bytes(case_find(&want, names[n]), got), "%s: %s differs on %s", line, names[n],
                       m3idx_backend_details(fuzz_context(i)));
      }
    }
  case_file_free(&want);
}

/* A list of CASE_MAX_LIST entries and then those of the line: one and all they are too many. */
static void refuse_longer(const char *line) {
  static const char *const lists[] = {"--q-lens ", "--prefix-lens ", "--seq-lens ", "--num-blocks "};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    const char *at = strstr(line, lists[i]);
    if (!at) continue;
    char why[CASE_MESSAGE_BYTES] = "", *longer = malloc(strlen(line) + 32);
    case_spec spec;
    FUZZ_REQUIRE(longer != NULL, "no memory");
    const int before = (int)(at - line + (ptrdiff_t)strlen(lists[i]));
    sprintf(longer, "%.*s1x%d,%s", before, line, CASE_MAX_LIST, line + before);
    FUZZ_REQUIRE(case_spec_parse_line(longer, &spec, why) != 0 && why[0], "%s parses", longer);
    free(longer);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char why[CASE_MESSAGE_BYTES] = "", *line = malloc(size + 1);
  case_spec spec, again;
  FUZZ_REQUIRE(line != NULL, "no memory");
  memcpy(line, data, size);
  line[size] = 0;
  if (case_spec_parse_line(line, &spec, why)) {
    FUZZ_REQUIRE(why[0] && strlen(why) < CASE_MESSAGE_BYTES, "a refusal without a sentence");
    free(line);
    return 0;
  }
  char *canonical = case_spec_format(&spec);
  FUZZ_REQUIRE(canonical != NULL, "no canonical form");
  FUZZ_REQUIRE(case_spec_parse_line(canonical, &again, why) == 0, "%s does not parse: %s", canonical, why);
  char *twice = case_spec_format(&again);
  FUZZ_REQUIRE(twice && strcmp(canonical, twice) == 0, "%s became %s", canonical, twice);
  FUZZ_REQUIRE(again.num_rows == spec.num_rows && again.num_requests == spec.num_requests && again.seed == spec.seed &&
                   memcmp(&again.scale, &spec.scale, sizeof spec.scale) == 0,
               "%s means something else", canonical);
  refuse_longer(canonical);
  if (is_small(&spec)) {
    case_file file;
    m3idx_case view;
    FUZZ_REQUIRE(case_generate(&spec, &file, why) == 0, "%s: %s", canonical, why);
    FUZZ_REQUIRE(case_view(&file, &view, why) == 0, "%s: %s", canonical, why);
    FUZZ_REQUIRE(view.T == spec.num_rows && view.H == spec.heads && view.K == spec.topk, "%s: shapes", canonical);
    judge_runs(&file, canonical);
    case_file_free(&file);
  }
  free(twice);
  free(canonical);
  case_spec_free(&again);
  case_spec_free(&spec);
  free(line);
  return 0;
}
