/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx policy: the launch policies (S8), from shape constants and capacity, as text or one JSON object with the
 * fields in the order SEMANTICS gives them.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

typedef enum input {
  MAX_BLOCK,
  ROWS,
  HEADS,
  TOPK,
  REQS,
  HEAD_DIM,
  MAX_QUERY_LEN,
  MAX_SEQ_LEN,
  COMPUTE_UNITS,
  Q_DTYPE,
  K_DTYPE,
  ARCH,
  INPUTS
} input;

/* What was given: numbers as they are, formats and architectures as their enumerators. */
typedef struct inputs {
  int64_t value[INPUTS];
  bool given[INPUTS];
} inputs;

static const struct {
  const char *key, *arg, *help;
} keys[INPUTS] = {
    {"max-block", "N", "capacity in blocks"},
    {"rows", "N", "query rows"},
    {"heads", "N", "index heads"},
    {"topk", "N", "blocks to select"},
    {"reqs", "N", "requests"},
    {"head-dim", "N", "head dim"},
    {"max-query-len", "N", "query rows of the longest request"},
    {"max-seq-len", "N", "keys of the longest request"},
    {"compute-units", "N", "compute units of the device"},
    {"q-dtype", "FORMAT", "f32, f16, bf16, e4m3fn, e4m3fnuz, e5m2 or e5m2fnuz"},
    {"k-dtype", "FORMAT", "the same set, for the index keys"},
    {"arch", "NAME", "gfx942 or gfx950; any other name is neither"},
};

/* NULL = an argument out of its bounds, which the checks before have ruled out. */
static json_t *decode_topk(const int64_t *v) {
  m3idx_decode_topk_geometry g;
  if (m3idx_decode_topk_policy(v[MAX_BLOCK], v[ROWS], v[HEADS], v[TOPK], (m3idx_arch)v[ARCH], &g)) return NULL;
  return json_pack("{s:I, s:I, s:I, s:I, s:b, s:b}", "chunks", (json_int_t)g.chunks, "block", (json_int_t)g.block,
                   "warps", (json_int_t)g.warps, "stages", (json_int_t)g.stages, "single_tile", g.single_tile,
                   "adaptive_merge", g.adaptive_merge);
}

static json_t *decode_score(const int64_t *v) {
  m3idx_decode_score_geometry g;
  if (m3idx_decode_score_split(v[REQS], v[HEAD_DIM], (m3idx_dtype)v[Q_DTYPE], (m3idx_dtype)v[K_DTYPE],
                               (m3idx_arch)v[ARCH], &g))
    return NULL;
  return json_pack("{s:I, s:b}", "chunks", (json_int_t)g.chunks, "high_batch", g.high_batch);
}

static json_t *decode_budget(const int64_t *v) {
  int64_t budget;
  if (m3idx_decode_score_budget(v[REQS], v[HEAD_DIM], (m3idx_dtype)v[Q_DTYPE], (m3idx_dtype)v[K_DTYPE],
                                (m3idx_arch)v[ARCH], &budget))
    return NULL;
  return budget ? json_pack("{s:I}", "budget", (json_int_t)budget) : json_pack("{s:n}", "budget");
}

static json_t *prefill_score(const int64_t *v) {
  m3idx_prefill_score_geometry g;
  if (m3idx_prefill_score_policy(v[MAX_QUERY_LEN], v[MAX_SEQ_LEN], v[REQS], v[HEADS], v[COMPUTE_UNITS],
                                 (m3idx_arch)v[ARCH], &g))
    return NULL;
  return json_pack("{s:I, s:I}", "block_q", (json_int_t)g.block_q, "splits", (json_int_t)g.splits);
}

#define BIT(x) (1u << (x))
enum { SCORE_INPUTS = BIT(REQS) | BIT(HEAD_DIM) | BIT(Q_DTYPE) | BIT(K_DTYPE) | BIT(ARCH) };

static const struct {
  const char *name;
  unsigned needs;
  json_t *(*evaluate)(const int64_t *values);
} policies[] = {
    {"decode-topk", BIT(MAX_BLOCK) | BIT(ROWS) | BIT(HEADS) | BIT(TOPK) | BIT(ARCH), decode_topk},
    {"decode-score", SCORE_INPUTS, decode_score},
    {"decode-budget", SCORE_INPUTS, decode_budget},
    {"prefill-score", BIT(MAX_QUERY_LEN) | BIT(MAX_SEQ_LEN) | BIT(REQS) | BIT(HEADS) | BIT(COMPUTE_UNITS) | BIT(ARCH),
     prefill_score},
};
enum { POLICIES = sizeof policies / sizeof *policies };

