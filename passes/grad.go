package passes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/passes/liveness"
)

var gradPass = Pass{
	Name:  "grad",
	Doc:   "Builds the backward pass of a forward model with a loss: one gradient output per trainable initializer.",
	Stage: Grad,
	After: []Edge{
		{"infer", "gradient rules need types and ranks"},
		{"branch", "an If that is decided has no gradient of its own"},
		{"sequence", "a sequence that is split and indexed has no gradient of its own"},
		{"fold", "shapes that are known give static reductions"},
		{"attention", "the gradient of FlashAttention keeps no scores"},
		{"losshead", "the gradient of a chunked loss head is made with the loss"},
	},
	Run: runGrad,
}

func runGrad(c *Context) (Result, error) {
	if !c.Options.Train {
		return Result{}, nil
	}
	if at := liveness.MarkedBackward(c.Graph); at < len(c.Graph.Nodes) {
		return Result{}, &diag.Diagnostic{ID: "grad", Severity: diag.Error,
			Loc:     c.Graph.Nodes[at].DiagLoc(),
			Message: "the graph holds a backward pass already", Help: "compile it without --train"}
	}
	loss, err := findLoss(c.Graph, c.Options.Loss)
	if err != nil {
		return Result{}, err
	}
	d := &differentiator{c: c, g: c.Graph, loss: loss}
	if err := d.run(); err != nil {
		return Result{}, err
	}
	if err := measureExported(c); err != nil {
		return Result{}, err
	}
	return Result{Changed: true, Stats: []ir.KV{stat("gradients", len(d.trained)), stat("nodes", d.made)}}, nil
}

// findLoss is the value called name: a graph output by preference, of one
// floating-point element.
func findLoss(g *ir.Graph, name string) (*ir.Value, error) {
	var outputs []string
	fail := func(format string, args ...any) (*ir.Value, error) {
		return nil, &diag.Diagnostic{ID: "loss", Severity: diag.Error, Message: fmt.Sprintf(format, args...),
			Help: "the outputs are " + strings.Join(outputs, ", ")}
	}
	var loss *ir.Value
	for _, v := range g.Outputs {
		outputs = append(outputs, v.Name)
		if v.Name == name {
			loss = v
		}
	}
	if loss == nil {
		for _, n := range g.Nodes {
			for _, v := range n.Out {
				if v != nil && v.Name == name {
					loss = v
				}
			}
		}
	}
	switch {
	case name == "":
		return fail("--train needs the name of the loss: --loss NAME")
	case loss == nil:
		return fail("no value is called %q%s", name, suggestion(name, outputs))
	case loss.Def == nil:
		return fail("%q is an input or a weight, not a loss", name)
	case !loss.Type.DType.IsFloat():
		return fail("the loss %q is of type %s; a loss is one floating-point number", name, loss.Type)
	}
	if n, ok := loss.Type.Shape.NumElements(); ok {
		if k, static := n.Int(); !static || k != 1 {
			return fail("the loss %q is of type %s; a loss is one number", name, loss.Type)
		}
	}
	return loss, nil
}

// differentiator builds reverse-mode derivatives: forward nodes are visited
// last to first, each with the summed gradients of its outputs.
type differentiator struct {
	c       *Context
	g       *ir.Graph
	loss    *ir.Value
	b       *ir.Builder
	needs   []bool      // by ValueID: a gradient is wanted and reaches the loss
	acc     []*ir.Value // by ValueID: sum of the gradients so far
	trained []*ir.Value
	made    int
}

func (d *differentiator) run() (err error) {
	defer ir.Catch(&err)
	forward := slices.Clone(d.g.Nodes)
	candidates, err := d.trainable()
	if err != nil {
		return err
	}
	d.mark(forward, candidates)
	if err := d.choose(candidates); err != nil {
		return err
	}
	edit := ir.NewEdit(d.g)
	d.b = ir.NewBuilder(edit)
	d.b.Backward, d.b.Prefix = true, "grad/"
	d.acc = make([]*ir.Value, d.g.NumValues())
	d.acc[d.loss.ID] = d.b.ExpandLike(d.b.Scalar(d.loss.Type.DType, 1), d.loss)
	for i := len(forward) - 1; i >= 0; i-- {
		if err := d.node(forward[i]); err != nil {
			return err
		}
	}
	d.deliver()
	d.made = edit.Changes()
	edit.Done()
	return nil
}

