// Package onnxpb is generated from onnx.proto, memoc's condensed ONNX schema.
// Only ir/onnx may import it.
package onnxpb

// The file is compiled under a path of its own ("memoc/onnx.proto"), because
// protobuf registers file paths too. protoc comes with the Python package
// grpcio-tools, protoc-gen-go with google.golang.org/protobuf.
//
//go:generate sh -c "mkdir -p gen/memoc && cp onnx.proto gen/memoc/ && python3 -m grpc_tools.protoc -I gen --go_out=gen --go_opt=paths=source_relative gen/memoc/onnx.proto && mv gen/memoc/onnx.pb.go . && rm -r gen"
