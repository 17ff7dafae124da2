package passes

import (
	"fmt"
	"math"
	"strings"

	"memoc/ir"
	"memoc/ir/ops"
	"memoc/passes/mask"
)

// maskNeed is how the masks of one attention are used.
type maskNeed struct {
	parts    []mask.Part
	scores   ir.DType // type in which they meet the scores
	zeroRows bool     // a query that sees no key gives 0, by the operator or by a guard
	replaced bool     // a mask stands in the place of scores, rather than being added
}

// classified is the class of some masks, kept for the other attentions that
// share them: a model has one mask and many layers.
type classified struct {
	class *mask.Class
	why   string
	form  ops.FlashForm // mask, segments and attributes, once made
	at    int           // position of the node before which they were made
	made  bool
}

// classify classifies masks for scores of the given shape.
func (a *attention) classify(need maskNeed, s ir.Shape) *classified {
	var key strings.Builder
	for _, p := range need.parts {
		fmt.Fprintf(&key, "%d %v %g,", p.V.ID, p.Not, p.Low)
	}
	fmt.Fprintf(&key, "%s %s %v %v", s, need.scores, need.zeroRows, need.replaced)
	c := a.classes[key.String()]
	if c == nil {
		c = &classified{}
		c.class, c.why = mask.Of(need.parts, s.Dims[0], s.Dims[1], s.Dims[2], s.Dims[3])
		if c.why == "" {
			c.why = usable(c.class, need)
		}
		a.classes[key.String()] = c
	}
	return c
}

// usable says why FlashAttention cannot stand for a classified mask, "" if it
// can.
func usable(c *mask.Class, need maskNeed) string {
	finite := !math.IsInf(c.Hidden, -1)
	if c.Hides() && !mask.Low(need.scores, c.Hidden) {
		return fmt.Sprintf("the mask adds %g, which is not low enough for %s to prove that it hides", c.Hidden, need.scores)
	}
	if !c.Empty && !(c.NaN() && !need.zeroRows) || need.zeroRows && !finite {
		return ""
	}
	switch {
	case !finite:
		return "a query may see no key, which makes NaN"
	case c.Mixed || c.Bias != nil:
		return "a query may see no key, and several masks hide keys"
	case !mask.Absorbs(need.scores, c.Hidden):
		return fmt.Sprintf("a query may see no key, and %g does not swallow scores of %s", c.Hidden, need.scores)
	}
	return ""
}

// apply puts a classified mask into the form of FlashAttention; why says what
// the operator cannot express.
func (a *attention) apply(b *ir.Builder, c *classified, need maskNeed, f *ops.FlashForm) (why string) {
	attrs, why := boundAttrs(c.class, f.Q.Type.Shape.Dims[2], f.K.Type.Shape.Dims[2])
	if why != "" {
		return why
	}
	if !c.made || a.position[b.At] < c.at {
		a.makeMask(b, c, need, f)
		c.made, c.at = true, a.position[b.At]
	}
	f.Mask, f.SegQ, f.SegK = c.form.Mask, c.form.SegQ, c.form.SegK
	f.Attrs = append(f.Attrs, attrs...)
	if c.class.Empty && !math.IsInf(c.class.Hidden, -1) {
		mode := int64(1)
		if need.replaced {
			mode = 2
		}
		f.Attrs = append(f.Attrs, ir.IntAttr("empty_rows", mode))
	}
	return ""
}

func (a *attention) makeMask(b *ir.Builder, c *classified, need maskNeed, f *ops.FlashForm) {
	like := map[int]*ir.Value{mask.Batch: f.Q, mask.Head: f.Q, mask.Query: f.Q, mask.Key: f.K}
	m := &mask.Emitter{Builder: b, Extent: func(axis int) *ir.Value {
		return b.DimOf(like[axis], map[int]int{mask.Batch: 0, mask.Head: 1, mask.Query: 2, mask.Key: 2}[axis])
	}}
	c.form = ops.FlashForm{}
	d := need.scores
	if c.class.Keys != nil {
		c.form.Mask = m.Emit(c.class.Keys, d)
	}
	if c.class.Bias != nil {
		bias := m.Emit(c.class.Bias, d)
		if c.form.Mask != nil {
			bias = b.Where(c.form.Mask, bias, b.Scalar(bias.Type.DType, math.Inf(-1)))
		}
		c.form.Mask = bias
	}
	if c.class.SegQ != nil {
		c.form.SegQ = b.Squeeze(b.Cast(m.Emit(c.class.SegQ, ir.Int64), ir.Int64), 1, 3)
		c.form.SegK = b.Squeeze(b.Cast(m.Emit(c.class.SegK, ir.Int64), ir.Int64), 1, 2)
	}
}

// boundAttrs is the bounds of a class as attributes of FlashAttention.
func boundAttrs(c *mask.Class, queries, keys ir.Dim) (attrs []ir.Attr, why string) {
	lag, offset := keys.Sub(queries), ir.N(0)
	no := func(bound *ir.Dim) ([]ir.Attr, string) {
		return nil, fmt.Sprintf("the mask is a window whose bound %s from the query the operator cannot express", bound)
	}
	if c.Hi != nil {
		n, ok := c.Hi.Int()
		switch {
		case c.Hi.Equal(lag):
			attrs, offset = append(attrs, ir.IntAttr("is_causal", 2)), lag
		case ok && n == 0:
			attrs = append(attrs, ir.IntAttr("is_causal", 1))
		case ok && n > 0:
			attrs = append(attrs, ir.IntAttr("right_window_size", n))
		default:
			return no(c.Hi)
		}
	}
	if c.Lo != nil {
		n, ok := offset.Sub(*c.Lo).Int()
		if !ok || n < 0 {
			return no(c.Lo)
		}
		attrs = append(attrs, ir.IntAttr("left_window_size", n))
	}
	return attrs, ""
}

// square reports whether a mask holds an element for every query and key.
func square(v *ir.Value) bool {
	d := v.Type.Shape.Dims
	return len(d) >= 2 && !d[len(d)-1].Equal(ir.N(1)) && !d[len(d)-2].Equal(ir.N(1))
}
