package onnx

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"memoc/ir"
	"memoc/ir/diag"
)

// builder resolves the names of one root graph (the model's, or a function's
// body) with all its subgraphs.
type builder struct {
	*loader
	nodeNames map[string]bool // given to nodes
	fileNames map[string]bool // any name in the file: generated ones avoid them
	free      map[*graphProto][]string
}

func newBuilder(l *loader, root *ir.Graph) *builder {
	l.root = root
	return &builder{loader: l, nodeNames: map[string]bool{}, fileNames: map[string]bool{}, free: map[*graphProto][]string{}}
}

// scope is one graph while it is built: names as the file has them.
type scope struct {
	parent   *scope
	g        *ir.Graph
	path     string
	vals     map[string]*ir.Value
	outs     map[string]string // what nodes make: the file's name to the graph's
	captures []*ir.Value       // values of outer scopes read here or further in
	captured map[*ir.Value]bool
}

// find looks a name up, from the inside out, and records the capture in every
// scope that is crossed.
func (s *scope) find(name string) *ir.Value {
	v := s.vals[name]
	if v != nil || s.parent == nil {
		return v
	}
	if v = s.parent.find(name); v != nil && !s.captured[v] {
		s.captured[v] = true
		s.captures = append(s.captures, v)
	}
	return v
}

// known is find without recording.
func (s *scope) known(name string) bool {
	return s != nil && (s.vals[name] != nil || s.parent.known(name))
}

// fill builds graph g from p.
func (b *builder) fill(g *ir.Graph, p *graphProto, s *scope) error {
	s.g, s.vals, s.outs, s.captured = g, map[string]*ir.Value{}, map[string]string{}, map[*ir.Value]bool{}
	g.Name, g.Doc, g.Meta, g.Raw = p.name, p.doc, p.meta, p.span
	if s.parent == nil {
		b.collect(p)
	}
	// A name that is not there tells more than a malformed initializer.
	inputErr := b.inputs(p, s)
	made, err := b.producers(p, s)
	if err != nil {
		return err
	}
	order, err := b.order(p, s, made)
	if err == nil {
		err = inputErr
	}
	if err != nil {
		return err
	}
	// An output that is in value_info as well has the type of that: tools that
	// edit a graph infer it anew and leave the outputs' declarations stale.
	types := map[string]ir.Type{}
	for _, infos := range [][]valueInfo{p.outputs, p.valueInfos} {
		for _, v := range infos {
			if v.typ.Kind != ir.NoType {
				types[v.name] = v.typ
			}
		}
	}
	for _, i := range order {
		if err := b.node(p.nodes[i], s, types); err != nil {
			return err
		}
	}
	return b.outputs(p, s)
}

// collect notes every name in the file.
func (b *builder) collect(p *graphProto) {
	for _, v := range p.inputs {
		b.fileNames[v.name] = true
	}
	for _, t := range p.inits {
		b.fileNames[t.name] = true
	}
	for _, n := range p.nodes {
		b.fileNames[n.name] = true
		for _, out := range n.out {
			b.fileNames[out] = true
		}
		for _, a := range n.attrs {
			for _, sub := range a.subgraphs() {
				b.collect(sub)
			}
		}
	}
}

func (a *attrProto) subgraphs() []*graphProto {
	if a.graph != nil {
		return append([]*graphProto{a.graph}, a.graphs...)
	}
	return a.graphs
}

// valueName is the name of a value in the graph: as in the file, unless
// another scope has a value of that name already.
func (b *builder) valueName(s *scope, name string) string {
	if s.g.Reserve(name) || s.parent == nil {
		return name
	}
	return s.g.Fresh(name)
}