// trainable lists the initializers to train: those named with --wrt, or else
// all of floating point that are no running statistic and no scalar: exporters
// write the constants of formulas as scalar initializers.
func (d *differentiator) trainable() ([]*ir.Value, error) {
	var can, scalars []*ir.Value
	var names []string
	for _, v := range d.g.Inits {
		switch {
		case !v.Type.DType.IsFloat() || v.Init.Constant || isStatistic(v):
			continue
		case v.Type.Shape.Rank() == 0:
			scalars = append(scalars, v)
		default:
			can = append(can, v)
		}
		names = append(names, v.Name)
	}
	if len(d.c.Options.Wrt) == 0 {
		d.noteScalars(scalars)
		return can, nil
	}
	var out []*ir.Value
	for _, name := range d.c.Options.Wrt {
		v := byName(slices.Concat(can, scalars), name)
		if v == nil {
			d := &diag.Diagnostic{ID: "grad", Severity: diag.Error, Message: fmt.Sprintf("no trainable initializer is called %q", name)}
			if near := diag.Nearest(name, names, 5); len(near) > 0 {
				d.Help = "the nearest are " + strings.Join(near, ", ")
			} else if len(names) > 0 { // an exporter that renames leaves nothing near
				d.Help = "there are " + strings.Join(names[:min(len(names), 8)], ", ")
				if len(names) > 8 {
					d.Help += fmt.Sprintf(" and %d more", len(names)-8)
				}
			}
			return nil, d
		}
		out = append(out, v)
	}
	return out, nil
}

