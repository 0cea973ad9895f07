/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx judge: another implementation's outputs, in three verdicts without tolerances (docs/JUDGE.md).
 */
#include <stdlib.h>
#include <string.h>

#include "judge.h"
#include "tool.h"

enum { ARITH = TOOL_FIRST_OPTION, K_BLOCK, FLUSH, CONTRACT, JSON, HTML, QUIET };

typedef struct judge_settings {
  judge_options options;
  char *html;
  bool json, quiet;
} judge_settings;

static int say(const char *verb, const judge_settings *s, const judge_report *r, const char *const *files) {
  char why[CASE_MESSAGE_BYTES];
  if (s->html && judge_html(r, files[0], files[1], s->html, why)) return tool_fail(verb, EXIT_USAGE, "%s", why);
  if (s->json) {
    json_t *report = judge_json(r, files[0], files[1]);
    if (!report) return tool_fail(verb, EXIT_BACKEND, "out of memory, or a path is not UTF-8");
    if (json_dumpf(report, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER) == 0) putchar('\n');
    json_decref(report);
  } else if (!s->quiet) {
    judge_text(r, files[0], files[1], stdout);
  }
  return judge_wrong(r) ? EXIT_DIFFERENT : EXIT_OK;
}

static int judge(const char *verb, const judge_settings *s, const char *const *files) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_file golden = {0}, theirs = {0};
  judge_report report;
  int status = tool_read(verb, files[0], &golden);
  if (!status) status = tool_read(verb, files[1], &theirs);
  if (!status) {
    progress_begin("judging", s->quiet);
    int bad = judge_run(&s->options, &golden, &theirs, &report, why);
    progress_end();
    if (bad) {
      status = tool_fail(verb, EXIT_USAGE, "%s", why);
    } else {
      status = say(verb, s, &report, files);
      judge_free(&report);
    }
  }
  case_file_free(&golden);
  case_file_free(&theirs);
  return status;
}

static int take_arith(const char *verb, const char *text, judge_options *o) {
  for (int i = 0; i < JUDGE_ARITHS; i++)
    if (!strcmp(text, judge_arith_name((judge_arith)i))) {
      o->arith = (judge_arith)i;
      return EXIT_OK;
    }
  return tool_fail(verb, EXIT_USAGE, "--arith %s: must be exact, f32, bf16-mma or cdna3-mfma", text);
}

static int take_contract(const char *verb, const char *text, judge_options *o) {
  o->has_contract = true;
  if (m3idx_contract_by_name(text, &o->contract) == M3IDX_OK) return EXIT_OK;
  return tool_fail(verb, EXIT_USAGE, "--contract %s: neither a preset nor the four fields", text);
}

int verb_judge(int argc, const char **argv) {
  judge_settings s = {0};
  const struct poptOption options[] = {
      {"arith", 'a', POPT_ARG_STRING, NULL, ARITH,
       "what their scores were computed with: exact (default), f32, bf16-mma or cdna3-mfma", "NAME"},
      {"k-block", 0, POPT_ARG_STRING, NULL, K_BLOCK, "products that their matrix unit adds at once", "N"},
      {"flush", 0, POPT_ARG_NONE, NULL, FLUSH, "their unit reads or writes subnormals as zero", NULL},
      {"contract", 'c', POPT_ARG_STRING, NULL, CONTRACT, "judge by this contract, not by the case's", "NAME"},
      {"json", 'j', POPT_ARG_NONE, NULL, JSON, "print one JSON object", NULL},
      {"html", 0, POPT_ARG_STRING, NULL, HTML, "also write a page that needs nothing else", "FILE"},
      {"quiet", 'q', POPT_ARG_NONE, NULL, QUIET, "say nothing; the exit status is the verdict", NULL},
      TOOL_HELP_OPTION,
      POPT_TABLEEND,
  };
  tool_args a;
  tool_begin(&a, argc, argv, options, "GOLDEN THEIRS", NULL);
  for (int val, bad = 0; !bad && (val = tool_next(&a, 2)) >= 0;) {
    char *text = poptGetOptArg(a.popt);
    if (val == ARITH) a.status = bad = take_arith(argv[0], text, &s.options);
    if (val == K_BLOCK) a.status = bad = tool_integer(argv[0], "k-block", text, 1, 256, &s.options.k_block);
    if (val == FLUSH) s.options.flush = true;
    if (val == CONTRACT) a.status = bad = take_contract(argv[0], text, &s.options);
    if (val == JSON) s.json = true;
    if (val == QUIET) s.quiet = true;
    if (val == HTML) {
      free(s.html);
      s.html = text;
      text = NULL;
    }
    free(text);
  }
  if (!tool_leave(&a)) a.status = judge(argv[0], &s, a.files);
  free(s.html);
  tool_end(&a);
  return a.status;
}