// inputs makes the values that no node makes: inputs and initializers.
func (b *builder) inputs(p *graphProto, s *scope) error {
	inits := map[string]*ir.Weight{}
	var names []string
	var firstErr error
	add := func(name string, w *ir.Weight, err error) {
		if err == nil && (name == "" || inits[name] != nil) {
			err = b.refuse("duplicate-name", fmt.Sprintf("two initializers have the name %q, or it has none", name), "",
				diag.Location{Path: s.path, Value: name})
		}
		if err != nil {
			firstErr = cmp.Or(firstErr, err)
			w = &ir.Weight{}
		}
		inits[name], names = w, append(names, name)
	}
	for _, t := range p.inits {
		w, err := b.weight(t)
		add(t.name, w, err)
	}
	for _, sp := range p.sparse {
		add(sp.values.name, sparseWeight(sp), nil)
	}
	for _, in := range p.inputs {
		if in.name == "" || s.vals[in.name] != nil {
			return b.refuse("duplicate-name", fmt.Sprintf("two inputs have the name %q, or it has none", in.name), "", diag.Location{Path: s.path, Value: in.name})
		}
		if inits[in.name] != nil && b.irv < 4 {
			continue // before IR version 4 every initializer had to be listed as an input
		}
		v := s.g.AddInput(b.valueName(s, in.name), in.typ)
		v.Doc = in.doc
		s.vals[in.name] = v
	}
	for _, name := range names {
		if v := s.vals[name]; v != nil {
			b.overridable(v, inits[name], s)
			continue
		}
		s.vals[name] = s.g.AddInit(b.valueName(s, name), inits[name])
	}
	return firstErr
}

// overridable makes an initializer the default of an input.
func (b *builder) overridable(v *ir.Value, w *ir.Weight, s *scope) {
	v.Init = w
	s.g.Inits = append(s.g.Inits, v)
	if v.Type.Kind == ir.NoType || contradicted(v.Type, w.Type) {
		if v.Type.Kind != ir.NoType {
			b.warn("init-type", fmt.Sprintf("the input is declared %s, but its initializer is %s; the latter is used", v.Type, w.Type), "",
				diag.Location{Path: s.path, Value: v.Name})
		}
		v.Type = w.Type
	}
}

// producers maps the name of every output to the node that makes it.
func (b *builder) producers(p *graphProto, s *scope) (map[string]int, error) {
	made := map[string]int{}
	for i, n := range p.nodes {
		for _, out := range n.out {
			if out == "" {
				continue
			}
			if j, ok := made[out]; ok {
				return nil, b.refuse("duplicate-output", fmt.Sprintf("%s and %s both make %q", p.nodes[j].describe(), n.describe(), out),
					"names of tensors must be unique", b.at(n, s, out))
			}
			if s.vals[out] != nil {
				return nil, b.refuse("duplicate-output", fmt.Sprintf("%s makes %q, which is an input or initializer of the graph", n.describe(), out),
					"names of tensors must be unique", b.at(n, s, out))
			}
			made[out] = i
		}
	}
	// Names of this scope come before those of the scopes in it.
	for _, n := range p.nodes {
		for _, out := range n.out {
			if out != "" {
				s.outs[out] = b.valueName(s, out)
			}
		}
	}
	return made, nil
}

func (n *nodeProto) describe() string {
	if n.name != "" {
		return fmt.Sprintf("node %d %q (%s)", n.index, n.name, ir.FullOp(n.domain, n.op))
	}
	return fmt.Sprintf("node %d (%s)", n.index, ir.FullOp(n.domain, n.op))
}

func (b *builder) at(n *nodeProto, s *scope, value string) diag.Location {
	return diag.Location{Path: s.path, Index: n.index, Node: n.name, Op: ir.FullOp(n.domain, n.op), Opset: b.version(n, s), Value: value}
}

// order sorts the nodes of p topologically, and checks that everything read is
// there.
func (b *builder) order(p *graphProto, s *scope, made map[string]int) ([]int, error) {
	deps := make([][]int, len(p.nodes))
	sorted := true
	for i, n := range p.nodes {
		for _, name := range b.reads(n) {
			if j, ok := made[name]; ok {
				deps[i] = append(deps[i], j)
				sorted = sorted && j < i
			} else if !s.known(name) {
				return nil, b.refuse("undefined-input", fmt.Sprintf("%s reads %q, which no node, input or initializer defines", n.describe(), name),
					"", b.at(n, s, name))
			}
		}
	}
	at := func(i int) []int { return deps[i] }
	order, ok := stableOrder(len(p.nodes), at)
	if !ok {
		var names []string
		for _, i := range findCycle(len(p.nodes), at, order) {
			names = append(names, p.nodes[i].describe())
		}
		return nil, b.refuse("cycle", "the graph has a cycle: "+strings.Join(names, " reads ")+" reads the first again", "", diag.Location{Path: s.path})
	}
	if !sorted && !b.unsorted {
		b.unsorted = true
		b.warn("unsorted", "the nodes are not in topological order; they were sorted", "", diag.Location{Path: s.path})
	}
	return order, nil
}

