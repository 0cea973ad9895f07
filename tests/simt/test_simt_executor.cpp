/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor judged by kernels with one fault each: it must name the fault, and must let the sound twin pass.
 */
#include <check.h>

#include <set>
#include <string>
#include <vector>

#include "hip_arch.h"

namespace {

using namespace hipk;

constexpr int GROUP = 2 * WAVE;

struct params {
  const uint32_t *in; /* [GROUP] */
  uint32_t *out;      /* [GROUPS][GROUP] */
  uint32_t *counter;
  uint32_t *order; /* which group arrived last */
};
constexpr int GROUPS = 5;

void sound_reduce(params p) {
  HIPK_LDS(uint32_t, sums, GROUP);
  uint32_t x = global(p.in)[thread_index()];
  x += shuffle_xor<1>(x);
  if (ballot(x == 0)) x++;
  sums[thread_index()] = x;
  barrier();
  const uint32_t y = sums[GROUP - 1 - thread_index()];
  barrier();
  sums[thread_index()] = y;
  wave_sync();
  global(p.out)[group_index() * GROUP + thread_index()] = static_cast<uint32_t>(sums[thread_index() ^ 1]);
}

void sound_arrival(params p) {
  HIPK_LDS(uint32_t, last, 1);
  const gptr<uint32_t> out = global(p.out);
  out[group_index() * GROUP + thread_index()] = static_cast<uint32_t>(thread_index());
  barrier();
  if (thread_index() == 0) last[0] = arrive(global(p.counter));
  barrier();
  if (last[0] != static_cast<uint32_t>(group_count() - 1)) return;
  uint32_t sum = 0;
  for (int g = 0; g < group_count(); g++) sum += out[g * GROUP + thread_index()];
  if (thread_index() == 0) {
    global(p.order)[0] = static_cast<uint32_t>(group_index());
    reset(global(p.counter));
  }
  barrier();
  out[group_index() * GROUP + thread_index()] = sum;
}

/* ---- one fault each ---- */

void shuffle_against_ballot(params) {
  if (lane_index() == WAVE - 1)
    ballot(true);
  else
    shuffle(1, 0);
}
void shuffle_in_half_the_wave(params) {
  if (lane_index() < WAVE / 2) shuffle(1, 0);
}
void shuffle_from_nowhere(params) { shuffle(1, lane_index() + 1); }
void two_barriers(params) {
  if (wave_index() == 0)
    barrier();
  else
    barrier();
}
void barrier_without_a_wave(params) {
  if (wave_index() == 0) barrier();
}
void barrier_against_shuffle(params) {
  if (lane_index() == 3) barrier();
  shuffle(1, 0);
}
void group_read_past_end(params p) {
  HIPK_LDS(uint32_t, a, WAVE);
  if (thread_index() < WAVE) a[thread_index()] = 1u;
  barrier();
  if (thread_index() == 0) global(p.out)[0] = static_cast<uint32_t>(a[WAVE]);
}
void group_read_unwritten(params p) {
  HIPK_LDS(uint32_t, a, GROUP);
  if (thread_index() != 5) a[thread_index()] = 1u;
  barrier();
  global(p.out)[group_index() * GROUP + thread_index()] = static_cast<uint32_t>(a[thread_index()]);
}
void group_memory_too_large(params) {
  HIPK_LDS(uint64_t, a, 8 * 1024 + 1);
  a[thread_index()] = uint64_t{1};
}
void race_in_a_wave(params p) {
  HIPK_LDS(uint32_t, a, GROUP);
  a[thread_index()] = 1u;
  ballot(true); /* brings the lanes together, orders no memory */
  global(p.out)[group_index() * GROUP + thread_index()] = static_cast<uint32_t>(a[thread_index() ^ 1]);
}
void race_between_waves(params p) {
  HIPK_LDS(uint32_t, a, GROUP);
  a[thread_index()] = 1u;
  barrier();
  if (wave_index() == 0) a[thread_index()] = 2u;
  wave_sync();
  if (thread_index() == WAVE) global(p.out)[group_index() * GROUP] = static_cast<uint32_t>(a[0]);
}
void write_after_read(params p) {
  HIPK_LDS(uint32_t, a, GROUP);
  a[thread_index()] = 1u;
  barrier();
  global(p.out)[group_index() * GROUP + thread_index()] = static_cast<uint32_t>(a[(thread_index() + WAVE) % GROUP]);
  a[thread_index()] = 2u;
}
void two_writers(params p) { global(p.out)[0] = static_cast<uint32_t>(thread_index()); }
void two_groups_write(params p) {
  if (thread_index() == 0) global(p.out)[0] = static_cast<uint32_t>(group_index());
}
void read_past_end(params p) {
  global(p.out)[group_index() * GROUP + thread_index()] = static_cast<uint32_t>(global(p.in)[thread_index() + 1]);
}
void read_before_begin(params p) {
  global(p.out)[group_index() * GROUP + thread_index()] = static_cast<uint32_t>(global(p.in)[thread_index() - 1]);
}
void write_to_input(params p) { global(const_cast<uint32_t *>(p.in))[thread_index()] = 1u; }
void write_to_nobody(params) {
  uint32_t local = 0;
  global(&local)[0] = 1u;
}
void misaligned_load(params p) {
  const gptr<const unsigned char> bytes = global(reinterpret_cast<const unsigned char *>(p.in));
  global(p.out)[group_index() * GROUP + thread_index()] = load<u32x4>(bytes, 4).x;
}
void arrival_before_the_stores(params p) {
  HIPK_LDS(uint32_t, last, 1);
  const gptr<uint32_t> out = global(p.out);
  out[group_index() * GROUP + thread_index()] = 1u;
  if (thread_index() == 0) last[0] = arrive(global(p.counter)); /* no barrier: other waves' stores are not published */
  barrier();
  if (last[0] == static_cast<uint32_t>(group_count() - 1))
    for (int g = 0; g < group_count(); g++) {
      const uint32_t x = out[g * GROUP + thread_index()];
      (void)x;
    }
}
void merge_before_all(params p) {
  HIPK_LDS(uint32_t, last, 1);
  const gptr<uint32_t> out = global(p.out);
  out[group_index() * GROUP + thread_index()] = 1u;
  barrier();
  if (thread_index() == 0) last[0] = arrive(global(p.counter));
  barrier();
  if (last[0] == static_cast<uint32_t>(group_count() - 2)) {
    const uint32_t x = out[GROUP * ((group_index() + thread_index()) % GROUPS)];
    (void)x;
  }
}
void arrival_seen_by_one_lane_only(params p) {
  const gptr<uint32_t> out = global(p.out);
  out[group_index() * GROUP + thread_index()] = 1u;
  barrier();
  uint32_t before = 0;
  if (thread_index() == 0) before = arrive(global(p.counter));
  before = shuffle(before, 0); /* the value travels, the order does not */
  if (wave_index() == 0 && before == static_cast<uint32_t>(group_count() - 1)) {
    const uint32_t x = out[GROUP * ((group_index() + 1) % GROUPS) + lane_index()];
    (void)x;
  }
}
void step_in_half_the_wave(params) {
  matrix_acc acc = {};
  if (lane_index() < WAVE / 2) matrix_step(matrix_a{}, matrix_b{}, acc);
}
void load_in_half_the_wave(params) {
  HIPK_LDS(u32x4, rows, matrix::M * MATRIX_UNITS);
  if (lane_index() < WAVE / 2) load_a(rows, 0, 0);
}
void load_unwritten(params) {
  HIPK_LDS(u32x4, rows, matrix::M * MATRIX_UNITS);
  for (int i = lane_index(); i < matrix::M * MATRIX_UNITS - 1; i += WAVE)
    if (wave_index() == 0) rows[i] = u32x4{};
  barrier();
  for (int step = 0; step < MATRIX_DIM / matrix::K; step++) load_a(rows, 0, step);
}

const struct {
  const char *name;
  void (*kernel)(params);
  const char *says; /* NULL = sound */
} kernels[] = {
    {"sound_reduce", sound_reduce, nullptr},
    {"sound_arrival", sound_arrival, nullptr},
    {"shuffle_against_ballot", shuffle_against_ballot, "divergence in wave"},
    {"shuffle_in_half_the_wave", shuffle_in_half_the_wave, "returned after"},
    {"shuffle_from_nowhere", shuffle_from_nowhere, "shuffles from lane"},
    {"two_barriers", two_barriers, "divergence in group"},
    {"barrier_without_a_wave", barrier_without_a_wave, "another returned after"},
    {"barrier_against_shuffle", barrier_against_shuffle, "at the barrier of"},
    {"group_read_past_end", group_read_past_end, "of a group array"},
    {"group_read_unwritten", group_read_unwritten, "before anything was written"},
    {"group_memory_too_large", group_memory_too_large, "the architecture has 65536"},
    {"race_in_a_wave", race_in_a_wave, "race in group memory"},
    {"race_between_waves", race_between_waves, "race in group memory"},
    {"write_after_read", write_after_read, "race in group memory"},
    {"two_writers", two_writers, "race in global memory: the write at"},
    {"two_groups_write", two_groups_write, "race in global memory: the write at"},
    {"read_past_end", read_past_end, "at byte 512 of an input"},
    {"read_before_begin", read_before_begin, "at byte -4 of an input"},
    {"write_to_input", write_to_input, "of an input"},
    {"write_to_nobody", write_to_nobody, "no buffer of the launch"},
    {"misaligned_load", misaligned_load, "not a multiple of its size"},
    {"arrival_before_the_stores", arrival_before_the_stores, "race in global memory"},
    {"merge_before_all", merge_before_all, "race in global memory"},
    {"arrival_seen_by_one_lane_only", arrival_seen_by_one_lane_only, "race in global memory"},
    {"step_in_half_the_wave", step_in_half_the_wave, "returned after"},
    {"load_in_half_the_wave", load_in_half_the_wave, "returned after"},
    {"load_unwritten", load_unwritten, "before anything was written"},
};

struct outcome {
  std::string failure;
  std::vector<uint32_t> out;
  uint32_t last;
};

outcome run_kernel(void (*kernel)(params), uint64_t seed) {
  alignas(16) static uint32_t in[GROUP];
  outcome result;
  result.out.assign(GROUP * GROUPS, 0xdbdbdbdbu);
  uint32_t counter = 0, order = 0;
  for (int i = 0; i < GROUP; i++) in[i] = static_cast<uint32_t>(3 * i + 1);
  simt::configure({seed, WAVE, 65536});
  simt::allow(in, sizeof in, false);
  simt::allow(result.out.data(), result.out.size() * 4, true);
  simt::allow(&counter, sizeof counter, true);
  simt::allow(&order, sizeof order, true);
  launch(kernel, GROUPS, GROUP, nullptr, params{in, result.out.data(), &counter, &order});
  if (simt::failure()) result.failure = simt::failure();
  simt::forbid_all();
  result.last = order;
  return result;
}

} // namespace

