package onnx

import (
	"strings"

	"memoc/ir"
)

// sameDeclared reports whether a declared type still is the value's: dims that
// the file left open are symbols that memoc made.
func sameDeclared(file, now ir.Type) bool {
	if file.Kind != now.Kind || file.DType != now.DType || file.Shape.Ranked != now.Shape.Ranked || len(file.Shape.Dims) != len(now.Shape.Dims) {
		return false
	}
	for i, d := range file.Shape.Dims {
		e := now.Shape.Dims[i]
		s, _ := d.IsSym()
		if s == openDim && isOpen(e) || d.Equal(inFile(e)) {
			continue
		}
		return false
	}
	if file.Elem == nil || now.Elem == nil {
		return file.Elem == now.Elem
	}
	return sameDeclared(*file.Elem, *now.Elem)
}

// inFile is d with the names that its symbols had in the file.
func inFile(d ir.Dim) ir.Dim {
	names := map[string]ir.Dim{}
	for _, s := range d.Symbols() {
		if t, ok := renamedFrom(s); ok {
			names[s] = ir.Sym(t)
		}
	}
	return d.Bind(names)
}

// contradicted reports whether both types cannot hold.
func contradicted(file, now ir.Type) bool {
	if file.Kind == ir.NoType || now.Kind == ir.NoType {
		return false
	}
	if file.Kind != now.Kind || file.DType != now.DType && file.DType != 0 && now.DType != 0 {
		return true
	}
	if file.Elem != nil && now.Elem != nil && contradicted(*file.Elem, *now.Elem) {
		return true
	}
	if !file.Shape.Ranked || !now.Shape.Ranked {
		return false
	}
	if len(file.Shape.Dims) != len(now.Shape.Dims) {
		return true
	}
	for i, d := range file.Shape.Dims {
		if d.Differ(now.Shape.Dims[i]) {
			return true
		}
	}
	return false
}

// renamedFrom is the name in the file of a symbol that was renamed, which is
// one of memoc's with "_" or "__" and a number behind it, or that again. The
// loader renames whatever looks like one.
func renamedFrom(s string) (name string, ok bool) {
	if name, ok = strings.CutSuffix(s, "_"); !ok {
		name, ok = strings.CutSuffix(strings.TrimRight(s, "0123456789"), "__")
	}
	if ok && !isOpen(ir.Sym(name)) {
		_, ok = renamedFrom(name)
	}
	return name, ok
}
