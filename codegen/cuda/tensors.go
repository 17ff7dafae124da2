package cuda

import (
	"fmt"
	"io"
	"path/filepath"

	"memoc/ir"
)

// tensor is one entry of the table that the C interface knows by name.
type tensor struct {
	value    *ir.Value
	role     string
	offset   int64 // in the device arena
	dims     []int64
	bytes    int64
	file     string // weights in an external file: its location as the model writes it
	inBin    bool   // the bytes are in weights.bin, at fileOff
	fileOff  int64
	contents *ir.Weight
}

const weightAlign = 64 // of every weight in weights.bin

// collectTensors lists inputs, weights and outputs that have bytes.
func (e *emitter) collectTensors() error {
	g := e.p.Graph
	type entry struct {
		v    *ir.Value
		role string
		w    *ir.Weight
	}
	var all []entry
	for _, v := range g.Inputs {
		if v.Init == nil {
			all = append(all, entry{v, roleInput, nil})
		}
	}
	for _, v := range g.Inits {
		all = append(all, entry{v, roleWeight, v.Init})
	}
	for _, n := range g.Nodes {
		if t := constantOf(n); t != nil && e.persistent(n.Out[0]) {
			all = append(all, entry{n.Out[0], roleWeight, ir.WeightOf(t)})
		}
	}
	seen := map[*ir.Value]bool{}
	for _, v := range g.Outputs {
		if !seen[v] {
			seen[v] = true
			all = append(all, entry{v, roleOutput, nil})
		}
	}
	end := int64(0) // of weights.bin
	for _, x := range all {
		if err := e.addTensor(x.v, x.role, x.w, &end); err != nil {
			return err
		}
	}
	return nil
}

// The roles of memoc_step.h.
const (
	roleInput  = "MEMOC_INPUT"
	roleWeight = "MEMOC_WEIGHT"
	roleOutput = "MEMOC_OUTPUT"
)

func (e *emitter) addTensor(v *ir.Value, role string, w *ir.Weight, end *int64) error {
	off, size, err := e.place(v)
	if err != nil {
		return err
	}
	if role == roleOutput && off < 0 {
		if n, err := v.Type.Bytes(); err != nil || n > 0 {
			return fmt.Errorf("BUG: output %q has no place", v.Name)
		}
		off = 0
	}
	if off < 0 {
		return nil
	}
	dims, _ := v.Type.Shape.Static()
	if v.Type.DType.Bits() == 0 || len(dims) > 12 {
		return fmt.Errorf("tensor %q of type %s cannot be held by the emitted program", v.Name, v.Type)
	}
	t := tensor{value: v, role: role, offset: off, dims: dims, bytes: size, contents: w}
	switch {
	case w == nil:
	case w.External != nil:
		if !filepath.IsLocal(filepath.FromSlash(w.External.Location)) {
			return fmt.Errorf("weight %q: the external file %q is outside of the model's folder", v.Name, w.External.Location)
		}
		t.file, t.fileOff = w.External.Location, w.External.Offset
	default:
		t.inBin, t.fileOff = true, *end
		*end = (*end + size + weightAlign - 1) / weightAlign * weightAlign
	}
	e.tensors = append(e.tensors, t)
	return nil
}

// persistent reports whether v lies in a buffer that lives across steps.
func (e *emitter) persistent(v *ir.Value) bool {
	off, _, err := e.place(v)
	return err == nil && off >= 0 && e.p.Buffers[e.p.Places[v.ID].Buffer].Class == ir.Persistent
}

// constantOf is the tensor of a Constant node, nil for any other node.
func constantOf(n *ir.Node) *ir.Tensor {
	if n.Op != "Constant" || n.Domain != ir.OnnxDomain || len(n.Out) == 0 || n.Out[0] == nil {
		return nil
	}
	if t := n.Out[0].Const(); t != nil {
		return t
	}
	for _, a := range n.Attrs {
		if a.Name == "value" {
			return a.T
		}
	}
	return nil
}

// constant is a Constant node whose output is a buffer with a short life: its
// bytes stand in the program.
type constant struct {
	launch int
	data   []byte
}

const maxEmbedded = 1 << 16

func (e *emitter) addConstant(r *row) error {
	n := r.step.Node
	off, size, err := e.place(n.Out[0])
	if err != nil || off < 0 || size == 0 || e.persistent(n.Out[0]) {
		r.remark = "constant"
		return err
	}
	t := constantOf(n)
	if t == nil || int64(len(t.Data)) != size {
		return n.Errorf("no-kernel", "the constant has no bytes that could be emitted")
	}
	if size > maxEmbedded {
		return n.Errorf("no-kernel", "BUG: a constant of %d bytes was not planned as persistent", size)
	}
	r.buffers = append(r.buffers, off)
	e.consts = append(e.consts, constant{len(e.consts), t.Data})
	r.launch = e.kernels.addLaunch("Constant", fmt.Sprintf("upload(s, a.buffer[0], constant_%d, %d);", len(e.consts)-1, size))
	return nil
}

// writeWeights writes weights.bin: the initializers that the model file itself
// holds, one after the other.
func (e *emitter) writeWeights(w io.Writer) error {
	at := int64(0)
	for _, t := range e.tensors {
		if !t.inBin {
			continue
		}
		if pad := t.fileOff - at; pad > 0 {
			if _, err := w.Write(make([]byte, pad)); err != nil {
				return err
			}
			at += pad
		}
		data, err := t.contents.Tensor()
		if err != nil {
			return fmt.Errorf("weight %q: %w", t.value.Name, err)
		}
		if int64(len(data.Data)) != t.bytes {
			return fmt.Errorf("weight %q has %d bytes, its type needs %d", t.value.Name, len(data.Data), t.bytes)
		}
		if _, err := w.Write(data.Data); err != nil {
			return err
		}
		at += t.bytes
	}
	return nil
}
