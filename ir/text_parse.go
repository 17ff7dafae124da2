package ir

import (
	"encoding/base64"
	"strconv"
)

// Parse reads a model in text form; file names it in errors, which say line
// and column. Node and value names are unique over all scopes afterwards: a
// name that a subgraph uses a second time gets a suffix.
func Parse(file, src string) (m *Model, err error) {
	p := newTextParser(file, src)
	defer p.catch(&err)
	m = p.model()
	m.Path = file
	return m, nil
}

// ParseGraph reads a graph alone; opsets are what a model would import.
func ParseGraph(file, src string, opsets map[string]int) (g *Graph, err error) {
	p := newTextParser(file, src)
	defer p.catch(&err)
	g = p.rootGraph(opsets)
	p.atEnd()
	return g, nil
}

func newTextParser(file, src string) *textParser {
	p := &textParser{}
	p.file, p.src = file, src
	return p
}

type textParser struct {
	textScanner
	path string // of the graph being read
	root *Graph // the root graph being read

	// What the root graph being read has named so far.
	values  map[string]*Value
	nodes   map[string]bool
	again   []*Value // to be renamed
	unnamed []*Node
}

func (p *textParser) catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case textError:
		*err = p.diagnostic(r)
	default:
		panic(r)
	}
}

func (p *textParser) atEnd() {
	if p.next() < len(p.src) {
		p.fail(p.pos, "expected the end of the text, found %s", p.found())
	}
	if ns := p.take(); len(ns) > 0 {
		ns[0].fail("this comment belongs to nothing")
	}
}

// header reads "<key: value, …>".
func (p *textParser) header(field func(key string) bool) {
	p.expect('<')
	for !p.accept('>') {
		at := p.next()
		key := p.ident("a field")
		p.expect(':')
		if !field(key) {
			p.fail(at, "unknown field %q", key)
		}
		if p.peek() != '>' {
			p.expect(',')
		}
	}
}

func (p *textParser) model() *Model {
	m := &Model{Opsets: map[string]int{}}
	if p.peek() == '<' {
		p.header(func(key string) bool { return p.modelField(m, key) })
	}
	m.Graph = p.rootGraph(m.Opsets)
	for p.next() < len(p.src) {
		m.Functions = append(m.Functions, p.function())
	}
	p.atEnd()
	return m
}

func (p *textParser) modelField(m *Model, key string) bool {
	switch key {
	case "ir_version":
		m.IRVersion = p.int()
	case "opset_import":
		p.opsets(m.Opsets)
	case "producer_name":
		m.ProducerName = p.quoted()
	case "producer_version":
		m.ProducerVersion = p.quoted()
	case "domain":
		m.Domain = p.quoted()
	case "model_version":
		m.ModelVersion = p.int()
	case "doc_string":
		m.Doc = p.quoted()
	case "metadata_props":
		m.Meta = p.pairs()
	default:
		return false
	}
	return true
}

func (p *textParser) opsets(into map[string]int) {
	p.expect('[')
	for first := true; !p.accept(']'); first = false {
		if !first {
			p.expect(',')
		}
		domain := p.quoted()
		p.expect(':')
		if domain == "ai.onnx" {
			domain = ""
		}
		into[domain] = int(p.integer(0, 1<<31-1))
	}
}

// pairs reads `["key": "value", …]`.
func (p *textParser) pairs() []KV {
	var kvs []KV
	p.expect('[')
	for first := true; !p.accept(']'); first = false {
		if !first {
			p.expect(',')
		}
		key := p.quoted()
		p.expect(':')
		kvs = append(kvs, KV{key, p.quoted()})
	}
	return kvs
}

