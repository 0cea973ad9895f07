/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx bench: the benchmark (bench.h) as a verb.
 */
#include <stdlib.h>

#include "bench.h"
#include "tool.h"

enum { PEERS = TOOL_FIRST_OPTION, JSON, CPU_TIME, TINY, LIST, FILTER, THREADS, REPEATS, TORCH, PYTHON, CASE };

static int bench_case(const char *verb, const char *path, bench_options o) {
  char why[CASE_MESSAGE_BYTES];
  m3idx_case view;
  case_file file;
  int status = tool_read(verb, path, &file);
  if (status) return status;
  if (case_view(&file, &view, why) || !bench_takes(&view, why)) {
    status = tool_fail(verb, EXIT_USAGE, "%s: %s", path, why);
  } else {
    o.given = &view;
    status = bench_run(&o, stdout);
  }
  case_file_free(&file);
  return status;
}

int verb_bench(int argc, const char **argv) {
  bench_options o = {0};
  char *filter = NULL, *torch = NULL, *python = NULL, *path = NULL;
  bool list = false;
  const struct poptOption options[] = {
      {"peers", 0, POPT_ARG_NONE, NULL, PEERS, "also OpenBLAS, oneDNN, the C++ library, plain loops and torch", NULL},
      {"torch", 0, POPT_ARG_STRING, NULL, TORCH, "with --peers: time torch by this script (torch_peer.py)", "SCRIPT"},
      {"python", 0, POPT_ARG_STRING, NULL, PYTHON, "what runs the script (default python3)", "PROGRAM"},
      {"filter", 'f', POPT_ARG_STRING, NULL, FILTER, "only shapes whose name contains it, on any machine", "TEXT"},
      {"case", 0, POPT_ARG_STRING, NULL, CASE, "the data of a bf16 prefill case, and normal data beside it", "FILE"},
      {"list", 0, POPT_ARG_NONE, NULL, LIST, "print the shapes and exit", NULL},
      {"threads", 't', POPT_ARG_STRING, NULL, THREADS, "threads where a shape names none (default: OpenMP's)", "N"},
      {"repeats", 0, POPT_ARG_STRING, NULL, REPEATS, "medians of N (default 7)", "N"},
      {"cpu-time", 0, POPT_ARG_NONE, NULL, CPU_TIME, "on one thread its processor time, for busy machines", NULL},
      {"tiny", 0, POPT_ARG_NONE, NULL, TINY, "a few rows and blocks of each shape: tries the program only", NULL},
      {"json", 0, POPT_ARG_NONE, NULL, JSON, "print one JSON object", NULL},
      TOOL_HELP_OPTION,
      POPT_TABLEEND,
  };
  tool_args a;
  tool_begin(&a, argc, argv, options, "", NULL);
  for (int val, bad = 0; !bad && (val = tool_next(&a, 0)) >= 0;) {
    char *text = poptGetOptArg(a.popt);
    char **keep = val == FILTER   ? &filter
                  : val == TORCH  ? &torch
                  : val == PYTHON ? &python
                  : val == CASE   ? &path
                                  : NULL;
    o.peers |= val == PEERS;
    o.json |= val == JSON;
    o.cpu_time |= val == CPU_TIME;
    o.tiny |= val == TINY;
    list |= val == LIST;
    if (val == THREADS) a.status = bad = tool_integer(argv[0], "threads", text, 1, 4096, &o.threads);
    if (val == REPEATS) a.status = bad = tool_integer(argv[0], "repeats", text, 1, BENCH_REPEATS, &o.repeats);
    if (keep) {
      free(*keep);
      *keep = text;
    } else {
      free(text);
    }
  }
  o.filter = filter;
  o.torch = torch;
  o.python = python;
  if (!tool_leave(&a) && list)
    bench_list(stdout);
  else if (!tool_leave(&a))
    a.status = path ? bench_case(argv[0], path, o) : bench_run(&o, stdout);
  free(filter);
  free(torch);
  free(python);
  free(path);
  tool_end(&a);
  return a.status;
}
