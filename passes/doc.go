// Package passes turns a loaded model into a Program: the contract of a pass,
// the order of the pipeline with its reasons, the runner, and one file per
// pass. The searching and packing itself is in the pure packages below it
// (plan, place, sim); a pass here carries a graph to them and the answer back.
package passes
