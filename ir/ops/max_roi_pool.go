package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "MaxRoiPool",
	Doc:   "The largest element in each cell of a grid over every region of interest [batch, x1, y1, x2, y2].",
	Since: []int{1, 22},
	In:    ir.Ports("X:T, rois:T"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		x, rois := c.Shape(0), c.Shape(1)
		if x.Ranked && x.Rank() != 4 || rois.Ranked && (rois.Rank() != 2 || rois.Dims[1].Differ(ir.N(5))) {
			return c.Errorf("input %s and regions %s are not [N, C, H, W] and [regions, 5]", x, rois)
		}
		h, w, ok := roiGrid(c.Node)
		if !ok {
			return c.Errorf("pooled_shape must be two positive extents")
		}
		shape := c.FreshShape(4)
		if rois.Ranked {
			shape.Dims[0] = rois.Dims[0]
		}
		if x.Ranked {
			shape.Dims[1] = x.Dims[1]
		}
		shape.Dims[2], shape.Dims[3] = ir.N(h), ir.N(w)
		c.SetTensor(0, c.DType(0), shape)
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		if len(n.Out) == 0 || n.Out[0] == nil || n.Out[0].Type.Shape.Rank() != 4 {
			return ir.AxisMap{}
		}
		return ir.AxisMap{Out: [][]ir.OutAxis{{nil, {{In: 0, Axis: 1}}, nil, nil}}}
	},
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		return ir.Cost{FLOPs: ir.Elems(c.InShape(0)), Read: read, Write: write, DType: c.InDType(0)}
	},
	Grad:      ir.NoGrad("not derived yet: maxima over regions that the data chooses"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x, rois := c.In(0), c.In(1)
		gh, gw, ok := roiGrid(c.Node)
		if !ok || len(x.Dims) != 4 || len(rois.Dims) != 2 || rois.Dims[1] != 5 {
			return c.Errorf("input %v, regions %v and pooled_shape do not fit", x.Dims, rois.Dims)
		}
		in, boxes, scale := x.Floats(), rois.Floats(), float64(c.Node.Float("spatial_scale", 1))
		h, w := x.Dims[2], x.Dims[3]
		var out []float64
		for r := range rois.Dims[0] {
			box := boxes[r*5 : r*5+5]
			b := int64(box[0])
			if b < 0 || b >= x.Dims[0] {
				return c.Errorf("region %d names batch element %d of %d", r, b, x.Dims[0])
			}
			for ch := range x.Dims[1] {
				plane := in[(b*x.Dims[1]+ch)*h*w:][:h*w]
				for cell := range gh * gw {
					y0, y1 := roiCell(box[2]*scale, box[4]*scale, cell/gw, gh, h)
					x0, x1 := roiCell(box[1]*scale, box[3]*scale, cell%gw, gw, w)
					top, empty := math.Inf(-1), true
					for i := y0; i < y1; i++ {
						for j := x0; j < x1; j++ {
							top, empty = max(top, plane[i*w+j]), false
						}
					}
					if empty {
						top = 0
					}
					out = append(out, top)
				}
			}
		}
		c.Set(0, ir.FromFloats(x.DType, out, rois.Dims[0], x.Dims[1], gh, gw))
		return nil
	},
	Kernel: ir.NoKernel("regions of interest have no device code yet"),
	Samples: func() []ir.Sample {
		return []ir.Sample{{Name: "grid", In: []*ir.Tensor{ramp(2, 2, 5, 6), floats([]int64{2, 5}, 0, 0, 0, 3, 4, 1, 1.6, 2, 5, 4)},
			Attrs: []ir.Attr{ir.IntsAttr("pooled_shape", 2, 2)}}}
	},
})

// roiGrid is the number of cells down and across.
func roiGrid(n *ir.Node) (h, w int64, ok bool) {
	s, _ := n.IntList("pooled_shape")
	if len(s) != 2 || s[0] <= 0 || s[1] <= 0 {
		return 0, 0, false
	}
	return s[0], s[1], true
}

// roiCell is the positions [lo, hi) of cell i of n between two rounded, both
// included edges, clipped to the extent (Girshick, "Fast R-CNN", 2015).
func roiCell(from, to float64, i, n, extent int64) (lo, hi int64) {
	first, last := math.Round(from), math.Round(to)
	size := max(last-first+1, 1) / float64(n)
	lo = int64(math.Floor(float64(i)*size) + first)
	hi = int64(math.Ceil(float64(i+1)*size) + first)
	return min(max(lo, 0), extent), min(max(hi, 0), extent)
}
