package cuda

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"memoc/ir"
)

// kernelSet gathers the kernel texts and launch functions, each once.
type kernelSet struct {
	sources   []string
	seen      map[string]bool
	owner     map[string]string // function name to its source text
	pointwise map[string]string // function text without its name, to the name
	launches  []launch
	index     map[string]int // launch body to its place in launches
}

type launch struct {
	comment string
	body    string
}

func newKernelSet() *kernelSet {
	return &kernelSet{seen: map[string]bool{}, owner: map[string]string{}, pointwise: map[string]string{}, index: map[string]int{}}
}

// addLaunch decides what a run step launches.
func (e *emitter) addLaunch(r *row) error {
	n := r.step.Node
	if n == nil {
		return fmt.Errorf("BUG: run step %q has no node", r.name)
	}
	r.random = ir.RandomKey(0, n.OriginName())
	if n.Op == "Constant" && n.Domain == ir.OnnxDomain {
		return e.addConstant(r)
	}
	if n.Decl == nil {
		return n.Errorf("no-kernel", "operator %s (domain %q, version %d) is not known, so the step cannot be emitted", n.FullOp(), n.Domain, n.Version)
	}
	if done, err := e.addView(r); done || err != nil {
		return err
	}
	if done, err := e.addRanges(r); done || err != nil {
		return err
	}
	if n.Decl.Kernel.Make == nil {
		return n.Errorf("no-kernel", "operator %s (domain %q, version %d) has no kernel: %s", n.FullOp(), n.Domain, n.Version, n.Decl.Kernel.None)
	}
	ctx, err := ir.NewNodeCtx(n)
	if err != nil {
		return err
	}
	if empty(ctx) {
		r.remark = "no elements"
		return nil
	}
	k, err := n.Decl.Kernel.Make(ctx)
	if err != nil {
		return err
	}
	if k.Pointwise != "" {
		return e.addPointwise(r, ctx, k.Pointwise)
	}
	return e.addCall(r, k)
}

// empty reports whether no output has an element: then nothing is launched.
func empty(c *ir.NodeCtx) bool {
	for i, v := range c.Node.Out {
		if v != nil && ir.Elems(c.OutShape(i)) > 0 {
			return false
		}
	}
	return true
}

// addView handles operators that move no data: nothing if the output lies on
// its input, a copy if the plan gave it a place of its own.
func (e *emitter) addView(r *row) (done bool, err error) {
	n := r.step.Node
	if n.Decl.View == nil {
		return false, nil
	}
	for i, v := range n.Out {
		if v == nil {
			continue
		}
		in := n.Decl.View(n, i)
		if in < 0 || in >= len(n.In) || n.In[in] == nil {
			return false, nil
		}
		dst, placed := e.placed(v)
		src, given := e.placed(n.In[in])
		if placed && !given && dst.Size > 0 {
			return true, n.Errorf("no-kernel", "BUG: input %q has no place", n.In[in].Name)
		}
		if placed && !src.Same(dst) {
			src.Size, dst.Size = min(src.Size, dst.Size), min(src.Size, dst.Size)
			if err := e.addCopy(r, src, dst); err != nil {
				return true, err
			}
		}
	}
	r.remark = "view"
	return true, nil
}

// placed is a value's place; ok is false if it has no bytes of its own.
func (e *emitter) placed(v *ir.Value) (pl ir.Place, ok bool) {
	if v == nil || int(v.ID) >= len(e.p.Places) || e.p.Places[v.ID].Buffer < 0 {
		return ir.Place{Buffer: -1}, false
	}
	return e.p.Places[v.ID], true
}

// place is the offset of a value in the device arena, for what takes contiguous
// bytes; -1 if it has no bytes of its own.
func (e *emitter) place(v *ir.Value) (off, size int64, err error) {
	pl, ok := e.placed(v)
	if !ok {
		return -1, 0, nil
	}
	if !pl.Contiguous() {
		return 0, 0, fmt.Errorf("BUG: %q lies in %d pieces and is used as if it were one", v.Name, pl.Rows)
	}
	b := e.p.Buffers[pl.Buffer]
	if b.Arena != ir.DeviceArena {
		return 0, 0, fmt.Errorf("BUG: %q is used by a kernel and lies in arena %d", v.Name, b.Arena)
	}
	return b.Offset + pl.Offset, pl.Size, nil
}

// argText renders one kernel argument and notes the buffer it takes.
func (e *emitter) argText(r *row, a ir.KernelArg) (string, error) {
	n := r.step.Node
	buffer := func(v *ir.Value, constness string) (string, error) {
		if v == nil {
			return "nullptr", nil
		}
		off, _, err := e.place(v)
		if err != nil || off < 0 {
			return "nullptr", err
		}
		t := pointerType(v.Type.DType)
		if t == "" {
			return "", n.Errorf("no-kernel", "tensor %q has elements of type %s, which the emitted program cannot hold", v.Name, v.Type.DType)
		}
		r.buffers = append(r.buffers, off)
		return fmt.Sprintf("reinterpret_cast<%s%s*>(a.buffer[%d])", constness, t, len(r.buffers)-1), nil
	}
	switch a.Kind {
	case ir.ArgIn:
		return buffer(port(n.In, a.Port), "const ")
	case ir.ArgOut:
		return buffer(port(n.Out, a.Port), "")
	case ir.ArgWorkspace:
		if r.step.Workspace < 0 {
			return "nullptr", nil
		}
		r.buffers = append(r.buffers, e.p.Buffers[r.step.Workspace].Offset)
		return fmt.Sprintf("a.buffer[%d]", len(r.buffers)-1), nil
	case ir.ArgInt:
		return intText(a.I), nil
	case ir.ArgFloat:
		return floatText(a.F), nil
	case ir.ArgBool:
		return strconv.FormatBool(a.I != 0), nil
	case ir.ArgDims:
		return dimsText(a.Shape)
	case ir.ArgRandom:
		return "a.random", nil
	}
	return "", fmt.Errorf("BUG: kernel argument of kind %d", a.Kind)
}

