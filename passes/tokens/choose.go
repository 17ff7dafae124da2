package tokens

import (
	"slices"

	"memoc/ir"
	"memoc/passes/liveness"
)

// candidates is how many axes are tried as the token axis, those of the most
// bytes.
const candidates = 8

// candidate is an axis with the bytes of what waits along it.
type candidate struct {
	token []*factor
	bytes int64
}

// choose is the token axis: of the query axes of attention, or where there is
// none of all axes, the one along which most bytes of what waits for the
// backward pass can be made by token.
func choose(g *ir.Graph, p *provenance) *Info {
	waiting := waitingValues(g, p)
	for _, list := range [][]candidate{p.queries(g, waiting), p.axes(waiting)} {
		slices.SortStableFunc(list, func(a, b candidate) int { return int(min(max(b.bytes-a.bytes, -1), 1)) })
		var best *Info
		most := int64(0)
		for _, c := range list[:min(len(list), candidates)] {
			if c.bytes <= most {
				break
			}
			i := along(g, p, c.token)
			if sum := i.makes(waiting); sum > most {
				best, most = i, sum
			}
		}
		if best != nil {
			return best
		}
	}
	return along(g, p, nil)
}

// makes is the bytes of the values that have the token axis and whose nodes
// may run by token.
func (i *Info) makes(waiting []*ir.Value) (sum int64) {
	for _, v := range waiting {
		if _, ok := i.Range(v.Def); ok {
			sum += bytesOf(v)
		}
	}
	return sum
}

// waitingValues lists what the forward pass leaves for the backward pass; of a
// forward graph, all that its nodes make.
func waitingValues(g *ir.Graph, p *provenance) (out []*ir.Value) {
	backward := liveness.BackwardFrom(g)
	forward := backward == len(g.Nodes)
	at := make([]int, g.NumNodes())
	for k, n := range g.Nodes {
		at[n.ID] = k
	}
	for _, n := range g.Nodes[:backward] {
		for _, v := range n.Out {
			if v == nil || p.dims[v.ID] == nil {
				continue
			}
			left := forward
			for _, u := range v.Uses() {
				left = left || u.Node.Graph == g && at[u.Node.ID] >= backward
			}
			if left {
				out = append(out, v)
			}
		}
	}
	return out
}

func bytesOf(v *ir.Value) int64 {
	n, err := v.Type.Bytes()
	if err != nil {
		return 0
	}
	return n
}

// axes lists every axis of the values that wait.
func (p *provenance) axes(waiting []*ir.Value) (out []candidate) {
	at := map[*factor]int{}
	for _, v := range waiting {
		for _, fs := range p.dims[v.ID] {
			for _, f := range leaves(fs) {
				k, seen := at[f]
				if !seen {
					k = len(out)
					at[f] = k
					out = append(out, candidate{token: []*factor{f}})
				}
				if _, _, ok := find(p.dims[v.ID], out[k].token); ok {
					out[k].bytes += bytesOf(v)
				}
			}
		}
	}
	return out
}

// queries lists the query axes of attention.
func (p *provenance) queries(g *ir.Graph, waiting []*ir.Value) (out []candidate) {
	seen := map[*factor]bool{}
	for _, n := range g.Nodes {
		if n.Domain != ir.MemocDomain || n.Op != "FlashAttention" || n.In[0] == nil {
			continue
		}
		dims := p.dims[n.In[0].ID]
		if len(dims) != 4 {
			continue
		}
		q := leaves(dims[2])
		if len(q) == 0 || seen[q[0]] {
			continue
		}
		seen[q[0]] = true
		c := candidate{token: q}
		for _, v := range waiting {
			if _, _, ok := find(p.dims[v.ID], q); ok {
				c.bytes += bytesOf(v)
			}
		}
		out = append(out, c)
	}
	return out
}
