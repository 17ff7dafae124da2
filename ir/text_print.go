package ir

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Print is m's text form.
func Print(m *Model, opt TextOptions) string {
	p := &textPrinter{opt: opt}
	p.model(m)
	return p.b.String()
}

// PrintGraph is g's text form, without opset imports.
func PrintGraph(g *Graph, opt TextOptions) string {
	p := &textPrinter{opt: opt}
	p.graph(g)
	p.b.WriteByte('\n')
	return p.b.String()
}

type textPrinter struct {
	b      strings.Builder
	opt    TextOptions
	indent int // of the enclosing node list
}

func (p *textPrinter) str(parts ...string) {
	for _, s := range parts {
		p.b.WriteString(s)
	}
}

func (p *textPrinter) line() {
	p.b.WriteByte('\n')
	for range p.indent {
		p.b.WriteString("   ")
	}
}

// quoted prints s with ONNX's two escapes; everything else stands for itself.
func (p *textPrinter) quoted(s string) {
	p.b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		if s[i] == '"' || s[i] == '\\' {
			p.b.WriteByte('\\')
		}
		p.b.WriteByte(s[i])
	}
	p.b.WriteByte('"')
}

func (p *textPrinter) id(s string) {
	if isIdent(s) {
		p.str(s)
	} else {
		p.quoted(s)
	}
}

func list[E any](p *textPrinter, open, sep, end string, es []E, f func(E)) {
	p.str(open)
	for i, e := range es {
		if i > 0 {
			p.str(sep)
		}
		f(e)
	}
	p.str(end)
}

func (p *textPrinter) model(m *Model) {
	p.str("<\n   ir_version: ", strconv.FormatInt(m.IRVersion, 10), ",\n   opset_import: ")
	p.opsets(m.Opsets)
	field := func(name, s string) {
		if s != "" {
			p.str(",\n   ", name, ": ")
			p.quoted(s)
		}
	}
	field("producer_name", m.ProducerName)
	field("producer_version", m.ProducerVersion)
	field("domain", m.Domain)
	if m.ModelVersion != 0 {
		p.str(",\n   model_version: ", strconv.FormatInt(m.ModelVersion, 10))
	}
	field("doc_string", m.Doc)
	if len(m.Meta) > 0 {
		p.str(",\n   metadata_props: ")
		list(p, "[", ", ", "]", m.Meta, p.pair)
	}
	p.str("\n>\n")
	if m.Graph != nil {
		p.graph(m.Graph)
	}
	p.str("\n")
	for _, f := range m.Functions {
		p.function(f)
	}
}

func (p *textPrinter) pair(kv KV) {
	p.quoted(kv.Key)
	p.str(": ")
	p.quoted(kv.Value)
}

func (p *textPrinter) opsets(o map[string]int) {
	domains := make([]string, 0, len(o))
	for d := range o {
		domains = append(domains, d)
	}
	slices.Sort(domains)
	list(p, "[", ", ", "]", domains, func(d string) {
		p.quoted(d)
		p.str(" : ", strconv.Itoa(o[d]))
	})
}

func (p *textPrinter) function(f *Function) {
	p.str("<\n   domain: ")
	p.quoted(f.Domain)
	if f.Overload != "" {
		p.str(",\n   overload: ")
		p.quoted(f.Overload)
	}
	p.str(",\n   opset_import: ")
	p.opsets(f.Opsets)
	if f.Doc != "" {
		p.str(",\n   doc_string: ")
		p.quoted(f.Doc)
	}
	p.str("\n>\n")
	p.id(f.Name)
	if len(f.Attrs)+len(f.AttrDefaults) > 0 {
		list(p, " <", ", ", "", f.Attrs, p.id)
		if len(f.Attrs) > 0 && len(f.AttrDefaults) > 0 {
			p.str(", ")
		}
		list(p, "", ", ", ">", f.AttrDefaults, p.attr)
	}
	body := f.Body
	if body == nil {
		body = NewGraph(f.Name, f.Opsets)
	}
	p.ports(body)
	p.body(body, f.Name)
	p.str("\n")
}

func (p *textPrinter) graph(g *Graph) {
	p.id(g.Name)
	p.ports(g)
	p.body(g, g.Name)
}

// subgraph prints a graph as an attribute's value. Python knows one there by
// an identifier, so that another name stands in a comment.
func (p *textPrinter) subgraph(g *Graph) {
	name := []byte(g.Name)
	for i, c := range name {
		if !isIdentByte(c, true) {
			name[i] = '_'
		}
	}
	alias := string(name)
	if !isIdent(alias) || startsType(alias) || isFloatWord(alias) {
		alias = "_" + alias
	}
	p.str(alias)
	p.ports(g)
	p.body(g, alias)
}

