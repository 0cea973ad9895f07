/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of prefill on a real device: certified scores and the filter alone, fused selection and its filter, beside
 * what torch took on the same machine (silicon_torch.py).  It calls the launchers of hip/ themselves, because no
 * interface offers the filter alone; scores and ids are compared with the CPU backend's first, so a time belongs to a
 * right answer.  silicon_prefill [FILE.json [TORCH.txt]]; a missed bar is printed, not an error.
 *
 * A launch is a graph of its kernels; times are medians over replays.  Keys and scores are those of one launch: 8 MB
 * of keys stay in the L2 cache in any case, 32 MB mostly.
 */
#include <algorithm>

#include "hip_device.h"
#include "hip_prefill.h"
#include "silicon_run.h"

namespace {

constexpr int64_t D = 128, B = 128, K = 16;
constexpr int REPLAYS = 30;

struct shape {
  int64_t rows, keys;
  double torch_times, triton_tflops; /* bar: torch's rate times this; a public Triton scorer on such a GPU */
};
const shape SHAPES[] = {{8192, 32768, 1.5, 174}, {2048, 131072, 1.5, 45}};

struct problem {
  m3idx_batch batch = {};
  m3idx_score_args score = {};
  m3idx_topk_args topk = {};
};

problem problem_of(const shape &s, const uint16_t *q, const uint16_t *keys, const int32_t *table, const int32_t *lens,
                   float *score, int32_t *ids) {
  problem p;
  const int64_t blocks = s.keys / B;
  p.batch.mode = M3IDX_PREFILL;
  p.batch.num_requests = 1;
  p.batch.num_rows = s.rows;
  p.batch.max_block = blocks;
  p.batch.block_size = B;
  p.batch.seq_lens = lens;
  p.batch.prefix_lens = lens + 1;
  p.batch.cu_seqlens = lens + 2;
  p.score.q = {const_cast<uint16_t *>(q), M3IDX_BF16, {s.rows, 1, D}, {D, D, 1}};
  p.score.index_k = {const_cast<uint16_t *>(keys), M3IDX_BF16, {blocks, B, D}, {B * D, D, 1}};
  p.score.block_table = table;
  p.score.block_table_stride = blocks;
  p.score.scale = 1;
  p.score.score = score;
  p.score.score_stride_row = blocks;
  p.score.score_stride_head = s.rows * blocks;
  p.topk.q = p.score.q;
  p.topk.index_k = p.score.index_k;
  p.topk.block_table = table;
  p.topk.block_table_stride = blocks;
  p.topk.scale = 1;
  p.topk.local_blocks = 1;
  p.topk.topk = K;
  p.topk.topk_idx = ids;
  p.topk.topk_stride_row = K;
  p.topk.topk_stride_head = s.rows * K;
  return p;
}

double median_us(hipStream_t stream, const std::vector<hipGraphExec_t> &graphs) {
  hipEvent_t begin, end;
  MUST(hipEventCreate(&begin));
  MUST(hipEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i < REPLAYS + 5; i++) {
    float ms = 0;
    MUST(hipEventRecord(begin, stream));
    MUST(hipGraphLaunch(graphs[0], stream));
    MUST(hipEventRecord(end, stream));
    MUST(hipEventSynchronize(end));
    MUST(hipEventElapsedTime(&ms, begin, end));
    if (i >= 5) times.push_back(ms * 1e3);
  }
  MUST(hipGraphExecDestroy(graphs[0]));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/* The graph of what enqueue() launches. */
template <class Enqueue> double time_launches(hipStream_t stream, Enqueue enqueue) {
  hipGraph_t graph;
  hipGraphExec_t exec;
  enqueue();
  MUST(hipGetLastError());
  MUST(hipStreamSynchronize(stream));
  MUST(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  enqueue();
  MUST(hipStreamEndCapture(stream, &graph));
  MUST(hipGraphInstantiate(&exec, graph, 0));
  MUST(hipGraphDestroy(graph));
  return median_us(stream, {exec});
}

/* torch's microseconds for the shape, from lines "rows keys us"; 0 = not known. */
double torch_us(const char *path, const shape &s) {
  FILE *file = path ? fopen(path, "r") : nullptr;
  if (!file) return 0;
  long long rows, keys;
  double us, found = 0;
  while (fscanf(file, "%lld %lld %lf", &rows, &keys, &us) == 3)
    if (rows == s.rows && keys == s.keys) found = us;
  fclose(file);
  return found;
}

bool bench(const shape &s, const hipk_device &device, hipStream_t stream, FILE *json, const char *torch_file,
           const char *comma) {
  const int64_t blocks = s.keys / B;
  const size_t scores = static_cast<size_t>(s.rows * blocks), picks = static_cast<size_t>(s.rows * K);
  const std::vector<uint16_t> q = random_bf16(static_cast<size_t>(s.rows * D), 31),
                              keys = random_bf16(static_cast<size_t>(s.keys * D), 32);
  const std::vector<int32_t> table = shuffled(static_cast<size_t>(blocks), 33);
  const std::vector<int32_t> lens = {static_cast<int32_t>(s.keys), static_cast<int32_t>(s.keys - s.rows), 0,
                                     static_cast<int32_t>(s.rows)};
  float *score = device_array<float>(scores);
  int32_t *ids = device_array<int32_t>(picks);
  MUST(hipMemset(score, 0x5a, scores * 4));
  MUST(hipMemset(ids, 0x5a, picks * 4));
  const problem p = problem_of(s, device_copy(q), device_copy(keys), device_copy(table), device_copy(lens), score, ids);
  problem here = p;
  here.score.batch = here.topk.batch = &here.batch;
  size_t score_bytes = 0, topk_bytes = 0;
  m3idx_context *ctx = open_backend("cpu");
  must(ctx, hipk_score_plan(ctx, &device, &here.score, &score_bytes), "hipk_score_plan");
  must(ctx, hipk_topk_plan(ctx, &device, &here.topk, &topk_bytes), "hipk_topk_plan");
  const hipk_launch at = {&device, stream, nullptr, device_array<unsigned char>(std::max(score_bytes, topk_bytes))};
  MUST(hipDeviceSynchronize());

  const double score_us = time_launches(stream, [&] { hipk_score_launch(&at, &here.score); });
  const double topk_us = time_launches(stream, [&] { hipk_topk_launch(&at, &here.topk); });
  std::vector<float> got(scores), want(scores);
  std::vector<int32_t> got_ids(picks), want_ids(picks);
  MUST(hipMemcpy(got.data(), score, scores * 4, hipMemcpyDeviceToHost));
  MUST(hipMemcpy(got_ids.data(), ids, picks * 4, hipMemcpyDeviceToHost));
  problem cpu = problem_of(s, q.data(), keys.data(), table.data(), lens.data(), want.data(), want_ids.data());
  cpu.score.batch = cpu.topk.batch = &cpu.batch;
  must(ctx, m3idx_score(ctx, &cpu.score), "m3idx_score");
  must(ctx, m3idx_topk(ctx, &cpu.topk), "m3idx_topk");
  m3idx_close(ctx);
  const bool right = memcmp(got.data(), want.data(), scores * 4) == 0 && got_ids == want_ids;

  /* The same launches without what makes them exact. */
  hipk::score_view view = hipk::view_score(&device, &here.batch, &here.score.q, &here.score.index_k);
  view.block_table = here.score.block_table;
  view.block_table_stride = blocks;
  view.scale = 1;
  view.score = score;
  view.score_stride_row = blocks;
  view.score_stride_head = s.rows * blocks;
  const hipk::prefill_plan plan = hipk::plan_prefill(&device, view, M3IDX_BF16, M3IDX_BF16, true);
  const hipk::prefill_view window = hipk::view_window(&at, view, plan, 0);
  hipk::prefill_view bare = window;
  bare.bare = true;
  m3idx_select_args select = {};
  select.batch = &here.batch;
  select.num_heads = 1;
  select.num_rows = s.rows;
  select.max_block = blocks;
  select.local_blocks = 1;
  select.topk = K;
  select.topk_idx = ids;
  select.topk_stride_row = K;
  select.topk_stride_head = s.rows * K;
  const hipk::select_view picked = hipk::view_select(&select, nullptr);
  const double norms_us = time_launches(stream, [&] { hipk::launch_norms(&at, window, true, M3IDX_BF16); });
  const double tiles_us = time_launches(stream, [&] { hipk::launch_tiles(&at, window, true, M3IDX_BF16); });
  const double settle_us = time_launches(stream, [&] { hipk::launch_settle(&at, window, M3IDX_BF16); });
  const double filter_us = time_launches(stream, [&] {
    hipk::launch_norms(&at, bare, true, M3IDX_BF16);
    hipk::launch_tiles(&at, bare, false, M3IDX_BF16);
  });
  hipk::launch_tiles(&at, window, false, M3IDX_BF16); /* what the selectors below read */
  const double select_us =
      time_launches(stream, [&] { hipk::launch_prefill_select(&at, window, picked, true, M3IDX_BF16); });
  const double plain_select_us =
      time_launches(stream, [&] { hipk::launch_prefill_select(&at, window, picked, false, M3IDX_BF16); });
  for (const void *x :
       {static_cast<const void *>(score), static_cast<const void *>(ids), static_cast<const void *>(at.scratch),
        static_cast<const void *>(p.score.q.data), static_cast<const void *>(p.score.index_k.data),
        static_cast<const void *>(p.score.block_table), static_cast<const void *>(p.batch.seq_lens)})
    MUST(hipFree(const_cast<void *>(x)));

  /* Pairs of a row and a key that it sees; torch multiplies all pairs. */
  const double seen = static_cast<double>(s.rows) * (static_cast<double>(s.keys) - static_cast<double>(s.rows - 1) / 2);
  const double flops = 2.0 * D * seen, all_flops = 2.0 * D * static_cast<double>(s.rows * s.keys);
  const double torch = torch_us(torch_file, s), rate = flops / score_us * 1e-6, topk_rate = flops / topk_us * 1e-6;
  const double torch_rate = torch > 0 ? all_flops / torch * 1e-6 : 0;
  const double cost = score_us / filter_us, topk_cost = topk_us / (filter_us + plain_select_us);
  printf("%lld queries x %lld keys: %s, splits %d\n", static_cast<long long>(s.rows), static_cast<long long>(s.keys),
         right ? "bytes of cpu" : "WRONG ANSWER", plan.splits);
  printf("  scores %9.1f us %7.1f TFLOP/s   torch %9.1f us %7.1f TFLOP/s   ratio %.2f (bar %.1f)   Triton %.0f\n",
         score_us, rate, torch, torch_rate, torch > 0 ? rate / torch_rate : 0, s.torch_times, s.triton_tflops);
  printf("  filter %9.1f us %7.1f TFLOP/s   exact/filter %.3f (bar 1.5)   norms %.1f  tiles %.1f  settle %.1f us\n",
         filter_us, flops / filter_us * 1e-6, cost, norms_us, tiles_us, settle_us);
  printf("  fused  %9.1f us %7.1f TFLOP/s   exact/filter %.3f (bar 1.15)  select %.1f us, without intervals %.1f us\n",
         topk_us, topk_rate, topk_cost, select_us, plain_select_us);
  if (json)
    fprintf(json,
            "%s\n  {\"rows\": %lld, \"keys\": %lld, \"right\": %s, \"scores_us\": %.2f, \"scores_tflops\": %.2f, "
            "\"filter_us\": %.2f, \"fused_us\": %.2f, \"select_us\": %.2f, \"plain_select_us\": %.2f, \"torch_us\": "
            "%.2f, \"torch_tflops\": %.2f}",
            comma, static_cast<long long>(s.rows), static_cast<long long>(s.keys), right ? "true" : "false", score_us,
            rate, filter_us, topk_us, select_us, plain_select_us, torch, torch_rate);
  return right;
}

} // namespace

int main(int argc, char **argv) {
  FILE *json = nullptr;
  if (argc > 1 && (json = fopen(argv[1], "w")) == nullptr) stop(argv[1], "cannot be written");
  hipk_device device = {};
  char text[512];
  MUST(hipk_device_query(0, &device, text, sizeof text));
  device.matrix = true; /* the plugin's probe judges the same unit in every other program here */
  printf("%s\n", text);
  hipStream_t stream;
  MUST(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  if (json) fprintf(json, "{\"device\": \"%s\", \"shapes\": [", text);
  bool right = true;
  const char *comma = "";
  for (const shape &s : SHAPES) {
    right = bench(s, device, stream, json, argc > 2 ? argv[2] : nullptr, comma) && right;
    comma = ",";
  }
  if (json) {
    fprintf(json, "\n]}\n");
    fclose(json);
  }
  return right ? 0 : 1;
}
