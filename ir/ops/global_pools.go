package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(globalPool{
	name: "GlobalAveragePool", doc: "The mean of every plane.", since: []int{1, 22},
	reduce: func(_ *ir.Node, plane []float64) float64 {
		sum := 0.0
		for _, v := range plane {
			sum += v
		}
		return sum / float64(len(plane))
	},
	// dx = dy / n, with n elements in a plane.
	grad: ir.GradOf(func(c *ir.GradCtx) error {
		x, dy := c.In(0), c.OutGrad(0)
		if !x.Type.Shape.Ranked {
			return c.Node.Errorf("grad", "the gradient needs the rank of %q", x.Name)
		}
		c.Set(0, c.ExpandLike(c.Mul(dy, inverseCount(c, x, dy)), x))
		return nil
	}),
}.declare())

// inverseCount is 1 / (elements of x for each element of y), in x's type.
func inverseCount(c *ir.GradCtx, x, y *ir.Value) *ir.Value {
	d := x.Type.DType
	if n, ok := ir.Dims(x.Type.Shape.Dims[2:]...).Static(); ok {
		return c.Scalar(d, 1/float64(ir.Elems(n)))
	}
	n := c.Div(c.Op("Size", []*ir.Value{x}), c.Op("Size", []*ir.Value{y}))
	// Through float: the count itself may exceed what half types hold.
	wide := ir.Float
	if d == ir.Double {
		wide = d
	}
	return c.Cast(c.Div(c.Scalar(wide, 1), c.Cast(n, wide)), d)
}

var _ = ir.Register(globalPool{
	name: "GlobalMaxPool", doc: "The largest element of every plane.", since: []int{1, 22}, mode: 1,
	reduce: func(_ *ir.Node, plane []float64) float64 {
		top := math.Inf(-1)
		for _, v := range plane {
			top = max(top, v)
		}
		return top
	},
	// The first of the largest elements takes the gradient.
	grad: ir.GradOf(func(c *ir.GradCtx) error {
		x, dy := c.In(0), c.OutGrad(0)
		if c.Opset() < 11 {
			return c.Node.Errorf("grad", "the gradient needs ScatterElements, which came with opset 11; the model has %d", c.Opset())
		}
		if !x.Type.Shape.Ranked {
			return c.Node.Errorf("grad", "the gradient needs the rank of %q", x.Name)
		}
		size := int64(-1)
		if n, ok := ir.Dims(x.Type.Shape.Dims[2:]...).Static(); ok {
			size = ir.Elems(n) // an empty batch leaves -1 open
		}
		planes := c.Reshape(x, 0, 0, size)
		at := c.Op("ArgMax", []*ir.Value{planes}, ir.IntAttr("axis", 2))
		g := c.Op("ScatterElements", []*ir.Value{c.ZerosLike(planes), at, c.Reshape(dy, 0, 0, 1)}, ir.IntAttr("axis", 2))
		c.Set(0, c.ReshapeLike(g, x))
		return nil
	}),
}.declare())

var _ = ir.Register(globalPool{
	name: "GlobalLpPool", doc: "The p-norm of every plane.", since: []int{1, 2, 22}, mode: 2,
	grad: ir.GradOf(func(c *ir.GradCtx) error {
		c.Set(0, c.Like(c.Mul(normSlope(c), normDirection(c)), c.In(0)))
		return nil
	}),
	reduce: func(n *ir.Node, plane []float64) float64 {
		p, sum := lpPower(n), 0.0
		for _, v := range plane {
			sum += math.Pow(math.Abs(v), p)
		}
		return math.Pow(sum, 1/p)
	},
	attrs: []ir.Attr{ir.IntAttr("p", 3)},
}.declare())
