// The host runtime on a hand-written program of two lanes that swaps a tensor out and in:
//   compute: a = f(in); b = g(a); [a is gone]; c = h(b) over a's bytes; ...; out = k(c, a again)
// A legal program gives the same bytes for every seed; each fault planted in it is named.
#include <cstring>
#include <vector>

#include "memoc/runtime.h"
#include "test.h"

using namespace memoc;

enum Fault { none, no_wait_before_out, no_wait_before_reuse, no_wait_before_in, no_wait_after_in, read_freed, read_outside, undeclared_read, undeclared_write };

constexpr int64_t N = 64, B = N * 4;  // floats, bytes
// device arena: in, a (later c), b, out; host arena: one slot
constexpr int64_t in_at = 0, a_at = B, b_at = 2 * B, out_at = 3 * B, a2_at = 4 * B;

struct Program {
  Machine m;
  Fault fault;
  explicit Program(uint64_t seed, Fault f, bool paranoid = false) : m(config(seed, paranoid)), fault(f) {}
  static MachineConfig config(uint64_t seed, bool paranoid) {
    MachineConfig c;
    c.lanes = 3;
    c.events = 4;
    c.device_bytes = 5 * B;
    c.host_bytes = B;
    c.seed = seed;
    c.paranoid = paranoid;
    return c;
  }
  float* at(int64_t o) { return reinterpret_cast<float*>(m.device() + o); }

  void map(const char* name, int64_t src, int64_t dst, float k) {
    Range r[] = {{Space::device, false, src, B}, {Space::device, true, dst, B}};
    m.begin(0, name, r, 2);
    const float* x = at(src);
    float* y = at(dst);
    for (int part = 0; part < 2; part++) {
      int64_t o = part * N / 2;
      parallel_for(m.lane(0), N / 2, [=] MEMOC_DEVICE(int64_t i) { y[o + i] = x[o + i] * k + 1; });
    }
  }

  void step() {
    m.fork();
    map("a", in_at, a_at, 2);
    if (fault != no_wait_before_out) m.record(0, 0);
    m.wait(1, 0);
    Range out[] = {{Space::device, false, a_at, B}, {Space::host, true, 0, B}};
    m.begin(1, "a.out", out, 2);
    m.copy_async(1, m.host(), at(a_at), B);
    m.record(1, 1);
    map("b", a_at, b_at, 3);
    m.freed(Space::device, a_at, B, "a");
    if (fault == read_freed) map("late", a_at, b_at, 3);
    if (fault != no_wait_before_reuse) m.wait(0, 1);
    map("c", b_at, a_at, 5);
    if (fault != no_wait_before_in) m.wait(2, 1);
    Range in[] = {{Space::host, false, 0, B}, {Space::device, true, a2_at, B}};
    m.begin(2, "a.in", in, 2);
    m.copy2d_async(2, at(a2_at), B / 4, m.host(), B / 4, B / 4, 4);
    m.record(2, 2);
    m.freed(Space::host, 0, B, "a (host)");
    if (fault != no_wait_after_in) m.wait(0, 2);
    Range last[] = {{Space::device, false, a_at, B}, {Space::device, false, a2_at, B}, {Space::device, true, out_at, B}};
    if (fault == read_outside) last[0].offset = 4 * B + 4;
    m.begin(0, "out", last + (fault == undeclared_read), fault == undeclared_read ? 2 : 3);
    const float *c = at(a_at), *a = at(a2_at);
    float* o = at(out_at);
    int64_t spill = fault == undeclared_write ? -1 : 0;
    block_rows(m.lane(0), N, [=] MEMOC_DEVICE(RowCtx & ctx, int64_t row) {
      float* tmp = ctx.shared<float>();
      for (int64_t i = ctx.tid; i < 2; i += ctx.size) tmp[i] = i ? c[row] : a[row];
      ctx.sync();
      float sum = 0;
      for (int64_t i = ctx.tid; i < 2; i += ctx.size) sum += tmp[i];
      o[row + spill] = ctx.sum(sum);
    }, 2 * sizeof(float));
    m.freed(Space::device, a_at, B, "c");
    m.freed(Space::device, a2_at, B, "a (again)");
    m.freed(Space::device, b_at, B, "b");
    m.join();
  }
};

