package ops

import (
	"regexp"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "RegexFullMatch",
	Doc:   "Whether each whole string matches a regular expression in RE2's syntax.",
	Since: []int{20},
	In:    ir.Ports("X:S"), Out: ir.Ports("Y:B"),
	Types: map[string]ir.DTypeSet{"S": stringSet, "B": ir.Bools},
	Infer: func(c *ir.InferCtx) error {
		if _, err := regexp.Compile(c.Node.Str("pattern", "")); err != nil {
			return c.Errorf("%v", err)
		}
		c.SetTensor(0, ir.Bool, c.Shape(0))
		return nil
	},
	Axes:      ir.FollowAll,
	Cost:      stringCost,
	Grad:      ir.NoGrad(noStringGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		re, err := regexp.Compile(`\A(?:` + c.Node.Str("pattern", "") + `)\z`)
		if err != nil {
			return c.Errorf("%v", err)
		}
		y := ir.NewTensor(ir.Bool, c.In(0).Dims...)
		for i, s := range c.In(0).Strings {
			if re.MatchString(s) {
				y.Data[i] = 1
			}
		}
		c.Set(0, y)
		return nil
	},
	Kernel: ir.NoKernel(noStringKernel),
	Samples: func() []ir.Sample {
		return []ir.Sample{{Name: "words", In: []*ir.Tensor{texts([]int64{3}, "ab", "abc", "xab")}, Attrs: []ir.Attr{ir.StringAttr("pattern", "a[b]+")},
			Want: []*ir.Tensor{ir.FromInts(ir.Bool, []int64{1, 0, 0}, 3)}}}
	},
})
