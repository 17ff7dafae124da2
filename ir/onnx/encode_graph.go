package onnx

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"memoc/ir"
)

// fileGraph is an encoded GraphProto split into records, with the names it
// uses.
type fileGraph struct {
	records []record
	nodes   []record
	inits   []record // dense and sparse
	inputs  []fileInfo
	outputs []fileInfo
	infos   []fileInfo
	name    string
	doc     string
	meta    []ir.KV
	index   map[*byte]int // start of a node's span to its index in nodes
}

type fileInfo struct {
	record
	name string
	typ  ir.Type
}

func splitGraph(raw []byte) (*fileGraph, error) {
	f := &fileGraph{index: map[*byte]int{}}
	p := plainParser()
	info := func(dst *[]fileInfo, r record) error {
		v, err := p.valueInfo(r)
		*dst = append(*dst, fileInfo{r, v.name, v.typ})
		return err
	}
	err := each(raw, 0, func(r record) (err error) {
		f.records = append(f.records, r)
		if !r.isBytes() {
			return nil
		}
		switch r.num {
		case 1:
			f.index[start(r.b)] = len(f.nodes)
			f.nodes = append(f.nodes, r)
		case 2:
			f.name = string(r.b)
		case 5, 15:
			f.inits = append(f.inits, r)
		case 10:
			f.doc = string(r.b)
		case 11:
			err = info(&f.inputs, r)
		case 12:
			err = info(&f.outputs, r)
		case 13:
			err = info(&f.infos, r)
		case 16:
			f.meta, err = appendKV(f.meta, r)
		}
		return err
	})
	return f, err
}

// fileNames remembers what the file calls the values of subgraphs, which the
// graph may have renamed.
type fileNames map[*ir.Value]string

func (names fileNames) of(v *ir.Value) string {
	if v == nil {
		return ""
	}
	if s, ok := names[v]; ok {
		return s
	}
	return v.Name
}

// tensorName is the name in an encoded TensorProto or SparseTensorProto.
func tensorName(r record) string {
	name := ""
	_ = each(r.b, 0, func(f record) error {
		switch {
		case r.num == 5 && f.num == 8 && f.isBytes():
			name = string(f.b)
		case r.num == 15 && f.num == 1 && f.isBytes():
			f.num = 5
			name = tensorName(f)
		}
		return nil
	})
	return name
}

// nodeNames lists the input and output names in an encoded NodeProto.
func nodeNames(b []byte) (in, out []string) {
	_ = each(b, 0, func(r record) error {
		switch {
		case r.num == 1 && r.isBytes():
			in = append(in, string(r.b))
		case r.num == 2 && r.isBytes():
			out = append(out, string(r.b))
		}
		return nil
	})
	return in, out
}

// untouched reports whether g still is what f encodes. names collects what the
// file calls the values of g.
func (e *encoder) untouched(g *ir.Graph, f *fileGraph, names fileNames, root bool) bool {
	if g.Name != f.name || g.Doc != f.doc || !slices.Equal(g.Meta, f.meta) || len(g.Inits) != len(f.inits) ||
		len(g.Nodes) != len(f.nodes) || len(g.Outputs) != len(f.outputs) {
		return false
	}
	// Reading lists the dense ones first.
	inits := slices.SortedStableFunc(slices.Values(f.inits), func(a, b record) int { return cmp.Compare(a.num, b.num) })
	for i, v := range g.Inits {
		if v.Init == nil || start(v.Init.Raw) != start(inits[i].b) {
			return false
		}
		names[v] = tensorName(inits[i])
	}
	inputs := e.realInputs(f)
	if len(g.Inputs) != len(inputs) || root && e.m.IRVersion < 4 && e.irv >= 4 && len(inputs) < len(f.inputs) {
		return false
	}
	for i, v := range g.Inputs {
		names[v] = inputs[i].name
		if root && !sameDeclared(f.inputType(inputs[i], v.Init), v.Type) {
			return false
		}
	}
	if !inFileOrder(g, f) {
		return false
	}
	for _, n := range g.Nodes {
		if !e.sameNode(n, names) {
			return false
		}
	}
	for i, v := range g.Outputs {
		if names.of(v) != f.outputs[i].name {
			return false
		}
	}
	if root {
		for v, name := range names {
			if v.Graph == g && v.Name != name {
				return false
			}
		}
	}
	return true
}

