package ops

import (
	"math"

	"memoc/ir"
)

// window is the geometry of an operator that slides a kernel over the spatial
// axes (those after batch and channel): all lists have one entry per axis.
type window struct {
	kernel, stride, dilation []int64
	padLo, padHi             []int64
	auto                     string // auto_pad: "", "VALID", "SAME_UPPER", "SAME_LOWER"; pads are not final while it is SAME_*
	ceil                     bool   // round the number of positions up
}

// windowOf reads the attributes of node for so many spatial axes. kernel is
// the kernel's extent where an operand gives it, else nil.
func windowOf(n *ir.Node, spatial int, kernel []int64) (window, error) {
	w := window{kernel: kernel, auto: n.Str("auto_pad", "NOTSET"), ceil: n.Int("ceil_mode", 0) != 0}
	if ks, ok := n.IntList("kernel_shape"); ok && len(ks) > 0 {
		if kernel != nil && !equalInts(ks, kernel) {
			return w, n.Errorf("shape", "kernel_shape %v contradicts the kernel's extent %v", ks, kernel)
		}
		w.kernel = ks
	}
	if len(w.kernel) != spatial {
		return w, n.Errorf("shape", "the kernel has %d axes, the input %d spatial ones", len(w.kernel), spatial)
	}
	var err error
	if w.stride, err = windowList(n, "strides", spatial, 1); err != nil {
		return w, err
	}
	if w.dilation, err = windowList(n, "dilations", spatial, 1); err != nil {
		return w, err
	}
	for i := range spatial {
		if w.kernel[i] <= 0 || w.stride[i] <= 0 || w.dilation[i] <= 0 {
			return w, n.Errorf("shape", "kernel %v, strides %v and dilations %v must be positive", w.kernel, w.stride, w.dilation)
		}
	}
	pads := make([]int64, 2*spatial)
	switch w.auto {
	case "NOTSET", "":
		w.auto = ""
		if ps, ok := n.IntList("pads"); ok && len(ps) > 0 {
			if len(ps) != 2*spatial {
				return w, n.Errorf("shape", "pads %v has not two entries for each of %d spatial axes", ps, spatial)
			}
			pads = ps
		}
	case "VALID", "SAME_UPPER", "SAME_LOWER":
	default:
		return w, n.Errorf("shape", "unknown auto_pad %q", w.auto)
	}
	for _, p := range pads {
		if p < 0 {
			return w, n.Errorf("shape", "pads %v must not be negative", pads)
		}
	}
	w.padLo, w.padHi = append([]int64{}, pads[:spatial]...), append([]int64{}, pads[spatial:]...)
	return w, nil
}

func windowList(n *ir.Node, name string, spatial int, def int64) ([]int64, error) {
	vs, ok := n.IntList(name)
	if !ok || len(vs) == 0 {
		vs = make([]int64, spatial)
		for i := range vs {
			vs[i] = def
		}
	}
	if len(vs) != spatial {
		return nil, n.Errorf("shape", "%s %v has not one entry for each of %d spatial axes", name, vs, spatial)
	}
	return vs, nil
}

