// gemm through cuBLASLt. Row-major C = A B is column-major C' = B' A', so the operands change places and keep their
// own transposition flags.
#include "memoc/runtime.h"

#if MEMOC_CUDA

#include <cublasLt.h>

#include <cstdio>
#include <map>
#include <mutex>
#include <tuple>

namespace memoc {

namespace {

void blas_check(cublasStatus_t st, const Stream& s, const char* call, int line) {
  if (st == CUBLAS_STATUS_SUCCESS) return;
  throw Error{err_runtime, std::string(__FILE__) + ":" + std::to_string(line) + ": step '" + s.step + "': " + call + ": " +
                               cublasLtGetStatusString(st)};
}
#define BLAS(call) blas_check((call), s, #call, __LINE__)

int pointer_alignment(const void* p) {
  uintptr_t v = reinterpret_cast<uintptr_t>(p);
  int a = 256;
  while (v % uintptr_t(a)) a /= 2;
  return a;
}

cudaDataType_t cuda_type(DType t) {
  switch (t) {
    case DType::f32: return CUDA_R_32F;
    case DType::f64: return CUDA_R_64F;
    case DType::f16: return CUDA_R_16F;
    default: return CUDA_R_16BF;
  }
}

DType out_type(const GemmDesc& d) { return d.out == DType(0) ? d.type : d.out; }

// Plan owns the descriptors of one shape and the algorithm chosen for it.
struct Plan {
  cublasLtMatmulDesc_t op = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algo;
};

using Key = std::tuple<int, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int,
                       int64_t, int>;

std::mutex plans_mutex;
std::map<Key, Plan> plans;

void layout(Stream& s, cublasLtMatrixLayout_t* l, cudaDataType_t t, int64_t rows, int64_t cols, int64_t ld, int64_t batch,
            int64_t stride) {
  BLAS(cublasLtMatrixLayoutCreate(l, t, uint64_t(rows), uint64_t(cols), ld));
  int32_t count = int32_t(batch);
  BLAS(cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
  BLAS(cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
}

Plan make_plan(Stream& s, const GemmDesc& d, bool fused_bias, int align_a, int align_b, int align_c) {
  Plan p;
  const bool f64 = d.type == DType::f64;
  const cudaDataType_t t = cuda_type(d.type);
  BLAS(cublasLtMatmulDescCreate(&p.op, f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, f64 ? CUDA_R_64F : CUDA_R_32F));
  cublasOperation_t op_b = d.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, op_a = d.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  BLAS(cublasLtMatmulDescSetAttribute(p.op, CUBLASLT_MATMUL_DESC_TRANSA, &op_b, sizeof op_b));
  BLAS(cublasLtMatmulDescSetAttribute(p.op, CUBLASLT_MATMUL_DESC_TRANSB, &op_a, sizeof op_a));
  if (fused_bias) {
    cublasLtEpilogue_t e = CUBLASLT_EPILOGUE_BIAS;
    BLAS(cublasLtMatmulDescSetAttribute(p.op, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e));
  }
  layout(s, &p.b, t, d.trans_b ? d.k : d.n, d.trans_b ? d.n : d.k, d.ldb, d.batch, d.stride_b);
  layout(s, &p.a, t, d.trans_a ? d.m : d.k, d.trans_a ? d.k : d.m, d.lda, d.batch, d.stride_a);
  layout(s, &p.c, cuda_type(out_type(d)), d.n, d.m, d.ldc, d.batch, d.stride_c);

  cublasLtMatmulPreference_t pref;
  BLAS(cublasLtMatmulPreferenceCreate(&pref));
  uint64_t workspace = uint64_t(d.workspace ? d.workspace_bytes : 0);
  uint32_t first = uint32_t(align_b), second = uint32_t(align_a), third = uint32_t(align_c);
  BLAS(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
  BLAS(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &first, sizeof first));
  BLAS(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &second, sizeof second));
  BLAS(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &third, sizeof third));
  BLAS(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &third, sizeof third));
  cublasLtMatmulHeuristicResult_t found;
  int n = 0;
  BLAS(cublasLtMatmulAlgoGetHeuristic(static_cast<cublasLtHandle_t>(s.blas), p.op, p.b, p.a, p.c, p.c, pref, 1, &found, &n));
  cublasLtMatmulPreferenceDestroy(pref);
  if (n == 0) {
    char size[128];
    snprintf(size, sizeof size, "m=%lld n=%lld k=%lld batch=%lld", (long long)d.m, (long long)d.n, (long long)d.k,
             (long long)d.batch);
    throw Error{err_runtime, std::string("step '") + s.step + "': cuBLASLt has no algorithm for " + size};
  }
  p.algo = found.algo;
  return p;
}

template <class T> void add_bias(Stream& s, const GemmDesc& d) {
  T* c = static_cast<T*>(d.c);
  const T* bias = static_cast<const T*>(d.bias);
  int64_t m = d.m, n = d.n, ldc = d.ldc, stride = d.stride_c;
  parallel_for(s, d.batch * m * n, [=] MEMOC_DEVICE(int64_t i) {
    int64_t j = i % n, r = i / n;
    T& out = c[r / m * stride + r % m * ldc + j];
    out = to<T>(to<Acc<T>>(out) + to<Acc<T>>(bias[j]));
  });
}

template <class T> void scale(Stream& s, const GemmDesc& d) {
  T* c = static_cast<T*>(d.c);
  Acc<T> beta = Acc<T>(d.beta);
  int64_t m = d.m, n = d.n, ldc = d.ldc, stride = d.stride_c;
  parallel_for(s, d.batch * m * n, [=] MEMOC_DEVICE(int64_t i) {
    int64_t r = i / n;
    T& out = c[r / m * stride + r % m * ldc + i % n];
    out = beta == Acc<T>(0) ? to<T>(Acc<T>(0)) : to<T>(beta * to<Acc<T>>(out));
  });
}

void by_type(Stream& s, const GemmDesc& d, bool bias) {
  switch (out_type(d)) {
    case DType::f32: return bias ? add_bias<float>(s, d) : scale<float>(s, d);
    case DType::f64: return bias ? add_bias<double>(s, d) : scale<double>(s, d);
    case DType::f16: return bias ? add_bias<half>(s, d) : scale<half>(s, d);
    default: return bias ? add_bias<bfloat16>(s, d) : scale<bfloat16>(s, d);
  }
}

void multiply(Stream& s, const GemmDesc& d, bool fused_bias) {
  const int align_a = pointer_alignment(d.a), align_b = pointer_alignment(d.b), align_c = pointer_alignment(d.c);
  const int flags = int(d.trans_a) | int(d.trans_b) << 1 | int(fused_bias) << 2 | align_a << 3 | align_b << 12;
  Key key(int(d.type) | int(out_type(d)) << 8, d.m, d.n, d.k, d.lda, d.ldb, d.ldc, d.stride_a, d.stride_b, d.stride_c, d.batch, flags,
          d.workspace ? d.workspace_bytes : 0, align_c);
  Plan p;
  {
    std::lock_guard<std::mutex> lock(plans_mutex);
    auto it = plans.find(key);
    if (it == plans.end()) it = plans.emplace(key, make_plan(s, d, fused_bias, align_a, align_b, align_c)).first;
    p = it->second;
    if (fused_bias)
      BLAS(cublasLtMatmulDescSetAttribute(p.op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &d.bias, sizeof d.bias));
    const float alpha32 = float(d.alpha), beta32 = float(d.beta);
    const bool f64 = d.type == DType::f64;
    BLAS(cublasLtMatmul(static_cast<cublasLtHandle_t>(s.blas), p.op, f64 ? (const void*)&d.alpha : &alpha32, d.b, p.b, d.a,
                        p.a, f64 ? (const void*)&d.beta : &beta32, d.c, p.c, d.c, p.c, &p.algo, d.workspace,
                        size_t(d.workspace ? d.workspace_bytes : 0), s.handle));
  }
}

}  // namespace

