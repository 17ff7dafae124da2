package ir

import "strings"

// textScope finds values by name, from the innermost graph outwards.
type textScope struct {
	parent *textScope
	g      *Graph
	vals   map[string]*Value
}

func (s *textScope) find(name string) *Value {
	for ; s != nil; s = s.parent {
		if v := s.vals[name]; v != nil {
			return v
		}
	}
	return nil
}

func (p *textParser) beginRoot(path string) {
	p.path = path
	p.values, p.nodes = map[string]*Value{}, map[string]bool{}
	p.again, p.unnamed = nil, nil
}

// endRoot gives what has no name of its own one, now that all names are known.
func (p *textParser) endRoot(g *Graph) {
	for _, v := range p.again {
		v.Name = g.Fresh(v.Name)
	}
	for _, n := range p.unnamed {
		base := n.Name
		if base == "" {
			base = n.Op
		}
		n.Name = g.Fresh(base)
	}
}

func (p *textParser) rootGraph(opsets map[string]int) *Graph {
	p.next()
	g := NewGraph("", opsets)
	g.Name = p.name("a graph's name")
	p.beginRoot("graph")
	p.graphBody(g, nil)
	p.endRoot(g)
	return g
}

func (p *textParser) subgraph(scope *textScope) *Graph {
	p.enter()
	defer p.leave()
	if scope == nil {
		p.fail(p.next(), "a graph cannot stand here")
	}
	g := scope.g.NewSubgraph(p.name("a graph's name"))
	outer := p.path
	p.path = outer + "/" + g.Name
	p.graphBody(g, scope)
	p.path = outer
	return g
}

// declared is a value named in a list, with what is said of it there.
type declared struct {
	name  string
	typ   Type
	at    int
	notes []*textNote
}

// graphBody reads all of a graph but its name.
func (p *textParser) graphBody(g *Graph, parent *textScope) {
	scope := &textScope{parent: parent, g: g, vals: map[string]*Value{}}
	if parent == nil {
		p.root = g
	}
	var rest []declared
	if p.accept('(') {
		p.declarations(')', func(d declared, data bool) *Value { return p.input(scope, d, data) })
	}
	p.expect('=')
	if !p.accept('>') {
		p.fail(p.pos, "expected =>")
	}
	p.expect('(')
	outputs := p.declarations(')', nil)
	if p.accept('<') {
		rest = p.declarations('>', func(d declared, data bool) *Value {
			if !data {
				return nil
			}
			return p.initializer(scope, d)
		})
	}
	p.expect('{')
	p.graphNotes(g)
	for !p.accept('}') {
		p.node(scope)
	}
	p.describe(scope, rest)
	p.outputs(scope, outputs)
}

// declarations reads "[type] name [= data]" up to the closing byte. Each is
// offered to make; those it makes no value of are returned.
func (p *textParser) declarations(end byte, make func(d declared, data bool) *Value) []declared {
	var rest []declared
	var last *Value
	flush := func() {
		notes := p.take()
		switch {
		case len(notes) == 0:
		case last != nil:
			p.valueNotes(last, notes)
		case len(rest) > 0:
			rest[len(rest)-1].notes = append(rest[len(rest)-1].notes, notes...)
		default:
			notes[0].fail("this comment belongs to nothing")
		}
	}
	for first := true; ; first = false {
		flush()
		if p.accept(end) {
			return rest
		}
		if !first {
			p.expect(',')
			flush()
		}
		d := declared{at: p.next()}
		if startsType(p.peekIdent()) {
			d.typ = p.typ()
		}
		at := p.next()
		d.name = p.name("a tensor's name")
		if d.typ.Kind == NoType {
			d.at = at
		}
		last = nil
		if make != nil {
			last = make(d, p.accept('='))
		}
		if last == nil {
			rest = append(rest, d)
		}
	}
}

// define makes a value of the scope's graph.
func (p *textParser) define(scope *textScope, name string, at int, t Type) *Value {
	if scope.vals[name] != nil {
		p.fail(at, "tensor %q is defined twice in this graph", name)
	}
	v := scope.g.NewValue(name, t)
	scope.vals[name] = v
	other := p.values[name]
	switch {
	case other == nil:
		p.values[name] = v
	case scope.parent == nil: // the outermost keeps its name
		p.values[name] = v
		p.again = append(p.again, other)
	default:
		p.again = append(p.again, v)
	}
	return v
}

func (p *textParser) input(scope *textScope, d declared, data bool) *Value {
	v := p.define(scope, d.name, d.at, d.typ)
	scope.g.Inputs = append(scope.g.Inputs, v)
	if data {
		v.Init = p.weight(d.typ, d.at)
		scope.g.Inits = append(scope.g.Inits, v)
	}
	return v
}

func (p *textParser) initializer(scope *textScope, d declared) *Value {
	w := p.weight(d.typ, d.at)
	v := scope.vals[d.name]
	switch {
	case v == nil:
		v = p.define(scope, d.name, d.at, d.typ)
	case v.Init != nil:
		p.fail(d.at, "tensor %q is defined twice in this graph", d.name)
	}
	v.Init = w
	scope.g.Inits = append(scope.g.Inits, v)
	return v
}

// describe gives values made by nodes the types listed ahead of the nodes.
func (p *textParser) describe(scope *textScope, ds []declared) {
	for _, d := range ds {
		v := scope.vals[d.name]
		if v == nil {
			p.fail(d.at, "a type is given for %q, which nothing in this graph defines", d.name)
		}
		if v.Type.Kind == NoType {
			v.Type = d.typ
		}
		p.valueNotes(v, d.notes)
	}
}

