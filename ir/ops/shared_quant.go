package ops

import (
	"math"

	"memoc/ir"
)

// quantGrid says which element of scale and zero point belongs to which
// element of x, seen as [outer, n, inner] around the quantization axis.
type quantGrid struct {
	n, inner int64
	block    int64 // elements along the axis that share one scale
	blocks   int64 // along the axis; 0: one scale for all
	whole    bool  // the scale varies over outer and inner as well (blocked form)
}

// quantGridOf reads the forms: one scale, one for each position of an axis,
// or one for each block along it.
func quantGridOf(n *ir.Node, x, scale []int64) (quantGrid, error) {
	if ir.Elems(scale) == 1 && n.Int("block_size", 0) == 0 || len(scale) == 0 {
		return quantGrid{n: 1, inner: 1, block: 1}, nil
	}
	axis, ok := ir.NormAxis(n.Int("axis", 1), len(x))
	if !ok {
		return quantGrid{}, n.Errorf("shape", "axis %d is out of range for %v", n.Int("axis", 1), x)
	}
	g := quantGrid{n: x[axis], inner: ir.Elems(x[axis+1:]), block: 1, blocks: x[axis]}
	block := n.Int("block_size", 0)
	if block == 0 {
		if len(scale) != 1 || scale[0] != x[axis] {
			return g, n.Errorf("shape", "scale %v does not fit axis %d of %v", scale, axis, x)
		}
		return g, nil
	}
	if block < 0 || len(scale) != len(x) {
		return g, n.Errorf("shape", "block_size %d and scale %v do not fit %v", block, scale, x)
	}
	for a, d := range x {
		want := d
		if a == axis {
			want = (d + block - 1) / block
		}
		if scale[a] != want {
			return g, n.Errorf("shape", "blocks of %d along axis %d of %v need another scale than %v", block, axis, x, scale)
		}
	}
	g.block, g.blocks, g.whole = block, scale[axis], true
	return g, nil
}

// at is the index of the scale of element i.
func (g quantGrid) at(i int) int {
	if g.blocks == 0 {
		return 0
	}
	a := int64(i) / g.inner % g.n
	if !g.whole {
		return int(a)
	}
	outer := int64(i) / (g.inner * g.n)
	return int((outer*g.blocks+a/g.block)*g.inner + int64(i)%g.inner)
}

func (g quantGrid) args() []ir.KernelArg {
	return []ir.KernelArg{ir.IntArg(g.n), ir.IntArg(g.inner), ir.IntArg(g.block), ir.IntArg(g.blocks), ir.BoolArg(g.whole)}
}

// quantIndexCUDA is quantGrid.at on the device.
const quantIndexCUDA = `
MEMOC_FN int64_t quant_index(int64_t i, int64_t n, int64_t inner, int64_t block, int64_t blocks, bool whole) {
  if (blocks == 0) return 0;
  int64_t a = i / inner % n;
  if (!whole) return a;
  return (i / (inner * n) * blocks + a / block) * inner + i % inner;
}

template <class X, class S, class Q>
void quantize_linear(Stream& s, const X* x, const S* scale, const Q* zero, Q* y, int64_t count, int64_t n, int64_t inner, int64_t block,
                     int64_t blocks, bool whole) {
  parallel_for(s, count, [=] MEMOC_DEVICE(int64_t i) {
    using F = Acc<S>;
    int64_t k = quant_index(i, n, inner, block, blocks, whole);
    F q = m::round_even(F(to<S>(to<F>(x[i]) / to<F>(scale[k]))));
    if (zero) q += to<F>(zero[k]);
    y[i] = to<Q>(m::max(m::min(q, F(Limits<Q>::hi())), F(Limits<Q>::lo())));
  });
}

template <class Q, class S, class Y>
void dequantize_linear(Stream& s, const Q* x, const S* scale, const Q* zero, Y* y, int64_t count, int64_t n, int64_t inner,
                       int64_t block, int64_t blocks, bool whole) {
  parallel_for(s, count, [=] MEMOC_DEVICE(int64_t i) {
    using F = Acc<S>;
    int64_t k = quant_index(i, n, inner, block, blocks, whole);
    int64_t v = int64_t(x[i]) - (zero ? int64_t(zero[k]) : 0);
    y[i] = to<Y>(to<F>(v) * to<F>(scale[k]));
  });
}`

// quantRange is the range of an integer type; ok is false for other types.
func quantRange(d ir.DType) (lo, hi float64, ok bool) {
	bits := d.Bits()
	switch d {
	case ir.Uint8, ir.Uint16, ir.Uint32, ir.Uint4, ir.Uint2:
		return 0, math.Ldexp(1, bits) - 1, true
	case ir.Int8, ir.Int16, ir.Int32, ir.Int4, ir.Int2:
		return -math.Ldexp(1, bits-1), math.Ldexp(1, bits-1) - 1, true
	}
	return 0, 0, false
}

// saturateTo rounds to the nearest even integer and clips to d's range.
func saturateTo(d ir.DType, x float64) int64 {
	lo, hi, _ := quantRange(d)
	if x != x {
		return 0
	}
	return int64(max(min(math.RoundToEven(x), hi), lo))
}

// roundTo rounds x to a floating-point type.
func roundTo(d ir.DType, x float64) float64 {
	if d == ir.Float {
		return float64(float32(x))
	}
	if d == ir.Double {
		return x
	}
	return ir.FromFloats(d, []float64{x}).Floats()[0]
}

// quantInts is the integers a quantized operand stands for: its elements less
// the zero point, which has one element or one for each index at gives.
func quantInts(t, zero *ir.Tensor, at func(i int) int) []float64 {
	out := append([]float64{}, t.Floats()...)
	if zero == nil {
		return out
	}
	z := zero.Floats()
	for i := range out {
		if len(z) == 1 {
			out[i] -= z[0]
		} else {
			out[i] -= z[at(i)]
		}
	}
	return out
}
