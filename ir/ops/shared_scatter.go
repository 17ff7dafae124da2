package ops

import "memoc/ir"

// Scattering writes updates into a copy of the data; a reduction says what
// happens where an element is there already.

// scatterReductions are the values of the attribute; the position is the code
// that kernels get.
var scatterReductions = []string{"none", "add", "mul", "max", "min"}

func scatterReduction(n *ir.Node) (code int, ok bool) {
	name := n.Str("reduction", "none")
	for i, r := range scatterReductions {
		if r == name {
			return i, true
		}
	}
	return 0, false
}

// scatterInto is data with updates written at idx (one entry per update).
func scatterInto(data, updates *ir.Tensor, idx []int, reduction int) *ir.Tensor {
	if reduction == 0 {
		from := make([]int, data.Len())
		for i := range from {
			from[i] = i
		}
		for k, i := range idx {
			from[i] = len(from) + k
		}
		return pick(data.DType, data.Dims, from, data, updates)
	}
	out := ir.NewTensor(data.DType, data.Dims...)
	if data.DType.IsFloat() {
		ir.SetFloats(out, scatterReduce(data.Floats(), updates.Floats(), idx, reduction))
	} else {
		ir.SetInts(out, scatterReduce(data.Ints(), updates.Ints(), idx, reduction))
	}
	return out
}

func scatterReduce[E int64 | float64](data, updates []E, idx []int, reduction int) []E {
	out := append([]E{}, data...)
	for k, i := range idx {
		u := updates[k]
		switch scatterReductions[reduction] {
		case "add":
			out[i] += u
		case "mul":
			out[i] *= u
		case "max":
			out[i] = max(out[i], u)
		case "min":
			out[i] = min(out[i], u)
		}
	}
	return out
}

// scatterInfer: the output is like the data.
func scatterInfer(c *ir.InferCtx) error {
	if _, ok := scatterReduction(c.Node); !ok {
		return c.Errorf("reduction %q is none of %v", c.Node.Str("reduction", ""), scatterReductions)
	}
	if a, b := c.DType(0), c.DType(2); a != b && a != ir.Undefined && b != ir.Undefined {
		return c.Errorf("data is of type %s and updates of type %s", a, b)
	}
	c.SetTensor(0, c.DType(0), c.Shape(0))
	return nil
}

// scatterCost reads and writes the data once, and adds the updates.
func scatterCost(c *ir.CostCtx) ir.Cost {
	_, write := c.Traffic()
	cost := ir.Cost{Read: write, Write: write, DType: c.OutDType(0)}
	if code, _ := scatterReduction(c.Node); code != 0 {
		cost.FLOPs = ir.Elems(c.InShape(2))
	}
	return cost
}

// scatterGrad is the gradient of both scattering operators; take picks the
// positions of the updates out of a tensor like the data, clear zeroes them.
func scatterGrad(c *ir.GradCtx, take, clear func(dy *ir.Value) *ir.Value) error {
	dy := c.OutGrad(0)
	if dy == nil {
		return nil
	}
	code, _ := scatterReduction(c.Node)
	if code > 1 {
		return c.Node.Errorf("grad", "the gradient with reduction %q is not derived yet", scatterReductions[code])
	}
	if c.Needs(0) {
		g := dy
		if code == 0 {
			g = clear(dy)
		}
		c.Set(0, c.Like(g, c.In(0)))
	}
	if c.Needs(2) {
		c.Set(2, c.Like(take(dy), c.In(2)))
	}
	return nil
}

const scatterCombineCUDA = `
template <class A> MEMOC_FN A scatter_combine(int64_t reduction, A a, A u) {
  switch (reduction) {
    case 1: return A(a + u);
    case 2: return A(a * u);
    case 3: return m::max(a, u);
    case 4: return m::min(a, u);
  }
  return u;
}`
