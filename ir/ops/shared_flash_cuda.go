package ops

// flashCUDA is attention with an online softmax: a block walks the keys of a few
// queries in tiles (for the gradients of K and V: the queries of a few keys), so
// that a key is read once for all of them, and never holds more scores than
// that.
const flashCUDA = `
constexpr int64_t kFlashTile = 256;
constexpr int kFlashRows = 8;

// flash_rows is how many rows of that many numbers a block takes: the most that 46 KiB of shared memory hold (reductions
// need a little of the 48).
template <class A> inline int flash_rows(int64_t per_row) {
  int r = kFlashRows;
  while (r > 1 && r * per_row * int64_t(sizeof(A)) > (46 << 10)) r /= 2;
  return r;
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
  int64_t per_row = f.d + f.e + kFlashTile + 2;
  int rows = flash_rows<A>(per_row);
  int64_t groups = (f.s + rows - 1) / rows;
  block_rows(st, f.b * f.h * groups, [=] MEMOC_DEVICE(RowCtx& c, int64_t block) {
    int64_t i0 = block % groups * rows, h = block / groups % f.h, b = block / groups / f.h, g = h / (f.h / f.g);
    int64_t count = f.s - i0 < rows ? f.s - i0 : rows;
    A* qs = c.shared<A>();
    A* acc = qs + rows * f.d;
    A* p = acc + rows * f.e;
    A* keep = p + rows * kFlashTile;
    A* total = keep + rows;
    const T* qb = q + b * steps[0] + h * steps[1] + i0 * steps[2];
    const T* kb = k + b * steps[3] + g * steps[4];
    const T* vb = v + b * steps[6] + g * steps[7];
    for (int64_t x = c.tid; x < count * f.d; x += c.size) qs[x] = to<A>(qb[x / f.d * steps[2] + x % f.d]);
    for (int64_t x = c.tid; x < rows * f.e; x += c.size) acc[x] = A(0);
    c.sync();
    int64_t offset = lengths == nullptr ? f.offset : lengths[b] - f.s, limit = mask_cols;
    if (lengths != nullptr && lengths[b] < limit) limit = lengths[b];
    int64_t first = f.first_key(i0, offset), last = f.end_key(i0 + count - 1, offset);
    if (last > limit) last = limit;
    A top[kFlashRows], sum[kFlashRows], peak[kFlashRows], slope;
    for (int r = 0; r < kFlashRows; r++) top[r] = peak[r] = -infinity<A>(), sum[r] = A(0);
    for (int64_t t0 = first; t0 < last; t0 += kFlashTile) {
      int64_t n = last - t0 < kFlashTile ? last - t0 : kFlashTile;
      A most[kFlashRows];
      for (int r = 0; r < kFlashRows; r++) most[r] = -infinity<A>();
      for (int64_t x = c.tid; x < n; x += c.size) {
        int64_t j = t0 + x;
        A dots[kFlashRows];
        for (int r = 0; r < kFlashRows; r++) dots[r] = A(0);
        for (int64_t d = 0; d < f.d; d++) {
          A kd = to<A>(kb[j * steps[5] + d]);
          for (int r = 0; r < kFlashRows; r++)
            if (r < count) dots[r] += qs[r * f.d + d] * kd;
        }
        for (int r = 0; r < kFlashRows; r++) {
          if (r >= count) continue;
          int64_t i = i0 + r;
          A s = -infinity<A>();
          if (j >= f.first_key(i, offset) && j < f.end_key(i, offset) && !seg.apart(b, i, j)) {
            s = flash_score(dots[r], A(scale), A(softcap), &slope);
            if (mask != nullptr) {
              M m = mask[b * ms[0] + h * ms[1] + i * ms[2] + j * ms[3]];
              s = flash_masked(s, m);
              peak[r] = max_of(peak[r], flash_bias<A>(m));
            }
          }
          p[r * kFlashTile + x] = s;
          most[r] = max_of(most[r], s);
        }
      }
      for (int r = 0; r < kFlashRows; r++) {
        if (r >= count) continue;
        A now = max_of(top[r], c.max(most[r]));
        A shift = now == -infinity<A>() ? A(0) : now;  // no key seen so far: every weight is 0
        A factor = exp_of(top[r] - shift), part = A(0);
        for (int64_t x = c.tid; x < n; x += c.size) {
          A w = exp_of(p[r * kFlashTile + x] - shift);
          p[r * kFlashTile + x] = w;
          part += w;
        }
        sum[r] = sum[r] * factor + c.sum(part);
        top[r] = now;
        if (c.tid == 0) keep[r] = factor;
      }
      c.sync();
      for (int64_t x = c.tid; x < count * f.e; x += c.size) {
        int64_t r = x / f.e, e = x % f.e;
        A a = acc[x] * keep[r];
        for (int64_t j = 0; j < n; j++) {
          A w = p[r * kFlashTile + j];
          if (w != A(0)) a += w * to<A>(vb[(t0 + j) * steps[8] + e]);
        }
        acc[x] = a;
      }
      c.sync();
    }
    for (int r = 0; r < kFlashRows; r++) {
      if (r >= count) continue;
      A base = mask == nullptr ? A(0) : c.max(peak[r]);
      if (c.tid != 0) continue;
      total[r] = sum[r];
      if (lse != nullptr) lse[(b * f.h + h) * f.s + i0 + r] = to<U>(sum[r] == A(0) ? -infinity<A>() : top[r] - base + log_of(sum[r]));
    }
    c.sync();
    T* yb = y + b * steps[9] + h * steps[10] + i0 * steps[11];
    for (int64_t x = c.tid; x < count * f.e; x += c.size) {
      A t = total[x / f.e], a = t == A(0) ? A(0) : acc[x] / t;
      if (t == A(0) && empty != 0)
        for (int64_t j = 0; j < f.t; j++) a += to<A>(vb[j * steps[8] + x % f.e]) / A(f.t);
      yb[x / f.e * steps[11] + x % f.e] = to<T>(a);
    }
  }, rows * per_row * int64_t(sizeof(A)));
}

// flash_mask_grad: one thread for each element of the mask sums what it was broadcast to.
template <class A, class T, class M, class U>
void flash_mask_grad(Stream& st, const T* dy, const T* q, const T* k, const T* v, const U* lse, const M* mask, Dims ms, Dims mask_dims,
                     FlashSegments seg, M* dmask, const A* delta, const A* peak, Dims sizes, double scale, double softcap, int64_t empty) {
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
            A w = dead ? A(1) / A(f.t) : exp_of(flash_masked(flash_score(dot, A(scale), A(softcap), &slope), mask[at]) - peak[row] - l);
            if (w != A(0)) sum += w * (dp - delta[row]);
          }
        }
    dmask[at] = to<M>(sum);
  });
}

// Four launches, none with atomics: delta = rowsum(dY * Y) and the largest bias; dQ by query; dK and dV by key, over the queries of all heads
// that share it; dmask by element.
template <class T, class M, class U>
void flash_attention_grad(Stream& st, const T* dy, const T* q, const T* k, const T* v, const T* y, const U* lse, const M* mask, Dims ms,
                          Dims mask_dims, const int64_t* q_segments, const int64_t* k_segments, Dims segment_steps, T* dq, T* dk, T* dv, M* dmask,
                          Dims sizes, double scale, double softcap, int64_t empty, void* workspace) {
  using A = Acc<T>;
  FlashSizes f(sizes);
  FlashSegments seg{q_segments, k_segments, segment_steps[0], segment_steps[1]};
  A* delta = static_cast<A*>(workspace);
  A* peak = delta + f.b * f.h * f.s;  // what the log-sum-exp is relative to
  parallel_for(st, f.b * f.h * f.s, [=] MEMOC_DEVICE(int64_t row) {
    A sum = A(0);
    for (int64_t e = 0; e < f.e; e++) sum += to<A>(dy[row * f.e + e]) * to<A>(y[row * f.e + e]);
    delta[row] = sum;
    A top = A(0);
    // Not "if constexpr": nvcc's device lambdas may not capture inside of one.
    if (!std::is_same<M, bool>::value && mask != nullptr) {
      int64_t i = row % f.s, h = row / f.s % f.h, b = row / f.s / f.h, hi = f.end_key(i, f.offset);
      top = -infinity<A>();
      for (int64_t j = f.first_key(i, f.offset); j < hi; j++)
        if (!seg.apart(b, i, j)) top = max_of(top, flash_bias<A>(mask[b * ms[0] + h * ms[1] + i * ms[2] + j * ms[3]]));
    }
    peak[row] = top;
  });
  int64_t per_query = 2 * f.d + f.e + kFlashTile;
  int rows = flash_rows<A>(per_query);
  int64_t groups = (f.s + rows - 1) / rows;
  block_rows(st, dq == nullptr ? 0 : f.b * f.h * groups, [=] MEMOC_DEVICE(RowCtx& c, int64_t block) {
    int64_t i0 = block % groups * rows, h = block / groups % f.h, b = block / groups / f.h;
    int64_t count = f.s - i0 < rows ? f.s - i0 : rows, row0 = (b * f.h + h) * f.s + i0, kv = (b * f.g + h / (f.h / f.g)) * f.t;
    A* qs = c.shared<A>();
    A* acc = qs + rows * f.d;
    A* dys = acc + rows * f.d;
    A* ds = dys + rows * f.e;
    for (int64_t x = c.tid; x < count * f.d; x += c.size) qs[x] = to<A>(q[row0 * f.d + x]), acc[x] = A(0);
    for (int64_t x = c.tid; x < count * f.e; x += c.size) dys[x] = to<A>(dy[row0 * f.e + x]);
    c.sync();
    int64_t first = f.first_key(i0, f.offset), last = f.end_key(i0 + count - 1, f.offset);
    if (empty == 1) first = 0, last = f.t;  // a row without keys of its own takes them all
    for (int64_t t0 = first; t0 < last; t0 += kFlashTile) {
      int64_t n = last - t0 < kFlashTile ? last - t0 : kFlashTile;
      for (int64_t x = c.tid; x < n; x += c.size) {
        int64_t j = t0 + x;
        A dots[kFlashRows], dps[kFlashRows], slope;
        for (int r = 0; r < kFlashRows; r++) dots[r] = dps[r] = A(0);
        for (int64_t d = 0; d < f.d; d++) {
          A kd = to<A>(k[(kv + j) * f.d + d]);
          for (int r = 0; r < kFlashRows; r++)
            if (r < count) dots[r] += qs[r * f.d + d] * kd;
        }
        for (int64_t e = 0; e < f.e; e++) {
          A ve = to<A>(v[(kv + j) * f.e + e]);
          for (int r = 0; r < kFlashRows; r++)
            if (r < count) dps[r] += dys[r * f.e + e] * ve;
        }
        for (int r = 0; r < kFlashRows; r++) {
          if (r >= count) continue;
          int64_t i = i0 + r;
          A l = to<A>(lse[row0 + r]), s = flash_score(dots[r], A(scale), A(softcap), &slope), w = A(0);
          if (l == -infinity<A>()) {
            if (empty == 1) w = A(1) / A(f.t);
          } else if (j >= f.first_key(i, f.offset) && j < f.end_key(i, f.offset) && !seg.apart(b, i, j)) {
            if (mask != nullptr) s = flash_masked(s, mask[b * ms[0] + h * ms[1] + i * ms[2] + j * ms[3]]);
            w = exp_of(s - peak[row0 + r] - l);
          }
          ds[r * kFlashTile + x] = w == A(0) ? w : w * (dps[r] - delta[row0 + r]) * slope;
        }
      }
      c.sync();
      for (int64_t x = c.tid; x < count * f.d; x += c.size) {
        int64_t r = x / f.d, d = x % f.d;
        A a = acc[x];
        for (int64_t j = 0; j < n; j++) {
          A w = ds[r * kFlashTile + j];
          if (w != A(0)) a += w * to<A>(k[(kv + t0 + j) * f.d + d]);
        }
        acc[x] = a;
      }
      c.sync();
    }
    for (int64_t x = c.tid; x < count * f.d; x += c.size) dq[row0 * f.d + x] = to<T>(acc[x]);
  }, rows * per_query * int64_t(sizeof(A)));
  int64_t per_key = 2 * f.d + 2 * f.e + 2 * kFlashTile;
  int keys = flash_rows<A>(per_key);
  int64_t key_groups = (f.t + keys - 1) / keys;
  block_rows(st, dk == nullptr && dv == nullptr ? 0 : f.b * f.g * key_groups, [=] MEMOC_DEVICE(RowCtx& c, int64_t block) {
    int64_t j0 = block % key_groups * keys, g = block / key_groups % f.g, b = block / key_groups / f.g, per = f.h / f.g;
    int64_t count = f.t - j0 < keys ? f.t - j0 : keys, key0 = (b * f.g + g) * f.t + j0;
    A* ks = c.shared<A>();
    A* ka = ks + keys * f.d;
    A* vs = ka + keys * f.d;
    A* va = vs + keys * f.e;
    A* p = va + keys * f.e;
    A* ds = p + keys * kFlashTile;
    for (int64_t x = c.tid; x < count * f.d; x += c.size) ks[x] = to<A>(k[key0 * f.d + x]), ka[x] = A(0);
    for (int64_t x = c.tid; x < count * f.e; x += c.size) vs[x] = to<A>(v[key0 * f.e + x]), va[x] = A(0);
    c.sync();
    // Queries that may see key j: i + offset - left <= j <= i + offset + right.
    int64_t first = f.right >= 0 ? j0 - f.offset - f.right : 0, last = f.left >= 0 ? j0 + count - f.offset + f.left : f.s;
    if (first < 0) first = 0;
    if (last > f.s) last = f.s;
    if (empty != 0) first = 0, last = f.s;  // a query without keys of its own takes this one
    for (int64_t h = g * per; h < (g + 1) * per; h++) {
      int64_t base = (b * f.h + h) * f.s;
      for (int64_t t0 = first; t0 < last; t0 += kFlashTile) {
        int64_t n = last - t0 < kFlashTile ? last - t0 : kFlashTile;
        for (int64_t x = c.tid; x < n; x += c.size) {
          int64_t i = t0 + x, row = base + i;
          A dots[kFlashRows], dps[kFlashRows], slope, l = to<A>(lse[row]);
          for (int r = 0; r < kFlashRows; r++) dots[r] = dps[r] = A(0);
          for (int64_t d = 0; d < f.d; d++) {
            A qd = to<A>(q[row * f.d + d]);
            for (int r = 0; r < kFlashRows; r++)
              if (r < count) dots[r] += ks[r * f.d + d] * qd;
          }
          for (int64_t e = 0; e < f.e; e++) {
            A ge = to<A>(dy[row * f.e + e]);
            for (int r = 0; r < kFlashRows; r++)
              if (r < count) dps[r] += vs[r * f.e + e] * ge;
          }
          for (int r = 0; r < kFlashRows; r++) {
            if (r >= count) continue;
            int64_t j = j0 + r;
            bool dead = l == -infinity<A>();
            A s = flash_score(dots[r], A(scale), A(softcap), &slope), w = A(0);
            if (dead) {
              if (empty != 0) w = A(1) / A(f.t);
            } else if (j >= f.first_key(i, f.offset) && j < f.end_key(i, f.offset) && !seg.apart(b, i, j)) {
              if (mask != nullptr) s = flash_masked(s, mask[b * ms[0] + h * ms[1] + i * ms[2] + j * ms[3]]);
              w = exp_of(s - peak[row] - l);
            }
            p[r * kFlashTile + x] = w;
            ds[r * kFlashTile + x] = w == A(0) || (dead && empty == 2) ? A(0) : w * (dps[r] - delta[row]) * slope;
          }
        }
        c.sync();
        for (int64_t x = c.tid; x < count * f.d; x += c.size) {
          int64_t r = x / f.d, d = x % f.d;
          A a = ka[x];
          for (int64_t i = 0; i < n; i++) {
            A w = ds[r * kFlashTile + i];
            if (w != A(0)) a += w * to<A>(q[(base + t0 + i) * f.d + d]);
          }
          ka[x] = a;
        }
        for (int64_t x = c.tid; x < count * f.e; x += c.size) {
          int64_t r = x / f.e, e = x % f.e;
          A a = va[x];
          for (int64_t i = 0; i < n; i++) {
            A w = p[r * kFlashTile + i];
            if (w != A(0)) a += w * to<A>(dy[(base + t0 + i) * f.e + e]);
          }
          va[x] = a;
        }
        c.sync();
      }
    }
    if (dk != nullptr)
      for (int64_t x = c.tid; x < count * f.d; x += c.size) dk[key0 * f.d + x] = to<T>(ka[x]);
    if (dv != nullptr)
      for (int64_t x = c.tid; x < count * f.e; x += c.size) dv[key0 * f.e + x] = to<T>(va[x]);
  }, keys * per_key * int64_t(sizeof(A)));
  if constexpr (!std::is_same<M, bool>::value) flash_mask_grad(st, dy, q, k, v, lse, mask, ms, mask_dims, seg, dmask, delta, peak, sizes, scale, softcap, empty);
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
