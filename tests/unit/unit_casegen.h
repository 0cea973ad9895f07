/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases from lines, for the tests of common/casegen.c and casedata.c.
 */
#ifndef M3IDX_UNIT_CASEGEN_H
#define M3IDX_UNIT_CASEGEN_H

#include "case.h"
#include "unit.h"

static inline case_file generated(const char *line) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_spec spec;
  case_file file;
  ck_assert_msg(!case_spec_parse_line(line, &spec, why), "%s: %s", line, why);
  ck_assert_msg(!case_generate(&spec, &file, why), "%s: %s", line, why);
  case_spec_free(&spec);
  return file;
}

/* One case a format: q in format i, keys in format 6 - i, so that all pairs of widths meet. */
static inline m3idx_dtype other(m3idx_dtype d) { return (m3idx_dtype)(M3IDX_DTYPE_COUNT - 1 - d); }

static inline case_file in_format(int i, const char *data, const char *more) {
  char line[512];
  snprintf(line, sizeof line,
           "--op decode --seq-lens 1024,1,300 --decode-query-len 4 --heads 3 --head-dim 32 --q-dtype %s --k-dtype %s "
           "--data %s --seed 5 %s",
           m3idx_dtype_name((m3idx_dtype)i), m3idx_dtype_name(other((m3idx_dtype)i)), data, more);
  return generated(line);
}

#endif
