/* SPDX-License-Identifier: Apache-2.0
 *
 * The SIMT executor: groups, waves and lanes, and what they wait for.  Who may see whose memory is simt_watch.cpp.
 */
#include "simt_state.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>

namespace simt {

int current_thread, current_group, current_group_count, current_wave_lanes = 64;

machine m;

uint64_t machine::random() {
  uint64_t z = (rng += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static const char *base_name(const char *path) {
  const char *slash = std::strrchr(path, '/');
  return slash ? slash + 1 : path;
}

void say_site(char *text, size_t bytes, site where) {
  std::snprintf(text, bytes, "%s:%d", base_name(where.file), where.line);
}

void fail(const char *format, ...) {
  if (!m.failed) {
    va_list ap;
    va_start(ap, format);
    std::vsnprintf(m.message, sizeof m.message, format, ap);
    va_end(ap);
  }
  m.failed = true;
  if (m.lane_here) { /* a lane that failed never goes on */
    lane *self = m.lane_here;
    self->state = LOST;
    self->stack->leave();
  }
}

const char *failure() { return m.failed ? m.message : nullptr; }
uint64_t groups_run() { return m.groups_run; }

void configure(const options &o) {
  m.rng = o.seed;
  m.wave_lanes = current_wave_lanes = o.wave;
  m.group_bytes = o.group_bytes;
}

/* ---- lanes give way ---- */

static void wait(lane_state state, site where) {
  lane *self = m.lane_here;
  self->state = state;
  self->where = where;
  self->stack->leave();
}

void wave_op(enum wave_op op, const void *in, void *out, size_t bytes, int choice, site where) {
  lane *self = m.lane_here;
  self->op = op;
  self->in = in;
  self->out = out;
  self->bytes = bytes;
  self->choice = choice;
  wait(AT_WAVE_OP, where);
}

void wave_call(wave_function function, void *data, site where) {
  m.lane_here->function = function;
  wave_op(OP_CALL, nullptr, data, 0, 0, where);
}

void barrier(site where) { wait(AT_BARRIER, where); }

static void watch_atomic(const void *counter, site where) {
  const range *r = find_range(counter);
  if (!r || !r->writable) fail("%s:%d: an atomic outside the launch's outputs", base_name(where.file), where.line);
}

/* An atomic happens when the scheduler comes back to the group, and may be followed by another hand-over. */
uint32_t fetch_add(uint32_t *counter, uint32_t value, enum order order, site where) {
  watch_atomic(counter, where);
  wait(AT_ATOMIC, where);
  order_atomic(counter, order);
  uint32_t old = *counter;
  *counter = old + value;
  if (m.random() & 1) wait(AT_ATOMIC, where);
  return old;
}

void store(uint32_t *counter, uint32_t value, site where) {
  watch_atomic(counter, where);
  wait(AT_ATOMIC, where);
  m.released.erase(counter);
  *counter = value;
}

/* ---- the scheduler ---- */

static void lane_entry(void *argument) {
  lane *self = static_cast<lane *>(argument);
  (*m.body)();
  self->state = DONE;
}

static void give_back(lane &l) {
  if (l.stack) m.idle.push_back(l.stack);
  l.stack = nullptr;
}

static void run_lane(group &g, lane &l, int thread) {
  m.here = &g;
  m.lane_here = &l;
  current_thread = thread;
  current_group = static_cast<int>(g.index);
  if (!l.stack) {
    if (m.idle.empty()) m.idle.push_back(&m.fibers.emplace_back());
    l.stack = m.idle.back();
    m.idle.pop_back();
    l.stack->start(lane_entry, &l);
  }
  l.stack->enter();
  if (l.state == DONE) give_back(l);
  m.lane_here = nullptr;
}

/* All lanes of the wave stand at one operation: give each its result. */
static void resolve(group &g, int wave) {
  lane *lanes = &g.at(wave * m.wave_lanes);
  const int n = g.wave_size(wave);
  for (int i = 1; i < n; i++)
    if (lanes[i].op != lanes[0].op || lanes[i].where.line != lanes[0].where.line ||
        std::strcmp(lanes[i].where.file, lanes[0].where.file) != 0) {
      fail("divergence in wave %d of group %u: lane 0 at %s:%d, lane %d at %s:%d", wave, g.index,
           base_name(lanes[0].where.file), lanes[0].where.line, i, base_name(lanes[i].where.file), lanes[i].where.line);
      return;
    }
  if (lanes[0].op == OP_SYNC) {
    g.wave_phase[static_cast<size_t>(wave)]++;
    if (g.waves() == 1) g.advance_phase(); /* such a group's wave_sync is its barrier */
  } else if (lanes[0].op == OP_BALLOT) {
    uint64_t mask = 0;
    for (int i = 0; i < n; i++) mask |= static_cast<uint64_t>(lanes[i].choice != 0) << i;
    for (int i = 0; i < n; i++) std::memcpy(lanes[i].out, &mask, sizeof mask);
  } else if (lanes[0].op == OP_CALL) {
    if (n != m.wave_lanes) {
      fail("%s:%d: a wave of %d lanes, %d are needed", base_name(lanes[0].where.file), lanes[0].where.line, n,
           m.wave_lanes);
      return;
    }
    void *data[64];
    for (int i = 0; i < n; i++) data[i] = lanes[i].out;
    lanes[0].function(data);
  } else {
    unsigned char values[64][8];
    for (int i = 0; i < n; i++) std::memcpy(values[i], lanes[i].in, lanes[i].bytes);
    for (int i = 0; i < n; i++) {
      if (lanes[i].choice < 0 || lanes[i].choice >= n) {
        fail("%s:%d: lane %d shuffles from lane %d of %d", base_name(lanes[i].where.file), lanes[i].where.line, i,
             lanes[i].choice, n);
        return;
      }
      std::memcpy(lanes[i].out, values[lanes[i].choice], lanes[i].bytes);
    }
  }
  for (int i = 0; i < n; i++) lanes[i].state = READY;
}

/* Run a wave until all its lanes wait for something beyond it.  False after a failure. */
static bool run_wave(group &g, int wave) {
  const int first = wave * m.wave_lanes, n = g.wave_size(wave);
  for (;;) {
    const int turn = static_cast<int>(m.random() % static_cast<uint64_t>(n));
    int count[LOST + 1] = {0}, example[LOST + 1];
    for (int i = 0; i < n; i++) {
      const int at = i + turn < n ? i + turn : i + turn - n;
      lane &l = g.at(first + at);
      if (l.state == READY) run_lane(g, l, first + at);
      if (m.failed) return false;
      count[l.state]++;
      example[l.state] = at;
    }
    if (!count[AT_WAVE_OP] || count[AT_ATOMIC]) return true;
    if (count[AT_WAVE_OP] < n) {
      const lane &waiting = g.lanes[static_cast<size_t>(first + example[AT_WAVE_OP])];
      const bool at_barrier = count[AT_BARRIER] != 0;
      const lane &other = g.lanes[static_cast<size_t>(first + example[at_barrier ? AT_BARRIER : DONE])];
      fail("divergence in wave %d of group %u: lane %d at %s:%d, lane %d %s %s:%d", wave, g.index, example[AT_WAVE_OP],
           base_name(waiting.where.file), waiting.where.line, example[at_barrier ? AT_BARRIER : DONE],
           at_barrier ? "at the barrier of" : "returned after", base_name(other.where.file), other.where.line);
      return false;
    }
    resolve(g, wave);
    if (m.failed) return false;
  }
}

/* Run a group until one of its lanes stands at an atomic (true), it has ended (true, ended) or failed (false). */
static bool run_group(group &g) {
  for (int i = 0; i < g.threads; i++)
    if (g.at(i).state == AT_ATOMIC) g.at(i).state = READY;
  for (;;) {
    const int waves = g.waves(), turn = static_cast<int>(m.random() % static_cast<uint64_t>(waves));
    for (int i = 0; i < waves; i++)
      if (!run_wave(g, (i + turn) % waves)) return false;
    const lane *at_barrier = nullptr, *done = nullptr;
    for (int i = 0; i < g.threads; i++) {
      const lane &l = g.at(i);
      if (l.state == AT_ATOMIC) return true;
      if (l.state == DONE) done = &l;
      if (l.state != AT_BARRIER) continue;
      if (at_barrier && at_barrier->where.line != l.where.line) {
        fail("divergence in group %u: a lane at the barrier of %s:%d, another at %s:%d", g.index,
             base_name(at_barrier->where.file), at_barrier->where.line, base_name(l.where.file), l.where.line);
        return false;
      }
      at_barrier = &l;
    }
    if (!at_barrier) {
      g.ended = true;
      return true;
    }
    if (done) {
      fail("divergence in group %u: a lane at the barrier of %s:%d, another returned after %s:%d", g.index,
           base_name(at_barrier->where.file), at_barrier->where.line, base_name(done->where.file), done->where.line);
      return false;
    }
    g.advance_phase();
    for (uint32_t &phase : g.wave_phase) phase++;
    for (int i = 0; i < g.threads; i++) g.at(i).state = READY;
  }
}

static void begin(group &g, int64_t index, int threads) {
  g.index = static_cast<uint32_t>(index);
  g.ended = false;
  g.phase = 0;
  g.wave_phase.assign(static_cast<size_t>((threads + m.wave_lanes - 1) / m.wave_lanes), 0);
  g.known.clear();
  g.pending.clear();
  g.pending_thread = -1;
  g.arrays.clear();
  g.array_bytes = 0;
  g.memory.resize(m.group_bytes);
  g.cells.resize(m.group_bytes / 4);
  g.threads = threads;
  for (int i = 0; i < threads; i++) {
    lane &l = g.at(i);
    l.state = READY;
    l.where = site{"start", 0};
    give_back(l); /* a failure may have left it */
  }
}

void run(int64_t groups, int threads, const std::function<void()> &body) {
  if (m.failed) return; /* a failed launch leaves the device unusable, as on a GPU */
  if (groups < 1 || groups > INT32_MAX || threads < 1 || threads > MAX_LANES) {
    fail("a launch of %lld groups of %d lanes", static_cast<long long>(groups), threads);
    return;
  }
  m.body = &body;
  m.released.clear();
  current_group_count = static_cast<int>(groups);
  clear_cells();
  std::vector<int64_t> order(static_cast<size_t>(groups));
  for (size_t i = 0; i < order.size(); i++) {
    const size_t j = m.random() % (i + 1);
    order[i] = order[j];
    order[j] = static_cast<int64_t>(i);
  }
  const size_t resident = 1 + m.random() % MAX_RESIDENT;
  std::vector<group *> live;
  size_t next = 0;
  while (next < order.size() || !live.empty()) {
    while (live.size() < resident && next < order.size()) {
      size_t free_slot = 0;
      while (std::find(live.begin(), live.end(), &m.groups[free_slot]) != live.end()) free_slot++;
      begin(m.groups[free_slot], order[next++], threads);
      live.push_back(&m.groups[free_slot]);
    }
    const size_t pick = m.random() % live.size();
    group *g = live[pick];
    if (!run_group(*g)) return;
    if (!g->ended) continue;
    m.groups_run++;
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
  }
}

} // namespace simt
