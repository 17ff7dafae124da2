package ops

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"memoc/ir"
)

// recorder stands for a test whose failures are wanted.
type recorder struct {
	testing.TB
	errs []string
}

type fatal struct{}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Errorf(format string, args ...any) {
	r.errs = append(r.errs, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(fatal{})
}

// complaints runs a check over all samples of an operator.
func complaints(check func(t testing.TB, op *ir.Op, s ir.Sample), op *ir.Op) string {
	r := &recorder{}
	for _, s := range op.Samples() {
		func() {
			defer func() {
				if e := recover(); e != nil && e != (fatal{}) {
					panic(e)
				}
			}()
			check(r, op, s)
		}()
	}
	return strings.Join(r.errs, "\n")
}

// broken is a copy of a registered operator with a fault.
func broken(name ir.OpName, fault func(op *ir.Op)) *ir.Op {
	op := *ir.Lookup("", name)
	fault(&op)
	return &op
}

// otherInner claims that the links of one form have groups of one position.
func otherInner(rel ir.AxisRel) func(*ir.Node) ir.AxisMap {
	return func(n *ir.Node) ir.AxisMap {
		m := regroupAxes(n)
		for _, axes := range m.Out {
			for _, links := range axes {
				for i := range links {
					if links[i].Rel == rel {
						links[i].Inner = 1
					}
				}
			}
		}
		return m
	}
}

// TestDriverFindsFaults plants a fault of each kind and expects the check that
// is there for it to say so.
func TestDriverFindsFaults(t *testing.T) {
	type checkFunc = func(t testing.TB, op *ir.Op, s ir.Sample)
	// gradient replaces the rule of the first input.
	gradient := func(dx func(c *ir.GradCtx, dy *ir.Value) *ir.Value) func(op *ir.Op) {
		return func(op *ir.Op) { op.Grad = gradOfInput0(dx) }
	}
	for _, tc := range []struct {
		fault string
		check checkFunc
		op    *ir.Op
		want  string
	}{
		{"a wrong shape", inferSample, broken("Transpose", func(op *ir.Op) { op.Infer = sameTypeInfer }), "inferred"},
		{"a wrong element type", inferSample, broken("Greater", func(op *ir.Op) { op.Infer = binaryInfer }), "inferred"},
		{"a symbol that is not there", inferSample, broken("Concat", func(op *ir.Op) {
			op.Infer = func(c *ir.InferCtx) error {
				err := ir.Lookup("", "Concat").Infer(c)
				if _, static := c.Shape(0).Static(); !static {
					c.SetTensor(0, c.DType(0), c.Shape(0)) // forgets the other inputs
				}
				return err
			}
		}), "a symbol for each"},
		{"wrong known elements", inferSample, broken("Add", func(op *ir.Op) {
			op.Infer = func(c *ir.InferCtx) error {
				err := binaryInfer(c)
				if ds, ok := c.Ints(0); ok {
					c.SetInts(0, ds)
				}
				return err
			}
		}), "inferred as"},
		{"a panic on a bad axis", inferSample, broken("Softmax", func(op *ir.Op) {
			op.Infer = func(c *ir.InferCtx) error {
				s := c.Shape(0)
				if axis := c.Node.Int("axis", 0); s.Ranked && axis > 0 {
					_ = s.Dims[axis]
				}
				return sameTypeInfer(c)
			}
		}), "panic"},
		{"an axis that does not follow", axesSample, broken("Softmax", func(op *ir.Op) { op.Axes = ir.FollowAll }), "depend on more"},
		{"a window that is too short", axesSample, broken("CumSum", func(op *ir.Op) { op.Axes = followFirst }), "depend on more"},
		{"positions that a slice would count from its own start", axesSample, broken("Trilu", func(op *ir.Op) { op.Axes = followFirst }), "is not the output of the slices"},
		{"a merge of smaller groups", axesSample, broken("Reshape", func(op *ir.Op) { op.Axes = otherInner(ir.Merge) }), "depend on more"},
		{"a split of smaller groups", axesSample, broken("Reshape", func(op *ir.Op) { op.Axes = otherInner(ir.Split) }), "depend on more"},
		{"a mean taken for a sum", axesSample, broken("ReduceMean", func(op *ir.Op) { op.Axes = ir.Lookup("", "ReduceSum").Axes }), "sum over"},
		{"a gradient with the wrong sign", gradSample, broken("Cos", gradient(func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			return c.Mul(dy, c.Op("Sin", []*ir.Value{c.In(0)}))
		})), "gradient of input 0"},
		{"a gradient that is not there", gradSample, broken("Exp", func(op *ir.Op) { op.Grad = zeroGrad }), "gradient of input 0"},
		{"a broadcast that is not undone", gradSample, broken("Add", func(op *ir.Op) {
			op.Grad = ir.GradOf(func(c *ir.GradCtx) error {
				c.Set(0, c.OutGrad(0))
				c.Set(1, c.OutGrad(0))
				return nil
			})
		}), "the gradient of input 1 is"},
		{"a gradient in another type", gradSample, broken("Neg", gradient(func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			return c.Neg(c.Cast(dy, ir.Double))
		})), "the gradient of input 0 is"},
		{"a gradient that is right for static shapes alone", gradSample, broken("Neg", gradient(func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			if _, static := dy.Type.Shape.Static(); !static {
				return dy
			}
			return c.Neg(dy)
		})), "a symbol for each"},
		{"randomness called pure", evalSample, broken("RandomUniform", func(op *ir.Op) { op.Recompute = ir.Pure }), "pure"},
		{"negative bytes", costSample, broken("Add", func(op *ir.Op) {
			op.Cost = func(*ir.CostCtx) ir.Cost { return ir.Cost{Read: -1} }
		}), "negative"},
		{"fewer bytes than the output has", costSample, broken("Add", func(op *ir.Op) {
			op.Cost = func(*ir.CostCtx) ir.Cost { return ir.Cost{} }
		}), "writes 0"},
		{"a view that moves data", aliasSample, broken("Neg", func(op *ir.Op) {
			op.View = func(*ir.Node, int) int { return 0 }
		}), "other bytes"},
	} {
		if got := complaints(tc.check, tc.op); !strings.Contains(got, tc.want) {
			t.Errorf("%s: the driver says %q, want something with %q", tc.fault, got, tc.want)
		}
	}
}

