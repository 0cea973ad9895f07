/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx run: a case's outputs from one backend, written with the case.  With --backend ref that is its golden.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "mfma.h"
#include "tool.h"

enum { OUTPUT = TOOL_FIRST_OPTION, BACKEND, THREADS, DEVICE, NO_SCORE, ARITH, K_BLOCK, QUIET };

typedef struct run_options {
  char *output, *backend, *arith;
  int threads, device, no_score, k_block;
  bool quiet;
} run_options;

/* --arith: outputs that are not exact, of a model instead of a backend. */
static int run_model(const char *verb, const run_options *o, const char *input) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_file file;
  if (strcmp(o->arith, "cdna3-mfma") != 0)
    return tool_fail(verb, EXIT_USAGE, "--arith %s: must be cdna3-mfma", o->arith);
  if (o->backend || o->no_score || o->threads || o->device)
    return tool_fail(verb, EXIT_USAGE, "--arith %s: takes no --backend, --threads, --device or --no-score", o->arith);
  if (tool_read(verb, input, &file)) return EXIT_USAGE;
  progress_begin("cdna3-mfma", o->quiet);
  m3idx_status status = mfma_run(&file, o->k_block, why);
  progress_end();
  int result =
      status ? tool_fail(verb, tool_exit_status(status), "%s: %s", input, why) : tool_write(verb, o->output, &file);
  case_file_free(&file);
  return result;
}

static int run(const char *verb, const run_options *o, const char *input) {
  char why[CASE_MESSAGE_BYTES] = "", what[64];
  m3idx_case view;
  m3idx_context *ctx;
  case_file file;
  bool choose = !o->backend || !strcmp(o->backend, "auto");
  if (tool_read(verb, input, &file)) return EXIT_USAGE;
  if (case_view(&file, &view, why)) {
    case_file_free(&file);
    return tool_fail(verb, EXIT_USAGE, "%s: %s", input, why);
  }
  m3idx_status status = m3idx_open(
      &ctx, &(m3idx_options){.backend = o->backend, .num_threads = o->threads, .device = o->device}, why, sizeof why);
  if (status) {
    case_file_free(&file);
    return tool_fail(verb, tool_exit_status(status), "--backend %s: %s", o->backend ? o->backend : "auto", why);
  }
  if (choose) fprintf(stderr, "%s: %s\n", verb, m3idx_backend_reason(ctx));
  snprintf(what, sizeof what, "%s on backend %s", case_op_name(view.op), m3idx_backend_name(ctx));
  progress_begin(what, o->quiet);
  status = case_run(ctx, &file, !o->no_score, why);
  progress_end();
  int result = EXIT_OK;
  if (status)
    result = tool_fail(verb, tool_exit_status(status), "%s: %s", input, why);
  else
    result = tool_write(verb, o->output, &file);
  m3idx_close(ctx);
  case_file_free(&file);
  return result;
}

int verb_run(int argc, const char **argv) {
  run_options o = {0};
  const struct poptOption options[] = {
      {"output", 'o', POPT_ARG_STRING, NULL, OUTPUT, "where to write the case and its outputs; needed", "FILE"},
      {"backend", 'b', POPT_ARG_STRING, NULL, BACKEND,
       "ref, cpu, hip or auto; auto (default) takes hip where a device works, else cpu, and says so", "NAME"},
      {"threads", 't', POPT_ARG_STRING, NULL, THREADS, "CPU threads; 0 (default) = as many as OpenMP takes", "N"},
      {"device", 'd', POPT_ARG_STRING, NULL, DEVICE, "device of backend hip (default 0)", "N"},
      {"no-score", 0, POPT_ARG_NONE, &o.no_score, NO_SCORE, "select straight from q and keys; leaves no score", NULL},
      {"arith", 0, POPT_ARG_STRING, NULL, ARITH,
       "cdna3-mfma: not exact, but what gfx942's matrix instructions give (docs/JUDGE.md)", "NAME"},
      {"k-block", 0, POPT_ARG_STRING, NULL, K_BLOCK,
       "with --arith: products added at once, 8, or 16 for e4m3fnuz and e5m2fnuz (default 16 where it can be)", "N"},
      {"quiet", 'q', POPT_ARG_NONE, NULL, QUIET, "no progress", NULL},
      TOOL_HELP_OPTION,
      POPT_TABLEEND,
  };
  tool_args a;
  tool_begin(&a, argc, argv, options, "CASE -o FILE", NULL);
  for (int val, bad = 0; !bad && (val = tool_next(&a, 1)) >= 0;) {
    char *text = poptGetOptArg(a.popt), **keep = val == OUTPUT ? &o.output : val == BACKEND ? &o.backend : NULL;
    if (val == ARITH) keep = &o.arith;
    if (val == K_BLOCK) a.status = bad = tool_integer(argv[0], "k-block", text, 8, 16, &o.k_block);
    if (val == QUIET) o.quiet = true;
    if (val == THREADS) a.status = bad = tool_integer(argv[0], "threads", text, 0, 4096, &o.threads);
    if (val == DEVICE) a.status = bad = tool_integer(argv[0], "device", text, 0, INT_MAX, &o.device);
    if (keep) {
      free(*keep);
      *keep = text;
    } else {
      free(text);
    }
  }
  if (!tool_leave(&a) && !o.output) a.status = tool_fail(argv[0], EXIT_USAGE, "-o: missing, where to write");
  if (!tool_leave(&a) && o.k_block && !o.arith) a.status = tool_fail(argv[0], EXIT_USAGE, "--k-block: needs --arith");
  if (!tool_leave(&a)) a.status = (o.arith ? run_model : run)(argv[0], &o, a.files[0]);
  free(o.output);
  free(o.backend);
  free(o.arith);
  tool_end(&a);
  return a.status;
}
