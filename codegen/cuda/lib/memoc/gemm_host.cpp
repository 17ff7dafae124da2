// gemm on the host build: a plain blocked loop. Every sum runs over k in order, so that a result does not depend on
// block sizes.
#include "memoc/runtime.h"

#if MEMOC_HOST

#include <vector>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

namespace memoc {

namespace {

constexpr int64_t kCols = 512;  // columns of B in flight
constexpr int64_t kRows = 4;    // rows of A that share them

// block computes acc[r][j] = sum over k of a[r][k] * b[k][j] for r < rows (at most kRows) and j < cols (at most kCols).
template <class A> void block(const A* const* a, int64_t rows, const A* b, int64_t ldb, int64_t k, int64_t cols, A (*acc)[kCols]) {
  for (int64_t r = 0; r < kRows; r++)
    for (int64_t j = 0; j < cols; j++) acc[r][j] = 0;
  for (int64_t p = 0; p < k; p++) {
    const A* __restrict bp = b + p * ldb;
    for (int64_t r = 0; r < rows; r++) {
      const A v = a[r][p];
      A* __restrict out = acc[r];
      for (int64_t j = 0; j < cols; j++) out[j] += v * bp[j];
    }
  }
}

template <class T, class C> struct GemmTask final : Task {
  GemmDesc d;

  using A = Acc<T>;
  static A load(const void* p, int64_t i) { return to<A>(static_cast<const T*>(p)[i]); }

  void product(const void* pa, const void* pb, C* c) {
    std::vector<A> rows(size_t(kRows * (d.k > 0 ? d.k : 1))), panel(size_t(d.k * (d.n < kCols ? d.n : kCols)));
    std::vector<A> sums(size_t(kRows * kCols));
    auto acc = reinterpret_cast<A(*)[kCols]>(sums.data());
    for (int64_t j0 = 0; j0 < d.n; j0 += kCols) {
      const int64_t cols = d.n - j0 < kCols ? d.n - j0 : kCols;
      for (int64_t p = 0; p < d.k; p++)
        for (int64_t j = 0; j < cols; j++)
          panel[size_t(p * cols + j)] = load(pb, d.trans_b ? (j0 + j) * d.ldb + p : p * d.ldb + j0 + j);
      for (int64_t i0 = 0; i0 < d.m; i0 += kRows) {
        const int64_t n = d.m - i0 < kRows ? d.m - i0 : kRows;
        const A* a[kRows] = {};
        for (int64_t r = 0; r < n; r++) {
          A* row = rows.data() + r * d.k;
          for (int64_t p = 0; p < d.k; p++) row[p] = load(pa, d.trans_a ? p * d.lda + i0 + r : (i0 + r) * d.lda + p);
          a[r] = row;
        }
        block<A>(a, n, panel.data(), cols, d.k, cols, acc);
        for (int64_t r = 0; r < n; r++)
          for (int64_t j = 0; j < cols; j++) {
            C& out = c[(i0 + r) * d.ldc + j0 + j];
            A v = A(d.alpha) * acc[r][j];
            if (d.beta != 0) v += A(d.beta) * to<A>(out);
            if (d.bias) v += load(d.bias, j0 + j);
            out = to<C>(v);
          }
      }
    }
  }

  void run() override {
    const T* a = static_cast<const T*>(d.a);
    const T* b = static_cast<const T*>(d.b);
    C* c = static_cast<C*>(d.c);
    for (int64_t i = 0; i < d.batch; i++) product(a + i * d.stride_a, b + i * d.stride_b, c + i * d.stride_c);
  }
};

template <class T, class C> void enqueue_gemm(Stream& s, const GemmDesc& d) {
  auto* t = new GemmTask<T, C>;
  t->d = d;
  enqueue(s, t);
}

template <class T> void push(Stream& s, const GemmDesc& d) {
  if (d.out == DType::f32 && d.type != DType::f32 && d.type != DType::f64) return enqueue_gemm<T, float>(s, d);
  enqueue_gemm<T, T>(s, d);
}

}  // namespace

void gemm(Stream& s, const GemmDesc& d) {
  if (d.m <= 0 || d.n <= 0 || d.batch <= 0) return;
  switch (d.type) {
    case DType::f32: return push<float>(s, d);
    case DType::f64: return push<double>(s, d);
    case DType::f16: return push<half>(s, d);
    case DType::bf16: return push<bfloat16>(s, d);
    default: throw Error{err_argument, std::string("gemm in step '") + s.step + "': element type " + std::to_string(int(d.type))};
  }
}

}  // namespace memoc

#endif  // MEMOC_HOST