func (p *textPrinter) ports(g *Graph) {
	p.str(" (")
	for i, v := range g.Inputs {
		p.typed(v)
		notes := ""
		if v.Init == nil { // else they stand at the data
			notes = p.valueNotes(v)
		}
		p.separate(i+1 == len(g.Inputs), ", ", notes)
	}
	p.str(") => (")
	for i, v := range g.Outputs {
		p.typed(v)
		notes := ""
		if v.Def != nil && v.Graph == g {
			notes = p.valueNotes(v)
		}
		p.separate(i+1 == len(g.Outputs), ", ", notes)
	}
	p.str(")")
}

// typed prints "type name"; the name alone where nothing is known.
func (p *textPrinter) typed(v *Value) {
	if v.Type.Kind != NoType {
		p.typ(v.Type)
		p.str(" ")
		p.id(v.Name)
		return
	}
	if startsType(v.Name) {
		p.quoted(v.Name)
	} else {
		p.id(v.Name)
	}
}

// separate ends a list element: its comma if more follow, and its comment.
func (p *textPrinter) separate(last bool, comma, notes string) {
	if notes == "" {
		if !last {
			p.str(comma)
		}
		return
	}
	if !last {
		p.str(strings.TrimSpace(comma))
	}
	p.str(notes)
	p.line()
	p.str(" ")
}

func (p *textPrinter) body(g *Graph, name string) {
	lines := len(g.Inits)
	shown := g.Inits
	infos := p.typedInside(g)
	lines += len(infos)
	if lines > 0 {
		p.indent++
		p.line()
		p.str("<")
		for i, v := range shown {
			p.init(v)
			p.endInfo(i+1 == lines, p.valueNotes(v))
		}
		for i, v := range infos {
			p.typed(v)
			p.endInfo(len(shown)+i+1 == lines, p.valueNotes(v))
		}
		p.str(">")
		p.indent--
		p.line()
	} else {
		p.str(" ")
	}
	p.str("{")
	p.str(p.graphNotes(g, name))
	p.indent++
	for _, n := range g.Nodes {
		p.line()
		p.node(n)
	}
	p.indent--
	p.line()
	p.str("}")
}

func (p *textPrinter) endInfo(last bool, notes string) {
	if !last {
		p.str(",")
	}
	p.str(notes)
	if !last || notes != "" {
		p.line()
		p.str(" ")
	}
}

// typedInside lists the values of g that are made by nodes, are no outputs,
// and of which something is known.
func (p *textPrinter) typedInside(g *Graph) []*Value {
	if p.opt.Brief {
		return nil
	}
	outputs := map[*Value]bool{}
	for _, v := range g.Outputs {
		outputs[v] = true
	}
	var vs []*Value
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v != nil && !outputs[v] && (v.Type.Kind != NoType || v.Ints != nil || v.Doc != "") {
				vs = append(vs, v)
			}
		}
	}
	return vs
}

func (p *textPrinter) init(v *Value) {
	w := v.Init
	p.typ(w.Type)
	p.str(" ")
	p.id(v.Name)
	p.str(" = ")
	if x := w.External; x != nil {
		kvs := []KV{{"location", x.Location}}
		if x.Offset != 0 {
			kvs = append(kvs, KV{"offset", strconv.FormatInt(x.Offset, 10)})
		}
		if x.Length != 0 {
			kvs = append(kvs, KV{"length", strconv.FormatInt(x.Length, 10)})
		}
		if x.Checksum != "" {
			kvs = append(kvs, KV{"checksum", x.Checksum})
		}
		list(p, "[", ", ", "]", kvs, p.pair)
		return
	}
	n, _ := w.Type.Shape.NumElements()
	elems, static := n.Int()
	if static && w.Type.IsTensor() && p.opt.prints(elems) {
		if t, err := w.Tensor(); err == nil && t.Type().Equal(w.Type) {
			p.data(t)
			return
		}
	}
	list(p, "[", "", "]", []KV{{elidedKey, n.String() + " elements"}}, p.pair)
}

func (p *textPrinter) typ(t Type) {
	switch t.Kind {
	case TensorKind:
		p.str(t.DType.String())
		p.shape(t.Shape)
	case SparseKind:
		p.str("sparse_tensor(", t.DType.String())
		p.shape(t.Shape)
		p.str(")")
	case SequenceKind, OptionalKind, MapKind:
		p.str(map[Kind]string{SequenceKind: "seq(", OptionalKind: "optional(", MapKind: "map("}[t.Kind])
		if t.Kind == MapKind {
			p.str(t.DType.String(), ", ")
		}
		if t.Elem != nil {
			p.typ(*t.Elem)
		} else {
			p.typ(Type{})
		}
		p.str(")")
	default:
		p.str("undefined()")
	}
}

func (p *textPrinter) shape(s Shape) {
	switch {
	case !s.Ranked:
		p.str("[]")
	case len(s.Dims) > 0:
		list(p, "[", ",", "]", s.Dims, p.dim)
	}
}

