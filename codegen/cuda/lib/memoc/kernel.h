// kernel.h: what op kernels are written against.
//
// One source, two builds. With nvcc (--extended-lambda) a Stream is a CUDA stream and a launch runs on the GPU. With
// g++ and -DMEMOC_HOST=1 a Stream is a queue: a launch only enqueues, and nothing runs before the program
// synchronizes. So a kernel function may compute launch shapes from its arguments, but must not read device memory
// outside a launch, and must not keep references to its own locals in a lambda: capture by value.
//
// A kernel function lives in namespace memoc::k and has this shape:
//
//   template <class T>
//   void softmax(Stream& s, const T* x, T* y, Dims d, int64_t axis) {
//     int64_t outer = d.numel(0, axis), n = d.numel(axis, d.rank);
//     block_rows(s, outer, [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
//       using A = Acc<T>;
//       const T* xr = x + row * n;
//       A mx = lowest<A>();
//       for (int64_t i = c.tid; i < n; i += c.size) mx = m::max(mx, to<A>(xr[i]));
//       mx = c.max(mx);
//       A sum = 0;
//       for (int64_t i = c.tid; i < n; i += c.size) sum += m::exp(to<A>(xr[i]) - mx);
//       sum = c.sum(sum);
//       for (int64_t i = c.tid; i < n; i += c.size) y[row * n + i] = to<T>(m::exp(to<A>(xr[i]) - mx) / sum);
//     });
//   }
//
// and an elementwise one:
//
//   template <class T>
//   void relu(Stream& s, const T* x, T* y, int64_t n) {
//     parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) { y[i] = m::max(to<Acc<T>>(x[i]), Acc<T>(0)); });
//   }
//
// Rules: every index is int64_t; arithmetic is done in Acc<T>, never in half or bfloat16; results do not depend on
// thread order (no atomics; atomic_add below is for integers); a kernel never allocates: scratch is a planned buffer
// that arrives as a pointer; a lambda stands directly in a function of namespace scope (nvcc's rule for extended
// lambdas), not in another lambda and not under "if constexpr".
#ifndef MEMOC_KERNEL_H
#define MEMOC_KERNEL_H

#include "memoc/numeric.h"
#include "memoc/types.h"

namespace memoc {

constexpr int kMaxRank = 12;
constexpr int kMaxInts = 32;

// Dims is a shape, a list of strides of the same rank, or any other short list of numbers. It is a value: capture it.
struct Dims {
  int rank = 0;
  int64_t d[kMaxRank] = {};

