package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "RoiAlign",
	Doc:   "Pools every region of interest [x1, y1, x2, y2] of a batch element to a fixed grid by sampling points in each cell.",
	Since: []int{10, 16, 22},
	In:    ir.Ports("X:T, rois:T, batch_indices:I"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "I": ir.SetOf(ir.Int64)},
	Infer: func(c *ir.InferCtx) error {
		x, rois, idx := c.Shape(0), c.Shape(1), c.Shape(2)
		if x.Ranked && x.Rank() != 4 || rois.Ranked && (rois.Rank() != 2 || rois.Dims[1].Differ(ir.N(4))) || idx.Ranked && idx.Rank() != 1 {
			return c.Errorf("input %s, regions %s and batch indices %s do not fit", x, rois, idx)
		}
		r, err := roiAlignOf(c.Node, c.Version)
		if err != nil {
			return err
		}
		shape := c.FreshShape(4)
		for _, s := range []ir.Shape{rois, idx} { // both count the regions; a number says more than a symbol
			if !s.Ranked {
				continue
			}
			if _, isInt := shape.Dims[0].Int(); !isInt {
				shape.Dims[0] = s.Dims[0]
			} else if s.Dims[0].Differ(shape.Dims[0]) {
				return c.Errorf("regions %s and batch indices %s do not fit", rois, idx)
			}
		}
		if x.Ranked {
			shape.Dims[1] = x.Dims[1]
		}
		shape.Dims[2], shape.Dims[3] = ir.N(r.height), ir.N(r.width)
		c.SetTensor(0, c.DType(0), shape)
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		if len(n.Out) == 0 || n.Out[0] == nil || n.Out[0].Type.Shape.Rank() != 4 {
			return ir.AxisMap{}
		}
		return ir.AxisMap{Out: [][]ir.OutAxis{{{{In: 1, Axis: 0}, {In: 2, Axis: 0}}, {{In: 0, Axis: 1}}, nil, nil}}}
	},
	Cost:      ir.PointwiseCost(64),
	Grad:      ir.NoGrad("not derived yet: interpolation at computed positions"),
	Recompute: ir.Pure,
	Eval:      roiAlignEval,
	Kernel:    ir.NoKernel("regions of interest have no device code yet"),
	Samples: func() []ir.Sample {
		x := ramp(2, 2, 5, 6)
		rois := floats([]int64{3, 4}, 0, 0, 4, 4, 1.5, 1, 3, 4.5, -1, 2, 6, 5)
		idx := ir.FromInts(ir.Int64, []int64{0, 1, 0}, 3)
		size := []ir.Attr{ir.IntAttr("output_height", 2), ir.IntAttr("output_width", 3)}
		return []ir.Sample{
			{Name: "half pixel", In: []*ir.Tensor{x, rois, idx}, Attrs: append([]ir.Attr{ir.IntAttr("sampling_ratio", 2)}, size...)},
			{Name: "old, scaled", Version: 10, In: []*ir.Tensor{x, rois, idx}, Attrs: append([]ir.Attr{ir.FloatAttr("spatial_scale", 0.5)}, size...)},
			{Name: "max", In: []*ir.Tensor{x, rois, idx}, Attrs: append([]ir.Attr{ir.StringAttr("mode", "max"),
				ir.StringAttr("coordinate_transformation_mode", "output_half_pixel")}, size...)},
		}
	},
})

type roiAlign struct {
	height, width, ratio int64
	scale, shift         float64 // shift is half a pixel where pixels are areas
	max                  bool
}

func roiAlignOf(n *ir.Node, since int) (roiAlign, error) {
	r := roiAlign{height: n.Int("output_height", 1), width: n.Int("output_width", 1), ratio: n.Int("sampling_ratio", 0),
		scale: float64(n.Float("spatial_scale", 1))}
	mode := "half_pixel"
	if since < 16 {
		mode = "output_half_pixel"
	}
	switch mode = n.Str("coordinate_transformation_mode", mode); mode {
	case "half_pixel":
		r.shift = 0.5
	case "output_half_pixel":
	default:
		return r, n.Errorf("shape", "unknown coordinate_transformation_mode %q", mode)
	}
	switch mode = n.Str("mode", "avg"); mode {
	case "avg":
	case "max":
		r.max = true
	default:
		return r, n.Errorf("shape", "unknown mode %q", mode)
	}
	if r.height <= 0 || r.width <= 0 || r.ratio < 0 {
		return r, n.Errorf("shape", "output of %d x %d by %d samples", r.height, r.width, r.ratio)
	}
	return r, nil
}

