/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph replay on a real device: a decode step is captured once, then replayed with other lengths in the same
 * buffers (1 block, 300, 8,192, 0, in turn for each request), outputs poisoned and scratch dirtied in between.
 * Every replay's outputs are compared, byte for byte, with what the CPU backend says for those lengths, and the
 * completion counters must be zero again (S8.2).  Then the same from two streams at once, each with its own
 * workspace.  silicon_replay [REPLAYS]; exit 1 on a difference.
 */
#include "silicon_run.h"

namespace {

constexpr int64_t R = 4, Q = 2, T = R * Q, H = 2, D = 128, B = 128, M = 8192, K = 16, PAGES = 1024;
constexpr int32_t LENGTHS[4] = {100, 300 * 128 - 5, 8192 * 128, 0}; /* 1 block, 300, 8,192, 0 */
constexpr size_t COUNTER_BYTES = 65536 * sizeof(uint32_t);
constexpr unsigned POISON = 0xa5;

/* Outputs of a step, in host or device memory, as one block of 32-bit words: score, then the staged and the
 * fused selection with their tables and context lengths. */
constexpr int64_t SCORE = H * T * M, IDX = H * T * K, TABLE = T * H * 8 * K, CTX = T * H;
constexpr int64_t WORDS = SCORE + 2 * (IDX + TABLE + CTX);

struct inputs {
  const uint16_t *q, *keys;
  const int32_t *table, *seq_lens;
};

/* The args of a step; filled in place because they point at one another. */
struct step {
  m3idx_batch batch = {};
  m3idx_score_args score = {};
  m3idx_select_args select = {};
  m3idx_sparse_table_args sparse = {};
  m3idx_sparse_out fused_sparse = {};
  m3idx_topk_args topk = {};
  step(const step &) = delete;

  step(const inputs &in, int32_t *out) {
    batch.mode = M3IDX_DECODE;
    batch.num_requests = R;
    batch.num_rows = T;
    batch.max_block = M;
    batch.decode_query_len = Q;
    batch.seq_lens = in.seq_lens;
    const m3idx_tensor q = {const_cast<uint16_t *>(in.q), M3IDX_BF16, {T, H, D}, {0, 0, 0}};
    const m3idx_tensor keys = {const_cast<uint16_t *>(in.keys), M3IDX_BF16, {PAGES, B, D}, {0, 0, 0}};
    score.batch = select.batch = sparse.batch = topk.batch = &batch;
    score.q = topk.q = q;
    score.index_k = topk.index_k = keys;
    score.block_table = topk.block_table = in.table;
    score.local_blocks = topk.local_blocks = 1;
    select.num_heads = sparse.num_heads = H;
    select.num_rows = T;
    select.max_block = M;
    select.topk = sparse.topk = topk.topk = K;
    int32_t *at = out;
    score.score = reinterpret_cast<float *>(at);
    select.score = score.score;
    at += SCORE;
    select.topk_idx = at;
    sparse.topk_idx = at;
    sparse.sparse.block_table = fused_sparse.block_table = in.table;
    sparse.sparse.table = at + IDX;
    sparse.sparse.context_lens = at + IDX + TABLE;
    at += IDX + TABLE + CTX;
    topk.topk_idx = at;
    fused_sparse.table = at + IDX;
    fused_sparse.context_lens = at + IDX + TABLE;
    topk.sparse = &fused_sparse;
  }
  void run(m3idx_context *ctx) const {
    must(ctx, m3idx_score(ctx, &score), "m3idx_score");
    must(ctx, m3idx_select(ctx, &select), "m3idx_select");
    must(ctx, m3idx_sparse_table(ctx, &sparse), "m3idx_sparse_table");
    must(ctx, m3idx_topk(ctx, &topk), "m3idx_topk");
  }
};

/* Request r of turn t has LENGTHS[(t + r) % 4] keys. */
std::vector<int32_t> lengths_of(int turn) {
  std::vector<int32_t> lengths;
  for (int r = 0; r < R; r++) lengths.push_back(LENGTHS[(turn + r) % 4]);
  return lengths;
}

const char *name_of(int64_t word) {
  if (word < SCORE) return "score";
  const int64_t part = (word - SCORE) % (IDX + TABLE + CTX);
  return part < IDX ? "topk_idx" : part < IDX + TABLE ? "sparse_block_table" : "sparse_context_lens";
}

/* One captured step with its device buffers. */
struct replayer {
  device_run device;
  int32_t *seq_lens = device_array<int32_t>(R), *out = device_array<int32_t>(WORDS);
  step what;
  hipGraphExec_t graph;
  std::vector<int32_t> got = std::vector<int32_t>(WORDS);
  std::vector<uint32_t> counters = std::vector<uint32_t>(COUNTER_BYTES / 4);