// realInputs lists the declared inputs without those that only stand there
// because, before IR version 4, every initializer had to.
func (e *encoder) realInputs(f *fileGraph) []fileInfo {
	if e.m.IRVersion >= 4 {
		return f.inputs
	}
	inits := map[string]bool{}
	for _, r := range f.inits {
		inits[tensorName(r)] = true
	}
	var out []fileInfo
	for _, in := range f.inputs {
		if !inits[in.name] {
			out = append(out, in)
		}
	}
	return out
}

// inputType is the type that reading gives an input whose default is init, nil
// if it has none: see builder.overridable and builder.outputs.
func (f *fileGraph) inputType(in fileInfo, init *ir.Weight) ir.Type {
	if init != nil && (in.typ.Kind == ir.NoType || contradicted(in.typ, init.Type)) {
		return init.Type
	}
	typ := in.typ
	for _, out := range f.outputs {
		if typ.Kind == ir.NoType && out.name == in.name {
			typ = out.typ
		}
	}
	return typ
}

// sameNode reports whether n's span still describes it, and notes the names of
// its outputs.
func (e *encoder) sameNode(n *ir.Node, names fileNames) bool {
	if n.Raw == nil {
		return false
	}
	in, out := nodeNames(n.Raw)
	if len(in) != len(n.In) || len(out) != len(n.Out) {
		return false
	}
	for i, v := range n.In {
		if names.of(v) != in[i] {
			return false
		}
	}
	for i, v := range n.Out {
		if (v == nil) != (out[i] == "") {
			return false
		}
		if v != nil {
			names[v] = out[i]
		}
	}
	for _, sub := range n.Subgraphs() {
		f, err := splitGraph(sub.Raw)
		if err != nil || sub.Raw == nil || !e.untouched(sub, f, names, false) {
			return false
		}
	}
	return true
}

// inFileOrder reports whether g's nodes are all those of the file, in the
// order that reading gives them.
func inFileOrder(g *ir.Graph, f *fileGraph) bool {
	at := make([]int, len(g.Nodes)) // index in the file of the i-th node
	pos := make([]*ir.Node, len(f.nodes))
	sorted := true
	for i, n := range g.Nodes {
		k, ok := f.index[start(n.Raw)]
		if !ok || n.Raw == nil || pos[k] != nil {
			return false
		}
		at[i], pos[k] = k, n
		sorted = sorted && k == i
	}
	if sorted {
		return true
	}
	where := map[*ir.Node]int{}
	for k, n := range pos {
		where[n] = k
	}
	order, _ := stableOrder(len(pos), func(k int) []int {
		var deps []int
		for _, vs := range [][]*ir.Value{pos[k].In, pos[k].Captures} {
			for _, v := range vs {
				if v == nil || v.Def == nil {
					continue
				}
				if j, ok := where[v.Def]; ok {
					deps = append(deps, j)
				}
			}
		}
		return deps
	})
	return slices.Equal(order, at)
}

// graph writes g. same is true where it is what raw encodes; then the rope is
// raw.
func (e *encoder) graph(g *ir.Graph, raw []byte, root bool) (out *rope, same bool, err error) {
	f, err := splitGraph(raw)
	if err != nil {
		return nil, false, err
	}
	out = &rope{}
	if raw != nil && e.untouched(g, f, fileNames{}, root) {
		out.raw(raw)
		return out, true, nil
	}
	w := &graphWriter{encoder: e, g: g, f: f, root: root, env: map[string]ir.Dim{}}
	if err := w.write(out); err != nil {
		return nil, false, err
	}
	return out, false, nil
}

func namesEqual(vs []*ir.Value, names []string) bool {
	if len(vs) != len(names) {
		return false
	}
	for i, v := range vs {
		if nameOf(v) != names[i] {
			return false
		}
	}
	return true
}

