/* SPDX-License-Identifier: Apache-2.0
 *
 * The HIP plugin: the backend table over the kernel files (hip_ops.h).  Devices, streams, buffers, workspaces,
 * and what a hipError_t means to a caller.  No kernel and no arithmetic here; host-memory calls are hip_stage.h.
 */
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "hip_device.h"
#include "hip_probe.h"
#include "hip_stage.h"

namespace {

struct backend_state {
  hipk_device device;
  hipk_arena buffers, workspace; /* of host-memory calls; device-memory calls never touch them */
};

/* Calls run on the context's device and leave the thread's current device as they found it. */
class device_scope {
public:
  device_scope(m3idx_context *ctx) {
    error = hipGetDevice(&before);
    if (error == hipSuccess && before != ctx->device) error = hipSetDevice(ctx->device);
    moved = error == hipSuccess && before != ctx->device;
  }
  ~device_scope() {
    if (moved) (void)hipSetDevice(before);
  }
  hipError_t error;

private:
  int before = 0;
  bool moved = false;
};

backend_state *state_of(m3idx_context *ctx) { return static_cast<backend_state *>(ctx->state); }

/* ---- devices ---- */

void backend_close(m3idx_context *ctx) {
  backend_state *state = state_of(ctx);
  if (state == nullptr) return;
  device_scope scope(ctx);
  if (scope.error == hipSuccess) {
    hipk_arena_drop(&state->buffers);
    hipk_arena_drop(&state->workspace);
  }
  free(state);
  ctx->state = nullptr;
}

/* What the probe found on each device, once for the process. */
struct found {
  std::atomic<bool> known;
  std::atomic<double> worst;
};
found probed[16];

/* Waits for the device, on the default stream. */
m3idx_status probe_matrix(m3idx_context *ctx, double *worst) {
  found *const cache = ctx->device < 16 ? &probed[ctx->device] : nullptr;
  if (cache != nullptr && cache->known) {
    *worst = cache->worst;
    return M3IDX_OK;
  }
  device_scope scope(ctx);
  hipk_probe *probe = static_cast<hipk_probe *>(malloc(sizeof *probe));
  if (probe == nullptr) return m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory for the probe of matrix steps");
  hipk_probe_fill(probe);
  void *memory = nullptr;
  m3idx_status status = hipk_check(ctx, scope.error, "hipSetDevice");
  if (status == M3IDX_OK) status = hipk_check(ctx, hipMalloc(&memory, sizeof *probe), "hipMalloc");
  if (status == M3IDX_OK)
    status = hipk_check(ctx, hipMemcpy(memory, probe, sizeof *probe, hipMemcpyHostToDevice), "hipMemcpy");
  if (status == M3IDX_OK) {
    hipk_probe_launch(nullptr, static_cast<hipk_probe *>(memory));
    status = hipk_check(ctx, hipGetLastError(), "the launch of the probe");
  }
  if (status == M3IDX_OK)
    status = hipk_check(ctx, hipMemcpy(probe, memory, sizeof *probe, hipMemcpyDeviceToHost), "hipMemcpy");
  if (status == M3IDX_OK) {
    *worst = hipk_probe_worst(state_of(ctx)->device.arch, probe);
    if (cache != nullptr) {
      cache->worst = *worst;
      cache->known = true;
    }
  }
  if (memory != nullptr) (void)hipFree(memory);
  free(probe);
  return status;
}

m3idx_status backend_open(m3idx_context *ctx) {
  if (hipk_runtime_fault() != nullptr) return m3idx_fail(ctx, M3IDX_UNAVAILABLE, "%s", hipk_runtime_fault());
  int count = 0;
  const hipError_t error = hipGetDeviceCount(&count);
  if (error != hipSuccess) return m3idx_fail(ctx, M3IDX_UNAVAILABLE, "hipGetDeviceCount: %s", hipGetErrorString(error));
  if (count == 0) return m3idx_fail(ctx, M3IDX_UNAVAILABLE, "hipGetDeviceCount: 0 devices");
  if (ctx->device < 0 || ctx->device >= count)
    return m3idx_fail(ctx, M3IDX_INVALID, "device is %d, must be 0 to %d: the HIP runtime shows %d", ctx->device,
                      count - 1, count);
  hipk_device device;
  char text[M3IDX_MESSAGE_BYTES];
  const hipError_t asked = hipk_device_query(ctx->device, &device, text, sizeof text);
  if (asked != hipSuccess) return hipk_check(ctx, asked, "the properties of the device");
  if (device.arch == M3IDX_ARCH_OTHER)
    return m3idx_fail(ctx, M3IDX_UNAVAILABLE, "device %d is %s; the plugin carries code for " HIPK_TARGETS, ctx->device,
                      text);
  backend_state *state = static_cast<backend_state *>(calloc(1, sizeof *state));
  if (state == nullptr) return m3idx_fail(ctx, M3IDX_NO_MEMORY, "no memory for the state of the backend");
  state->device = device;
  ctx->state = state;
  double worst = 0;
  const m3idx_status status = probe_matrix(ctx, &worst);
  if (status != M3IDX_OK) {
    backend_close(ctx);
    return status;
  }
  snprintf(ctx->details, sizeof ctx->details, "device %d of %d: %s", ctx->device, count, text);
  hipk_probe_conclude(worst, &state->device, ctx->details, sizeof ctx->details);
  return M3IDX_OK;
}

/* ---- buffers ---- */

void *backend_alloc(m3idx_context *ctx, size_t bytes) {
  device_scope scope(ctx);
  hipk_arena fresh = {};
  if (hipk_check(ctx, scope.error, "hipSetDevice") != M3IDX_OK) return nullptr;
  if (hipk_arena_reserve(ctx, &fresh, bytes == 0 ? 1 : bytes, true) != M3IDX_OK) return nullptr;
  return fresh.base;
}

void backend_free(m3idx_context *ctx, void *buffer) {
  device_scope scope(ctx);
  if (scope.error == hipSuccess) (void)hipFree(buffer);
}

m3idx_status copy(m3idx_context *ctx, void *to, const void *from, size_t bytes, hipMemcpyKind kind) {
  device_scope scope(ctx);
  const hipStream_t stream = static_cast<hipStream_t>(ctx->stream);
  m3idx_status status = hipk_check(ctx, scope.error, "hipSetDevice");
  if (status == M3IDX_OK && bytes != 0)
    status = hipk_check(ctx, hipMemcpyAsync(to, from, bytes, kind, stream), "hipMemcpyAsync");
  if (status == M3IDX_OK) status = hipk_check(ctx, hipStreamSynchronize(stream), "hipStreamSynchronize");
  return status;
}

m3idx_status backend_upload(m3idx_context *ctx, void *device, const void *host, size_t bytes) {
  return copy(ctx, device, host, bytes, hipMemcpyHostToDevice);
}

m3idx_status backend_download(m3idx_context *ctx, void *host, const void *device, size_t bytes) {
  return copy(ctx, host, device, bytes, hipMemcpyDeviceToHost);
}

/* ---- operations: one path for all, over what differs between them ---- */

constexpr size_t COUNTER_BYTES = HIPK_COUNTERS * sizeof(uint32_t);

template <class Args> struct operation {
  m3idx_status (*plan)(m3idx_context *, const hipk_device *, const Args *, size_t *);
  void (*launch)(const hipk_launch *, const Args *);
  void (*stage)(hipk_stage *, Args *);
};

template <class Args>
m3idx_status run_on(m3idx_context *ctx, const operation<Args> &op, const Args *args, void *workspace) {
  const hipk_launch at = {&state_of(ctx)->device, static_cast<hipStream_t>(ctx->stream),
                          static_cast<uint32_t *>(workspace), static_cast<unsigned char *>(workspace) + COUNTER_BYTES};
  op.launch(&at, args);
  return hipk_check(ctx, hipGetLastError(), "the launch");
}

template <class Args>
m3idx_status run_staged(m3idx_context *ctx, const operation<Args> &op, const Args *args, size_t scratch_bytes) {
  backend_state *state = state_of(ctx);
  Args device_args = *args;
  hipk_stage stage = {};
  op.stage(&stage, &device_args);
  m3idx_status status = hipk_arena_reserve(ctx, &state->workspace, COUNTER_BYTES + scratch_bytes, true);
  if (status == M3IDX_OK) status = hipk_stage_upload(&stage, ctx, &state->buffers);
  if (status == M3IDX_OK) status = run_on(ctx, op, &device_args, state->workspace.base);
  if (status == M3IDX_OK) status = hipk_stage_download(&stage, ctx);
  hipk_stage_free(&stage);
  /* A launch that did not end well may have left counters standing. */
  if (status != M3IDX_OK) hipk_arena_drop(&state->workspace);
  return status;
}

template <class Args> m3idx_status run(m3idx_context *ctx, const operation<Args> &op, const Args *args) {
  size_t scratch_bytes = 0;
  device_scope scope(ctx);
  m3idx_status status = hipk_check(ctx, scope.error, "hipSetDevice");
  if (status == M3IDX_OK) status = op.plan(ctx, &state_of(ctx)->device, args, &scratch_bytes);
  if (status != M3IDX_OK) return status;
  if (ctx->memory == M3IDX_HOST) return run_staged(ctx, op, args, scratch_bytes);
  if (ctx->workspace_bytes < COUNTER_BYTES + scratch_bytes)
    return m3idx_fail(ctx, M3IDX_INVALID, "workspace_bytes is %zu, this launch needs %zu (m3idx_plan)",
                      ctx->workspace_bytes, COUNTER_BYTES + scratch_bytes);
  return run_on(ctx, op, args, ctx->workspace);
}

#define HIPK_OP(name)                                                                                             \
  const operation<m3idx_##name##_args> op_##name = {hipk_##name##_plan, hipk_##name##_launch, hipk_stage_##name}; \
  m3idx_status backend_##name(m3idx_context *ctx, const m3idx_##name##_args *args) { return run(ctx, op_##name, args); }
#include "hip_ops.def"
#undef HIPK_OP

m3idx_status backend_plan(m3idx_context *ctx, m3idx_op op, const void *args, size_t *workspace_bytes) {
  size_t scratch_bytes = 0;
  m3idx_status status;
  switch (op) {
#define HIPK_OP(name)                                                                                                \
  case M3IDX_OP_##name:                                                                                              \
    status =                                                                                                         \
        op_##name.plan(ctx, &state_of(ctx)->device, static_cast<const m3idx_##name##_args *>(args), &scratch_bytes); \
    break;
#include "hip_ops.def"
#undef HIPK_OP
  default:
    (void)args;
    return m3idx_fail(ctx, M3IDX_UNSUPPORTED, "hip does not implement operation %d", static_cast<int>(op));
  }
  if (status == M3IDX_OK) *workspace_bytes = COUNTER_BYTES + scratch_bytes;
  return status;
}

m3idx_backend make_table() {
  m3idx_backend table = {};
  table.abi = M3IDX_BACKEND_ABI;
  table.name = "hip";
  table.open = backend_open;
  table.close = backend_close;
  table.alloc = backend_alloc;
  table.free = backend_free;
  table.upload = backend_upload;
  table.download = backend_download;
  table.plan = backend_plan;
#define HIPK_OP(name) table.name = backend_##name;
#include "hip_ops.def"
#undef HIPK_OP
  return table;
}

const m3idx_backend backend_hip = make_table();

} // namespace

m3idx_status hipk_check(m3idx_context *ctx, hipError_t error, const char *call) {
  switch (error) {
  case hipSuccess: return M3IDX_OK;
  case hipErrorOutOfMemory: return m3idx_fail(ctx, M3IDX_NO_MEMORY, "%s: %s", call, hipGetErrorString(error));
  case hipErrorNoDevice:
  case hipErrorInvalidDevice:
  case hipErrorInsufficientDriver: return m3idx_fail(ctx, M3IDX_UNAVAILABLE, "%s: %s", call, hipGetErrorString(error));
  default: return m3idx_fail(ctx, M3IDX_DEVICE, "%s: %s (%d)", call, hipGetErrorString(error), static_cast<int>(error));
  }
}

extern "C" __attribute__((visibility("default"))) const m3idx_backend *m3idx_plugin_backend(void) {
  return &backend_hip;
}
