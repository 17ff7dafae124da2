// Conversions, indices, math and random numbers of kernel.h.
#include "memoc/runtime.h"
#include "test.h"

using namespace memoc;

static double half_value(uint16_t h) {  // by the definition of binary16
  int e = (h >> 10) & 31, m = h & 1023;
  double v = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24);
  return h & 0x8000 ? -v : v;
}

static double bf16_value(uint16_t b) {
  int e = (b >> 7) & 255, m = b & 127;
  double v = e == 255 ? (m ? NAN : INFINITY) : e ? std::ldexp(128 + m, e - 134) : std::ldexp(m, -133);
  return b & 0x8000 ? -v : v;
}

template <class H> void all_values(double (*value)(uint16_t), uint16_t inf) {
  for (uint32_t u = 0; u < 0x10000; u++) {
    H h;
    h.bits = uint16_t(u);
    double want = value(h.bits);
    float got = float(h);
    if (std::isnan(want)) {
      CHECK(std::isnan(got) && std::isnan(float(H(got))));
      continue;
    }
    CHECK(double(got) == want && std::signbit(got) == std::signbit(want));
    CHECK(H(got).bits == h.bits && to<H>(want).bits == h.bits);
    if ((u & 0x7fff) + 1 >= inf || (u & 0x8000)) continue;
    double next = value(uint16_t(u + 1)), mid = (want + next) / 2;  // exact in float and double
    uint16_t even = (u & 1) ? uint16_t(u + 1) : uint16_t(u);
    CHECK(H(float(mid)).bits == even && to<H>(mid).bits == even);
    CHECK(H(-float(mid)).bits == (even | 0x8000));
    CHECK(to<H>(std::nextafter(mid, 1e300)).bits == u + 1);  // one rounding, not two
    CHECK(to<H>(std::nextafter(mid, 0.0)).bits == u);
    CHECK(H(std::nextafterf(float(mid), INFINITY)).bits == u + 1);
    CHECK(H(std::nextafterf(float(mid), 0.0f)).bits == u);
  }
}

static void known_conversions() {
  CHECK(half(1.0f).bits == 0x3c00 && half(-2.0f).bits == 0xc000 && half(65504.0f).bits == 0x7bff);
  CHECK(half(65519.996f).bits == 0x7bff && half(65520.0f).bits == 0x7c00 && half(1e-8f).bits == 0);
  CHECK(half(5.9604645e-8f).bits == 1 && half(2.9802322e-8f).bits == 0 && half(6.1035156e-5f).bits == 0x0400);
  CHECK(half(0.1f).bits == 0x2e66 && half(1.0f / 3).bits == 0x3555 && half(-0.0f).bits == 0x8000);
  CHECK(bfloat16(1.0f).bits == 0x3f80 && bfloat16(0.1f).bits == 0x3dcd && bfloat16(3.14159265f).bits == 0x4049);
  CHECK(bfloat16(1.00390625f).bits == 0x3f80 && bfloat16(1.01171875f).bits == 0x3f82);
  CHECK(bfloat16(3.4e38f).bits == 0x7f80 && bfloat16(-0.0f).bits == 0x8000);

  CHECK(to<int32_t>(3.99f) == 3 && to<int32_t>(-3.99f) == -3 && to<int32_t>(quiet_nan<float>()) == 0);
  CHECK(to<int32_t>(1e20f) == INT32_MAX && to<int32_t>(-1e20f) == INT32_MIN && to<uint8_t>(300.0f) == 255);
  CHECK(to<uint8_t>(-3.0f) == 0 && to<int64_t>(1e30) == INT64_MAX && to<uint64_t>(1.8446744073709552e19) == UINT64_MAX);
  CHECK(to<int64_t>(-9.2233720368547758e18) == INT64_MIN && to<uint64_t>(9.3e18f) == uint64_t(9.3e18f));
  CHECK(to<bool>(0.5f) && !to<bool>(0) && to<bool>(half(0.25f)) && to<float>(true) == 1.0f && to<int8_t>(int32_t(300)) == 44);
  CHECK(to<half>(int64_t(2049)).bits == 0x6800 && to<int32_t>(half(7.5f)) == 7 && float(to<half>(to<bfloat16>(0.5))) == 0.5f);
}

static Dims dims(std::initializer_list<int64_t> v) {
  Dims d;
  for (int64_t x : v) d.d[d.rank++] = x;
  return d;
}

