/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx digest: one SHA-256 for each output tensor, over its dense little-endian bytes (docs/CASES.md, "Digests").
 */
#include <nettle/sha2.h>

#include "tool.h"

static int update(void *user, const void *bytes, size_t n) {
  sha256_update(user, n, bytes);
  return 0;
}

static int digest(const char *verb, const char *path) {
  char why[CASE_MESSAGE_BYTES];
  m3idx_case view;
  case_file file;
  int outputs = 0, status = tool_read(verb, path, &file);
  if (status) return status;
  if (case_view(&file, &view, why)) {
    status = tool_fail(verb, EXIT_USAGE, "%s: %s", path, why);
  } else {
    const char *name;
    for (int i = 0; (name = tool_output_name(view.op, i)); i++) {
      const case_tensor *t = case_find(&file, name);
      struct sha256_ctx sha;
      uint8_t sum[SHA256_DIGEST_SIZE];
      if (!t) continue;
      sha256_init(&sha);
      case_tensor_le(t, update, &sha);
      sha256_digest(&sha, sizeof sum, sum);
      for (size_t b = 0; b < sizeof sum; b++) printf("%02x", sum[b]);
      printf("  %s\n", name);
      outputs++;
    }
    if (!outputs) status = tool_fail(verb, EXIT_USAGE, "%s: has no outputs; m3idx run makes them", path);
  }
  case_file_free(&file);
  return status;
}

int verb_digest(int argc, const char **argv) {
  const struct poptOption options[] = {TOOL_HELP_OPTION, POPT_TABLEEND};
  tool_args a;
  tool_begin(&a, argc, argv, options, "GOLDEN", NULL);
  if (tool_next(&a, 1) < 0 && !tool_leave(&a)) a.status = digest(argv[0], a.files[0]);
  tool_end(&a);
  return a.status;
}
