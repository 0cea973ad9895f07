/* SPDX-License-Identifier: Apache-2.0
 *
 * What every unit test's main needs: run one suite in this process and say how it went.
 */
#ifndef M3IDX_UNIT_H
#define M3IDX_UNIT_H

#include <check.h>
#include <stdlib.h>

/* Run `suite` unforked (a child forked after an OpenMP region hangs); a suite that ran nothing fails. */
static inline int unit_run(Suite *suite) {
  SRunner *runner = srunner_create(suite);
  srunner_set_fork_status(runner, CK_NOFORK);
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);
  srunner_free(runner);
  return failed == 0 && ran > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