func (p *textParser) function() *Function {
	f := &Function{Opsets: map[string]int{}}
	if p.peek() == '<' {
		p.header(func(key string) bool {
			switch key {
			case "domain":
				f.Domain = p.quoted()
			case "overload":
				f.Overload = p.quoted()
			case "doc_string":
				f.Doc = p.quoted()
			case "opset_import":
				p.opsets(f.Opsets)
			default:
				return false
			}
			return true
		})
	}
	f.Name = p.name("a function's name")
	if p.accept('<') {
		p.functionAttrs(f)
	}
	f.Body = NewGraph(f.Name, f.Opsets)
	p.beginRoot("function " + f.Name)
	p.graphBody(f.Body, nil)
	p.endRoot(f.Body)
	for _, v := range f.Body.Inputs {
		f.Inputs = append(f.Inputs, v.Name)
	}
	for _, v := range f.Body.Outputs {
		f.Outputs = append(f.Outputs, v.Name)
	}
	return f
}

func (p *textParser) functionAttrs(f *Function) {
	for first := true; !p.accept('>'); first = false {
		if !first {
			p.expect(',')
		}
		name := p.name("an attribute's name")
		if c := p.peek(); c == ':' || c == '=' {
			f.AttrDefaults = append(f.AttrDefaults, p.attrValue(name, nil))
		} else {
			f.Attrs = append(f.Attrs, name)
		}
	}
}

// typ reads a type.
func (p *textParser) typ() Type {
	p.enter()
	defer p.leave()
	at := p.next()
	word := p.ident("a type")
	switch word {
	case "undefined":
		if p.accept('(') {
			p.expect(')')
			return Type{}
		}
		return TensorOf(Undefined, p.shape())
	case "seq", "optional":
		p.expect('(')
		elem := p.typ()
		p.expect(')')
		if word == "seq" {
			return SequenceOf(elem)
		}
		return OptionalOf(elem)
	case "map":
		p.expect('(')
		key := p.dtype()
		p.expect(',')
		elem := p.typ()
		p.expect(')')
		return Type{Kind: MapKind, DType: key, Elem: &elem}
	case "sparse_tensor":
		p.expect('(')
		t := Type{Kind: SparseKind, DType: p.dtype()}
		t.Shape = p.shape()
		p.expect(')')
		return t
	}
	d, ok := ParseDType(word)
	if !ok {
		p.fail(at, "%q is no type", word)
	}
	return TensorOf(d, p.shape())
}

func (p *textParser) dtype() DType {
	at := p.next()
	word := p.ident("an element type")
	d, ok := ParseDType(word)
	if !ok && word != "undefined" {
		p.fail(at, "%q is no element type", word)
	}
	return d
}

// shape reads what follows an element type: nothing is a scalar, [] an unknown
// rank.
func (p *textParser) shape() Shape {
	if !p.accept('[') {
		return Dims()
	}
	if p.accept(']') {
		return Shape{}
	}
	var dims []Dim
	for {
		dims = append(dims, p.dim())
		if p.accept(']') {
			return Dims(dims...)
		}
		p.expect(',')
	}
}

func (p *textParser) dim() Dim {
	switch c := p.peek(); {
	case c == '?':
		p.pos++
		return p.root.FreshDim()
	case c == '"':
		return p.reserveDim(dimOf(p.quoted()))
	case isIdentByte(c, false):
		return p.reserveDim(Sym(p.ident("a dim")))
	}
	return N(p.int())
}

// reserveDim keeps later fresh symbols apart from those in the text.
func (p *textParser) reserveDim(d Dim) Dim {
	for _, s := range d.Symbols() {
		p.root.Reserve("dim " + s)
	}
	return d
}

// weight reads an initializer's data after its type.
func (p *textParser) weight(t Type, at int) *Weight {
	if p.peek() != '[' {
		x := p.tensorData(t, at)
		return WeightOf(x)
	}
	w := &Weight{Type: t, Sparse: t.Kind == SparseKind}
	x := &External{}
	number := func(kv KV) int64 {
		n, err := strconv.ParseInt(kv.Value, 10, 64)
		if err != nil {
			p.fail(at, "%s %q is no integer", kv.Key, kv.Value)
		}
		return n
	}
	for _, kv := range p.pairs() {
		switch kv.Key {
		case elidedKey:
			return w
		case "location":
			x.Location = kv.Value
		case "offset":
			x.Offset = number(kv)
		case "length":
			x.Length = number(kv)
		case "checksum":
			x.Checksum = kv.Value
		default:
			p.fail(at, "unknown entry %q of external data", kv.Key)
		}
	}
	w.External = x
	return w
}

