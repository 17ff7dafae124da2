// types.h: which build this is, the element types and the conversions between them. Part of kernel.h.
#ifndef MEMOC_TYPES_H
#define MEMOC_TYPES_H

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

}  // namespace memoc

#endif  // MEMOC_TYPES_H
