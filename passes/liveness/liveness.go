// Package liveness finds the storages of a graph (a value with all its views),
// their class, and where in the execution order each is made and read. Whether
// two storages may share bytes in place is decided later, with the schedule at
// hand.
package liveness

import (
	"slices"

	"memoc/ir"
)

// Storage is one range of bytes: the value that owns it and its views.
// Positions are indices into Graph.Nodes.
type Storage struct {
	Root    *ir.Value
	Values  []*ir.Value // root first, then views in order of definition
	Bytes   ir.Bytes    // of the tensor; it takes ir.Padded(Bytes)
	Class   ir.Class
	Def     int   // node that makes it, -1 for a persistent storage
	Reads   []int // nodes that read it, ascending, each once
	Derived bool  // computed from weights and constants alone, or a new layout of a persistent storage
	layout  bool  // a new layout of a persistent storage
}

// Known is the value of s that a reader knows: a graph output, if it has one
// (a gradient is a view of what the product made), or its root.
func (s *Storage) Known(g *ir.Graph) *ir.Value {
	if s.Class == ir.Output {
		for _, v := range s.Values {
			if slices.Contains(g.Outputs, v) {
				return v
			}
		}
	}
	return s.Root
}

// End is the position after the last access, half-open; an output lives to n.
func (s *Storage) End(n int) int {
	if s.Class == ir.Output || s.Class == ir.Persistent {
		return n
	}
	if len(s.Reads) == 0 {
		return s.Def + 1
	}
	return s.Reads[len(s.Reads)-1] + 1
}

// Mode says what to do with values that have no static size.
type Mode uint8

// The modes.
const (
	Strict  Mode = iota // an error
	Lenient             // they count nothing
)

// Result is the storages of a graph's top level.
type Result struct {
	Graph    *ir.Graph
	mode     Mode
	Storages []Storage
	Of       []int // storage of each value by ValueID, -1 for none
}

// Analyze lists the storages of g. In Strict mode it is an error if a value
// has no static size: the error names the first such tensor and the symbol to
// bind.
func Analyze(g *ir.Graph, mode Mode) (*Result, error) {
	r := &Result{Graph: g, mode: mode, Of: make([]int, g.NumValues())}
	for i := range r.Of {
		r.Of[i] = -1
	}
	for _, vs := range [][]*ir.Value{g.Inputs, g.Inits} {
		for _, v := range vs {
			if r.Of[v.ID] < 0 {
				if err := r.add(v, -1); err != nil {
					return nil, err
				}
			}
		}
	}
	for i, n := range g.Nodes {
		if err := r.node(i, n); err != nil {
			return nil, err
		}
	}
	r.classify()
	return r, nil
}

// Computes reports whether n does work at run time: constants are filled in
// once, and a node all of whose outputs are views moves nothing.
func (r *Result) Computes(n *ir.Node) bool {
	if IsConstant(n) {
		return false
	}
	for o, v := range n.Out {
		if v != nil && !r.isView(n, o) {
			return true
		}
	}
	return len(n.Out) == 0
}

// IsConstant reports whether n is a Constant node.
func IsConstant(n *ir.Node) bool { return n.Op == "Constant" && n.Domain == ir.OnnxDomain }

func (r *Result) node(i int, n *ir.Node) error {
	for _, vs := range [][]*ir.Value{n.In, n.Captures} {
		for _, v := range vs {
			if v == nil || r.Of[v.ID] < 0 {
				continue
			}
			if s := &r.Storages[r.Of[v.ID]]; !r.viewsOnly(n) && (len(s.Reads) == 0 || s.Reads[len(s.Reads)-1] != i) {
				s.Reads = append(s.Reads, i)
			}
		}
	}
	for o, v := range n.Out {
		if v == nil {
			continue
		}
		if r.isView(n, o) {
			s := r.Of[n.In[n.Decl.View(n, o)].ID]
			r.Of[v.ID] = s
			r.Storages[s].Values = append(r.Storages[s].Values, v)
			continue
		}
		def := i
		if IsConstant(n) {
			def = -1
		}
		if err := r.add(v, def); err != nil {
			return err
		}
	}
	return nil
}

// viewsOnly reports whether n moves no data, so that reading through it is
// its readers' doing.
func (r *Result) viewsOnly(n *ir.Node) bool { return !r.Computes(n) }

// isView reports whether output o of n shares the bytes of an input. A graph
// output never shares those of a caller-owned input or a weight, nor those of
// another output: each output is delivered in bytes of its own.
func (r *Result) isView(n *ir.Node, o int) bool {
	if n.Decl == nil || n.Decl.View == nil || n.Out[o] == nil {
		return false
	}
	in := n.Decl.View(n, o)
	if in < 0 || in >= len(n.In) || n.In[in] == nil || r.Of[n.In[in].ID] < 0 {
		return false
	}
	if !n.Out[o].IsOutput() {
		return true
	}
	base := r.Storages[r.Of[n.In[in].ID]]
	for _, v := range base.Values {
		if v.IsOutput() && v != n.Out[o] {
			return false
		}
	}
	return base.Def >= 0
}

func (r *Result) add(v *ir.Value, def int) error {
	bytes, err := v.Type.Bytes()
	if err != nil {
		if r.mode == Lenient {
			return nil
		}
		return sizeError(v, err)
	}
	r.Of[v.ID] = len(r.Storages)
	r.Storages = append(r.Storages, Storage{Root: v, Values: []*ir.Value{v}, Bytes: bytes, Def: def})
	return nil
}
