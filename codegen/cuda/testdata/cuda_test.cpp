// The CUDA side of the runtime, on the stand-in for CUDA: reductions across a block's threads, a failed pin, and the
// order that events give, launched as it is and as a graph.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "memoc/runtime.h"
#include "test.h"

using namespace memoc;

static void reductions() {
  Machine m(MachineConfig{});
  const int64_t rows = 5, n = 1000;
  std::vector<float> x(size_t(rows * n)), y(size_t(rows * 3));
  for (size_t i = 0; i < x.size(); i++) x[i] = float(int(i * 37 % 101) - 50);
  const float* xp = x.data();
  float* yp = y.data();
  block_rows(m.lane(0), rows, [=] MEMOC_DEVICE(RowCtx& c, int64_t r) {
    int64_t* shared = c.shared<int64_t>();
    for (int64_t i = c.tid; i < 100; i += c.size) shared[i] = i;
    c.sync();
    float sum = 0, hi = lowest<float>(), lo = highest<float>();
    for (int64_t i = c.tid; i < n; i += c.size) {
      sum += xp[r * n + i] * float(shared[i % 100]);
      hi = m::max(hi, xp[r * n + i]);
      lo = m::min(lo, xp[r * n + i]);
    }
    sum = c.sum(sum);
    hi = c.max(hi);
    lo = c.min(lo);
    if (c.tid == c.size - 1) yp[r * 3] = sum, yp[r * 3 + 1] = hi, yp[r * 3 + 2] = lo;
  }, 100 * 8);
  m.synchronize();
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[size_t(r * n + i)] * float(i % 100);
    CHECK(y[size_t(r * 3)] == sum && y[size_t(r * 3 + 1)] == 50 && y[size_t(r * 3 + 2)] == -50);
  }
}

// A pin that fails names host memory and both sizes, and leaves no error for the next launch to report.
static void failed_pin() {
  setenv("FAKE_HOST_LIMIT", "1000000", 1);
  MachineConfig c;
  c.device_bytes = 4096;
  c.host_bytes = 147849216;  // 96 + 36 + 9 MiB
  try {
    Machine m(c);
    CHECK(false);
  } catch (const Error& e) {
    CHECK(e.code == err_host_memory);
    CHECK(e.message.find("pinned host memory") == 0 && e.message.find("147849216 bytes (141 MiB)") != std::string::npos);
    CHECK(e.message.find("of host memory") != std::string::npos);
  }
  CHECK(cudaGetLastError() == cudaSuccess);
  c.host_bytes = 0;
  Machine m(c);
  float* p = reinterpret_cast<float*>(m.device());
  parallel_for(m.lane(0), 10, [=] MEMOC_DEVICE(int64_t i) { p[i] = 1; });  // throws if the old error were still there
  m.synchronize();
  unsetenv("FAKE_HOST_LIMIT");

  setenv("FAKE_DEVICE_LIMIT", "1000000", 1);
  c.device_bytes = 2000000;
  try {
    Machine big(c);
    CHECK(false);
  } catch (const Error& e) {
    CHECK(e.code == err_device_memory && e.message.find("2000000") != std::string::npos && e.message.find("1000000") != std::string::npos);
  }
  unsetenv("FAKE_DEVICE_LIMIT");
}

// A copy in rows further apart than CUDA takes is made row by row.
static void wide_rows() {
  for (int64_t pitch : {int64_t(64), int64_t(MEMOC_MAX_PITCH), int64_t(MEMOC_MAX_PITCH) + 64}) {
    MachineConfig c;
    c.device_bytes = 3 * pitch;
    c.host_bytes = 3 * 64;
    Machine m(c);
    memset(m.device(), 0, size_t(c.device_bytes));
    for (int64_t i = 0; i < c.host_bytes; i++) m.host()[i] = (unsigned char)(i + 1);
    m.copy2d_async(0, m.device() + 8, pitch, m.host(), 64, 40, 3);
    m.synchronize();
    for (int64_t i = 0; i < c.device_bytes; i++) {
      int64_t row = i / pitch, at = i % pitch - 8;
      CHECK(m.device()[i] == (at >= 0 && at < 40 ? row * 64 + at + 1 : 0));
    }
  }
}

// step: lane 0 counts, lane 1 copies the count out, lane 2 brings it back into the next slot.
static void step(Machine& m) {
  int64_t* d = reinterpret_cast<int64_t*>(m.device());
  m.fork();
  m.begin(0, "count", nullptr, 0);
  parallel_for(m.lane(0), 1, [=] MEMOC_DEVICE(int64_t) { d[0]++; });
  m.record(0, 0);
  m.wait(1, 0);
  m.begin(1, "out", nullptr, 0);
  m.copy_async(1, m.host(), d, 8);
  m.record(1, 1);
  m.wait(2, 1);
  m.begin(2, "in", nullptr, 0);
  m.copy2d_async(2, d + 1, 4, m.host(), 4, 4, 2);
  m.join();
  m.begin(0, "sum", nullptr, 0);
  parallel_for(m.lane(0), 1, [=] MEMOC_DEVICE(int64_t) { d[2] = d[2] * 10 + d[1]; });
  m.advance_step();
}

static void ordered() {
  MachineConfig c;
  c.lanes = 3;
  c.events = 2;
  c.device_bytes = 64;
  c.host_bytes = 8;
  for (int run = 0; run < 50; run++) {
    Machine m(c);
    int64_t zero[8] = {}, got[3];
    m.upload(0, zero, 64, "zero");
    m.set_random_state(7, 0);
    step(m);
    step(m);
    CHECK(m.capture_begin());
    step(m);
    m.capture_end();
    CHECK(m.captured());
    m.replay();
    m.replay();
    m.download(got, 0, 24, "got");
    CHECK(got[0] == 4 && got[2] == 1234);
    CHECK(m.random_state()[0] == 7 && m.random_state()[1] == 4);
  }
}

int main() {
  reductions();
  failed_pin();
  wide_rows();
  ordered();
  return fails != 0;
}
