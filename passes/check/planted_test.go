package check_test

import (
	"slices"

	"memoc/ir/planfile"
)

// planted is one way to break a plan. It changes the k-th place where it can
// and reports whether there was one.
type planted struct {
	what  string
	rule  string
	plant func(p *planfile.Plan, k int) bool
}

// nth calls f for i below n until it has said yes k+1 times, the last of which
// with do set.
func nth(n, k int, fits func(i int) bool, do func(i int)) bool {
	for i := range n {
		if !fits(i) {
			continue
		}
		if k == 0 {
			do(i)
			return true
		}
		k--
	}
	return false
}

func byName(p *planfile.Plan, name string) *planfile.Value {
	for i := range p.Values {
		if p.Values[i].Name == name {
			return &p.Values[i]
		}
	}
	return nil
}

func bufferOf(p *planfile.Plan, name string) *planfile.Buffer {
	return &p.Buffers[byName(p, name).Buffer]
}

func moving(p *planfile.Plan, i int) bool {
	b := &p.Buffers[i]
	return b.Class != "persistent" && b.Size > 0
}

func hasLater(p *planfile.Plan, i int, name string) bool {
	for _, s := range p.Steps[i+1:] {
		if slices.ContainsFunc(s.Reads, func(r string) bool { return byName(p, r).Base == byName(p, name).Base }) {
			return true
		}
	}
	return false
}

// renumber rewrites step indices after steps moved.
func renumber(p *planfile.Plan, to func(int) int) {
	for i := range p.Steps {
		for k, w := range p.Steps[i].Waits {
			p.Steps[i].Waits[k] = to(w)
		}
	}
}

// without removes step i; who waited for it waits for nothing.
func without(p *planfile.Plan, i int) {
	for k := range p.Steps {
		p.Steps[k].Waits = slices.DeleteFunc(p.Steps[k].Waits, func(w int) bool { return w == i })
	}
	renumber(p, func(w int) int {
		if w > i {
			return w - 1
		}
		return w
	})
	p.Steps = slices.Delete(p.Steps, i, i+1)
	for k := range p.Buffers {
		b := &p.Buffers[k]
		if b.First > i {
			b.First--
		}
		if b.End > i {
			b.End--
		}
	}
}

// twice inserts a copy of step i after it.
func twice(p *planfile.Plan, i int) {
	s := p.Steps[i]
	s.Waits = slices.Clone(s.Waits)
	renumber(p, func(w int) int {
		if w >= i {
			return w + 1
		}
		return w
	})
	p.Steps = slices.Insert(p.Steps, i, s)
	for k := range p.Buffers {
		b := &p.Buffers[k]
		if b.First > i {
			b.First++
		}
		if b.End > i {
			b.End++
		}
	}
}

