/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines with fixed options (fuzz_fix.h).
 */
#include "fuzz_fix.h"

#include <string.h>

#include "casefail.h"

/* A line or a fix as its words: options and values by turns. */
enum { MOST_WORDS = 128, TEXT_BYTES = FUZZ_LINE_BYTES };
typedef struct words {
  char text[TEXT_BYTES];
  const char *word[MOST_WORDS];
  int count;
} words;

static bool split(const char *text, words *out) {
  out->count = 0;
  if (strlen(text) >= sizeof out->text) return false;
  strcpy(out->text, text);
  for (char *at = out->text + strspn(out->text, " "); *at; at += strspn(at, " ")) {
    if (out->count == MOST_WORDS) return false;
    out->word[out->count++] = at;
    at += strcspn(at, " ");
    if (*at) *at++ = 0;
  }
  return out->count % 2 == 0;
}

/* The ops that a word means something to as an option; 0 = it is none. */
static unsigned ops_of(const char *word) {
  for (int i = 0; !strncmp(word, "--", 2) && case_spec_option(i); i++)
    if (!strcmp(word + 2, case_spec_option(i))) return case_spec_option_ops(i);
  return 0;
}

int fuzz_fix_check(const char *fix, char *why) {
  words w;
  if (!split(fix, &w) || !w.count)
    return case_fail(why, "--fix %.80s: must be options of a case line with values", fix);
  for (int i = 0; i < w.count; i += 2) {
    if (!ops_of(w.word[i])) return case_fail(why, "--fix: %.80s: no option of a case line", w.word[i]);
    for (int j = 0; j < i; j += 2)
      if (!strcmp(w.word[i], w.word[j])) return case_fail(why, "--fix: %.80s: given twice", w.word[i]);
  }
  return 0;
}

static bool has(const words *w, const char *option) {
  for (int i = 0; i < w->count; i += 2)
    if (!strcmp(w->word[i], option)) return true;
  return false;
}

/* The options of `line` that `fix` and `without` do not name, then those of `fix` that its op has. */
static bool compose(const words *line, case_op op, const words *fix, const char *const *without, char *out,
                    size_t bytes) {
  size_t n = 0;
  for (int i = 0; i < line->count; i += 2) {
    bool keep = !has(fix, line->word[i]);
    for (int j = 0; without[j]; j++) keep = keep && strcmp(without[j], line->word[i]) != 0;
    if (keep) n += (size_t)snprintf(out + n, bytes - n, "%s%s %s", n ? " " : "", line->word[i], line->word[i + 1]);
    if (n >= bytes) return false;
  }
  for (int i = 0; i < fix->count; i += 2) {
    if (!(ops_of(fix->word[i]) >> op & 1)) continue;
    n += (size_t)snprintf(out + n, bytes - n, "%s%s %s", n ? " " : "", fix->word[i], fix->word[i + 1]);
    if (n >= bytes) return false;
  }
  return true;
}

/* Products of a scorer's dots; 0 for a selection, -1 for no line. */
static double products_of(const char *text) {
  char why[CASE_MESSAGE_BYTES];
  case_spec s;
  double pairs = 0;
  if (case_spec_parse_line(text, &s, why)) return -1;
  for (int64_t r = 0; s.op != CASE_SELECT && r < s.num_requests; r++)
    pairs += (double)s.seq_lens[r] * (double)(s.op == CASE_PREFILL ? s.q_lens[r] : s.decode_query_len);
  pairs *= (double)(s.heads * s.head_dim);
  case_spec_free(&s);
  return pairs;
}

/* Lines are bounded as they are drawn: a fix must not make each as large as the few largest. */
static bool makes_sense(const char *text, const char *drawn) {
  enum { ENOUGH = 1000000 };
  char why[CASE_MESSAGE_BYTES];
  case_spec spec;
  const double products = products_of(text);
  if (products < 0 || (products > ENOUGH && products > products_of(drawn))) return false;
  if (case_spec_parse_line(text, &spec, why)) return false;
  /* What single elements need is known only once the tensors are there. */
  case_file file = {0};
  const bool good = !spec.num_puts || !case_generate(&spec, &file, why);
  case_file_free(&file);
  case_spec_free(&spec);
  return good;
}

bool fuzz_fix_line(fuzz_line *line, const char *fix) {
  static const char *const steps[][5] = {{NULL},
                                         {"--put"},
                                         {"--put", "--sparse-table", "--attention-table"},
                                         {"--put", "--sparse-table", "--attention-table", "--max-block"}};
  words ours, theirs;
  char text[FUZZ_LINE_BYTES];
  if (!split(line->text, &ours) || !split(fix, &theirs)) return false;
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    if (!compose(&ours, line->op, &theirs, steps[i], text, sizeof text) || !makes_sense(text, line->text)) continue;
    memcpy(line->text, text, sizeof text);
    return true;
  }
  return false;
}
