package onnx

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unicode"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/onnx/internal/onnxpb"
)

// Options steer reading.
type Options struct {
	// Strict refuses what is otherwise accepted with a warning.
	Strict bool
	// Unbridge reads calls of the functions that hold an operator of another
	// version, as Encode writes them, as that operator again.
	Unbridge bool
	// Name stands for the file in messages; Load takes the path.
	Name string
}

// Load reads the model at path. The warnings say what in it breaks ONNX's
// rules and was accepted all the same. Files of external data are not opened:
// their places are checked, and a weight's Load reads it.
func Load(path string, opt Options) (*ir.Model, []*diag.Diagnostic, error) {
	if opt.Name == "" {
		opt.Name = filepath.Base(path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, readError(opt.Name, path, err)
	}
	defer f.Close()
	b, err := contents(f)
	if err != nil {
		return nil, nil, readError(opt.Name, path, err)
	}
	m, warnings, err := Decode(b, filepath.Dir(path), opt)
	if m != nil {
		m.Path = path
	}
	return m, warnings, err
}

func readError(name, path string, err error) error {
	d := &diag.Diagnostic{ID: "read", Severity: diag.Error, Loc: diag.Location{File: name},
		Message: "cannot read the model: " + err.Error()}
	if errors.Is(err, fs.ErrNotExist) {
		d.Message, d.Help = "there is no file "+path, "check the path"
	}
	return d
}

// Decode reads a model from b, which must not change afterwards: the model
// refers to it. dir is the folder of external data, "" if there is none.
func Decode(b []byte, dir string, opt Options) (*ir.Model, []*diag.Diagnostic, error) {
	l := &loader{opt: opt, ext: &externals{dir: dir, files: map[string]*externalFile{}}}
	m, err := l.model(b)
	if err == nil && opt.Strict && len(l.warnings) > 0 {
		d := *l.warnings[0]
		d.Severity, d.Help = diag.Error, "read the model without strictness to accept it"
		return nil, nil, &d
	}
	var we *wireError
	if errors.As(err, &we) {
		err = &diag.Diagnostic{ID: "malformed", Severity: diag.Error, Loc: diag.Location{File: opt.Name},
			Message: we.Error(), Help: looksLike(b)}
	}
	if err != nil {
		return nil, l.warnings, err
	}
	return m, l.warnings, nil
}

// looksLike says what a file that is no ONNX model may be.
func looksLike(b []byte) string {
	head := b[:min(len(b), 256)]
	switch {
	case bytes.HasPrefix(head, []byte("version https://git-lfs")):
		return "this is a git-lfs pointer, not the model: fetch the file with `git lfs pull`"
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return "this is a zip archive (a .pt or .npz file?), not an ONNX model"
	case bytes.HasPrefix(head, []byte("\x89HDF")):
		return "this is an HDF5 file, not an ONNX model"
	case bytes.HasPrefix(head, []byte("ORTM")) || len(head) > 8 && string(head[4:8]) == "ORTM":
		return "this is ONNX Runtime's own format (.ort), not ONNX"
	}
	printable := len(head) > 0
	for _, r := range string(head) {
		printable = printable && (unicode.IsPrint(r) || unicode.IsSpace(r))
	}
	if printable {
		return "this looks like a text file, not like an ONNX model"
	}
	return ""
}

// loader holds what is shared while one model is read.
type loader struct {
	opt      Options
	ext      *externals
	warnings []*diag.Diagnostic
	irv      int64
	opsets   map[string]int
	unsorted bool            // the warning was given
	foreign  map[string]bool // domains the warning was given for
	fresh    map[string]bool // symbols made for dims that the file leaves open
	root     *ir.Graph
	bridges  []*ir.Function // to be read as operators; see Options
}

func (l *loader) warn(id, message, help string, loc diag.Location) {
	loc.File = l.opt.Name
	l.warnings = append(l.warnings, &diag.Diagnostic{ID: id, Severity: diag.Warning, Message: message, Help: help, Loc: loc})
}

func (l *loader) refuse(id, message, help string, loc diag.Location) error {
	loc.File = l.opt.Name
	return &diag.Diagnostic{ID: id, Severity: diag.Error, Message: message, Help: help, Loc: loc}
}

// model reads a ModelProto.
func (l *loader) model(b []byte) (*ir.Model, error) {
	m := &ir.Model{Opsets: map[string]int{}, Raw: b}
	l.opsets, l.foreign, l.fresh = m.Opsets, map[string]bool{}, map[string]bool{}
	var graphs, functions []record
	err := each(b, 0, func(r record) (err error) {
		switch {
		case r.num == 7 && r.isBytes():
			graphs = append(graphs, r)
		case r.num == 25 && r.isBytes():
			functions = append(functions, r)
		default:
			err = l.modelField(m, r)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(graphs) != 1 {
		what := fmt.Sprintf("the file has %d graphs, expected one", len(graphs))
		switch {
		case len(b) == 0:
			what = "the file is empty"
		case len(graphs) == 0:
			what = "the file holds no graph, so it is no ONNX model"
		}
		return nil, l.refuse("not-onnx", what, looksLike(b), diag.Location{})
	}
	l.irv = m.IRVersion
	l.defaultOpset(m)
	for _, r := range functions {
		f, err := l.function(r)
		if err != nil {
			return nil, err
		}
		for _, g := range m.Functions {
			if f.Domain == g.Domain && f.Name == g.Name && f.Overload == g.Overload {
				return nil, l.refuse("duplicate-function", fmt.Sprintf("the model has two local functions %s", ir.FullOp(f.Domain, f.Name)), "", diag.Location{})
			}
		}
		m.Functions = append(m.Functions, f)
		if l.opt.Unbridge && f.Domain == compatDomain && len(f.Body.Nodes) == 1 {
			l.bridges = append(l.bridges, f)
		}
	}
	m.Graph, err = l.rootGraph(graphs[0], m)
	return m, err
}

func (l *loader) modelField(m *ir.Model, r record) (err error) {
	switch {
	case r.num == 1 && r.isVarint():
		m.IRVersion = int64(r.n)
	case r.num == 5 && r.isVarint():
		m.ModelVersion = int64(r.n)
	case !r.isBytes():
	case r.num == 2:
		m.ProducerName = string(r.b)
	case r.num == 3:
		m.ProducerVersion = string(r.b)
	case r.num == 4:
		m.Domain = string(r.b)
	case r.num == 6:
		m.Doc = string(r.b)
	case r.num == 8:
		err = l.opset(m.Opsets, r)
	case r.num == 14:
		m.Meta, err = appendKV(m.Meta, r)
	}
	return err
}

// opset reads an OperatorSetIdProto. Where a domain is imported twice the
// last import holds, as in ONNX Runtime.
func (l *loader) opset(into map[string]int, r record) error {
	var o onnxpb.OperatorSetIdProto
	if err := proto.Unmarshal(r.b, &o); err != nil {
		return &wireError{r.boff, "an opset_import is malformed"}
	}
	domain, version := canonicalDomain(o.GetDomain()), int(int32(o.GetVersion()))
	if version <= 0 || int64(version) != o.GetVersion() {
		return &wireError{r.boff, fmt.Sprintf("opset_import of domain %q has version %d", o.GetDomain(), o.GetVersion())}
	}
	if old, ok := into[domain]; ok && old != version {
		l.warn("opset-conflict", fmt.Sprintf("domain %q is imported as version %d and as version %d; the last one is used",
			o.GetDomain(), old, version), "", diag.Location{})
	}
	into[domain] = version
	return nil
}

// newestOpset is the default domain's newest version by IR version.
var newestOpset = map[int64]int{3: 8, 4: 9, 5: 10, 6: 11, 7: 14, 8: 18, 9: 20, 10: 22, 11: 23, 12: 24, 13: 26}

// defaultOpset fills in the import of the default domain where a file has
// none.
func (l *loader) defaultOpset(m *ir.Model) {
	if m.Opsets[""] != 0 || len(m.Opsets) > 0 {
		return
	}
	v, ok := newestOpset[m.IRVersion]
	switch {
	case !ok && m.IRVersion > 13:
		v = newestOpset[13]
	case !ok:
		v = 1 // IR versions 1 and 2 had no opsets
	}
	m.Opsets[""] = v
	l.warn("domain-not-imported", fmt.Sprintf("the model imports no operator set; version %d is assumed", v), "", diag.Location{})
}

// symbol is the dim that a dim_param names. Symbols that memoc made for dims
// left open are kept apart from the file's, which are renamed such that
// renamedFrom tells what they were.
func (l *loader) symbol(g *ir.Graph) func(string) ir.Dim {
	renamed := map[string]ir.Dim{}
	return func(name string) ir.Dim {
		d := ir.DimOf(name)
		for _, s := range d.Symbols() {
			_, looks := renamedFrom(s)
			if _, ok := renamed[s]; !ok && (looks || l.fresh[s]) {
				renamed[s] = ir.Sym(g.Fresh("dim " + s + "_")[len("dim "):])
			}
			g.Reserve("dim " + s)
		}
		return d.Bind(renamed)
	}
}

func (l *loader) unknown(g *ir.Graph) func() ir.Dim {
	return func() ir.Dim {
		d := g.FreshDim()
		s, _ := d.IsSym()
		l.fresh[s] = true
		g.Reserve("dim " + s)
		return d
	}
}

func (l *loader) parser(g *ir.Graph) *parser {
	return &parser{unknown: l.unknown(g), symbol: l.symbol(g)}
}

func (l *loader) rootGraph(r record, m *ir.Model) (*ir.Graph, error) {
	g := ir.NewGraph("", m.Opsets)
	p, err := l.parser(g).graph(r.b, r.boff)
	if err != nil {
		return nil, err
	}
	b := newBuilder(l, g)
	return g, b.fill(g, p, &scope{path: "graph"})
}

// function reads a FunctionProto. Its body is a graph with names of its own.
func (l *loader) function(r record) (*ir.Function, error) {
	f := &ir.Function{Raw: r.b, Opsets: map[string]int{}}
	f.Body = ir.NewGraph("", f.Opsets)
	p := l.parser(f.Body)
	body := &graphProto{off: r.boff}
	err := each(r.b, r.boff, func(r record) error {
		if !r.isBytes() {
			return nil
		}
		return l.functionField(f, body, p, r)
	})
	if err != nil {
		return nil, err
	}
	f.Body.Name = f.Name
	for _, name := range f.Inputs {
		body.inputs = append(body.inputs, valueInfo{name: name})
	}
	for _, name := range f.Outputs {
		body.outputs = append(body.outputs, valueInfo{name: name})
	}
	b := newBuilder(l, f.Body)
	return f, b.fill(f.Body, body, &scope{path: "function " + ir.FullOp(f.Domain, f.Name)})
}

func (l *loader) functionField(f *ir.Function, body *graphProto, p *parser, r record) (err error) {
	switch r.num {
	case 1:
		f.Name = string(r.b)
	case 4:
		f.Inputs = append(f.Inputs, string(r.b))
	case 5:
		f.Outputs = append(f.Outputs, string(r.b))
	case 6:
		f.Attrs = append(f.Attrs, string(r.b))
	case 7, 12:
		r.num = map[protowire.Number]protowire.Number{7: 1, 12: 13}[r.num] // as in GraphProto
		err = p.graphField(body, r)
	case 8:
		f.Doc = string(r.b)
	case 9:
		err = l.opset(f.Opsets, r)
	case 10:
		f.Domain = canonicalDomain(string(r.b))
	case 11:
		var a *attrProto
		if a, err = p.attr(r.b, r.boff); err == nil {
			a.attr.T, err = l.attrTensor(a.tensor)
			f.AttrDefaults = append(f.AttrDefaults, a.attr)
		}
	case 13:
		f.Overload = string(r.b)
	}
	return err
}