void gemm(Stream& s, const GemmDesc& given) {
  if (given.m <= 0 || given.n <= 0 || given.batch <= 0) return;
  if (cuda_type(given.type) == CUDA_R_16BF && given.type != DType::bf16)
    throw Error{err_argument, std::string("gemm in step '") + s.step + "': element type " + std::to_string(int(given.type))};
  // A bias that the library does not add is added in c's type: it must be given in that type.
  const bool fused_bias = given.bias && given.type != DType::f64 && given.k > 0;
  constexpr int64_t kMaxBatch = 65535;
  for (int64_t first = 0; first < given.batch; first += kMaxBatch) {
    GemmDesc d = given;
    auto bytes = [](DType t) { return int64_t(t == DType::f64 ? 8 : t == DType::f32 ? 4 : 2); };
    const int64_t size = bytes(d.type);
    d.batch = given.batch - first < kMaxBatch ? given.batch - first : kMaxBatch;
    d.a = static_cast<const char*>(given.a) + first * d.stride_a * size;
    d.b = static_cast<const char*>(given.b) + first * d.stride_b * size;
    d.c = static_cast<char*>(given.c) + first * d.stride_c * bytes(out_type(d));
    if (d.k <= 0) by_type(s, d, false);
    else multiply(s, d, fused_bias);
    if (d.bias && !fused_bias) by_type(s, d, true);
  }
}

}  // namespace memoc

#endif  // MEMOC_CUDA
