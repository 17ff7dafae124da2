package ops

// reduceCUDA is the kernels of all reductions. An element of the output is at
// kept coordinates; red are the coordinates that reduce to it.
const reduceCUDA = `
// ReduceAcc is the type a reduction computes in: small integers widen, since
// shuffles know no narrower type.
template <class T> struct ReduceAcc { using type = Acc<T>; };
template <> struct ReduceAcc<bool> { using type = int32_t; };
template <> struct ReduceAcc<int8_t> { using type = int32_t; };
template <> struct ReduceAcc<uint8_t> { using type = int32_t; };

struct ReduceAdd { template <class A> MEMOC_FN A operator()(A a, A b) const { return a + b; } };
struct ReduceMul { template <class A> MEMOC_FN A operator()(A a, A b) const { return a * b; } };
struct ReduceTop { template <class A> MEMOC_FN A operator()(A a, A b) const { return m::max(a, b); } };
struct ReduceLow { template <class A> MEMOC_FN A operator()(A a, A b) const { return m::min(a, b); } };

struct ReduceSame { template <class A> MEMOC_FN A operator()(A a) const { return a; } };
struct ReduceAbs { template <class A> MEMOC_FN A operator()(A a) const { return m::abs(a); } };
struct ReduceSquare { template <class A> MEMOC_FN A operator()(A a) const { return a * a; } };

struct ReduceAsIs { template <class A> MEMOC_FN A operator()(A a, int64_t) const { return a; } };
struct ReducePerCount {
  template <class A> MEMOC_FN A operator()(A a, int64_t n) const { return m::div(a, A(n)); }
};
struct ReduceRoot {
  template <class A> MEMOC_FN A operator()(A a, int64_t) const {
    if constexpr (std::is_integral<A>::value) return to<A>(m::sqrt(double(a)));
    else return m::sqrt(a);
  }
};
struct ReduceLog {
  template <class A> MEMOC_FN A operator()(A a, int64_t) const {
    if constexpr (std::is_integral<A>::value) {
      double l = m::log(double(a));
      return m::isinf(l) ? A(0) : to<A>(l);
    } else return m::log(a);
  }
};

// reduce_line combines elements [from, end) of the line at p, in steps.
template <class T, class Step, class Op, class A>
MEMOC_FN A reduce_line(const T* p, const Dims& red, const Dims& red_strides, int64_t from, int64_t end, int64_t by,
                       Step step, Op op, A a) {
  for (int64_t i = from; i < end; i += by) a = op(a, step(to<A>(p[offset_of(i, red, red_strides)])));
  return a;
}

// reduce_chunks: partial results of all lines, then one thread puts those of a line together.
template <class T, class Step, class Op, class Finish, class A>
void reduce_chunks(Stream& s, const T* x, T* y, Dims kept, Dims kept_strides, Dims red, Dims red_strides, bool rows,
                   int64_t chunks, A* part, Step step, Op op, Finish finish, A first) {
  int64_t n = red.numel(), lines = kept.numel(), len = (n + chunks - 1) / chunks;
  if (rows) {
    block_rows(s, lines * chunks, [=] MEMOC_DEVICE(RowCtx& c, int64_t k) {
      const T* p = x + offset_of(k / chunks, kept, kept_strides);
      int64_t from = k % chunks * len, end = m::min(from + len, n);
      A a = c.reduce(reduce_line<T>(p, red, red_strides, from + c.tid, end, c.size, step, op, first), op);
      if (c.tid == 0) part[k] = a;
    });
  } else {
    parallel_for(s, lines * chunks, [=] MEMOC_DEVICE(int64_t k) {
      const T* p = x + offset_of(k % lines, kept, kept_strides);
      int64_t from = k / lines * len, end = m::min(from + len, n);
      part[k % lines * chunks + k / lines] = reduce_line<T>(p, red, red_strides, from, end, 1, step, op, first);
    });
  }
  parallel_for(s, lines, [=] MEMOC_DEVICE(int64_t line) {
    A a = first;
    for (int64_t k = 0; k < chunks; k++) a = op(a, part[line * chunks + k]);
    y[line] = to<T>(finish(a, n));
  });
}

// reduce_any: y = finish(combination of step(x)). With rows a block shares one output, else a thread makes one.
template <class T, class Step, class Op, class Finish, class A>
void reduce_any(Stream& s, const T* x, T* y, Dims kept, Dims kept_strides, Dims red, Dims red_strides, bool rows,
                int64_t chunks, void* part, Step step, Op op, Finish finish, A first) {
  int64_t n = red.numel();
  if (chunks > 1) {
    reduce_chunks(s, x, y, kept, kept_strides, red, red_strides, rows, chunks, static_cast<A*>(part), step, op, finish, first);
    return;
  }
  if (rows) {
    block_rows(s, kept.numel(), [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
      const T* p = x + offset_of(row, kept, kept_strides);
      A a = c.reduce(reduce_line<T>(p, red, red_strides, c.tid, n, c.size, step, op, first), op);
      if (c.tid == 0) y[row] = to<T>(finish(a, n));
    });
    return;
  }
  parallel_for(s, kept.numel(), [=] MEMOC_DEVICE(int64_t row) {
    const T* p = x + offset_of(row, kept, kept_strides);
    y[row] = to<T>(finish(reduce_line<T>(p, red, red_strides, 0, n, 1, step, op, first), n));
  });
}

#define MEMOC_REDUCTION(NAME, STEP, OP, FINISH, FIRST)                                                              \
  template <class T>                                                                                                \
  void NAME(Stream& s, const T* x, T* y, Dims kept, Dims kept_strides, Dims red, Dims red_strides, bool rows,       \
            int64_t chunks, void* part) {                                                                           \
    using A = typename ReduceAcc<T>::type;                                                                          \
    reduce_any<T>(s, x, y, kept, kept_strides, red, red_strides, rows, chunks, part, STEP(), OP(), FINISH(), A(FIRST)); \
  }
MEMOC_REDUCTION(reduce_sum, ReduceSame, ReduceAdd, ReduceAsIs, 0)
MEMOC_REDUCTION(reduce_mean, ReduceSame, ReduceAdd, ReducePerCount, 0)
MEMOC_REDUCTION(reduce_l1, ReduceAbs, ReduceAdd, ReduceAsIs, 0)
MEMOC_REDUCTION(reduce_l2, ReduceSquare, ReduceAdd, ReduceRoot, 0)
MEMOC_REDUCTION(reduce_sum_square, ReduceSquare, ReduceAdd, ReduceAsIs, 0)
MEMOC_REDUCTION(reduce_log_sum, ReduceSame, ReduceAdd, ReduceLog, 0)
MEMOC_REDUCTION(reduce_prod, ReduceSame, ReduceMul, ReduceAsIs, 1)
MEMOC_REDUCTION(reduce_max, ReduceSame, ReduceTop, ReduceAsIs, lowest<Acc<T>>())
MEMOC_REDUCTION(reduce_min, ReduceSame, ReduceLow, ReduceAsIs, highest<Acc<T>>())
#undef MEMOC_REDUCTION

// reduce_log_sum_exp walks the line twice: the maximum first.
template <class T>
void reduce_log_sum_exp(Stream& s, const T* x, T* y, Dims kept, Dims kept_strides, Dims red, Dims red_strides, bool rows) {
  using A = std::conditional_t<std::is_integral<T>::value, double, typename ReduceAcc<T>::type>;
  int64_t n = red.numel();
  if (rows) {
    block_rows(s, kept.numel(), [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
      const T* p = x + offset_of(row, kept, kept_strides);
      A top = lowest<A>();
      for (int64_t i = c.tid; i < n; i += c.size) top = m::max(top, to<A>(p[offset_of(i, red, red_strides)]));
      top = c.max(top);
      A sum = A(0);
      for (int64_t i = c.tid; i < n; i += c.size) sum += m::exp(to<A>(p[offset_of(i, red, red_strides)]) - top);
      sum = c.sum(sum);
      if (c.tid == 0) y[row] = to<T>(m::isinf(top) ? top : top + m::log(sum));
    });
    return;
  }
  parallel_for(s, kept.numel(), [=] MEMOC_DEVICE(int64_t row) {
    const T* p = x + offset_of(row, kept, kept_strides);
    A top = lowest<A>();
    for (int64_t i = 0; i < n; i++) top = m::max(top, to<A>(p[offset_of(i, red, red_strides)]));
    A sum = A(0);
    for (int64_t i = 0; i < n; i++) sum += m::exp(to<A>(p[offset_of(i, red, red_strides)]) - top);
    y[row] = to<T>(m::isinf(top) ? top : top + m::log(sum));
  });
}`
