// Package onnxout writes a Program as an ONNX model that any runtime loads:
// the rewritten graph, with memoc's own operators as model-local functions of
// standard ones, and the plan in the metadata.
package onnxout

import (
	"fmt"
	"slices"
	"strings"

	"memoc/ir"
	"memoc/ir/onnx"
)

// Encode is the model of p; m is the model it was compiled from, whose
// surroundings (producer, opsets, metadata) it keeps.
func Encode(p *ir.Program, m *ir.Model) ([]byte, error) {
	out := *m
	out.Graph = p.Graph
	out.Meta = slices.Clone(m.Meta)
	if err := addFunctions(&out); err != nil {
		return nil, err
	}
	addMetadata(&out, p)
	return onnx.Encode(&out)
}

// addFunctions gives every operator of memoc's domain in the graph its body,
// once for each overload.
func addFunctions(m *ir.Model) error {
	have := map[string]bool{}
	key := func(domain, name, overload string) string { return domain + "\x00" + name + "\x00" + overload }
	for _, f := range m.Functions {
		have[key(f.Domain, f.Name, f.Overload)] = true
	}
	m.Functions = slices.Clone(m.Functions)
	var err error
	m.Graph.Walk(func(n *ir.Node) {
		if n.Domain != ir.MemocDomain || err != nil {
			return
		}
		if n.Decl == nil || n.Decl.Function == nil {
			err = n.Errorf("function", "operator %s has no body of standard operators", n.FullOp())
			return
		}
		f, ferr := n.Decl.Function(n)
		if ferr != nil {
			err = ferr
			return
		}
		n.Overload = f.Overload
		if k := key(f.Domain, f.Name, f.Overload); !have[k] {
			have[k] = true
			m.Functions = append(m.Functions, f)
		}
	})
	return err
}

// addMetadata states the plan in metadata_props: enough to know what was
// decided without plan.json.
func addMetadata(m *ir.Model, p *ir.Program) {
	set := func(key, format string, args ...any) {
		m.Meta = slices.DeleteFunc(m.Meta, func(kv ir.KV) bool { return kv.Key == key })
		m.Meta = append(m.Meta, ir.KV{Key: key, Value: fmt.Sprintf(format, args...)})
	}
	byKind := map[string][]string{}
	for _, d := range p.Decisions {
		byKind[d.Kind.String()] = append(byKind[d.Kind.String()], d.Tensor)
	}
	set("memoc.device", "%s", p.Device)
	set("memoc.peak_bytes", "%d", p.Metrics.Peak)
	set("memoc.host_bytes", "%d", p.Metrics.HostPeak)
	set("memoc.time_ns", "%d", p.Metrics.Time)
	for _, k := range []ir.DecisionKind{ir.Swap, ir.Remat, ir.SplitTokens} {
		if names := byKind[k.String()]; len(names) > 0 {
			set("memoc."+k.String(), "%s", strings.Join(names, "\n"))
		}
	}
	offsets(m.Graph, p)
}

// offsets writes address and lane on the nodes that the plan added; nodes as
// they were read keep their bytes. A Slice or a Concat that moves nothing has an
// address and no lane.
func offsets(g *ir.Graph, p *ir.Program) {
	at := map[*ir.Node]*ir.Step{}
	for i := range p.Steps {
		at[p.Steps[i].Node] = &p.Steps[i]
	}
	for _, n := range g.Nodes {
		s := at[n]
		isRange := n.Op == "Slice" || n.Op == "Concat"
		if n.Raw != nil || s == nil && !isRange || len(n.Out) == 0 || n.Out[0] == nil {
			continue
		}
		place := p.Places[n.Out[0].ID]
		if place.Buffer < 0 {
			continue
		}
		b := p.Buffers[place.Buffer]
		if s != nil {
			n.Meta = setMeta(n.Meta, "memoc.lane", p.Lanes[s.Lane].Name)
		}
		n.Meta = setMeta(n.Meta, "memoc.offset", fmt.Sprintf("%s:%d", p.Arenas[b.Arena].Name, b.Offset+place.Offset))
		if rows, size := place.Pieces(); rows > 1 {
			n.Meta = setMeta(n.Meta, "memoc.rows", fmt.Sprintf("%d of %d bytes, %d apart", rows, size, place.Pitch))
		}
	}
}

func setMeta(meta []ir.KV, key, value string) []ir.KV {
	for i := range meta {
		if meta[i].Key == key {
			meta[i].Value = value
			return meta
		}
	}
	return append(meta, ir.KV{Key: key, Value: value})
}