func roiAlignEval(c *ir.EvalCtx) error {
	x, rois, idx := c.In(0), c.In(1), c.In(2).Ints()
	r, err := roiAlignOf(c.Node, c.Version)
	if err != nil {
		return err
	}
	if len(x.Dims) != 4 || len(rois.Dims) != 2 || rois.Dims[1] != 4 || rois.Dims[0] != int64(len(idx)) {
		return c.Errorf("input %v and regions %v do not fit", x.Dims, rois.Dims)
	}
	in, boxes := x.Floats(), rois.Floats()
	plane := x.Dims[2] * x.Dims[3]
	var out []float64
	for k, b := range idx {
		if b < 0 || b >= x.Dims[0] {
			return c.Errorf("batch index %d of %d", b, x.Dims[0])
		}
		for ch := range x.Dims[1] {
			out = append(out, r.pool(in[(b*x.Dims[1]+ch)*plane:][:plane], x.Dims[2], x.Dims[3], boxes[4*k:4*k+4])...)
		}
	}
	c.Set(0, ir.FromFloats(x.DType, out, int64(len(idx)), x.Dims[1], r.height, r.width))
	return nil
}

// pool is the grid of one region in one plane.
func (r roiAlign) pool(data []float64, h, w int64, box []float64) []float64 {
	x0, y0 := box[0]*r.scale-r.shift, box[1]*r.scale-r.shift
	width, height := box[2]*r.scale-r.shift-x0, box[3]*r.scale-r.shift-y0
	if r.shift == 0 { // malformed regions count as one pixel
		width, height = max(width, 1), max(height, 1)
	}
	cellH, cellW := height/float64(r.height), width/float64(r.width)
	ny, nx := r.ratio, r.ratio
	if r.ratio == 0 {
		ny, nx = int64(math.Ceil(cellH)), int64(math.Ceil(cellW))
	}
	var out []float64
	for ph := range r.height {
		for pw := range r.width {
			value, first := 0.0, true
			for iy := range max(ny, 0) {
				for ix := range max(nx, 0) {
					y := y0 + float64(ph)*cellH + (float64(iy)+0.5)*cellH/float64(ny)
					x := x0 + float64(pw)*cellW + (float64(ix)+0.5)*cellW/float64(nx)
					v := r.at(data, h, w, y, x)
					if !r.max {
						value += v
					} else if first || v > value {
						value = v
					}
					first = false
				}
			}
			if !r.max {
				value /= float64(max(ny*nx, 1))
			}
			out = append(out, value)
		}
	}
	return out
}

// at is the interpolated value at a point, or for max the largest of the four
// weighted neighbours; points far outside are zero, near ones are clamped.
func (r roiAlign) at(data []float64, h, w int64, y, x float64) float64 {
	if y < -1 || y > float64(h) || x < -1 || x > float64(w) {
		return 0
	}
	axis := func(v float64, n int64) (lo, hi int64, t float64) {
		v = max(v, 0)
		lo = int64(v)
		if lo >= n-1 {
			return n - 1, n - 1, 0
		}
		return lo, lo + 1, v - float64(lo)
	}
	yl, yh, ty := axis(y, h)
	xl, xh, tx := axis(x, w)
	parts := []float64{(1 - ty) * (1 - tx) * data[yl*w+xl], (1 - ty) * tx * data[yl*w+xh], ty * (1 - tx) * data[yh*w+xl], ty * tx * data[yh*w+xh]}
	if r.max {
		return max(parts[0], parts[1], parts[2], parts[3])
	}
	return parts[0] + parts[1] + parts[2] + parts[3]
}
