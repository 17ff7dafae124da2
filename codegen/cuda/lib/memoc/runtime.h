// runtime.h: arenas, lanes and events of an emitted program, and the C entry points' error type.
//
// With CUDA a Machine owns one device arena, one pinned host arena, one stream per lane and the events. On the host
// build the same calls only build queues: synchronize() lets a seeded scheduler interleave the lanes in some legal
// order (in order within a lane, a wait after its record), and the ranges given to begin() are checked as they arrive:
//
//   - a range must lie inside its arena;
//   - two accesses to one byte, one of them a write, must be ordered by a lane or by an event (vector clocks);
//   - bytes that are read must have been written, and not freed since.
//
// The order is known when work is enqueued, so these findings do not depend on the seed. The seed finds what the
// declared ranges leave out: with every seed the outputs must be the same bytes.
#ifndef MEMOC_RUNTIME_H
#define MEMOC_RUNTIME_H

#include <string>

#include "memoc/kernel.h"

namespace memoc {

// Error is what a failed call throws inside the program; the C functions turn it into a code and a message.
struct Error {
  int code;
  std::string message;
};

enum ErrorCode : int {
  ok = 0,
  err_argument = 1,       // unknown name, wrong size
  err_device_memory = 2,  // the device arena does not fit
  err_host_memory = 3,    // the pinned host arena does not fit
  err_runtime = 4,        // a CUDA or cuBLASLt call failed
  err_unsafe = 5,         // host build: a race, a read of undefined bytes or a range outside its arena
};

enum class Space : int32_t { device = 0, host = 1 };

// Range is count pieces of bytes each, stride bytes apart, in one arena.
struct Range {
  Space space;
  bool write;
  int64_t offset, bytes;
  int64_t count = 1, stride = 0;
};

struct MachineConfig {
  int lanes = 1;
  int events = 0;
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;
  uint64_t seed = 0;      // host build: which legal order to run in
  bool paranoid = false;  // host build: let each step see and change only the bytes it declared
};

class Machine {
 public:
  explicit Machine(const MachineConfig& c);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  unsigned char* device() const { return device_; }
  unsigned char* host() const { return host_; }
  Stream& lane(int i) { return lanes_[i]; }

  // begin opens a step on a lane; what is launched or copied on that lane until the next begin belongs to it. name
  // must stay valid. The ranges are used on the host build only.
  void begin(int lane, const char* name, const Range* ranges, int n);

  // record and wait order lanes, with CUDA's meaning: a wait is for the latest record made before the wait was called.
  void record(int lane, int event);
  void wait(int lane, int event);
  // fork lets every lane start after what lane 0 holds so far; join lets lane 0 go on only after all lanes. A step of
  // the program stands between the two, which also makes it a legal CUDA graph and orders step n before step n+1.
  void fork();
  void join();

  void copy_async(int lane, void* dst, const void* src, int64_t bytes);
  // copy2d_async copies rows of row_bytes; pitches are the distances between rows in bytes.
  void copy2d_async(int lane, void* dst, int64_t dst_pitch, const void* src, int64_t src_pitch, int64_t row_bytes,
                    int64_t rows);

  // freed says that a buffer's life is over: on the host build its bytes are filled with 0xFF as soon as every access
  // made so far has run, and a later read is an error. Nothing with CUDA.
  void freed(Space space, int64_t offset, int64_t bytes, const char* buffer);

  void synchronize();

  // random_state points to the seed and the step number, in device memory of their own; advance_step adds one to the
  // step number on lane 0.
  const uint64_t* random_state() const { return random_state_; }
  void set_random_state(uint64_t seed, uint64_t step);
  void advance_step();

  // upload and download move bytes between the caller's memory and the device arena and return when it is done.
  void upload(int64_t offset, const void* src, int64_t bytes, const char* name);
  void download(void* dst, int64_t offset, int64_t bytes, const char* name);

  // capture_begin, capture_end and replay turn what one step enqueues into a CUDA graph. On the host build
  // capture_begin returns false.
  bool capture_begin();
  void capture_end();
  bool captured() const;
  void replay();

  // now_ms is for differences: device time with CUDA, wall time on the host build; it synchronizes.
  double now_ms();

  struct Impl;
  Impl* impl() const { return impl_; }

 private:
  unsigned char* device_ = nullptr;
  unsigned char* host_ = nullptr;
  uint64_t* random_state_ = nullptr;
  Stream* lanes_ = nullptr;
  Impl* impl_ = nullptr;
};

}  // namespace memoc

#endif  // MEMOC_RUNTIME_H
