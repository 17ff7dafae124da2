package onnx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"memoc/ir"
	"memoc/ir/diag"
)

// externals are the files of external data of one model: each is checked when
// the model is read, and opened when bytes of it are needed.
type externals struct {
	dir   string
	mu    sync.Mutex
	files map[string]*externalFile
}

type externalFile struct {
	size    int64 // -1: absent
	refused string
	once    sync.Once
	data    []byte
	err     error
}

// stat finds out about a location without opening it.
func (e *externals) stat(location string) *externalFile {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := e.files[location]; f != nil {
		return f
	}
	f := &externalFile{size: -1}
	e.files[location] = f
	local := filepath.FromSlash(strings.ReplaceAll(location, `\`, "/"))
	if !filepath.IsLocal(local) || strings.Contains(location, ":") || strings.ContainsRune(location, 0) {
		f.refused = "it leaves the model's folder"
		return f
	}
	if e.dir == "" {
		return f
	}
	root, err := os.OpenRoot(e.dir)
	if err != nil {
		return f
	}
	defer root.Close()
	info, err := root.Stat(location)
	switch {
	case err == nil && !info.Mode().IsRegular():
		f.refused = "it is no regular file"
	case err == nil:
		f.size = info.Size()
	case !errors.Is(err, fs.ErrNotExist):
		f.refused = "it is a link out of the model's folder, or cannot be reached: " + err.Error()
	}
	return f
}

// open returns the file's bytes.
func (e *externals) open(location string) ([]byte, error) {
	f := e.stat(location)
	f.once.Do(func() {
		root, err := os.OpenRoot(e.dir)
		if err != nil {
			f.err = err
			return
		}
		defer root.Close()
		h, err := root.Open(location)
		if err != nil {
			f.err = err
			return
		}
		defer h.Close()
		f.data, f.err = contents(h)
	})
	return f.data, f.err
}

// checkExternal refuses external data that a model must not name. size is
// what the tensor needs.
func (l *loader) checkExternal(t *tensorProto) error {
	_, size := t.sizes()
	loc := diag.Location{Value: t.name}
	f := l.ext.stat(t.ext.Location)
	if f.refused != "" {
		return l.refuse("external-path", fmt.Sprintf("external data %q is refused: %s", t.ext.Location, f.refused),
			"put the data into a file in the model's folder", loc)
	}
	if t.dtype == ir.String {
		return l.refuse("external-range", "a tensor of strings cannot have external data", "", loc)
	}
	if t.ext.Length != 0 && t.ext.Length < size {
		return l.refuse("external-range", fmt.Sprintf("external data %q gives %d bytes, but the type %s needs %d", t.ext.Location, t.ext.Length, t.typ(), size), "", loc)
	}
	need := max(t.ext.Length, size)
	if t.ext.Offset > 1<<62 || need > 1<<62 || f.size >= 0 && t.ext.Offset+need > f.size {
		return l.refuse("external-range", fmt.Sprintf("external data %q: bytes %d to %d are past the end of the file (%d bytes)",
			t.ext.Location, t.ext.Offset, uint64(t.ext.Offset)+uint64(need), f.size), "is the data file of another export, or cut off?", loc)
	}
	return nil
}

// loadExternal reads the tensor's bytes, which stay in the mapped file.
func (e *externals) load(t *tensorProto) (*ir.Tensor, error) {
	fail := func(id, msg, help string) error {
		return &diag.Diagnostic{ID: id, Severity: diag.Error, Message: msg, Help: help, Loc: diag.Location{Value: t.name}}
	}
	if e.dir == "" {
		return nil, fail("external-missing", fmt.Sprintf("its data is in %q, but the model was not read from a folder", t.ext.Location), "")
	}
	data, err := e.open(t.ext.Location)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fail("external-missing", fmt.Sprintf("its data is in %q, which does not exist", filepath.Join(e.dir, t.ext.Location)),
			"put the file beside the model; planning alone does not need it")
	}
	if err != nil {
		return nil, fail("external-missing", fmt.Sprintf("its data in %q cannot be read: %v", t.ext.Location, err), "")
	}
	_, size := t.sizes()
	if t.ext.Offset+size > int64(len(data)) {
		return nil, fail("external-range", fmt.Sprintf("external data %q: bytes %d to %d are past the end of the file (%d bytes)",
			t.ext.Location, t.ext.Offset, t.ext.Offset+size, len(data)), "")
	}
	return &ir.Tensor{DType: t.dtype, Dims: t.dims, Data: data[t.ext.Offset : t.ext.Offset+size : t.ext.Offset+size]}, nil
}

// weight makes the reference to an initializer's data.
func (b *builder) weight(t *tensorProto) (*ir.Weight, error) {
	if t.bad != nil {
		return nil, t.bad
	}
	w := &ir.Weight{Type: t.typ(), Raw: t.span}
	if !t.external {
		w.Load = t.decode
		b.checkSmall(t)
		return w, nil
	}
	if err := b.checkExternal(t); err != nil {
		return nil, err
	}
	ext := t.ext
	w.External = &ext
	w.Load = func() (*ir.Tensor, error) { return b.ext.load(t) }
	return w, nil
}

// checkSmall warns of a small initializer that holds other data than its type
// says: shape rules may ask for it. Large ones are not looked at.
func (b *builder) checkSmall(t *tensorProto) {
	if n, _ := t.sizes(); n <= 1024 {
		if _, err := t.decode(); err != nil {
			b.warn("tensor-data", err.Error(), "its value is taken as unknown", diag.Location{Value: t.name})
		}
	}
}

func sparseWeight(s *sparseProto) *ir.Weight {
	return &ir.Weight{Type: ir.TensorOf(s.values.dtype, ir.Ints64(s.dims...)), Raw: s.span, Sparse: true, Load: s.dense}
}

// attrTensor is the tensor of an attribute. External data is read at once,
// since an attribute is no reference; where the file is absent there is no
// tensor, and a warning.
func (l *loader) attrTensor(t *tensorProto) (*ir.Tensor, error) {
	if t == nil {
		return nil, nil
	}
	if t.bad != nil {
		return nil, t.bad
	}
	if !t.external {
		return t.decode()
	}
	if err := l.checkExternal(t); err != nil {
		return nil, err
	}
	x, err := l.ext.load(t)
	if err != nil {
		l.warn("external-missing", fmt.Sprintf("the data of an attribute is in %q, which cannot be read", t.ext.Location), "", diag.Location{Value: t.name})
		return nil, nil
	}
	return x, nil
}
