/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference backend: the definition of every operation, on host memory, on any machine.
 */
#include <stdio.h>

#include "ref_ops.h"

static m3idx_status open_ref(m3idx_context *ctx) {
#ifdef _OPENMP
  snprintf(ctx->details, sizeof ctx->details, "portable C11, exact integer arithmetic, OpenMP");
#else
  snprintf(ctx->details, sizeof ctx->details, "portable C11, exact integer arithmetic, one thread");
#endif
  return M3IDX_OK;
}

static void close_ref(m3idx_context *ctx) { (void)ctx; }

const m3idx_backend m3idx_backend_ref = {
    .abi = M3IDX_BACKEND_ABI,
    .name = "ref",
    .open = open_ref,
    .close = close_ref,
#define M3IDX_OP(name, what) .name = ref_##name,
#include "ops.def"
#undef M3IDX_OP
};
