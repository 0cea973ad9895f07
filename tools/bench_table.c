/* SPDX-License-Identifier: Apache-2.0
 *
 * What is measured, and what is to be reached: data only, but for the shapes that a case gives.
 */
#include "bench.h"

#define PREFILL(rows, blocks) BENCH_PREFILL, BENCH_NORMAL, 1, rows, 1, blocks
#define ARRAYS(data, rows, blocks) BENCH_ARRAY, data, 1, rows, 1, blocks
#define SORTING(threads)                                                                               \
  {"select", BENCH_SELECT, NULL, threads}, {"std::partial_sort", BENCH_PARTIAL_SORT, NULL, threads}, { \
    "std::nth_element", BENCH_NTH_ELEMENT, NULL, threads                                               \
  }
#define ON_CONTEXT                                                                                           \
  {"score", BENCH_SCORE, NULL, 0}, {"selected", BENCH_SELECTED, NULL, 0}, {"filter", BENCH_FILTER, NULL, 0}, \
      {"sgemm+max", BENCH_SGEMM_MAX, NULL, 0}, {"oneDNN bf16+max", BENCH_ONEDNN_MAX, NULL, 0},               \
      {"torch bf16+amax", BENCH_TORCH_BF16_MAX, NULL, 0}, {                                                  \
    "torch bf16+amax+topk", BENCH_TORCH_BF16_TOPK, NULL, 0                                                   \
  }
#define OURS_ONE(isa)                                                                           \
  {"score " isa " 1t", BENCH_SCORE, isa, 1}, {"selected " isa " 1t", BENCH_SELECTED, isa, 1}, { \
    "filter " isa " 1t", BENCH_FILTER, isa, 1                                                   \
  }
#define STREAMING \
  {"score", BENCH_SCORE, NULL, 0}, {"selected", BENCH_SELECTED, NULL, 0}, { "read", BENCH_READ, NULL, 0 }

const bench_shape bench_shapes[] = {
    {"prefill-512x64",
     PREFILL(512, 64),
     1,
     {OURS_ONE("avx2"),
      OURS_ONE("avx512"),
      OURS_ONE("amx"),
      {"score avx2 2t", BENCH_SCORE, "avx2", 2},
      {"sgemm avx2 1t", BENCH_SGEMM, "avx2", 1},
      {"sgemm+max avx2 1t", BENCH_SGEMM_MAX, "avx2", 1},
      {"sgemm avx2 2t", BENCH_SGEMM, "avx2", 2},
      {"sgemm best 1t", BENCH_SGEMM, NULL, 1},
      {"sgemm+max best 1t", BENCH_SGEMM_MAX, NULL, 1},
      {"oneDNN bf16+max 1t", BENCH_ONEDNN_MAX, NULL, 1}}},
    {"prefill-512x64-ties", BENCH_PREFILL, BENCH_TIES, 1, 512, 1, 64, 1, {OURS_ONE("avx2"), OURS_ONE("avx512")}},
    {"prefill-32x64",
     PREFILL(32, 64),
     1,
     {{"selected 1t", BENCH_SELECTED, NULL, 1}, {"plain C 1t", BENCH_PLAIN, NULL, 1}}},
    {"select-74", ARRAYS(BENCH_RANDOM, 8192, 74), 1, {SORTING(1)}},
    {"select-1024", ARRAYS(BENCH_RANDOM, 1024, 1024), 1, {SORTING(1)}},
    {"select-8192", ARRAYS(BENCH_RANDOM, 256, 8192), 1, {SORTING(1)}},
    {"select-65536", ARRAYS(BENCH_RANDOM, 32, 65536), 1, {SORTING(1)}},
    {"select-74-ascending", ARRAYS(BENCH_ASCENDING, 4096, 74), 1, {SORTING(1)}},
    {"select-1024-ascending", ARRAYS(BENCH_ASCENDING, 512, 1024), 1, {SORTING(1)}},
    {"select-8192-ascending", ARRAYS(BENCH_ASCENDING, 64, 8192), 1, {SORTING(1)}},
    {"select-65536-ascending", ARRAYS(BENCH_ASCENDING, 8, 65536), 1, {SORTING(1)}},
    {"select-74-equal", ARRAYS(BENCH_EQUAL, 4096, 74), 1, {SORTING(1)}},
    {"select-1024-equal", ARRAYS(BENCH_EQUAL, 512, 1024), 1, {SORTING(1)}},
    {"select-8192-equal", ARRAYS(BENCH_EQUAL, 256, 8192), 1, {SORTING(1)}},
    {"select-65536-equal", ARRAYS(BENCH_EQUAL, 32, 65536), 1, {SORTING(1)}},
    {"select-74-nan", ARRAYS(BENCH_NAN, 4096, 74), 1, {SORTING(1)}},
    {"select-8192-nan", ARRAYS(BENCH_NAN, 256, 8192), 1, {SORTING(1)}},
    {"context-8", PREFILL(512, 8), 1, {ON_CONTEXT}},
    {"context-32", PREFILL(512, 32), 1, {ON_CONTEXT}},
    {"context-128", PREFILL(512, 128), 1, {ON_CONTEXT}},
    {"context-512", PREFILL(512, 512), 1, {ON_CONTEXT}},
    {"server-context-2048", PREFILL(512, 2048), 8, {ON_CONTEXT}},
    {"server-prefill-2048x1024",
     PREFILL(2048, 1024),
     16,
     {{"score amx", BENCH_SCORE, "amx", 0},
      {"selected amx", BENCH_SELECTED, "amx", 0},
      {"filter amx", BENCH_FILTER, "amx", 0},
      {"score avx512", BENCH_SCORE, "avx512", 0},
      {"selected avx512", BENCH_SELECTED, "avx512", 0},
      {"filter avx512", BENCH_FILTER, "avx512", 0},
      {"sgemm+max", BENCH_SGEMM_MAX, NULL, 0},
      {"oneDNN bf16+max", BENCH_ONEDNN_MAX, NULL, 0},
      {"torch bf16+amax", BENCH_TORCH_BF16_MAX, NULL, 0},
      {"torch bf16+amax+topk", BENCH_TORCH_BF16_TOPK, NULL, 0},
      {"torch f32+amax", BENCH_TORCH_F32_MAX, NULL, 0}}},
    {"decode-1x32k", BENCH_DECODE, BENCH_NORMAL, 1, 1, 1, 256, 1, {STREAMING}},
    {"decode-4x32k-4x4", BENCH_DECODE, BENCH_NORMAL, 4, 4, 4, 256, 1, {STREAMING}},
    {"server-decode-32x32k", BENCH_DECODE, BENCH_NORMAL, 32, 1, 1, 256, 8, {STREAMING}},
    {"server-decode-1x1M", BENCH_DECODE, BENCH_NORMAL, 1, 1, 1, 8192, 8, {STREAMING}},
    {"server-decode-32x32k-4x4", BENCH_DECODE, BENCH_NORMAL, 32, 4, 4, 256, 8, {STREAMING}},
    {"server-decode-1x1M-4x4", BENCH_DECODE, BENCH_NORMAL, 1, 4, 4, 8192, 8, {STREAMING}},
};
const int bench_num_shapes = sizeof bench_shapes / sizeof *bench_shapes;

