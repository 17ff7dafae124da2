package passes

import (
	"fmt"
	"slices"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/passes/headmatch"
	"memoc/passes/liveness"
)

var lossHeadPass = Pass{
	Name:  "losshead",
	Doc:   "Replaces a large projection with its cross entropy by one that works in chunks of tokens, so that the scores never exist as a whole; in a traced step with their gradients.",
	Stage: Simplify,
	After: []Edge{
		{"infer", "sizes come from shapes"},
		{"fold", "reshapes and slices between projection and loss have known targets then"},
	},
	Optional: true,
	Run:      runLossHead,
}

const (
	// headBytes is the size of the scores from which chunks pay: below, one
	// product is faster than several.
	headBytes = 64 << 20
	// headChunk bounds the scores of one chunk, in bytes: enough rows for a
	// product to run at full speed, and little beside the weight. There are at
	// least eight chunks.
	headChunk = 128 << 20
)

// runLossHead replaces the heads of a forward pass that is to be trained, and
// those of a traced step together with their gradients.
func runLossHead(c *Context) (Result, error) {
	least := c.Options.HeadBytes
	if least == 0 {
		least = headBytes
	}
	h := &headRewriter{c: c, b: ir.NewBuilder(ir.NewEdit(c.Graph)), least: least, position: map[*ir.Node]int{}, trained: map[string]bool{},
		step: c.Options.Train || liveness.BackwardFrom(c.Graph) < len(c.Graph.Nodes)}
	for i, n := range c.Graph.Nodes {
		h.position[n] = i
	}
	for _, name := range c.Options.Wrt {
		h.trained[name] = true
	}
	made := 0
	for _, n := range c.Graph.Nodes {
		done, err := h.rewrite(n)
		if err != nil {
			return Result{}, err
		}
		if done {
			made++
		}
	}
	h.b.Edit.Done()
	removed := 0
	if made > 0 {
		var err error
		if removed, err = removeDead(c.Graph); err != nil {
			return Result{}, err
		}
	}
	return Result{Changed: made > 0, Stats: []ir.KV{stat("heads", made), stat("removed", removed)}}, nil
}

type headRewriter struct {
	c        *Context
	b        *ir.Builder
	least    int64
	position map[*ir.Node]int
	trained  map[string]bool
	step     bool // there is a backward pass, or will be
}

// rewrite replaces the head whose loss begins at n, if there is one. Large
// heads of another form are reported: their scores will be stored.
func (h *headRewriter) rewrite(n *ir.Node) (done bool, err error) {
	defer ir.Catch(&err)
	scores, ok := headmatch.Starts(n)
	if !ok || !h.step {
		return false, nil
	}
	bytes, err := scores.Type.Bytes()
	if err != nil || bytes < h.least {
		return false, nil
	}
	head, why := headmatch.Find(n, h.trained)
	if why == "" {
		why = h.order(head)
	}
	switch {
	case why == "" && (head.Back == nil) != h.c.Options.Train:
		return false, nil // only the loss of a step, or a step to be differentiated again
	case why != "":
		h.c.warn(&diag.Diagnostic{ID: "losshead", Loc: n.DiagLoc(),
			Message: fmt.Sprintf("the scores of the loss (%s) are stored as a whole: %s", FormatBytes(bytes), why)})
		return false, nil
	case !h.c.spend():
		return false, nil
	}
	b, loss := h.b, head.Loss.Def
	b.At, b.Origin, b.Loc, b.Prefix = loss, loss.Name, loss.Loc, loss.Name+"/"
	if err := h.shapes(head); err != nil {
		return false, err
	}
	out := h.node(head, bytes)
	v := out[0]
	if head.Factor != 1 {
		v = b.MulScalar(v, head.Factor)
	}
	if err := h.replace(head.Loss, b.ReshapeLike(v, head.Loss)); err != nil || head.Back == nil {
		return true, err
	}
	return true, h.gradients(head, out)
}

