/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_runtime.h, and the kernel files' side of the seam (hip_ops.h) with ref in the place of kernels.
 */
#include "fake_runtime.h"

#include <stdlib.h>
#include <string.h>

#include "hip_device.h"
#include "hip_probe.h"

namespace {

constexpr int DEVICES = 3, MAX_ALLOCATIONS = 64;

struct allocation {
  unsigned char *base;
  size_t bytes;
};
allocation live[MAX_ALLOCATIONS];
int fail_in = -1, current = 1, failed, misused;
double matrix_error;
hipError_t fail_with;
const char *fault, *arch = "gfx942";
unsigned *in_flight; /* a counter of the launch that has not ended */

/* Every runtime call passes here. */
hipError_t toll() {
  if (fail_in >= 0 && fail_in-- == 0) {
    failed = 1;
    return fail_with;
  }
  return hipSuccess;
}

hipError_t copy(void *to, const void *from, size_t bytes, hipMemcpyKind kind) {
  const void *device = kind == hipMemcpyHostToDevice ? to : from, *host = kind == hipMemcpyHostToDevice ? from : to;
  const hipError_t error = toll();
  if (error != hipSuccess) return error;
  if (!fake_is_device(device, bytes) || fake_is_device(host, 1)) return hipErrorInvalidValue;
  memcpy(to, from, bytes);
  return hipSuccess;
}

} // namespace

int fake_fail_after(int calls, hipError_t error) {
  const int was = failed;
  fail_in = calls;
  fail_with = error;
  failed = 0;
  return was;
}
int fake_is_device(const void *pointer, size_t bytes) {
  const unsigned char *p = static_cast<const unsigned char *>(pointer);
  for (const allocation &a : live)
    if (a.base != nullptr && p >= a.base && p + bytes <= a.base + a.bytes) return 1;
  return 0;
}
size_t fake_allocations() {
  size_t count = 0;
  for (const allocation &a : live) count += a.base != nullptr;
  return count;
}
int fake_current_device() { return current; }
void fake_runtime_fault(const char *text) { fault = text; }
void fake_arch(const char *name) { arch = name; }
void fake_matrix_error(double relative) { matrix_error = relative; }

hipError_t hipGetDeviceCount(int *count) {
  *count = DEVICES;
  return toll();
}
hipError_t hipGetDevice(int *device) {
  *device = current;
  return toll();
}
hipError_t hipSetDevice(int device) {
  const hipError_t error = toll();
  if (error == hipSuccess) current = device;
  return error;
}
hipError_t hipMalloc(void **pointer, size_t bytes) {
  const hipError_t error = toll();
  if (error != hipSuccess) return error;
  for (allocation &a : live)
    if (a.base == nullptr) {
      a.bytes = bytes;
      a.base = static_cast<unsigned char *>(aligned_alloc(256, (bytes + 255) / 256 * 256));
      if (a.base == nullptr) return hipErrorOutOfMemory;
      memset(a.base, 0xd5, bytes);
      *pointer = a.base;
      return hipSuccess;
    }
  return hipErrorOutOfMemory;
}
hipError_t hipFree(void *pointer) {
  if (pointer == nullptr) return toll();
  for (allocation &a : live)
    if (a.base == pointer) {
      free(a.base);
      in_flight = nullptr;
      a.base = nullptr;
      return toll();
    }
  return hipErrorInvalidValue;
}
hipError_t hipMemsetAsync(void *to, int value, size_t bytes, hipStream_t) {
  const hipError_t error = toll();
  if (error == hipSuccess && !fake_is_device(to, bytes)) return hipErrorInvalidValue;
  if (error == hipSuccess) memset(to, value, bytes);
  return error;
}
hipError_t hipMemcpy(void *to, const void *from, size_t bytes, hipMemcpyKind kind) {
  return copy(to, from, bytes, kind);
}
hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t) {
  return copy(to, from, bytes, kind);
}
hipError_t hipStreamSynchronize(hipStream_t) {
  const hipError_t error = toll();
  if (error == hipSuccess && in_flight != nullptr) *in_flight = 0;
  if (error == hipSuccess) in_flight = nullptr;
  return error;
}
hipError_t hipGetLastError() {
  const hipError_t error = toll();
  return error != hipSuccess ? error : misused ? hipErrorInvalidValue : hipSuccess;
}
const char *hipGetErrorString(hipError_t error) {
  return error == hipErrorOutOfMemory ? "out of memory"
         : error == hipErrorNoDevice  ? "no device"
                                      : "an error that was asked for";
}

/* ---- hip_device.h ---- */

const char *hipk_runtime_fault() { return fault; }
hipError_t hipk_device_query(int ordinal, hipk_device *device, char *text, size_t text_bytes) {
  device->arch = m3idx_arch_by_name(arch);
  device->compute_units = 304;
  snprintf(text, text_bytes, "%s (fake %d)", arch, ordinal);
  return toll();
}

