package ops

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"memoc/ir"
)

// TestKernels compiles the kernels of all samples into one host program and
// compares what they write with the reference evaluation: in the samples' own
// types and in every shorter float type the operator takes, into buffers of
// their own and, where InPlace allows it, over an input.
func TestKernels(t *testing.T) {
	gxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("needs g++")
	}
	p := &program{}
	for _, op := range selected(t) {
		for _, s := range op.Samples() {
			p.addSample(t, op, s)
		}
	}
	if len(p.runs) == 0 {
		return
	}
	dir := t.TempDir()
	exe, err := p.compile(gxx, dir)
	if err != nil {
		t.Fatal(err)
	}
	crashed := p.execute(t, exe, dir)
	for i, r := range p.runs {
		t.Run(r.name, func(t *testing.T) {
			if crashed[i] {
				t.Fatal("the kernel crashes")
			}
			r.check(t, p.arena, p.before)
		})
	}
}

// kernelRun is one call of one kernel.
type kernelRun struct {
	name, op string
	call     string
	source   string
	node     *ir.Node
	want     []ir.Datum
	in, out  []int64 // offsets in the arena by port, -1 for absent
	alias    ir.Alias
	aliased  bool
}

// program collects runs, the sources they need, and the arena they work in.
type program struct {
	runs    []*kernelRun
	sources []string
	arena   []byte
	before  []byte
}

const guardByte = 0xA5 // fills outputs and the gaps between buffers

// place reserves n bytes at 64-byte alignment with a gap behind them.
func (p *program) place(data []byte, n int64) int64 {
	off := int64(len(p.arena))
	p.arena = append(p.arena, bytes.Repeat([]byte{guardByte}, int((n+64+63)/64*64))...)
	copy(p.arena[off:], data)
	return off
}

// addSample adds the runs of one sample in all types.
func (p *program) addSample(t testing.TB, op *ir.Op, s ir.Sample) {
	if op.Kernel.Make == nil {
		return
	}
	name := ir.FullOp(op.Domain, op.Name) + "/" + s.Name
	p.addNode(t, op, s, name)
	for _, d := range []ir.DType{ir.Float, ir.Float16, ir.BFloat16} {
		if m, ok := retyped(op, s, d); ok {
			p.addNode(t, op, m, name+"/"+d.String())
		}
	}
}

func (p *program) addNode(t testing.TB, op *ir.Op, s ir.Sample, name string) {
	b, err := build(op, s, asConstants)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	want, err := b.eval()
	if err != nil {
		t.Errorf("%s: evaluation: %v", name, err)
		return
	}
	c, err := ir.NewNodeCtx(b.node)
	if err != nil {
		t.Errorf("%s: a kernel without static sizes: %v", name, err)
		return
	}
	k, err := op.Kernel.Make(c)
	if err != nil {
		if testing.Verbose() {
			t.Logf("%s: no kernel: %v", name, err)
		}
		return
	}
	base := kernelRun{name: name, op: ir.FullOp(op.Domain, op.Name), node: b.node, want: want}
	p.addRun(t, base, b, k, op.Cost(c))
	for _, a := range op.InPlace {
		if !aliasFits(b, want, a) {
			continue
		}
		r := base
		r.aliased, r.alias = true, a
		r.name = fmt.Sprintf("%s/in%d_is_out%d", name, a.In, a.Out)
		p.addRun(t, r, b, k, op.Cost(c))
	}
}

func aliasFits(b *built, want []ir.Datum, a ir.Alias) bool {
	if a.In >= len(b.args) || a.Out >= len(want) || b.args[a.In] == nil || want[a.Out] == nil {
		return false
	}
	return len(b.args[a.In].(*ir.Tensor).Data) == len(want[a.Out].(*ir.Tensor).Data)
}

// addRun places the buffers and makes the call.
func (p *program) addRun(t testing.TB, r kernelRun, b *built, k ir.Kernel, cost ir.Cost) {
	for _, d := range b.args {
		off := int64(-1)
		if x, ok := d.(*ir.Tensor); ok {
			off = p.place(x.Data, int64(len(x.Data)))
		}
		r.in = append(r.in, off)
	}
	for o, d := range r.want {
		off := int64(-1)
		switch x, ok := d.(*ir.Tensor); {
		case ok && r.aliased && o == r.alias.Out:
			off = r.in[r.alias.In]
		case ok:
			off = p.place(nil, int64(len(x.Data)))
		}
		r.out = append(r.out, off)
	}
	workspace := p.place(nil, cost.Workspace)
	var err error
	if k.Func != "" {
		r.call, err = p.funcCall(&r, k, workspace)
		r.source = k.Source
	} else {
		r.call, err = p.pointwiseCall(&r, k.Pointwise)
	}
	if err != nil {
		t.Errorf("%s: %v", r.name, err)
		return
	}
	if !slices.Contains(p.sources, r.source) {
		p.sources = append(p.sources, r.source)
	}
	p.runs = append(p.runs, &r)
}

