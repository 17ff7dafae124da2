package ops

import (
	"math"

	"memoc/ir"
)

// Attention on Q [B,H,S,D], K [B,G,T,D] and V [B,G,T,E] without ever storing
// S x T scores. Query head h reads key head h/(H/G). Query i may see key j if
// i+offset-left <= j <= i+offset+right (a bound of -1 is none; causal means
// right = 0), if their segment numbers are equal (where there are any), and if
// the mask is not -inf there. A query that sees no key has LSE = -inf; what
// becomes of it is the attribute empty_rows.

// The values of empty_rows: what a query gives that sees no key.
const (
	emptyZero = iota // Y = 0, and no gradient
	// The mean of all values: what a softmax makes of scores that a finite mask
	// has swallowed. If the mask was added, the gradient of the scores passes it;
	// if it was put in their place, it does not.
	emptyMeanAdded
	emptyMeanReplaced
)

// flashShape is the sizes and the window of one attention.
type flashShape struct {
	b, h, g, s, t, d, e int64
	scale, softcap      float64
	offset, left, right int64
	maskCols            int64 // keys from here on are masked (the standard Attention pads its mask)
	empty               int64 // see emptyZero
	lengths             int   // port of the number of valid keys of each batch element; -1: none
}

// flashView reads shapes (static) and attributes of FlashAttention or its
// gradient; ok is false where they do not fit together.
func flashView(n *ir.Node, q, k, v []int64) (f flashShape, ok bool) {
	if len(q) != 4 || len(k) != 4 || len(v) != 4 {
		return f, false
	}
	f = flashShape{b: q[0], h: q[1], g: k[1], s: q[2], t: k[2], d: q[3], e: v[3], maskCols: k[2], lengths: -1}
	if k[0] != f.b || v[0] != f.b || v[1] != f.g || v[2] != f.t || k[3] != f.d || f.g == 0 || f.h%f.g != 0 {
		return f, f.b == 0
	}
	f.scale = flashScale(n, f.d)
	f.softcap = float64(n.Float("softcap", 0))
	f.empty = n.Int("empty_rows", emptyZero)
	f.left, f.right = n.Int("left_window_size", -1), n.Int("right_window_size", -1)
	switch n.Int("is_causal", 0) {
	case 1:
		f.right = 0
	case 2:
		f.right, f.offset = 0, f.t-f.s
	}
	return f, true
}

func flashScale(n *ir.Node, d int64) float64 {
	if a := n.Attr("scale"); a != nil {
		return float64(a.F)
	}
	return 1 / math.Sqrt(float64(d))
}

// keys is the range of keys that query i may see.
func (f flashShape) keys(i int64) (lo, hi int64) {
	lo, hi = 0, f.t
	if f.left >= 0 {
		lo = max(lo, i+f.offset-f.left)
	}
	if f.right >= 0 {
		hi = min(hi, i+f.offset+f.right+1)
	}
	return min(lo, f.t), max(hi, min(lo, f.t))
}

// pairs counts the (query, key) pairs of one head.
func (f flashShape) pairs() int64 {
	if f.left < 0 && f.right < 0 {
		return f.s * f.t
	}
	n := f.s * f.t
	if f.right >= 0 {
		n = clampedSum(f.s, f.offset+f.right+1, f.t)
	}
	if f.left >= 0 {
		n -= clampedSum(f.s, f.offset-f.left, f.t)
	}
	return n
}

// clampedSum is the sum of i+c, no less than 0 and no more than t, over i < n.
func clampedSum(n, c, t int64) int64 {
	from := min(max(-c, 0), n)   // below that it is 0
	to := min(max(t-c, from), n) // from there on it is t
	return (to-from)*(from+to-1+2*c)/2 + (n-to)*t
}

// window is the KernelArg that tells the kernels of flashCUDA all sizes.
func (f flashShape) dims() ir.KernelArg {
	return ir.DimsArg(f.b, f.h, f.g, f.s, f.t, f.d, f.e, f.offset, f.left, f.right)
}

