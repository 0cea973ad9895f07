/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx verify: the outputs of one file against those of a golden, byte for byte; then, for a person, where and
 * how they differ.  The verdict is memcmp; the explanation fits one screen.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"
#include "verify.h"

enum { QUIET = TOOL_FIRST_OPTION };

/* Both files, their views, and one output of both. */
typedef struct pair {
  const char *path[2];
  case_file file[2];
  m3idx_case view[2];
} pair;

/* ---- whether there is anything to compare ---- */

static int view_both(const char *verb, pair *p) {
  char why[CASE_MESSAGE_BYTES];
  for (int i = 0; i < 2; i++)
    if (case_view(&p->file[i], &p->view[i], why)) return tool_fail(verb, EXIT_USAGE, "%s: %s", p->path[i], why);
  if (verify_inputs(&p->file[0], &p->view[0], &p->file[1], &p->view[1], why))
    return tool_fail(verb, EXIT_USAGE, "%s: another case: %s", p->path[1], why);
  return EXIT_OK;
}

/* An output must have the type and shape that its case gives it (docs/CASES.md). */
static int check_shape(const char *verb, const char *path, const m3idx_case *c, const char *name,
                       const case_tensor *t) {
  bool score = !strcmp(name, "score"), topk = !strcmp(name, "topk_idx"), table = !strcmp(name, "sparse_block_table");
  const int64_t dense[3] = {c->H, c->T, score ? c->M : c->K}, rows[3] = {c->T * c->H, table ? 8 * c->K : 0, 0};
  const int64_t *want = score || topk ? dense : rows;
  int rank = score || topk ? 3 : table ? 2 : 1;
  bool same = t->rank == rank && t->dtype == (score ? CASE_F32 : CASE_I32);
  for (int i = 0; i < rank; i++) same = same && t->shape[i] == want[i];
  if (same) return EXIT_OK;
  char shape[80] = "";
  for (int i = 0, n = 0; i < rank; i++)
    n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%lld", i ? ", " : "", (long long)want[i]);
  return tool_fail(verb, EXIT_USAGE, "%s: tensor %s: must be %s [%s]", path, name, score ? "F32" : "I32", shape);
}

static int check_outputs(const char *verb, const pair *p, int *outputs) {
  const char *name;
  for (int i = 0; (name = tool_output_name(p->view[0].op, i)); i++) {
    const case_tensor *golden = case_find(&p->file[0], name), *other = case_find(&p->file[1], name);
    if (!golden) continue;
    ++*outputs;
    if (check_shape(verb, p->path[0], &p->view[0], name, golden)) return EXIT_USAGE;
    if (!other) return tool_fail(verb, EXIT_USAGE, "%s: tensor %s: missing, the golden has it", p->path[1], name);
    if (check_shape(verb, p->path[1], &p->view[0], name, other)) return EXIT_USAGE;
  }
  if (*outputs) return EXIT_OK;
  return tool_fail(verb, EXIT_USAGE, "%s: has no outputs; m3idx run makes them", p->path[0]);
}

/* ---- how elements differ ---- */

static void print_index(const case_tensor *t, int64_t at) {
  int64_t index[CASE_MAX_RANK] = {0};
  for (int i = t->rank - 1; i >= 0; i--) {
    index[i] = at % t->shape[i];
    at /= t->shape[i];
  }
  for (int i = 0; i < t->rank; i++) printf("[%lld]", (long long)index[i]);
}

static void print_element(const char *when, const case_tensor *want, const case_tensor *got, int64_t at) {
  uint32_t a, b;
  memcpy(&a, (const char *)want->data + 4 * at, sizeof a);
  memcpy(&b, (const char *)got->data + 4 * at, sizeof b);
  printf("  %s ", when);
  print_index(want, at);
  if (want->dtype == CASE_I32) {
    printf(": want %ld, got %ld\n", (long)((const int32_t *)want->data)[at], (long)((const int32_t *)got->data)[at]);
    return;
  }
  float x, y;
  memcpy(&x, &a, sizeof x);
  memcpy(&y, &b, sizeof y);
  printf(": want 0x%08lx (%.9g), got 0x%08lx (%.9g)", (unsigned long)a, (double)x, (unsigned long)b, (double)y);
  if (isnan(x) || isnan(y))
    puts(isnan(x) && isnan(y) ? ", NaN of other bits" : "");
  else
    printf(", %lld ulp\n", (long long)verify_ulps(x, y));
}

/* Kinds of differing scores; a person mends roundings and bits elsewhere than wrong sums. */
static void explain_scores(const case_tensor *want, const case_tensor *got) {
  int64_t n = (int64_t)(want->bytes / 4), rounded = 0, zeros = 0, nans = 0, off = 0, most = 0;
  for (int64_t i = 0; i < n; i++) {
    float x = ((const float *)want->data)[i], y = ((const float *)got->data)[i];
    if (memcmp(&x, &y, sizeof x) == 0) continue;
    if (isnan(x) || isnan(y)) {
      if (isnan(x) && isnan(y))
        nans++;
      else
        off++;
      continue;
    }
    int64_t ulps = verify_ulps(x, y);
    zeros += ulps == 0;
    rounded += ulps == 1;
    off += ulps > 1;
    if (ulps > most) most = ulps;
  }
  printf("  roundings (1 ulp) %lld, signs of zero %lld, bits of NaN %lld, wrong %lld", (long long)rounded,
         (long long)zeros, (long long)nans, (long long)off);
  if (most > 1) printf(" (up to %lld ulp)", (long long)most);
  putchar('\n');
}

