// numeric.h: functions of numbers with one meaning on both builds, and random numbers. Part of kernel.h.
#ifndef MEMOC_NUMERIC_H
#define MEMOC_NUMERIC_H

#include "memoc/types.h"

namespace memoc {

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

}  // namespace memoc

#endif  // MEMOC_NUMERIC_H