var faults = []planted{
	{"a value listed twice", "names", func(p *planfile.Plan, k int) bool {
		p.Values = append(p.Values, p.Values[k])
		return k < 1
	}},
	{"a step reads what has no bytes", "names", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool { return len(p.Steps[i].Reads) > 0 }, func(i int) { p.Steps[i].Reads[0] = "nowhere" })
	}},
	{"a view of what comes later", "names", func(p *planfile.Plan, k int) bool {
		p.Values[0].Base = p.Values[len(p.Values)-1].Name
		return k < 1
	}},
	{"a value in a buffer that is not there", "indices", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k, func(int) bool { return true }, func(i int) { p.Values[i].Buffer = len(p.Buffers) })
	}},
	{"a buffer in an arena that is not there", "indices", func(p *planfile.Plan, k int) bool {
		p.Buffers[0].Arena = []int{len(p.Arenas), -1}[k%2]
		return k < 2
	}},
	{"a buffer of a class that is not there", "indices", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Buffers), k, func(int) bool { return true }, func(i int) { p.Buffers[i].Class = []string{"", "host"}[k%2] })
	}},
	{"a wait for a later step", "indices", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(int) bool { return true }, func(i int) { p.Steps[i].Waits = append(p.Steps[i].Waits, i) })
	}},
	{"a lane that is not there", "indices", func(p *planfile.Plan, k int) bool {
		p.Steps[0].Lane = []int{len(p.Lanes), -1}[k%2]
		return k < 2
	}},
	{"a workspace that is not there", "indices", func(p *planfile.Plan, k int) bool {
		p.Steps[0].Workspace = []int{len(p.Buffers), -2}[k%2]
		return k < 2
	}},
	{"a kind of step that is not known", "indices", func(p *planfile.Plan, k int) bool {
		p.Steps[len(p.Steps)/2].Kind = "guess"
		return k < 1
	}},
	{"a view in other bytes than its base", "views", func(p *planfile.Plan, k int) bool {
		next := func(i int) int { return (p.Values[i].Buffer + 1) % len(p.Buffers) }
		return nth(len(p.Values), k, func(i int) bool {
			v := &p.Values[i]
			return v.Base != v.Name && v.Rows == 0 && v.Offset+v.Size <= p.Buffers[next(i)].Size
		}, func(i int) { p.Values[i].Buffer = next(i) })
	}},
	{"a buffer beyond its arena", "bounds", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Buffers), k, func(i int) bool { return p.Buffers[i].Size > 0 },
			func(i int) { p.Buffers[i].Offset = p.Arenas[p.Buffers[i].Arena].Size })
	}},
	{"a value larger than its buffer", "bounds", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k, func(int) bool { return true }, func(i int) { p.Values[i].Size = p.Buffers[p.Values[i].Buffer].Size + 1 })
	}},
	{"a value before its buffer", "bounds", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Values), k, func(int) bool { return true }, func(i int) { p.Values[i].Offset = -4 })
	}},
	{"an offset that is not aligned", "alignment", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Buffers), k, func(i int) bool { return p.Buffers[i].Offset > 0 }, func(i int) { p.Buffers[i].Offset -= 4 })
	}},
	{"a life that is empty", "lifetimes", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Buffers), k, func(i int) bool { return moving(p, i) }, func(i int) { p.Buffers[i].End = p.Buffers[i].First })
	}},
	{"a life beyond the step", "lifetimes", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Buffers), k, func(i int) bool { return moving(p, i) }, func(i int) { p.Buffers[i].End = len(p.Steps) + 1 })
	}},
	{"bytes given up before the last reader", "lifetimes", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool {
			return i > 0 && len(p.Steps[i].Reads) > 0 && bufferOf(p, p.Steps[i].Reads[0]).Class != "persistent" && bufferOf(p, p.Steps[i].Reads[0]).First < i
		}, func(i int) { bufferOf(p, p.Steps[i].Reads[0]).End = i })
	}},
	{"bytes taken after they are written", "lifetimes", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool { return bufferOf(p, p.Steps[i].Writes[0]).End > i+1 },
			func(i int) { bufferOf(p, p.Steps[i].Writes[0]).First = i + 1 })
	}},
	{"an arena above its budget", "budget", func(p *planfile.Plan, k int) bool {
		p.Arenas[0].Budget = p.Arenas[0].Size - 1
		return k < 1
	}},
	{"host memory where none was allowed", "budget", func(p *planfile.Plan, k int) bool {
		p.Metrics.HostBudget, p.Arenas[1].Budget = 0, 0
		return k < 1 && p.Arenas[1].Size > 0
	}},
	{"a summary below the arena", "metrics", func(p *planfile.Plan, k int) bool {
		p.Metrics.Peak -= 256
		return k < 1
	}},
	{"a lower bound that is not one", "metrics", func(p *planfile.Plan, k int) bool {
		p.Arenas[k%2].LowerBound += 256
		return k < 2
	}},
	{"two live buffers at one place", "overlap", func(p *planfile.Plan, k int) bool {
		last := func(i int) int {
			for j := i - 1; j >= 0; j-- {
				a, b := &p.Buffers[i], &p.Buffers[j]
				if a.Arena == b.Arena && a.Offset != b.Offset && a.First < b.End && b.First < a.End && b.Size > 0 && b.Offset+a.Size <= p.Arenas[a.Arena].Size {
					return j
				}
			}
			return -1
		}
		return nth(len(p.Buffers), k, func(i int) bool { return moving(p, i) && last(i) >= 0 }, func(i int) { p.Buffers[i].Offset = p.Buffers[last(i)].Offset })
	}},
	{"a buffer one line into its neighbour", "overlap", func(p *planfile.Plan, k int) bool {
		fits := func(i int) bool {
			b := &p.Buffers[i]
			return slices.ContainsFunc(p.Buffers, func(a planfile.Buffer) bool {
				return a.Arena == b.Arena && a.Size > 0 && a.Offset+(a.Size+255)/256*256 == b.Offset && (a.Class == "persistent" || a.First < b.End && b.First < a.End)
			})
		}
		return nth(len(p.Buffers), k, func(i int) bool { return moving(p, i) && fits(i) }, func(i int) { p.Buffers[i].Offset -= 256 })
	}},
	{"a workspace used twice", "workspaces", func(p *planfile.Plan, k int) bool {
		var with []int
		for i, s := range p.Steps {
			if s.Workspace >= 0 {
				with = append(with, i)
			}
		}
		if len(with) < 2 {
			return false
		}
		p.Steps[with[1]].Workspace = p.Steps[with[0]].Workspace
		return k < 1
	}},
	{"a workspace over a value", "workspaces", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool { return p.Steps[i].Kind == "run" && len(p.Steps[i].Reads) > 0 }, func(i int) {
			p.Steps[i].Workspace = byName(p, p.Steps[i].Reads[0]).Buffer
		})
	}},
	{"no workspace", "workspaces", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool { return p.Steps[i].Workspace >= 0 }, func(i int) { p.Steps[i].Workspace = -1 })
	}},
	{"two values in one live buffer", "contents", func(p *planfile.Plan, k int) bool {
		// What step i writes goes where a value lies that a later step reads.
		victim := func(i int) string {
			if p.Steps[i].Kind != "run" || !wide(p) {
				return ""
			}
			size := byName(p, p.Steps[i].Writes[0]).Size
			for _, s := range p.Steps[:i] {
				for _, w := range s.Writes {
					v := byName(p, w)
					if s.Kind == "run" && v.Size >= size && size > 0 && hasLater(p, i, w) && !slices.Contains(p.Outputs, w) && !slices.Contains(p.Steps[i].Writes, w) {
						return w
					}
				}
			}
			return ""
		}
		return nth(len(p.Steps), k, func(i int) bool {
			return victim(i) != "" && hasLater(p, i, p.Steps[i].Writes[0]) && noViews(p, p.Steps[i].Writes[0])
		},
			func(i int) { byName(p, p.Steps[i].Writes[0]).Buffer = byName(p, victim(i)).Buffer })
	}},
	{"two outputs of one step in common bytes", "contents", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool {
			s := &p.Steps[i]
			return len(s.Writes) > 1 && noViews(p, s.Writes[0]) && noViews(p, s.Writes[1]) && byName(p, s.Writes[0]).Size == byName(p, s.Writes[1]).Size &&
				bufferOf(p, s.Writes[1]).End == len(p.Steps)
		}, func(i int) { byName(p, p.Steps[i].Writes[1]).Buffer = byName(p, p.Steps[i].Writes[0]).Buffer })
	}},
	{"a weight overwritten", "contents", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool { return p.Steps[i].Kind == "run" }, func(i int) { p.Steps[i].Writes[0] = p.Weights[0] })
	}},
	{"a step that is missing", "contents", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool {
			return hasLater(p, i, p.Steps[i].Writes[0]) &&
				!slices.ContainsFunc(p.Buffers, func(b planfile.Buffer) bool { return b.First == i && b.End == i+1 })
		}, func(i int) { without(p, i) })
	}},
	{"two steps in the wrong order", "contents", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps)-1, k, func(i int) bool {
			a, b := &p.Steps[i], &p.Steps[i+1]
			return slices.Contains(b.Reads, a.Writes[0]) && wide(p) && !slices.Contains(b.Waits, i)
		}, func(i int) {
			p.Steps[i], p.Steps[i+1] = p.Steps[i+1], p.Steps[i]
			renumber(p, func(w int) int { return map[bool]int{true: 2*i + 1 - w, false: w}[w == i || w == i+1] })
		})
	}},
	{"a copy in before its copy out", "contents", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool { return p.Steps[i].Kind == "copy-in" && wide(p) }, func(i int) {
			s := p.Steps[i]
			s.Waits = nil
			without(p, i)
			renumber(p, func(w int) int { return w + 1 })
			p.Steps = slices.Insert(p.Steps, 0, s)
			for b := range p.Buffers {
				p.Buffers[b].First, p.Buffers[b].End = 0, len(p.Steps)
			}
		})
	}},
	{"an output whose bytes are given up", "outputs", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Outputs), k, func(i int) bool { return !endsLast(p, p.Outputs[i]) }, func(i int) { bufferOf(p, p.Outputs[i]).End = len(p.Steps) - 1 })
	}},
	{"an output that is overwritten", "outputs", func(p *planfile.Plan, k int) bool {
		last := p.Steps[len(p.Steps)-1].Writes[0]
		return nth(len(p.Outputs), k, func(i int) bool {
			return byName(p, p.Outputs[i]).Base != last && byName(p, p.Outputs[i]).Size >= byName(p, last).Size
		}, func(i int) {
			for v := range p.Values {
				if p.Values[v].Base == last {
					p.Values[v].Buffer = byName(p, p.Outputs[i]).Buffer
				}
			}
		})
	}},
	{"a wait that is left out", "races", func(p *planfile.Plan, k int) bool {
		for i := range p.Steps {
			for w := range p.Steps[i].Waits {
				if wide(p) { // where nothing shares bytes, some waits are not needed
					return false
				}
				if k == 0 {
					p.Steps[i].Waits = slices.Delete(p.Steps[i].Waits, w, w+1)
					return true
				}
				k--
			}
		}
		return false
	}},
	{"a copy of fewer bytes", "copies", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool { return p.Steps[i].Kind == "copy-out" }, func(i int) { byName(p, p.Steps[i].Writes[0]).Size -= 4 })
	}},
	{"a copy out that stays on the device", "copies", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool { return p.Steps[i].Kind == "copy-out" }, func(i int) { bufferOf(p, p.Steps[i].Writes[0]).Class = "transient" })
	}},
	{"a copy called a computation", "copies", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool {
			s := &p.Steps[i]
			return s.Kind != "run" && byName(p, s.Reads[0]).Rows == 0 && byName(p, s.Writes[0]).Rows == 0
		}, func(i int) { p.Steps[i].Kind = "run" })
	}},
	{"a computation that reads host memory", "copies", func(p *planfile.Plan, k int) bool {
		reader := func(i int) int {
			for j := range p.Steps {
				if p.Steps[j].Kind == "run" && slices.Contains(p.Steps[j].Reads, p.Steps[i].Writes[0]) {
					return j
				}
			}
			return -1
		}
		return nth(len(p.Steps), k, func(i int) bool { return p.Steps[i].Kind == "copy-in" && reader(i) >= 0 && wide(p) }, func(i int) {
			s := &p.Steps[reader(i)]
			s.Reads[slices.Index(s.Reads, p.Steps[i].Writes[0])] = p.Steps[i].Reads[0]
			s.Waits = append(s.Waits, i)
		})
	}},
	{"another operator than the model's", "steps", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(int) bool { return true }, func(i int) { p.Steps[i].Op = "Abs" })
	}},
	{"a step named after another node", "steps", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps)-1, k, func(i int) bool { return p.Steps[i].Node != p.Steps[i+1].Node }, func(i int) { p.Steps[i].Node = p.Steps[i+1].Node })
	}},
	{"a step taken twice", "steps", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool {
			s := &p.Steps[i]
			return !slices.ContainsFunc(s.Reads, func(r string) bool {
				return slices.ContainsFunc(s.Writes, func(w string) bool { return byName(p, r).Buffer == byName(p, w).Buffer })
			})
		}, func(i int) { twice(p, i) })
	}},
	{"operands in another order", "steps", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool { r := p.Steps[i].Reads; return len(r) > 1 && r[0] != r[1] && p.Steps[i].Part == nil },
			func(i int) { r := p.Steps[i].Reads; r[0], r[1] = r[1], r[0] })
	}},
	{"a computation passed off as a view", "steps", func(p *planfile.Plan, k int) bool {
		in := func(i int) *planfile.Value { // the operand that step i overwrites in place
			s := &p.Steps[i]
			if s.Kind != "run" || len(s.Writes) != 1 {
				return nil
			}
			for _, r := range s.Reads {
				if byName(p, r).Buffer == byName(p, s.Writes[0]).Buffer {
					return byName(p, r)
				}
			}
			return nil
		}
		waited := func(i int) bool {
			return slices.ContainsFunc(p.Steps, func(s planfile.Step) bool { return slices.Contains(s.Waits, i) })
		}
		return nth(len(p.Steps), k, func(i int) bool { return in(i) != nil && !waited(i) && len(p.Steps[i].Waits) == 0 }, func(i int) {
			base, name := in(i).Base, p.Steps[i].Writes[0]
			without(p, i)
			for v := range p.Values {
				if p.Values[v].Base == name {
					p.Values[v].Base = base
				}
			}
		})
	}},
	{"fewer bytes than the type says", "sizes", func(p *planfile.Plan, k int) bool {
		copied := func(name string) bool {
			return slices.ContainsFunc(p.Steps, func(s planfile.Step) bool {
				return (s.Kind != "run" || s.Part != nil) && (slices.Contains(s.Reads, name) || slices.Contains(s.Writes, name))
			})
		}
		inPlace := func(i int) bool {
			return slices.ContainsFunc(p.Values, func(v planfile.Value) bool { return v.Buffer == p.Values[i].Buffer && v.Name != p.Values[i].Name })
		}
		return nth(len(p.Values), k, func(i int) bool { return p.Values[i].Size > 0 && !copied(p.Values[i].Name) && !inPlace(i) }, func(i int) { p.Values[i].Size-- })
	}},
	{"an output over an operand that is still read", "in-place", func(p *planfile.Plan, k int) bool {
		return nth(len(p.Steps), k, func(i int) bool {
			s := &p.Steps[i]
			return s.Op == "MatMul" && bufferOf(p, s.Reads[0]).Class != "persistent" && wide(p) && p.Arenas[1].Size == 0 &&
				!hasLater(p, i, s.Reads[0]) && byName(p, s.Reads[0]).Size == byName(p, s.Writes[0]).Size && noViews(p, s.Writes[0])
		}, func(i int) { byName(p, p.Steps[i].Writes[0]).Buffer = byName(p, p.Steps[i].Reads[0]).Buffer })
	}},
	{"an output that is not delivered", "interface", func(p *planfile.Plan, k int) bool {
		p.Outputs = slices.Delete(p.Outputs, k%len(p.Outputs), k%len(p.Outputs)+1)
		return k < len(p.Outputs)
	}},
	{"an input that is not taken", "interface", func(p *planfile.Plan, k int) bool {
		p.Inputs = append(p.Inputs, p.Weights[0])
		return k < 1
	}},
}

// wide reports whether every buffer lives for the whole step.
func wide(p *planfile.Plan) bool {
	return !slices.ContainsFunc(p.Buffers, func(b planfile.Buffer) bool { return b.First != 0 || b.End != len(p.Steps) })
}

func noViews(p *planfile.Plan, name string) bool {
	return !slices.ContainsFunc(p.Values, func(v planfile.Value) bool { return v.Base == name && v.Name != name })
}

// endsLast reports whether the last step touches the value.
func endsLast(p *planfile.Plan, name string) bool {
	s := p.Steps[len(p.Steps)-1]
	touches := func(n string) bool { return byName(p, n).Buffer == byName(p, name).Buffer }
	return bufferOf(p, name).Class == "persistent" || slices.ContainsFunc(s.Reads, touches) || slices.ContainsFunc(s.Writes, touches)
}