// reads lists the names a node reads, those its subgraphs take from outside
// among them.
func (b *builder) reads(n *nodeProto) []string {
	var names []string
	for _, in := range n.in {
		if in != "" {
			names = append(names, in)
		}
	}
	for _, a := range n.attrs {
		for _, sub := range a.subgraphs() {
			names = append(names, b.freeNames(sub)...)
		}
	}
	return names
}

// freeNames lists the names that p reads and does not define, in order of use.
func (b *builder) freeNames(p *graphProto) []string {
	if names, ok := b.free[p]; ok {
		return names
	}
	defined := map[string]bool{}
	for _, v := range p.inputs {
		defined[v.name] = true
	}
	for _, t := range p.inits {
		defined[t.name] = true
	}
	for _, t := range p.sparse {
		defined[t.values.name] = true
	}
	for _, n := range p.nodes {
		for _, out := range n.out {
			defined[out] = true
		}
	}
	names := []string{}
	add := func(name string) {
		if !defined[name] {
			defined[name] = true
			names = append(names, name)
		}
	}
	for _, n := range p.nodes {
		for _, name := range b.reads(n) {
			add(name)
		}
	}
	for _, v := range p.outputs {
		add(v.name)
	}
	b.free[p] = names
	return names
}

// node makes one node; everything it reads is there.
func (b *builder) node(p *nodeProto, s *scope, types map[string]ir.Type) error {
	if p.op == "" {
		return &wireError{p.off, p.describe() + " has no op_type"}
	}
	spec := ir.NodeSpec{Name: b.nodeName(p), Domain: p.domain, Op: p.op, Version: b.version(p, s),
		Loc: ir.Loc{File: b.opt.Name, Path: s.path, Index: p.index}, Meta: p.meta}
	b.resolveDomain(p, s, &spec)
	for _, name := range p.in {
		var v *ir.Value
		if name != "" {
			v = s.find(name)
		}
		spec.In = append(spec.In, v)
	}
	captures, err := b.attrs(p, s, &spec)
	if err != nil {
		return err
	}
	for _, name := range p.out {
		spec.Out = append(spec.Out, s.outs[name])
	}
	raw := p.span
	if b.unbridge(&spec) {
		raw = nil
	}
	n := s.g.Append(spec)
	n.Overload, n.Doc, n.Raw = p.overload, p.doc, raw
	if len(captures) > 0 {
		n.SetCaptures(captures)
	}
	for i, v := range n.Out {
		if v != nil {
			v.Type = types[p.out[i]]
			s.vals[p.out[i]] = v
		}
	}
	return nil
}

// nodeName is the file's name for the node, or a new one where it has none or
// not one of its own.
func (b *builder) nodeName(p *nodeProto) string {
	name := p.name
	for i := p.index; name == "" || b.nodeNames[name]; i++ {
		base := p.name
		if base == "" {
			base = p.op
		}
		if name = fmt.Sprintf("%s_%d", base, i); b.fileNames[name] {
			name = ""
		}
	}
	b.nodeNames[name] = true
	b.root.Reserve(name)
	return name
}

// attrs decodes the attributes, builds subgraphs, and returns what these
// capture.
func (b *builder) attrs(p *nodeProto, s *scope, spec *ir.NodeSpec) ([]*ir.Value, error) {
	var captures []*ir.Value
	seen := map[*ir.Value]bool{}
	sub := func(name string, g *graphProto) (*ir.Graph, error) {
		inner := &scope{parent: s, path: s.path + "/" + spec.Name + "." + name}
		out := s.g.NewSubgraph(g.name)
		if err := b.fill(out, g, inner); err != nil {
			return nil, err
		}
		for _, v := range inner.captures {
			if !seen[v] {
				seen[v] = true
				captures = append(captures, v)
			}
		}
		return out, nil
	}
	for i, a := range p.attrs {
		attr := a.attr
		var err error
		if slices.ContainsFunc(p.attrs[:i], func(b *attrProto) bool { return b.attr.Name == attr.Name }) {
			return nil, b.refuse("duplicate-attribute", fmt.Sprintf("%s has two attributes %q", p.describe(), attr.Name), "remove one of them", b.at(p, s, ""))
		}
		if a.tensor != nil {
			if attr.T, err = b.attrTensor(a.tensor); err != nil {
				return nil, b.located(err, p, s)
			}
		}
		for _, t := range a.tensors {
			x, err := b.attrTensor(t)
			if err != nil {
				return nil, b.located(err, p, s)
			}
			attr.Tensors = append(attr.Tensors, x)
		}
		if a.graph != nil {
			if attr.G, err = sub(attr.Name, a.graph); err != nil {
				return nil, err
			}
		}
		for i, g := range a.graphs {
			x, err := sub(fmt.Sprintf("%s[%d]", attr.Name, i), g)
			if err != nil {
				return nil, err
			}
			attr.Graphs = append(attr.Graphs, x)
		}
		spec.Attrs = append(spec.Attrs, attr)
	}
	return captures, nil
}

