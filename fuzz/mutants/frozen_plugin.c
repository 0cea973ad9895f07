/* SPDX-License-Identifier: Apache-2.0
 *
 * ref as a plugin, built from sound sources: the truth for faults in code that ref and cpu share, which neither of them
 * can judge.  The library finds it under $M3IDX_HIP_PLUGIN, in the place of the HIP backend.
 */
#include "backend.h"

M3IDX_API const m3idx_backend *m3idx_plugin_backend(void);

const m3idx_backend *m3idx_plugin_backend(void) { return &m3idx_backend_ref; }