static void more_help(FILE *out) {
  fputs("\nWhat each policy needs:\n", out);
  for (int p = 0; p < POLICIES; p++) {
    fprintf(out, "  %-14s", policies[p].name);
    for (int i = 0; i < INPUTS; i++)
      if (policies[p].needs & BIT(i)) fprintf(out, " --%s", keys[i].key);
    fputc('\n', out);
  }
}

/* One option's text to its value; EXIT_OK or a message. */
static int take(const char *verb, inputs *in, input key, const char *text) {
  m3idx_dtype dtype;
  if (in->given[key]) return tool_fail(verb, EXIT_USAGE, "--%s: given twice", keys[key].key);
  in->given[key] = true;
  if (key == ARCH) {
    in->value[key] = m3idx_arch_by_name(text);
    return EXIT_OK;
  }
  if (key == Q_DTYPE || key == K_DTYPE) {
    if (m3idx_dtype_by_name(text, &dtype))
      return tool_fail(verb, EXIT_USAGE, "--%s %s: must be f32, f16, bf16, e4m3fn, e4m3fnuz, e5m2 or e5m2fnuz",
                       keys[key].key, text);
    in->value[key] = dtype;
    return EXIT_OK;
  }
  int value = 0, status = tool_integer(verb, keys[key].key, text, key == COMPUTE_UNITS, INT32_MAX, &value);
  in->value[key] = value;
  return status;
}

static void print(const json_t *object, bool json) {
  const char *key;
  json_t *value;
  if (json) {
    if (json_dumpf(object, stdout, JSON_PRESERVE_ORDER) == 0) putchar('\n');
    return;
  }
  const char *gap = "";
  json_object_foreach((json_t *)object, key, value) {
    printf("%s%s=", gap, key);
    if (json_is_integer(value))
      printf("%lld", (long long)json_integer_value(value));
    else
      fputs(json_is_null(value) ? "none" : json_is_true(value) ? "true" : "false", stdout);
    gap = " ";
  }
  putchar('\n');
}

static int policy(const char *verb, const inputs *in, const char *name, bool json) {
  int p = 0;
  while (p < POLICIES && strcmp(name, policies[p].name) != 0) p++;
  if (p == POLICIES)
    return tool_fail(verb, EXIT_USAGE, "%s: must be decode-topk, decode-score, decode-budget or prefill-score", name);
  for (int i = 0; i < INPUTS; i++) {
    bool needed = policies[p].needs & BIT(i);
    if (needed && !in->given[i]) return tool_fail(verb, EXIT_USAGE, "--%s: missing, %s needs it", keys[i].key, name);
    if (!needed && in->given[i]) return tool_fail(verb, EXIT_USAGE, "--%s: means nothing to %s", keys[i].key, name);
  }
  json_t *result = policies[p].evaluate(in->value);
  if (!result) return tool_fail(verb, EXIT_USAGE, "%s: %s", name, m3idx_status_name(M3IDX_INVALID));
  print(result, json);
  json_decref(result);
  return EXIT_OK;
}

int verb_policy(int argc, const char **argv) {
  enum { JSON = TOOL_FIRST_OPTION, FIRST_INPUT };
  struct poptOption options[INPUTS + 3] = {{"json", 'j', POPT_ARG_NONE, NULL, JSON, "print one JSON object", NULL},
                                           TOOL_HELP_OPTION};
  for (int i = 0; i < INPUTS; i++)
    options[2 + i] =
        (struct poptOption){keys[i].key, 0, POPT_ARG_STRING, NULL, FIRST_INPUT + i, keys[i].help, keys[i].arg};
  tool_args a;
  inputs in = {{0}, {0}};
  bool json = false;
  tool_begin(&a, argc, argv, options, "decode-topk|decode-score|decode-budget|prefill-score", more_help);
  a.noun = "policy";
  for (int val, status = EXIT_OK; status == EXIT_OK && (val = tool_next(&a, 1)) >= 0;) {
    char *text = poptGetOptArg(a.popt);
    if (val == JSON)
      json = true;
    else
      a.status = status = take(argv[0], &in, (input)(val - FIRST_INPUT), text);
    free(text);
  }
  if (!tool_leave(&a)) a.status = policy(argv[0], &in, a.files[0], json);
  tool_end(&a);
  return a.status;
}
