/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx gen: a case file from a case line.  Its options are the line's own (case_spec_option) and where to write.
 */
#include <stdlib.h>

#include "tool.h"

enum { OUTPUT = TOOL_FIRST_OPTION, QUIET, FIRST_CASE_OPTION, MAX_OPTIONS = 64 };

static void more_help(FILE *out) {
  fputs("\nThe case line (a LIST is values with commas; 8192x32 repeats 8192 thirty-two times):\n", out);
  case_spec_help(out);
}

/* The words of a case line as popt found them, owned. */
typedef struct line {
  char *words[2 * MAX_OPTIONS];
  int count;
} line;

static int add_word(line *l, const char *prefix, const char *word) {
  size_t bytes = 3;
  for (const char *c = word; *c; c++) bytes++;
  if (l->count == 2 * MAX_OPTIONS || !(l->words[l->count] = malloc(bytes))) return -1;
  snprintf(l->words[l->count++], bytes, "%s%s", prefix, word);
  return 0;
}

static int generate(const char *verb, const line *l, const char *output, bool quiet) {
  char why[CASE_MESSAGE_BYTES];
  case_spec spec;
  case_file file;
  if (case_spec_parse(l->count, (const char *const *)l->words, &spec, why))
    return tool_fail(verb, EXIT_USAGE, "%s", why);
  progress_begin("generating", quiet);
  const m3idx_status made = case_generate(&spec, &file, why);
  int status = made ? tool_exit_status(made) : tool_write(verb, output, &file);
  progress_end();
  if (made) tool_fail(verb, status, "%s", why);
  case_spec_free(&spec);
  case_file_free(&file);
  return status;
}

int verb_gen(int argc, const char **argv) {
  struct poptOption options[MAX_OPTIONS] = {
      {"output", 'o', POPT_ARG_STRING, NULL, OUTPUT, "where to write the case; needed", "FILE"},
      {"quiet", 'q', POPT_ARG_NONE, NULL, QUIET, "no progress", NULL},
      TOOL_HELP_OPTION,
  };
  int count = 3;
  for (int i = 0; case_spec_option(i) && count < MAX_OPTIONS - 1; i++)
    options[count++] = (struct poptOption){
        case_spec_option(i), 0, POPT_ARG_STRING | POPT_ARGFLAG_DOC_HIDDEN, NULL, FIRST_CASE_OPTION + i, NULL, NULL};
  tool_args a;
  line l = {.count = 0};
  char *output = NULL;
  bool quiet = false;
  tool_begin(&a, argc, argv, options, "--op OP [CASE OPTION...] -o FILE", more_help);
  for (int val, bad = 0; !bad && (val = tool_next(&a, 0)) >= 0;) {
    char *value = poptGetOptArg(a.popt);
    if (val == OUTPUT) {
      free(output);
      output = value;
      value = NULL;
    } else if (val == QUIET) {
      quiet = true;
    } else if (add_word(&l, "--", case_spec_option(val - FIRST_CASE_OPTION)) || add_word(&l, "", value)) {
      a.status = bad = tool_fail(argv[0], EXIT_USAGE, "too many options");
    }
    free(value);
  }
  if (!tool_leave(&a))
    a.status = output ? generate(argv[0], &l, output, quiet)
                      : tool_fail(argv[0], EXIT_USAGE, "-o: missing, where to write the case");
  while (l.count) free(l.words[--l.count]);
  free(output);
  tool_end(&a);
  return a.status;
}
