package ops

import (
	"slices"

	"memoc/ir"
)

// Operators that only move data are all one thing: every output element is
// some input element, or a fill value. Evaluation lists the indices and picks.

// pick makes a tensor whose i-th element is element idx[i] of the
// concatenation of srcs, all of type d. A negative index gives zero.
func pick(d ir.DType, dims []int64, idx []int, srcs ...*ir.Tensor) *ir.Tensor {
	out := ir.NewTensor(d, dims...)
	switch {
	case d == ir.String:
		pickInto(out.Strings, idx, func(t *ir.Tensor) []string { return t.Strings }, srcs)
	case d.Bits() == 8:
		pickInto(ir.View[uint8](out), idx, ir.View[uint8], srcs)
	case d.Bits() == 16:
		pickInto(ir.View[uint16](out), idx, ir.View[uint16], srcs)
	case d.Bits() == 32:
		pickInto(ir.View[uint32](out), idx, ir.View[uint32], srcs)
	case d.Bits() == 64:
		pickInto(ir.View[uint64](out), idx, ir.View[uint64], srcs)
	default:
		pickBits(out, idx, srcs)
	}
	return out
}

func pickInto[E any](out []E, idx []int, view func(*ir.Tensor) []E, srcs []*ir.Tensor) {
	all := view(srcs[0])
	if len(srcs) > 1 {
		all = slices.Clone(all)
		for _, s := range srcs[1:] {
			all = append(all, view(s)...)
		}
	}
	for i, j := range idx {
		if j >= 0 {
			out[i] = all[j]
		}
	}
}

// pickBits is pick for element sizes that no Go type has: below a byte
// (packed low bits first) and complex128.
func pickBits(out *ir.Tensor, idx []int, srcs []*ir.Tensor) {
	bits := out.DType.Bits()
	for i, j := range idx {
		if j < 0 {
			continue
		}
		k := 0
		for j >= int(srcs[k].Len()) {
			j -= int(srcs[k].Len())
			k++
		}
		from := srcs[k].Data
		if bits > 8 {
			copy(out.Data[i*bits/8:(i+1)*bits/8], from[j*bits/8:])
			continue
		}
		v := from[j*bits/8] >> (j * bits % 8) & (1<<bits - 1)
		out.Data[i*bits/8] |= v << (i * bits % 8)
	}
}

// filled is a tensor whose elements are all the one of fill.
func filled(fill *ir.Tensor, dims []int64) *ir.Tensor {
	if fill.DType.Bits() < 8 {
		return pick(fill.DType, dims, make([]int, ir.Elems(dims)), fill)
	}
	out := ir.NewTensor(fill.DType, dims...)
	if n := copy(out.Data, fill.Data); n > 0 { // doubling
		for ; n < len(out.Data); n *= 2 {
			copy(out.Data[n:], out.Data[:n])
		}
	}
	return out
}

// rowMajor is the step in elements of every axis of a dense tensor.
func rowMajor(dims []int64) []int64 {
	strides := make([]int64, len(dims))
	step := int64(1)
	for a := len(dims) - 1; a >= 0; a-- {
		strides[a] = step
		step *= dims[a]
	}
	return strides
}

// stridedIndex lists offset + sum(coordinate*stride) for every element of a
// tensor of shape dims, in row-major order.
func stridedIndex(dims, strides []int64, offset int64) []int {
	out := make([]int, ir.Elems(dims))
	coord := make([]int64, len(dims))
	at := offset
	for i := range out {
		out[i] = int(at)
		for a := len(dims) - 1; a >= 0; a-- {
			coord[a]++
			at += strides[a]
			if coord[a] < dims[a] {
				break
			}
			at -= strides[a] * dims[a]
			coord[a] = 0
		}
	}
	return out
}

// allIndices calls f with the coordinates of every element of shape dims, in
// row-major order; f must not keep them.
func allIndices(dims []int64, f func(i int, coord []int64)) {
	n := int(ir.Elems(dims))
	coord := make([]int64, len(dims))
	for i := range n {
		f(i, coord)
		for a := len(dims) - 1; a >= 0; a-- {
			coord[a]++
			if coord[a] < dims[a] {
				break
			}
			coord[a] = 0
		}
	}
}

// pickDims is pick for known integers.
func pickDims(from []ir.Dim, idx []int) []ir.Dim {
	out := make([]ir.Dim, len(idx))
	for i, j := range idx {
		out[i] = from[j]
	}
	return out
}

// moveInts propagates known integers through a node whose output 0 takes
// element idx(i) of input 0; idx is asked only where all shapes are static and
// small.
func moveInts(c *ir.InferCtx, out ir.Shape, idx func(in, out []int64) []int) {
	ds, ok := c.Ints(0)
	in, okIn := c.Shape(0).Static()
	dims, okOut := out.Static()
	if !ok || !okIn || !okOut || ir.Elems(dims) > 1024 || ir.Elems(in) != int64(len(ds)) {
		return
	}
	c.SetInts(0, pickDims(ds, idx(in, dims)))
}

// keepInts propagates known integers through operators that change the shape
// alone.
func keepInts(c *ir.InferCtx) {
	if ds, ok := c.Ints(0); ok {
		c.SetInts(0, ds)
	}
}

// sharesInput0 is the View of operators whose output 0 is input 0's bytes.
func sharesInput0(_ *ir.Node, out int) int {
	if out == 0 {
		return 0
	}
	return -1
}

// copyKernel is the kernel of views, where they could not be left out.
func copyKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	if c.InDType(0).Bits() == 0 {
		return ir.Kernel{}, c.Errorf("elements of type %s have no device code", c.InDType(0))
	}
	bytes, err := c.Node.In[0].Type.Bytes()
	if err != nil {
		return ir.Kernel{}, err
	}
	return ir.Kernel{Func: "copy_bytes", Source: copyCUDA, Args: []ir.KernelArg{ir.InArg(0), ir.OutArg(0), ir.IntArg(bytes)}}, nil
}

const copyCUDA = `
inline void copy_bytes(Stream& s, const void* x, void* y, int64_t bytes) { copy(s, y, x, bytes); }`

// kernelDType refuses element types that kernels have no C++ type for.
func kernelDType(c *ir.NodeCtx, d ir.DType) error {
	if d.IsFloat() || d.IsInt() || d == ir.Bool {
		return nil
	}
	return c.Errorf("elements of type %s have no device code", d)
}

// stridedKernel reads input 0 through strides, one per output axis, from
// offset on.
func stridedKernel(c *ir.NodeCtx, strides []int64, offset int64) (ir.Kernel, error) {
	if err := kernelDType(c, c.InDType(0)); err != nil {
		return ir.Kernel{}, err
	}
	return ir.Kernel{Func: "move_strided", Source: stridedCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
		ir.InArg(0), ir.OutArg(0), ir.DimsArg(c.OutShape(0)...), ir.DimsArg(strides...), ir.IntArg(offset)}}, nil
}

const stridedCUDA = `
template <class T>
void move_strided(Stream& s, const T* x, T* y, Dims shape, Dims strides, int64_t offset) {
  parallel_for(s, shape.numel(), [=] MEMOC_DEVICE(int64_t i) { y[i] = x[offset + offset_of(i, shape, strides)]; });
}`
