// CUDA build of the runtime. See runtime.h.
#include "memoc/runtime.h"

#if MEMOC_CUDA

#include <cublasLt.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

namespace memoc {

namespace {

#ifndef MEMOC_MAX_PITCH
#define MEMOC_MAX_PITCH 0x7fffffff
#endif
constexpr int64_t kMaxPitch = MEMOC_MAX_PITCH;  // of a copy in rows: CUDA's memPitch on every device

void check(cudaError_t e, const char* step, const char* call, int line) {
  if (e == cudaSuccess) return;
  cudaGetLastError();  // the next call must not report this error again
  throw Error{err_runtime, std::string(__FILE__) + ":" + std::to_string(line) + ": " +
                               (*step ? std::string("step '") + step + "': " : std::string()) + call + ": " +
                               cudaGetErrorString(e)};
}
#define CUDA(call) check((call), "", #call, __LINE__)
#define CUDA_IN(step, call) check((call), (step), #call, __LINE__)

std::string mib(int64_t bytes) { return std::to_string(bytes) + " bytes (" + std::to_string(bytes >> 20) + " MiB)"; }

void* allocate_device(int64_t bytes) {
  void* p = nullptr;
  cudaError_t e = cudaMalloc(&p, size_t(bytes));
  if (e == cudaSuccess) return p;
  cudaGetLastError();
  size_t free_bytes = 0, total = 0;
  if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) cudaGetLastError();
  throw Error{err_device_memory, "device memory: the arena needs " + mib(bytes) + ", and " + mib(int64_t(free_bytes)) + " of " +
                                     mib(int64_t(total)) + " are free: " + cudaGetErrorString(e)};
}

void* allocate_host(int64_t bytes) {
  void* p = nullptr;
  cudaError_t e = cudaHostAlloc(&p, size_t(bytes), cudaHostAllocDefault);
  if (e == cudaSuccess) return p;
  cudaGetLastError();  // else the next kernel launch would report out of memory
  int64_t physical = int64_t(sysconf(_SC_PHYS_PAGES)) * int64_t(sysconf(_SC_PAGE_SIZE));
  rlimit lock{};
  getrlimit(RLIMIT_MEMLOCK, &lock);
  throw Error{err_host_memory, "pinned host memory: the host arena needs " + mib(bytes) + ", and the machine has " +
                                   mib(physical) + " of host memory (locked memory limit: " +
                                   (lock.rlim_cur == RLIM_INFINITY ? std::string("none") : mib(int64_t(lock.rlim_cur))) +
                                   "): " + cudaGetErrorString(e)};
}

}  // namespace

struct Machine::Impl {
  std::vector<Stream> streams;
  std::vector<cudaEvent_t> events;  // the program's, then one per lane for fork and join
  size_t program_events = 0;
  cublasLtHandle_t blas = nullptr;
  cudaEvent_t start = nullptr, stop = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
};

Machine::Machine(const MachineConfig& c) : impl_(new Impl) {
  Impl& im = *impl_;
  im.streams.resize(size_t(c.lanes));
  lanes_ = im.streams.data();
  im.program_events = size_t(c.events);
  try {
    if (c.device_bytes) device_ = static_cast<unsigned char*>(allocate_device(c.device_bytes));
    if (c.host_bytes) host_ = static_cast<unsigned char*>(allocate_host(c.host_bytes));
    CUDA(cudaMalloc(reinterpret_cast<void**>(&random_state_), 2 * sizeof(uint64_t)));
    CUDA(cudaMemset(random_state_, 0, 2 * sizeof(uint64_t)));
    if (cublasStatus_t st = cublasLtCreate(&im.blas)) throw Error{err_runtime, std::string("cublasLtCreate: ") + cublasLtGetStatusString(st)};
    for (Stream& s : im.streams) {
      CUDA(cudaStreamCreateWithFlags(&s.handle, cudaStreamNonBlocking));
      s.blas = im.blas;
    }
    im.events.resize(size_t(c.events + c.lanes));
    for (cudaEvent_t& e : im.events) CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    CUDA(cudaEventCreate(&im.start));
    CUDA(cudaEventCreate(&im.stop));
    CUDA(cudaEventRecord(im.start, lanes_[0].handle));
  } catch (...) {
    this->~Machine();
    throw;
  }
}

Machine::~Machine() {
  if (!impl_) return;
  Impl& im = *impl_;
  for (Stream& s : im.streams)
    if (s.handle) cudaStreamSynchronize(s.handle);
  if (im.exec) cudaGraphExecDestroy(im.exec);
  if (im.graph) cudaGraphDestroy(im.graph);
  for (cudaEvent_t e : im.events)
    if (e) cudaEventDestroy(e);
  if (im.start) cudaEventDestroy(im.start);
  if (im.stop) cudaEventDestroy(im.stop);
  for (Stream& s : im.streams)
    if (s.handle) cudaStreamDestroy(s.handle);
  if (im.blas) cublasLtDestroy(im.blas);
  if (random_state_) cudaFree(random_state_);
  if (device_) cudaFree(device_);
  if (host_) cudaFreeHost(host_);
  cudaGetLastError();
  delete impl_;
  impl_ = nullptr;
}

void launch_check(const Stream& s, const char* file, int line) {
  cudaError_t e = cudaGetLastError();
  if (e == cudaSuccess) return;
  throw Error{err_runtime, std::string(file) + ":" + std::to_string(line) + ": step '" + s.step + "': launch: " + cudaGetErrorString(e)};
}

