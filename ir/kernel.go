package ir

import (
	"math"
	"slices"
)

// Kernel is the device code of one node as data. Either Func is called, or
// Pointwise is an expression from which the emitter makes the loop.
type Kernel struct {
	// Func is a C++ function (template) in namespace memoc::k, called as
	// Func<Types...>(stream, Args...). It launches work through the
	// functions of kernel.h and returns at once.
	Func string
	// Source is CUDA C++ text, written against kernel.h, that defines Func in
	// namespace memoc::k (the text holds no namespace itself). The same text
	// is emitted once however many nodes use it.
	Source string
	Types  []DType
	Args   []KernelArg

	// Pointwise is a C++ expression for the single output over x0, x1, …: the
	// present inputs, broadcast as ONNX does, each as the compute type of its
	// own element type (float for half types; float, double, integers and bool
	// are their own). `acc_t` names the compute type of the output, or of the
	// first input where the output is bool. Empty where Func is set.
	Pointwise string
}

// KernelArg is one argument of a kernel function.
type KernelArg struct {
	Kind  ArgKind
	Port  int     // ArgIn, ArgOut
	I     int64   // ArgInt, ArgBool
	F     float64 // ArgFloat
	Shape []int64 // ArgDims: at most 12 numbers, of any meaning
}

// ArgKind tells the forms of KernelArg apart.
type ArgKind uint8

// The forms of KernelArg and what the C++ function receives.
const (
	ArgIn        ArgKind = iota // const T*; nullptr for an absent optional input
	ArgOut                      // T*; nullptr for an output nobody asked for
	ArgWorkspace                // void*: Cost.Workspace bytes
	ArgInt                      // int64_t
	ArgFloat                    // double
	ArgBool                     // bool
	ArgDims                     // memoc::Dims
	ArgRandom                   // memoc::Random: key of the node, step number read on the device
)

// InArg, OutArg, … make kernel arguments.
func InArg(port int) KernelArg        { return KernelArg{Kind: ArgIn, Port: port} }
func OutArg(port int) KernelArg       { return KernelArg{Kind: ArgOut, Port: port} }
func WorkspaceArg() KernelArg         { return KernelArg{Kind: ArgWorkspace} }
func IntArg(v int64) KernelArg        { return KernelArg{Kind: ArgInt, I: v} }
func FloatArg(v float64) KernelArg    { return KernelArg{Kind: ArgFloat, F: v} }
func DimsArg(dims ...int64) KernelArg { return KernelArg{Kind: ArgDims, Shape: dims} }
func RandomArg() KernelArg            { return KernelArg{Kind: ArgRandom} }
func BoolArg(v bool) KernelArg {
	a := KernelArg{Kind: ArgBool}
	if v {
		a.I = 1
	}
	return a
}

// KernelRule makes a node's kernel, or says why there is none.
type KernelRule struct {
	Make func(*NodeCtx) (Kernel, error)
	None string
}

// KernelOf is a kernel rule.
func KernelOf(f func(*NodeCtx) (Kernel, error)) KernelRule { return KernelRule{Make: f} }

// NoKernel says why an operator has no device code.
func NoKernel(why string) KernelRule { return KernelRule{None: why} }

// PointwiseKernel is the rule of operators that are one expression.
func PointwiseKernel(expr string) KernelRule {
	return KernelOf(func(*NodeCtx) (Kernel, error) { return Kernel{Pointwise: expr}, nil })
}

// NodeCtx is a node whose shapes are all static, as cost and kernel rules see
// it.
type NodeCtx struct {
	Node    *Node
	Version int // the operator's since-version that applies
}

// CostCtx is what a cost rule sees.
type CostCtx = NodeCtx

