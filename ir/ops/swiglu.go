package ops

import (
	"fmt"
	"math"
	"strconv"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "SwiGLU",
	Doc:   "A sigmoid(alpha A) B: the gated activation of two tensors of one shape.",
	Since: []int{28},
	In:    ir.Ports("A:T, B:T"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		a, b := c.Shape(0), c.Shape(1)
		if a.Ranked && b.Ranked && a.Rank() != b.Rank() {
			return c.Errorf("shapes %s and %s differ; nothing is broadcast here", a, b)
		}
		dims := append([]ir.Dim{}, a.Dims...)
		for i := range dims {
			if !b.Ranked {
				break
			}
			if dims[i].Differ(b.Dims[i]) {
				return c.Errorf("shapes %s and %s differ; nothing is broadcast here", a, b)
			}
			if _, isInt := dims[i].Int(); !isInt {
				dims[i] = b.Dims[i]
			}
		}
		if c.DType(1) != c.DType(0) && c.DType(1) != ir.Undefined && c.DType(0) != ir.Undefined {
			return c.Errorf("operands are of different types %s and %s", c.DType(0), c.DType(1))
		}
		switch {
		case a.Ranked:
			c.SetTensor(0, c.DType(0), ir.Dims(dims...))
		default:
			c.SetTensor(0, c.DType(0), b)
		}
		return nil
	},
	Axes: ir.FollowAll,
	Cost: ir.PointwiseCost(6),
	// With s = sigmoid(alpha a): dB = dY a s, dA = dY b (s + alpha a s (1 - s)).
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		a, b, dy := c.In(0), c.In(1), c.OutGrad(0)
		alpha := float64(c.Node.Float("alpha", 1))
		s := c.Op("Sigmoid", []*ir.Value{c.MulScalar(a, alpha)})
		as := c.Mul(a, s)
		if c.Needs(0) {
			slope := c.Mul(c.MulScalar(as, alpha), c.AddScalar(c.Neg(s), 1))
			c.Set(0, c.Like(c.Mul(c.Mul(dy, b), c.Add(s, slope)), a))
		}
		if c.Needs(1) {
			c.Set(1, c.Like(c.Mul(dy, as), b))
		}
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		if !equalInts(c.In(0).Dims, c.In(1).Dims) {
			return c.Errorf("shapes %v and %v differ; nothing is broadcast here", c.In(0).Dims, c.In(1).Dims)
		}
		alpha := float64(c.Node.Float("alpha", 1))
		return broadcastEval(c, c.In(0).DType, func(x []float64) float64 { return x[0] / (1 + math.Exp(-alpha*x[0])) * x[1] })
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		alpha := strconv.FormatFloat(float64(c.Node.Float("alpha", 1)), 'e', -1, 64)
		return ir.Kernel{Pointwise: fmt.Sprintf("x0 * m::sigmoid(acc_t(%s) * x0) * x1", alpha)}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}, {In: 1, Out: 0}},
	Samples: func() []ir.Sample {
		a, b := ramp(2, 3), floats([]int64{2, 3}, 1, -2, 0.5, 3, -1, 0.25)
		return []ir.Sample{{Name: "plain", In: []*ir.Tensor{a, b}}, {Name: "alpha", In: []*ir.Tensor{a, b}, Attrs: []ir.Attr{ir.FloatAttr("alpha", 1.75)}}}
	},
})
