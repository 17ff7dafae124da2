package passes

import (
	"slices"

	"memoc/ir"
	"memoc/passes/plan"
)

var costPass = Pass{
	Name:  "cost",
	Doc:   "Predicts the time of every node on the device and states the planning problem.",
	Stage: Analyze,
	After: []Edge{{"liveness", "tensors of the problem are storages"}},
	Run: func(c *Context) (Result, error) {
		p, o, err := buildProblem(c)
		if err != nil {
			return Result{}, err
		}
		c.Problem, c.Origin = p, o
		if c.Metrics.PeakUnplanned == 0 { // of the file's own order: before schedule
			base, err := p.Build(p.Initial())
			if err != nil {
				return Result{}, err
			}
			c.Metrics.PeakUnplanned, c.Metrics.UnplannedTime = c.Metrics.Persistent+base.Peak, base.Time
		}
		return Result{Stats: []ir.KV{stat("ops", len(p.Ops)), stat("tensors", len(p.Tensors))}}, nil
	},
}

// origin maps a plan.Problem back to the graph: problem ops to nodes, problem
// tensors to storages.
type origin struct {
	node    []*ir.Node
	in      [][]*ir.Value // of node, before any rewriting
	storage []int         // by problem tensor
	tensor  []int         // by storage, -1 for persistent ones
}

// buildProblem states the graph as a plan.Problem: nodes that do work become
// ops, storages that are not persistent become tensors.
func buildProblem(c *Context) (*plan.Problem, *origin, error) {
	dev := c.Options.Device
	p := &plan.Problem{OutRate: dev.OutGBps, InRate: dev.InGBps, CopyLatency: dev.CopyLatency, HostBytes: c.hostBudget()}
	c.tokenAxis(p)
	o := &origin{tensor: make([]int, len(c.Live.Storages))}
	for i := range c.Live.Storages {
		s := &c.Live.Storages[i]
		o.tensor[i] = -1
		if s.Def < 0 {
			continue
		}
		o.tensor[i] = len(p.Tensors)
		o.storage = append(o.storage, i)
		t := plan.Tensor{Bytes: ir.Padded(s.Bytes), Output: s.Class == ir.Output, Derived: s.Derived, Spread: spread(s.Root.Def)}
		if rows, bytes, ok := c.Tokens.Rows(s.Values...); ok && bytes > 0 && p.Tokens > 0 && rows <= ir.MaxRows {
			t.Rows, t.TokenBytes = rows, bytes
		}
		p.Tensors = append(p.Tensors, t)
	}
	o.layers(c, p)
	for _, n := range c.Graph.Nodes {
		if !c.Live.Computes(n) {
			continue
		}
		op, err := o.op(c, n)
		if err == nil {
			err = o.ranges(c, p, n, &op)
		}
		if err != nil {
			return nil, nil, err
		}
		o.node = append(o.node, n)
		o.in = append(o.in, slices.Clone(n.In))
		p.Ops = append(p.Ops, op)
	}
	return p, o, p.Validate()
}

// spread reports whether n repeats the elements of its input.
func spread(n *ir.Node) bool {
	return n.Domain == ir.OnnxDomain && (n.Op == "Expand" || n.Op == "Tile")
}

// op states one node.
func (o *origin) op(c *Context, n *ir.Node) (plan.Op, error) {
	time, workspace, err := c.Options.Device.Node(n)
	if err != nil {
		return plan.Op{}, err
	}
	op := plan.Op{Time: time, Workspace: ir.Padded(workspace), Clone: cloneable(n)}
	for _, vs := range [][]*ir.Value{n.In, n.Captures} {
		for _, v := range vs {
			if t := o.of(c, v); t >= 0 {
				op.In = append(op.In, t)
			}
		}
	}
	for _, v := range n.Out {
		if t := o.of(c, v); t >= 0 && v.Def == n && c.Live.Storages[o.storage[t]].Root == v {
			op.Out = append(op.Out, t)
		}
	}
	if n.Decl != nil {
		for _, a := range n.Decl.InPlace {
			op.InPlace = o.alias(c, n, a, op.InPlace)
		}
	}
	return op, nil
}

// alias adds an in-place pair where both tensors are whole storages of one
// size: a view of part of a storage, or a value read through several ports, is
// never overwritten.
func (o *origin) alias(c *Context, n *ir.Node, a ir.Alias, out []plan.Alias) []plan.Alias {
	if a.In >= len(n.In) || a.Out >= len(n.Out) || n.In[a.In] == nil || n.Out[a.Out] == nil {
		return out
	}
	in, made := o.of(c, n.In[a.In]), o.of(c, n.Out[a.Out])
	if in < 0 || made < 0 || in == made {
		return out
	}
	for i, v := range n.In {
		if i != a.In && o.of(c, v) == in {
			return out
		}
	}
	if !n.In[a.In].Type.Shape.Equal(n.Out[a.Out].Type.Shape) || n.In[a.In].Type.DType.Bits() != n.Out[a.Out].Type.DType.Bits() {
		return out
	}
	return append(out, plan.Alias{In: in, Out: made})
}

// of is the problem tensor that holds v, -1 for persistent values and nil.
func (o *origin) of(c *Context, v *ir.Value) int {
	if v == nil || int(v.ID) >= len(c.Live.Of) || c.Live.Of[v.ID] < 0 {
		return -1
	}
	return o.tensor[c.Live.Of[v.ID]]
}

// cloneable reports whether running n again gives the same values: a known,
// pure operator without subgraphs whose outputs are not integer decisions.
func cloneable(n *ir.Node) bool {
	if n.Decl == nil || len(n.Subgraphs()) > 0 {
		return false
	}
	pure, _ := n.Decl.Recompute.OK()
	return pure
}

func (c *Context) hostBudget() int64 {
	if c.Options.HostBudget >= 0 {
		return c.Options.HostBudget
	}
	return c.Options.Device.HostBytes
}
