package ir

// The text form is ONNX's own textual syntax: what Python's onnx.printer
// writes and onnx.parser reads, so that tests read like ONNX and a dump can be
// loaded anywhere. This file says where it goes beyond that.
//
//   - Layout: one initializer or typed value on each line, no blanks at line
//     ends.
//   - Names that are no plain identifiers are quoted everywhere. Python
//     accepts that for values, nodes and models' graphs, but not for
//     attributes, operators and domains. A graph inside an attribute goes by
//     an identifier, with its name in a comment.
//   - A dim that is no integer and no identifier is quoted: "2*batch+1". A
//     symbol that reads like an expression has single quotes inside.
//   - Elements of types under 8 bits are packed bytes, as in the protobuf; a
//     list with one number for each element is read too.
//   - Initializers too large to print are `["elided": "N elements"]`, which
//     Python takes for external data.
//   - What the syntax has no place for stands in comments of the form
//     `#@ word …`, after the thing it describes: on a node `origin "n"`,
//     `backward`, `version 13`, `doc "…"`, `meta "key" "value"`; on a value
//     `ints [2, N]`, `doc "…"`, `sparse`; on a graph (after its brace) `name "…"`,
//     `doc "…"`, `meta "key" "value"`; on a NaN `bits 7fc00001`.
//
// Printing and parsing again gives an equal model, but for where it was read
// from (Raw, Path and Loc are those of the text) and for elided data.

// TextOptions steer printing. The zero value prints what Parse needs.
type TextOptions struct {
	// MaxElems is the number of elements above which an initializer's data is
	// elided; 0 stands for 64, a negative number for no limit. Data in
	// external files is referenced, never printed.
	MaxElems int64

	// Brief leaves out the types of intermediate values, all comments, and
	// data of large attributes: for people, not for Parse.
	Brief bool
}

const defaultMaxElems = 64

func (o TextOptions) prints(elems int64) bool {
	limit := o.MaxElems
	if limit == 0 {
		limit = defaultMaxElems
	}
	return limit < 0 || elems <= limit
}

// elidedKey stands where external data has its location.
const elidedKey = "elided"

var attrKindNames = map[AttrKind]string{
	AttrFloat: "float", AttrInt: "int", AttrString: "string", AttrTensor: "tensor", AttrGraph: "graph",
	AttrFloats: "floats", AttrInts: "ints", AttrStrings: "strings", AttrTensors: "tensors", AttrGraphs: "graphs",
	AttrSparse: "sparse_tensor", 12: "sparse_tensors", AttrType: "type_proto", 14: "type_protos",
}

func parseAttrKind(s string) (AttrKind, bool) {
	for k, name := range attrKindNames {
		if name == s {
			return k, true
		}
	}
	return 0, false
}

// startsType reports whether an identifier begins a type.
func startsType(s string) bool {
	switch s {
	case "seq", "map", "optional", "sparse_tensor", "undefined":
		return true
	}
	_, ok := ParseDType(s)
	return ok
}
