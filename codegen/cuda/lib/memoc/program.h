// program.h: the tables that step.cu fills and the loop in program.cpp runs.
#ifndef MEMOC_PROGRAM_H
#define MEMOC_PROGRAM_H

#include "memoc/runtime.h"
#include "memoc_step.h"

namespace memoc {

// Args is what a launch function gets: the step's buffers in the order in which its kernel takes them (null for an
// absent one), and its random numbers.
struct Args {
  unsigned char* const* buffer;
  Random random;
};

using Launch = void (*)(Stream& s, const Args& a);

// List is a run of entries of one of the tables below.
struct List {
  int32_t first, count;
};

// Copy moves rows between the arenas; rows of 1 is a plain copy.
struct Copy {
  Space dst;
  int64_t dst_offset, dst_pitch;
  Space src;
  int64_t src_offset, src_pitch;
  int64_t row_bytes, rows;
};

// Freed is a buffer whose life ends with a step.
struct Freed {
  Space space;
  int64_t offset, bytes;
  const char* name;
};

struct Step {
  const char* name;
  int32_t lane;
  Launch launch;  // null for copies and for steps without work
  List buffers, copies, ranges, waits, freed;
  int32_t record;        // the event recorded after the step, or -1
  uint64_t random_name;  // hash of the node's name, for Random
};

struct Program {
  const char* name;
  int lanes, events;
  int64_t device_bytes, host_bytes;
  const Step* steps;
  int32_t step_count;
  const int64_t* buffers;  // offsets in the device arena; -1: absent
  const Copy* copies;
  const Range* ranges;
  const int32_t* waits;  // events
  const Freed* freed;
  const memoc_tensor* tensors;
  const int64_t* tensor_offsets;  // in the device arena
  int32_t tensor_count;
};

// program is defined by step.cu.
extern const Program program;

}  // namespace memoc

#endif  // MEMOC_PROGRAM_H
