// Host build of the runtime: queues, a seeded scheduler and the access checker. See runtime.h.
#include "memoc/runtime.h"

#if MEMOC_HOST

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace memoc {

namespace {

constexpr int kPoison = 0xFF;    // as floats, NaN; as integers, -1 or the largest
constexpr int64_t kAlign = 4096;
constexpr size_t kMaxProblems = 20;

// Access names one step's access: it happened before an operation of lane L exactly if L's clock for lane is >= tick.
struct Access {
  int lane = -1;
  int64_t tick = 0;
  const char* step = "";
};

// Segment is a run of bytes with one history: the last write and the reads since, at most one per lane (a later read
// of the same lane covers an earlier one).
struct Segment {
  Access writer;
  std::vector<Access> readers;
  bool defined = false;
  const char* freed = nullptr;
};

// Mark is one record of an event.
struct Mark {
  std::vector<int64_t> clock;
  bool done = false;
};

struct Poison {
  unsigned char* p;
  int64_t bytes;
  int pending;
};

struct Op {
  enum Kind { work, record, wait } kind = work;
  const char* name = "";
  int64_t tick = 0;
  std::vector<std::unique_ptr<Task>> tasks;
  size_t next = 0;
  std::vector<Range> ranges;
  std::vector<std::shared_ptr<Poison>> poisons;
  std::shared_ptr<Mark> mark;
};

struct LaneState {
  std::deque<std::unique_ptr<Op>> queue;
  std::vector<int64_t> clock;
  std::map<int64_t, Op*> by_tick;  // queued work
};

struct CopyTask final : Task {
  void* dst;
  const void* src;
  int64_t dst_pitch, src_pitch, row_bytes, rows;
  void run() override {
    for (int64_t r = 0; r < rows; r++)
      memcpy(static_cast<char*>(dst) + r * dst_pitch, static_cast<const char*>(src) + r * src_pitch, size_t(row_bytes));
  }
};

struct ZeroTask final : Task {
  void* dst;
  int64_t bytes;
  void run() override { memset(dst, 0, size_t(bytes)); }
};

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string text(const char* format, ...) {
  char buf[1024];
  va_list ap;
  va_start(ap, format);
  vsnprintf(buf, sizeof buf, format, ap);
  va_end(ap);
  return buf;
}

const char* space_name(Space s) { return s == Space::device ? "device" : "host"; }

thread_local std::vector<unsigned char> scratch;

}  // namespace

struct Machine::Impl {
  MachineConfig config;
  std::vector<Stream> streams;
  std::vector<LaneState> lanes;
  std::vector<std::shared_ptr<Mark>> events;
  std::map<int64_t, Segment> memory[2];  // by first byte; a segment ends where the next begins
  unsigned char* base[2] = {nullptr, nullptr};
  int64_t size[2] = {0, 0};
  std::vector<std::string> problems;
  std::set<std::pair<const char*, const char*>> reported;
  int64_t dropped = 0;
  uint64_t rng = 0;
  std::vector<unsigned char> shadow[2];
  uint64_t random_state[2] = {0, 0};

  uint64_t random() {  // splitmix64
    uint64_t z = (rng += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }

  void problem(const std::string& s) {
    if (problems.size() < kMaxProblems) problems.push_back(s);
    else dropped++;
  }

  // ---- the checker ----

  std::map<int64_t, Segment>::iterator split(int space, int64_t at) {
    auto& mem = memory[space];
    auto it = mem.lower_bound(at);
    if (it != mem.end() && it->first == at) return it;
    Segment copy = std::prev(it)->second;
    return mem.emplace_hint(it, at, std::move(copy));
  }

  bool ordered(const Access& a, int lane) const { return a.lane < 0 || lanes[size_t(lane)].clock[size_t(a.lane)] >= a.tick; }

  void race(const Access& a, bool a_writes, const Access& b, bool b_writes, int space, int64_t lo, int64_t hi) {
    if (!reported.insert({a.step, b.step}).second) return;
    problem(text("race: step '%s' (lane %d) %s %s bytes [%lld, %lld) and step '%s' (lane %d) %s them, and nothing orders the two",
                 b.step, b.lane, b_writes ? "writes" : "reads", space_name(Space(space)), (long long)lo, (long long)hi,
                 a.step, a.lane, a_writes ? "writes" : "reads"));
  }

  void touch(const Access& me, int space, bool write, int64_t lo, int64_t hi) {
    auto& mem = memory[space];
    auto it = split(space, lo), end = split(space, hi);
    for (auto s = it; s != end; ++s) {
      Segment& seg = s->second;
      int64_t seg_hi = std::next(s)->first;
      bool own = seg.writer.lane == me.lane && seg.writer.tick == me.tick;
      if (!own && !ordered(seg.writer, me.lane)) race(seg.writer, true, me, write, space, s->first, seg_hi);
      if (write) {
        for (const Access& r : seg.readers)
          if (!(r.lane == me.lane && r.tick == me.tick) && !ordered(r, me.lane)) race(r, false, me, true, space, s->first, seg_hi);
        continue;
      }
      if (!seg.defined && reported.insert({me.step, seg.freed}).second) {
        problem(seg.freed ? text("use after free: step '%s' (lane %d) reads %s bytes [%lld, %lld), which belonged to '%s'",
                                 me.step, me.lane, space_name(Space(space)), (long long)s->first, (long long)seg_hi, seg.freed)
                          : text("undefined: step '%s' (lane %d) reads %s bytes [%lld, %lld), which nothing has written",
                                 me.step, me.lane, space_name(Space(space)), (long long)s->first, (long long)seg_hi));
      }
      bool found = false;
      for (Access& r : seg.readers)
        if (r.lane == me.lane) r = me, found = true;
      if (!found) seg.readers.push_back(me);
    }
    if (!write) return;
    Segment fresh;
    fresh.writer = me;
    fresh.defined = true;
    it->second = std::move(fresh);
    mem.erase(std::next(it), end);
  }

  bool inside(const Range& r, const char* step) {
    int64_t hi = r.offset + r.bytes + (r.count - 1) * r.stride;
    if (r.offset >= 0 && r.bytes >= 0 && r.stride >= 0 && hi <= size[int(r.space)]) return true;
    problem(text("outside: step '%s' %s %s bytes [%lld, %lld), and the arena has %lld", step, r.write ? "writes" : "reads",
                 space_name(r.space), (long long)r.offset, (long long)hi, (long long)size[int(r.space)]));
    return false;
  }

  void define(int space, int64_t lo, int64_t hi, bool defined) {
    if (hi <= lo) return;
    auto it = split(space, lo), end = split(space, hi);
    it->second = Segment();
    it->second.defined = defined;
    memory[space].erase(std::next(it), end);
  }

  // ---- the scheduler ----

  static void join_clock(std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    for (size_t i = 0; i < a.size(); i++) a[i] = b[i] > a[i] ? b[i] : a[i];
  }

  Op& push(int lane, Op::Kind kind, const char* name) {
    LaneState& l = lanes[size_t(lane)];
    l.queue.emplace_back(new Op);
    Op& op = *l.queue.back();
    op.kind = kind;
    op.name = name;
    op.tick = ++l.clock[size_t(lane)];
    if (kind == Op::work) l.by_tick[op.tick] = &op;
    return op;
  }

  Op& current(int lane) {
    LaneState& l = lanes[size_t(lane)];
    if (l.queue.empty() || l.queue.back()->kind != Op::work) throw Error{err_runtime, "launch outside a step"};
    return *l.queue.back();
  }

  static bool runnable(const LaneState& l) {
    return !l.queue.empty() && !(l.queue.front()->kind == Op::wait && !l.queue.front()->mark->done);
  }

  // run_all keeps a random order of lanes and always advances the first runnable one by one task; the order is drawn
  // anew with a chance that depends on the seed, so that both fine interleavings and lanes far ahead of others occur.
  void run_all() {
    std::vector<size_t> prio(lanes.size());
    for (size_t i = 0; i < prio.size(); i++) prio[i] = i;
    auto shuffle = [&] {
      for (size_t i = prio.size(); i > 1; i--) std::swap(prio[i - 1], prio[random() % i]);
    };
    shuffle();
    static const uint64_t odds[] = {1, 4, 16, 256, 4096};
    const uint64_t chance = odds[random() % 5];
    for (;;) {
      if (random() % chance == 0) shuffle();
      LaneState* pick = nullptr;
      bool any = false;
      for (size_t i : prio) {
        any = any || !lanes[i].queue.empty();
        if (runnable(lanes[i])) {
          pick = &lanes[i];
          break;
        }
      }
      if (!pick) {
        if (any) throw Error{err_unsafe, "deadlock: every lane waits for another"};
        return;
      }
      advance(*pick);
    }
  }

  void advance(LaneState& l) {
    Op& op = *l.queue.front();
    if (op.kind == Op::record) op.mark->done = true;
    if (op.kind == Op::work && config.paranoid) run_alone(op);
    else if (op.next < op.tasks.size()) op.tasks[op.next++]->run();
    if (op.next < op.tasks.size()) return;
    for (auto& p : op.poisons)
      if (--p->pending == 0) memset(p->p, kPoison, size_t(p->bytes));
    if (op.kind == Op::work) l.by_tick.erase(op.tick);
    l.queue.pop_front();
  }

  template <class F> void each_piece(const Op& op, int space, bool write, F f) {
    for (const Range& r : op.ranges)
      if (int(r.space) == space && r.write == write)
        for (int64_t i = 0; i < r.count; i++) f(r.offset + i * r.stride, r.bytes);
  }

  // run_alone runs an op in arenas where all but the bytes it declared as read are poison, and keeps only the bytes it
  // declared as written.
  void run_alone(Op& op) {
    for (int s = 0; s < 2; s++) {
      shadow[s].assign(base[s], base[s] + size[s]);
      if (size[s]) memset(base[s], kPoison, size_t(size[s]));
      each_piece(op, s, false, [&](int64_t o, int64_t n) { memcpy(base[s] + o, shadow[s].data() + o, size_t(n)); });
    }
    while (op.next < op.tasks.size()) op.tasks[op.next++]->run();
    for (int s = 0; s < 2; s++) {
      std::vector<unsigned char> want(size_t(size[s]), (unsigned char)kPoison);
      each_piece(op, s, false, [&](int64_t o, int64_t n) { memcpy(want.data() + o, shadow[s].data() + o, size_t(n)); });
      each_piece(op, s, true, [&](int64_t o, int64_t n) {
        memcpy(want.data() + o, base[s] + o, size_t(n));
        memcpy(shadow[s].data() + o, base[s] + o, size_t(n));
      });
      for (int64_t i = 0; i < size[s]; i++)
        if (want[size_t(i)] != base[s][i]) {
          problem(text("undeclared: step '%s' writes %s byte %lld, which is in none of its ranges", op.name,
                       space_name(Space(s)), (long long)i));
          break;
        }
      if (size[s]) memcpy(base[s], shadow[s].data(), size_t(size[s]));
    }
  }

  void report() {
    if (problems.empty()) return;
    std::string all;
    for (auto& p : problems) all += (all.empty() ? "" : "\n") + p;
    if (dropped) all += text("\nand %lld more", (long long)dropped);
    problems.clear();
    dropped = 0;
    throw Error{err_unsafe, all};
  }
};

Machine::Machine(const MachineConfig& c) : impl_(new Impl) {
  Impl& im = *impl_;
  im.config = c;
  im.rng = c.seed;
  im.streams.resize(size_t(c.lanes));
  im.lanes = std::vector<LaneState>(size_t(c.lanes));
  im.events.resize(size_t(c.events));
  for (int i = 0; i < c.lanes; i++) {
    im.streams[size_t(i)].machine = this;
    im.streams[size_t(i)].lane = i;
    im.lanes[size_t(i)].clock.assign(size_t(c.lanes), 0);
  }
  lanes_ = im.streams.data();
  random_state_ = im.random_state;
  im.size[0] = c.device_bytes;
  im.size[1] = c.host_bytes;
  for (int s = 0; s < 2; s++) {
    im.memory[s][0];
    im.memory[s][im.size[s]];
    if (!im.size[s]) continue;
    void* p = nullptr;
    if (posix_memalign(&p, kAlign, size_t(im.size[s]))) {
      free(im.base[0]);
      delete impl_;
      throw Error{s ? err_host_memory : err_device_memory,
                  text("%s arena: no memory for %lld bytes (device arena %lld, host arena %lld)", space_name(Space(s)),
                       (long long)(s ? c.host_bytes : c.device_bytes), (long long)c.device_bytes, (long long)c.host_bytes)};
    }
    im.base[s] = static_cast<unsigned char*>(p);
    memset(p, kPoison, size_t(im.size[s]));
  }
  device_ = im.base[0];
  host_ = im.base[1];
}

Machine::~Machine() {
  for (unsigned char* p : impl_->base) free(p);
  delete impl_;
}

void Machine::begin(int lane, const char* name, const Range* ranges, int n) {
  Impl& im = *impl_;
  Op& op = im.push(lane, Op::work, name);
  lanes_[lane].step = name;
  Access me{lane, op.tick, name};
  for (int write = 0; write < 2; write++)  // reads first: an in-place step reads what was there before it
    for (int i = 0; i < n; i++) {
      const Range& r = ranges[i];
      if (int(r.write) != write || r.bytes == 0 || r.count == 0 || !im.inside(r, name)) continue;
      op.ranges.push_back(r);
      for (int64_t p = 0; p < r.count; p++)
        im.touch(me, int(r.space), r.write, r.offset + p * r.stride, r.offset + p * r.stride + r.bytes);
    }
}

void Machine::record(int lane, int event) {
  Op& op = impl_->push(lane, Op::record, "record");
  op.mark = std::make_shared<Mark>();
  op.mark->clock = impl_->lanes[size_t(lane)].clock;
  impl_->events[size_t(event)] = op.mark;
}

void Machine::wait(int lane, int event) {
  auto mark = impl_->events[size_t(event)];
  if (!mark) return;  // never recorded: no wait, as with CUDA
  Op& op = impl_->push(lane, Op::wait, "wait");
  op.mark = mark;
  Impl::join_clock(impl_->lanes[size_t(lane)].clock, mark->clock);
}

namespace {

void order(Machine::Impl& im, size_t first, size_t then) {
  auto mark = std::make_shared<Mark>();
  mark->clock = im.lanes[first].clock;
  im.push(int(first), Op::record, "record").mark = mark;
  im.push(int(then), Op::wait, "wait").mark = mark;
  Machine::Impl::join_clock(im.lanes[then].clock, mark->clock);
}

}  // namespace

void Machine::fork() {
  for (size_t i = 1; i < impl_->lanes.size(); i++) order(*impl_, 0, i);
}

void Machine::join() {
  for (size_t i = 1; i < impl_->lanes.size(); i++) order(*impl_, i, 0);
}

void Machine::copy_async(int lane, void* dst, const void* src, int64_t bytes) {
  constexpr int64_t pieces = 3;  // a copy is not atomic: let other lanes run in between
  int64_t step = bytes / pieces + 1;
  for (int64_t o = 0; o < bytes; o += step) {
    auto* t = new CopyTask;
    t->dst = static_cast<char*>(dst) + o;
    t->src = static_cast<const char*>(src) + o;
    t->dst_pitch = t->src_pitch = 0;
    t->row_bytes = bytes - o < step ? bytes - o : step;
    t->rows = 1;
    enqueue(lanes_[lane], t);
  }
}

void Machine::copy2d_async(int lane, void* dst, int64_t dst_pitch, const void* src, int64_t src_pitch, int64_t row_bytes,
                           int64_t rows) {
  if (row_bytes <= 0 || rows <= 0) return;
  constexpr int64_t pieces = 3;
  int64_t step = rows / pieces + 1;
  for (int64_t r = 0; r < rows; r += step) {
    auto* t = new CopyTask;
    t->dst = static_cast<char*>(dst) + r * dst_pitch;
    t->src = static_cast<const char*>(src) + r * src_pitch;
    t->dst_pitch = dst_pitch;
    t->src_pitch = src_pitch;
    t->row_bytes = row_bytes;
    t->rows = rows - r < step ? rows - r : step;
    enqueue(lanes_[lane], t);
  }
}

void Machine::freed(Space space, int64_t offset, int64_t bytes, const char* buffer) {
  Impl& im = *impl_;
  if (bytes <= 0 || !im.inside(Range{space, true, offset, bytes}, buffer)) return;
  auto end = im.split(int(space), offset + bytes);
  for (auto s = im.split(int(space), offset); s != end; ++s) {
    // Each run of bytes goes when its own accesses have run: who takes over a part of the buffer waits for no others.
    Segment& seg = s->second;
    seg.defined = false;
    seg.freed = buffer;
    auto p = std::make_shared<Poison>(Poison{im.base[int(space)] + s->first, std::next(s)->first - s->first, 0});
    auto need = [&](const Access& a) {
      if (a.lane < 0) return;
      auto& queued = im.lanes[size_t(a.lane)].by_tick;
      auto op = queued.find(a.tick);
      if (op == queued.end()) return;
      op->second->poisons.push_back(p);
      p->pending++;
    };
    need(seg.writer);
    for (const Access& r : seg.readers)
      if (r.lane != seg.writer.lane || r.tick != seg.writer.tick) need(r);
    if (!p->pending) memset(p->p, kPoison, size_t(p->bytes));
  }
}

void Machine::synchronize() {
  Impl& im = *impl_;
  im.run_all();
  for (size_t i = 1; i < im.lanes.size(); i++) Impl::join_clock(im.lanes[0].clock, im.lanes[i].clock);
  for (size_t i = 1; i < im.lanes.size(); i++) im.lanes[i].clock = im.lanes[0].clock;
  im.report();
}

void Machine::set_random_state(uint64_t seed, uint64_t step) {
  synchronize();
  random_state_[0] = seed;
  random_state_[1] = step;
}

void Machine::advance_step() {
  begin(0, "step number", nullptr, 0);
  uint64_t* state = random_state_;
  parallel_for(lanes_[0], 1, [=] MEMOC_DEVICE(int64_t) { state[1]++; });
}

void Machine::upload(int64_t offset, const void* src, int64_t bytes, const char* name) {
  synchronize();
  if (bytes <= 0 || !impl_->inside(Range{Space::device, true, offset, bytes}, name)) return impl_->report();
  memcpy(device_ + offset, src, size_t(bytes));
  impl_->define(0, offset, offset + bytes, true);
}

void Machine::download(void* dst, int64_t offset, int64_t bytes, const char* name) {
  synchronize();
  if (bytes <= 0 || !impl_->inside(Range{Space::device, false, offset, bytes}, name)) return impl_->report();
  Access me{0, ++impl_->lanes[0].clock[0], name};
  impl_->touch(me, 0, false, offset, offset + bytes);
  impl_->report();
  memcpy(dst, device_ + offset, size_t(bytes));
}

bool Machine::capture_begin() { return false; }
void Machine::capture_end() {}
bool Machine::captured() const { return false; }
void Machine::replay() {}

double Machine::now_ms() {
  synchronize();
  auto t = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(t).count();
}

void enqueue(Stream& s, Task* t) {
  std::unique_ptr<Task> own(t);
  s.machine->impl()->current(s.lane).tasks.push_back(std::move(own));
}

void* row_scratch(int64_t bytes) {
  if (int64_t(scratch.size()) < bytes) scratch.resize(size_t(bytes));
  memset(scratch.data(), kPoison, size_t(bytes));
  return scratch.data();
}

void copy(Stream& s, void* dst, const void* src, int64_t bytes) { s.machine->copy_async(s.lane, dst, src, bytes); }

void upload(Stream& s, void* dst, const void* src, int64_t bytes) { s.machine->copy_async(s.lane, dst, src, bytes); }

void fill_zero(Stream& s, void* dst, int64_t bytes) {
  if (bytes <= 0) return;
  auto* t = new ZeroTask;
  t->dst = dst;
  t->bytes = bytes;
  enqueue(s, t);
}

}  // namespace memoc

#endif  // MEMOC_HOST