static std::string run(uint64_t seed, Fault fault, std::vector<float>* out = nullptr, bool paranoid = false) {
  Program p(seed, fault, paranoid);
  std::vector<float> x(N), y(N);
  for (int64_t i = 0; i < N; i++) x[size_t(i)] = float(i);
  try {
    p.m.upload(in_at, x.data(), B, "in");
    p.step();
    p.step();  // the host slot is used again, with no synchronization in between
    p.m.download(y.data(), out_at, B, "out");
  } catch (const Error& e) {
    CHECK(e.code == err_unsafe);
    return e.message;
  }
  CHECK(memcmp(p.m.device() + a_at, "\xff\xff\xff\xff", 4) == 0);  // poisoned
  CHECK(memcmp(p.m.host(), "\xff\xff\xff\xff", 4) == 0);
  if (out) *out = y;
  return "";
}

static bool has(const std::string& s, std::initializer_list<const char*> parts) {
  for (const char* p : parts)
    if (s.find(p) == std::string::npos) return printf("no \"%s\" in: %s\n", p, s.c_str()), false;
  return true;
}

// rows writes the heads (32 bytes) of 4 rows of 64 on lane 1 and their tails on lane 0, then reads all. The heads are
// longer by more bytes. Faults: 1 reads without a wait, 2 without the tails.
static std::string rows(uint64_t seed, int64_t more, int fault) {
  MachineConfig c;
  c.lanes = 2;
  c.events = 1;
  c.device_bytes = 512;
  c.host_bytes = 256;
  c.seed = seed;
  Machine m(c);
  std::vector<unsigned char> x(256), y(256), want(256);
  for (size_t i = 0; i < 256; i++) {
    x[i] = (unsigned char)(7 * i + 1);
    want[i] = i % 64 < 32 ? x[(i / 64) * 32 + i % 64] : x[i % 64];
  }
  try {
    m.upload(256, x.data(), 256, "x");
    m.fork();
    Range fill[] = {{Space::device, false, 256, 256}, {Space::host, true, 0, 256}};
    m.begin(1, "fill", fill, 2);
    m.copy_async(1, m.host(), m.device() + 256, 256);
    Range head[] = {{Space::host, false, 0, 4 * (32 + more)}, {Space::device, true, 0, 32 + more, 4, 64}};
    m.begin(1, "head", head, 2);
    m.copy2d_async(1, m.device(), 64, m.host(), 32 + more, 32 + more, 4);
    if (fault != 1) m.record(1, 0);
    if (fault != 2) {
      Range tails[] = {{Space::device, false, 256, 64}, {Space::device, true, 32, 32, 4, 64}};
      m.begin(0, "tails", tails, 2);
      for (int r = 0; r < 4; r++) m.copy_async(0, m.device() + 32 + 64 * r, m.device() + 288, 32);
    }
    m.wait(0, 0);
    Range whole[] = {{Space::device, false, 0, 256}, {Space::device, true, 256, 256}};
    m.begin(0, "whole", whole, 2);
    m.copy_async(0, m.device() + 256, m.device(), 256);
    m.join();
    m.download(y.data(), 256, 256, "y");
  } catch (const Error& e) {
    return e.message;
  }
  CHECK(y == want);
  return "";
}

// halves: lane 1 copies the first half of a buffer out while lane 0, which has done with the second half, uses that for
// something else. The end of the buffer's life must not poison what was written there since.
static std::string halves(uint64_t seed) {
  MachineConfig c;
  c.lanes = 2;
  c.events = 1;
  c.device_bytes = 384;
  c.host_bytes = 64;
  c.seed = seed;
  Machine m(c);
  std::vector<unsigned char> x(128), y(64);
  for (size_t i = 0; i < 128; i++) x[i] = (unsigned char)(i + 1);
  try {
    m.upload(128, x.data(), 128, "x");
    m.fork();
    Range make[] = {{Space::device, false, 128, 128}, {Space::device, true, 0, 128}};
    m.begin(0, "make", make, 2);
    m.copy_async(0, m.device(), m.device() + 128, 128);
    m.record(0, 0);
    m.wait(1, 0);
    Range out[] = {{Space::device, false, 0, 64}, {Space::host, true, 0, 64}};
    m.begin(1, "out", out, 2);
    m.copy_async(1, m.host(), m.device(), 64);
    m.freed(Space::device, 0, 128, "both halves");
    Range again[] = {{Space::device, false, 128, 64}, {Space::device, true, 64, 64}};
    m.begin(0, "again", again, 2);
    m.copy_async(0, m.device() + 64, m.device() + 128, 64);
    m.join();
    m.download(y.data(), 64, 64, "y");
  } catch (const Error& e) {
    return e.message;
  }
  CHECK(memcmp(y.data(), x.data(), 64) == 0);
  CHECK(memcmp(m.device(), "\xff\xff\xff\xff", 4) == 0);
  return "";
}

