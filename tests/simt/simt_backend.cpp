/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend table of the SIMT executor: names the buffers of a call, lends a dirty workspace, launches, and
 * looks at the counters afterwards.
 */
#include "simt_backend.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hip_ops.h"
#include "hip_probe.h"
#include "simt.h"
#include "simt_matrix.h"

/* The same sources, compiled for waves of 32 under other names. */
void hipk32_probe_launch(hipStream_t stream, hipk_probe *probe);
#define HIPK_OP(name)                                                                                               \
  m3idx_status hipk32_##name##_plan(m3idx_context *ctx, const hipk_device *device, const m3idx_##name##_args *args, \
                                    size_t *scratch_bytes);                                                         \
  void hipk32_##name##_launch(const hipk_launch *at, const m3idx_##name##_args *args);
#include "hip_ops.def"
#undef HIPK_OP

namespace {

struct machine {
  const char *name;
  hipk_device device;
  int wave;
  size_t group_bytes;
  simt_matrix_unit unit;
  simt_matrix_model probed; /* the model that `worst` was found with; at first none */
  double worst;
};
machine machines[] = {
    {"gfx942", {M3IDX_GFX942, 304, false, M3IDX_GFX942}, 64, 64 * 1024, SIMT_MATRIX_GFX942, {}, 0},
    {"gfx950", {M3IDX_GFX950, 256, false, M3IDX_GFX950}, 64, 160 * 1024, SIMT_MATRIX_GFX950, {}, 0},
    {"wave32", {M3IDX_GFX950, 132, false, M3IDX_GFX942}, 32, 48 * 1024, SIMT_MATRIX_MMA, {}, 0},
};
constexpr size_t MACHINES = sizeof machines / sizeof *machines;

uint64_t seed = 1, calls = 0;
int units = 0;

/* ---- the buffers of a call ---- */

size_t bytes_of(m3idx_dtype dtype) {
  return dtype == M3IDX_F32 ? 4 : dtype == M3IDX_F16 || dtype == M3IDX_BF16 ? 2 : 1;
}

/* From the first element to the last of a strided array of rank 3. */
size_t span(int64_t n0, int64_t n1, int64_t n2, int64_t s0, int64_t s1, int64_t s2) {
  if (n0 <= 0 || n1 <= 0 || n2 <= 0) return 0;
  return static_cast<size_t>((n0 - 1) * s0 + (n1 - 1) * s1 + (n2 - 1) * s2 + 1);
}
template <class T> void input(const T *data, size_t count) { simt::allow(data, count * sizeof(T), false); }
template <class T> void output(T *data, size_t count) {
  simt::allow(data, count * sizeof(T), true, sizeof(T) < 4 ? 1 : 4);
}
void tensor(const m3idx_tensor &t, bool writable) {
  const size_t elems = span(t.shape[0], t.shape[1], t.shape[2], t.stride[0], t.stride[1], t.stride[2]);
  const size_t bytes = bytes_of(t.dtype);
  simt::allow(t.data, elems * bytes, writable, static_cast<unsigned>(bytes));
}
void batch(const m3idx_batch *b) {
  if (!b) return;
  const size_t requests = static_cast<size_t>(b->num_requests);
  input(b->seq_lens, requests);
  input(b->prefix_lens, requests);
  input(b->cu_seqlens, requests + 1);
}
void sparse(const m3idx_sparse_out *s, const m3idx_batch *b, int64_t heads, int64_t topk) {
  if (!s) return;
  input(s->block_table, span(1, b->num_requests, b->max_block, 0, s->block_table_stride, 1));
  output(s->table, span(1, b->num_rows * heads, 8 * topk, 0, s->table_stride, 1));
  output(s->context_lens, static_cast<size_t>(b->num_rows * heads));
}
[[maybe_unused]] void name_buffers(const m3idx_score_args &a) {
  const m3idx_batch &b = *a.batch;
  batch(&b);
  tensor(a.q, false);
  tensor(a.index_k, false);
  input(a.block_table, span(1, b.num_requests, b.max_block, 0, a.block_table_stride, 1));
  output(a.score, span(a.q.shape[1], b.num_rows, b.max_block, a.score_stride_head, a.score_stride_row, 1));
}
[[maybe_unused]] void name_buffers(const m3idx_select_args &a) {
  batch(a.batch);
  input(a.num_blocks, static_cast<size_t>(a.num_rows));
  input(a.score, span(a.num_heads, a.num_rows, a.max_block, a.score_stride_head, a.score_stride_row, 1));
  output(a.topk_idx, span(a.num_heads, a.num_rows, a.topk, a.topk_stride_head, a.topk_stride_row, 1));
  output(a.keys, static_cast<size_t>(a.num_heads * a.num_rows * a.topk));
}
[[maybe_unused]] void name_buffers(const m3idx_merge_args &a) {
  const int64_t keys = a.num_heads * a.num_rows * a.topk;
  input(a.keys, span(1, a.num_parts, keys, 0, a.keys_stride_part, 1));
  output(a.topk_idx, span(a.num_heads, a.num_rows, a.topk, a.topk_stride_head, a.topk_stride_row, 1));
  output(a.merged_keys, static_cast<size_t>(keys));
}
[[maybe_unused]] void name_buffers(const m3idx_topk_args &a) {
  const m3idx_batch &b = *a.batch;
  batch(&b);
  tensor(a.q, false);
  tensor(a.index_k, false);
  input(a.block_table, span(1, b.num_requests, b.max_block, 0, a.block_table_stride, 1));
  output(a.topk_idx, span(a.q.shape[1], b.num_rows, a.topk, a.topk_stride_head, a.topk_stride_row, 1));
  sparse(a.sparse, &b, a.q.shape[1], a.topk);
}
[[maybe_unused]] void name_buffers(const m3idx_sparse_table_args &a) {
  batch(a.batch);
  input(a.topk_idx, span(a.num_heads, a.batch->num_rows, a.topk, a.topk_stride_head, a.topk_stride_row, 1));
  sparse(&a.sparse, a.batch, a.num_heads, a.topk);
}
[[maybe_unused]] void name_buffers(const m3idx_cache_insert_args &a) {
  tensor(a.key, false);
  input(a.slot_mapping, static_cast<size_t>(a.key.shape[1]));
  tensor(a.cache, true);
}

/* ---- a call ---- */

template <class Args> using plan_fn = m3idx_status (*)(m3idx_context *, const hipk_device *, const Args *, size_t *);
template <class Args> using launch_fn = void (*)(const hipk_launch *, const Args *);

template <class Args>
m3idx_status call(m3idx_context *ctx, const machine &on, const char *op, const Args *args, plan_fn<Args> plan,
                  launch_fn<Args> launch) {
  size_t scratch_bytes = 0;
  hipk_device device = on.device;
  if (units) device.compute_units = units;
  m3idx_status status = plan(ctx, &device, args, &scratch_bytes);
  if (status) return status;
  uint32_t *counters = static_cast<uint32_t *>(std::calloc(HIPK_COUNTERS, sizeof *counters));
  unsigned char *scratch = static_cast<unsigned char *>(std::aligned_alloc(256, (scratch_bytes + 511) / 256 * 256));
  if (!counters || !scratch) {
    std::free(counters);
    std::free(scratch);
    return m3idx_fail(ctx, M3IDX_NO_MEMORY, "simt: no memory for a workspace of %zu bytes", scratch_bytes);
  }
  /* What an earlier launch may have left: NaN scores and keys better than any. */
  std::memset(scratch, 0xff, scratch_bytes);
  simt::configure({seed * UINT64_C(1000003) + calls++, on.wave, on.group_bytes});
  simt_matrix_current()->unit = on.unit;
  simt::allow(counters, HIPK_COUNTERS * sizeof *counters, true);
  simt::allow(scratch, scratch_bytes, true);
  name_buffers(*args);
  const hipk_launch at = {&device, nullptr, counters, scratch};
  launch(&at, args);
  if (simt::failure()) status = m3idx_fail(ctx, M3IDX_DEVICE, "simt %s: %s: %s", on.name, op, simt::failure());
  for (int i = 0; !status && i < HIPK_COUNTERS; i++)
    if (counters[i])
      status = m3idx_fail(ctx, M3IDX_DEVICE, "simt %s: %s: counter %d is %lu after the launch", on.name, op, i,
                          static_cast<unsigned long>(counters[i]));
  simt::forbid_all();
  std::free(counters);
  std::free(scratch);
  if (status && std::getenv("M3IDX_SIMT_FIRST")) { /* as in simt_harness.c */
    std::fprintf(stderr, "%s\n", m3idx_message(ctx));
    std::exit(1);
  }
  return status;
}

/* As the HIP backend does it at the first open; here the model may be another one at the next. */
m3idx_status probe_machine(m3idx_context *ctx, machine &on) {
  static hipk_probe probe;
  const simt_matrix_model &model = *simt_matrix_current();
  hipk_probe_fill(&probe);
  simt::configure({seed, on.wave, on.group_bytes});
  simt_matrix_current()->unit = on.unit;
  simt::allow(probe.a, sizeof probe.a, false);
  simt::allow(probe.b, sizeof probe.b, false);
  simt::allow(probe.out, sizeof probe.out, true);
  (on.wave == 64 ? hipk_probe_launch : hipk32_probe_launch)(nullptr, &probe);
  m3idx_status status = M3IDX_OK;
  if (simt::failure()) status = m3idx_fail(ctx, M3IDX_DEVICE, "simt %s: the probe: %s", on.name, simt::failure());
  simt::forbid_all();
  on.probed = model;
  on.worst = hipk_probe_worst(on.device.arch, &probe);
  return status;
}

bool same_model(const simt_matrix_model &a, const simt_matrix_model &b) {
  return a.adversarial == b.adversarial && a.side == b.side && a.scale == b.scale;
}

template <size_t Machine> m3idx_status open_simt(m3idx_context *ctx) {
  machine &on = machines[Machine];
  if (!same_model(on.probed, *simt_matrix_current())) {
    const m3idx_status status = probe_machine(ctx, on);
    if (status) return status;
  }
  snprintf(ctx->details, sizeof ctx->details, "host executor of the HIP kernels, %s, waves of %d", on.name, on.wave);
  hipk_probe_conclude(on.worst, &on.device, ctx->details, sizeof ctx->details);
  return M3IDX_OK;
}
void close_simt(m3idx_context *) {}

#define HIPK_OP(name)                                                                                     \
  template <size_t Machine> m3idx_status op_##name(m3idx_context *ctx, const m3idx_##name##_args *args) { \
    const machine &on = machines[Machine];                                                                \
    return on.wave == 64 ? call(ctx, on, #name, args, hipk_##name##_plan, hipk_##name##_launch)           \
                         : call(ctx, on, #name, args, hipk32_##name##_plan, hipk32_##name##_launch);      \
  }
#include "hip_ops.def"
#undef HIPK_OP

template <size_t Machine> m3idx_backend make_backend(const char *name) {
  m3idx_backend b = {};
  b.abi = M3IDX_BACKEND_ABI;
  b.name = name;
  b.open = open_simt<Machine>;
  b.close = close_simt;
#define HIPK_OP(name) b.name = op_##name<Machine>;
#include "hip_ops.def"
#undef HIPK_OP
  return b;
}

const m3idx_backend backends[MACHINES] = {make_backend<0>("simt-gfx942"), make_backend<1>("simt-gfx950"),
                                          make_backend<2>("simt-wave32")};

} // namespace

const m3idx_backend *simt_backend(const char *arch) {
  for (size_t i = 0; i < MACHINES; i++)
    if (!std::strcmp(arch, machines[i].name)) return &backends[i];
  return nullptr;
}

void simt_backend_seed(uint64_t value) {
  seed = value;
  calls = 0;
}

void simt_backend_units(int value) { units = value; }

uint64_t simt_backend_groups(void) { return simt::groups_run(); }
