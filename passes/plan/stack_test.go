package plan

import "testing"

// stack is the training step of n transformer layers of a GPT, h wide, on one
// of tp devices, in 2-byte elements: what matters of it to a planner, from the
// closed forms alone. rate is in floating point operations per nanosecond.
type stack struct {
	n, tp           int64
	tokens, tile, h int64
	rate            float64
	rows            int64 // rows of q, k and v
	p               *Problem
	layer           int
}

func (s *stack) add(op Op, units float64, role int) int {
	t := len(s.p.Tensors)
	token := int64(units * float64(2*s.h) / float64(s.tp))
	x := Tensor{Bytes: s.tokens * token}
	if s.layer > 0 && role > 0 {
		x.Role, x.Layer = role, s.layer
	}
	x.Rows, x.TokenBytes = 1, token
	op.Out = []int{t}
	s.p.Tensors = append(s.p.Tensors, x)
	s.p.Ops = append(s.p.Ops, op)
	return t
}

// op is an op of so many operations (in units of tokens*h*h) that runs on a
// range of all its inputs.
func (s *stack) op(flops, units float64, role int, in ...int) int {
	time := int64(flops*float64(s.tokens*s.h*s.h)/s.rate/float64(s.tp)) + 1000
	op := Op{Time: time, In: in, Clone: true, Range: make([]bool, len(in)), TileTime: min(time, time/(s.tokens/s.tile)+1000)}
	for i := range op.Range {
		op.Range[i] = true
	}
	return s.add(op, units, role)
}

// small is the operations of an elementwise op on one unit of bytes, which the
// closed forms leave out.
const smallOp = 0.05

func (s *stack) forward(x int) (next int, saved []int) {
	n1 := s.op(smallOp, 1, 2, x)
	q, k, v := s.op(2, 1, 3, n1), s.op(2, 1, 4, n1), s.op(2, 1, 5, n1)
	for _, t := range []int{q, k, v} {
		s.p.Tensors[t].Rows = s.rows
	}
	at := s.op(2*float64(s.tokens)/float64(s.h), 1, 6, q, k, v)
	s.p.Tensors[at].Attention = true
	op := &s.p.Ops[len(s.p.Ops)-1]
	op.Range, op.TileTime = nil, 0
	lse := len(s.p.Tensors)
	s.p.Tensors = append(s.p.Tensors, Tensor{Bytes: s.tokens * 4 * s.h / 128 / s.tp, Rows: s.h / 128 / s.tp, TokenBytes: 4 * s.h / 128 / s.tp,
		Role: 7, Layer: s.layer})
	op.Out = append(op.Out, lse)
	pr := s.op(2, 1, 0, at)
	r := s.op(smallOp, 1, 8, x, pr)
	n2 := s.op(smallOp, 1, 9, r)
	f1 := s.op(8, 4, 10, n2)
	g := s.op(4*smallOp, 4, 11, f1)
	y := s.op(8, 1, 0, g)
	s.layer++
	next = s.op(smallOp, 1, 1, r, y)
	s.p.Tensors[next].Input = true
	s.layer--
	return next, []int{x, n1, q, k, v, at, lse, r, n2, f1, g}
}

// grads adds the gradient of the weights from a and d, which is kept.
func (s *stack) grads(flops float64, a, d int) {
	t := s.op(flops, 1, 0, a, d)
	s.p.Tensors[t] = Tensor{Bytes: 2 * s.h * s.h / s.tp, Output: true}
	op := &s.p.Ops[len(s.p.Ops)-1]
	op.Range, op.TileTime = nil, 0
}

func (s *stack) backward(saved []int, d int) int {
	x, n1, q, k, v, at, lse, r, n2, f1, g := saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[6], saved[7], saved[8], saved[9], saved[10]
	dg := s.op(8, 4, 0, d)
	s.grads(8, g, d)
	df := s.op(4*smallOp, 4, 0, f1, dg)
	dn := s.op(8, 1, 0, df)
	s.grads(8, n2, df)
	dr := s.op(smallOp, 1, 0, r, dn, d)
	do := s.op(2, 1, 0, dr)
	s.grads(2, at, dr)
	dqkv := s.op(4*float64(s.tokens)/float64(s.h), 3, 0, q, k, v, at, do)
	op := &s.p.Ops[len(s.p.Ops)-1]
	op.In, op.Range, op.TileTime = append(op.In, lse), nil, 0
	s.grads(6, n1, dqkv)
	dn1 := s.op(6, 1, 0, dqkv)
	return s.op(smallOp, 1, 0, x, dn1, dr)
}

// problem is the whole step, its copies at rate bytes per nanosecond.
func (s *stack) problem(rate float64, host int64) *Problem {
	s.p = &Problem{OutRate: rate, InRate: rate, HostBytes: host, Tokens: s.tokens, Tile: s.tile, PackRate: 1000, PackLatency: 1000, CopyLatency: 1000}
	s.rows = max(s.rows, 1)
	s.layer = 1
	x := s.op(1, 1, 1)
	s.p.Tensors[x].Input = true
	var saved [][]int
	for l := range s.n {
		s.layer = int(l) + 1
		var k []int
		x, k = s.forward(x)
		saved = append(saved, k)
	}
	t := &s.p.Tensors[x]
	t.Role, t.Layer, t.Input = 0, 0, false
	s.layer = 0
	d := s.op(2, 1, 0, x)
	for l := s.n - 1; l >= 0; l-- {
		d = s.backward(saved[l], d)
	}
	return s.p
}

func gpt7b(tokens int64) *stack {
	return &stack{n: 32, tp: 8, tokens: tokens, tile: 128, h: 4096, rate: 187e3}
}

const gib = 1 << 30

func TestStackIsAProblem(t *testing.T) {
	p := gpt7b(1<<17).problem(12, 1<<40)
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
}