// shapes makes constants of the shapes of what is to vanish.
func (h *headRewriter) shapes(head *headmatch.Head) error {
	for _, v := range head.Inner {
		for _, u := range slices.Clone(v.Uses()) {
			if n := u.Node; n.Op == "Shape" && n.Domain == ir.OnnxDomain && n.Attr("start") == nil && n.Attr("end") == nil && !n.Out[0].IsOutput() {
				if err := h.b.Edit.ReplaceUses(n.Out[0], h.b.ShapeOf(v)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// order reports a gradient that is made before the loss, where the head that
// makes both cannot stand.
func (h *headRewriter) order(head *headmatch.Head) string {
	if head.Back == nil {
		return ""
	}
	for _, v := range []*ir.Value{head.Back.X, head.Back.W, head.Back.Bias} {
		if v != nil && h.position[v.Def] < h.position[head.Loss.Def] {
			return "a gradient is made before the loss"
		}
	}
	return ""
}

// node is the chunked head; its outputs are the loss and, in a traced step,
// the gradients.
func (h *headRewriter) node(head *headmatch.Head, bytes int64) []*ir.Value {
	b := h.b
	vocab, _ := head.W.Type.Shape.Dims[1].Int()
	if head.TransW {
		vocab, _ = head.W.Type.Shape.Dims[0].Int()
	}
	x := h.rows(head)
	rowBytes := vocab * int64(x.Type.DType.Bits()/8)
	reduction := "sum"
	if head.Mean {
		reduction = "mean"
	}
	attrs := []ir.Attr{ir.StringAttr("reduction", reduction), ir.IntAttr("to", int64(head.Loss.Type.DType)),
		ir.IntAttr("chunk", max(128, min(headChunk, bytes/8)/rowBytes/128*128))}
	if head.TransW {
		attrs = append(attrs, ir.IntAttr("transW", 1))
	}
	if head.Scale != 1 {
		attrs = append(attrs, ir.FloatAttr("scale", float32(head.Scale)))
	}
	if head.Softcap != 0 {
		attrs = append(attrs, ir.FloatAttr("softcap", float32(head.Softcap)))
	}
	labels, ignore := h.labels(head, vocab)
	if ignore != nil {
		attrs = append(attrs, ir.IntAttr("ignore_index", *ignore))
	}
	outputs := 1
	if head.Back != nil {
		outputs = 3
		if head.Back.Bias != nil {
			outputs = 4
		}
	}
	return b.OpN(ir.MemocDomain, "LinearCrossEntropy", outputs, []*ir.Value{x, head.W, labels, head.Bias}, attrs...)
}

// labels is a vector of class numbers, in which tokens that do not count have
// the number to ignore, nil if all count.
func (h *headRewriter) labels(head *headmatch.Head, vocab int64) (v *ir.Value, ignore *int64) {
	b := h.b
	flat := func(v *ir.Value) *ir.Value {
		if v.Type.Shape.Rank() == 1 {
			return v
		}
		return b.Reshape(v, -1)
	}
	v, ignore = flat(head.Labels), head.Ignore
	constant := func(n int64) *ir.Value { return b.Const(ir.FromInts(v.Type.DType, []int64{n})) }
	if head.Wraps {
		v = b.Where(b.Less(v, constant(0)), b.Add(v, constant(vocab)), v)
	}
	if head.Mask == nil {
		return v, ignore
	}
	if ignore == nil {
		none := int64(-100)
		ignore = &none
	}
	mask := flat(head.Mask)
	if head.Masks {
		mask = b.Not(mask)
	}
	return b.Where(mask, v, constant(*ignore)), ignore
}

// rows is the projection's input with the rows moved as the head moves those
// of the scores: a matrix with a row for each label.
func (h *headRewriter) rows(head *headmatch.Head) *ir.Value {
	b, x := h.b, head.X
	hidden, _ := x.Type.Shape.Dims[x.Type.Shape.Rank()-1].Int()
	for _, n := range head.Rows {
		if n.Op != "Reshape" && n.Op != "Flatten" {
			x = b.Op(n.Op, append([]*ir.Value{x}, n.In[1:]...), n.Attrs...)
			continue
		}
		dims, _ := n.Out[0].Type.Shape.Static()
		x = b.Reshape(x, append(dims[:len(dims)-1:len(dims)-1], hidden)...)
	}
	return b.Reshape(x, -1, hidden)
}

// gradients replaces those of a traced step with the head's own.
func (h *headRewriter) gradients(head *headmatch.Head, out []*ir.Value) error {
	b, back := h.b, head.Back
	if back.X != nil {
		if err := h.replace(back.X, b.ReshapeLike(out[1], back.X)); err != nil {
			return err
		}
	}
	if back.W != nil {
		w := out[2]
		if back.WT {
			w = b.TransposeLast2(w)
		}
		if err := h.replace(back.W, w); err != nil {
			return err
		}
	}
	if back.Bias != nil {
		return h.replace(back.Bias, b.ReshapeLike(out[3], back.Bias))
	}
	return nil
}

// replace puts with in the place of v, under v's name where that is the
// graph's output.
func (h *headRewriter) replace(v, with *ir.Value) error {
	name, output := v.Name, v.IsOutput()
	if err := h.b.Edit.ReplaceUses(v, with); err != nil || !output {
		return err
	}
	h.b.Edit.Rename(v, h.b.Graph().Fresh(name))
	h.b.Edit.Rename(with, name)
	return nil
}
