/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether two files hold the same case: every decoded metadata field and every input tensor.
 */
#include <string.h>

#include "casefail.h"
#include "verify.h"

static int same_numbers(const m3idx_case *g, const m3idx_case *o, char *why) {
  const struct {
    const char *name;
    int64_t golden, other;
  } fields[] = {
      {"topk", g->K, o->K},
      {"max_block", g->M, o->M},
      {"init_blocks", g->init_blocks, o->init_blocks},
      {"local_blocks", g->local_blocks, o->local_blocks},
      {"decode_query_len", g->decode_query_len, o->decode_query_len},
      {"page_stride", g->page_stride, o->page_stride},
      {"sparse_table", g->sparse_table, o->sparse_table},
  };
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (fields[i].golden != fields[i].other)
      return case_fail(why, "metadata %s: %lld, the golden has %lld", fields[i].name, (long long)fields[i].other,
                       (long long)fields[i].golden);
  return 0;
}

static int same_words(const m3idx_case *g, const m3idx_case *o, char *why) {
  char golden[96], other[96];
  if (g->op != o->op)
    return case_fail(why, "metadata op: %s, the golden has %s", case_op_name(o->op), case_op_name(g->op));
  m3idx_contract_name(&g->contract, golden, sizeof golden);
  m3idx_contract_name(&o->contract, other, sizeof other);
  if (strcmp(golden, other) != 0) return case_fail(why, "metadata contract: %s, the golden has %s", other, golden);
  if (memcmp(&g->scale, &o->scale, sizeof g->scale) != 0)
    return case_fail(why, "metadata scale: %.9g, the golden has %.9g", (double)o->scale, (double)g->scale);
  if (g->op == CASE_SELECT) return 0;
  if (g->q_dtype != o->q_dtype)
    return case_fail(why, "q: numbers are %s, the golden's %s", m3idx_dtype_name(o->q_dtype),
                     m3idx_dtype_name(g->q_dtype));
  if (g->k_dtype != o->k_dtype)
    return case_fail(why, "index_k: numbers are %s, the golden's %s", m3idx_dtype_name(o->k_dtype),
                     m3idx_dtype_name(g->k_dtype));
  return 0;
}

/* One input; an absent one is as good as the golden's absent one. */
static int same_tensor(const case_file *golden, const case_file *other, const char *name, char *why) {
  const case_tensor *g = case_find(golden, name), *o = case_find(other, name);
  if (!g && !o) return 0;
  if (!g || !o) return case_fail(why, "tensor %s: only in %s", name, g ? "the golden" : "the other file");
  if (g->rank != o->rank || memcmp(g->shape, o->shape, sizeof g->shape) != 0 || g->bytes != o->bytes)
    return case_fail(why, "tensor %s: not the golden's shape", name);
  if (memcmp(g->data, o->data, g->bytes) == 0) return 0;
  size_t at = 0;
  while (((const char *)g->data)[at] == ((const char *)o->data)[at]) at++;
  return case_fail(why, "tensor %s: element %zu is not the golden's", name, at / case_dtype_bytes(g->dtype));
}

int verify_inputs(const case_file *golden, const m3idx_case *g, const case_file *other, const m3idx_case *o,
                  char *why) {
  static const char *const attention[] = {"q",        "index_k",    "block_table", "attention_block_table",
                                          "seq_lens", "cu_seqlens", "prefix_lens", NULL};
  static const char *const select[] = {"score", "num_blocks", NULL};
  if (same_words(g, o, why) || same_numbers(g, o, why)) return -1;
  for (const char *const *name = g->op == CASE_SELECT ? select : attention; *name; name++)
    if (same_tensor(golden, other, *name, why)) return -1;
  return 0;
}
