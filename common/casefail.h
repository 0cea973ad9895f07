/* SPDX-License-Identifier: Apache-2.0
 *
 * How the case files say why: a sentence into why[CASE_MESSAGE_BYTES], and -1 to return.
 */
#ifndef M3IDX_CASEFAIL_H
#define M3IDX_CASEFAIL_H

#include <stdarg.h>
#include <stdio.h>

#include "case.h"

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static inline int
case_fail(char *why, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  vsnprintf(why, CASE_MESSAGE_BYTES, format, ap);
  va_end(ap);
  return -1;
}

#endif
