package ops

import (
	"math"

	"memoc/ir"
)

// lu reduces the n x n matrix a to upper triangular form by rows, with
// pivots, and applies the same steps to the rows of b (n x m; nil for none).
// It returns the determinant.
func lu(a, b []float64, n, m int) float64 {
	det := 1.0
	for k := range n {
		pivot := k
		for r := k + 1; r < n; r++ {
			if math.Abs(a[r*n+k]) > math.Abs(a[pivot*n+k]) {
				pivot = r
			}
		}
		if a[pivot*n+k] == 0 {
			return 0
		}
		if pivot != k {
			det = -det
			swapRows(a, n, k, pivot)
			swapRows(b, m, k, pivot)
		}
		det *= a[k*n+k]
		for r := k + 1; r < n; r++ {
			f := a[r*n+k] / a[k*n+k]
			for j := k; j < n; j++ {
				a[r*n+j] -= f * a[k*n+j]
			}
			for j := range m {
				b[r*m+j] -= f * b[k*m+j]
			}
		}
	}
	return det
}

func swapRows(a []float64, n, r, s int) {
	for j := range n {
		a[r*n+j], a[s*n+j] = a[s*n+j], a[r*n+j]
	}
}

// inverse of an n x n matrix; ok is false for a singular one.
func inverse(a []float64, n int) (b []float64, ok bool) {
	a = append([]float64{}, a...)
	b = make([]float64, n*n)
	for i := range n {
		b[i*n+i] = 1
	}
	if lu(a, b, n, n) == 0 {
		return nil, false
	}
	for k := n - 1; k >= 0; k-- {
		for j := range n {
			for i := k + 1; i < n; i++ {
				b[k*n+j] -= a[k*n+i] * b[i*n+j]
			}
			b[k*n+j] /= a[k*n+k]
		}
	}
	return b, true
}

// squareInfer checks [.., n, n] and returns the batch.
func squareInfer(c *ir.InferCtx) (batch ir.Shape, err error) {
	x := c.Shape(0)
	if !x.Ranked {
		return ir.Shape{}, nil
	}
	r := x.Rank()
	if r < 2 || x.Dims[r-1].Differ(x.Dims[r-2]) {
		return ir.Shape{}, c.Errorf("input %s holds no square matrices", x)
	}
	return ir.Dims(x.Dims[:r-2]...), nil
}

// squareAxes: batch axes follow.
func squareAxes(n *ir.Node) ir.AxisMap {
	if len(n.Out) == 0 || n.Out[0] == nil || !n.In[0].Type.Shape.Ranked || !n.Out[0].Type.Shape.Ranked {
		return ir.AxisMap{}
	}
	axes := make([]ir.OutAxis, n.Out[0].Type.Shape.Rank())
	for a := range n.In[0].Type.Shape.Rank() - 2 {
		axes[a] = ir.OutAxis{{In: 0, Axis: a}}
	}
	return ir.AxisMap{Out: [][]ir.OutAxis{axes}}
}

// cubicCost: n^3 operations for each matrix.
func cubicCost(c *ir.CostCtx) ir.Cost {
	read, write := c.Traffic()
	x := c.InShape(0)
	return ir.Cost{FLOPs: ir.Elems(x) * x[len(x)-1], Read: read, Write: write, DType: c.InDType(0)}
}

// matrices calls f for every matrix of x [.., n, n].
func matrices(c *ir.EvalCtx, f func(a []float64, n int) error) error {
	x := c.In(0)
	r := len(x.Dims)
	if r < 2 || x.Dims[r-1] != x.Dims[r-2] {
		return c.Errorf("input %v holds no square matrices", x.Dims)
	}
	n := int(x.Dims[r-1])
	vals := x.Floats()
	for i := range int(ir.Elems(x.Dims[:r-2])) {
		if err := f(vals[i*n*n:(i+1)*n*n], n); err != nil {
			return err
		}
	}
	return nil
}
