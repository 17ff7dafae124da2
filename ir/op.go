package ir

import (
	"fmt"
	"slices"
	"strings"
)

// Op is the declaration of one operator: everything the compiler knows of it.
// One file of ir/ops holds one declaration; Register refuses it if a
// mandatory field is missing, so "no gradient" and "never recompute" are
// values with a reason, never an absence.
type Op struct {
	Domain string
	Name   OpName
	Doc    string // one sentence

	// Since lists the opset versions that changed the operator, ascending. A
	// node of version v follows the largest entry <= v.
	Since []int

	In, Out []Port

	// Types binds each type variable of the ports to a set.
	Types map[string]DTypeSet

	// Infer sets the type of every present output (and its Ints where they
	// follow), or returns a located error.
	Infer func(*InferCtx) error

	// Axes says how output axes relate to input axes; see AxisMap.
	Axes func(*Node) AxisMap

	// Cost counts what the node does; shapes are static when it is called.
	Cost func(*CostCtx) Cost

	// Grad builds the backward nodes, or says why there are none.
	Grad Grad

	// Recompute says whether a clone of the node gives the same values.
	Recompute Recompute

	// Eval computes the outputs: the reference that every other execution is
	// held against.
	Eval func(*EvalCtx) error

	// Kernel is the device code as data, or says why there is none.
	Kernel KernelRule

	// InPlace lists which output may overwrite which input. Optional.
	InPlace []Alias

	// View says which input an output shares its bytes with (-1: none), for
	// operators that move no data. Optional.
	View func(n *Node, out int) (in int)

	// Function writes a node of the operator as a model-local function of
	// standard operators with the same values, for operators that stock
	// runtimes do not know. The function is made for the element types, ranks,
	// attributes and present inputs of this node, which its Overload spells;
	// nodes that agree in them share it. It works for any dims. Optional.
	Function func(n *Node) (*Function, error)

	// Samples drive every generic test of the operator; at least one.
	Samples func() []Sample
}

// Port is a formal input or output.
type Port struct {
	Name     string
	Type     string // a type variable, or a type such as "tensor(int64)"
	Optional bool
	Variadic bool // last port only
}

// Ports parses "X:T, scale:T, bias:T?, rest:T*" (? optional, * variadic).
func Ports(s string) []Port {
	if s == "" {
		return nil
	}
	var out []Port
	for _, f := range strings.Split(s, ",") {
		name, typ, _ := strings.Cut(strings.TrimSpace(f), ":")
		p := Port{Name: name}
		if strings.HasSuffix(typ, "?") {
			p.Optional = true
		}
		if strings.HasSuffix(typ, "*") {
			p.Variadic = true
		}
		p.Type = strings.TrimRight(typ, "?*")
		out = append(out, p)
	}
	return out
}

// Alias lets output Out overwrite input In when that input dies at the node
// and both have the same size. The kernel must read an element before it
// writes that element and never later.
type Alias struct{ In, Out int }

// Recompute is whether cloning a node is sound.
type Recompute struct {
	pure bool
	why  string
}

// Pure marks operators that are functions of their inputs and attributes.
var Pure = Recompute{pure: true}

// Never marks operators that must not be cloned (random, stateful, unknown,
// integer decisions), with the reason that reports show.
func Never(why string) Recompute { return Recompute{why: why} }

// OK reports whether a clone is sound; why is the reason if not.
func (r Recompute) OK() (ok bool, why string) { return r.pure, r.why }

// Grad is how an operator is differentiated.
type Grad struct {
	Rule func(*GradCtx) error
	None string // the reason, where Rule is nil
}

// notDerived starts the reason of operators whose gradient exists but that
// memoc does not derive: a path through them is refused. Every other reason
// says that the gradient is zero, and cuts the path.
const notDerived = "not derived"

// IsCut reports whether a NoGrad reason means that no gradient flows (integer
// results, piecewise constants), as opposed to one that is merely missing.
func IsCut(none string) bool { return none != "" && !strings.HasPrefix(none, notDerived) }

// GradOf is a gradient rule.
func GradOf(rule func(*GradCtx) error) Grad { return Grad{Rule: rule} }

// NoGrad says why an operator has no gradient: it either never lies on a
// differentiable path ("integer result") or refuses ("not derived yet").
func NoGrad(why string) Grad { return Grad{None: why} }