// attrValue reads what follows an attribute's name. Without ": kind" the kind
// is that of the value.
func (p *textParser) attrValue(name string, scope *textScope) Attr {
	a := Attr{Name: name}
	if p.accept(':') {
		at := p.next()
		word := p.ident("an attribute's kind")
		var ok bool
		if a.Kind, ok = parseAttrKind(word); !ok {
			p.fail(at, "%q is no kind of attribute", word)
		}
	}
	p.expect('=')
	at := p.next()
	if p.accept('@') {
		if a.Kind == 0 {
			p.fail(at, "the reference needs a kind: %s: int = @…", name)
		}
		a.Ref = p.name("an attribute's name")
		return a
	}
	if a.Kind == 0 {
		a.Kind = p.guessKind()
	}
	p.attrOfKind(&a, scope)
	return a
}

func (p *textParser) attrOfKind(a *Attr, scope *textScope) {
	switch a.Kind {
	case AttrFloat:
		a.F = p.float32()
	case AttrInt:
		a.I = p.int()
	case AttrString:
		a.S = p.quoted()
	case AttrTensor:
		a.T = p.tensor()
	case AttrGraph:
		a.G = p.subgraph(scope)
	case AttrFloats:
		a.Floats = attrList(p, p.float32)
	case AttrInts:
		a.Ints = attrList(p, p.int)
	case AttrStrings:
		a.Strings = attrList(p, p.quoted)
	case AttrTensors:
		a.Tensors = attrList(p, p.tensor)
	case AttrGraphs:
		a.Graphs = attrList(p, func() *Graph { return p.subgraph(scope) })
	case AttrType:
		a.Type = p.typ()
	default:
		at := p.next()
		raw, err := base64.StdEncoding.DecodeString(p.quoted())
		if err != nil {
			p.fail(at, "%v", err)
		}
		a.Raw = raw
	}
}

func attrList[E any](p *textParser, f func() E) []E {
	var es []E
	p.expect('[')
	for first := true; !p.accept(']'); first = false {
		if !first {
			p.expect(',')
		}
		es = append(es, f())
	}
	return es
}

// guessKind tells an attribute's kind from the first value ahead; a list with
// a float among its numbers is one of floats.
func (p *textParser) guessKind() AttrKind {
	start, notes := p.next(), len(p.noted)
	defer func() { p.pos, p.noted = start, p.noted[:notes] }()
	if !p.accept('[') {
		return p.guessSingle()
	}
	if p.peek() == ']' {
		p.fail(start, "an empty list needs a kind, such as `: ints`")
	}
	k := p.guessSingle()
	for k == AttrInt && p.accept(',') {
		k = p.guessSingle()
	}
	if k == AttrType {
		p.fail(start, "a list of types is not supported")
	}
	return k + AttrFloats - AttrFloat
}

// guessSingle moves past numbers only.
func (p *textParser) guessSingle() AttrKind {
	word := p.peekIdent()
	switch {
	case p.peek() == '"':
		return AttrString
	case word == "" || isFloatWord(word):
		s, isWord := p.number()
		if _, err := strconv.ParseInt(s, 10, 64); isWord || err != nil {
			return AttrFloat
		}
		return AttrInt
	case startsType(word):
		t := p.typ()
		if c := p.peek(); t.IsTensor() && (c == '{' || c == '=' || c == '"' || p.peekIdent() != "") {
			return AttrTensor
		}
		return AttrType
	}
	return AttrGraph
}

// tensor reads a literal: type, an optional name (which the IR does not keep),
// an optional '=', elements.
func (p *textParser) tensor() *Tensor {
	at := p.next()
	t := p.typ()
	p.optName()
	p.accept('=')
	return p.tensorData(t, at)
}