void bench_shapes_of(const m3idx_case *c, bench_shape shapes[BENCH_OF_CASE]) {
  static const bench_shape shape = {"case",
                                    BENCH_PREFILL,
                                    BENCH_CASE,
                                    1,
                                    BENCH_CASE_ROWS,
                                    1,
                                    0,
                                    1,
                                    {OURS_ONE("avx2"), OURS_ONE("avx512"), OURS_ONE("amx")}};
  shapes[0] = shape;
  shapes[0].heads = c->H;
  shapes[0].blocks = c->seq_lens[0] / BENCH_PAGE;
  shapes[1] = shapes[0];
  shapes[1].name = "case-normal";
  shapes[1].data = BENCH_NORMAL;
}

const bench_bar bench_bars[] = {
    {"prefill-512x64", "score avx2 1t", "sgemm avx2 1t", 1.10, false},
    {"prefill-512x64", "score avx2 1t", "sgemm+max avx2 1t", 1.15, false},
    {"prefill-512x64", "score avx2 2t", "score avx2 1t", 1.8, false},
    {"prefill-512x64", "score avx2 2t", "sgemm avx2 2t", 1.0, false},
    {"prefill-512x64", "score avx2 1t", "filter avx2 1t", 1.15, true},
    {"prefill-512x64", "score avx512 1t", "filter avx512 1t", 1.15, true},
    {"prefill-512x64", "score amx 1t", "filter amx 1t", 5, true},
    {"prefill-512x64", "selected avx2 1t", "filter avx2 1t", 1.3, true},
    {"prefill-512x64", "selected avx512 1t", "filter avx512 1t", 1.3, true},
    {"prefill-512x64", "selected amx 1t", "filter amx 1t", 1.3, true},
    {"prefill-512x64-ties", "score avx2 1t", "filter avx2 1t", 8, true},
    {"prefill-512x64-ties", "score avx512 1t", "filter avx512 1t", 8, true},
    {"context-512", "selected", "filter", 1.3, true},
    {"prefill-32x64", "selected 1t", "plain C 1t", 10, false},
    {"select-74", "select", "std::partial_sort", 3, false},
    {"select-1024", "select", "std::partial_sort", 3, false},
    {"select-8192", "select", "std::partial_sort", 3, false},
    {"select-65536", "select", "std::partial_sort", 3, false},
    {"select-74-ascending", "select", "std::partial_sort", 1, false},
    {"select-1024-ascending", "select", "std::partial_sort", 1, false},
    {"select-8192-ascending", "select", "std::partial_sort", 1, false},
    {"select-65536-ascending", "select", "std::partial_sort", 1, false},
    {"select-74-equal", "select", "std::partial_sort", 1, false},
    {"select-1024-equal", "select", "std::partial_sort", 1, false},
    {"select-8192-equal", "select", "std::partial_sort", 1, false},
    {"select-65536-equal", "select", "std::partial_sort", 1, false},
    {"select-74-nan", "select", "std::partial_sort", 1, false},
    {"select-8192-nan", "select", "std::partial_sort", 1, false},
    {"server-prefill-2048x1024", "score amx", "torch bf16+amax", 6, false},
    {"server-prefill-2048x1024", "score amx", "score avx512", 3, false},
    {"server-prefill-2048x1024", "selected amx", "torch bf16+amax+topk", 12, false},
    {"server-prefill-2048x1024", "score avx512", "torch f32+amax", 1.5, false},
    {"server-prefill-2048x1024", "score avx512", "torch bf16+amax", 1.2, false},
    {"server-prefill-2048x1024", "score avx512", "filter avx512", 1.15, true},
    {"server-prefill-2048x1024", "score amx", "filter amx", 5, true},
    {"server-prefill-2048x1024", "selected avx512", "filter avx512", 1.3, true},
    {"server-prefill-2048x1024", "selected amx", "filter amx", 1.3, true},
    {"server-decode-32x32k", "score", "read", 0.8, false},
    {"server-decode-1x1M", "score", "read", 0.8, false},
    {"server-decode-32x32k-4x4", "score", "read", 0.6, false},
    {"server-decode-1x1M-4x4", "score", "read", 0.6, false},
};
const int bench_num_bars = sizeof bench_bars / sizeof *bench_bars;
