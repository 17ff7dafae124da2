package passes

import (
	"cmp"
	"context"
	"hash/fnv"
	"io"
	"slices"
	"strings"

	"memoc/ir"
	"memoc/passes/layers"
	"memoc/passes/place"
	"memoc/passes/plan"
)

// nodeSignature is equal for nodes that do the same work: operator, attributes
// and types, without names.
func nodeSignature(n *ir.Node) uint64 {
	h := fnv.New64a()
	write := func(parts ...string) { io.WriteString(h, strings.Join(parts, "\x00")+"\x00") }
	write(n.Domain, n.Op)
	for _, vs := range [][]*ir.Value{n.In, n.Out} {
		for _, v := range vs {
			if v == nil {
				write("-")
				continue
			}
			write(v.Type.String())
		}
		write("|")
	}
	for _, a := range n.Attrs {
		if a.T == nil && a.G == nil && len(a.Graphs) == 0 {
			write(a.Name, a.S, strings.Join(a.Strings, ","), ints64(append([]int64{a.I}, a.Ints...)))
		}
	}
	return h.Sum64()
}

func ints64(ns []int64) string {
	var b strings.Builder
	for _, n := range ns {
		for range 8 {
			b.WriteByte(byte(n))
			n >>= 8
		}
	}
	return b.String()
}

// blocks groups the buffers of a placement problem that live inside one layer:
// the entries of the schedule repeat, and the buffers of the instances that
// correspond (same life within the layer, same size) form the class. Buffers
// that not every instance has stay single.
func blocks(c *Context, s *plan.Schedule, p *place.Problem) []place.Block {
	seq := make([]uint64, len(s.Entries))
	for i := range s.Entries {
		seq[i] = entrySignature(c, s, &s.Entries[i])
	}
	var out []place.Block
	class := 0
	for _, run := range layers.Find(seq) {
		if made := classBlocks(run, p, class); len(made) > 0 {
			out = append(out, made...)
			class++
		}
	}
	return out
}

func entrySignature(c *Context, s *plan.Schedule, e *plan.Entry) uint64 {
	var n uint64
	switch e.Kind {
	case plan.CopyOut:
		n = uint64(c.Problem.Tensors[s.Instances[e.In[0]].Tensor].Bytes)
	case plan.CopyIn:
		n = uint64(c.Problem.Tensors[s.Instances[e.Out[0]].Tensor].Bytes)
	case plan.Pack, plan.Unpack:
		n = uint64(c.Problem.Tensors[s.Instances[e.In[0]].Tensor].Bytes)
	default:
		n = nodeSignature(c.Origin.node[e.Op])
	}
	return (n*8+uint64(e.Kind))*1_000_003 + uint64(e.From)<<24 + uint64(e.To)
}

// life is a buffer seen from its layer.
type life struct {
	first, end int // steps after the layer's first
	size       int64
}

func compareLives(a, b life) int {
	return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.end, b.end), cmp.Compare(a.size, b.size))
}

// classBlocks makes one block for each instance of a run, of the buffers that
// all instances have.
func classBlocks(run layers.Run, p *place.Problem, class int) []place.Block {
	members := make([]map[life][]int, run.Count)
	for k := range members {
		members[k] = map[life][]int{}
	}
	for i, b := range p.Buffers {
		k := (b.Start - run.Start) / run.Period
		if b.Size == 0 || b.Start < run.Start || k >= run.Count || b.End > run.Start+(k+1)*run.Period {
			continue
		}
		l := life{b.Start - run.Start - k*run.Period, b.End - run.Start - k*run.Period, b.Size}
		members[k][l] = append(members[k][l], i)
	}
	var common []life
	for l, first := range members[0] {
		n := len(first)
		for _, m := range members[1:] {
			n = min(n, len(m[l]))
		}
		for range n {
			common = append(common, l)
		}
	}
	if len(common) < 2 {
		return nil
	}
	slices.SortFunc(common, compareLives)
	out := make([]place.Block, run.Count)
	for k := range out {
		out[k].Class = class
		taken := map[life]int{}
		for _, l := range common {
			out[k].Buffers = append(out[k].Buffers, members[k][l][taken[l]])
			taken[l]++
		}
	}
	return out
}

// twoLevel places with each layer packed once, the method of the MEMO paper
// (section 4.2); nil if nothing repeats.
func twoLevel(c *Context, s *plan.Schedule, p *place.Problem) (*place.Solution, error) {
	bs := blocks(c, s, p)
	if len(bs) == 0 {
		return nil, nil
	}
	return place.SolveBlocks(context.Background(), p, bs, place.Options{Work: placeWork})
}