// NewNodeCtx checks that every tensor of n has a static size and returns the
// context; the error names the tensor and the dim that is not bound.
func NewNodeCtx(n *Node) (*NodeCtx, error) {
	for _, vs := range [][]*Value{n.In, n.Out} {
		for _, v := range vs {
			if v == nil || v.Type.Kind != TensorKind || v.Type.DType == String {
				continue
			}
			if _, err := v.Type.Bytes(); err != nil {
				return nil, n.Errorf("dynamic", "tensor %q: %v", v.Name, err)
			}
		}
	}
	c := &NodeCtx{Node: n}
	if n.Decl != nil {
		c.Version = n.Decl.SinceVersion(n.Version)
	}
	return c, nil
}

// Has reports whether input i is present.
func (c *NodeCtx) Has(i int) bool { return i >= 0 && i < len(c.Node.In) && c.Node.In[i] != nil }

// HasOut reports whether output i is asked for.
func (c *NodeCtx) HasOut(i int) bool { return i < len(c.Node.Out) && c.Node.Out[i] != nil }

// InShape is the static shape of input i, nil if absent or no tensor.
func (c *NodeCtx) InShape(i int) []int64 {
	if !c.Has(i) {
		return nil
	}
	s, _ := c.Node.In[i].Type.Shape.Static()
	return s
}

// OutShape is the static shape of output i, nil if absent or no tensor.
func (c *NodeCtx) OutShape(i int) []int64 {
	if !c.HasOut(i) {
		return nil
	}
	s, _ := c.Node.Out[i].Type.Shape.Static()
	return s
}

// InDType is the element type of input i.
func (c *NodeCtx) InDType(i int) DType {
	if !c.Has(i) {
		return Undefined
	}
	return c.Node.In[i].Type.DType
}

// OutDType is the element type of output i.
func (c *NodeCtx) OutDType(i int) DType {
	if !c.HasOut(i) {
		return Undefined
	}
	return c.Node.Out[i].Type.DType
}

// Elems is the product of dims; the largest number where that overflows, so
// that no bound takes it for a small one.
func Elems(dims []int64) int64 {
	if slices.Contains(dims, 0) {
		return 0
	}
	n, ok := MulSizes(dims...)
	if !ok {
		return math.MaxInt64
	}
	return n
}

// StaticInts is the elements of input i where they are known integers.
func (c *NodeCtx) StaticInts(i int) ([]int64, bool) {
	return (&InferCtx{Node: c.Node}).StaticInts(i)
}

// Traffic is the bytes of all inputs and outputs, each counted once; values
// without a size count nothing.
func (c *NodeCtx) Traffic() (read, write int64) {
	for i, v := range c.Node.In {
		if v == nil || firstUse(c.Node.In, v) != i {
			continue
		}
		if b, err := v.Type.Bytes(); err == nil {
			read += b
		}
	}
	for _, v := range c.Node.Out {
		if v == nil {
			continue
		}
		if b, err := v.Type.Bytes(); err == nil {
			write += b
		}
	}
	return read, write
}

func firstUse(vs []*Value, v *Value) int {
	for i, w := range vs {
		if w == v {
			return i
		}
	}
	return -1
}

// PointwiseCost is the cost rule of operators that do flops operations for
// each element of their first output and read every input once.
func PointwiseCost(flops int64) func(*CostCtx) Cost {
	return func(c *CostCtx) Cost {
		read, write := c.Traffic()
		return Cost{FLOPs: flops * Elems(c.OutShape(0)), Read: read, Write: write, DType: c.OutDType(0)}
	}
}

// MoveCost is the cost rule of operators that only move data: each output
// byte is read once and written once.
func MoveCost(c *CostCtx) Cost {
	_, write := c.Traffic()
	return Cost{Read: write, Write: write, DType: c.OutDType(0)}
}

// ViewCost is the cost rule of operators that move no data.
func ViewCost(*CostCtx) Cost { return Cost{Unit: NoCompute} }

// Errorf is an error located at the node.
func (c *NodeCtx) Errorf(format string, args ...any) error {
	return c.Node.Errorf("kernel", format, args...)
}
