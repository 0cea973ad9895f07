/* SPDX-License-Identifier: Apache-2.0
 *
 * The K best blocks from partial keys (S4.5): a wave is a row, whatever the number of parts.
 */
#include "hip_ops.h"
#include "hip_pick.h"

namespace hipk {

constexpr int MERGE_WAVES = 4, MERGE_TILE = 128;

struct merge_view {
  const uint64_t *keys;
  int64_t stride_part, num_parts;
  pick_view pick;
};

/* The keys of a row in the parts from `part` on, `topk` of each. */
struct part_keys {
  gptr<const uint64_t> from;
  int64_t stride_part, part;
  int topk;
  HIPK_DEVICE uint64_t load(int i) const { return from[(part + i / topk) * stride_part + i % topk]; }
  HIPK_DEVICE uint64_t key(uint64_t key, int) const { return key; }
};

HIPK_KERNEL(MERGE_WAVES *WAVE) merge_rows(merge_view v) {
  using list = best_list<MERGE_TILE, MAX_TOPK>;
  HIPK_LDS(uint64_t, keys, MERGE_WAVES * list::ROOM);
  HIPK_LDS(int32_t, ids, MERGE_WAVES * MAX_TOPK);
  const int wave = wave_index();
  const int64_t pick = static_cast<int64_t>(group_index()) * MERGE_WAVES + wave;
  if (pick >= static_cast<int64_t>(v.pick.heads) * v.pick.rows) return;
  const gptr<const uint64_t> from = global(v.keys) + pick * v.pick.topk;
  const int topk = v.pick.topk, parts = MERGE_TILE / topk; /* parts a tile holds */
  list best;
  best.begin(keys + wave * list::ROOM, v.pick.width);
  part_keys keys_of = {from, v.stride_part, 0, topk};
  for (; keys_of.part < v.num_parts; keys_of.part += parts) {
    const int64_t rest = v.num_parts - keys_of.part;
    best.offer_loaded(static_cast<int>(rest < parts ? rest : parts) * topk, keys_of);
  }
  best.end();
  write_pick(v.pick, best.keys, ids + wave * MAX_TOPK, static_cast<int32_t>(pick / v.pick.rows),
             static_cast<int32_t>(pick % v.pick.rows), row_place{});
}

} // namespace hipk

m3idx_status hipk_merge_plan(m3idx_context *ctx, const hipk_device *, const m3idx_merge_args *args,
                             size_t *scratch_bytes) {
  if (args->num_rows > INT32_MAX / args->num_heads)
    return m3idx_fail(ctx, M3IDX_UNSUPPORTED, "merge: %lld rows of %lld heads are more than a launch holds",
                      static_cast<long long>(args->num_rows), static_cast<long long>(args->num_heads));
  *scratch_bytes = 0;
  return M3IDX_OK;
}

void hipk_merge_launch(const hipk_launch *at, const m3idx_merge_args *args) {
  hipk::merge_view v = {};
  v.keys = args->keys;
  v.stride_part = args->keys_stride_part;
  v.num_parts = args->num_parts;
  v.pick.heads = static_cast<int32_t>(args->num_heads);
  v.pick.rows = static_cast<int32_t>(args->num_rows);
  v.pick.topk = static_cast<int32_t>(args->topk);
  v.pick.width = hipk::list_width(args->topk);
  v.pick.contract = args->contract;
  v.pick.topk_idx = args->topk_idx;
  v.pick.topk_stride_head = args->topk_stride_head;
  v.pick.topk_stride_row = args->topk_stride_row;
  v.pick.keys = args->merged_keys;
  const int64_t picks = args->num_heads * args->num_rows;
  if (picks == 0) return;
  hipk::launch(hipk::merge_rows, (picks + hipk::MERGE_WAVES - 1) / hipk::MERGE_WAVES, hipk::MERGE_WAVES * hipk::WAVE,
               at->stream, v);
}