var cppNames = map[ir.DType]string{
	ir.Float: "float", ir.Double: "double", ir.Float16: "half", ir.BFloat16: "bfloat16", ir.Bool: "bool",
	ir.Int8: "int8_t", ir.Int16: "int16_t", ir.Int32: "int32_t", ir.Int64: "int64_t",
	ir.Uint8: "uint8_t", ir.Uint16: "uint16_t", ir.Uint32: "uint32_t", ir.Uint64: "uint64_t",
}

// pointer is the C++ expression for a buffer of the run.
func pointer(v *ir.Value, off int64, isConst bool) (string, error) {
	if v == nil || off < 0 {
		return "nullptr", nil
	}
	name := cppNames[v.Type.DType]
	if name == "" && v.Type.DType.Bits() <= 8 && v.Type.DType.Bits() > 0 {
		name = "uint8_t" // packed or 8-bit floating types travel as bytes
	}
	if name == "" {
		return "", fmt.Errorf("the kernel takes %s, which has no C++ type; the rule should refuse it", v.Type.DType)
	}
	if isConst {
		name = "const " + name
	}
	return fmt.Sprintf("(%s*)(A + %d)", name, off), nil
}

func valueAt(vs []*ir.Value, i int) *ir.Value {
	if i >= len(vs) {
		return nil
	}
	return vs[i]
}

func offsetAt(offs []int64, i int) int64 {
	if i >= len(offs) {
		return -1
	}
	return offs[i]
}

// funcCall is the call of a kernel function.
func (p *program) funcCall(r *kernelRun, k ir.Kernel, workspace int64) (string, error) {
	var types []string
	for _, d := range k.Types {
		if cppNames[d] == "" {
			return "", fmt.Errorf("template argument %s has no C++ type", d)
		}
		types = append(types, cppNames[d])
	}
	args := []string{"s"}
	for _, a := range k.Args {
		var text string
		var err error
		switch a.Kind {
		case ir.ArgIn:
			text, err = pointer(valueAt(r.node.In, a.Port), offsetAt(r.in, a.Port), true)
		case ir.ArgOut:
			text, err = pointer(valueAt(r.node.Out, a.Port), offsetAt(r.out, a.Port), false)
		case ir.ArgWorkspace:
			text = fmt.Sprintf("(void*)(A + %d)", workspace)
		case ir.ArgInt:
			text = fmt.Sprintf("int64_t(%dull)", uint64(a.I))
		case ir.ArgFloat:
			text = cppDouble(a.F)
		case ir.ArgBool:
			text = fmt.Sprint(a.I != 0)
		case ir.ArgDims:
			text, err = cppDims(a.Shape)
		case ir.ArgRandom:
			text = fmt.Sprintf("Random{%dull, (const uint64_t*)(A + %d)}", ir.RandomKey(0, "node"), p.randomState())
		}
		if err != nil {
			return "", err
		}
		args = append(args, text)
	}
	f := "k::" + k.Func
	if len(types) > 0 {
		f += "<" + strings.Join(types, ", ") + ">"
	}
	return f + "(" + strings.Join(args, ", ") + ");", nil
}

// randomState places seed and step as build sets them.
func (p *program) randomState() int64 {
	b, _ := binary.Append(nil, binary.LittleEndian, []uint64{1, 2})
	return p.place(b, 16)
}

// cppDouble is a C++ literal of exactly that value.
func cppDouble(f float64) string {
	switch {
	case f != f:
		return "quiet_nan<double>()"
	case f > 1.7976931348623157e308:
		return "infinity<double>()"
	case f < -1.7976931348623157e308:
		return "-infinity<double>()"
	}
	return fmt.Sprintf("double(%x)", f)
}

