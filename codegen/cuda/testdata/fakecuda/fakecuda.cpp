// See cuda_runtime.h.
#include "cuda_runtime.h"

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "cublasLt.h"
#include "memoc/types.h"

FakeDim blockIdx, threadIdx, blockDim, gridDim;
unsigned char* memoc_dynamic_shared;

static uint64_t rng = 1;
static uint64_t random_number() {
  rng = rng * 6364136223846793005u + 1442695040888963407u;
  return rng >> 33;
}

// ---- fibers ----

struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  bool done = false;
  int barriers = 0;
};
static ucontext_t scheduler;
static std::vector<std::unique_ptr<Fiber>> fibers;
static unsigned current;
static const std::function<void()>* fiber_body;

static void fiber_main() {
  (*fiber_body)();
  fibers[current]->done = true;
}

void fake_barrier() {
  fibers[current]->barriers++;
  swapcontext(&fibers[current]->context, &scheduler);
}

static void run_block(unsigned threads) {
  while (fibers.size() < threads) {
    fibers.emplace_back(new Fiber);
    fibers.back()->stack.resize(128 << 10);
  }
  std::vector<unsigned> order(threads);
  for (unsigned i = 0; i < threads; i++) {
    order[i] = i;
    Fiber& f = *fibers[i];
    f.done = false;
    f.barriers = 0;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.data();
    f.context.uc_stack.ss_size = f.stack.size();
    f.context.uc_link = &scheduler;
    makecontext(&f.context, fiber_main, 0);
  }
  for (unsigned i = threads; i > 1; i--) std::swap(order[i - 1], order[random_number() % i]);
  for (bool any = true; any;) {  // everybody runs to the next barrier
    any = false;
    for (unsigned i : order) {
      if (fibers[i]->done) continue;
      current = i;
      threadIdx.x = i;
      swapcontext(&scheduler, &fibers[i]->context);
      any = any || !fibers[i]->done;
    }
    // A real block would hang, or mix up its barriers, where only some threads come to one.
    for (unsigned i = 1; i < threads; i++)
      if (fibers[i]->barriers != fibers[0]->barriers) {
        fprintf(stderr, "fake CUDA: threads 0 and %u of a block came to %d and %d barriers\n", i, fibers[0]->barriers, fibers[i]->barriers);
        abort();
      }
  }
}

void fake_blocks(unsigned grid, unsigned block, size_t shared, const std::function<void()>& body) {
  static std::vector<unsigned char> memory(48 << 10);
  if (shared > memory.size()) fprintf(stderr, "fake CUDA: %zu bytes of shared memory\n", shared), abort();
  memoc_dynamic_shared = memory.data();
  gridDim.x = grid;
  blockDim.x = block;
  fiber_body = &body;
  for (unsigned b = 0; b < grid; b++) {
    memset(memory.data(), 0xFF, memory.size());
    blockIdx.x = b;
    run_block(block);
  }
}

// ---- streams ----

struct FakeEvent {
  std::shared_ptr<bool> done;
};
struct Item {
  std::function<void()> work;
  std::shared_ptr<bool> wait, record;
};
struct FakeStream {
  std::deque<Item> queue;
};
struct FakeGraph {
  std::vector<std::function<void()>> work;
};
static std::vector<FakeStream*> streams;
static FakeGraph* capturing;
static cudaError_t last_error = cudaSuccess;

static cudaError_t fail(cudaError_t e) { return last_error = e; }

static void run_all() {
  for (;;) {
    std::vector<FakeStream*> ready;
    bool any = false;
    for (FakeStream* s : streams) {
      any = any || !s->queue.empty();
      if (!s->queue.empty() && !(s->queue.front().wait && !*s->queue.front().wait)) ready.push_back(s);
    }
    if (ready.empty()) {
      if (any) fprintf(stderr, "fake CUDA: deadlock\n"), abort();
      return;
    }
    FakeStream* s = ready[random_number() % ready.size()];
    Item item = s->queue.front();
    s->queue.pop_front();
    if (item.work) item.work();
    if (item.record) *item.record = true;
  }
}

void fake_enqueue(cudaStream_t s, std::function<void()> work) {
  if (capturing) capturing->work.push_back(work);  // issue order is one legal order
  else s->queue.push_back({work, nullptr, nullptr});
}

static cudaError_t not_captured() { return capturing ? fail(cudaErrorStreamCaptureUnsupported) : cudaSuccess; }

cudaError_t cudaGetLastError() {
  cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}