// graphWriter writes a graph that changed.
type graphWriter struct {
	*encoder
	g    *ir.Graph
	f    *fileGraph
	root bool
	env  map[string]ir.Dim // symbols of the file that were bound since
}

func (w *graphWriter) write(out *rope) error {
	nodes, err := w.nodes()
	if err != nil {
		return err
	}
	inits, inputsOfInits, err := w.inits()
	if err != nil {
		return err
	}
	inputs, err := w.infos(11, w.g.Inputs, w.f.inputs, w.root)
	if err != nil {
		return err
	}
	inputs.rope(inputsOfInits)
	outputs, err := w.infos(12, w.g.Outputs, w.f.outputs, false)
	if err != nil {
		return err
	}
	infos, err := w.valueInfos()
	if err != nil {
		return err
	}
	name, doc, meta := &rope{}, &rope{}, &rope{}
	name.string(2, w.g.Name)
	doc.optional(10, w.g.Doc)
	for _, kv := range w.g.Meta {
		meta.kv(16, kv.Key, kv.Value)
	}
	records := make([]record, 0, len(w.f.records))
	for _, r := range w.f.records {
		if r.num != 14 || w.annotated(r) {
			records = append(records, r)
		}
	}
	replace(out, records, []slot{
		{nums: []int32{1}, new: nodes},
		{same: w.g.Name == w.f.name, nums: []int32{2}, new: name},
		{nums: []int32{5, 15}, new: inits},
		{same: w.g.Doc == w.f.doc, nums: []int32{10}, new: doc},
		{nums: []int32{11}, new: inputs},
		{nums: []int32{12}, new: outputs},
		{nums: []int32{13}, new: infos},
		{same: slices.Equal(w.g.Meta, w.f.meta), nums: []int32{16}, new: meta},
	})
	return nil
}

// nodes writes the nodes in the graph's order, each as it was read where that
// still describes it.
func (w *graphWriter) nodes() (*rope, error) {
	out := &rope{}
	for _, n := range w.g.Nodes {
		if k, ok := w.f.index[start(n.Raw)]; ok && w.keeps(n) {
			out.raw(w.f.nodes[k].raw)
			continue
		}
		if w.keeps(n) {
			out.bytes(1, n.Raw) // read, and moved here from another graph
			continue
		}
		write := w.node
		if w.foreign(n) {
			write = w.bridge
		} else if w.m.Opsets[n.Domain] == 0 {
			w.inserted[n.Domain] = max(n.Version, knownDomains[n.Domain], 1)
		}
		m, err := write(n)
		if err != nil {
			return nil, err
		}
		out.message(1, m)
	}
	return out, nil
}

// keeps reports whether n's span has the names of the graph.
func (w *graphWriter) keeps(n *ir.Node) bool {
	if !w.sameNode(n, fileNames{}) {
		return false
	}
	_, out := nodeNames(n.Raw)
	return namesEqual(n.Out, out)
}

// inits writes the initializers: those read first, in the file's order. Before
// IR version 4 they must be inputs too; second are the inputs that stand for
// them.
func (w *graphWriter) inits() (out, inputs *rope, err error) {
	out, inputs = &rope{}, &rope{}
	bySpan := map[*byte]*ir.Value{}
	declared := map[string]fileInfo{}
	for _, v := range w.g.Inits {
		if v.Init.Raw != nil {
			bySpan[start(v.Init.Raw)] = v
		}
	}
	for _, in := range w.f.inputs {
		declared[in.name] = in
	}
	input := func(v *ir.Value) error {
		if w.m.IRVersion >= 4 || w.root && w.irv >= 4 {
			return nil // listed now, it would be an input with a default
		}
		if in, ok := declared[v.Name]; ok {
			inputs.raw(in.raw)
			return nil
		}
		if !w.root {
			return nil
		}
		m, err := valueInfoRope(v, v.Init.Type)
		if err == nil {
			inputs.message(11, m)
		}
		return err
	}
	written := map[*ir.Value]bool{}
	for _, r := range w.f.inits {
		v := bySpan[start(r.b)]
		if v == nil || v.Name != tensorName(r) {
			continue
		}
		written[v] = true
		out.raw(r.raw)
		if err := input(v); err != nil {
			return nil, nil, err
		}
	}
	for _, v := range w.g.Inits {
		if written[v] {
			continue
		}
		num, m, err := weightRope(v.Name, v.Init)
		if err != nil {
			return nil, nil, err
		}
		out.message(num, m)
		if err := input(v); err != nil {
			return nil, nil, err
		}
	}
	return out, inputs, nil
}