// TestDriverFindsKernelFaults compiles kernels that are wrong, that write over
// an input they still read, that change an input, and that crash.
func TestDriverFindsKernelFaults(t *testing.T) {
	if *opsFlag != "" {
		t.Skip("looks at the driver, not at -ops")
	}
	gxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("needs g++")
	}
	function := func(name, body string) ir.KernelRule {
		return ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
			return ir.Kernel{Func: name, Source: "template <class T> void " + name + "(Stream& s, const T* x, T* y, int64_t n) { " + body + " }",
				Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{ir.InArg(0), ir.OutArg(0), ir.IntArg(ir.Elems(c.OutShape(0)))}}, nil
		})
	}
	loop := func(body string) string {
		return "parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) { " + body + " });"
	}
	for _, tc := range []struct {
		fault  string
		kernel ir.KernelRule
		want   string
	}{
		{"wrong values", ir.PointwiseKernel("x0"), "output 0"},
		{"reads after it wrote", function("fault_alias", loop("y[i] = -x[i]; if (i == n - 1) y[0] = -x[0];")), "output 0"},
		{"writes behind the output", function("fault_behind", loop("y[i] = -x[i]; y[n] = T(7);")), "behind output 0"},
		{"changes an input", function("fault_input", loop("y[i] = -x[i]; const_cast<T*>(x)[i] = T(3);")), "changes input 0"},
		{"crashes", function("fault_crash", loop("*(volatile int*)nullptr = 1;")), "crash"},
	} {
		op := broken("Neg", func(op *ir.Op) { op.Kernel = tc.kernel })
		p, r := &program{}, &recorder{}
		s := ir.Sample{Name: "one", In: []*ir.Tensor{floats([]int64{3}, 1, 2, 3)}}
		p.addNode(r, op, s, "fault")
		dir := t.TempDir()
		exe, err := p.compile(gxx, dir)
		if err != nil {
			t.Fatalf("%s: %v", tc.fault, err)
		}
		crashed := p.execute(r, exe, dir)
		for i, run := range p.runs {
			if crashed[i] {
				r.Errorf("crash")
				continue
			}
			run.check(r, p.arena, p.before)
		}
		if got := strings.Join(r.errs, "\n"); !strings.Contains(got, tc.want) {
			t.Errorf("%s: the driver says %q, want something with %q", tc.fault, got, tc.want)
		}
	}
}
