/* SPDX-License-Identifier: Apache-2.0
 *
 * The K best blocks of each row of scores (S4), or their keys; with them, on request, the page-16 table (S5).
 *
 * Decode: a row is cut into chunks (S8.2), each chunk is a workgroup, each wave keeps its own list and all merge them
 * at the end.  One live chunk writes the result.  Of several, each stores its keys and arrives at the row's
 * counter; the last to arrive merges and sets the counter back to 0.
 * Prefill: a wave is a row, four rows a workgroup; no partial keys, no counters.
 */
#include "hip_select.h"

#include "geometry.h"
#include "hip_tile.h"

namespace hipk {

/* What a row shows of itself: the columns that hold candidates, and its N. */
struct row_span {
  row_place place; /* unknown where the caller gives N */
  int32_t columns, blocks;
};

HIPK_DEVICE row_span span_row(const select_view &v, int32_t row) {
  row_span span = {};
  if (!v.num_blocks) span.place = place_row(v.batch, row);
  span.blocks = v.num_blocks ? static_cast<int32_t>(global(v.num_blocks)[row]) : span.place.blocks;
  const int64_t seen = span.blocks - v.first_block;
  span.columns = seen < 0 ? 0 : seen < v.max_block ? static_cast<int32_t>(seen) : v.max_block;
  return span;
}

HIPK_DEVICE gptr<const float> score_row(const select_view &v, int32_t head, int32_t row) {
  return global(v.score) + (head * v.score_stride_head + row * v.score_stride_row);
}

/* The columns of a row from `begin` on, as keys. */
struct column_keys {
  const select_view &v;
  gptr<const float> score;
  int32_t blocks, begin;
  HIPK_DEVICE uint32_t load(int i) const { return float_bits(score[begin + i]); }
  HIPK_DEVICE uint64_t key(uint32_t bits, int i) const {
    const int32_t id = static_cast<int32_t>(v.first_block) + begin + i;
    return block_key(forced_bits(bits, id, blocks, v.forced), id, v.pick.contract);
  }
};

/* Stored keys, empty slots from `live` on. */
struct stored_keys {
  gptr<uint64_t> from;
  int live;
  HIPK_DEVICE uint64_t load(int i) const { return i < live ? static_cast<uint64_t>(from[i]) : uint64_t{0}; }
  HIPK_DEVICE uint64_t key(uint64_t key, int) const { return key; }
};

/* One tile a chunk and K = 16 (S8.1's own geometries): all threads together find the best of a tile. */
template <int Waves, int Tile> struct by_tile {
  static constexpr int WAVES = Waves, TILE = Tile, WIDTH = 16, ROOM = tile_best<Waves, Tile>::ROOM;
  static constexpr int CHUNKS = Tile > 128 ? 16 : 1; /* of a launch (S8.1) */
  static constexpr int EACH = Tile / (Waves * WAVE), LISTS_EACH = (CHUNKS * WIDTH + Waves * WAVE - 1) / (Waves * WAVE);
  static HIPK_DEVICE int width_of(const pick_view &) { return WIDTH; }
  static HIPK_DEVICE void scan(lds<uint64_t> room, lds<uint64_t> out, int, int count, const column_keys &columns) {
    tile_best<Waves, Tile>::template find<EACH>(room, out, count, columns);
  }
  static HIPK_DEVICE void merge(lds<uint64_t> room, lds<uint64_t> out, int lists, int, const stored_keys &parts) {
    tile_best<Waves, Tile>::template find<LISTS_EACH>(room, out, lists * WIDTH, parts);
  }
};

/* Any number of tiles, any K: each wave keeps a list of its own, and all merge them at the end. */
template <int Waves, int Tile> struct by_wave {
  static constexpr int WAVES = Waves, TILE = Tile, WIDTH = MAX_TOPK, FRESH = Tile / Waves;
  using list = best_list<FRESH, WIDTH>;
  static constexpr int CHUNKS = 16, MERGE = CHUNKS * WIDTH; /* at most 16 chunks (S8.1) */
  static constexpr int ROOM = Waves * list::ROOM > MERGE ? Waves *list::ROOM : MERGE;
  static HIPK_DEVICE int width_of(const pick_view &v) { return v.width; }
  static HIPK_DEVICE void scan(lds<uint64_t> room, lds<uint64_t> out, int width, int count, column_keys columns) {
    list best;
    best.begin(room + wave_index() * list::ROOM, width);
    columns.begin += wave_index() * FRESH;
    for (int32_t rest = count - wave_index() * FRESH; rest > 0; rest -= Tile, columns.begin += Tile)
      best.offer_loaded(rest, columns);
    best.end();
    barrier();
    merge_lists(out, room, Waves, list::ROOM, width, thread_index(), Waves * WAVE);
    barrier();
  }
  static HIPK_DEVICE void merge(lds<uint64_t> room, lds<uint64_t> out, int lists, int width, const stored_keys &parts) {
    for (int i = thread_index(); i < lists * width; i += Waves * WAVE) room[i] = parts.load(i);
    barrier();
    merge_lists(out, room, lists, width, width, thread_index(), Waves * WAVE);
    barrier();
  }
};

template <class Way> HIPK_KERNEL(Way::WAVES *WAVE) select_decode(select_view v) {
  HIPK_LDS(uint64_t, keys, Way::ROOM);
  HIPK_LDS(uint64_t, merged, Way::WIDTH);
  HIPK_LDS(int32_t, ids, Way::WIDTH);
  HIPK_LDS(uint32_t, arrived, 1);

  const int32_t local_pick = group_index() >> v.chunks_shift, chunk = group_index() & (v.chunks - 1);
  const int32_t pick = v.first_pick + local_pick, head = pick / v.pick.rows, row = pick % v.pick.rows;
  const int wave = wave_index(), width = Way::width_of(v.pick);
  const row_span span = span_row(v, row);
  const int32_t active = m3idx_topk_active(span.columns, v.chunks, Way::TILE);
  if (chunk >= active) return;

  const m3idx_range own = m3idx_topk_chunk(span.columns, active, chunk);
  Way::scan(keys, merged, width, own.end - own.begin, column_keys{v, score_row(v, head, row), span.blocks, own.begin});
  if (Way::CHUNKS == 1 || active == 1) {
    if (wave == 0) write_pick(reread(v).pick, merged, ids, head, row, span.place);
    return;
  }

  const gptr<uint64_t> partial = global(v.partial) + static_cast<int64_t>(local_pick) * v.chunks * width;
  const gptr<uint32_t> counter = global(v.counters) + local_pick;
  if (wave == 0)
    for (int k = lane_index(); k < width; k += WAVE) partial[chunk * width + k] = static_cast<uint64_t>(merged[k]);
  barrier(); /* the group's keys are stored before its one arrival */
  if (thread_index() == 0) arrived[0] = arrive(counter);
  barrier();
  if (arrived[0] != static_cast<uint32_t>(active - 1)) return;

  /* S8.1: the narrowest of 2, 4, 8, 16 lists that covers the live ones, or as many as the launch has chunks. */
  int lists = v.merge_all ? v.chunks : 2;
  while (lists < active) lists *= 2;
  Way::merge(keys, merged, lists, width, stored_keys{partial, active * width});
  if (wave != 0) return;
  write_pick(reread(v).pick, merged, ids, head, row, span.place);
  if (lane_index() == 0) reset(counter);
}

constexpr int ROW_WAVES = 4, ROW_TILE = 128;

HIPK_KERNEL(ROW_WAVES *WAVE) select_rows(select_view v) {
  using list = best_list<ROW_TILE, MAX_TOPK>;
  HIPK_LDS(uint64_t, keys, ROW_WAVES * list::ROOM);
  HIPK_LDS(int32_t, ids, ROW_WAVES * MAX_TOPK);
  const int wave = wave_index();
  const int64_t pick = static_cast<int64_t>(group_index()) * ROW_WAVES + wave;
  if (pick >= static_cast<int64_t>(v.pick.heads) * v.pick.rows) return;
  const int32_t head = static_cast<int32_t>(pick / v.pick.rows), row = static_cast<int32_t>(pick % v.pick.rows);
  const row_span span = span_row(v, row);
  list best;
  best.begin(keys + wave * list::ROOM, v.pick.width);
  column_keys columns = {v, score_row(v, head, row), span.blocks, 0};
  for (; columns.begin < span.columns; columns.begin += ROW_TILE)
    best.offer_loaded(span.columns - columns.begin, columns);
  best.end();
  write_pick(reread(v).pick, best.keys, ids + wave * MAX_TOPK, head, row, span.place);
}

select_view view_select(const m3idx_select_args *args, const m3idx_sparse_out *sparse) {
  select_view v = {};
  if (args->batch) v.batch = view_rows(args->batch);
  v.num_blocks = args->num_blocks;
  v.score = args->score;
  v.score_stride_head = args->score_stride_head;
  v.score_stride_row = args->score_stride_row;
  v.first_block = args->first_block;
  v.max_block = clamp_i32(args->max_block);
  v.forced = forced_blocks{clamp_i32(args->init_blocks), clamp_i32(args->local_blocks)};
  v.pick.heads = static_cast<int32_t>(args->num_heads);
  v.pick.rows = static_cast<int32_t>(args->num_rows);
  v.pick.topk = static_cast<int32_t>(args->topk);
  v.pick.width = list_width(args->topk);
  v.pick.contract = args->contract;
  v.pick.topk_idx = args->topk_idx;
  v.pick.topk_stride_head = args->topk_stride_head;
  v.pick.topk_stride_row = args->topk_stride_row;
  v.pick.keys = args->keys;
  v.pick.sparse = view_sparse(sparse);
  return v;
}

static m3idx_decode_topk_geometry geometry_of(const hipk_device *device, const select_view &v) {
  m3idx_decode_topk_geometry g;
  m3idx_decode_topk_policy(v.max_block, v.pick.rows, v.pick.heads, v.pick.topk, device->arch, &g);
  return g;
}

constexpr int64_t COUNTERS = HIPK_COUNTERS;

/* Picks of one launch: no more than there are counters. */
static int64_t launch_picks(const select_view &v) {
  const int64_t picks = static_cast<int64_t>(v.pick.heads) * v.pick.rows;
  return picks < COUNTERS ? picks : COUNTERS;
}

size_t select_scratch_bytes(const hipk_device *device, const select_view &v) {
  const int64_t chunks = geometry_of(device, v).chunks;
  if (v.batch.prefill || chunks == 1) return 0;
  return static_cast<size_t>(launch_picks(v) * chunks * v.pick.width) * sizeof(uint64_t);
}

void run_select(const hipk_launch *at, const select_view &view, void *scratch) {
  select_view v = view;
  const int64_t picks = static_cast<int64_t>(v.pick.heads) * v.pick.rows;
  if (picks == 0) return;
  if (v.batch.prefill) {
    launch(select_rows, (picks + ROW_WAVES - 1) / ROW_WAVES, ROW_WAVES * WAVE, at->stream, v);
    return;
  }
  const m3idx_decode_topk_geometry g = geometry_of(at->device, v);
  v.chunks = static_cast<int32_t>(g.chunks);
  v.chunks_shift = log2_of(g.chunks);
  v.merge_all = !g.adaptive_merge;
  v.counters = at->counters;
  v.partial = static_cast<uint64_t *>(scratch);
  for (int64_t first = 0; first < picks; first += COUNTERS) {
    const int64_t rest = picks - first, here = rest < COUNTERS ? rest : COUNTERS;
    v.first_pick = static_cast<int32_t>(first);
    if (g.block == 128)
      launch(select_decode<by_tile<2, 128>>, here * g.chunks, 2 * WAVE, at->stream, v);
    else if (g.warps == 4)
      launch(select_decode<by_tile<4, 512>>, here * g.chunks, 4 * WAVE, at->stream, v);
    else
      launch(select_decode<by_wave<8, 512>>, here * g.chunks, 8 * WAVE, at->stream, v);
  }
}

} // namespace hipk

m3idx_status hipk_select_plan(m3idx_context *ctx, const hipk_device *device, const m3idx_select_args *args,
                              size_t *scratch_bytes) {
  if (args->num_rows > INT32_MAX / args->num_heads)
    return m3idx_fail(ctx, M3IDX_UNSUPPORTED, "select: %lld rows of %lld heads are more than a launch holds",
                      static_cast<long long>(args->num_rows), static_cast<long long>(args->num_heads));
  *scratch_bytes = hipk::select_scratch_bytes(device, hipk::view_select(args, nullptr));
  return M3IDX_OK;
}

void hipk_select_launch(const hipk_launch *at, const m3idx_select_args *args) {
  hipk::run_select(at, hipk::view_select(args, nullptr), at->scratch);
}
