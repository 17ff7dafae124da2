// Package onnxgo plugs memoc into programs that are built on onnx-go
// (github.com/owulveryck/onnx-go): a Backend receives the model that onnx-go
// decodes, makes memoc's graph of it and runs that on the reference
// interpreter.
//
//	b := onnxgo.New(9)
//	m := onnx.NewModel(b)
//	m.UnmarshalBinary(file)
//	m.SetInput(0, x)
//	b.Run()
//	y, _ := m.GetOutputTensors()
//
// onnx-go hands over names, tensors and attributes only: it drops the operator
// set's version (New is told), domains, symbolic dims, half-precision types,
// subgraphs and external data. Package ir/onnx reads models without these
// losses. Operators must be registered (import memoc/ir/ops).
package onnxgo
