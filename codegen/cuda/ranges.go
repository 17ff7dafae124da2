package cuda

import "memoc/ir"

// minPiece is the bytes of a piece above which a Slice is a copy in rows; for
// smaller ones a kernel is faster.
const minPiece = 512

// addRanges handles a Slice or a Concat whose operands or result are ranges of
// other tensors: their bytes are copied, piece by piece.
func (e *emitter) addRanges(r *row) (done bool, err error) {
	n := r.step.Node
	if part, ok := e.p.SliceOf(n); ok {
		out, placed := e.placed(n.Out[0])
		pieces, size := part.Pieces()
		if !placed || pieces > 1 && size < minPiece && out.Contiguous() && e.contiguous(n.In[0]) {
			return false, nil
		}
		r.remark = "range"
		return true, e.addCopy(r, part, out)
	}
	if n.Op != "Concat" || n.Domain != ir.OnnxDomain || !e.hasRanges(n) {
		return false, nil
	}
	for port, v := range n.In {
		in, placed := e.placed(v)
		if !placed || in.Size == 0 || e.p.InOutput(n, port) {
			continue
		}
		part, ok := e.p.ConcatPart(n, port)
		if !ok {
			return true, n.Errorf("no-kernel", "BUG: %q is no range of %q", v.Name, n.Out[0].Name)
		}
		if err := e.addCopy(r, in, part); err != nil {
			return true, err
		}
	}
	r.remark = "parts"
	return true, nil
}

func (e *emitter) contiguous(v *ir.Value) bool {
	pl, ok := e.placed(v)
	return ok && pl.Contiguous()
}

// hasRanges reports whether something that n joins lies in rows, or in place
// already.
func (e *emitter) hasRanges(n *ir.Node) bool {
	for port, v := range n.In {
		if pl, ok := e.placed(v); e.p.InOutput(n, port) || ok && !pl.Contiguous() {
			return true
		}
	}
	return !e.contiguous(n.Out[0])
}