// noteScalars says which scalars are taken for constants.
func (d *differentiator) noteScalars(scalars []*ir.Value) {
	var names []string
	for _, v := range scalars {
		if len(v.Uses()) > 0 {
			names = append(names, v.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	list := strings.Join(names[:min(len(names), 6)], ", ")
	if len(names) > 6 {
		list += ", …"
	}
	d.c.Report(&diag.Diagnostic{ID: "grad-scalars", Severity: diag.Note,
		Message: fmt.Sprintf("%d scalar initializers are taken for constants and get no gradient (%s)", len(names), list),
		Help:    "name what to train with --wrt to train them"})
}

// isStatistic reports whether every reader takes v as a running mean or
// variance of BatchNormalization.
func isStatistic(v *ir.Value) bool {
	for _, u := range v.Uses() {
		if u.Node.Op != "BatchNormalization" || u.Port < 3 {
			return false
		}
	}
	return len(v.Uses()) > 0
}

// mark finds the values on a differentiable path from a candidate to the
// loss. Only floating-point values carry a gradient.
func (d *differentiator) mark(nodes []*ir.Node, candidates []*ir.Value) {
	n := d.g.NumValues()
	from, to := make([]bool, n), make([]bool, n)
	for _, v := range candidates {
		from[v.ID] = true
	}
	for _, node := range nodes {
		if !flows(node) {
			continue
		}
		if slices.ContainsFunc(slices.Concat(node.In, node.Captures), func(v *ir.Value) bool { return v != nil && from[v.ID] }) {
			for _, v := range node.Out {
				if v != nil && v.Type.DType.IsFloat() {
					from[v.ID] = true
				}
			}
		}
	}
	to[d.loss.ID] = true
	for i := len(nodes) - 1; i >= 0; i-- {
		node := nodes[i]
		if !flows(node) || !slices.ContainsFunc(node.Out, func(v *ir.Value) bool { return v != nil && to[v.ID] && v.Type.DType.IsFloat() }) {
			continue
		}
		for _, v := range slices.Concat(node.In, node.Captures) {
			if v != nil {
				to[v.ID] = true
			}
		}
	}
	d.needs = make([]bool, n)
	for i := range d.needs {
		d.needs[i] = from[i] && to[i]
	}
}

// flows reports whether a gradient may pass the node at all: an operator with
// only integer results, or one that says its result does not vary with its
// inputs, cuts the path. Operators whose gradient merely is not known do not:
// differentiating through them is refused, never skipped.
func flows(n *ir.Node) bool {
	if n.Decl == nil {
		return true
	}
	return n.Decl.Grad.Rule != nil || !ir.IsCut(n.Decl.Grad.None)
}

// choose reports the candidates without a path and keeps the others.
func (d *differentiator) choose(candidates []*ir.Value) error {
	for _, v := range candidates {
		if d.needs[v.ID] {
			d.trained = append(d.trained, v)
			continue
		}
		diagnostic := &diag.Diagnostic{ID: "grad-cut", Message: fmt.Sprintf("no differentiable path leads from %q to the loss %q%s; it gets no gradient", v.Name, d.loss.Name, d.cut(v))}
		diagnostic.Loc.Value = v.Name
		d.c.warn(diagnostic)
	}
	if len(d.trained) == 0 {
		return &diag.Diagnostic{ID: "grad", Severity: diag.Error,
			Message: fmt.Sprintf("nothing is trainable: no floating-point initializer reaches the loss %q", d.loss.Name),
			Help:    "weights must be initializers of the model, not graph inputs"}
	}
	return nil
}

// cut says where the path from v to the loss ends.
func (d *differentiator) cut(v *ir.Value) string {
	seen := map[*ir.Value]bool{v: true}
	queue := []*ir.Value{v}
	where := ", nothing reads it"
	for len(queue) > 0 {
		x := queue[0]
		queue = queue[1:]
		for _, u := range x.Uses() {
			where = ""
			if !flows(u.Node) || !slices.ContainsFunc(u.Node.Out, func(o *ir.Value) bool { return o != nil && o.Type.DType.IsFloat() }) {
				return fmt.Sprintf(", cut at %s", u.Node)
			}
			for _, o := range u.Node.Out {
				if o != nil && !seen[o] {
					seen[o] = true
					queue = append(queue, o)
				}
			}
		}
	}
	return where
}

// node runs the rule of one forward node.
func (d *differentiator) node(n *ir.Node) error {
	outs := make([]*ir.Value, len(n.Out))
	any := false
	for i, v := range n.Out {
		if v != nil && int(v.ID) < len(d.acc) && d.acc[v.ID] != nil {
			outs[i], any = d.acc[v.ID], true
		}
	}
	needs := make([]bool, len(n.In))
	wanted := ""
	for i, v := range n.In {
		if v != nil && d.needs[v.ID] {
			needs[i] = true
			wanted = v.Name
		}
	}
	captured := slices.ContainsFunc(n.Captures, func(v *ir.Value) bool { return d.needs[v.ID] })
	if !any || wanted == "" && !captured {
		return nil
	}
	if n.Decl == nil || n.Decl.Grad.Rule == nil || captured {
		return d.refuse(n, wanted)
	}
	d.b.Origin, d.b.Loc = n.Name, n.Loc
	ctx := ir.NewGradCtx(d.b, n, outs, needs)
	if err := d.rule(n, ctx); err != nil {
		return err
	}
	for i, g := range ctx.InGrads() {
		if g == nil || !needs[i] {
			continue
		}
		if err := d.accumulate(n, i, g); err != nil {
			return err
		}
	}
	return nil
}

// rule runs a gradient rule; what it refuses is located at the node, with the
// operands' types.
func (d *differentiator) rule(n *ir.Node, ctx *ir.GradCtx) error {
	err := func() (err error) {
		defer ir.Catch(&err)
		return n.Decl.Grad.Rule(ctx)
	}()
	var located *diag.Diagnostic
	if err == nil || errors.As(err, &located) {
		return err
	}
	var operands []string
	for _, v := range n.In {
		if v != nil {
			operands = append(operands, fmt.Sprintf("%q %s", v.Name, v.Type))
		}
	}
	return n.Errorf("no-gradient", "%v (operands %s)", err, strings.Join(operands, ", "))
}

func (d *differentiator) accumulate(n *ir.Node, i int, g *ir.Value) error {
	v := n.In[i]
	if g.Type.DType != v.Type.DType || !compatible(g.Type.Shape, v.Type.Shape) {
		return n.Errorf("internal", "BUG: the gradient of input %d is of type %s, the input %q of type %s", i, g.Type, v.Name, v.Type)
	}
	if old := d.acc[v.ID]; old != nil {
		g = d.b.Add(old, g)
	}
	d.acc[v.ID] = g
	return nil
}

// compatible reports whether two shapes may be equal.
func compatible(a, b ir.Shape) bool {
	if !a.Ranked || !b.Ranked {
		return true
	}
	return len(a.Dims) == len(b.Dims) && !slices.ContainsFunc(zip(a.Dims, b.Dims), func(p [2]ir.Dim) bool { return p[0].Differ(p[1]) })
}

func zip(a, b []ir.Dim) [][2]ir.Dim {
	out := make([][2]ir.Dim, len(a))
	for i := range a {
		out[i] = [2]ir.Dim{a[i], b[i]}
	}
	return out
}

func (d *differentiator) refuse(n *ir.Node, wanted string) error {
	why := "memoc does not know the operator"
	if n.Decl != nil {
		why = n.Decl.Grad.None
		if why == "" {
			why = "a subgraph captures a value that needs one"
		}
	}
	param := ""
	for _, v := range d.trained {
		if v.Name == wanted || reaches(v, n) {
			param = fmt.Sprintf(" (needed for %q)", v.Name)
			break
		}
	}
	err := &diag.Diagnostic{ID: "no-gradient", Severity: diag.Error, Loc: n.DiagLoc(),
		Message: fmt.Sprintf("the gradient of operator %s is missing%s: %s", n.FullOp(), param, why)}
	err.Loc.Value = wanted
	return err
}

func reaches(v *ir.Value, n *ir.Node) bool {
	seen := map[*ir.Node]bool{}
	stack := []*ir.Value{v}
	for len(stack) > 0 {
		x := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, u := range x.Uses() {
			if u.Node == n {
				return true
			}
			if !seen[u.Node] {
				seen[u.Node] = true
				for _, o := range u.Node.Out {
					if o != nil {
						stack = append(stack, o)
					}
				}
			}
		}
	}
	return false
}

// deliver makes the graph's outputs: the loss, what stateful nodes hand on
// (running statistics), and "<initializer>_grad" for every trained one.
func (d *differentiator) deliver() {
	outputs := []*ir.Value{d.loss}
	for _, v := range d.g.Outputs {
		if v != d.loss && v.Def != nil && v.Def.Decl != nil && v.Port > 0 {
			if ok, _ := v.Def.Decl.Recompute.OK(); !ok || v.Def.Op == "BatchNormalization" {
				outputs = append(outputs, v)
			}
		}
	}
	for _, v := range d.trained {
		g := d.acc[v.ID]
		if g == nil {
			continue
		}
		d.b.Origin = ""
		name := d.g.Fresh(v.Name + "_grad")
		if name != v.Name+"_grad" {
			taken := &diag.Diagnostic{ID: "grad-name", Message: fmt.Sprintf("the name %q is taken; the gradient of %q is called %q", v.Name+"_grad", v.Name, name)}
			taken.Loc.Value = v.Name
			d.c.warn(taken)
		}
		n := d.b.Node(ir.OnnxDomain, "Identity", []*ir.Value{g}, []string{name})
		outputs = append(outputs, n.Out[0])
	}
	d.g.Outputs = outputs
}
