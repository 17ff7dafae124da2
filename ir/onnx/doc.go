// Package onnx reads and writes ONNX models. It is the only package that
// knows the wire format.
//
// A file is mapped, not read: the big messages are split by hand and every
// node, tensor and graph keeps the bytes it was read from. Weights are never
// copied; their data is looked at when somebody asks for it. Encode writes
// what no pass changed byte for byte as it was read.
package onnx
