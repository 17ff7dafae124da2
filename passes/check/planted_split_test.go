package check_test

import (
	"slices"
	"strings"

	"memoc/ir/planfile"
)

// token is the bytes of one token in one row of the hand-made splits.
const token = 256

// isRange reports whether value i is a range of another one, without a step.
func isRange(p *planfile.Plan, i int) bool {
	v := &p.Values[i]
	return v.Base != v.Name && (strings.HasSuffix(v.Name, ".head") || strings.HasSuffix(v.Base, ".whole") && strings.HasSuffix(v.Name, ".range"))
}

// ordered makes every step wait for all before it, so that nothing races.
func ordered(p *planfile.Plan) {
	for i := range p.Steps {
		p.Steps[i].Waits = nil
		for k := range i {
			if p.Steps[k].Lane != p.Steps[i].Lane {
				p.Steps[i].Waits = append(p.Steps[i].Waits, k)
			}
		}
	}
}

// isPart reports whether value i is a part of another one.
func isPart(p *planfile.Plan, i int) bool {
	return slices.ContainsFunc(p.Values, func(v planfile.Value) bool { return slices.Contains(v.Parts, p.Values[i].Name) })
}

func withParts(p *planfile.Plan, i, least int) bool { return len(p.Values[i].Parts) >= least }