  MEMOC_FN int64_t operator[](int64_t i) const { return d[i]; }
  MEMOC_FN int64_t& operator[](int64_t i) { return d[i]; }
  // numel(a, b) is the product of the dims in [a, b): 1 for an empty range.
  MEMOC_FN int64_t numel(int64_t a, int64_t b) const {
    int64_t n = 1;
    for (int64_t i = a; i < b; i++) n *= d[i];
    return n;
  }
  MEMOC_FN int64_t numel() const { return numel(0, rank); }
};

// Ints is a short list of numbers that is no shape: pads, axes, sizes.
struct Ints {
  int n = 0;
  int64_t v[kMaxInts] = {};
  MEMOC_FN int64_t operator[](int64_t i) const { return v[i]; }
  MEMOC_FN int64_t& operator[](int64_t i) { return v[i]; }
};

// axis_of(axis, rank) makes a negative axis positive.
MEMOC_FN int64_t axis_of(int64_t axis, int64_t rank) { return axis < 0 ? axis + rank : axis; }

// strides_of gives row-major strides, in elements.
MEMOC_FN Dims strides_of(const Dims& shape) {
  Dims s;
  s.rank = shape.rank;
  int64_t n = 1;
  for (int i = shape.rank - 1; i >= 0; i--) {
    s.d[i] = n;
    n *= shape.d[i];
  }
  return s;
}

// broadcast_strides gives strides of rank out.rank by which a dense tensor of shape in is read as if it had shape out.
MEMOC_FN Dims broadcast_strides(const Dims& in, const Dims& out) {
  Dims own = strides_of(in), s;
  s.rank = out.rank;
  for (int i = 0; i < in.rank; i++) s.d[out.rank - in.rank + i] = in.d[i] == 1 ? 0 : own.d[i];
  return s;
}

// broadcast_dims gives the shape that a and b broadcast to.
MEMOC_FN Dims broadcast_dims(const Dims& a, const Dims& b) {
  Dims o;
  o.rank = a.rank > b.rank ? a.rank : b.rank;
  for (int i = 0; i < o.rank; i++) {
    int ia = i - (o.rank - a.rank), ib = i - (o.rank - b.rank);
    int64_t da = ia < 0 ? 1 : a.d[ia], db = ib < 0 ? 1 : b.d[ib];
    o.d[i] = da == 1 ? db : da;
  }
  return o;
}

// same_dims reports equal rank and dims.
MEMOC_FN bool same_dims(const Dims& a, const Dims& b) {
  if (a.rank != b.rank) return false;
  for (int i = 0; i < a.rank; i++)
    if (a.d[i] != b.d[i]) return false;
  return true;
}

// coords splits a linear row-major index into coordinates.
MEMOC_FN Dims coords(int64_t linear, const Dims& shape) {
  Dims c;
  c.rank = shape.rank;
  for (int i = shape.rank - 1; i >= 0; i--) {
    c.d[i] = linear % shape.d[i];
    linear /= shape.d[i];
  }
  return c;
}

// dot sums coordinate times stride.
MEMOC_FN int64_t dot(const Dims& c, const Dims& strides) {
  int64_t o = 0;
  for (int i = 0; i < c.rank; i++) o += c.d[i] * strides.d[i];
  return o;
}

// quotient and remainder of indices, in 32 bits where they suffice: 64-bit division is slow on a GPU.
MEMOC_FN int64_t quotient(int64_t i, int64_t n) {
  return uint64_t(i | n) >> 32 ? i / n : int64_t(uint32_t(i) / uint32_t(n));
}
MEMOC_FN int64_t remainder(int64_t i, int64_t n) {
  return uint64_t(i | n) >> 32 ? i % n : int64_t(uint32_t(i) % uint32_t(n));
}

// offset_of is dot(coords(linear, shape), strides) without the temporary, in 32-bit divisions where they suffice.
MEMOC_FN int64_t offset_of(int64_t linear, const Dims& shape, const Dims& strides) {
  int64_t o = 0;
  int i = shape.rank - 1;
  for (; i > 0 && linear > int64_t(UINT32_MAX); i--) {
    o += (linear % shape.d[i]) * strides.d[i];
    linear /= shape.d[i];
  }
  uint32_t l = uint32_t(linear);
  if (i <= 0 || linear > int64_t(UINT32_MAX)) return i < 0 ? o : o + linear * strides.d[0];
  for (; i > 0; i--) {
    if (shape.d[i] > int64_t(UINT32_MAX)) {  // all of l lies in this dim
      return o + int64_t(l) * strides.d[i];
    }
    uint32_t n = uint32_t(shape.d[i]), q = l / n;
    o += int64_t(l - q * n) * strides.d[i];
    l = q;
  }
  return o + int64_t(l) * strides.d[0];
}

class Stream;

#if MEMOC_CUDA

// Stream is one lane. step names what is being launched, for messages.
class Stream {
 public:
  cudaStream_t handle = nullptr;
  void* blas = nullptr;  // cublasLtHandle_t, shared by all lanes
  const char* step = "";
};

// launch_check ends the program, naming the step, if the last launch failed. Defined in the runtime.
void launch_check(const Stream& s, const char* file, int line);

#ifndef MEMOC_BLOCK
#define MEMOC_BLOCK 256
#endif
constexpr int kBlock = MEMOC_BLOCK;  // threads; a multiple of 32
constexpr int64_t kMaxGrid = 1 << 16;

#ifdef __CUDACC__
#define MEMOC_LAUNCH(kernel, grid, shared_bytes, stream, ...) kernel<<<grid, kBlock, shared_bytes, stream>>>(__VA_ARGS__)
extern __shared__ __align__(16) unsigned char memoc_dynamic_shared[];
#endif  // else a stand-in for CUDA, in tests, defines them

template <class F> __global__ void parallel_for_kernel(int64_t n, F f) {
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) f(i);
}

