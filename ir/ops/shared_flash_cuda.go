package ops

// flashCUDA is attention with an online softmax: a block walks the keys of one
// query in tiles and never holds more scores than a tile.
const flashCUDA = `
constexpr int64_t kFlashTile = 512;

template <class A, class T> MEMOC_FN A flash_dot(const A* x, const T* y, int64_t n) {
  A sum = A(0);
  for (int64_t i = 0; i < n; i++) sum += x[i] * to<A>(y[i]);
  return sum;
}

template <class A, class M> MEMOC_FN A flash_bias(M m) {
  if constexpr (std::is_same<M, bool>::value) return m ? A(0) : -infinity<A>();
  else return to<A>(m);
}

// flash_masked adds the bias; what a mask hides is never looked at, be it NaN.
template <class A, class M> MEMOC_FN A flash_masked(A s, M m) {
  A bias = flash_bias<A>(m);
  return bias == -infinity<A>() ? bias : s + bias;
}

// FlashSizes: the numbers of ir/ops/shared_flash.go.
struct FlashSizes {
  int64_t b, h, g, s, t, d, e, offset, left, right;
  MEMOC_FN explicit FlashSizes(const Dims& n)
      : b(n[0]), h(n[1]), g(n[2]), s(n[3]), t(n[4]), d(n[5]), e(n[6]), offset(n[7]), left(n[8]), right(n[9]) {}
  MEMOC_FN int64_t first_key(int64_t i, int64_t off) const {
    int64_t lo = left >= 0 ? i + off - left : 0;
    return lo < 0 ? 0 : lo > t ? t : lo;
  }
  MEMOC_FN int64_t end_key(int64_t i, int64_t off) const {
    int64_t hi = right >= 0 ? i + off + right + 1 : t;
    return hi < 0 ? 0 : hi > t ? t : hi;
  }
};

// FlashSegments: a query sees the keys of its own number; without numbers, all.
struct FlashSegments {
  const int64_t *q, *k;
  int64_t qs, ks;
  MEMOC_FN bool apart(int64_t b, int64_t i, int64_t j) const { return q != nullptr && q[b * qs + i] != k[b * ks + j]; }
};

// flash_score is the capped score; slope becomes its derivative by the raw product.
template <class A> MEMOC_FN A flash_score(A dot, A scale, A cap, A* slope) {
  A s = dot * scale;
  *slope = scale;
  if (cap <= A(0)) return s;
  A th = tanh_of(s / cap);
  *slope = scale * (A(1) - th * th);
  return cap * th;
}

// steps holds those of batch, head and position of q, k, v and y. lengths, if any, is the number of valid keys of each
// batch element, and then the window's offset is that number less s. empty is empty_rows of ir/ops/shared_flash.go.
template <class T, class M, class U>
void flash_attention(Stream& st, const T* q, const T* k, const T* v, const M* mask, Dims ms, const int64_t* lengths,
                     const int64_t* q_segments, const int64_t* k_segments, Dims segment_steps, T* y, U* lse,
                     Dims sizes, int64_t mask_cols, Dims steps, double scale, double softcap, int64_t empty) {
  using A = Acc<T>;
  FlashSizes f(sizes);
  FlashSegments seg{q_segments, k_segments, segment_steps[0], segment_steps[1]};
  block_rows(st, f.b * f.h * f.s, [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
    int64_t i = row % f.s, h = row / f.s % f.h, b = row / f.s / f.h, g = h / (f.h / f.g);
    A* qs = c.shared<A>();
    A* acc = qs + f.d;
    A* p = acc + f.e;
    const T* qr = q + b * steps[0] + h * steps[1] + i * steps[2];
    const T* kb = k + b * steps[3] + g * steps[4];
    const T* vb = v + b * steps[6] + g * steps[7];
    for (int64_t d = c.tid; d < f.d; d += c.size) qs[d] = to<A>(qr[d]);
    for (int64_t e = c.tid; e < f.e; e += c.size) acc[e] = A(0);
    c.sync();
    int64_t offset = lengths == nullptr ? f.offset : lengths[b] - f.s;
    int64_t lo = f.first_key(i, offset), hi = f.end_key(i, offset);
    if (hi > mask_cols) hi = mask_cols;
    if (lengths != nullptr && hi > lengths[b]) hi = lengths[b];
    A top = -infinity<A>(), sum = A(0), slope;
    for (int64_t t0 = lo; t0 < hi; t0 += kFlashTile) {
      int64_t n = hi - t0 < kFlashTile ? hi - t0 : kFlashTile;
      A tile = -infinity<A>();
      for (int64_t j = c.tid; j < n; j += c.size) {
        A s = flash_score(flash_dot(qs, kb + (t0 + j) * steps[5], f.d), A(scale), A(softcap), &slope);
        if (mask != nullptr) s = flash_masked(s, mask[b * ms[0] + h * ms[1] + i * ms[2] + (t0 + j) * ms[3]]);
        if (seg.apart(b, i, t0 + j)) s = -infinity<A>();
        p[j] = s;
        tile = max_of(tile, s);
      }
      A now = max_of(top, c.max(tile));
      if (now == -infinity<A>()) continue;  // no key of this tile, or of one before, is seen
      A keep = exp_of(top - now), part = A(0);
      for (int64_t j = c.tid; j < n; j += c.size) {
        p[j] = exp_of(p[j] - now);
        part += p[j];
      }
      sum = sum * keep + c.sum(part);
      for (int64_t e = c.tid; e < f.e; e += c.size) {
        A a = acc[e] * keep;
        for (int64_t j = 0; j < n; j++)
          if (p[j] != A(0)) a += p[j] * to<A>(vb[(t0 + j) * steps[8] + e]);
        acc[e] = a;
      }
      c.sync();
      top = now;
    }
    T* yr = y + b * steps[9] + h * steps[10] + i * steps[11];
    for (int64_t e = c.tid; e < f.e; e += c.size) {
      A a = sum == A(0) ? A(0) : acc[e] / sum;
      if (sum == A(0) && empty != 0)
        for (int64_t j = 0; j < f.t; j++) a += to<A>(vb[j * steps[8] + e]) / A(f.t);
      yr[e] = to<T>(a);
    }
    if (c.tid == 0 && lse != nullptr) lse[row] = to<U>(sum == A(0) ? -infinity<A>() : top + log_of(sum));
  }, (f.d + f.e + kFlashTile) * int64_t(sizeof(A)));
}

// flash_mask_grad: one thread for each element of the mask sums what it was broadcast to.
template <class A, class T, class M, class U>
void flash_mask_grad(Stream& st, const T* dy, const T* q, const T* k, const T* v, const U* lse, const M* mask, Dims ms, Dims mask_dims,
                     FlashSegments seg, M* dmask, const A* delta, Dims sizes, double scale, double softcap, int64_t empty) {
  FlashSizes f(sizes);
  parallel_for(st, dmask == nullptr ? 0 : mask_dims.numel(), [=] MEMOC_DEVICE(int64_t at) {
    Dims lo = coords(at, mask_dims), hi = lo;
    const int64_t full[4] = {f.b, f.h, f.s, f.t};
    for (int a = 0; a < 4; a++) hi[a] = mask_dims[a] == 1 ? full[a] : lo[a] + 1;
    A sum = A(0), slope;
    for (int64_t b = lo[0]; b < hi[0]; b++)
      for (int64_t h = lo[1]; h < hi[1]; h++)
        for (int64_t i = lo[2]; i < hi[2]; i++) {
          int64_t row = (b * f.h + h) * f.s + i, kv = (b * f.g + h / (f.h / f.g)) * f.t;
          A l = to<A>(lse[row]);
          bool dead = l == -infinity<A>();
          if (dead && empty != 1) continue;
          for (int64_t j = lo[3]; j < hi[3]; j++) {
            if (!dead && (j < f.first_key(i, f.offset) || j >= f.end_key(i, f.offset) || seg.apart(b, i, j))) continue;
            A dot = A(0), dp = A(0);
            for (int64_t d = 0; d < f.d; d++) dot += to<A>(q[row * f.d + d]) * to<A>(k[(kv + j) * f.d + d]);
            for (int64_t e = 0; e < f.e; e++) dp += to<A>(dy[row * f.e + e]) * to<A>(v[(kv + j) * f.e + e]);
            A w = dead ? A(1) / A(f.t) : exp_of(flash_masked(flash_score(dot, A(scale), A(softcap), &slope), mask[at]) - l);
            if (w != A(0)) sum += w * (dp - delta[row]);
          }
        }
    dmask[at] = to<M>(sum);
  });
}

// Four launches, none with atomics: delta = rowsum(dY * Y); dQ by query; dK and dV by key, over the queries of all heads
// that share it; dmask by element.
template <class T, class M, class U>
void flash_attention_grad(Stream& st, const T* dy, const T* q, const T* k, const T* v, const T* y, const U* lse, const M* mask, Dims ms,
                          Dims mask_dims, const int64_t* q_segments, const int64_t* k_segments, Dims segment_steps, T* dq, T* dk, T* dv, M* dmask,
                          Dims sizes, double scale, double softcap, int64_t empty, void* workspace) {
  using A = Acc<T>;
  FlashSizes f(sizes);
  FlashSegments seg{q_segments, k_segments, segment_steps[0], segment_steps[1]};
  A* delta = static_cast<A*>(workspace);
  parallel_for(st, f.b * f.h * f.s, [=] MEMOC_DEVICE(int64_t row) {
    A sum = A(0);
    for (int64_t e = 0; e < f.e; e++) sum += to<A>(dy[row * f.e + e]) * to<A>(y[row * f.e + e]);
    delta[row] = sum;
  });
  block_rows(st, dq == nullptr ? 0 : f.b * f.h * f.s, [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
    int64_t i = row % f.s, h = row / f.s % f.h, b = row / f.s / f.h, g = h / (f.h / f.g), kv = (b * f.g + g) * f.t;
    A* qs = c.shared<A>();
    A* dys = qs + f.d;
    A* acc = dys + f.e;
    A* ds = acc + f.d;
    for (int64_t d = c.tid; d < f.d; d += c.size) qs[d] = to<A>(q[row * f.d + d]), acc[d] = A(0);
    for (int64_t e = c.tid; e < f.e; e += c.size) dys[e] = to<A>(dy[row * f.e + e]);
    c.sync();
    A l = to<A>(lse[row]), slope;
    bool dead = l == -infinity<A>();
    int64_t lo = dead ? 0 : f.first_key(i, f.offset), hi = !dead ? f.end_key(i, f.offset) : empty == 1 ? f.t : 0;
    for (int64_t t0 = lo; t0 < hi; t0 += kFlashTile) {
      int64_t n = hi - t0 < kFlashTile ? hi - t0 : kFlashTile;
      for (int64_t j = c.tid; j < n; j += c.size) {
        A s = flash_score(flash_dot(qs, k + (kv + t0 + j) * f.d, f.d), A(scale), A(softcap), &slope);
        if (mask != nullptr) s = flash_masked(s, mask[b * ms[0] + h * ms[1] + i * ms[2] + (t0 + j) * ms[3]]);
        A w = dead ? A(1) / A(f.t) : seg.apart(b, i, t0 + j) ? A(0) : exp_of(s - l);
        ds[j] = w == A(0) ? w : w * (flash_dot(dys, v + (kv + t0 + j) * f.e, f.e) - delta[row]) * slope;
      }
      c.sync();
      for (int64_t d = c.tid; d < f.d; d += c.size) {
        A a = acc[d];
        for (int64_t j = 0; j < n; j++)
          if (ds[j] != A(0)) a += ds[j] * to<A>(k[(kv + t0 + j) * f.d + d]);
        acc[d] = a;
      }
      c.sync();
    }
    for (int64_t d = c.tid; d < f.d; d += c.size) dq[row * f.d + d] = to<T>(acc[d]);
  }, (2 * f.d + f.e + kFlashTile) * int64_t(sizeof(A)));
  block_rows(st, dk == nullptr && dv == nullptr ? 0 : f.b * f.g * f.t, [=] MEMOC_DEVICE(RowCtx& c, int64_t key) {
    int64_t j = key % f.t, g = key / f.t % f.g, b = key / f.t / f.g, per = f.h / f.g;
    A* ks = c.shared<A>();
    A* vs = ks + f.d;
    A* ka = vs + f.e;
    A* va = ka + f.d;
    A* p = va + f.e;
    A* ds = p + kFlashTile;
    for (int64_t d = c.tid; d < f.d; d += c.size) ks[d] = to<A>(k[key * f.d + d]), ka[d] = A(0);
    for (int64_t e = c.tid; e < f.e; e += c.size) vs[e] = to<A>(v[key * f.e + e]), va[e] = A(0);
    c.sync();
    // Queries that may see key j: i + offset - left <= j <= i + offset + right.
    int64_t lo = f.right >= 0 ? j - f.offset - f.right : 0, hi = f.left >= 0 ? j - f.offset + f.left + 1 : f.s;
    if (lo < 0) lo = 0;
    if (hi > f.s) hi = f.s;
    if (empty != 0) lo = 0, hi = f.s;
    A slope;
    for (int64_t h = g * per; h < (g + 1) * per; h++) {
      int64_t base = (b * f.h + h) * f.s;
      for (int64_t t0 = lo; t0 < hi; t0 += kFlashTile) {
        int64_t n = hi - t0 < kFlashTile ? hi - t0 : kFlashTile;
        for (int64_t x = c.tid; x < n; x += c.size) {
          int64_t i = t0 + x, row = base + i;
          A l = to<A>(lse[row]);
          A s = flash_score(flash_dot(ks, q + row * f.d, f.d), A(scale), A(softcap), &slope);
          if (mask != nullptr) s = flash_masked(s, mask[b * ms[0] + h * ms[1] + i * ms[2] + j * ms[3]]);
          bool dead = l == -infinity<A>(), seen = j >= f.first_key(i, f.offset) && j < f.end_key(i, f.offset) && !seg.apart(b, i, j);
          p[x] = dead ? (empty == 0 ? A(0) : A(1) / A(f.t)) : seen ? exp_of(s - l) : A(0);
          ds[x] = p[x] == A(0) || (dead && empty == 2) ? A(0) : p[x] * (flash_dot(vs, dy + row * f.e, f.e) - delta[row]) * slope;
        }
        c.sync();
        for (int64_t d = c.tid; d < f.d; d += c.size) {
          A a = ka[d];
          for (int64_t x = 0; x < n; x++) a += ds[x] * to<A>(q[(base + t0 + x) * f.d + d]);
          ka[d] = a;
        }
        for (int64_t e = c.tid; e < f.e; e += c.size) {
          A a = va[e];
          for (int64_t x = 0; x < n; x++) a += p[x] * to<A>(dy[(base + t0 + x) * f.e + e]);
          va[e] = a;
        }
        c.sync();
      }
    }
    if (dk != nullptr)
      for (int64_t d = c.tid; d < f.d; d += c.size) dk[key * f.d + d] = to<T>(ka[d]);
    if (dv != nullptr)
      for (int64_t e = c.tid; e < f.e; e += c.size) dv[key * f.e + e] = to<T>(va[e]);
  }, (2 * f.d + 2 * f.e + 2 * kFlashTile) * int64_t(sizeof(A)));
  if constexpr (!std::is_same<M, bool>::value) flash_mask_grad(st, dy, q, k, v, lse, mask, ms, mask_dims, seg, dmask, delta, sizes, scale, softcap, empty);
}

// cache_append writes past [groups, p, d] and x [groups, n, d] (x by steps of batch, head, position) one after the other.
template <class T>
void cache_append(Stream& st, const T* past, const T* x, T* present, Dims bgpnd, Dims steps) {
  int64_t b = bgpnd[0], g = bgpnd[1], p = bgpnd[2], n = bgpnd[3], d = bgpnd[4];
  parallel_for(st, present == nullptr ? 0 : b * g * (p + n) * d, [=] MEMOC_DEVICE(int64_t i) {
    int64_t e = i % d, t = i / d % (p + n), head = i / d / (p + n);
    present[i] = t < p ? past[(head * p + t) * d + e] : x[head / g * steps[0] + head % g * steps[1] + (t - p) * steps[2] + e];
  });
}

// Without a cache K and V are read where they lie; with one, from the present outputs.
template <class T, class M, class V, class U>
void attention(Stream& st, const T* q, const T* k, const V* v, const M* mask, Dims ms, const T* past_k, const V* past_v, const int64_t* lengths,
               T* y, T* present_k, V* present_v, Dims sizes, int64_t mask_cols, int64_t past, Dims steps, Dims k_steps, Dims v_steps,
               double scale, double softcap) {
  Dims kd{5, {sizes[0], sizes[2], past, sizes[4] - past, sizes[5]}}, vd = kd;
  vd[4] = sizes[6];
  cache_append(st, past_k, k, present_k, kd, k_steps);
  cache_append(st, past_v, v, present_v, vd, v_steps);
  flash_attention<T, M, U>(st, q, past > 0 ? present_k : k, past > 0 ? present_v : v, mask, ms, lengths, nullptr, nullptr, Dims{2, {0, 0}}, y,
                           nullptr, sizes, mask_cols, steps, scale, softcap, 0);
}`
