package ops

import (
	"strconv"
	"strings"

	"memoc/ir"
)

// castEval converts the first input to type `to`.
func castEval(c *ir.EvalCtx, to ir.DType) error {
	x := c.In(0)
	y := ir.NewTensor(to, x.Dims...)
	switch {
	case to == x.DType:
		y = x
	case x.DType == ir.String:
		if err := parseStrings(c, y, x.Strings); err != nil {
			return err
		}
	case to == ir.String:
		formatStrings(y, x)
	case to == ir.Float8E8M0:
		mode := c.Node.Str("round_mode", "up")
		for i, v := range x.Floats() {
			y.Data[i] = ir.PowerOfTwoBits(v, mode, c.Node.Int("saturate", 1) != 0)
		}
	case to.IsSmallFloat():
		ir.SetSmallFloats(y, x.Floats(), c.Node.Int("saturate", 1) != 0)
	case x.DType == ir.Int64 && to == ir.Float:
		out := ir.View[float32](y) // once rounded: float64 would be a detour
		for i, v := range ir.View[int64](x) {
			out[i] = float32(v)
		}
	case x.DType == ir.Uint64 && to == ir.Float:
		out := ir.View[float32](y)
		for i, v := range ir.View[uint64](x) {
			out[i] = float32(v)
		}
	case to.Bits() < 8: // integers of a few bits wrap around, as ONNX's cases have it
		ir.SetInts(y, x.Ints())
	case x.DType.IsInt() && !to.IsFloat(), x.DType == ir.Bool:
		ir.SetInts(y, x.Ints())
	default:
		ir.SetFloats(y, x.Floats())
	}
	c.Set(0, y)
	return nil
}

// parseStrings reads numbers as ONNX allows them: decimal, scientific, and
// the names of infinity and NaN in any case.
func parseStrings(c *ir.EvalCtx, y *ir.Tensor, in []string) error {
	vals := make([]float64, len(in))
	ints := make([]int64, len(in))
	for i, s := range in {
		s = strings.TrimSpace(s)
		n, err := strconv.ParseInt(s, 10, 64)
		ints[i], vals[i] = n, float64(n)
		if err == nil {
			continue
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && f == 0 {
			return c.Errorf("element %d, %q, is no number", i, s)
		}
		vals[i], ints[i] = f, int64(f)
	}
	if y.DType.IsInt() {
		ir.SetInts(y, ints)
	} else {
		ir.SetFloats(y, vals)
	}
	return nil
}

// formatStrings writes the shortest decimal that reads back as the same
// element.
func formatStrings(y, x *ir.Tensor) {
	if !x.DType.IsFloat() && !x.DType.IsSmallFloat() {
		for i, v := range x.Ints() {
			y.Strings[i] = strconv.FormatInt(v, 10)
		}
		return
	}
	bits := 32
	if x.DType == ir.Double {
		bits = 64
	}
	for i, v := range x.Floats() {
		s := strconv.FormatFloat(v, 'g', -1, bits)
		switch {
		case v != v:
			s = "NaN"
		case s == "+Inf":
			s = "INF"
		case s == "-Inf":
			s = "-INF"
		}
		y.Strings[i] = s
	}
}
