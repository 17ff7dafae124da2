// Driver: loads weights and inputs, runs steps, writes outputs. See usage() below.
//
// Inputs and outputs are in one plain format, little-endian, record after record to the end of the file:
//   int32 length of the name, the name, int32 element type (ONNX's number), int32 rank, int64 dims[rank],
//   int64 bytes, the bytes.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "memoc_step.h"

namespace {

using Bytes = std::vector<unsigned char>;
using Tensors = std::map<std::string, Bytes>;

struct Options {
  std::string inputs, outputs, profile, weights = "weights.bin", model_dir = ".";
  int64_t steps = 1, schedules = 1;
  memoc_options create = {};
  bool bench = false, fill = false, list = false;
};

void usage(FILE* f) {
  fprintf(f,
          "usage: step [--inputs FILE] [--outputs FILE] [--steps N] [--bench] ...\n"
          "  --inputs FILE     inputs (and weights that override the stored ones), in the format main.cpp states\n"
          "  --outputs FILE    where to write the outputs of the last step, in the same format\n"
          "  --weights FILE    the weights of the model file itself (default weights.bin)\n"
          "  --model-dir DIR   where the model's external data files are (default .)\n"
          "  --fill            give inputs and weights without a source small pseudo-random values\n"
          "  --steps N         how many steps to run (default 1)\n"
          "  --seed N          of the step's random numbers (default 0)\n"
          "  --first-step N    number of the first step, by which random numbers are drawn (default 0)\n"
          "  --bench           print the time of a step; two more steps run first\n"
          "  --profile FILE    run the parts of each step one by one and write their mean times: index,name,ns\n"
          "  --graph           CUDA: launch the step as a CUDA graph\n"
          "  --schedule N      host build: seed of the order in which the lanes run (default 0)\n"
          "  --schedules N     host build: run with N seeds and compare the outputs byte for byte\n"
          "  --paranoid        host build: let each step see and change only the bytes it declared\n"
          "  --list            print inputs, weights and outputs\n");
}

[[noreturn]] void fail(int code, const std::string& message) {
  fprintf(stderr, "step: %s\n", message.c_str());
  exit(code);
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i++) {
    std::string a = argv[i];
    auto value = [&]() -> const char* {
      if (i + 1 >= argc) fail(MEMOC_ARGUMENT, a + " needs a value");
      return argv[++i];
    };
    if (a == "--inputs") o.inputs = value();
    else if (a == "--outputs") o.outputs = value();
    else if (a == "--profile") o.profile = value();
    else if (a == "--weights") o.weights = value();
    else if (a == "--model-dir") o.model_dir = value();
    else if (a == "--steps") o.steps = atoll(value());
    else if (a == "--seed") o.create.seed = strtoull(value(), nullptr, 10);
    else if (a == "--first-step") o.create.first_step = strtoull(value(), nullptr, 10);
    else if (a == "--schedule") o.create.schedule_seed = strtoull(value(), nullptr, 10);
    else if (a == "--schedules") o.schedules = atoll(value());
    else if (a == "--paranoid") o.create.paranoid = 1;
    else if (a == "--graph") o.create.graph = 1;
    else if (a == "--bench") o.bench = true;
    else if (a == "--fill") o.fill = true;
    else if (a == "--list") o.list = true;
    else if (a == "--help" || a == "-h") usage(stdout), exit(0);
    else usage(stderr), fail(MEMOC_ARGUMENT, "unknown option " + a);
  }
  return o;
}

bool read_at(FILE* f, int64_t offset, void* data, int64_t bytes) {
  return fseeko(f, off_t(offset), SEEK_SET) == 0 && fread(data, 1, size_t(bytes), f) == size_t(bytes);
}

