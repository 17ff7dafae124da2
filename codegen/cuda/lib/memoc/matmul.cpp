// matmul over gemm: broadcast batch dims, merged into as few strided batches as possible. Both builds.
#include "memoc/kernel.h"

namespace memoc {

namespace {

int64_t type_size(DType t) { return t == DType::f64 ? 8 : t == DType::f32 ? 4 : 2; }

const void* at(const void* p, int64_t elements, DType t) { return static_cast<const char*>(p) + elements * type_size(t); }

// Batch holds the batch dims with the stride of each operand, in elements, outermost first.
struct Batch {
  int rank = 0;
  int64_t dim[kMaxRank], a[kMaxRank], b[kMaxRank], y[kMaxRank];

  void push(int64_t d, int64_t sa, int64_t sb, int64_t sy) {
    if (d == 1) return;
    if (rank > 0 && a[rank - 1] == sa * d && b[rank - 1] == sb * d) {
      dim[rank - 1] *= d;
      a[rank - 1] = sa;
      b[rank - 1] = sb;
      y[rank - 1] = sy;
      return;
    }
    dim[rank] = d;
    a[rank] = sa;
    b[rank] = sb;
    y[rank] = sy;
    rank++;
  }
};

}  // namespace

void matmul(Stream& s, DType type, const void* a, Dims da, const void* b, Dims db, void* y, bool trans_a, bool trans_b,
            double alpha, const void* bias, void* workspace, int64_t workspace_bytes) {
  if (da.rank == 1) {
    da = Dims{2, {1, da.d[0]}};
    trans_a = false;
  }
  if (db.rank == 1) {
    db = Dims{2, {db.d[0], 1}};
    trans_b = false;
  }
  const int64_t a0 = da.d[da.rank - 2], a1 = da.d[da.rank - 1], b0 = db.d[db.rank - 2], b1 = db.d[db.rank - 1];
  GemmDesc g;
  g.type = type;
  g.m = trans_a ? a1 : a0;
  g.k = trans_a ? a0 : a1;
  g.n = trans_b ? b0 : b1;
  g.lda = a1;
  g.ldb = b1;
  g.ldc = g.n;
  g.trans_a = trans_a;
  g.trans_b = trans_b;
  g.alpha = alpha;
  g.bias = bias;
  g.workspace = workspace;
  g.workspace_bytes = workspace_bytes;

  Dims ba = da, bb = db;
  ba.rank -= 2;
  bb.rank -= 2;
  Dims out = broadcast_dims(ba, bb), sa = broadcast_strides(ba, out), sb = broadcast_strides(bb, out), sy = strides_of(out);
  if (out.numel() == 0) return;
  Batch batch;
  for (int i = 0; i < out.rank; i++) batch.push(out.d[i], sa.d[i] * a0 * a1, sb.d[i] * b0 * b1, sy.d[i] * g.m * g.n);
  if (batch.rank > 0) {
    int i = batch.rank - 1;
    if (batch.b[i] == 0 && !trans_a && batch.a[i] == g.m * g.k) {  // rows of A simply go on: one taller product
      g.m *= batch.dim[i];
    } else {
      g.batch = batch.dim[i];
      g.stride_a = batch.a[i];
      g.stride_b = batch.b[i];
      g.stride_c = batch.y[i];
    }
    batch.rank--;
  }
  Dims outer;
  outer.rank = batch.rank;
  for (int i = 0; i < batch.rank; i++) outer.d[i] = batch.dim[i];
  for (int64_t j = 0, n = outer.numel(); j < n; j++) {
    Dims c = coords(j, outer);
    int64_t oa = 0, ob = 0, oy = 0;
    for (int i = 0; i < batch.rank; i++) {
      oa += c.d[i] * batch.a[i];
      ob += c.d[i] * batch.b[i];
      oy += c.d[i] * batch.y[i];
    }
    g.a = at(a, oa, type);
    g.b = at(b, ob, type);
    g.c = const_cast<void*>(at(y, oy, type));
    gemm(s, g);
  }
}

}  // namespace memoc
