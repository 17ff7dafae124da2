// gemm and matmul against the definition, for every type, transposition, batch form and the empty cases.
#include <vector>

#include "memoc/runtime.h"
#include "test.h"

using namespace memoc;

static uint32_t state = 1;
static float next() {  // small multiples of 1/4: exact sums
  state = state * 1664525u + 1013904223u;
  return float(int(state >> 24) % 9 - 4) / 4;
}

template <class T> std::vector<T> values(int64_t n) {
  std::vector<T> v;
  for (int64_t i = 0; i < n; i++) v.push_back(to<T>(next()));
  return v;
}

template <class T> void one(int64_t m, int64_t n, int64_t k, int64_t batch, bool ta, bool tb, bool shared_b, bool bias, double alpha, double beta) {
  const int64_t pad = 3, lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + 1, ldc = n + 2;
  const int64_t sa = lda * (ta ? k : m) + 5, sb = shared_b ? 0 : ldb * (tb ? n : k) + 1, sc = ldc * m;
  auto a = values<T>(sa * batch + 1), b = values<T>(ldb * (tb ? n : k) + sb * batch + 1), c = values<T>(sc * batch + 1), bi = values<T>(n);
  auto want = c;
  for (int64_t q = 0; q < batch; q++)
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t p = 0; p < k; p++)
          sum += double(to<double>(a[size_t(q * sa + (ta ? p * lda + i : i * lda + p))])) * to<double>(b[size_t(q * sb + (tb ? j * ldb + p : p * ldb + j))]);
        T& w = want[size_t(q * sc + i * ldc + j)];
        w = to<T>(alpha * sum + beta * to<double>(w) + (bias ? to<double>(bi[size_t(j)]) : 0));
      }
  Machine mc(MachineConfig{});
  GemmDesc d;
  d.type = DTypeOf<T>::value;
  d.a = a.data(); d.b = b.data(); d.c = c.data(); d.bias = bias ? bi.data() : nullptr;
  d.m = m; d.n = n; d.k = k; d.lda = lda; d.ldb = ldb; d.ldc = ldc;
  d.stride_a = sa; d.stride_b = sb; d.stride_c = sc; d.batch = batch;
  d.trans_a = ta; d.trans_b = tb; d.alpha = alpha; d.beta = beta;
  mc.begin(0, "gemm", nullptr, 0);
  gemm(mc.lane(0), d);
  mc.synchronize();
  for (size_t i = 0; i < c.size(); i++) CHECK(to<double>(c[i]) == to<double>(want[i]));
}

template <class T> void all() {
  for (int t = 0; t < 4; t++) {
    one<T>(5, 7, 9, 3, t & 1, t & 2, false, false, 1, 0);
    one<T>(3, 2, 4, 2, t & 1, t & 2, true, true, 0.5, 2);
  }
  one<T>(1, 1, 1, 1, false, false, false, true, 1, 0);
  one<T>(4, 3, 0, 2, false, true, false, true, 1, 0.5);
  one<T>(0, 3, 2, 1, false, false, false, false, 1, 0);
  one<T>(2, 0, 2, 1, false, false, false, false, 1, 0);
  one<T>(6, 1030, 11, 1, false, true, false, false, 1, 0);
}

static Dims dims(std::initializer_list<int64_t> v) {
  Dims d;
  for (int64_t x : v) d.d[d.rank++] = x;
  return d;
}

static void product(Dims da, Dims db, bool ta, bool tb) {
  auto a = values<float>(da.numel() + 1), b = values<float>(db.numel() + 1);
  Dims ma = da, mb = db;
  if (ma.rank == 1) ma = dims({1, da[0]});
  if (mb.rank == 1) mb = dims({db[0], 1});
  const int64_t m = ma[ma.rank - (ta ? 1 : 2)], k = ma[ma.rank - (ta ? 2 : 1)], n = mb[mb.rank - (tb ? 2 : 1)];
  Dims ba = ma, bb = mb;
  ba.rank -= 2;
  bb.rank -= 2;
  Dims out = broadcast_dims(ba, bb);
  std::vector<float> y(size_t(out.numel() * m * n + 1), -77.0f), bias = values<float>(n + 1);
  Machine mc(MachineConfig{});
  mc.begin(0, "matmul", nullptr, 0);
  matmul<float>(mc.lane(0), a.data(), da, b.data(), db, y.data(), ta, tb, 2.0, bias.data());
  mc.synchronize();
  for (int64_t q = 0; q < out.numel(); q++) {
    int64_t oa = offset_of(q, out, broadcast_strides(ba, out)) * m * k, ob = offset_of(q, out, broadcast_strides(bb, out)) * k * n;
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        float sum = 0;
        for (int64_t p = 0; p < k; p++) sum += a[size_t(oa + (ta ? p * m + i : i * k + p))] * b[size_t(ob + (tb ? j * k + p : p * n + j))];
        CHECK(y[size_t((q * m + i) * n + j)] == 2 * sum + bias[size_t(j)]);
      }
  }
  CHECK(y.back() == -77.0f);
}

int main() {
  all<float>();
  all<double>();
  all<half>();
  all<bfloat16>();
  for (int t = 0; t < 4; t++) {
    bool ta = t & 1, tb = t & 2;
    product(ta ? dims({4, 3}) : dims({3, 4}), tb ? dims({5, 4}) : dims({4, 5}), ta, tb);
    product(ta ? dims({2, 6, 4, 3}) : dims({2, 6, 3, 4}), tb ? dims({5, 4}) : dims({4, 5}), ta, tb);
    product(ta ? dims({2, 6, 4, 3}) : dims({2, 6, 3, 4}), tb ? dims({2, 6, 5, 4}) : dims({2, 6, 4, 5}), ta, tb);
    product(ta ? dims({2, 1, 3, 4, 3}) : dims({2, 1, 3, 3, 4}), tb ? dims({6, 1, 5, 4}) : dims({6, 1, 4, 5}), ta, tb);
    product(ta ? dims({4, 3}) : dims({3, 4}), tb ? dims({7, 2, 5, 4}) : dims({7, 2, 4, 5}), ta, tb);
    product(ta ? dims({2, 3, 4, 3}) : dims({2, 3, 3, 4}), tb ? dims({3, 5, 4}) : dims({3, 4, 5}), ta, tb);
  }
  product(dims({4}), dims({4}), false, false);
  product(dims({4}), dims({2, 4, 3}), false, false);
  product(dims({2, 3, 4}), dims({4}), false, false);
  product(dims({0, 3, 4}), dims({4, 2}), false, false);
  product(dims({2, 3, 0}), dims({0, 2}), false, false);
  return fails != 0;
}