func (p *textPrinter) dim(d Dim) {
	if n, ok := d.Int(); ok {
		p.str(strconv.FormatInt(n, 10))
		return
	}
	if s, ok := d.IsSym(); ok && isIdent(s) {
		p.str(s)
		return
	}
	p.quoted(dimName(d))
}

func (p *textPrinter) node(n *Node) {
	if n.Name != "" {
		p.str("[")
		p.id(n.Name)
		p.str("] ")
	}
	p.valueList(n.Out)
	if len(n.Out) > 0 {
		p.str(" ")
	}
	p.str("= ")
	p.operator(n)
	hasGraph := len(n.Subgraphs()) > 0
	if len(n.Attrs) > 0 && !hasGraph {
		list(p, " <", ", ", ">", n.Attrs, p.attr)
	}
	p.str(" (")
	p.valueList(n.In)
	p.str(")")
	if hasGraph {
		list(p, " <", ", ", ">", n.Attrs, p.attr)
	}
	p.str(p.nodeNotes(n))
}

func (p *textPrinter) valueList(vs []*Value) {
	list(p, "", ", ", "", vs, func(v *Value) {
		if v == nil {
			p.str(`""`)
		} else {
			p.id(v.Name)
		}
	})
}

func (p *textPrinter) operator(n *Node) {
	if n.Domain != "" {
		plain := !slices.ContainsFunc(strings.Split(n.Domain, "."), func(s string) bool { return !isIdent(s) })
		if plain {
			p.str(n.Domain)
		} else {
			p.quoted(n.Domain)
		}
		p.str(".")
	}
	p.id(n.Op)
	if n.Overload != "" {
		p.str(":")
		p.id(n.Overload)
	}
}

func (p *textPrinter) attr(a Attr) {
	p.id(a.Name)
	p.str(": ", attrKindNames[a.Kind], " = ")
	if a.Ref != "" {
		p.str("@")
		p.id(a.Ref)
		return
	}
	switch a.Kind {
	case AttrFloat:
		p.float32(a.F)
	case AttrInt:
		p.str(strconv.FormatInt(a.I, 10))
	case AttrString:
		p.quoted(a.S)
	case AttrTensor:
		p.tensor(a.T)
	case AttrGraph:
		p.subgraph(a.G)
	case AttrFloats:
		list(p, "[", ", ", "]", a.Floats, p.float32)
	case AttrInts:
		list(p, "[", ", ", "]", a.Ints, func(n int64) { p.str(strconv.FormatInt(n, 10)) })
	case AttrStrings:
		list(p, "[", ", ", "]", a.Strings, p.quoted)
	case AttrTensors:
		list(p, "[", ", ", "]", a.Tensors, p.tensor)
	case AttrGraphs:
		list(p, "[", ", ", "]", a.Graphs, p.subgraph)
	case AttrType:
		p.typ(a.Type)
	default:
		p.quoted(base64.StdEncoding.EncodeToString(a.Raw))
	}
}

// The comments that carry what the syntax has no place for.

func (p *textPrinter) notes(parts []string) string {
	if len(parts) == 0 || p.opt.Brief {
		return ""
	}
	return " #@ " + strings.Join(parts, " ")
}

func (p *textPrinter) nodeNotes(n *Node) string {
	var parts []string
	if n.Origin != "" {
		parts = append(parts, "origin "+strconv.Quote(n.Origin))
	}
	if n.Backward {
		parts = append(parts, "backward")
	}
	if n.Graph == nil || n.Version != n.Graph.Opsets[n.Domain] {
		parts = append(parts, fmt.Sprintf("version %d", n.Version))
	}
	return p.notes(append(parts, docNotes(n.Doc, n.Meta)...))
}

func (p *textPrinter) valueNotes(v *Value) string {
	var parts []string
	if v.Init != nil && v.Init.Sparse && v.Init.Type.Kind != SparseKind {
		parts = append(parts, "sparse")
	}
	if v.Ints != nil {
		dims := make([]string, len(v.Ints))
		for i, d := range v.Ints {
			dims[i] = d.String()
			if _, ok := d.Int(); !ok && !isIdent(dims[i]) {
				dims[i] = strconv.Quote(dimName(d))
			}
		}
		parts = append(parts, "ints ["+strings.Join(dims, ", ")+"]")
	}
	return p.notes(append(parts, docNotes(v.Doc, nil)...))
}

func (p *textPrinter) graphNotes(g *Graph, name string) string {
	var parts []string
	if g.Name != name {
		parts = append(parts, "name "+strconv.Quote(g.Name))
	}
	return p.notes(append(parts, docNotes(g.Doc, g.Meta)...))
}

func docNotes(doc string, meta []KV) []string {
	var parts []string
	if doc != "" {
		parts = append(parts, "doc "+strconv.Quote(doc))
	}
	for _, kv := range meta {
		parts = append(parts, "meta "+strconv.Quote(kv.Key)+" "+strconv.Quote(kv.Value))
	}
	return parts
}