// flashMask is a mask in float64 (bool: 0 or -inf) with its steps along
// [B,H,S,T], and the segment numbers of queries and keys.
type flashMask struct {
	bias       []float64
	step       []int64
	segQ, segK flashSegments
}

// flashSegments is numbers with their step along the batch.
type flashSegments struct {
	of   []int64
	step int64
}

func (s flashSegments) at(b, i int64) int64 { return s.of[b*s.step+i] }

func segmentsOf(t *ir.Tensor, b, n int64) (flashSegments, bool) {
	if len(t.Dims) != 2 || t.Dims[0] != 1 && t.Dims[0] != b || t.Dims[1] != n {
		return flashSegments{}, false
	}
	s := flashSegments{of: t.Ints()}
	if t.Dims[0] > 1 {
		s.step = n
	}
	return s, true
}

// flashMaskFrom reads the mask at a port and the segments at the next two.
func flashMaskFrom(in func(int) *ir.Tensor, port int, f flashShape) (flashMask, bool) {
	m, ok := flashMaskOf(in(port), f)
	if q, k := in(port+1), in(port+2); ok && q != nil && k != nil {
		okK := false
		m.segQ, ok = segmentsOf(q, f.b, f.s)
		m.segK, okK = segmentsOf(k, f.b, f.t)
		ok = ok && okK
	}
	return m, ok
}

func flashMaskOf(t *ir.Tensor, f flashShape) (flashMask, bool) {
	if t == nil {
		return flashMask{}, true
	}
	full := []int64{f.b, f.h, f.s, f.t}
	if all, ok := broadcastDims(full, t.Dims); !ok || len(all) != 4 || ir.Elems(all) != ir.Elems(full) {
		return flashMask{}, false
	}
	m := flashMask{step: broadcastStrides(full, t.Dims)}
	if t.DType != ir.Bool {
		m.bias = t.Floats()
		return m, true
	}
	m.bias = make([]float64, t.Len())
	for i, on := range t.Ints() {
		if on == 0 {
			m.bias[i] = math.Inf(-1)
		}
	}
	return m, true
}

func (m flashMask) at(b, h, i, j int64) float64 {
	if m.segQ.of != nil && m.segQ.at(b, i) != m.segK.at(b, j) {
		return negInf
	}
	if m.step == nil {
		return 0
	}
	return m.bias[b*m.step[0]+h*m.step[1]+i*m.step[2]+j*m.step[3]]
}

// score is the capped score of one pair before the mask and its derivative by
// the raw product.
func (f flashShape) score(dot float64) (s, ds float64) {
	s = dot * f.scale
	if f.softcap <= 0 {
		return s, 1
	}
	th := math.Tanh(s / f.softcap)
	return f.softcap * th, 1 - th*th
}

