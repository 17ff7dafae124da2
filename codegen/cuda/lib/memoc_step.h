/* memoc_step.h: the C interface of an emitted step.
 *
 *   memoc_handle* m;
 *   if (memoc_create(&m, NULL)) ...                       -- allocates the arenas, once
 *   memoc_set_input(m, "tokens", data, bytes);            -- inputs, and weights before the first step
 *   memoc_step(m);                                        -- enqueues one step
 *   memoc_get_output(m, "loss", &loss, sizeof loss);      -- waits for it
 *   memoc_destroy(m);
 *
 * Functions return 0 or a memoc_code; memoc_error says in words what went wrong. One handle is used by one thread at a
 * time.
 */
#ifndef MEMOC_STEP_H
#define MEMOC_STEP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct memoc_handle memoc_handle;

enum memoc_code {
  MEMOC_OK = 0,
  MEMOC_ARGUMENT = 1,      /* unknown name, wrong size */
  MEMOC_DEVICE_MEMORY = 2, /* the device arena does not fit */
  MEMOC_HOST_MEMORY = 3,   /* the pinned host arena does not fit */
  MEMOC_RUNTIME = 4,       /* a CUDA or cuBLASLt call failed */
  MEMOC_UNSAFE = 5         /* host build: a race, a read of undefined bytes, a range outside its arena */
};

enum memoc_role {
  MEMOC_INPUT = 0,  /* set before every step it changes for */
  MEMOC_WEIGHT = 1, /* set once; the step may update it */
  MEMOC_OUTPUT = 2  /* valid after a step, until the next */
};

typedef struct memoc_tensor {
  const char* name;
  int32_t role;
  int32_t dtype; /* ONNX's TensorProto.DataType: 1 float, 7 int64, 9 bool, 10 float16, 11 double, 16 bfloat16, ... */
  int32_t rank;
  int64_t dims[12];
  int64_t bytes;
  const char* file; /* weights: the file beside the model that holds the bytes, "" for weights.bin; else NULL */
  int64_t file_offset;
} memoc_tensor;

typedef struct memoc_options {
  uint64_t seed;          /* of the step's random numbers */
  uint64_t first_step;    /* number of the first step, which its random numbers are drawn by */
  uint64_t schedule_seed; /* host build: which legal order of the lanes to run in */
  int paranoid;           /* host build: let each step see and change only the bytes it declared */
  int graph;              /* CUDA: capture the step as a CUDA graph at its second call, then launch that */
} memoc_options;

int memoc_create(memoc_handle** m, const memoc_options* options /* NULL: all zero */);
void memoc_destroy(memoc_handle* m);
const char* memoc_error(const memoc_handle* m); /* of the last failed call; m may be NULL after a failed memoc_create */

int memoc_tensor_count(void);
const memoc_tensor* memoc_tensor_at(int i);

int memoc_set_input(memoc_handle* m, const char* name, const void* data, int64_t bytes);
int memoc_step(memoc_handle* m);
int memoc_get_output(memoc_handle* m, const char* name, void* data, int64_t bytes);
int memoc_synchronize(memoc_handle* m);

/* A step consists of memoc_part_count parts: launches and copies. memoc_profile_step runs a step part by part, each
 * after the last has ended, and adds the time of part i, its launch included, to ms[i]. */
int memoc_part_count(void);
const char* memoc_part_name(int i);
int memoc_profile_step(memoc_handle* m, double* ms);
int memoc_now_ms(memoc_handle* m, double* ms); /* waits for all work; device time with CUDA. For differences */

int64_t memoc_device_bytes(void);
int64_t memoc_host_bytes(void);

#ifdef __cplusplus
}
#endif

#endif /* MEMOC_STEP_H */