  explicit replayer(const inputs &in) : what(inputs{in.q, in.keys, in.table, seq_lens}, out) {
    device.plan(M3IDX_OP_score, what.score);
    device.plan(M3IDX_OP_select, what.select);
    device.plan(M3IDX_OP_sparse_table, what.sparse);
    device.plan(M3IDX_OP_topk, what.topk);
    MUST(hipMemset(seq_lens, 0, R * 4));
    device.lend_workspace();
    graph = device.capture([&] { what.run(device.ctx); });
  }
  /* Enqueue a replay of `turn` over poison; lengths must outlive it. */
  void enqueue(const std::vector<int32_t> &lengths) {
    MUST(hipMemsetAsync(out, POISON, WORDS * 4, device.stream));
    MUST(hipMemsetAsync(device.workspace + COUNTER_BYTES, 0xff, device.workspace_bytes - COUNTER_BYTES, device.stream));
    MUST(hipMemcpyAsync(seq_lens, lengths.data(), R * 4, hipMemcpyHostToDevice, device.stream));
    MUST(hipGraphLaunch(graph, device.stream));
  }
  /* Wait, and compare with want; false and a sentence on a difference. */
  bool judge(const std::vector<int32_t> &want, int replay, const char *which) {
    MUST(hipStreamSynchronize(device.stream));
    MUST(hipMemcpy(got.data(), out, WORDS * 4, hipMemcpyDeviceToHost));
    MUST(hipMemcpy(counters.data(), device.workspace, COUNTER_BYTES, hipMemcpyDeviceToHost));
    for (size_t i = 0; i < counters.size(); i++)
      if (counters[i] != 0) {
        printf("FAIL: %s, replay %d: counter %zu is %u\n", which, replay, i, counters[i]);
        return false;
      }
    if (memcmp(got.data(), want.data(), WORDS * 4) == 0) return true;
    int64_t first = 0, differ = 0;
    for (int64_t i = WORDS; i-- > 0;)
      if (got[i] != want[i]) {
        first = i;
        differ++;
      }
    printf("FAIL: %s, replay %d: %lld words differ, the first is word %lld (%s): want %08x, got %08x\n", which, replay,
           static_cast<long long>(differ), static_cast<long long>(first), name_of(first), want[first], got[first]);
    return false;
  }
};

} // namespace

int main(int argc, char **argv) {
  const int replays = argc > 1 ? atoi(argv[1]) : 1000;
  m3idx_close(open_backend("hip")); /* says at once where there is no device */
  const std::vector<uint16_t> q = random_bf16(T * H * D, 1), keys = random_bf16(PAGES * B * D, 2);
  std::vector<int32_t> table(R * M), lengths[4];
  random_bits random(3);
  for (int32_t &page : table) page = static_cast<int32_t>(random.next() % PAGES);

  m3idx_context *cpu = open_backend("cpu");
  std::vector<int32_t> want[4];
  for (int turn = 0; turn < 4; turn++) {
    lengths[turn] = lengths_of(turn);
    want[turn].assign(WORDS, 0);
    step(inputs{q.data(), keys.data(), table.data(), lengths[turn].data()}, want[turn].data()).run(cpu);
  }
  m3idx_close(cpu);

  const inputs in = {device_copy(q), device_copy(keys), device_copy(table), nullptr};
  replayer one(in), two(in);
  int failed = 0;
  for (int i = 0; i < replays && failed < 5; i++) {
    one.enqueue(lengths[i % 4]);
    failed += !one.judge(want[i % 4], i, "one stream");
  }
  printf("%s: %d replays of one captured graph, lengths changing\n", failed ? "FAIL" : "PASS", replays);
  int failed_pair = 0;
  for (int i = 0; i < replays / 4 && failed_pair < 5; i++) {
    /* Several steps in flight on each stream; the last of each is judged. */
    for (int turn = 0; turn < 4; turn++) {
      one.enqueue(lengths[(i + turn) % 4]);
      two.enqueue(lengths[(i + turn + 2) % 4]);
    }
    failed_pair += !one.judge(want[(i + 3) % 4], i, "first of two streams");
    failed_pair += !two.judge(want[(i + 5) % 4], i, "second of two streams");
  }
  printf("%s: %d times four replays on each of two streams at once\n", failed_pair ? "FAIL" : "PASS", replays / 4);
  return failed || failed_pair;
}