func (p *textParser) outputs(scope *textScope, ds []declared) {
	for _, d := range ds {
		v := scope.find(d.name)
		if v == nil {
			p.fail(d.at, "output %q is never defined", d.name)
		}
		if v.Type.Kind == NoType {
			v.Type = d.typ
		}
		p.valueNotes(v, d.notes)
		scope.g.Outputs = append(scope.g.Outputs, v)
	}
}

func (p *textParser) node(scope *textScope) {
	p.enter()
	defer p.leave()
	s := NodeSpec{Loc: Loc{File: p.file, Path: p.path, Index: len(scope.g.Nodes)}}
	named := false
	if p.accept('[') {
		s.Name, named = p.optName()
		p.expect(']')
	}
	outAt := []int{}
	for p.peek() != '=' {
		if len(s.Out) > 0 {
			p.expect(',')
			if p.peek() == '=' {
				break
			}
		}
		outAt = append(outAt, p.next())
		name, _ := p.optName() // nothing before a comma is an absent output
		if name == "" && p.peek() != ',' && p.peek() != '=' {
			p.fail(p.pos, "expected an output's name, found %s", p.found())
		}
		s.Out = append(s.Out, name)
	}
	p.expect('=')
	overload := p.operator(&s)
	p.attrs(&s, scope)
	s.In = p.inputs(scope)
	if len(s.Attrs) == 0 {
		p.attrs(&s, scope)
	}
	n := p.makeNode(scope, s, outAt)
	n.Overload = overload
	p.nodeNotes(n)
	if named && s.Name != "" && !p.nodes[s.Name] {
		p.nodes[s.Name] = true
		scope.g.Reserve(s.Name)
		return
	}
	p.unnamed = append(p.unnamed, n)
}

// makeNode appends the node and defines its outputs.
func (p *textParser) makeNode(scope *textScope, s NodeSpec, outAt []int) *Node {
	names := s.Out
	s.Out = nil
	if s.Domain == "ai.onnx" {
		s.Domain = ""
	}
	n := scope.g.Append(s)
	for i, name := range names {
		if name == "" {
			n.Out = append(n.Out, nil)
			continue
		}
		v := p.define(scope, name, outAt[i], Type{})
		v.Def, v.Port = n, i
		n.Out = append(n.Out, v)
	}
	if outer := n.OuterValues(); len(outer) > 0 {
		n.SetCaptures(outer)
	}
	return n
}

// operator reads "domain.Op:overload"; each part may be quoted.
func (p *textParser) operator(s *NodeSpec) (overload string) {
	parts := []string{p.name("an operator's name")}
	for p.accept('.') {
		parts = append(parts, p.name("an operator's name"))
	}
	last := len(parts) - 1
	s.Domain, s.Op = strings.Join(parts[:last], "."), parts[last]
	if p.accept(':') {
		return p.name("an overload's name")
	}
	return ""
}

func (p *textParser) attrs(s *NodeSpec, scope *textScope) {
	if !p.accept('<') {
		return
	}
	for first := true; !p.accept('>'); first = false {
		if !first {
			p.expect(',')
		}
		at := p.next()
		name := p.name("an attribute's name")
		for i := range s.Attrs {
			if s.Attrs[i].Name == name {
				p.fail(at, "attribute %q is given twice", name)
			}
		}
		s.Attrs = append(s.Attrs, p.attrValue(name, scope))
	}
}

// inputs reads "(a, , b)": nothing before a comma, and "", are absent.
func (p *textParser) inputs(scope *textScope) []*Value {
	var in []*Value
	p.expect('(')
	for !p.accept(')') {
		at := p.next()
		name, ok := p.optName()
		var v *Value
		if name != "" {
			if v = scope.find(name); v == nil {
				p.fail(at, "tensor %q is read before it is defined", name)
			}
		}
		in = append(in, v)
		if !p.accept(',') {
			if !ok {
				p.fail(p.pos, "expected an input's name, found %s", p.found())
			}
			p.expect(')')
			break
		}
	}
	return in
}

func (p *textParser) nodeNotes(n *Node) {
	for _, note := range p.take() {
		for !note.done() {
			switch w := note.word(); w {
			case "origin":
				n.Origin = note.text()
			case "backward":
				n.Backward = true
			case "version":
				n.Version = note.int()
			case "doc":
				n.Doc = note.text()
			case "meta":
				n.Meta = append(n.Meta, note.pair())
			default:
				note.fail("%q is no word of a node's comment", w)
			}
		}
	}
}

func (p *textParser) valueNotes(v *Value, notes []*textNote) {
	for _, note := range notes {
		for !note.done() {
			switch w := note.word(); w {
			case "sparse":
				if v.Init == nil {
					note.fail("only an initializer is sparse")
				}
				v.Init.Sparse = true
			case "ints":
				v.Ints = note.ints()
			case "doc":
				v.Doc = note.text()
			default:
				note.fail("%q is no word of a tensor's comment", w)
			}
		}
	}
}

func (p *textParser) graphNotes(g *Graph) {
	for _, note := range p.take() {
		for !note.done() {
			switch w := note.word(); w {
			case "name":
				g.Name = note.text()
			case "doc":
				g.Doc = note.text()
			case "meta":
				g.Meta = append(g.Meta, note.pair())
			default:
				note.fail("%q is no word of a graph's comment", w)
			}
		}
	}
}