// infos writes inputs or outputs. An input's type is exact: where it is not
// what the file declared, symbols were bound.
func (w *graphWriter) infos(num int32, vs []*ir.Value, old []fileInfo, exact bool) (*rope, error) {
	out := &rope{}
	byName := map[string]fileInfo{}
	for _, f := range old {
		byName[f.name] = f
	}
	for _, v := range vs {
		f, ok := byName[v.Name]
		if ok && exact {
			w.bindings(f.typ, v.Type)
		}
		if ok && (!exact || sameDeclared(f.typ, v.Type)) && w.holds(f.typ, v.Type) {
			out.raw(f.raw)
			continue
		}
		m, err := valueInfoRope(v, v.Type)
		if err != nil {
			return nil, err
		}
		out.message(protowire.Number(num), m)
	}
	return out, nil
}

// bindings notes the symbols that an input's declared type had and its type
// has no more.
func (w *graphWriter) bindings(file, now ir.Type) {
	if len(file.Shape.Dims) != len(now.Shape.Dims) {
		return
	}
	for i, d := range file.Shape.Dims {
		if s, ok := d.IsSym(); ok && s != openDim && !d.Equal(now.Shape.Dims[i]) && !isOpen(now.Shape.Dims[i]) {
			w.env[s] = now.Shape.Dims[i]
		}
	}
}

// holds reports whether the declared type still stands beside the value's.
func (w *graphWriter) holds(file, now ir.Type) bool {
	if now.Kind == ir.NoType {
		return true
	}
	return !contradicted(file, now) && file.Equal(file.Bind(w.env))
}

// valueInfos writes the types of inner tensors: those read, unless the tensor
// is gone or its type is another now, and those of new nodes.
func (w *graphWriter) valueInfos() (*rope, error) {
	out := &rope{}
	values := map[string]*ir.Value{}
	w.each(func(v *ir.Value) { values[v.Name] = v })
	have := map[string]bool{}
	for _, v := range slices.Concat(w.g.Outputs, w.g.Inputs) {
		have[v.Name] = true
	}
	add := func(v *ir.Value) error {
		if v.Type.Kind == ir.NoType || v.Type.IsTensor() && v.Type.DType == ir.Undefined {
			return nil
		}
		m, err := valueInfoRope(v, v.Type)
		if err == nil {
			out.message(13, m)
		}
		return err
	}
	for _, f := range w.f.infos {
		v := values[f.name]
		if v == nil {
			continue
		}
		have[f.name] = true
		if w.holds(f.typ, v.Type) {
			out.raw(f.raw)
		} else if err := add(v); err != nil {
			return nil, err
		}
	}
	for _, n := range w.g.Nodes {
		for _, v := range n.Out {
			if n.Raw != nil || v == nil || have[v.Name] {
				continue
			}
			have[v.Name] = true
			if err := add(v); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// each calls f for the values of the graph.
func (w *graphWriter) each(f func(*ir.Value)) {
	for _, v := range slices.Concat(w.g.Inputs, w.g.Inits) {
		f(v)
	}
	for _, n := range w.g.Nodes {
		for _, v := range n.Out {
			if v != nil {
				f(v)
			}
		}
	}
}

// annotated reports whether the tensor of a quantization annotation is still
// there.
func (w *graphWriter) annotated(r record) bool {
	name, found := "", false
	_ = each(r.b, 0, func(f record) error {
		if f.num == 1 && f.isBytes() {
			name = string(f.b)
		}
		return nil
	})
	w.each(func(v *ir.Value) { found = found || v.Name == name })
	return found
}
