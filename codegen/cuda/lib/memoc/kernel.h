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

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(MEMOC_HOST) && MEMOC_HOST
#define MEMOC_CUDA 0
#else
#undef MEMOC_HOST
#define MEMOC_HOST 0
#define MEMOC_CUDA 1
#endif

#if MEMOC_CUDA
#ifndef CUDA_NO_HALF
#define CUDA_NO_HALF  // no global name "half" beside memoc::half
#endif
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define MEMOC_DEVICE __device__           // on lambdas given to parallel_for and block_rows
#define MEMOC_FN __host__ __device__ inline  // on helper functions called from such lambdas
#else
#define MEMOC_DEVICE
#define MEMOC_FN inline
#endif

namespace memoc {

// ---------------------------------------------------------------------------------------------------------------
// Element types

MEMOC_FN uint32_t float_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}

MEMOC_FN float float_from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}

// float_to_half_bits and the three functions after it round to nearest even, keep NaN a NaN and are exact in the
// other direction. They serve the host build; the device uses the hardware's instructions, which agree.
MEMOC_FN uint16_t float_to_half_bits(float x) {
  uint32_t u = float_bits(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return uint16_t(sign | 0x7e00u);
  if (a >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // 65520 and above round to infinity
  if (a < 0x38800000u) {                                  // below 2^-14: a subnormal half, or zero
    if (a < 0x33000000u) return uint16_t(sign);           // below 2^-25
    uint32_t mant = (a & 0x7fffffu) | 0x800000u;
    uint32_t shift = 126 - (a >> 23);  // 14..24
    uint32_t half = 1u << (shift - 1), low = mant & ((1u << shift) - 1), r = mant >> shift;
    if (low > half || (low == half && (r & 1))) r++;
    return uint16_t(sign | r);
  }
  uint32_t r = a - 0x38000000u;  // exponent bias 127 -> 15
  r += 0xfffu + ((r >> 13) & 1);
  return uint16_t(sign | (r >> 13));
}

MEMOC_FN float half_bits_to_float(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000u) << 16, e = (h >> 10) & 31, mant = h & 0x3ffu;
  if (e == 31) return float_from_bits(sign | 0x7f800000u | (mant << 13));
  if (e != 0) return float_from_bits(sign | ((e + 112) << 23) | (mant << 13));
  float v = float(mant) * float_from_bits(0x33800000u);  // mant * 2^-24, exact
  return float_from_bits(sign | float_bits(v));
}

MEMOC_FN uint16_t float_to_bfloat16_bits(float x) {
  uint32_t u = float_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return uint16_t((u >> 16) | 0x40u);
  return uint16_t((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

MEMOC_FN float bfloat16_bits_to_float(uint16_t b) { return float_from_bits(uint32_t(b) << 16); }

// double_to_float_odd rounds to odd, so that a second rounding to half or bfloat16 gives the correctly rounded result.
MEMOC_FN float double_to_float_odd(double x) {
  float f = float(x);
  if (double(f) == x || f != f) return f;
  uint32_t u = float_bits(f);
  double a = x < 0 ? -x : x, af = f < 0 ? -double(f) : double(f);
  if (af > a) u--;
  return float_from_bits(u | 1u);
}

struct half {
  uint16_t bits;
  half() = default;
  MEMOC_FN explicit half(float x) {
#if defined(__CUDA_ARCH__)
    bits = __half_as_ushort(__float2half_rn(x));
#else
    bits = float_to_half_bits(x);
#endif
  }
  MEMOC_FN explicit operator float() const {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(bits));
#else
    return half_bits_to_float(bits);
#endif
  }
};

struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  MEMOC_FN explicit bfloat16(float x) {
#if defined(__CUDA_ARCH__)
    bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
#else
    bits = float_to_bfloat16_bits(x);
#endif
  }
  MEMOC_FN explicit operator float() const { return bfloat16_bits_to_float(bits); }
};

static_assert(sizeof(half) == 2 && sizeof(bfloat16) == 2, "half types are two bytes");

template <class T> struct is_small_float : std::false_type {};
template <> struct is_small_float<half> : std::true_type {};
template <> struct is_small_float<bfloat16> : std::true_type {};

template <class T> struct AccOf { using type = T; };
template <> struct AccOf<half> { using type = float; };
template <> struct AccOf<bfloat16> { using type = float; };

// Acc<T> is the type to compute in: float for half, bfloat16 and float; otherwise T.
template <class T> using Acc = typename AccOf<T>::type;

template <class T> struct Limits;  // lowest, highest finite value; for device code, where std::numeric_limits needs a flag
#define MEMOC_LIMITS(T, LO, HI)              \
  template <> struct Limits<T> {             \
    MEMOC_FN static T lo() { return (LO); }  \
    MEMOC_FN static T hi() { return (HI); }  \
  }
MEMOC_LIMITS(float, -3.402823466e+38f, 3.402823466e+38f);
MEMOC_LIMITS(double, -1.7976931348623157e+308, 1.7976931348623157e+308);
MEMOC_LIMITS(int8_t, INT8_MIN, INT8_MAX);
MEMOC_LIMITS(int16_t, INT16_MIN, INT16_MAX);
MEMOC_LIMITS(int32_t, INT32_MIN, INT32_MAX);
MEMOC_LIMITS(int64_t, INT64_MIN, INT64_MAX);
MEMOC_LIMITS(uint8_t, 0, UINT8_MAX);
MEMOC_LIMITS(uint16_t, 0, UINT16_MAX);
MEMOC_LIMITS(uint32_t, 0, UINT32_MAX);
MEMOC_LIMITS(uint64_t, 0, UINT64_MAX);
MEMOC_LIMITS(bool, false, true);
#undef MEMOC_LIMITS

// infinity<T>() is for float and double.
template <class T> MEMOC_FN T infinity() { return T(float_from_bits(0x7f800000u)); }
template <class T> MEMOC_FN T quiet_nan() { return T(float_from_bits(0x7fc00000u)); }

// lowest<T>() and highest<T>() are the identities of max and min: infinities for floats.
template <class T> MEMOC_FN T lowest() {
  if constexpr (std::is_floating_point<T>::value) return -infinity<T>();
  else return Limits<T>::lo();
}
template <class T> MEMOC_FN T highest() {
  if constexpr (std::is_floating_point<T>::value) return infinity<T>();
  else return Limits<T>::hi();
}

// to<D>(x) converts between any two element types, the same way on both builds: float to integer truncates, saturates
// and takes NaN to 0; anything to bool is "not zero"; double to half or bfloat16 rounds once.
template <class D, class S> MEMOC_FN D to(S x) {
  if constexpr (std::is_same<D, S>::value) return x;
  else if constexpr (is_small_float<S>::value) return to<D>(float(x));
  else if constexpr (is_small_float<D>::value) {
    if constexpr (std::is_same<S, float>::value) return D(x);
    else if constexpr (std::is_integral<S>::value && sizeof(S) <= 2) return D(float(x));
    else if constexpr (std::is_integral<S>::value && sizeof(S) == 8) return D(float(x));
    else return D(double_to_float_odd(double(x)));
  } else if constexpr (std::is_same<D, bool>::value) return x != S(0);
  else if constexpr (std::is_floating_point<S>::value && std::is_integral<D>::value) {
    if (x != x) return D(0);
    // 2^digits is exact in S; the largest D need not be.
    const S hi = S(D(1) << (sizeof(D) * 8 - 2)) * (std::is_signed<D>::value ? S(2) : S(4));
    if (x >= hi) return Limits<D>::hi();
    if (x <= (std::is_signed<D>::value ? -hi : S(0))) return Limits<D>::lo();
    return D(x);
  } else return D(x);
}

// DType numbers element types at run time; the values are ONNX's.
enum class DType : int32_t {
  f32 = 1, u8 = 2, i8 = 3, u16 = 4, i16 = 5, i32 = 6, i64 = 7, boolean = 9, f16 = 10, f64 = 11, u32 = 12, u64 = 13, bf16 = 16,
};

template <class T> struct DTypeOf;
#define MEMOC_DTYPE(T, V) \
  template <> struct DTypeOf<T> { static constexpr DType value = DType::V; }
MEMOC_DTYPE(float, f32);
MEMOC_DTYPE(double, f64);
MEMOC_DTYPE(half, f16);
MEMOC_DTYPE(bfloat16, bf16);
MEMOC_DTYPE(int8_t, i8);
MEMOC_DTYPE(int16_t, i16);
MEMOC_DTYPE(int32_t, i32);
MEMOC_DTYPE(int64_t, i64);
MEMOC_DTYPE(uint8_t, u8);
MEMOC_DTYPE(uint16_t, u16);
MEMOC_DTYPE(uint32_t, u32);
MEMOC_DTYPE(uint64_t, u64);
MEMOC_DTYPE(bool, boolean);
#undef MEMOC_DTYPE

// ---------------------------------------------------------------------------------------------------------------
// Shapes and indices

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

// ---------------------------------------------------------------------------------------------------------------
// Math with one meaning on both builds. The arguments are Acc types; integers go where they make sense.

namespace m {

#define MEMOC_MATH1(NAME, F32, F64)                   \
  MEMOC_FN float NAME(float x) { return ::F32(x); }   \
  MEMOC_FN double NAME(double x) { return ::F64(x); }
MEMOC_MATH1(exp, expf, exp)
MEMOC_MATH1(expm1, expm1f, expm1)
MEMOC_MATH1(log, logf, log)
MEMOC_MATH1(log1p, log1pf, log1p)
MEMOC_MATH1(sqrt, sqrtf, sqrt)
MEMOC_MATH1(sin, sinf, sin)
MEMOC_MATH1(cos, cosf, cos)
MEMOC_MATH1(tan, tanf, tan)
MEMOC_MATH1(asin, asinf, asin)
MEMOC_MATH1(acos, acosf, acos)
MEMOC_MATH1(atan, atanf, atan)
MEMOC_MATH1(sinh, sinhf, sinh)
MEMOC_MATH1(cosh, coshf, cosh)
MEMOC_MATH1(tanh, tanhf, tanh)
MEMOC_MATH1(asinh, asinhf, asinh)
MEMOC_MATH1(acosh, acoshf, acosh)
MEMOC_MATH1(atanh, atanhf, atanh)
MEMOC_MATH1(erf, erff, erf)
MEMOC_MATH1(floor, floorf, floor)
MEMOC_MATH1(ceil, ceilf, ceil)
MEMOC_MATH1(trunc, truncf, trunc)
MEMOC_MATH1(round_even, rintf, rint)  // halves go to the even neighbour, as in ONNX's Round
#undef MEMOC_MATH1

MEMOC_FN float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
MEMOC_FN double fma(double a, double b, double c) { return ::fma(a, b, c); }

template <class T> MEMOC_FN T rsqrt(T x) { return T(1) / m::sqrt(x); }
template <class T> MEMOC_FN bool isnan(T x) { return x != x; }
template <class T> MEMOC_FN bool isinf(T x) { return x == infinity<T>() || x == -infinity<T>(); }

template <class T> MEMOC_FN T abs(T x) {
  if constexpr (std::is_unsigned<T>::value) return x;
  else if constexpr (std::is_same<T, float>::value) return ::fabsf(x);
  else if constexpr (std::is_same<T, double>::value) return ::fabs(x);
  else return T(x < 0 ? -x : x);
}

// max and min hand a NaN on, whichever side it is on.
template <class T> MEMOC_FN T max(T a, T b) { return (a > b || a != a) ? a : b; }
template <class T> MEMOC_FN T min(T a, T b) { return (a < b || a != a) ? a : b; }

template <class T> MEMOC_FN T sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x != x ? x : T(0); }

template <class T> MEMOC_FN T sigmoid(T x) {
  if (x >= T(0)) return T(1) / (T(1) + m::exp(-x));
  T e = m::exp(x);
  return e / (T(1) + e);
}

template <class T> MEMOC_FN T softplus(T x) { return m::max(x, T(0)) + m::log1p(m::exp(-m::abs(x))); }

// pow of integers multiplies; a negative exponent gives 0 but for bases 1 and -1.
template <class T> MEMOC_FN T pow(T a, T b) {
  if constexpr (std::is_same<T, float>::value) return ::powf(a, b);
  else if constexpr (std::is_same<T, double>::value) return ::pow(a, b);
  else {
    if (b < T(0)) return a == T(1) ? T(1) : (std::is_signed<T>::value && a == T(-1)) ? ((b % 2) ? T(-1) : T(1)) : T(0);
    using U = typename std::make_unsigned<T>::type;
    uint64_t r = 1, x = U(a);
    for (U e = U(b); e; e = U(e >> 1), x *= x)
      if (e & 1) r *= x;
    return T(r);
  }
}

// div truncates; a division of integers by zero gives 0 rather than a trap, and the lowest by -1 wraps.
template <class T> MEMOC_FN T div(T a, T b) {
  if constexpr (std::is_integral<T>::value && !std::is_same<T, bool>::value) {
    if (b == T(0)) return T(0);
    if (std::is_signed<T>::value && b == T(-1)) return T(0 - typename std::make_unsigned<T>::type(a));
    return T(a / b);
  } else return a / b;
}

// fmod has the sign of a (C), mod the sign of b (Python); both give 0 for an integer b of 0.
template <class T> MEMOC_FN T fmod(T a, T b) {
  if constexpr (std::is_same<T, float>::value) return ::fmodf(a, b);
  else if constexpr (std::is_same<T, double>::value) return ::fmod(a, b);
  else return (b == T(0) || (std::is_signed<T>::value && b == T(-1))) ? T(0) : T(a % b);
}
template <class T> MEMOC_FN T mod(T a, T b) {
  T r = m::fmod(a, b);
  return (r != T(0) && ((r < T(0)) != (b < T(0)))) ? T(r + b) : r;
}

}  // namespace m

// The same under names that clash with nothing.
#define MEMOC_OF1(NAME) \
  template <class T> MEMOC_FN T NAME##_of(T x) { return m::NAME(x); }
#define MEMOC_OF2(NAME) \
  template <class T> MEMOC_FN T NAME##_of(T a, T b) { return m::NAME(a, b); }
MEMOC_OF1(abs) MEMOC_OF1(sign) MEMOC_OF1(exp) MEMOC_OF1(expm1) MEMOC_OF1(log) MEMOC_OF1(log1p) MEMOC_OF1(sqrt)
MEMOC_OF1(rsqrt) MEMOC_OF1(sin) MEMOC_OF1(cos) MEMOC_OF1(tan) MEMOC_OF1(asin) MEMOC_OF1(acos) MEMOC_OF1(atan)
MEMOC_OF1(sinh) MEMOC_OF1(cosh) MEMOC_OF1(tanh) MEMOC_OF1(asinh) MEMOC_OF1(acosh) MEMOC_OF1(atanh) MEMOC_OF1(erf)
MEMOC_OF1(floor) MEMOC_OF1(ceil) MEMOC_OF1(trunc) MEMOC_OF1(round_even) MEMOC_OF1(sigmoid) MEMOC_OF1(softplus)
MEMOC_OF2(max) MEMOC_OF2(min) MEMOC_OF2(pow) MEMOC_OF2(div) MEMOC_OF2(mod) MEMOC_OF2(fmod)
#undef MEMOC_OF1
#undef MEMOC_OF2

// ---------------------------------------------------------------------------------------------------------------
// Random numbers: Philox4x32-10, counter based, so the i-th number needs no state. package ir holds the Go twin.

struct Philox {
  uint32_t w[4];
};

MEMOC_FN Philox philox(uint32_t key0, uint32_t key1, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  for (int r = 0; r < 10; r++) {
    uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
    uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ key0, n2 = uint32_t(p0 >> 32) ^ c3 ^ key1;
    c1 = uint32_t(p1);
    c3 = uint32_t(p0);
    c0 = n0;
    c2 = n2;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return Philox{{c0, c1, c2, c3}};
}

// philox_at draws for element index of step under a 64-bit seed: four words that belong to that element alone.
MEMOC_FN Philox philox_at(uint64_t seed, uint64_t index, uint64_t step) {
  return philox(uint32_t(seed), uint32_t(seed >> 32), uint32_t(index), uint32_t(index >> 32), uint32_t(step),
                uint32_t(step >> 32));
}

// uniform01 is in [0, 1), a multiple of 2^-24.
MEMOC_FN float uniform01(uint32_t word) { return float(word >> 8) * float_from_bits(0x33800000u); }

// Random is the random numbers of one node in one step. The run's seed and the step number lie in device memory, so
// that a captured graph can be launched again: read them in a launch only.
struct Random {
  uint64_t name;          // hash of the original node's name
  const uint64_t* state;  // seed, step

  MEMOC_FN Philox words(int64_t i) const { return philox_at(state[0] ^ name, uint64_t(i), state[1]); }
  MEMOC_FN float uniform(int64_t i) const { return uniform01(words(i).w[0]); }
};

// normal01 is Box-Muller over two words.
MEMOC_FN float normal01(uint32_t w0, uint32_t w1) {
  float u = float((w0 >> 8) + 1) * float_from_bits(0x33800000u);  // (0, 1]
  return m::sqrt(-2.0f * m::log(u)) * m::cos(6.283185307179586f * uniform01(w1));
}

// ---------------------------------------------------------------------------------------------------------------
// Launches

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

constexpr int kBlock = 256;
constexpr int64_t kMaxGrid = 1 << 16;

template <class F> __global__ void parallel_for_kernel(int64_t n, F f) {
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) f(i);
}

// parallel_for runs f(i) for every i in [0, n), in no order. n of 0 launches nothing.
template <class F> void parallel_for(Stream& s, int64_t n, F f) {
  if (n <= 0) return;
  int64_t grid = (n + kBlock - 1) / kBlock;
  parallel_for_kernel<F><<<unsigned(grid < kMaxGrid ? grid : kMaxGrid), kBlock, 0, s.handle>>>(n, f);
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

extern __shared__ __align__(16) unsigned char memoc_dynamic_shared[];

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
  block_rows_kernel<F><<<unsigned(rows < kMaxGrid ? rows : kMaxGrid), kBlock, size_t(shared_bytes), s.handle>>>(rows, f);
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

// ---------------------------------------------------------------------------------------------------------------
// Matrix products

// GemmDesc: C[b] = alpha * op(A[b]) * op(B[b]) + beta * C[b] (+ bias along n), all row-major, b in [0, batch).
// op(A) is m x k, op(B) is k x n. lda, ldb, ldc are the distances between stored rows, in elements; a stride of 0
// repeats one matrix for the whole batch. f16 and bf16 accumulate in float. With k of 0 the product is 0.
// workspace is a planned buffer, which may be empty: gemm_workspace gives the size worth asking for.
struct GemmDesc {
  DType type = DType::f32;
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
