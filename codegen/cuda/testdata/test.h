// A few lines of test harness: CHECK prints what failed, and main returns fails != 0.
#pragma once
#include <cmath>
#include <cstdio>
#include <string>
inline int fails = 0;
#define CHECK(cond)                                                        \
  do {                                                                     \
    if (!(cond) && ++fails < 20) printf("%s:%d: %s\n", __FILE__, __LINE__, #cond); \
  } while (0)