// Cost is what one execution of a node takes, for the roofline of
// passes/cost. Bytes count each operand once.
type Cost struct {
	FLOPs     int64
	Forward   int64 // of FLOPs what the forward pass alone needs, where the node makes gradients too; 0: all
	Dense     int64 // FLOPs if every query of an attention saw every key; 0: as FLOPs
	Read      int64 // bytes
	Write     int64 // bytes
	Workspace int64 // bytes of scratch memory alive during the node alone
	Unit      Unit  // which rate bounds the FLOPs
	DType     DType // type the FLOPs are done in
}

// Unit is the part of a device that does the arithmetic.
type Unit uint8

// The units of a device profile.
const (
	Vector    Unit = iota // pointwise and reductions
	Matrix                // GEMM and convolution
	AttnFwd               // fused attention forward
	AttnBwd               // fused attention backward
	NoCompute             // views and metadata: no launch at all
)

var registry = map[string]*Op{}

func key(domain string, name OpName) string { return domain + "\x00" + name }

// Register adds an operator. It panics naming operator and field if a
// mandatory field is missing, or if the operator is there already.
func Register(op Op) *Op {
	if missing := op.missing(); missing != "" {
		panic(fmt.Sprintf("BUG: operator %s lacks %s", FullOp(op.Domain, op.Name), missing))
	}
	k := key(op.Domain, op.Name)
	if registry[k] != nil {
		panic(fmt.Sprintf("BUG: operator %s is registered twice", FullOp(op.Domain, op.Name)))
	}
	registry[k] = &op
	return &op
}

func (op *Op) missing() string {
	hasRecompute, why := op.Recompute.OK()
	switch {
	case op.Name == "":
		return "Name"
	case op.Doc == "":
		return "Doc"
	case len(op.Since) == 0 || !slices.IsSorted(op.Since):
		return "Since (ascending)"
	case op.Infer == nil:
		return "Infer"
	case op.Axes == nil:
		return "Axes"
	case op.Cost == nil:
		return "Cost"
	case op.Grad.Rule == nil && op.Grad.None == "":
		return "Grad or NoGrad(why)"
	case !hasRecompute && why == "":
		return "Recompute"
	case op.Eval == nil:
		return "Eval"
	case op.Kernel.Make == nil && op.Kernel.None == "":
		return "Kernel or NoKernel(why)"
	case op.Samples == nil:
		return "Samples"
	}
	return ""
}

// Lookup finds an operator, nil if it is unknown. "ai.onnx" is the default
// domain.
func Lookup(domain string, name OpName) *Op {
	if domain == "ai.onnx" {
		domain = ""
	}
	return registry[key(domain, name)]
}

// Operators lists all operators, sorted by domain and name.
func Operators() []*Op {
	out := make([]*Op, 0, len(registry))
	for _, op := range registry {
		out = append(out, op)
	}
	slices.SortFunc(out, func(a, b *Op) int { return strings.Compare(key(a.Domain, a.Name), key(b.Domain, b.Name)) })
	return out
}

// Younger reports whether the operator came after the given opset version (0:
// not known). Tools that fuse operators write such nodes; they follow the
// first version there is.
func (op *Op) Younger(opset int) bool { return opset > 0 && opset < op.Since[0] }

// SinceVersion is the entry of Since that a node of the given opset version
// follows, the first one for an opset before it.
func (op *Op) SinceVersion(opset int) int {
	v := op.Since[0]
	for _, s := range op.Since {
		if s <= opset {
			v = s
		}
	}
	return v
}

// Sample is one concrete node for the generic tests: evaluation, cost, axes,
// gradient by central differences, kernel.
type Sample struct {
	Name    string
	Version int // opset version of the operator's domain; 0: the newest known
	In      []*Tensor
	Absent  []int // positions in In that are absent optional inputs ("" in ONNX)
	// Seqs are inputs that are sequences of tensors, by position; In is nil there.
	Seqs   map[int]Sequence
	NumOut int // outputs asked for; 0: all mandatory ones
	Attrs  []Attr
	Want   []*Tensor // expected outputs from an independent source; optional
	// NoGradCheck lists inputs whose gradient is not compared with central
	// differences (points of non-differentiability), with the reason.
	NoGradCheck map[int]string
}