// located gives an error of a tensor in an attribute the node's place.
func (b *builder) located(err error, p *nodeProto, s *scope) error {
	if _, ok := err.(*diag.Diagnostic); ok {
		return err
	}
	return b.refuse("malformed", err.Error(), "", b.at(p, s, ""))
}

// outputs binds the graph's outputs, which may be inputs, initializers, the
// same value twice, or in a subgraph a value from outside. A value of its own
// that has no type yet has the output's.
func (b *builder) outputs(p *graphProto, s *scope) error {
	for _, out := range p.outputs {
		v := s.find(out.name)
		if v == nil || out.name == "" {
			return b.refuse("undefined-output", fmt.Sprintf("output %q of the graph is made by no node", out.name), "", diag.Location{Path: s.path, Value: out.name})
		}
		if v.Type.Kind == ir.NoType && v.Graph == s.g {
			v.Type = out.typ
		}
		s.g.Outputs = append(s.g.Outputs, v)
	}
	return nil
}

// knownDomains are the domains that are accepted without an import, with the
// version assumed.
var knownDomains = map[string]int{
	ir.MsDomain: 1, ir.TrainingDomain: 1, ir.MemocDomain: 1, ir.AtenDomain: 1, "ai.onnx.training": 1,
	"ai.onnx.ml": 3, "com.microsoft.nchwc": 1, "com.microsoft.experimental": 1, "com.ms.internal.nhwc": 1,
}

// version is the version of the node's domain that its graph imports.
func (b *builder) version(n *nodeProto, s *scope) int {
	if v := s.g.Opsets[n.domain]; v != 0 {
		return v
	}
	if v := b.opsets[n.domain]; v != 0 {
		return v
	}
	return knownDomains[n.domain]
}

// resolveDomain accepts operators of domains that are not imported, and
// operators of known extensions that were written into the default domain.
func (b *builder) resolveDomain(n *nodeProto, s *scope, spec *ir.NodeSpec) {
	if s.g.Opsets[n.domain] == 0 && b.opsets[n.domain] == 0 && !b.foreign[n.domain] {
		b.foreign[n.domain] = true
		then := "its operators are taken as unknown"
		if v := knownDomains[n.domain]; v > 0 {
			then = fmt.Sprintf("version %d is assumed", v)
		}
		b.warn("domain-not-imported", fmt.Sprintf("domain %q is used but not imported; %s", n.domain, then), "", b.at(n, s, ""))
	}
	if op := ir.Lookup(n.domain, n.op); op != nil && op.Younger(spec.Version) {
		spec.Version = op.Since[0]
		if k := "\x00" + n.domain + n.op; !b.foreign[k] {
			b.foreign[k] = true
			b.warn("op-version", fmt.Sprintf("the model imports version %d, but %s came with version %d; it is taken as of that version",
				b.version(n, s), ir.FullOp(n.domain, n.op), op.Since[0]), "", b.at(n, s, ""))
		}
	}
	if n.domain != "" || ir.Lookup("", n.op) != nil {
		return
	}
	for _, domain := range []string{ir.MsDomain, ir.TrainingDomain, ir.MemocDomain} {
		if ir.Lookup(domain, n.op) == nil {
			continue
		}
		spec.Domain = domain
		spec.Version = max(b.opsets[domain], 1)
		if k := "\x00" + domain + n.op; !b.foreign[k] {
			b.foreign[k] = true
			b.warn("op-domain", fmt.Sprintf("operator %s does not exist in the default domain; it is taken as %s", n.op, ir.FullOp(domain, n.op)), "", b.at(n, s, ""))
		}
		return
	}
}