Tensors read_tensors(const std::string& path) {
  Tensors all;
  if (path.empty()) return all;
  FILE* f = fopen(path.c_str(), "rb");
  if (!f) fail(MEMOC_ARGUMENT, "cannot open " + path);
  auto get = [&](void* p, int64_t n) {
    if (fread(p, 1, size_t(n), f) != size_t(n)) fail(MEMOC_ARGUMENT, path + " ends in the middle of a record");
  };
  int32_t length;
  while (fread(&length, 1, 4, f) == 4) {
    if (length < 0 || length > 1 << 20) fail(MEMOC_ARGUMENT, path + " is not in the driver's format");
    std::string name(size_t(length), ' ');
    get(&name[0], length);
    int32_t head[2];
    get(head, 8);
    if (head[1] < 0 || head[1] > 64) fail(MEMOC_ARGUMENT, path + ": '" + name + "' has rank " + std::to_string(head[1]));
    std::vector<int64_t> dims(size_t(head[1]) + 1);
    get(dims.data(), 8 * (head[1] + 1));  // and the number of bytes
    Bytes& b = all[name];
    b.resize(size_t(dims.back()));
    get(b.data(), dims.back());
  }
  fclose(f);
  return all;
}

void write_tensors(const std::string& path, const Tensors& outputs) {
  FILE* f = fopen(path.c_str(), "wb");
  if (!f) fail(MEMOC_ARGUMENT, "cannot write " + path);
  bool good = true;
  auto put = [&](const void* p, size_t n) { good = good && fwrite(p, 1, n, f) == n; };
  for (int i = 0; i < memoc_tensor_count(); i++) {
    const memoc_tensor* t = memoc_tensor_at(i);
    if (t->role != MEMOC_OUTPUT) continue;
    int32_t length = int32_t(strlen(t->name)), head[2] = {t->dtype, t->rank};
    put(&length, 4);
    put(t->name, size_t(length));
    put(head, 8);
    put(t->dims, 8 * size_t(t->rank));
    put(&t->bytes, 8);
    put(outputs.at(t->name).data(), size_t(t->bytes));
  }
  if (fclose(f) != 0 || !good) fail(MEMOC_ARGUMENT, "cannot write " + path);
}

// fill gives a tensor values that depend on its name alone: floats in [-0.25, 0.25), integers 0.
Bytes fill(const memoc_tensor* t) {
  Bytes b(size_t(t->bytes), 0);
  uint32_t x = 2166136261u;
  for (const char* c = t->name; *c; c++) x = (x ^ uint32_t((unsigned char)*c)) * 16777619u;
  auto next = [&] {
    x = x * 1664525u + 1013904223u;
    return float(int32_t(x)) / 8589934592.0f;
  };
  const size_t n = b.size();
  if (t->dtype == 1)
    for (size_t i = 0; i + 4 <= n; i += 4) {
      float v = next();
      memcpy(&b[i], &v, 4);
    }
  else if (t->dtype == 11)
    for (size_t i = 0; i + 8 <= n; i += 8) {
      double v = next();
      memcpy(&b[i], &v, 8);
    }
  else if (t->dtype == 16 || t->dtype == 10)
    for (size_t i = 0; i + 2 <= n; i += 2) {
      float v = next();
      uint32_t u;
      memcpy(&u, &v, 4);
      uint32_t exponent = (u >> 23) & 255;
      uint16_t h = uint16_t(u >> 16);  // bfloat16; for float16 the exponent is moved, tiny values become 0
      if (t->dtype == 10) h = uint16_t((u >> 16 & 0x8000) | (exponent < 113 ? 0 : (exponent - 112) << 10 | (u >> 13 & 1023)));
      memcpy(&b[i], &h, 2);
    }
  return b;
}

// source finds the bytes of one input or weight.
Bytes source(const Options& o, const memoc_tensor* t, const Tensors& given) {
  auto it = given.find(t->name);
  if (it != given.end()) return it->second;
  if (t->file) {
    std::string path = !*t->file ? o.weights : o.model_dir + "/" + t->file;
    if (FILE* f = fopen(path.c_str(), "rb")) {
      Bytes b(size_t(t->bytes));
      bool good = read_at(f, t->file_offset, b.data(), t->bytes);
      fclose(f);
      if (good) return b;
      if (!o.fill) fail(MEMOC_ARGUMENT, path + " ends before '" + t->name + "'");
    }
    if (!o.fill) fail(MEMOC_ARGUMENT, "cannot open " + path + ", which holds weight '" + std::string(t->name) + "'");
  }
  if (!o.fill) fail(MEMOC_ARGUMENT, "no value for input '" + std::string(t->name) + "' (--inputs, or --fill)");
  return fill(t);
}

