/* SPDX-License-Identifier: Apache-2.0
 *
 * Times on a real device, against the bars of docs/PERFORMANCE.md: a graph of calls back to back, each on
 * buffers of its own so that the caches do not hold them, divided by the number of calls; the median over
 * replays.  "alone" is one call in a graph, with what it costs to start it.  Bytes are those of the index keys,
 * each counted once a call.  The fused selection of the first copy is compared with the CPU backend, so a time
 * always belongs to a right answer.  silicon_bench [FILE.json [PART]]: the shapes whose names have the part; a missed
 * bar is printed, not an error.
 */
#include <algorithm>
#include <string>

#include "silicon_run.h"

namespace {

constexpr int64_t D = 128, B = 128, K = 16;
constexpr double ROTATED_BYTES = 384e6; /* several times any L2 */
constexpr int REPLAYS = 40;

struct decode_shape {
  int64_t reqs, seq_len, rows, heads;
  double most_us, least_tbs; /* the bar: one of them */
  const char *triton;        /* a public Triton implementation on an H200 */
};
const decode_shape DECODE[] = {
    {1, 8192, 1, 1, 12, 0, "14.9 us"},       {8, 8192, 4, 1, 16, 0, "18.6 us"},
    {32, 32768, 1, 1, 0, 3.2, "2.38 TB/s"},  {32, 32768, 4, 1, 0, 2.4, "0.74 TB/s"},
    {1, 1048576, 1, 1, 0, 2.4, "0.11 TB/s"}, {64, 8192, 1, 4, 0, 2.0, "0.82 TB/s"},
};
struct select_shape {
  int64_t rows, blocks;
  double most_us;
  const char *torch;
};
const select_shape SELECT[] = {{4, 74, 5, "10.3 us"}, {128, 8192, 20, "62.4 us"}};

struct timing {
  double chained_us, alone_us;
};

double median(std::vector<double> &x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

class stopwatch {
public:
  stopwatch() {
    MUST(hipEventCreate(&begin));
    MUST(hipEventCreate(&end));
  }
  double us(hipGraphExec_t graph, hipStream_t stream) {
    float ms = 0;
    MUST(hipEventRecord(begin, stream));
    MUST(hipGraphLaunch(graph, stream));
    MUST(hipEventRecord(end, stream));
    MUST(hipEventSynchronize(end));
    MUST(hipEventElapsedTime(&ms, begin, end));
    return ms * 1e3;
  }

private:
  hipEvent_t begin, end;
};

/* call(i) enqueues the call on copy i. */
template <class Call> timing time_calls(device_run &device, int copies, Call call) {
  stopwatch watch;
  timing t;
  hipGraphExec_t chain = device.capture([&] {
    for (int i = 0; i < copies; i++) call(i);
  });
  std::vector<double> times;
  for (int i = 0; i < REPLAYS + 3; i++) {
    const double us = watch.us(chain, device.stream) / copies;
    if (i >= 3) times.push_back(us);
  }
  t.chained_us = median(times);
  MUST(hipGraphExecDestroy(chain));
  const int singles = std::min(copies, 32);
  std::vector<hipGraphExec_t> graphs;
  for (int i = 0; i < singles; i++) graphs.push_back(device.capture([&] { call(i); }));
  times.clear();
  for (int i = 0; i < 2 * singles + REPLAYS; i++) {
    const double us = watch.us(graphs[i % singles], device.stream);
    if (i >= singles) times.push_back(us);
  }
  t.alone_us = median(times);
  for (hipGraphExec_t graph : graphs) MUST(hipGraphExecDestroy(graph));
  return t;
}

int copies_for(double bytes) { return static_cast<int>(std::min(192.0, std::max(2.0, ROTATED_BYTES / bytes + 1))); }

FILE *json;
const char *json_comma = "";

void report_json(const char *name, const timing &t, double tbs, double bar, const char *unit, const char *peer,
                 bool met) {
  if (json == nullptr) return;
  fprintf(json,
          "%s\n  {\"shape\": \"%s\", \"chained_us\": %.3f, \"alone_us\": %.3f, \"key_tb_s\": %.4f, \"bar\": %g, "
          "\"unit\": \"%s\", "
          "\"peer\": \"%s\", \"met\": %s}",
          json_comma, name, t.chained_us, t.alone_us, tbs, bar, unit, peer, met ? "true" : "false");
  json_comma = ",";
}

/* ---- decode ---- */

struct decode_copy {
  m3idx_batch batch = {};
  m3idx_topk_args topk = {};
  m3idx_sparse_out sparse = {};
  m3idx_score_args score = {};
  m3idx_select_args select = {};
};

void fill_args(decode_copy &c, const decode_shape &s, const uint16_t *q, const uint16_t *keys, const int32_t *table,
               const int32_t *seq_lens, int32_t *idx, int32_t *sparse_table, int32_t *context_lens, float *score) {
  const int64_t T = s.reqs * s.rows, M = s.seq_len / B;
  c.batch.mode = M3IDX_DECODE;
  c.batch.num_requests = s.reqs;
  c.batch.num_rows = T;
  c.batch.max_block = M;
  c.batch.decode_query_len = s.rows;
  c.batch.seq_lens = seq_lens;
  c.topk.batch = c.score.batch = c.select.batch = &c.batch;
  c.topk.q = {const_cast<uint16_t *>(q), M3IDX_BF16, {T, s.heads, D}, {0, 0, 0}};
  c.topk.index_k = {const_cast<uint16_t *>(keys), M3IDX_BF16, {s.reqs * M, B, D}, {0, 0, 0}};
  c.topk.block_table = c.sparse.block_table = table;
  c.topk.local_blocks = c.score.local_blocks = 1;
  c.topk.topk = c.select.topk = K;
  c.topk.topk_idx = idx;
  c.sparse.table = sparse_table;
  c.sparse.context_lens = context_lens;
  c.topk.sparse = &c.sparse;
  c.score.q = c.topk.q;
  c.score.index_k = c.topk.index_k;
  c.score.block_table = table;
  c.score.score = score;
  c.select.score = score;
  c.select.num_heads = s.heads;
  c.select.num_rows = T;
  c.select.max_block = M;
  c.select.topk_idx = idx;
}

/* The ids, table and context lengths of the CPU backend, one after the other. */
std::vector<int32_t> expected(const decode_shape &s, const std::vector<uint16_t> &q, const std::vector<uint16_t> &keys,
                              const std::vector<int32_t> &table, const std::vector<int32_t> &seq_lens) {
  const size_t picks = static_cast<size_t>(s.reqs * s.rows * s.heads);
  std::vector<int32_t> out(picks * (K + 8 * K + 1));
  decode_copy c;
  fill_args(c, s, q.data(), keys.data(), table.data(), seq_lens.data(), out.data(), out.data() + picks * K,
            out.data() + picks * 9 * K, nullptr);
  m3idx_context *cpu = open_backend("cpu");
  must(cpu, m3idx_topk(cpu, &c.topk), "m3idx_topk");
  m3idx_close(cpu);
  return out;
}

std::string name_of(const decode_shape &s) {
  char name[64];
  snprintf(name, sizeof name, "%lld x %lld, %lld row%s, %lld head%s", static_cast<long long>(s.reqs),
           static_cast<long long>(s.seq_len), static_cast<long long>(s.rows), s.rows > 1 ? "s" : "",
           static_cast<long long>(s.heads), s.heads > 1 ? "s" : "");
  return name;
}

bool bench_decode(const decode_shape &s) {
  const size_t picks = static_cast<size_t>(s.reqs * s.rows * s.heads),
               blocks = static_cast<size_t>(s.reqs * s.seq_len / B);
  const size_t key_elems = blocks * B * D;
  const double key_bytes = static_cast<double>(key_elems) * 2;
  const int copies = copies_for(key_bytes);
  const std::vector<uint16_t> q = random_bf16(picks * D, 11), keys = random_bf16(key_elems, 12);
  const std::vector<int32_t> table = shuffled(blocks, 13),
                             seq_lens(static_cast<size_t>(s.reqs), static_cast<int32_t>(s.seq_len));
  device_run device;
  const int32_t *device_lens = device_copy(seq_lens);
  std::vector<decode_copy> copy(static_cast<size_t>(copies));
  std::vector<int32_t *> out;
  std::vector<void *> owned = {const_cast<int32_t *>(device_lens)};
  const uint16_t *first_keys = nullptr;
  for (decode_copy &c : copy) {
    /* Copies hold the same numbers at other addresses. */
    uint16_t *k = device_array<uint16_t>(key_elems);
    if (first_keys == nullptr) {
      MUST(hipMemcpy(k, keys.data(), key_elems * 2, hipMemcpyHostToDevice));
      first_keys = k;
    } else {
      MUST(hipMemcpy(k, first_keys, key_elems * 2, hipMemcpyDeviceToDevice));
    }
    const uint16_t *device_q = device_copy(q);
    const int32_t *device_table = device_copy(table);
    out.push_back(device_array<int32_t>(picks * (9 * K + 1)));
    float *score = device_array<float>(picks * static_cast<size_t>(s.seq_len / B));
    fill_args(c, s, device_q, k, device_table, device_lens, out.back(), out.back() + picks * K,
              out.back() + picks * 9 * K, score);
    for (const void *p :
         {static_cast<const void *>(k), static_cast<const void *>(device_q), static_cast<const void *>(device_table),
          static_cast<const void *>(out.back()), static_cast<const void *>(score)})
      owned.push_back(const_cast<void *>(p));
  }
  device.plan(M3IDX_OP_topk, copy[0].topk);
  device.plan(M3IDX_OP_score, copy[0].score);
  device.plan(M3IDX_OP_select, copy[0].select);
  device.lend_workspace();
  owned.push_back(device.workspace);
  m3idx_context *ctx = device.ctx;
  const timing score =
      time_calls(device, copies, [&](int i) { must(ctx, m3idx_score(ctx, &copy[i].score), "m3idx_score"); });
  const timing select =
      time_calls(device, copies, [&](int i) { must(ctx, m3idx_select(ctx, &copy[i].select), "m3idx_select"); });
  const timing all =
      time_calls(device, copies, [&](int i) { must(ctx, m3idx_topk(ctx, &copy[i].topk), "m3idx_topk"); });
  std::vector<int32_t> got(picks * (9 * K + 1));
  MUST(hipMemcpy(got.data(), out[0], got.size() * 4, hipMemcpyDeviceToHost));
  const bool right = got == expected(s, q, keys, table, seq_lens);
  for (void *p : owned) MUST(hipFree(p));
  m3idx_close(ctx);
  MUST(hipStreamDestroy(device.stream));

  const double tbs = key_bytes / all.chained_us * 1e-6;
  const bool met = s.most_us > 0 ? all.chained_us <= s.most_us : tbs >= s.least_tbs;
  const std::string name = name_of(s);
  char bar[32];
  snprintf(bar, sizeof bar, s.most_us > 0 ? "<= %g us" : ">= %g TB/s", s.most_us > 0 ? s.most_us : s.least_tbs);
  printf("%-30s %9.2f %9.2f %8.2f %9.2f %9.2f  %-12s %-10s %s%s\n", name.c_str(), all.chained_us, all.alone_us, tbs,
         score.chained_us, select.chained_us, bar, s.triton, met ? "met" : "MISSED", right ? "" : "  WRONG ANSWER");
  report_json(name.c_str(), all, tbs, s.most_us > 0 ? s.most_us : s.least_tbs, s.most_us > 0 ? "us" : "TB/s", s.triton,
              met && right);
  return right;
}

/* ---- the selector by itself ---- */

std::string name_of(const select_shape &s) {
  char name[64];
  snprintf(name, sizeof name, "select %lld x %lld", static_cast<long long>(s.rows), static_cast<long long>(s.blocks));
  return name;
}

bool bench_select(const select_shape &s) {
  const size_t elems = static_cast<size_t>(s.rows * s.blocks);
  const int copies = copies_for(static_cast<double>(elems) * 4);
  random_bits random(21);
  std::vector<float> scores(elems);
  for (float &x : scores) x = random.normal();
  const std::vector<int32_t> counts(static_cast<size_t>(s.rows), static_cast<int32_t>(s.blocks));
  device_run device;
  const int32_t *device_counts = device_copy(counts);
  std::vector<m3idx_select_args> copy(static_cast<size_t>(copies));
  m3idx_select_args host = {};
  host.num_heads = 1;
  host.num_rows = s.rows;
  host.max_block = s.blocks;
  host.topk = K;
  for (m3idx_select_args &c : copy) {
    c = host;
    c.num_blocks = device_counts;
    c.score = device_copy(scores);
    c.topk_idx = device_array<int32_t>(static_cast<size_t>(s.rows * K));
  }
  device.plan(M3IDX_OP_select, copy[0]);
  device.lend_workspace();
  m3idx_context *ctx = device.ctx;
  const timing t = time_calls(device, copies, [&](int i) { must(ctx, m3idx_select(ctx, &copy[i]), "m3idx_select"); });
  std::vector<int32_t> got(static_cast<size_t>(s.rows * K)), want(got.size());
  MUST(hipMemcpy(got.data(), copy[0].topk_idx, got.size() * 4, hipMemcpyDeviceToHost));
  host.num_blocks = counts.data();
  host.score = scores.data();
  host.topk_idx = want.data();
  m3idx_context *cpu = open_backend("cpu");
  must(cpu, m3idx_select(cpu, &host), "m3idx_select");
  m3idx_close(cpu);
  const bool right = got == want, met = t.chained_us <= s.most_us;
  const std::string name = name_of(s);
  char bar[32];
  snprintf(bar, sizeof bar, "<= %g us", s.most_us);
  printf("%-30s %9.2f %9.2f %8s %9s %9s  %-12s %-10s %s%s\n", name.c_str(), t.chained_us, t.alone_us, "", "", "", bar,
         s.torch, met ? "met" : "MISSED", right ? "" : "  WRONG ANSWER");
  report_json(name.c_str(), t, 0, s.most_us, "us", s.torch, met && right);
  return right;
}

/* ---- what the memory can do ---- */

void bench_copy() {
  constexpr size_t BYTES = size_t{1} << 30;
  hipStream_t stream;
  MUST(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  unsigned char *from = device_array<unsigned char>(BYTES), *to = device_array<unsigned char>(BYTES);
  MUST(hipMemset(from, 1, BYTES));
  hipEvent_t begin, end;
  MUST(hipEventCreate(&begin));
  MUST(hipEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i < 13; i++) {
    float ms = 0;
    MUST(hipEventRecord(begin, stream));
    MUST(hipMemcpyAsync(to, from, BYTES, hipMemcpyDeviceToDevice, stream));
    MUST(hipEventRecord(end, stream));
    MUST(hipEventSynchronize(end));
    MUST(hipEventElapsedTime(&ms, begin, end));
    if (i >= 3) times.push_back(ms);
  }
  const double ms = median(times);
  printf("device copy of 1 GiB: %.2f TB/s read + write\n", 2.0 * static_cast<double>(BYTES) / ms * 1e-9);
  if (json != nullptr) fprintf(json, "\n], \"copy_tb_s\": %.4f}\n", 2.0 * static_cast<double>(BYTES) / ms * 1e-9);
  MUST(hipFree(from));
  MUST(hipFree(to));
}

} // namespace

int main(int argc, char **argv) {
  if (argc > 1 && (json = fopen(argv[1], "w")) == nullptr) stop(argv[1], "cannot be written");
  m3idx_context *ctx = open_backend("hip");
  printf("%s\n", m3idx_backend_details(ctx));
  if (json != nullptr) fprintf(json, "{\"device\": \"%s\", \"shapes\": [", m3idx_backend_details(ctx));
  m3idx_close(ctx);
  printf("%-30s %9s %9s %8s %9s %9s  %-12s %-10s\n", "bf16, D 128, K 16", "us", "alone us", "TB/s", "score us",
         "select us", "bar", "peer");
  const char *part = argc > 2 ? argv[2] : "";
  bool right = true;
  for (const decode_shape &s : DECODE)
    if (name_of(s).find(part) != std::string::npos) right = bench_decode(s) && right;
  for (const select_shape &s : SELECT)
    if (name_of(s).find(part) != std::string::npos) right = bench_select(s) && right;
  bench_copy();
  if (json != nullptr) fclose(json);
  return right ? 0 : 1;
}