func equalInts(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// extent is what the dilated kernel spans on axis i.
func (w window) extent(i int) int64 { return (w.kernel[i]-1)*w.dilation[i] + 1 }

// same reports auto_pad SAME_UPPER or SAME_LOWER.
func (w window) same() bool { return w.auto == "SAME_UPPER" || w.auto == "SAME_LOWER" }

// resolve fixes the pads of auto_pad SAME_* for the input extents in, so that
// the number of positions is ceil(in / stride).
func (w window) resolve(in []int64) window {
	if !w.same() {
		return w
	}
	w.padLo, w.padHi = make([]int64, len(in)), make([]int64, len(in))
	for i, n := range in {
		out := (n + w.stride[i] - 1) / w.stride[i]
		w.splitPad(i, max((out-1)*w.stride[i]+w.extent(i)-n, 0))
	}
	w.auto = ""
	return w
}

// splitPad shares total pad positions of axis i out to both ends.
func (w window) splitPad(i int, total int64) {
	w.padLo[i], w.padHi[i] = total/2, total-total/2
	if w.auto == "SAME_LOWER" {
		w.padLo[i], w.padHi[i] = total-total/2, total/2
	}
}

// positions is the number of kernel positions along axis i for an input
// extent of n; at most 0 where the kernel does not fit.
func (w window) positions(i int, n int64) int64 {
	if w.same() {
		return (n + w.stride[i] - 1) / w.stride[i]
	}
	room := n + w.padLo[i] + w.padHi[i] - w.extent(i)
	if room < 0 {
		return 0
	}
	if !w.ceil {
		return room/w.stride[i] + 1
	}
	out := (room+w.stride[i]-1)/w.stride[i] + 1
	if (out-1)*w.stride[i] >= n+w.padLo[i] {
		out-- // a window that would start in the far padding is left out
	}
	return out
}

// positionsDim is positions for a dim that may be symbolic.
func (w window) positionsDim(c *ir.InferCtx, i int, d ir.Dim) ir.Dim {
	if n, ok := d.Int(); ok {
		return ir.N(w.positions(i, n))
	}
	s := w.stride[i]
	if w.same() {
		return floorDiv(c, d.Add(ir.N(s-1)), s)
	}
	room := d.Add(ir.N(w.padLo[i] + w.padHi[i] - w.extent(i)))
	if w.ceil && s > 1 {
		return c.FreshDim()
	}
	return floorDiv(c, room, s).Add(ir.N(1))
}

// floorDiv is floor(d / s) for a positive integer s, a fresh symbol where
// that is no polynomial.
func floorDiv(c *ir.InferCtx, d ir.Dim, s int64) ir.Dim {
	if s == 1 {
		return d
	}
	zero := map[string]ir.Dim{}
	for _, sym := range d.Symbols() {
		zero[sym] = ir.N(0)
	}
	k, _ := d.Bind(zero).Int() // the constant term
	if q, ok := d.Sub(ir.N(k)).Div(ir.N(s)); ok {
		return q.Add(ir.N(int64(math.Floor(float64(k) / float64(s)))))
	}
	return c.FreshDim()
}

// each calls f for every tap of the kernel whose input coordinate lies inside
// the input: o is the output position, in the input extents; f gets the
// linear tap index and the linear spatial index of the input.
func (w window) each(o, in []int64, f func(tap, at int)) {
	taps := int(ir.Elems(w.kernel))
	k := make([]int64, len(in))
	for tap := range taps {
		at, inside := int64(0), true
		for i := range in {
			p := o[i]*w.stride[i] - w.padLo[i] + k[i]*w.dilation[i]
			if p < 0 || p >= in[i] {
				inside = false
				break
			}
			at = at*in[i] + p
		}
		if inside {
			f(tap, int(at))
		}
		next(k, w.kernel)
	}
}

// next counts idx up through dims, last axis fastest; false after the last.
func next(idx, dims []int64) bool {
	for a := len(dims) - 1; a >= 0; a-- {
		if idx[a]++; idx[a] < dims[a] {
			return true
		}
		idx[a] = 0
	}
	return false
}

// link relates spatial axis i of an output to that of input in; pads must be
// spelled out.
func (w window) link(in, i int) ir.AxisLink {
	return ir.AxisLink{In: in, Axis: i + 2, Rel: ir.Window, Stride: w.stride[i], Lo: -w.padLo[i], Hi: w.extent(i) - 1 - w.padLo[i]}
}

// args are the geometry as a kernel takes it: kernel, stride, pad, dilation.
func (w window) args() []ir.KernelArg {
	return []ir.KernelArg{ir.DimsArg(w.kernel...), ir.DimsArg(w.stride...), ir.DimsArg(w.padLo...), ir.DimsArg(w.dilation...)}
}

// attrs are the geometry as attributes, the pads spelled out.
func (w window) attrs() []ir.Attr {
	return []ir.Attr{ir.IntsAttr("kernel_shape", w.kernel...), ir.IntsAttr("strides", w.stride...),
		ir.IntsAttr("dilations", w.dilation...), ir.IntsAttr("pads", append(append([]int64{}, w.padLo...), w.padHi...)...)}
}
