package ops

import (
	"slices"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "NonMaxSuppression",
	Doc:   "The boxes [batch, class, box] that remain when every box that overlaps a better one too much is dropped.",
	Since: []int{10, 11},
	In: ir.Ports("boxes:tensor(float), scores:tensor(float), max_output_boxes_per_class:tensor(int64)?, iou_threshold:tensor(float)?, " +
		"score_threshold:tensor(float)?"),
	Out:   ir.Ports("selected_indices:I"),
	Types: map[string]ir.DTypeSet{"I": ir.SetOf(ir.Int64)},
	Infer: func(c *ir.InferCtx) error {
		boxes, scores := c.Shape(0), c.Shape(1)
		if boxes.Ranked && (boxes.Rank() != 3 || boxes.Dims[2].Differ(ir.N(4))) || scores.Ranked && scores.Rank() != 3 {
			return c.Errorf("boxes %s and scores %s are not [batch, boxes, 4] and [batch, classes, boxes]", boxes, scores)
		}
		c.SetTensor(0, ir.Int64, ir.Dims(c.FreshDim(), ir.N(3))) // how many remain depends on the data
		return nil
	},
	Axes: ir.NoAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		return ir.Cost{FLOPs: 16 * ir.Elems(c.InShape(1)), Read: read, Write: write, DType: ir.Float}
	},
	Grad:      ir.NoGrad("integer result"),
	Recompute: ir.Never("an integer decision: it is kept"),
	Eval:      nonMaxSuppressionEval,
	Kernel:    ir.NoKernel("how many boxes remain depends on the data"),
	Samples: func() []ir.Sample {
		f := func(dims []int64, v ...float64) *ir.Tensor { return ir.FromFloats(ir.Float, v, dims...) }
		boxes := f([]int64{1, 4, 4}, 0, 0, 1, 1, 0, 0.1, 1, 1.1, 0, -0.1, 1, 0.9, 0, 10, 1, 11)
		scores := f([]int64{1, 1, 4}, 0.9, 0.75, 0.6, 0.95)
		three := ir.FromInts(ir.Int64, []int64{3}, 1)
		return []ir.Sample{
			{Name: "overlap", In: []*ir.Tensor{boxes, scores, three, f([]int64{1}, 0.5), f([]int64{1}, 0)},
				Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{0, 0, 3, 0, 0, 0}, 2, 3)}},
			{Name: "none asked for", In: []*ir.Tensor{boxes, scores}, Want: []*ir.Tensor{ir.NewTensor(ir.Int64, 0, 3)}},
			{Name: "centres", In: []*ir.Tensor{boxes, scores, three, f([]int64{1}, 0.5)}, Attrs: []ir.Attr{ir.IntAttr("center_point_box", 1)}},
		}
	},
})

func nonMaxSuppressionEval(c *ir.EvalCtx) error {
	boxes, scores := c.In(0), c.In(1)
	if len(boxes.Dims) != 3 || boxes.Dims[2] != 4 || len(scores.Dims) != 3 || scores.Dims[0] != boxes.Dims[0] || scores.Dims[2] != boxes.Dims[1] {
		return c.Errorf("boxes %v and scores %v do not fit", boxes.Dims, scores.Dims)
	}
	limit, iou := int64(0), 0.0
	if c.Has(2) {
		limit = c.In(2).Ints()[0]
	}
	if c.Has(3) {
		iou = c.In(3).Floats()[0]
	}
	center := c.Node.Int("center_point_box", 0) != 0
	n, classes := boxes.Dims[1], scores.Dims[1]
	all, allScores := boxes.Floats(), scores.Floats()
	out := []int64{}
	for b := range boxes.Dims[0] {
		corners := make([][4]float64, n)
		for i := range corners {
			corners[i] = boxCorners(all[(b*n+int64(i))*4:][:4], center)
		}
		for class := range classes {
			s := allScores[(b*classes+class)*n:][:n]
			order := []int64{}
			for i := range n {
				if !c.Has(4) || s[i] > c.In(4).Floats()[0] {
					order = append(order, i)
				}
			}
			slices.SortStableFunc(order, func(i, j int64) int {
				switch {
				case s[i] > s[j]:
					return -1
				case s[i] < s[j]:
					return 1
				}
				return 0
			})
			var kept []int64
			for _, i := range order {
				if int64(len(kept)) >= limit {
					break
				}
				if !slices.ContainsFunc(kept, func(k int64) bool { return overlap(corners[i], corners[k]) > iou }) {
					kept = append(kept, i)
					out = append(out, b, class, i)
				}
			}
		}
	}
	c.Set(0, ir.FromInts(ir.Int64, out, int64(len(out)/3), 3))
	return nil
}

// boxCorners is [y1, x1, y2, x2] in order, from corners or from centre and
// size [x, y, width, height].
func boxCorners(b []float64, center bool) [4]float64 {
	if center {
		return [4]float64{b[1] - b[3]/2, b[0] - b[2]/2, b[1] + b[3]/2, b[0] + b[2]/2}
	}
	return [4]float64{min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3])}
}

// overlap is the area two boxes share over the area they cover.
func overlap(a, b [4]float64) float64 {
	h, w := min(a[2], b[2])-max(a[0], b[0]), min(a[3], b[3])-max(a[1], b[1])
	if h <= 0 || w <= 0 {
		return 0
	}
	area := func(x [4]float64) float64 { return (x[2] - x[0]) * (x[3] - x[1]) }
	return h * w / (area(a) + area(b) - h*w)
}
