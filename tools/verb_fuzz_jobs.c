/* SPDX-License-Identifier: Apache-2.0
 *
 * What m3idx fuzz does once its options are known: campaigns and what they leave, merging, single cases, the list.
 */
#define _POSIX_C_SOURCE 200809L
#include "verb_fuzz_jobs.h"

#include <stdlib.h>
#include <string.h>

#include "casefile.h"
#include "fuzz_keep.h"
#include "fuzz_shrink.h"

/* ---- one campaign ---- */

/* Only the truth and the backend that failed: what the others say has been heard. */
static fuzz_setup narrow(const fuzz_settings *s, const fuzz_found *found, const fuzz_failure *f, char *names,
                         size_t bytes) {
  fuzz_setup setup = s->plan.setup;
  if (!*f->on.backend) return setup;
  snprintf(names, bytes, "%s,%s", found->backend[0], f->on.backend);
  setup.backends = names;
  setup.isa = NULL;
  return setup;
}

/* The shrunk line, where it is one, and always a file. */
static void leave_remains(const fuzz_settings *s, const fuzz_failure *f, const case_spec *spec, fuzz_remains *out) {
  char why[CASE_MESSAGE_BYTES] = "out of memory";
  const size_t bytes = strlen(s->save ? s->save : ".") + 80;
  case_file file = {0};
  out->line = spec->num_puts <= CASE_MAX_LIST ? case_spec_format(spec) : NULL;
  out->file = malloc(bytes);
  if (out->file)
    snprintf(out->file, bytes, "%s/fuzz-%llu-%llu.safetensors", s->save ? s->save : ".",
             (unsigned long long)s->plan.seed, (unsigned long long)f->index);
  if (out->file && !case_generate(spec, &file, why) && !casefile_write(out->file, &file, why)) {
    case_file_free(&file);
    return;
  }
  tool_fail(s->verb, EXIT_USAGE, "case %llu: no file: %s", (unsigned long long)f->index, why);
  case_file_free(&file);
  free(out->file);
  out->file = NULL;
}

void fuzz_job_shrink(const fuzz_settings *s, const fuzz_failure *f, fuzz_kind (*trial)(void *, const case_spec *),
                     void *user, fuzz_remains *out) {
  char why[CASE_MESSAGE_BYTES];
  case_spec spec;
  fuzz_shrunk shrunk;
  const fuzz_shrink_options o = {.trial = trial, .user = user, .seconds = s->shrink_seconds};
  if (f->kind == FUZZ_SENSELESS || case_spec_parse_line(f->line, &spec, why)) return;
  progress_begin("shrinking", s->plan.quiet);
  const int bad = s->shrink_seconds > 0 ? fuzz_shrink(&o, &spec, &shrunk) : -1;
  progress_end();
  if (!bad) {
    printf("case %llu: shrunk in %lld trials%s%s\n", (unsigned long long)f->index, (long long)shrunk.trials,
           shrunk.finished ? "" : ", cut short by --shrink",
           shrunk.kind == FUZZ_PASSED ? ": does not fail by itself" : "");
    leave_remains(s, f, &shrunk.spec, out);
    case_spec_free(&shrunk.spec);
  } else {
    leave_remains(s, f, &spec, out);
  }
  case_spec_free(&spec);
}

static int write_report(const fuzz_settings *s, const json_t *report, const char *path) {
  char why[CASE_MESSAGE_BYTES];
  if (!report) return tool_fail(s->verb, EXIT_BACKEND, "out of memory, or a backend's words are not UTF-8");
  if (path && fuzz_report_write(report, path, why)) return tool_fail(s->verb, EXIT_USAGE, "%s", why);
  return EXIT_OK;
}

static int verdict_of(const json_t *report) {
  return fuzz_report_failures(report) || !fuzz_report_compared(report) ? EXIT_DIFFERENT : EXIT_OK;
}

int fuzz_job_finish(const fuzz_settings *s, const fuzz_found *found, fuzz_remains *remains) {
  json_t *report = fuzz_report(&s->plan, found, remains);
  int status = write_report(s, report, s->report);
  if (report) fuzz_report_print(report, stdout);
  if (!status) status = verdict_of(report);
  for (int i = 0; i < found->num_failures; i++) {
    free(remains[i].line);
    free(remains[i].file);
  }
  json_decref(report);
  return status;
}

