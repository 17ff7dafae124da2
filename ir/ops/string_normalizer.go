package ops

import (
	"slices"
	"strings"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "StringNormalizer",
	Doc:   "Drops stop words from a list of strings and changes the case of the rest.",
	Since: []int{10},
	In:    ir.Ports("X:tensor(string)"), Out: ir.Ports("Y:tensor(string)"),
	Types: map[string]ir.DTypeSet{},
	Infer: func(c *ir.InferCtx) error {
		x := c.Shape(0)
		switch {
		case !x.Ranked:
			c.SetTensor(0, ir.String, x)
		case x.Rank() == 1:
			c.SetTensor(0, ir.String, ir.Dims(c.FreshDim())) // how many remain depends on the data
		case x.Rank() == 2 && !x.Dims[0].Differ(ir.N(1)):
			c.SetTensor(0, ir.String, ir.Dims(ir.N(1), c.FreshDim()))
		default:
			return c.Errorf("input %s is neither [n] nor [1, n]", x)
		}
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      stringCost,
	Grad:      ir.NoGrad(noStringGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		change := func(s string) string { return s }
		switch action := c.Node.Str("case_change_action", "NONE"); action {
		case "NONE":
		case "LOWER":
			change = strings.ToLower
		case "UPPER":
			change = strings.ToUpper
		default:
			return c.Errorf("unknown case_change_action %q", action)
		}
		var stops []string
		if a := c.Node.Attr("stopwords"); a != nil {
			stops = a.Strings
		}
		sensitive := c.Node.Int("is_case_sensitive", 0) != 0
		out := []string{}
		for _, s := range x.Strings {
			drop := slices.ContainsFunc(stops, func(w string) bool { return w == s || !sensitive && strings.EqualFold(w, s) })
			if !drop {
				out = append(out, change(s))
			}
		}
		if len(out) == 0 {
			out = []string{""} // never nothing
		}
		dims := append([]int64{}, x.Dims...)
		dims[len(dims)-1] = int64(len(out))
		c.Set(0, texts(dims, out...))
		return nil
	},
	Kernel: ir.NoKernel(noStringKernel),
	Samples: func() []ir.Sample {
		x := texts([]int64{3}, "Monday", "tuesday", "Friday")
		stop := ir.Attr{Name: "stopwords", Kind: ir.AttrStrings, Strings: []string{"monday"}}
		return []ir.Sample{
			{Name: "upper", In: []*ir.Tensor{x}, Attrs: []ir.Attr{stop, ir.StringAttr("case_change_action", "UPPER")}, Want: []*ir.Tensor{texts([]int64{2}, "TUESDAY", "FRIDAY")}},
			{Name: "sensitive", In: []*ir.Tensor{x.Reshaped(1, 3)}, Attrs: []ir.Attr{stop, ir.IntAttr("is_case_sensitive", 1)}},
		}
	},
})