static void indices() {
  Dims s = dims({2, 3, 4}), st = strides_of(s);
  CHECK(s.numel() == 24 && s.numel(1, 3) == 12 && s.numel(2, 2) == 1 && Dims().numel() == 1);
  CHECK(st[0] == 12 && st[1] == 4 && st[2] == 1);
  Dims b = broadcast_strides(dims({3, 1}), s);
  CHECK(b[0] == 0 && b[1] == 1 && b[2] == 0);
  CHECK(same_dims(broadcast_dims(dims({3, 1}), dims({2, 1, 4})), s) && !same_dims(s, b));
  for (int64_t i = 0; i < 24; i++) {
    CHECK(offset_of(i, s, st) == i && dot(coords(i, s), st) == i);
    CHECK(offset_of(i, s, b) == dot(coords(i, s), b));
  }
  CHECK(offset_of(0, Dims(), Dims()) == 0);
  Dims big = dims({5, 3000000000, 7, 1000}), bs = strides_of(big), odd = dims({3, 7, 1, 11});
  for (int64_t i : {int64_t(0), int64_t(6999), int64_t(4294967295), int64_t(4294967296), int64_t(104999999999999)}) {
    CHECK(offset_of(i, big, bs) == i);
    CHECK(offset_of(i, big, odd) == dot(coords(i, big), odd));
  }
  Dims flat = dims({2, 20000000000});
  CHECK(offset_of(19999999999, flat, strides_of(flat)) == 19999999999 && offset_of(20000000001, flat, strides_of(flat)) == 20000000001);
  CHECK(axis_of(-1, 4) == 3 && axis_of(2, 4) == 2);
}

static void math() {
  float nan = quiet_nan<float>(), inf = infinity<float>();
  CHECK(m::isnan(m::max(nan, 1.0f)) && m::isnan(m::max(1.0f, nan)) && m::isnan(m::min(nan, 1.0f)) && m::isnan(m::min(1.0f, nan)));
  CHECK(m::max(2, 3) == 3 && m::min(-2.0, 3.0) == -2.0 && lowest<float>() == -inf && highest<int8_t>() == 127);
  CHECK(m::round_even(2.5f) == 2 && m::round_even(3.5f) == 4 && m::round_even(-0.5) == 0 && m::trunc(-1.5f) == -1);
  CHECK(m::fmod(-7, 3) == -1 && m::mod(-7, 3) == 2 && m::mod(7, -3) == -2 && m::mod(-7.5, 2.0) == 0.5 && m::mod(6, 0) == 0);
  CHECK(m::div(7, 0) == 0 && m::div(-7, 2) == -3 && m::div(INT64_MIN, int64_t(-1)) == INT64_MIN && m::div(1.0f, 0.0f) == inf);
  CHECK(m::pow(3, 4) == 81 && m::pow(2, -1) == 0 && m::pow(-1, -3) == -1 && m::pow(int64_t(2), int64_t(62)) == int64_t(1) << 62);
  CHECK(m::sign(-3.0f) == -1 && m::sign(uint8_t(4)) == 1 && m::sign(0) == 0 && m::isnan(m::sign(nan)) && m::abs(int8_t(-5)) == 5);
  CHECK(m::sigmoid(0.0f) == 0.5f && m::sigmoid(-200.0f) == 0 && m::sigmoid(200.0f) == 1 && m::softplus(1000.0f) == 1000.0f);
  CHECK(m::isinf(inf) && m::isinf(-inf) && !m::isinf(nan) && m::rsqrt(4.0) == 0.5);
  CHECK(max_of(1, 2) == 2 && exp_of(0.0f) == 1 && pow_of(2.0, 3.0) == 8);
}

static void random_numbers() {  // the vectors published with Random123
  Philox z = philox(0, 0, 0, 0, 0, 0), f = philox(~0u, ~0u, ~0u, ~0u, ~0u, ~0u),
         p = philox(0xa4093822, 0x299f31d0, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344);
  const uint32_t want[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                               {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
  for (int i = 0; i < 4; i++) CHECK(z.w[i] == want[0][i] && f.w[i] == want[1][i] && p.w[i] == want[2][i]);
  CHECK(uniform01(0) == 0 && uniform01(~0u) == 1 - std::ldexp(1.0, -24) && uniform01(0x80000000u) == 0.5);
  uint64_t state[2] = {0x299f31d0a4093822ull ^ 77, 0x0370734413198a2eull};
  CHECK((Random{77, state}.words(int64_t(0x85a308d3243f6a88ull)).w[2] == want[2][2]));
  double sum = 0, square = 0;
  for (uint64_t i = 0; i < 20000; i++) {
    Philox w = philox_at(1, i, 0);
    double n = normal01(w.w[0], w.w[1]);
    sum += n;
    square += n * n;
  }
  CHECK(std::fabs(sum / 20000) < 0.03 && std::fabs(square / 20000 - 1) < 0.05);
}

int main() {
  all_values<half>(half_value, 0x7c00);
  all_values<bfloat16>(bf16_value, 0x7f80);
  known_conversions();
  indices();
  math();
  random_numbers();
  return fails != 0;
}