int fuzz_job_campaign(const fuzz_settings *s) {
  fuzz_remains remains[FUZZ_MOST_FAILURES] = {{NULL, NULL}};
  char why[CASE_MESSAGE_BYTES], names[160];
  fuzz_found *found;
  bool unusable;
  if (fuzz_campaign(&s->plan, &found, &unusable, why))
    return tool_fail(s->verb, unusable ? EXIT_BACKEND : EXIT_USAGE, "%s", why);
  for (int i = 0; i < found->num_failures; i++) {
    const fuzz_failure *f = &found->failure[i];
    fuzz_trial_on on = {narrow(s, found, f, names, sizeof names), s->plan.hang_seconds};
    fuzz_job_shrink(s, f, fuzz_trial, &on, &remains[i]);
  }
  const int status = fuzz_job_finish(s, found, remains);
  fuzz_found_free(found);
  return status;
}

/* ---- other jobs ---- */

int fuzz_job_merge(const fuzz_settings *s, const char *const *paths) {
  char why[CASE_MESSAGE_BYTES] = "";
  int count = 0, read = 0, status = EXIT_OK;
  while (paths && paths[count]) count++;
  if (!count) return tool_fail(s->verb, EXIT_USAGE, "--merge: no report given");
  json_t **reports = calloc((size_t)count, sizeof *reports), *sum = NULL;
  if (!reports) return tool_fail(s->verb, EXIT_BACKEND, "out of memory");
  while (read < count && (reports[read] = fuzz_report_read(paths[read], why))) read++;
  if (read == count) sum = fuzz_report_merge(reports, paths, count, why);
  if (!sum) status = tool_fail(s->verb, EXIT_USAGE, "%s", why);
  if (sum) status = write_report(s, sum, s->output);
  if (sum) fuzz_report_print(sum, stdout);
  if (sum && !status && s->complete && !fuzz_report_complete(sum))
    status = tool_fail(s->verb, EXIT_USAGE, "--complete: shards are missing");
  if (sum && !status) status = verdict_of(sum);
  json_decref(sum);
  for (int i = 0; i < read; i++) json_decref(reports[i]);
  free(reports);
  return status;
}

static bool is_line(const char *text) { return !strncmp(text + strspn(text, " "), "--", 2); }

/* A case in memory from a line or the name of a file. */
static int take_case(const fuzz_settings *s, const char *text, case_file *file) {
  char why[CASE_MESSAGE_BYTES];
  case_spec spec;
  *file = (case_file){0};
  if (!is_line(text)) return tool_read(s->verb, text, file);
  int bad = case_spec_parse_line(text, &spec, why);
  if (!bad) bad = case_generate(&spec, file, why) != M3IDX_OK;
  case_spec_free(&spec);
  return bad ? tool_fail(s->verb, EXIT_USAGE, "%s", why) : EXIT_OK;
}

int fuzz_job_case(const fuzz_settings *s) {
  char why[CASE_MESSAGE_BYTES];
  bool unusable;
  fuzz_session session;
  fuzz_outcome outcome = {0};
  case_file file;
  int status = take_case(s, s->one_case, &file);
  if (status) return status;
  if (fuzz_open(&s->plan.setup, &session, &unusable, why)) {
    case_file_free(&file);
    return tool_fail(s->verb, unusable ? EXIT_BACKEND : EXIT_USAGE, "%s", why);
  }
  conform_memory_watch();
  if (fuzz_run_file(&session, &file, s->one_case, stdout, &outcome, why)) {
    status = tool_fail(s->verb, EXIT_USAGE, "%s", why);
  } else {
    int64_t compared = 0;
    for (int i = 1; i < session.count; i++)
      compared += outcome.calls[i][CONFORM_PASS] + outcome.calls[i][CONFORM_FAIL] + outcome.calls[i][CONFORM_WEAK];
    printf("%lld calls compared: %s\n", (long long)compared, outcome.failed || !compared ? "FAIL" : "PASS");
    status = outcome.failed || !compared ? EXIT_DIFFERENT : EXIT_OK;
  }
  fuzz_close(&session);
  case_file_free(&file);
  return status;
}

int fuzz_job_keep(const fuzz_settings *s) {
  char why[CASE_MESSAGE_BYTES];
  case_file file;
  if (!s->list) return tool_fail(s->verb, EXIT_USAGE, "--keep: needs --list, the regression list");
  int status = take_case(s, s->keep, &file);
  if (status) return status;
  char *line = fuzz_line_of(&file, why);
  case_file_free(&file);
  if (!line) return tool_fail(s->verb, EXIT_USAGE, "%s", why);
  const int kept = fuzz_keep(s->list, line, s->reason ? s->reason : "Found by m3idx fuzz.", why);
  if (kept < 0)
    status = tool_fail(s->verb, EXIT_USAGE, "%s", why);
  else
    printf("%s%s\n", kept ? "already kept: " : "", line);
  free(line);
  return status;
}