func cppDims(ns []int64) (string, error) {
	if len(ns) > 12 {
		return "", fmt.Errorf("%d dims; the kernel library has 12", len(ns))
	}
	parts := make([]string, len(ns))
	for i, n := range ns {
		parts[i] = fmt.Sprintf("int64_t(%dull)", uint64(n))
	}
	return fmt.Sprintf("Dims{%d, {%s}}", len(ns), strings.Join(parts, ", ")), nil
}

// pointwiseCall calls the loop of a Pointwise kernel, which is one function for
// all runs of that expression and those types. xi has the compute type of its
// input; acc_t is the compute type of the output, or of the first input where
// the output is bool.
func (p *program) pointwiseCall(r *kernelRun, expr string) (string, error) {
	y := r.node.Out[0]
	shape, _ := y.Type.Shape.Static()
	dims, err := cppDims(shape)
	if err != nil {
		return "", err
	}
	out, err := pointer(y, r.out[0], false)
	if err != nil {
		return "", err
	}
	result, acc := "to<acc_t>("+expr+")", y.Type.DType
	if acc == ir.Bool {
		result, acc = "bool("+expr+")", r.node.In[0].Type.DType
	}
	params, args, loads := "Stream& s, Dims o, "+cppNames[y.Type.DType]+"* y", "s, "+dims+", "+out, ""
	k := 0
	for i, v := range r.node.In {
		if v == nil {
			continue
		}
		ptr, err := pointer(v, r.in[i], true)
		if err != nil {
			return "", err
		}
		in, _ := v.Type.Shape.Static()
		inDims, err := cppDims(in)
		if err != nil {
			return "", err
		}
		params += fmt.Sprintf(", const %s* p%d, Dims s%d", cppNames[v.Type.DType], k, k)
		args += fmt.Sprintf(", %s, broadcast_strides(%s, %s)", ptr, inDims, dims)
		loads += fmt.Sprintf(" auto x%d = to<Acc<%s>>(p%d[offset_of(i, o, s%d)]);", k, cppNames[v.Type.DType], k, k)
		k++
	}
	body := fmt.Sprintf("(%s) {\n  using acc_t = Acc<%s>;\n  parallel_for(s, o.numel(), [=] MEMOC_DEVICE(int64_t i) {%s y[i] = to<%s>(%s); });\n}",
		params, cppNames[acc], loads, cppNames[y.Type.DType], result)
	h := fnv.New64a()
	h.Write([]byte(body))
	name := fmt.Sprintf("pointwise_%x", h.Sum64())
	r.source = "inline void " + name + body
	return "k::" + name + "(" + args + ");", nil
}

const hostMain = `
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "memoc/kernel.h"
namespace memoc {
// Work runs after the kernel function has returned, as on a device.
static std::deque<Task*> queue;
void enqueue(Stream&, Task* t) { queue.push_back(t); }
void* row_scratch(int64_t n) { static std::vector<uint64_t> v; v.assign(size_t(n / 8 + 1), 0); return v.data(); }
struct Bytes : Task { void* d; const void* s; int64_t n; void run() override { if (s) memmove(d, s, size_t(n)); else memset(d, 0, size_t(n)); } };
static void bytes(Stream& st, void* d, const void* s, int64_t n) { auto* t = new Bytes; t->d = d; t->s = s; t->n = n; enqueue(st, t); }
void copy(Stream& st, void* d, const void* s, int64_t n) { if (n > 0) bytes(st, d, s, n); }
void fill_zero(Stream& st, void* d, int64_t n) { if (n > 0) bytes(st, d, nullptr, n); }
static void drain() { while (!queue.empty()) { Task* t = queue.front(); queue.pop_front(); t->run(); delete t; } }
namespace k {
%s
}
%s
typedef void (*Run)(Stream&, unsigned char*);
static Run runs[] = {%s};
}
int main(int argc, char** argv) {
  // The file is mapped, so that a crash loses nothing of the runs before it.
  int fd = open(argv[1], O_RDWR);
  size_t n = size_t(lseek(fd, 0, SEEK_END));
  void* map = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (argc != 3 || map == MAP_FAILED) return 3;
  unsigned char* a = (unsigned char*)map;
  memoc::Stream s;
  for (size_t i = size_t(atol(argv[2])); i < sizeof(memoc::runs) / sizeof(memoc::runs[0]); i++) {
    fprintf(stderr, "%%zu\n", i);
    memoc::runs[i](s, a);
    memoc::drain();
  }
  return 0;
}
`