void Machine::begin(int lane, const char* name, const Range*, int) { lanes_[lane].step = name; }

void Machine::record(int lane, int event) {
  CUDA_IN(lanes_[lane].step, cudaEventRecord(impl_->events[size_t(event)], lanes_[lane].handle));
}

void Machine::wait(int lane, int event) {
  CUDA_IN(lanes_[lane].step, cudaStreamWaitEvent(lanes_[lane].handle, impl_->events[size_t(event)], 0));
}

void Machine::fork() {
  if (impl_->streams.size() < 2) return;
  cudaEvent_t e = impl_->events[impl_->program_events];
  CUDA(cudaEventRecord(e, lanes_[0].handle));
  for (size_t i = 1; i < impl_->streams.size(); i++) CUDA(cudaStreamWaitEvent(lanes_[i].handle, e, 0));
}

void Machine::join() {
  for (size_t i = 1; i < impl_->streams.size(); i++) {
    cudaEvent_t e = impl_->events[impl_->program_events + i];
    CUDA(cudaEventRecord(e, lanes_[i].handle));
    CUDA(cudaStreamWaitEvent(lanes_[0].handle, e, 0));
  }
}

void Machine::copy_async(int lane, void* dst, const void* src, int64_t bytes) {
  if (bytes <= 0) return;
  CUDA_IN(lanes_[lane].step, cudaMemcpyAsync(dst, src, size_t(bytes), cudaMemcpyDefault, lanes_[lane].handle));
}

void Machine::copy2d_async(int lane, void* dst, int64_t dst_pitch, const void* src, int64_t src_pitch, int64_t row_bytes,
                           int64_t rows) {
  if (row_bytes <= 0 || rows <= 0) return;
  if (dst_pitch > kMaxPitch || src_pitch > kMaxPitch) {
    for (int64_t r = 0; r < rows; r++)
      copy_async(lane, static_cast<char*>(dst) + r * dst_pitch, static_cast<const char*>(src) + r * src_pitch, row_bytes);
    return;
  }
  CUDA_IN(lanes_[lane].step, cudaMemcpy2DAsync(dst, size_t(dst_pitch), src, size_t(src_pitch), size_t(row_bytes),
                                               size_t(rows), cudaMemcpyDefault, lanes_[lane].handle));
}

void Machine::freed(Space, int64_t, int64_t, const char*) {}

void Machine::synchronize() {
  for (Stream& s : impl_->streams) CUDA_IN(s.step, cudaStreamSynchronize(s.handle));
}

void Machine::set_random_state(uint64_t seed, uint64_t step) {
  synchronize();
  const uint64_t state[2] = {seed, step};
  CUDA(cudaMemcpy(random_state_, state, sizeof state, cudaMemcpyHostToDevice));
}

void Machine::advance_step() {
  uint64_t* state = random_state_;
  lanes_[0].step = "step number";
  parallel_for(lanes_[0], 1, [=] MEMOC_DEVICE(int64_t) { state[1]++; });
}

void Machine::upload(int64_t offset, const void* src, int64_t bytes, const char* name) {
  synchronize();
  if (bytes > 0) CUDA_IN(name, cudaMemcpy(device_ + offset, src, size_t(bytes), cudaMemcpyHostToDevice));
}

void Machine::download(void* dst, int64_t offset, int64_t bytes, const char* name) {
  synchronize();
  if (bytes > 0) CUDA_IN(name, cudaMemcpy(dst, device_ + offset, size_t(bytes), cudaMemcpyDeviceToHost));
}

bool Machine::capture_begin() {
  CUDA(cudaStreamBeginCapture(lanes_[0].handle, cudaStreamCaptureModeThreadLocal));
  return true;
}

void Machine::capture_end() {
  CUDA(cudaStreamEndCapture(lanes_[0].handle, &impl_->graph));
  CUDA(cudaGraphInstantiate(&impl_->exec, impl_->graph, 0));
}

bool Machine::captured() const { return impl_->exec != nullptr; }

void Machine::replay() { CUDA(cudaGraphLaunch(impl_->exec, lanes_[0].handle)); }

double Machine::now_ms() {
  synchronize();
  CUDA(cudaEventRecord(impl_->stop, lanes_[0].handle));
  CUDA(cudaEventSynchronize(impl_->stop));
  float ms = 0;
  CUDA(cudaEventElapsedTime(&ms, impl_->start, impl_->stop));
  return ms;
}

void copy(Stream& s, void* dst, const void* src, int64_t bytes) {
  if (bytes > 0) CUDA_IN(s.step, cudaMemcpyAsync(dst, src, size_t(bytes), cudaMemcpyDeviceToDevice, s.handle));
}

void upload(Stream& s, void* dst, const void* src, int64_t bytes) {
  if (bytes > 0) CUDA_IN(s.step, cudaMemcpyAsync(dst, src, size_t(bytes), cudaMemcpyHostToDevice, s.handle));
}

void fill_zero(Stream& s, void* dst, int64_t bytes) {
  if (bytes > 0) CUDA_IN(s.step, cudaMemsetAsync(dst, 0, size_t(bytes), s.handle));
}

}  // namespace memoc

#endif  // MEMOC_CUDA