const char* cudaGetErrorString(cudaError_t e) { return e == cudaErrorMemoryAllocation ? "out of memory" : e == cudaSuccess ? "no error" : "failed"; }

static size_t limit(const char* name) {
  const char* v = getenv(name);
  return v ? size_t(strtoull(v, nullptr, 10)) : size_t(1) << 40;
}
static cudaError_t allocate(void** p, size_t n, const char* name) {
  if (n == 0) return fail(cudaErrorInvalidValue);
  if (not_captured()) return last_error;
  if (n > limit(name) || posix_memalign(p, 4096, n)) return fail(cudaErrorMemoryAllocation);
  memset(*p, 0xFF, n);
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** p, size_t n) { return allocate(p, n, "FAKE_DEVICE_LIMIT"); }
cudaError_t cudaFree(void* p) { return free(p), cudaSuccess; }
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) { return allocate(p, n, "FAKE_HOST_LIMIT"); }
cudaError_t cudaFreeHost(void* p) { return free(p), cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* f, size_t* t) { return *f = *t = limit("FAKE_DEVICE_LIMIT"), cudaSuccess; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  streams.push_back(*s = new FakeStream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  for (size_t i = 0; i < streams.size(); i++)
    if (streams[i] == s) streams.erase(streams.begin() + long(i)), i--;
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  if (not_captured()) return last_error;
  run_all();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  if (!capturing && e->done) s->queue.push_back({nullptr, e->done, nullptr});
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) { return *e = new FakeEvent, cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return *e = new FakeEvent, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  if (capturing) return cudaSuccess;
  e->done = std::make_shared<bool>(false);
  s->queue.push_back({nullptr, nullptr, e->done});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return run_all(), cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 1, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, cudaSuccess; }

cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, cudaMemcpyKind, cudaStream_t st) {
  fake_enqueue(st, [=] { memcpy(d, s, n); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h, cudaMemcpyKind, cudaStream_t st) {
  if (w > dp || w > sp || dp > MEMOC_MAX_PITCH || sp > MEMOC_MAX_PITCH) return fail(cudaErrorInvalidValue);
  fake_enqueue(st, [=] {
    for (size_t i = 0; i < h; i++) memcpy(static_cast<char*>(d) + i * dp, static_cast<const char*>(s) + i * sp, w);
  });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* d, const void* s, size_t n, cudaMemcpyKind) {
  if (not_captured()) return last_error;
  return memcpy(d, s, n), cudaSuccess;
}
cudaError_t cudaMemset(void* d, int v, size_t n) { return memset(d, v, n), cudaSuccess; }
cudaError_t cudaMemsetAsync(void* d, int v, size_t n, cudaStream_t st) {
  fake_enqueue(st, [=] { memset(d, v, n); });
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  if (not_captured()) return last_error;
  capturing = new FakeGraph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* g) {
  *g = capturing;
  capturing = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* x, cudaGraph_t g, unsigned long long) { return *x = new FakeGraph(*g), cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
  for (auto& w : x->work) s->queue.push_back({w, nullptr, nullptr});
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) { return delete g, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) { return delete x, cudaSuccess; }

// ---- cuBLASLt: column-major, as its manual defines it ----

cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) { return *h = new int, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) { return delete static_cast<int*>(h), CUBLAS_STATUS_SUCCESS; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "invalid value"; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t c, cudaDataType_t scale) {
  if ((c == CUBLAS_COMPUTE_64F) != (scale == CUDA_R_64F)) return CUBLAS_STATUS_INVALID_VALUE;
  *d = new FakeDesc;
  (*d)->f64 = c == CUBLAS_COMPUTE_64F;
  return CUBLAS_STATUS_SUCCESS;
}
template <class T> static cublasStatus_t set(T& field, const void* v, size_t n) {
  if (n != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(&field, v, n);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const void* v, size_t n) {
  switch (a) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(d->op[0], v, n);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(d->op[1], v, n);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(d->epilogue, v, n);
    default: return set(d->bias, v, n);
  }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType_t t, uint64_t rows, uint64_t cols, int64_t ld) {
  *l = new FakeLayout{t, int64_t(rows), int64_t(cols), ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t a, const void* v, size_t n) {
  return a == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? set(l->batch, v, n) : set(l->stride, v, n);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) { return *p = new FakePreference, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a, const void* v, size_t n) {
  if (a == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return set(p->workspace, v, n);
  return set(p->align[a - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], v, n);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return delete p, CUBLAS_STATUS_SUCCESS; }

static bool layouts_fit(const FakeDesc& d, const FakeLayout& a, const FakeLayout& b, const FakeLayout& c) {
  int64_t am = a.rows, ak = a.cols, bk = b.rows, bn = b.cols;
  if (d.op[0] == CUBLAS_OP_T) std::swap(am, ak);
  if (d.op[1] == CUBLAS_OP_T) std::swap(bk, bn);
  bool ld = a.ld >= a.rows && b.ld >= b.rows && c.ld >= c.rows;
  const bool half = a.type == CUDA_R_16F || a.type == CUDA_R_16BF; // its products may be summed up in float
  bool types = a.type == b.type && (a.type == c.type || (half && c.type == CUDA_R_32F)) && d.f64 == (a.type == CUDA_R_64F);
  bool bias = d.epilogue == CUBLASLT_EPILOGUE_DEFAULT || !d.f64;
  return am == c.rows && bn == c.cols && ak == bk && ak > 0 && ld && types && bias && a.batch == b.batch && a.batch == c.batch;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out, cublasLtMatmulPreference_t p, int want,
                                              cublasLtMatmulHeuristicResult_t* r, int* got) {
  if (capturing || want != 1 || c != out) return CUBLAS_STATUS_INVALID_VALUE;
  *got = layouts_fit(*d, *a, *b, *c);
  r->algo.workspace = p->workspace;
  memcpy(r->algo.align, p->align, sizeof p->align);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T, class L>
static void multiply(FakeDesc d, double alpha, const T* A, FakeLayout a, const T* B, FakeLayout b, double beta, L* D, FakeLayout o) {
  using memoc::Acc;
  using memoc::to;
  const int64_t k = d.op[0] == CUBLAS_OP_T ? a.rows : a.cols;
  for (int64_t q = 0; q < o.batch; q++)
    for (int64_t j = 0; j < o.cols; j++)
      for (int64_t i = 0; i < o.rows; i++) {
        Acc<T> sum = 0;
        for (int64_t p = 0; p < k; p++)
          sum += to<Acc<T>>(A[q * a.stride + (d.op[0] == CUBLAS_OP_T ? p + i * a.ld : i + p * a.ld)]) *
                 to<Acc<T>>(B[q * b.stride + (d.op[1] == CUBLAS_OP_T ? j + p * b.ld : p + j * b.ld)]);
        L& out = D[q * o.stride + i + j * o.ld];
        Acc<T> v = Acc<T>(alpha) * sum;
        if (beta != 0) v += Acc<T>(beta) * to<Acc<T>>(out);
        if (d.epilogue == CUBLASLT_EPILOGUE_BIAS) v += to<Acc<T>>(static_cast<const L*>(d.bias)[i]);
        out = to<L>(v);
      }
}
static bool aligned(const void* p, uint32_t n) { return reinterpret_cast<uintptr_t>(p) % n == 0; }

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void* alpha, const void* A, cublasLtMatrixLayout_t a, const void* B,
                              cublasLtMatrixLayout_t b, const void* beta, const void* C, cublasLtMatrixLayout_t c, void* D,
                              cublasLtMatrixLayout_t out, const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes, cudaStream_t s) {
  if (C != D || c != out || workspace_bytes < algo->workspace || (workspace_bytes > 0 && !workspace)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!aligned(A, algo->align[0]) || !aligned(B, algo->align[1]) || !aligned(D, algo->align[3])) return CUBLAS_STATUS_INVALID_VALUE;
  const double al = d->f64 ? *static_cast<const double*>(alpha) : double(*static_cast<const float*>(alpha));
  const double be = d->f64 ? *static_cast<const double*>(beta) : double(*static_cast<const float*>(beta));
  FakeDesc desc = *d;
  FakeLayout la = *a, lb = *b, lo = *out;
  fake_enqueue(s, [=] {
    auto go = [&](auto x) {
      using T = decltype(x);
      const T *left = static_cast<const T*>(A), *right = static_cast<const T*>(B);
      if (lo.type == CUDA_R_32F) return multiply(desc, al, left, la, right, lb, be, static_cast<float*>(D), lo);
      multiply(desc, al, left, la, right, lb, be, static_cast<T*>(D), lo);
    };
    switch (la.type) {
      case CUDA_R_32F: return go(0.0f);
      case CUDA_R_64F: return go(0.0);
      case CUDA_R_16F: return go(memoc::half());
      default: return go(memoc::bfloat16());
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}