int main() {
  std::vector<float> first;
  CHECK(run(0, none, &first) == "");
  CHECK(first[3] == 7 + (22 * 5 + 1));
  for (uint64_t seed = 1; seed < 50; seed++) {
    std::vector<float> y;
    std::string e = run(seed, none, &y, seed % 2);
    CHECK(e == "");
    if (e != "") printf("%s\n", e.c_str());
    CHECK(y == first);
  }
  for (uint64_t seed = 0; seed < 5; seed++) {
    CHECK(has(run(seed, no_wait_before_out), {"race: step 'a.out' (lane 1) reads device bytes [256, 512) and step 'a' (lane 0) writes"}));
    CHECK(has(run(seed, no_wait_before_reuse), {"race: step 'c' (lane 0) writes device bytes [256, 512) and step 'a.out' (lane 1) reads"}));
    CHECK(has(run(seed, no_wait_before_in), {"race: step 'a.in' (lane 2) reads host bytes [0, 256) and step 'a.out' (lane 1) writes"}));
    CHECK(has(run(seed, no_wait_after_in), {"race: step 'out' (lane 0) reads device bytes [1024, 1280) and step 'a.in' (lane 2) writes"}));
    CHECK(has(run(seed, read_freed), {"use after free: step 'late' (lane 0) reads device bytes [256, 512), which belonged to 'a'"}));
    CHECK(has(run(seed, read_outside), {"outside: step 'out' reads device bytes [1028, 1284), and the arena has 1280"}));
    CHECK(has(run(seed, undeclared_write, nullptr, true), {"undeclared: step 'out' writes device byte 764"}));
  }
  std::vector<float> y;  // what is not declared is seen as poison, and so shows in the result
  run(1, undeclared_read, &y, true);
  CHECK(std::isnan(y[0]));

  {  // the second use of a lane without an open step, and reads of what nobody wrote
    Program p(0, none);
    bool threw = false;
    try {
      p.map("early", a_at, b_at, 1);
      p.m.synchronize();
    } catch (const Error& e) {
      threw = has(e.message, {"undefined: step 'early' (lane 0) reads device bytes [256, 512), which nothing has written"});
    }
    CHECK(threw);
  }
  for (uint64_t seed = 0; seed < 30; seed++) CHECK(halves(seed) == "");
  for (uint64_t seed = 0; seed < 8; seed++) {  // rows: a head comes in while the tails of the same buffer are made
    CHECK(rows(seed, 0, 0) == "");
    CHECK(has(rows(seed, 16, 0), {"race: step 'tails' (lane 0) writes device bytes [32, 48) and step 'head' (lane 1) writes"}));
    CHECK(has(rows(seed, 0, 1), {"race: step 'whole' (lane 0) reads device bytes [0, 32) and step 'head' (lane 1) writes"}));
    CHECK(has(rows(seed, 0, 2), {"undefined: step 'whole' (lane 0) reads device bytes [32, 64)"}));
  }
  {  // no memory for the host arena names host memory and both sizes
    MachineConfig c;
    c.device_bytes = 4096;
    c.host_bytes = int64_t(1) << 60;
    try {
      Machine m(c);
      CHECK(false);
    } catch (const Error& e) {
      CHECK(e.code == err_host_memory && has(e.message, {"host arena", "1152921504606846976", "4096"}));
    }
  }
  return fails != 0;
}
