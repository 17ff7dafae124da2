package tokens

import "memoc/ir"

// Each is what Find would be for every axis of g, whatever it is of.
func Each(g *ir.Graph) []*Info {
	p := &provenance{dims: make([][][]*factor, g.NumValues())}
	p.graph(g)
	seen := map[*factor]bool{}
	var out []*Info
	for _, dims := range p.dims {
		for _, fs := range dims {
			for _, f := range leaves(fs) {
				if !seen[f] {
					seen[f] = true
					out = append(out, along(g, p, []*factor{f}))
				}
			}
		}
	}
	return out
}

// Along is what Find would be for the axis of dimension d of v.
func Along(g *ir.Graph, v *ir.Value, d int) *Info {
	p := &provenance{dims: make([][][]*factor, g.NumValues())}
	p.graph(g)
	return along(g, p, leaves(p.dims[v.ID][d]))
}
