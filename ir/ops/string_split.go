package ops

import (
	"strings"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "StringSplit",
	Doc:   "Splits every string, filled up with empty ones to a common number, and gives the numbers.",
	Since: []int{20},
	In:    ir.Ports("X:S"), Out: ir.Ports("Y:S, Z:tensor(int64)"),
	Types: map[string]ir.DTypeSet{"S": stringSet},
	Infer: func(c *ir.InferCtx) error {
		x := c.Shape(0)
		y := ir.Shape{}
		if x.Ranked {
			y = ir.Dims(append(append([]ir.Dim{}, x.Dims...), c.FreshDim())...)
		}
		c.SetTensor(0, ir.String, y)
		c.SetTensor(1, ir.Int64, x)
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      stringCost,
	Grad:      ir.NoGrad(noStringGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		limit := int64(-1)
		if a := c.Node.Attr("maxsplit"); a != nil {
			limit = a.I
		}
		parts, counts, most := make([][]string, len(x.Strings)), make([]int64, len(x.Strings)), 0
		for i, s := range x.Strings {
			parts[i] = splitString(s, c.Node.Str("delimiter", ""), limit)
			counts[i] = int64(len(parts[i]))
			most = max(most, len(parts[i]))
		}
		y := ir.NewTensor(ir.String, append(append([]int64{}, x.Dims...), int64(most))...)
		for i, p := range parts {
			copy(y.Strings[i*most:], p)
		}
		c.Set(0, y)
		c.Set(1, ir.FromInts(ir.Int64, counts, x.Dims...))
		return nil
	},
	Kernel: ir.NoKernel(noStringKernel),
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "space", In: []*ir.Tensor{texts([]int64{2}, "hello  world !", "")},
				Want: []*ir.Tensor{texts([]int64{2, 3}, "hello", "world", "!", "", "", ""), ir.FromInts(ir.Int64, []int64{3, 0}, 2)}},
			{Name: "delimiter", In: []*ir.Tensor{texts([]int64{1}, "a-b--c")}, Attrs: []ir.Attr{ir.StringAttr("delimiter", "-"), ir.IntAttr("maxsplit", 2)},
				Want: []*ir.Tensor{texts([]int64{1, 3}, "a", "b", "-c")}},
		}
	},
})

// splitString splits at a delimiter, or at runs of white space where it is
// empty, at most limit times (-1: everywhere).
func splitString(s, delimiter string, limit int64) []string {
	if delimiter != "" {
		if limit < 0 {
			return strings.Split(s, delimiter)
		}
		return strings.SplitN(s, delimiter, int(limit)+1)
	}
	var out []string
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		i := strings.IndexAny(s, " \t\n\r\v\f")
		if i < 0 || limit >= 0 && int64(len(out)) == limit {
			return append(out, s)
		}
		out, s = append(out, s[:i]), s[i:]
	}
	return out
}
