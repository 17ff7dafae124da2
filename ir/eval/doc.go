// Package eval is the reference interpreter: what every other execution of a
// graph is held against. It runs a Graph node by node, and a planned Program
// inside poisoned byte arenas.
//
// It knows operators only through their declarations (ir.Op.Eval) and nothing
// of how a plan was found. It is written to be plainly right, not fast.
package eval
