// Package ir is memoc's graph: values, nodes, types with symbolic dimensions,
// the contract every operator fulfils, the one API that edits a graph, and
// the Program that a plan becomes.
//
// It knows nothing of files (ir/onnx), of single operators (ir/ops) or of
// plans (passes). Edges are pointers; analyses are slices indexed by the dense
// IDs of values and nodes, never fields on them.
package ir
