/* SPDX-License-Identifier: Apache-2.0
 *
 * Case files from any bytes: the header's length, its JSON, offsets, shapes and metadata.  What parses is written and
 * read again as the same; what is also a case runs, or is refused with a sentence, and never reads past its tensors.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "casefile.h"
#include "fuzz_kit.h"

static void judge_same(const case_file *a, const case_file *b) {
  FUZZ_REQUIRE(a->num_tensors == b->num_tensors && a->num_metadata == b->num_metadata, "%lld tensors became %lld",
               (long long)a->num_tensors, (long long)b->num_tensors);
  for (int64_t i = 0; i < a->num_tensors; i++) {
    const case_tensor *x = &a->tensors[i], *y = case_find(b, x->name);
    FUZZ_REQUIRE(y && x->dtype == y->dtype && x->rank == y->rank && x->bytes == y->bytes, "tensor %s", x->name);
    for (int d = 0; d < x->rank; d++) FUZZ_REQUIRE(x->shape[d] == y->shape[d], "tensor %s: shape[%d]", x->name, d);
    fuzz_same(x->name, x->data, y->data, x->bytes, 1);
  }
  for (int64_t i = 0; i < a->num_metadata; i++) {
    const char *value = case_metadata(b, a->metadata[i].key);
    FUZZ_REQUIRE(value && strcmp(value, a->metadata[i].value) == 0, "metadata %s", a->metadata[i].key);
  }
}

/* A name of this process's own, in memory where the system has such a place. */
static const char *scratch(void) {
  static char path[64];
  if (!path[0])
    snprintf(path, sizeof path, "%s/m3idx-fuzz-%ld.safetensors", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
             (long)getpid());
  return path;
}

/* Multiplications of a run. */
static bool is_small(const m3idx_case *c) {
  const int64_t factors[] = {c->T, c->H, c->M, c->op == CASE_SELECT ? c->K : c->B, c->op == CASE_SELECT ? 1 : c->D};
  int64_t product = 1;
  for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
    if (factors[i] > 1 << 16) return false;
    product *= factors[i] ? factors[i] : 1;
    if (product > 1 << 20) return false;
  }
  return c->R < 1 << 10;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_file file, again;
  m3idx_case view;
  if (casefile_parse(data, size, &file, why)) {
    FUZZ_REQUIRE(why[0] && file.num_tensors == 0 && !file.tensors, "a refusal without a sentence, or with tensors");
    return 0;
  }
  FUZZ_REQUIRE(casefile_write(scratch(), &file, why) == 0, "%s", why);
  FUZZ_REQUIRE(casefile_read(scratch(), &again, why) == 0, "what was written cannot be read: %s", why);
  remove(scratch());
  judge_same(&file, &again);
  case_file_free(&again);
  why[0] = 0;
  if (case_view(&file, &view, why)) {
    FUZZ_REQUIRE(why[0], "a refusal without a sentence");
  } else if (is_small(&view)) {
    for (int staged = 0; staged < 2; staged++) {
      const m3idx_status ref = case_run(fuzz_context(0), &file, staged != 0, why);
      const m3idx_status cpu = case_run(fuzz_context(1), &file, staged != 0, why);
      FUZZ_REQUIRE(ref == cpu, "ref %d, cpu %d: %s", (int)ref, (int)cpu, why);
      FUZZ_REQUIRE(ref == M3IDX_OK || why[0], "a refusal without a sentence");
    }
  }
  case_file_free(&file);
  return 0;
}