var splitFaults = []planted{
	{"a range too early", "ranges", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k, func(i int) bool { return isRange(p, i) && p.Values[i].Offset >= 4 && p.Values[i].Rows == 0 },
			func(i int) { p.Values[i].Offset -= 4; ordered(p) })
	}},
	{"a range too late", "ranges", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k, func(i int) bool { return isRange(p, i) && p.Values[i].Offset == 0 }, func(i int) { p.Values[i].Offset += 4 })
	}},
	{"a range in rows of another distance", "ranges", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k, func(i int) bool { return isRange(p, i) && p.Values[i].Rows > 1 }, func(i int) { p.Values[i].Pitch -= 4 })
	}},
	{"a range that is one piece", "ranges", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k, func(i int) bool { return isRange(p, i) && p.Values[i].Rows > 1 },
			func(i int) { p.Values[i].Rows, p.Values[i].Pitch = 0, 0 })
	}},
	{"a part in rows of another distance", "ranges", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k, func(i int) bool { return isPart(p, i) && p.Values[i].Rows > 1 && wide(p) }, func(i int) { p.Values[i].Pitch += token; ordered(p) })
	}},
	{"parts that change places", "ranges", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k, func(i int) bool { return withParts(p, i, 2) && noViewParts(p, i) && wide(p) }, func(i int) {
			head, tail := byName(p, p.Values[i].Parts[0]), byName(p, p.Values[i].Parts[1])
			for v := range p.Values {
				if p.Values[v].Base == tail.Name {
					p.Values[v].Offset = 0
				}
			}
			head.Offset = tail.Size
			ordered(p)
		})
	}},
	{"parts over each other", "views", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k, func(i int) bool { return withParts(p, i, 2) }, func(i int) { byName(p, p.Values[i].Parts[0]).Size += token })
	}},
	{"a part beyond the whole", "views", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k, func(i int) bool { return withParts(p, i, 1) && p.Values[i].Offset == 0 }, func(i int) { p.Values[i].Offset, p.Values[i].Size = token, p.Values[i].Size-token })
	}},
	{"a part that is missing", "contents", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k/2, func(i int) bool { return withParts(p, i, 2) }, func(i int) { p.Values[i].Parts = slices.Delete(p.Values[i].Parts, k%2, k%2+1) })
	}},
	{"a part that the join does not have", "ranges", func(p *planfile.Plan, k int) bool {
		// Of a join that copies its tail: a range of nothing in it.
		return nth(len(p.Values), k, func(i int) bool { return withParts(p, i, 1) && !withParts(p, i, 2) }, func(i int) {
			whole := p.Values[i]
			extra := planfile.Value{Name: "extra", Base: whole.Parts[0], Buffer: whole.Buffer}
			p.Values = slices.Insert(p.Values, i, extra)
			p.Values[i+1].Parts = append(p.Values[i+1].Parts, "extra")
		})
	}},
	{"parts of what does not join", "ranges", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k, func(i int) bool { return p.Values[i].Name == "e" }, func(i int) {
			p.Values = slices.Insert(p.Values, i, planfile.Value{Name: "extra", Base: "extra", Buffer: p.Values[i].Buffer})
			p.Values[i+1].Parts = []string{"extra"}
		})
	}},
	{"a head brought back from another's slot", "steps", func(p *planfile.Plan, k int) bool {
		in := func(i int) bool { return p.Steps[i].Kind == "copy-in" && len(p.Values) < 60 && wide(p) }
		return nth(len(p.Steps), k, in, func(i int) {
			other := slices.IndexFunc(p.Steps, func(s planfile.Step) bool { return s.Kind == "copy-out" && s.Writes[0] != p.Steps[i].Reads[0] })
			p.Steps[i].Reads = slices.Clone(p.Steps[other].Writes)
			ordered(p)
		})
	}},
	{"a tail's clone that reads a range which is not there", "contents", func(p *planfile.Plan, k int) bool {
		// The step before it makes that range.
		return nth(len(p.Steps)-1, k, func(i int) bool {
			a, b := &p.Steps[i], &p.Steps[i+1]
			return wide(p) && len(b.Waits) == 0 && len(a.Waits) == 0 && len(a.Writes) > 0 && len(b.Reads) > 0 &&
				(isNamed(p, a.Writes[0], ".tail") || isNamed(p, a.Writes[0], ".range")) && byName(p, b.Reads[0]).Buffer == byName(p, a.Writes[0]).Buffer
		}, func(i int) { p.Steps[i], p.Steps[i+1] = p.Steps[i+1], p.Steps[i] })
	}},
	{"a join that reads what is in place", "steps", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool { return p.Steps[i].Op == "Concat" && len(byName(p, p.Steps[i].Writes[0]).Parts) > 0 }, func(i int) {
			s := &p.Steps[i]
			s.Reads = slices.Concat(byName(p, s.Writes[0]).Parts, s.Reads)
			ordered(p)
		})
	}},
	{"a computation on rows", "ranges", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool {
			s := &p.Steps[i]
			return s.Kind == "run" && s.Op != "Slice" && s.Op != "Concat" && byName(p, s.Writes[0]).Size%(4*token) == 0 && noViews(p, s.Writes[0]) && noRanges(p, s.Writes[0])
		}, func(i int) {
			v := byName(p, p.Steps[i].Writes[0])
			v.Size, v.Rows, v.Pitch = v.Size/2, 2, v.Size/2
		})
	}},
	{"a slice that reads another part", "ranges", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool {
			s := &p.Steps[i]
			return s.Part != nil && bufferOf(p, s.Reads[0]).Class == "persistent"
		},
			func(i int) { p.Steps[i].Part.Offset -= token })
	}},
	{"a slice that reads what a copy still brings", "races", func(p *planfile.Plan, k int) bool {
		// Of the plans made by hand: others may have waited already.
		return nth(len(p.Steps), k, func(i int) bool { return p.Steps[i].Part != nil && p.Steps[i].Node == "h.range" },
			func(i int) { p.Steps[i].Part = nil })
	}},
	{"a part of an operand beyond it", "ranges", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool {
			s := &p.Steps[i]
			return s.Kind == "run" && s.Op != "Slice" && len(s.Reads) > 0 && byName(p, s.Reads[0]).Size > 0
		}, func(i int) {
			v := byName(p, p.Steps[i].Reads[0])
			p.Steps[i].Part = &planfile.Range{Offset: v.Offset, Size: v.Size}
		})
	}},
	{"a part beyond its buffer", "bounds", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool { return p.Steps[i].Part != nil }, func(i int) { p.Steps[i].Part.Rows = 1 << 40 })
	}},
	{"rows beyond their buffer", "bounds", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k, func(i int) bool { return p.Values[i].Rows > 1 }, func(i int) { p.Values[i].Pitch = []int64{1 << 62, -1}[k%2] })
	}},
	{"rows over each other", "bounds", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k, func(i int) bool { return p.Values[i].Rows > 1 }, func(i int) { p.Values[i].Pitch = p.Values[i].Size/p.Values[i].Rows - 1 })
	}},
}

func isNamed(p *planfile.Plan, name, suffix string) bool {
	return strings.HasSuffix(byName(p, name).Base, suffix)
}

// noViewParts reports whether the parts of value i are shown by no view that
// a step reads.
func noViewParts(p *planfile.Plan, i int) bool {
	return !slices.ContainsFunc(p.Values[i].Parts, func(name string) bool { return byName(p, name).Base != name })
}

// noRanges reports whether no value is a range of it or has it as a part.
func noRanges(p *planfile.Plan, name string) bool {
	return !slices.ContainsFunc(p.Values, func(v planfile.Value) bool { return slices.Contains(v.Parts, name) })
}