func dotProduct(x, y []float64) float64 {
	sum := 0.0
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

// rowOf is row i of head h of batch b in a dense [B,heads,rows,width] tensor.
func rowOf(x []float64, heads, rows, width, b, h, i int64) []float64 {
	at := ((b*heads+h)*rows + i) * width
	return x[at : at+width]
}

// largest is the largest bias among the keys lo to hi-1 of a row, which the
// log-sum-exp is kept relative to: a row all of whose biases are -1e4, or
// -3.4e38, would leave no digits of it otherwise.
func (m flashMask) largest(b, h, i, lo, hi int64) float64 {
	if m.step == nil {
		return 0
	}
	top := negInf
	for j := lo; j < hi; j++ {
		top = max(top, m.at(b, h, i, j))
	}
	return top
}

// flashForward computes Y and LSE.
func flashForward(f flashShape, q, k, v []float64, m flashMask) (y, lse []float64) {
	y = make([]float64, f.b*f.h*f.s*f.e)
	lse = make([]float64, f.b*f.h*f.s)
	p := make([]float64, f.t)
	for line := range f.b * f.h * f.s {
		b, h, i := line/f.s/f.h, line/f.s%f.h, line%f.s
		g := h / (f.h / f.g)
		lo, hi := f.keys(i)
		top := math.Inf(-1)
		for j := lo; j < hi; j++ {
			// What a mask hides is never looked at, be it NaN.
			if p[j] = m.at(b, h, i, j); !math.IsInf(p[j], -1) {
				s, _ := f.score(dotProduct(rowOf(q, f.h, f.s, f.d, b, h, i), rowOf(k, f.g, f.t, f.d, b, g, j)))
				p[j] += s
			}
			top = max(top, p[j])
		}
		lse[line] = math.Inf(-1)
		out := rowOf(y, f.h, f.s, f.e, b, h, i)
		if math.IsInf(top, -1) {
			if f.empty != emptyZero {
				for j := range f.t {
					for e, x := range rowOf(v, f.g, f.t, f.e, b, g, j) {
						out[e] += x / float64(f.t)
					}
				}
			}
			continue
		}
		sum := 0.0
		for j := lo; j < hi; j++ {
			w := math.Exp(p[j] - top)
			if w == 0 {
				continue
			}
			sum += w
			for e, x := range rowOf(v, f.g, f.t, f.e, b, g, j) {
				out[e] += w * x
			}
		}
		for e := range out {
			out[e] /= sum
		}
		lse[line] = top - m.largest(b, h, i, lo, hi) + math.Log(sum)
	}
	return y, lse
}

// flashGradients is what flashBackward fills.
type flashGradients struct{ q, k, v, mask []float64 }

// flashBackward computes all gradients; that of the mask (a nil mask has none)
// is summed to the mask's own shape.
func flashBackward(f flashShape, dy, q, k, v, y, lse []float64, m flashMask) flashGradients {
	out := flashGradients{make([]float64, len(q)), make([]float64, len(k)), make([]float64, len(v)), make([]float64, len(m.bias))}
	for line := range f.b * f.h * f.s {
		empty := math.IsInf(lse[line], -1)
		if empty && f.empty == emptyZero {
			continue
		}
		b, h, i := line/f.s/f.h, line/f.s%f.h, line%f.s
		g := h / (f.h / f.g)
		qi, dqi := rowOf(q, f.h, f.s, f.d, b, h, i), rowOf(out.q, f.h, f.s, f.d, b, h, i)
		dyi := rowOf(dy, f.h, f.s, f.e, b, h, i)
		delta := dotProduct(dyi, rowOf(y, f.h, f.s, f.e, b, h, i))
		lo, hi := f.keys(i)
		peak := m.largest(b, h, i, lo, hi)
		if empty {
			lo, hi = 0, f.t
		}
		for j := lo; j < hi; j++ {
			kj, dkj := rowOf(k, f.g, f.t, f.d, b, g, j), rowOf(out.k, f.g, f.t, f.d, b, g, j)
			vj, dvj := rowOf(v, f.g, f.t, f.e, b, g, j), rowOf(out.v, f.g, f.t, f.e, b, g, j)
			bias := m.at(b, h, i, j)
			s, slope := f.score(dotProduct(qi, kj))
			p := math.Exp(s + bias - peak - lse[line])
			if empty {
				p, bias = 1/float64(f.t), 0
			}
			if p == 0 || math.IsInf(bias, -1) {
				continue
			}
			ds := p * (dotProduct(dyi, vj) - delta)
			if empty && f.empty == emptyMeanReplaced {
				ds = 0
			}
			if m.step != nil {
				out.mask[b*m.step[0]+h*m.step[1]+i*m.step[2]+j*m.step[3]] += ds
			}
			ds *= slope * f.scale
			for d := range qi {
				dqi[d] += ds * kj[d]
				dkj[d] += ds * qi[d]
			}
			for e := range dyi {
				dvj[e] += p * dyi[e]
			}
		}
	}
	return out
}
