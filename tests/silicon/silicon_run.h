/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs of this directory share: device buffers, a context on a stream, random data.  They call the
 * public interface and the device runtime by its HIP names, so they build for either vendor's GPU.  A failure
 * of the machinery ends the program with status 2 and a sentence.
 */
#ifndef M3IDX_SILICON_RUN_H
#define M3IDX_SILICON_RUN_H

#include <hip/hip_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "m3idx.h"

[[noreturn]] inline void stop(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(2);
}
inline void must(hipError_t error, const char *what) {
  if (error != hipSuccess) stop(what, hipGetErrorString(error));
}
#define MUST(call) must(call, #call)

/* Device memory; lives as long as the program. */
template <class T> T *device_array(size_t count) {
  void *p = nullptr;
  MUST(hipMalloc(&p, count * sizeof(T) + 16));
  return static_cast<T *>(p);
}
template <class T> T *device_copy(const std::vector<T> &host) {
  T *p = device_array<T>(host.size());
  MUST(hipMemcpy(p, host.data(), host.size() * sizeof(T), hipMemcpyHostToDevice));
  return p;
}

/* xorshift64*: one stream a seed. */
struct random_bits {
  uint64_t state;
  explicit random_bits(uint64_t seed) : state(seed * UINT64_C(0x9e3779b97f4a7c15) + 1) {}
  uint64_t next() {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * UINT64_C(0x2545f4914f6cdd1d);
  }
  /* Near normal: four uniform 16-bit numbers, centred; variance 1. */
  float normal() {
    const uint64_t r = next();
    const int sum = static_cast<int>((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48));
    return static_cast<float>(sum - 2 * 65535) * (1.7320508f / 65536.0f);
  }
};
inline uint16_t bf16_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* finite x */
}
inline std::vector<uint16_t> random_bf16(size_t count, uint64_t seed) {
  random_bits random(seed);
  std::vector<uint16_t> out(count);
  for (uint16_t &x : out) x = bf16_bits(random.normal());
  return out;
}
/* 0 .. count - 1 in random order. */
inline std::vector<int32_t> shuffled(size_t count, uint64_t seed) {
  random_bits random(seed);
  std::vector<int32_t> out(count);
  for (size_t i = 0; i < count; i++) out[i] = static_cast<int32_t>(i);
  for (size_t i = count; i > 1; i--) {
    const size_t j = random.next() % i;
    const int32_t swap = out[i - 1];
    out[i - 1] = out[j];
    out[j] = swap;
  }
  return out;
}

inline m3idx_context *open_backend(const char *name) {
  m3idx_context *ctx = nullptr;
  char why[512];
  m3idx_options options = {};
  options.backend = name;
  if (m3idx_open(&ctx, &options, why, sizeof why)) stop("m3idx_open", why);
  return ctx;
}

inline void must(m3idx_context *ctx, m3idx_status status, const char *what) {
  if (status) stop(what, m3idx_message(ctx));
}

/* A context of the plugin on its own stream, and one workspace that serves every call planned on it. */
struct device_run {
  m3idx_context *ctx = open_backend("hip");
  hipStream_t stream = nullptr;
  unsigned char *workspace = nullptr;
  size_t workspace_bytes = 0;

  device_run() {
    MUST(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    must(ctx, m3idx_set_stream(ctx, stream, M3IDX_DEVICE_MEMORY), "m3idx_set_stream");
  }
  device_run(const device_run &) = delete;
  template <class Args> void plan(m3idx_op op, const Args &args) {
    size_t bytes = 0;
    must(ctx, m3idx_plan(ctx, op, &args, &bytes), "m3idx_plan");
    if (bytes > workspace_bytes) workspace_bytes = bytes;
  }
  void lend_workspace() {
    workspace = device_array<unsigned char>(workspace_bytes);
    MUST(hipMemset(workspace, 0, workspace_bytes));
    MUST(hipDeviceSynchronize()); /* this and every copy before it; the stream does not wait for them by itself */
    must(ctx, m3idx_set_workspace(ctx, workspace, workspace_bytes), "m3idx_set_workspace");
  }
  /* The graph of what `enqueue` puts on the stream; once without a graph first, because a runtime may load a kernel
   * at its first launch. */
  template <class Enqueue> hipGraphExec_t capture(Enqueue enqueue) {
    enqueue();
    MUST(hipStreamSynchronize(stream));
    hipGraph_t graph;
    hipGraphExec_t exec;
    MUST(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
    enqueue();
    MUST(hipStreamEndCapture(stream, &graph));
    MUST(hipGraphInstantiate(&exec, graph, 0));
    MUST(hipGraphDestroy(graph));
    return exec;
  }
};

#endif