/* ---- hip_probe.h ---- */

void hipk_probe_launch(hipStream_t, hipk_probe *probe) {
  misused = !fake_is_device(probe, sizeof *probe);
  for (int i = 0; i < HIPK_PROBE_ROWS * HIPK_PROBE_ROWS && !misused; i++) {
    const uint16_t *a = probe->a[i / HIPK_PROBE_ROWS], *b = probe->b[i % HIPK_PROBE_ROWS];
    double sum = 0, size = 0;
    for (int k = 0; k < hipk::MATRIX_DIM; k++) {
      const uint32_t bits[2] = {static_cast<uint32_t>(a[k]) << 16, static_cast<uint32_t>(b[k]) << 16};
      float x[2];
      memcpy(x, bits, sizeof x);
      const double product = static_cast<double>(x[0]) * static_cast<double>(x[1]);
      sum += product;
      size += product < 0 ? -product : product;
    }
    probe->out[i / HIPK_PROBE_ROWS][i % HIPK_PROBE_ROWS] = static_cast<float>(sum + matrix_error * size);
  }
}

/* ---- hip_ops.h: what a launch may rely on, then ref on the very pointers ---- */

namespace {

constexpr size_t SCRATCH_BYTES = 4096;

/* Pointers that a launch follows are device memory; NULL where nothing is wanted. */
template <class... Pointers> void want_device(const Pointers *...pointers) {
  const void *const all[] = {pointers...};
  for (const void *p : all) misused |= p != nullptr && !fake_is_device(p, 0);
}
void want_batch(const m3idx_batch *batch) {
  if (batch == nullptr) return;
  want_device(batch->seq_lens, batch->cu_seqlens, batch->prefix_lens);
  if (batch->cu_seqlens != nullptr && !misused) misused = batch->cu_seqlens[batch->num_requests] != batch->num_rows;
}
void want_sparse(const m3idx_sparse_out *sparse) {
  if (sparse != nullptr) want_device(sparse->block_table, sparse->table, sparse->context_lens);
}
void want(const m3idx_score_args *a) {
  want_batch(a->batch);
  want_device(a->q.data, a->index_k.data, a->block_table, a->score);
}
void want(const m3idx_select_args *a) {
  want_batch(a->batch);
  want_device(a->num_blocks, a->score, a->topk_idx, a->keys);
}
void want(const m3idx_merge_args *a) { want_device(a->keys, a->topk_idx, a->merged_keys); }
void want(const m3idx_topk_args *a) {
  want_batch(a->batch);
  want_sparse(a->sparse);
  want_device(a->q.data, a->index_k.data, a->block_table, a->topk_idx);
}
void want(const m3idx_sparse_table_args *a) {
  want_batch(a->batch);
  want_sparse(&a->sparse);
  want_device(a->topk_idx);
}
void want(const m3idx_cache_insert_args *a) { want_device(a->key.data, a->slot_mapping, a->cache.data); }

template <class Args>
void launch(const hipk_launch *at, const Args *args, m3idx_status (*slot)(m3idx_context *, const Args *)) {
  misused = !fake_is_device(at->counters, HIPK_COUNTERS * 4) || !fake_is_device(at->scratch, SCRATCH_BYTES);
  want(args);
  for (int i = 0; i < HIPK_COUNTERS && !misused; i++) misused = at->counters[i] != 0;
  if (misused) return;
  memset(at->scratch, 0xff, SCRATCH_BYTES);
  m3idx_context host = {};
  misused = slot(&host, args) != M3IDX_OK;
  in_flight = at->counters + 5;
  *in_flight = 1;
}

} // namespace

namespace {

/* Plans speak for ref: it does all there is, but for the pairs of formats that no backend inserts (S6.1). */
template <class Args> bool does(const Args *) { return true; }
bool does(const m3idx_cache_insert_args *a) {
  return a->key.dtype == a->cache.dtype ||
         (m3idx_dtype_bytes(a->key.dtype) > 1 && m3idx_dtype_bytes(a->cache.dtype) == 1);
}

} // namespace

#define HIPK_OP(name)                                                                                       \
  m3idx_status hipk_##name##_plan(m3idx_context *ctx, const hipk_device *, const m3idx_##name##_args *args, \
                                  size_t *bytes) {                                                          \
    *bytes = SCRATCH_BYTES;                                                                                 \
    return does(args) ? M3IDX_OK : m3idx_fail(ctx, M3IDX_UNSUPPORTED, "the fake does not do this");         \
  }                                                                                                         \
  void hipk_##name##_launch(const hipk_launch *at, const m3idx_##name##_args *args) {                       \
    launch(at, args, m3idx_backend_ref.name);                                                               \
  }
#include "hip_ops.def"
#undef HIPK_OP