START_TEST(kernel_judged) {
  const auto &k = kernels[_i];
  for (uint64_t seed = 1; seed <= 20; seed++) {
    const outcome result = run_kernel(k.kernel, seed);
    if (!k.says)
      ck_assert_msg(result.failure.empty(), "%s, seed %d: %s", k.name, static_cast<int>(seed), result.failure.c_str());
    else
      ck_assert_msg(result.failure.find(k.says) != std::string::npos, "%s, seed %d: wanted \"...%s...\", got \"%s\"",
                    k.name, static_cast<int>(seed), k.says, result.failure.c_str());
  }
}
END_TEST

/* Values: a reduction by hand, and the arrival's sum. */
START_TEST(values) {
  const outcome reduce = run_kernel(sound_reduce, 7), sum = run_kernel(sound_arrival, 7);
  for (int i = 0; i < GROUP; i++) {
    const int from = (GROUP - 1 - (i ^ 1)) & ~1; /* in[from] + in[from + 1], in[i] = 3 i + 1 */
    ck_assert_uint_eq(reduce.out[static_cast<size_t>(i)], static_cast<uint32_t>(6 * from + 5));
    ck_assert_uint_eq(sum.out[sum.last * GROUP + static_cast<size_t>(i)], static_cast<uint32_t>(GROUPS * i));
  }
}
END_TEST

/* Every group is last to arrive for some seed, and a seed repeats itself. */
START_TEST(orders) {
  std::set<uint32_t> last;
  for (uint64_t seed = 0; seed < 100; seed++) last.insert(run_kernel(sound_arrival, seed).last);
  ck_assert_uint_eq(last.size(), GROUPS);
  ck_assert_uint_eq(run_kernel(sound_arrival, 42).last, run_kernel(sound_arrival, 42).last);
}
END_TEST

int main() {
  Suite *suite = suite_create("simt_executor");
  TCase *tcase = tcase_create("executor");
  tcase_add_loop_test(tcase, kernel_judged, 0, static_cast<int>(sizeof kernels / sizeof *kernels));
  tcase_add_test(tcase, values);
  tcase_add_test(tcase, orders);
  suite_add_tcase(suite, tcase);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed ? 1 : 0;
}