void check(memoc_handle* m, int code) {
  if (code != MEMOC_OK) fail(code, memoc_error(m));
}

void steps(memoc_handle* m, int64_t n) {
  for (int64_t i = 0; i < n; i++) check(m, memoc_step(m));
}

void profile(memoc_handle* m, const Options& o) {
  std::vector<double> ms(size_t(memoc_part_count()) + 1, 0.0);
  steps(m, 1);  // libraries choose their algorithms in the first step
  for (int64_t i = 0; i < o.steps; i++) check(m, memoc_profile_step(m, ms.data()));
  FILE* f = fopen(o.profile.c_str(), "w");
  if (!f) fail(MEMOC_ARGUMENT, "cannot write " + o.profile);
  fprintf(f, "index,name,ns\n");
  for (int i = 0; i < memoc_part_count(); i++) {
    std::string name;
    for (const char* c = memoc_part_name(i); *c; c++) name += *c == '"' ? "\"\"" : std::string(1, *c);
    fprintf(f, "%d,\"%s\",%.0f\n", i, name.c_str(), ms[size_t(i)] / double(o.steps) * 1e6);
  }
  if (fclose(f) != 0) fail(MEMOC_ARGUMENT, "cannot write " + o.profile);
}

Tensors run(const Options& o, const Tensors& given) {
  memoc_handle* m = nullptr;
  check(m, memoc_create(&m, &o.create));
  for (int i = 0; i < memoc_tensor_count(); i++) {
    const memoc_tensor* t = memoc_tensor_at(i);
    if (t->role == MEMOC_OUTPUT) continue;
    Bytes b = source(o, t, given);
    check(m, memoc_set_input(m, t->name, b.data(), int64_t(b.size())));
  }
  if (!o.profile.empty()) {
    profile(m, o);
  } else if (o.bench) {
    double start, end;
    steps(m, 2);
    check(m, memoc_now_ms(m, &start));
    steps(m, o.steps);
    check(m, memoc_now_ms(m, &end));
    printf("step: %.6f ms (mean of %lld)\n", (end - start) / double(o.steps), (long long)o.steps);
  } else {
    steps(m, o.steps);
  }
  Tensors out;
  for (int i = 0; i < memoc_tensor_count(); i++) {
    const memoc_tensor* t = memoc_tensor_at(i);
    if (t->role != MEMOC_OUTPUT) continue;
    Bytes& b = out[t->name];
    b.resize(size_t(t->bytes));
    check(m, memoc_get_output(m, t->name, b.data(), t->bytes));
  }
  memoc_destroy(m);
  return out;
}

void list() {
  const char* roles[] = {"input", "weight", "output"};
  for (int i = 0; i < memoc_tensor_count(); i++) {
    const memoc_tensor* t = memoc_tensor_at(i);
    printf("%-6s type %2d  %12lld bytes  [", roles[t->role], int(t->dtype), (long long)t->bytes);
    for (int d = 0; d < t->rank; d++) printf(d ? ",%lld" : "%lld", (long long)t->dims[d]);
    printf("]  %s\n", t->name);
  }
  printf("device arena %lld bytes, host arena %lld bytes\n", (long long)memoc_device_bytes(), (long long)memoc_host_bytes());
}

}  // namespace

int main(int argc, char** argv) {
  Options o = parse(argc, argv);
  if (o.list) return list(), 0;
  Tensors given = read_tensors(o.inputs);
  Tensors out = run(o, given);
  for (int64_t i = 1; i < o.schedules; i++) {
    o.create.schedule_seed++;
    Tensors other = run(o, given);
    for (auto& kv : out)
      if (other[kv.first] != kv.second)
        fail(MEMOC_UNSAFE, "output '" + kv.first + "' differs between schedule seeds " +
                               std::to_string(o.create.schedule_seed - uint64_t(i)) + " and " + std::to_string(o.create.schedule_seed));
  }
  if (o.schedules > 1) printf("step: %lld orders of the lanes, outputs the same byte for byte\n", (long long)o.schedules);
  if (!o.outputs.empty()) write_tensors(o.outputs, out);
  else if (o.schedules <= 1 && !o.bench && o.profile.empty())
    printf("step: done, %lld outputs; --outputs FILE writes them\n", (long long)out.size());
  return 0;
}
