// The loop over a program's steps, and the C interface.
#include "memoc/program.h"

#include <vector>

using memoc::Error;
using memoc::program;

// memoc_handle is what the C interface hands out.
struct memoc_handle {
  memoc::Machine machine;
  memoc_options options;
  int64_t steps = 0;
  std::string error;
  std::vector<unsigned char*> buffers;  // of the step being enqueued
  memoc_handle(const memoc::MachineConfig& c, const memoc_options& o) : machine(c), options(o) {}
};

namespace {

thread_local std::string create_error;

unsigned char* at(const memoc::Machine& m, memoc::Space s, int64_t offset) {
  return (s == memoc::Space::device ? m.device() : m.host()) + offset;
}

void enqueue_copies(memoc_handle* h, const memoc::Step& st) {
  memoc::Machine& m = h->machine;
  for (int32_t i = 0; i < st.copies.count; i++) {
    const memoc::Copy& c = program.copies[st.copies.first + i];
    if (c.rows == 1) m.copy_async(st.lane, at(m, c.dst, c.dst_offset), at(m, c.src, c.src_offset), c.row_bytes);
    else m.copy2d_async(st.lane, at(m, c.dst, c.dst_offset), c.dst_pitch, at(m, c.src, c.src_offset), c.src_pitch, c.row_bytes, c.rows);
  }
}

void enqueue_kernel(memoc_handle* h, const memoc::Step& st) {
  memoc::Machine& m = h->machine;
  h->buffers.clear();
  for (int32_t i = 0; i < st.buffers.count; i++) {
    int64_t offset = program.buffers[st.buffers.first + i];
    h->buffers.push_back(offset < 0 ? nullptr : m.device() + offset);
  }
  st.launch(m.lane(st.lane), memoc::Args{h->buffers.data(), memoc::Random{st.random_name, m.random_state()}});
}

void enqueue_one(memoc_handle* h, const memoc::Step& st) {
  memoc::Machine& m = h->machine;
  for (int32_t w = 0; w < st.waits.count; w++) m.wait(st.lane, program.waits[st.waits.first + w]);
#if MEMOC_HOST
  m.begin(st.lane, st.name, program.ranges + st.ranges.first, st.ranges.count);
#else
  m.begin(st.lane, st.name, nullptr, 0);
#endif
  enqueue_copies(h, st);
  if (st.launch) enqueue_kernel(h, st);
  if (st.record >= 0) m.record(st.lane, st.record);
#if MEMOC_HOST
  for (int32_t f = 0; f < st.freed.count; f++) {
    const memoc::Freed& x = program.freed[st.freed.first + f];
    m.freed(x.space, x.offset, x.bytes, x.name);
  }
#endif
}

// enqueue_step enqueues a whole step. With ms it runs the steps one by one and adds the time of each to ms.
void enqueue_step(memoc_handle* h, double* ms) {
  memoc::Machine& m = h->machine;
  m.fork();
  double last = ms ? m.now_ms() : 0;
  for (int32_t i = 0; i < program.step_count; i++) {
    enqueue_one(h, program.steps[i]);
    if (!ms) continue;
    double now = m.now_ms();
    ms[i] += now - last;
    last = now;
  }
  m.join();
  m.advance_step();
}

void run_step(memoc_handle* h) {
  memoc::Machine& m = h->machine;
  if (m.captured()) return m.replay();
  // The first step runs as it is: it makes cuBLASLt choose its algorithms, which must not happen under capture.
  if (!h->options.graph || h->steps == 0 || !m.capture_begin()) return enqueue_step(h, nullptr);
  enqueue_step(h, nullptr);
  m.capture_end();
  m.replay();
}

// guarded runs f and turns an exception into a code.
template <class F> int guarded(std::string& message, F f) {
  try {
    f();
    message.clear();
    return MEMOC_OK;
  } catch (const Error& e) {
    message = e.message;
    return e.code;
  } catch (const std::bad_alloc&) {
    message = "out of host memory";
    return MEMOC_HOST_MEMORY;
  }
}

int find(const char* name, bool output) {
  for (int32_t i = 0; i < program.tensor_count; i++)
    if ((program.tensors[i].role == MEMOC_OUTPUT) == output && name == std::string(program.tensors[i].name)) return i;
  throw Error{MEMOC_ARGUMENT, std::string(output ? "no output" : "no input or weight") + " is named '" + name + "'"};
}

void check_size(int i, int64_t bytes) {
  const memoc_tensor& t = program.tensors[i];
  if (bytes == t.bytes) return;
  throw Error{MEMOC_ARGUMENT, std::string("'") + t.name + "' has " + std::to_string(t.bytes) + " bytes, " + std::to_string(bytes) + " were given"};
}

}  // namespace

extern "C" {

int memoc_create(memoc_handle** out, const memoc_options* options) {
  *out = nullptr;
  return guarded(create_error, [&] {
    memoc_options o = options ? *options : memoc_options{};
    memoc::MachineConfig c;
    c.lanes = program.lanes;
    c.events = program.events;
    c.device_bytes = program.device_bytes;
    c.host_bytes = program.host_bytes;
    c.seed = o.schedule_seed;
    c.paranoid = o.paranoid != 0;
    *out = new memoc_handle(c, o);
    (*out)->machine.set_random_state(o.seed, o.first_step);
  });
}

void memoc_destroy(memoc_handle* m) { delete m; }

const char* memoc_error(const memoc_handle* m) { return m ? m->error.c_str() : create_error.c_str(); }

int memoc_tensor_count(void) { return program.tensor_count; }

const memoc_tensor* memoc_tensor_at(int i) { return i >= 0 && i < program.tensor_count ? &program.tensors[i] : nullptr; }

int memoc_set_input(memoc_handle* m, const char* name, const void* data, int64_t bytes) {
  return guarded(m->error, [&] {
    int i = find(name, false);
    check_size(i, bytes);
    m->machine.upload(program.tensor_offsets[i], data, bytes, name);
  });
}

int memoc_step(memoc_handle* m) {
  return guarded(m->error, [&] {
    run_step(m);
    m->steps++;
  });
}

int memoc_profile_step(memoc_handle* m, double* ms) {
  return guarded(m->error, [&] {
    enqueue_step(m, ms);
    m->steps++;
  });
}

int memoc_part_count(void) { return program.step_count; }

const char* memoc_part_name(int i) { return i >= 0 && i < program.step_count ? program.steps[i].name : nullptr; }

int memoc_get_output(memoc_handle* m, const char* name, void* data, int64_t bytes) {
  return guarded(m->error, [&] {
    int i = find(name, true);
    check_size(i, bytes);
    m->machine.download(data, program.tensor_offsets[i], bytes, name);
  });
}

int memoc_synchronize(memoc_handle* m) {
  return guarded(m->error, [&] { m->machine.synchronize(); });
}

int memoc_now_ms(memoc_handle* m, double* ms) {
  return guarded(m->error, [&] { *ms = m->machine.now_ms(); });
}

int64_t memoc_device_bytes(void) { return program.device_bytes; }
int64_t memoc_host_bytes(void) { return program.host_bytes; }

}  // extern "C"
