// Package conformance holds tests alone: memoc's loader, shape rules and
// reference interpreter against the cases of the ONNX project and of onnx-go,
// and the round trip of real files.
//
// The cases lie beside the repository, in ../shared; without them the tests
// are skipped. What does not pass yet is listed in testdata/*_pending.txt, one
// case a line with the class of the reason. A listed case that passes fails
// the test, so the lists only shrink; `go test ./ir/conformance -update`
// rewrites them. A wrong shape cannot be listed.
package conformance