func port(vs []*ir.Value, i int) *ir.Value {
	if i < len(vs) {
		return vs[i]
	}
	return nil
}

// addCall makes the launch function of a named kernel.
func (e *emitter) addCall(r *row, k ir.Kernel) error {
	n := r.step.Node
	if k.Func == "" {
		return n.Errorf("no-kernel", "BUG: the kernel of %s has neither a function nor an expression", n.FullOp())
	}
	if err := e.kernels.addSource(k); err != nil {
		return n.Errorf("no-kernel", "%v", err)
	}
	var types []string
	for _, d := range k.Types {
		t, ok := cppTypes[d]
		if !ok {
			return n.Errorf("no-kernel", "the kernel of %s does not exist for elements of type %s", n.FullOp(), d)
		}
		types = append(types, t)
	}
	args := []string{"s"}
	for _, a := range k.Args {
		text, err := e.argText(r, a)
		if err != nil {
			return err
		}
		args = append(args, text)
	}
	name := "k::" + k.Func
	if len(types) > 0 {
		name += "<" + strings.Join(types, ", ") + ">"
	}
	r.launch = e.kernels.addLaunch(n.FullOp(), name+"("+strings.Join(args, ", ")+");")
	return nil
}

func (ks *kernelSet) addSource(k ir.Kernel) error {
	if k.Source == "" {
		return nil
	}
	if old, ok := ks.owner[k.Func]; ok && old != k.Source {
		return fmt.Errorf("BUG: two different kernel texts define %s", k.Func)
	}
	ks.owner[k.Func] = k.Source
	if !ks.seen[k.Source] {
		ks.seen[k.Source] = true
		ks.sources = append(ks.sources, strings.Trim(k.Source, "\n"))
	}
	return nil
}

func (ks *kernelSet) addLaunch(comment, body string) int {
	if i, ok := ks.index[body]; ok {
		return i
	}
	ks.launches = append(ks.launches, launch{comment, body})
	ks.index[body] = len(ks.launches) - 1
	return len(ks.launches) - 1
}

// source is the text of kernels.h.
func (ks *kernelSet) source() string {
	var b strings.Builder
	b.WriteString("// Kernels of the operators in step.cu, each once. Written against memoc/kernel.h.\n#pragma once\n\n#include \"memoc/kernel.h\"\n\nnamespace memoc {\nnamespace k {\n")
	for _, s := range ks.sources {
		b.WriteString("\n" + s + "\n")
	}
	b.WriteString("\n}  // namespace k\n}  // namespace memoc\n")
	return b.String()
}

// cppTypes are the element types a kernel can have.
var cppTypes = map[ir.DType]string{
	ir.Float: "float", ir.Double: "double", ir.Float16: "half", ir.BFloat16: "bfloat16", ir.Bool: "bool",
	ir.Int8: "int8_t", ir.Int16: "int16_t", ir.Int32: "int32_t", ir.Int64: "int64_t",
	ir.Uint8: "uint8_t", ir.Uint16: "uint16_t", ir.Uint32: "uint32_t", ir.Uint64: "uint64_t",
}

// pointerType is the element type of a pointer to elements of type d: those
// that C++ has no type for travel as bytes, if they are no longer than one.
func pointerType(d ir.DType) string {
	if t := cppTypes[d]; t != "" {
		return t
	}
	if bits := d.Bits(); bits > 0 && bits <= 8 {
		return "uint8_t"
	}
	return ""
}

// accType is C++'s Acc<T>.
func accType(d ir.DType) string {
	if d == ir.Float16 || d == ir.BFloat16 {
		return "float"
	}
	return cppTypes[d]
}

func intText(v int64) string {
	if v == math.MinInt64 {
		return "INT64_MIN"
	}
	return strconv.FormatInt(v, 10)
}

func floatText(v float64) string {
	switch {
	case math.IsNaN(v):
		return "quiet_nan<double>()"
	case math.IsInf(v, 1):
		return "infinity<double>()"
	case math.IsInf(v, -1):
		return "-infinity<double>()"
	}
	s := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

func dimsText(dims []int64) (string, error) {
	if len(dims) > 12 {
		return "", fmt.Errorf("BUG: a kernel argument of %d dims; memoc::Dims holds 12", len(dims))
	}
	if len(dims) == 0 {
		return "Dims{}", nil
	}
	parts := make([]string, len(dims))
	for i, d := range dims {
		parts[i] = intText(d)
	}
	return fmt.Sprintf("Dims{%d, {%s}}", len(dims), strings.Join(parts, ", ")), nil
}