// parallel_for runs f(i) for every i in [0, n), in no order. n of 0 launches nothing.
template <class F> void parallel_for(Stream& s, int64_t n, F f) {
  if (n <= 0) return;
  int64_t grid = (n + kBlock - 1) / kBlock;
  MEMOC_LAUNCH(parallel_for_kernel<F>, unsigned(grid < kMaxGrid ? grid : kMaxGrid), 0, s.handle, n, f);
  launch_check(s, __FILE__, __LINE__);
}

// RowCtx is one block's view of its row. sum, max, min and any combine one value per thread into the same result in
// every thread, in a fixed order; every thread of the block must call them. n elements are shared out as
// "for (int64_t i = c.tid; i < n; i += c.size)".
struct RowCtx {
  int64_t tid, size;
  void* shared_mem;

  template <class T> __device__ T* shared() const { return static_cast<T*>(shared_mem); }
  __device__ void sync() const { __syncthreads(); }

  template <class A, class Op> __device__ A reduce(A v, Op op) const {
    __shared__ A part[kBlock / 32];
    for (int o = 16; o > 0; o >>= 1) v = op(v, __shfl_down_sync(0xffffffffu, v, o));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
    for (int w = 1; w < kBlock / 32; w++) v = op(v, part[w]);
    __syncthreads();  // part may be written again
    return v;
  }
  struct Add { template <class A> __device__ A operator()(A a, A b) const { return a + b; } };
  struct Max { template <class A> __device__ A operator()(A a, A b) const { return m::max(a, b); } };
  struct Min { template <class A> __device__ A operator()(A a, A b) const { return m::min(a, b); } };
  template <class A> __device__ A sum(A v) const { return reduce(v, Add()); }
  template <class A> __device__ A max(A v) const { return reduce(v, Max()); }
  template <class A> __device__ A min(A v) const { return reduce(v, Min()); }
};

template <class F> __global__ void block_rows_kernel(int64_t rows, F f) {
  RowCtx c{int64_t(threadIdx.x), int64_t(blockDim.x), memoc_dynamic_shared};
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    f(c, r);
    __syncthreads();
  }
}

// block_rows runs f(ctx, row) for every row in [0, rows), one block of threads per row. shared_bytes (at most 48 KiB)
// is scratch that the threads of a row share: c.shared<T>().
template <class F> void block_rows(Stream& s, int64_t rows, F f, int64_t shared_bytes = 0) {
  if (rows <= 0) return;
  MEMOC_LAUNCH(block_rows_kernel<F>, unsigned(rows < kMaxGrid ? rows : kMaxGrid), size_t(shared_bytes), s.handle, rows, f);
  launch_check(s, __FILE__, __LINE__);
}

// atomic_add is for int32_t, uint32_t and uint64_t, where the order of additions cannot show.
template <class T> __device__ void atomic_add(T* p, T v) { atomicAdd(p, v); }

#else  // host

// Task is enqueued work. It runs when the scheduler picks its lane.
struct Task {
  virtual void run() = 0;
  virtual ~Task() {}
};

class Machine;

// Stream is one lane of a Machine (runtime.h).
class Stream {
 public:
  Machine* machine = nullptr;
  int lane = 0;
  const char* step = "";
};

// enqueue takes ownership of t. Defined in the runtime.
void enqueue(Stream& s, Task* t);
// row_scratch gives bytes of scratch that stay valid during one task. Defined in the runtime.
void* row_scratch(int64_t bytes);

