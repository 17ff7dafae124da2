// A stand-in for CUDA on the CPU, for tests: the CUDA side of the library compiles with g++ against these headers and
// runs. Streams are queues that a seeded order interleaves; a block's threads are fibers that take turns at barriers
// and shuffles, in an order that changes from block to block. Only what the library calls is here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#define __device__
#define __host__
#define __global__
#define __shared__ static

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorStreamCaptureUnsupported = 900 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3, cudaMemcpyDefault = 4 };
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaHostAllocDefault = 0 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };

struct FakeStream;
struct FakeEvent;
struct FakeGraph;
using cudaStream_t = FakeStream*;
using cudaEvent_t = FakeEvent*;
using cudaGraph_t = FakeGraph*;
using cudaGraphExec_t = FakeGraph*;

cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaMalloc(void** p, size_t n);
cudaError_t cudaFree(void* p);
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned flags);
cudaError_t cudaFreeHost(void* p);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t* e);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaMemcpy(void* d, const void* s, size_t n, cudaMemcpyKind k);
cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, cudaMemcpyKind k, cudaStream_t st);
cudaError_t cudaMemcpy2DAsync(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h, cudaMemcpyKind k, cudaStream_t st);
cudaError_t cudaMemset(void* d, int v, size_t n);
cudaError_t cudaMemsetAsync(void* d, int v, size_t n, cudaStream_t st);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode m);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* x, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x);

struct FakeDim {
  unsigned x;
};
extern FakeDim blockIdx, threadIdx, blockDim, gridDim;
extern unsigned char* memoc_dynamic_shared;

// fake_enqueue appends work to a stream; fake_blocks runs body once per thread of every block.
void fake_enqueue(cudaStream_t s, std::function<void()> work);
void fake_blocks(unsigned grid, unsigned block, size_t shared, const std::function<void()>& body);
void fake_barrier();

inline void __syncthreads() { fake_barrier(); }
template <class T> T __shfl_down_sync(unsigned, T v, int delta) {
  static T slots[1024];
  slots[threadIdx.x] = v;
  fake_barrier();
  unsigned from = threadIdx.x + unsigned(delta);
  T got = from / 32 == threadIdx.x / 32 ? slots[from] : v;
  fake_barrier();
  return got;
}
template <class T> void atomicAdd(T* p, T v) { *p += v; }

#define MEMOC_LAUNCH(kernel, grid, shared_bytes, stream, ...)                                               \
  do {                                                                                                      \
    const unsigned fake_grid = (grid);                                                                      \
    const size_t fake_shared = (shared_bytes);                                                              \
    fake_enqueue((stream), [=] { fake_blocks(fake_grid, unsigned(kBlock), fake_shared, [=] { kernel(__VA_ARGS__); }); }); \
  } while (0)
