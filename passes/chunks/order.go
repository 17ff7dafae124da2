package chunks

import "memoc/ir"

// inGroups orders the nodes of g so that the nodes of each group (ranges of
// node IDs, half-open and ascending) stand together in their order, with what
// they need before and what needs them behind; everything else keeps its place
// as far as that goes.
func inGroups(g *ir.Graph, groups [][2]int) error {
	o := &orderer{g: g, group: map[*ir.Node]int{}, members: make([][]*ir.Node, len(groups)), placed: map[*ir.Node]bool{}}
	for _, n := range g.Nodes {
		for i, ids := range groups {
			if ids[0] <= int(n.ID) && int(n.ID) < ids[1] {
				o.group[n] = i
				o.members[i] = append(o.members[i], n)
				break
			}
		}
	}
	for _, n := range g.Nodes {
		o.place(n)
	}
	return ir.NewEdit(g).Reorder(o.out)
}

type orderer struct {
	g       *ir.Graph
	group   map[*ir.Node]int
	members [][]*ir.Node
	placed  map[*ir.Node]bool
	out     []*ir.Node
}

func (o *orderer) place(n *ir.Node) {
	if o.placed[n] {
		return
	}
	unit := []*ir.Node{n}
	if i, ok := o.group[n]; ok {
		unit = o.members[i]
	}
	for _, m := range unit {
		o.placed[m] = true
	}
	for _, m := range unit {
		for _, vs := range [][]*ir.Value{m.In, m.Captures} {
			for _, v := range vs {
				if v != nil && v.Def != nil && v.Def.Graph == o.g {
					o.place(v.Def)
				}
			}
		}
	}
	o.out = append(o.out, unit...)
}
