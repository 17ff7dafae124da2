package passes

import (
	"fmt"

	"memoc/ir"
	"memoc/ir/diag"
)

var lossHeadPass = Pass{
	Name:  "losshead",
	Doc:   "Replaces a large projection with its cross entropy by one that works in chunks of tokens, so that the scores never exist as a whole.",
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

func runLossHead(c *Context) (Result, error) {
	if !c.Options.Train {
		return Result{}, nil
	}
	least := c.Options.HeadBytes
	if least == 0 {
		least = headBytes
	}
	h := &headRewriter{c: c, b: ir.NewBuilder(ir.NewEdit(c.Graph)), least: least}
	made := 0
	for _, n := range c.Graph.Nodes {
		if n.Op != "SoftmaxCrossEntropyLoss" || n.Domain != ir.OnnxDomain {
			continue
		}
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
	c     *Context
	b     *ir.Builder
	least int64
}

// headForm is a loss head as it was found: the projection, and what lies
// between it and the loss, loss first.
type headForm struct {
	product *ir.Node
	between []*ir.Node
	weight  *ir.Value // [hidden, vocabulary], or transposed
	transW  bool
}

// rewrite replaces the head that ends in loss, if it is one. Large heads of
// another form are reported: their scores will be stored.
func (h *headRewriter) rewrite(loss *ir.Node) (done bool, err error) {
	defer ir.Catch(&err)
	scores := loss.In[0]
	bytes, err := scores.Type.Bytes()
	if err != nil || bytes < h.least {
		return false, nil
	}
	form, why := matchHead(loss)
	if why != "" {
		h.c.warn(&diag.Diagnostic{ID: "losshead", Loc: loss.DiagLoc(),
			Message: fmt.Sprintf("the scores of the loss (%s) are stored as a whole: %s", FormatBytes(bytes), why)})
		return false, nil
	}
	if !h.c.spend() {
		return false, nil
	}
	b := h.b
	b.At, b.Origin, b.Loc, b.Prefix = loss, loss.Name, loss.Loc, loss.Name+"/"
	x := h.rows(form)
	vocab, _ := scores.Type.Shape.Dims[1].Int()
	rowBytes := vocab * int64(x.Type.DType.Bits()/8)
	attrs := []ir.Attr{ir.StringAttr("reduction", loss.Str("reduction", "mean")), ir.IntAttr("to", int64(scores.Type.DType)),
		ir.IntAttr("chunk", max(128, min(headChunk, bytes/8)/rowBytes/128*128))}
	if form.transW {
		attrs = append(attrs, ir.IntAttr("transW", 1))
	}
	if a := loss.Attr("ignore_index"); a != nil {
		attrs = append(attrs, ir.IntAttr("ignore_index", a.I))
	}
	out := b.OpN(ir.MemocDomain, "LinearCrossEntropy", 1, []*ir.Value{x, form.weight, loss.In[1]}, attrs...)[0]
	if loss.Out[0].IsOutput() {
		// The loss keeps its name.
		return true, h.renamed(loss, out)
	}
	return true, b.Edit.ReplaceUses(loss.Out[0], out)
}

// renamed lets the loss node give the new value under its old name.
func (h *headRewriter) renamed(loss *ir.Node, v *ir.Value) error {
	name := loss.Out[0].Name
	if err := h.b.Edit.ReplaceUses(loss.Out[0], v); err != nil {
		return err
	}
	if err := h.b.Edit.Remove(loss); err != nil {
		return err
	}
	h.b.Edit.Rename(v, name)
	return nil
}

// rows is the projection's input with what lies between projection and loss
// applied to it instead: a matrix with a row for each label.
func (h *headRewriter) rows(form headForm) *ir.Value {
	x := form.product.In[0]
	hidden := x.Type.Shape.Dims[x.Type.Shape.Rank()-1]
	for i := len(form.between) - 1; i >= 0; i-- {
		if n := form.between[i]; n.Op == "Slice" {
			in := append([]*ir.Value{x}, n.In[1:]...)
			x = h.b.Op("Slice", in, n.Attrs...)
		}
	}
	n, _ := hidden.Int()
	return h.b.Reshape(x, -1, n)
}

// matchHead follows the scores of a loss back to the projection that makes
// them; why says what is in the way.
func matchHead(loss *ir.Node) (form headForm, why string) {
	switch {
	case len(loss.In) > 2 && loss.In[2] != nil:
		return form, "the loss has class weights"
	case loss.Str("reduction", "mean") == "none":
		return form, "the loss is not reduced"
	case loss.In[0].Type.Shape.Rank() != 2:
		return form, "the scores are no matrix"
	}
	for _, v := range loss.Out[1:] {
		if v != nil && (len(v.Uses()) > 0 || v.IsOutput()) {
			return form, "the log-probabilities are used as well"
		}
	}
	v := loss.In[0]
	for {
		if v.Def == nil || len(v.Uses()) != 1 || v.IsOutput() {
			return form, fmt.Sprintf("%q has other readers", v.Name)
		}
		n := v.Def
		switch {
		case n.Domain != ir.OnnxDomain:
			return form, "the scores come from " + n.FullOp()
		case n.Op == "MatMul" || n.Op == "Gemm":
			form.product = n
			return form, form.operands()
		case n.Op == "Reshape" && sameLast(n.In[0], v):
		case n.Op == "Slice" && slicesRows(n):
		case n.Op == "Cast" || n.Op == "Identity":
		default:
			return form, "the scores come from " + n.FullOp()
		}
		if n.Op == "Reshape" && hasSlice(form.between) {
			return form, "rows are sliced after they are merged"
		}
		form.between = append(form.between, n)
		v = n.In[0]
	}
}

func hasSlice(ns []*ir.Node) bool {
	for _, n := range ns {
		if n.Op == "Slice" {
			return true
		}
	}
	return false
}

// operands finds the weight of the projection.
func (f *headForm) operands() (why string) {
	n := f.product
	if n.Op == "Gemm" {
		if len(n.In) > 2 && n.In[2] != nil || n.Float("alpha", 1) != 1 || n.Int("transA", 0) != 0 {
			return "the projection has a bias or a factor"
		}
		f.transW = n.Int("transB", 0) != 0
	}
	f.weight = n.In[1]
	if f.weight.Type.Shape.Rank() != 2 || n.In[0].Type.Shape.Rank() < 2 {
		return "the projection's weight is no matrix"
	}
	if d := f.weight.Def; d != nil && d.Op == "Transpose" && d.Domain == ir.OnnxDomain && d.In[0].Type.Shape.Rank() == 2 {
		if perm, ok := d.IntList("perm"); !ok || len(perm) == 2 && perm[0] == 1 {
			f.weight, f.transW = d.In[0], !f.transW
		}
	}
	if _, ok := n.In[0].Type.Shape.Static(); !ok {
		return "its sizes are not bound"
	}
	return ""
}

// sameLast reports whether two values have one last dim: a reshape that merges
// tokens and leaves the vocabulary alone.
func sameLast(a, b *ir.Value) bool {
	x, y := a.Type.Shape.Dims, b.Type.Shape.Dims
	return len(x) > 0 && len(y) > 0 && x[len(x)-1].Equal(y[len(y)-1])
}

// slicesRows reports whether a Slice leaves the last axis alone.
func slicesRows(n *ir.Node) bool {
	if !sameLast(n.In[0], n.Out[0]) {
		return false
	}
	rank := n.In[0].Type.Shape.Rank()
	axes, ok := n.IntList("axes")
	if len(n.In) > 3 && n.In[3] != nil {
		axes, ok = (&ir.InferCtx{Node: n}).StaticInts(3)
	}
	if !ok {
		return false
	}
	for _, a := range axes {
		if k, ok := ir.NormAxis(a, rank); !ok || k == rank-1 {
			return false
		}
	}
	return true
}
