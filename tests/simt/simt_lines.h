/* SPDX-License-Identifier: Apache-2.0
 *
 * Case lines on the machines of the SIMT executor, byte for byte against ref.
 */
#ifndef M3IDX_SIMT_LINES_H
#define M3IDX_SIMT_LINES_H

/* Every output of the line, with scores and fused, on `only` or on all machines; a Check assertion fails otherwise,
 * with `note` in its message. */
void simt_check_line(const char *line, const char *only, const char *note);

#endif