template <class F> struct ForTask final : Task {
  int64_t n;
  F f;
  ForTask(int64_t n_, F f_) : n(n_), f(f_) {}
  void run() override {
    for (int64_t i = 0; i < n; i++) f(i);
  }
};

template <class F> void parallel_for(Stream& s, int64_t n, F f) {
  if (n > 0) enqueue(s, new ForTask<F>(n, f));
}

struct RowCtx {
  int64_t tid = 0, size = 1;
  void* shared_mem = nullptr;
  template <class T> T* shared() const { return static_cast<T*>(shared_mem); }
  void sync() const {}
  template <class A, class Op> A reduce(A v, Op) const { return v; }
  template <class A> A sum(A v) const { return v; }
  template <class A> A max(A v) const { return v; }
  template <class A> A min(A v) const { return v; }
};

template <class F> struct RowsTask final : Task {
  int64_t rows, bytes;
  F f;
  RowsTask(int64_t r, int64_t b, F f_) : rows(r), bytes(b), f(f_) {}
  void run() override {
    RowCtx c;
    c.shared_mem = bytes > 0 ? row_scratch(bytes) : nullptr;
    for (int64_t r = 0; r < rows; r++) f(c, r);
  }
};

template <class F> void block_rows(Stream& s, int64_t rows, F f, int64_t shared_bytes = 0) {
  if (rows > 0) enqueue(s, new RowsTask<F>(rows, shared_bytes, f));
}

template <class T> inline void atomic_add(T* p, T v) { *p = T(*p + v); }

#endif

// copy copies bytes within device memory.
void copy(Stream& s, void* dst, const void* src, int64_t bytes);
// upload copies bytes of the program itself (a constant table, which must outlive the step) to device memory.
void upload(Stream& s, void* dst, const void* src, int64_t bytes);
// fill_zero clears bytes of device memory.
void fill_zero(Stream& s, void* dst, int64_t bytes);

// GemmDesc: C[b] = alpha * op(A[b]) * op(B[b]) + beta * C[b] (+ bias along n), all row-major, b in [0, batch).
// op(A) is m x k, op(B) is k x n. lda, ldb, ldc are the distances between stored rows, in elements; a stride of 0
// repeats one matrix for the whole batch. f16 and bf16 accumulate in float. With k of 0 the product is 0.
// workspace is a planned buffer, which may be empty: gemm_workspace gives the size worth asking for.
struct GemmDesc {
  DType type = DType::f32;      // of a, b and bias
  DType out = DType(0);         // of c: type (0), or f32 for half types, so that sums over several products stay exact
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // n elements of the same type, or null
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  int64_t batch = 1;
  bool trans_a = false, trans_b = false;
  double alpha = 1, beta = 0;
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

// gemm takes f32, f64, f16 and bf16.
void gemm(Stream& s, const GemmDesc& d);
constexpr int64_t gemm_workspace = int64_t(32) << 20;

// matmul is numpy's: Y = A x B with broadcast batch dims, dense row-major, over gemm (several, if the batch dims of the
// operands do not merge into one stride). trans_a and trans_b swap the last two dims of the operand. bias: n elements.
void matmul(Stream& s, DType type, const void* a, Dims da, const void* b, Dims db, void* y, bool trans_a, bool trans_b,
            double alpha, const void* bias, void* workspace, int64_t workspace_bytes);

template <class T>
void matmul(Stream& s, const T* a, Dims da, const T* b, Dims db, T* y, bool trans_a = false, bool trans_b = false,
            double alpha = 1, const T* bias = nullptr, void* workspace = nullptr, int64_t workspace_bytes = 0) {
  matmul(s, DTypeOf<T>::value, a, da, b, db, y, trans_a, trans_b, alpha, bias, workspace, workspace_bytes);
}

}  // namespace memoc

#endif  // MEMOC_KERNEL_H
