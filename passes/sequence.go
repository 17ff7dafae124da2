package passes

import (
	"memoc/ir"
)

var sequencePass = Pass{
	Name:  "sequence",
	Doc:   "Replaces sequences that are made and taken apart at known positions by the tensors in them.",
	Stage: Simplify,
	After: []Edge{{"infer", "positions and lengths come from inference"}},
	Run: func(c *Context) (Result, error) {
		s := &sequences{b: ir.NewBuilder(ir.NewEdit(c.Graph)), parts: map[*ir.Value][]*ir.Value{}}
		n, err := s.run(c)
		if err != nil {
			return Result{}, err
		}
		removed, err := removeDead(c.Graph)
		return Result{Changed: n > 0, Stats: []ir.KV{stat("resolved", n), stat("removed", removed)}}, err
	},
}

// sequences tracks the tensors in every sequence value whose making is seen.
type sequences struct {
	b     *ir.Builder
	parts map[*ir.Value][]*ir.Value
}

func (s *sequences) run(c *Context) (resolved int, err error) {
	defer ir.Catch(&err)
	for _, n := range c.Graph.Nodes {
		if n.Domain != ir.OnnxDomain {
			continue
		}
		s.b.At, s.b.Origin, s.b.Loc, s.b.Prefix = n, n.Name, n.Loc, n.Name+"/"
		var with *ir.Value
		switch n.Op {
		case "SequenceConstruct":
			s.parts[n.Out[0]] = n.In
		case "SplitToSequence":
			s.split(n)
		case "SequenceAt":
			with = s.at(n)
		case "ConcatFromSequence":
			with = s.concat(n)
		}
		if with == nil || !with.Type.Equal(n.Out[0].Type) || !c.spend() {
			continue
		}
		if err := s.b.Edit.ReplaceUses(n.Out[0], with); err != nil {
			return resolved, err
		}
		resolved++
	}
	s.b.Edit.Done()
	return resolved, nil
}

// split makes one Split of a SplitToSequence whose pieces are known.
func (s *sequences) split(n *ir.Node) {
	shape := n.In[0].Type.Shape
	axis, ok := ir.NormAxis(n.Int("axis", 0), shape.Rank())
	if !ok {
		return
	}
	sizes, squeeze := s.pieces(n, shape.Dims[axis])
	if len(sizes) == 0 {
		return
	}
	in := []*ir.Value{n.In[0]}
	attrs := []ir.Attr{ir.IntAttr("axis", int64(axis))}
	if s.b.Opset() < 13 {
		attrs = append(attrs, ir.IntsAttr("split", sizes...))
	} else {
		in = append(in, s.b.Int64s(sizes...))
	}
	parts := s.b.OpN(ir.OnnxDomain, "Split", len(sizes), in, attrs...)
	for i := range parts {
		if squeeze {
			parts[i] = s.b.Squeeze(parts[i], int64(axis))
		}
	}
	s.parts[n.Out[0]] = parts
}

// pieces is the extents of a SplitToSequence's pieces along dim, nil if they
// are not known; squeeze says that the axis is dropped from each.
func (s *sequences) pieces(n *ir.Node, dim ir.Dim) (sizes []int64, squeeze bool) {
	total, known := dim.Int()
	if len(n.In) < 2 || n.In[1] == nil {
		if !known || total > 64 {
			return nil, false
		}
		for range total {
			sizes = append(sizes, 1)
		}
		return sizes, n.Int("keepdims", 1) == 0
	}
	given, ok := (&ir.InferCtx{Node: n}).StaticInts(1)
	switch {
	case !ok:
		return nil, false
	case n.In[1].Type.Shape.Rank() == 1:
		return given, false
	case !known || len(given) != 1 || given[0] <= 0:
		return nil, false
	}
	for at := int64(0); at < total; at += given[0] {
		sizes = append(sizes, min(given[0], total-at))
	}
	return sizes, false
}

func (s *sequences) at(n *ir.Node) *ir.Value {
	parts := s.parts[n.In[0]]
	pos, ok := (&ir.InferCtx{Node: n}).StaticInts(1)
	if parts == nil || !ok || len(pos) != 1 {
		return nil
	}
	i, ok := ir.NormAxis(pos[0], len(parts))
	if !ok {
		return nil
	}
	return parts[i]
}

func (s *sequences) concat(n *ir.Node) *ir.Value {
	parts := s.parts[n.In[0]]
	if len(parts) == 0 {
		return nil
	}
	axis := n.Int("axis", 0)
	if n.Int("new_axis", 0) == 1 {
		parts = append([]*ir.Value{}, parts...)
		for i := range parts {
			parts[i] = s.b.Unsqueeze(parts[i], axis)
		}
	}
	return s.b.Op("Concat", parts, ir.IntAttr("axis", axis))
}
