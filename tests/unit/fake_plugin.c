/* SPDX-License-Identifier: Apache-2.0
 *
 * Plugins that stand in for the HIP backend in test_backend, one a build: FAKE_GOOD works and implements
 * score alone, FAKE_OLD has another ABI, FAKE_NULL gives no backend, FAKE_DEAD finds no device.  FAKE_DUMB
 * exports nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "backend.h"

enum { FAKE_GOOD, FAKE_OLD, FAKE_NULL, FAKE_DEAD, FAKE_DUMB };

static m3idx_status fake_open(m3idx_context *ctx) {
  ctx->state = malloc(1); /* a close that is forgotten is a leak that sanitizers report */
  snprintf(ctx->details, sizeof ctx->details, "fake device %d", ctx->device);
  if (FAKE == FAKE_DEAD) return m3idx_fail(ctx, M3IDX_UNAVAILABLE, "no device here (fake error 100)");
  return M3IDX_OK;
}

static void fake_close(m3idx_context *ctx) {
  free(ctx->state);
  ctx->state = NULL;
}

static void *fake_alloc(m3idx_context *ctx, size_t bytes) {
  (void)ctx;
  return calloc(1, bytes);
}

static m3idx_status fake_plan(m3idx_context *ctx, m3idx_op op, const void *args, size_t *workspace_bytes) {
  const m3idx_score_args *score = args;
  if (op != M3IDX_OP_score) return m3idx_fail(ctx, M3IDX_UNSUPPORTED, "no plan for op %d", (int)op);
  *workspace_bytes = (size_t)score->score_stride_row; /* shows that the arguments came resolved */
  return M3IDX_OK;
}

static m3idx_status fake_score(m3idx_context *ctx, const m3idx_score_args *args) {
  return m3idx_fail(ctx, M3IDX_DEVICE, "fake fault, block_size %d, scale %g", (int)args->batch->block_size,
                    (double)args->scale);
}

static const m3idx_backend fake = {.abi = FAKE == FAKE_OLD ? M3IDX_BACKEND_ABI + 1 : M3IDX_BACKEND_ABI,
                                   .name = "hip",
                                   .open = fake_open,
                                   .close = fake_close,
                                   .alloc = fake_alloc,
                                   .plan = fake_plan,
                                   .score = fake_score};

#if defined(__GNUC__)
#define EXPORTED __attribute__((visibility("default")))
#else
#define EXPORTED
#endif

EXPORTED const m3idx_backend *FAKE_ENTRY(void);
const m3idx_backend *FAKE_ENTRY(void) { return FAKE == FAKE_NULL ? NULL : &fake; }