/* Rows of each class, with the first few of them. */
static void explain_rows(const pair *p, const case_tensor *want, const case_tensor *got) {
  enum { SHOWN = 4 };
  static const char *const names[ROW_CLASSES] = {
      "same", "only ties", "only order", "only roundings (1 ulp)", "of a kind that only scores could tell", "wrong"};
  const m3idx_case *c = &p->view[0];
  const case_tensor *score = case_find(&p->file[0], "score");
  int64_t count[ROW_CLASSES] = {0}, shown[ROW_CLASSES][SHOWN];
  char why[CASE_MESSAGE_BYTES], first_why[CASE_MESSAGE_BYTES] = "";
  for (int64_t row = 0; row < c->H * c->T; row++) {
    row_class class =
        verify_row(c, score ? score->data : NULL, row / c->T, row % c->T, (const int32_t *)want->data + row * c->K,
                   (const int32_t *)got->data + row * c->K, why);
    if (class == ROW_WRONG && !count[class]) memcpy(first_why, why, sizeof why);
    if (count[class] < SHOWN) shown[class][count[class]] = row;
    count[class]++;
  }
  for (int class = ROW_WRONG; class > ROW_SAME; class --) {
    if (!count[class]) continue;
    printf("  rows %s: %lld of %lld, [h][t]", names[class], (long long)count[class], (long long)(c->H * c->T));
    for (int64_t i = 0; i < count[class] && i < SHOWN; i++)
      printf(" [%lld][%lld]", (long long)(shown[class][i] / c->T), (long long)(shown[class][i] % c->T));
    puts(count[class] > SHOWN ? " ..." : "");
    if (class == ROW_WRONG) printf("    first: %s\n", first_why);
  }
}

/* Rows of a sparse tensor, and whether the selection they come from differs too (row = t*H + h). */
static void explain_sparse(const pair *p, const case_tensor *want, const case_tensor *got) {
  const m3idx_case *c = &p->view[0];
  const case_tensor *a = case_find(&p->file[0], "topk_idx"), *b = case_find(&p->file[1], "topk_idx");
  int64_t rows = c->T * c->H, follow = 0, alone = 0;
  size_t row_bytes = want->bytes / (size_t)rows, k_bytes = (size_t)c->K * 4;
  for (int64_t row = 0; row < rows; row++) {
    size_t at = (size_t)row * row_bytes, k = (size_t)(row % c->H * c->T + row / c->H) * k_bytes;
    if (memcmp((const char *)want->data + at, (const char *)got->data + at, row_bytes) == 0) continue;
    if (a && b && memcmp((const char *)a->data + k, (const char *)b->data + k, k_bytes) != 0)
      follow++;
    else
      alone++;
  }
  printf("  rows that follow a differing topk_idx %lld, that differ on their own %lld\n", (long long)follow,
         (long long)alone);
}

static void explain(const pair *p, const char *name, const case_tensor *want, const case_tensor *got) {
  int64_t n = (int64_t)(want->bytes / 4), first = -1, last = -1, count = 0;
  for (int64_t i = 0; i < n; i++) {
    if (memcmp((const char *)want->data + 4 * i, (const char *)got->data + 4 * i, 4) == 0) continue;
    if (first < 0) first = i;
    last = i;
    count++;
  }
  printf("%s: %lld of %lld elements differ\n", name, (long long)count, (long long)n);
  print_element("first", want, got, first);
  if (last != first) print_element("last ", want, got, last);
  if (!strcmp(name, "score"))
    explain_scores(want, got);
  else if (!strcmp(name, "topk_idx"))
    explain_rows(p, want, got);
  else
    explain_sparse(p, want, got);
}

static int compare(const pair *p, bool quiet) {
  const char *name;
  int status = EXIT_OK;
  for (int i = 0; (name = tool_output_name(p->view[0].op, i)); i++) {
    const case_tensor *want = case_find(&p->file[0], name), *got = case_find(&p->file[1], name);
    if (!want) {
      if (got && !quiet) printf("%s: not in the golden, not compared\n", name);
    } else if (memcmp(want->data, got->data, want->bytes) != 0) {
      if (!quiet) explain(p, name, want, got);
      status = EXIT_DIFFERENT;
    } else if (!quiet) {
      printf("%s: same, %lld elements\n", name, (long long)(want->bytes / 4));
    }
  }
  return status;
}

int verify_files(const char *verb, const char *const path[2], const case_file file[2], bool quiet) {
  pair p = {.path = {path[0], path[1]}, .file = {file[0], file[1]}};
  int outputs = 0, status = view_both(verb, &p);
  if (!status) status = check_outputs(verb, &p, &outputs);
  return status ? status : compare(&p, quiet);
}

static int verify(const char *verb, const char *const *paths, bool quiet) {
  case_file files[2] = {{0}, {0}};
  int status = tool_read(verb, paths[0], &files[0]);
  if (!status) status = tool_read(verb, paths[1], &files[1]);
  if (!status) status = verify_files(verb, paths, files, quiet);
  for (int i = 0; i < 2; i++) case_file_free(&files[i]);
  return status;
}

int verb_verify(int argc, const char **argv) {
  bool quiet = false;
  const struct poptOption options[] = {
      {"quiet", 'q', POPT_ARG_NONE, NULL, QUIET, "say nothing of the outputs; the exit status is the verdict", NULL},
      TOOL_HELP_OPTION,
      POPT_TABLEEND,
  };
  tool_args a;
  tool_begin(&a, argc, argv, options, "GOLDEN OTHER", NULL);
  while (tool_next(&a, 2) >= 0) quiet = true;
  if (!tool_leave(&a)) a.status = verify(argv[0], a.files, quiet);
  tool_end(&a);
  return a.status;
}
