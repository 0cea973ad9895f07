/* SPDX-License-Identifier: Apache-2.0
 *
 * The jobs of m3idx fuzz; each returns an exit status.
 */
#ifndef M3IDX_TOOL_VERB_FUZZ_JOBS_H
#define M3IDX_TOOL_VERB_FUZZ_JOBS_H

#include "fuzz_report.h"
#include "judge.h"
#include "tool.h"

typedef struct fuzz_settings {
  const char *verb;
  fuzz_plan plan;
  double shrink_seconds;
  char *backends, *isa, *fix, *report, *save, *one_case, *output, *keep, *list, *reason, *exec, *outputs;
  bool merge, complete;
  bool serve;  /* --exec: started once */
  bool judged; /* --exec: by judge, not byte for byte */
  judge_options judge;
} fuzz_settings;

int fuzz_job_campaign(const fuzz_settings *s);
int fuzz_job_exec(const fuzz_settings *s);
int fuzz_job_merge(const fuzz_settings *s, const char *const *paths);
int fuzz_job_case(const fuzz_settings *s);
int fuzz_job_keep(const fuzz_settings *s);

/* ---- shared by campaigns of both kinds ---- */

/* The failing case shrunk by `trial`, as a line and as a file in *out. */
void fuzz_job_shrink(const fuzz_settings *s, const fuzz_failure *f, fuzz_kind (*trial)(void *, const case_spec *),
                     void *user, fuzz_remains *out);
/* Report, on the screen and as a file, and the exit status; frees the remains. */
int fuzz_job_finish(const fuzz_settings *s, const fuzz_found *found, fuzz_remains *remains);

#endif
