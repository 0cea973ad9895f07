/* SPDX-License-Identifier: Apache-2.0
 *
 * Backends that lie on purpose (liars.c), for the programs that must find them out.
 */
#ifndef M3IDX_LIARS_H
#define M3IDX_LIARS_H

#include "conform.h"

enum { MOST_LIARS = 48 };

/* Fills out[MOST_LIARS]; how many there are. */
int liars_list(conform_backend *out);

#endif