// text is the C++ program of the given runs.
func (p *program) text(runs []*kernelRun) string {
	var funcs strings.Builder
	var names []string
	for i, r := range runs {
		fmt.Fprintf(&funcs, "static void run%d(Stream& s, unsigned char* A) {  // %s\n  (void)A; (void)s;\n  %s\n}\n", i, r.name, r.call)
		names = append(names, fmt.Sprintf("run%d", i))
	}
	return fmt.Sprintf(hostMain, strings.Join(p.sources, "\n"), funcs.String(), strings.Join(names, ", "))
}

// compile makes the program. If it does not compile, the operators at fault
// are found one by one, so that the message names them.
func (p *program) compile(gxx, dir string) (string, error) {
	lib, err := filepath.Abs("../../codegen/cuda/lib")
	if err != nil {
		return "", err
	}
	exe := filepath.Join(dir, "kernels")
	src := filepath.Join(dir, "kernels.cpp")
	flags := []string{"-std=c++17", "-DMEMOC_HOST=1", "-I", lib, "-w"}
	if err := os.WriteFile(src, []byte(p.text(p.runs)), 0o666); err != nil {
		return "", err
	}
	// Without optimization it compiles in a third of the time; the tests of
	// codegen/cuda run the same samples optimized.
	args := append(slices.Clone(flags), "-O0", "-o", exe, src, filepath.Join(lib, "memoc/gemm_host.cpp"), filepath.Join(lib, "memoc/matmul.cpp"))
	out, err := exec.Command(gxx, args...).CombinedOutput()
	if err == nil {
		return exe, nil
	}
	message := string(out[:min(len(out), 4000)])
	byOp := map[string][]*kernelRun{}
	var order []string
	for _, r := range p.runs {
		if byOp[r.op] == nil {
			order = append(order, r.op)
		}
		byOp[r.op] = append(byOp[r.op], r)
	}
	if len(order) == 1 {
		return "", fmt.Errorf("the kernels of %s do not compile:\n%s", order[0], message)
	}
	for _, op := range order {
		q := &program{}
		for _, r := range byOp[op] {
			if !slices.Contains(q.sources, r.source) {
				q.sources = append(q.sources, r.source)
			}
		}
		if err := os.WriteFile(src, []byte(q.text(byOp[op])), 0o666); err != nil {
			return "", err
		}
		if out, err := exec.Command(gxx, append(slices.Clone(flags), "-fsyntax-only", src)...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("the kernels of %s do not compile:\n%s", op, out[:min(len(out), 4000)])
		}
	}
	return "", fmt.Errorf("the kernels compile alone but not together:\n%s", message)
}

// execute runs the program, going on behind a run that crashes.
func (p *program) execute(t testing.TB, exe, dir string) map[int]bool {
	p.before = slices.Clone(p.arena)
	file := filepath.Join(dir, "arena")
	crashed := map[int]bool{}
	for from := 0; from < len(p.runs); {
		if err := os.WriteFile(file, p.arena, 0o666); err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd := exec.Command(exe, file, fmt.Sprint(from))
		cmd.Stderr = &stderr
		err := cmd.Run()
		if got, rerr := os.ReadFile(file); rerr == nil && len(got) == len(p.arena) {
			p.arena = got
		}
		if err == nil {
			break
		}
		lines := strings.Fields(stderr.String())
		last := from
		for _, l := range lines {
			fmt.Sscan(l, &last)
		}
		crashed[last] = true
		from = last + 1
	}
	return crashed
}

// check compares the run's outputs with the reference, and sees that nothing
// else changed.
func (r *kernelRun) check(t testing.TB, arena, before []byte) {
	for o, d := range r.want {
		want, ok := d.(*ir.Tensor)
		if !ok {
			continue
		}
		got := ir.NewTensor(want.DType, want.Dims...)
		end := r.out[o] + int64(len(got.Data))
		copy(got.Data, arena[r.out[o]:end])
		if diff := compare(got, want, tolerance(want.DType)); diff != "" {
			t.Errorf("output %d: %s\n%s", o, diff, r.call)
		}
		if !bytes.Equal(arena[end:end+64], before[end:end+64]) {
			t.Errorf("the kernel writes behind output %d", o)
		}
	}
	for i, v := range r.node.In {
		if v == nil || r.aliased && i == r.alias.In {
			continue
		}
		n, err := v.Type.Bytes()
		if err != nil {
			continue
		}
		if from := r.in[i]; !bytes.Equal(arena[from:from+n], before[from:from+n]) {
			t.Errorf("the kernel changes input %d", i)
		}
	}
}
