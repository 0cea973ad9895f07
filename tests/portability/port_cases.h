/* SPDX-License-Identifier: Apache-2.0
 *
 * The second half of port_smoke: generated cases.
 */
#ifndef M3IDX_PORT_CASES_H
#define M3IDX_PORT_CASES_H

/* Print the hashes of generated cases and of their outputs on each of `backends` that works; 0, or 1 and a message. */
int port_cases(const char *const *backends, int count);

#endif
