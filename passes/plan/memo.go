package plan

import "errors"

// The policy of the paper MEMO (arXiv 2407.12117): of every layer but the last
// two the input and the output of the attention go to the host whole, and of all
// else that a range of tokens can make again one share, the same for all. Two
// sets of buffers serve the layers in turn.

// resident is the number of layers, the last, that stay on the device.
const resident = 2

// memoLayer is a layer's bytes and copies as its policy sees them.
type memoLayer struct {
	whole, split []int // tensors swapped whole, and those split at one share
	again        []int // those that another one gives at once, made again
	hides        int64 // time of the forward pass that its copies hide behind
}

// memoLayers lists the layers that are swapped.
func (p *Problem) memoLayers(f *facts) []memoLayer {
	ls := p.layers(f)
	var out []memoLayer
	for i := 0; i+resident < len(ls); i++ {
		m := memoLayer{hides: ls[i+1].time}
		for _, t := range ls[i].tensors {
			switch x := &p.Tensors[t]; {
			case x.Layout && p.Ops[f.producer[t]].Clone:
				m.again = append(m.again, t)
			case x.Input || x.Attention || !p.splittable(f, t):
				m.whole = append(m.whole, t)
			default:
				m.split = append(m.split, t)
			}
		}
		out = append(out, m)
	}
	return out
}

// MemoAlpha is the share of the tokens that the paper's policy swaps, a
// multiple of a tile, and what each of its two limits alone would allow, in real
// numbers that may lie outside 0 to 1: that a layer's copy hides behind the next
// layer's forward pass, and that all of them fit the host. All are 1 where no
// layer is swapped.
func (p *Problem) MemoAlpha() (alpha, bandwidth, host float64) {
	f := p.facts()
	ls := p.memoLayers(f)
	bandwidth, host = 1, 1
	whole, split := int64(0), int64(0)
	for i, m := range ls {
		w, s := p.sum(m.whole), p.sum(m.split)
		whole, split = whole+w, split+s
		latency := p.CopyLatency * int64(len(m.whole)+len(m.split))
		if a := (float64(m.hides-latency)*p.OutRate - float64(w)) / float64(s); s > 0 && (i == 0 || a < bandwidth) {
			bandwidth = a
		}
	}
	if split > 0 {
		host = float64(p.HostBytes-whole) / float64(split)
	}
	if p.Tiles() == 0 {
		return 1, bandwidth, host
	}
	return float64(p.memoHead(ls)) / float64(p.Tiles()), bandwidth, host
}

// sum is the bytes of tensors.
func (p *Problem) sum(ts []int) int64 {
	n := int64(0)
	for _, t := range ts {
		n += p.Tensors[t].Bytes
	}
	return n
}

// memoHead is the largest number of tiles that keeps both limits, 0 if none
// does.
func (p *Problem) memoHead(ls []memoLayer) int {
	lo, hi := 0, p.Tiles()
	for lo < hi {
		head := (lo + hi + 1) / 2
		if p.memoFits(ls, head) {
			lo = head
		} else {
			hi = head - 1
		}
	}
	return lo
}

func (p *Problem) memoFits(ls []memoLayer, head int) bool {
	host := int64(0)
	for _, m := range ls {
		time := int64(0)
		for _, t := range m.whole {
			host += p.Tensors[t].Bytes
			time += p.outTime(p.Tensors[t].Bytes)
		}
		for _, t := range m.split {
			bytes := min(p.partBytes(t, 0, head), p.Tensors[t].Bytes)
			host += bytes
			time += p.outTime(bytes)
		}
		if time > m.hides {
			return false
		}
	}
	return host <= p.HostBytes
}

// memo is the paper's choices, nil where there are not more layers than stay
// on the device.
func (p *Problem) memo(f *facts) []Choice {
	ls := p.memoLayers(f)
	if len(ls) == 0 {
		return nil
	}
	c := p.initial(f)
	for _, l := range p.layers(f) {
		for _, t := range l.tensors {
			c[t] = Keep | Rolling
		}
	}
	head := p.memoHead(ls)
	for _, m := range ls {
		for _, t := range m.whole {
			c[t] = Swap | Rolling
		}
		for _, t := range m.split {
			c[t] = SplitAt(head) | Rolling
		}
		for _, t := range m.again {
			c[t] = Recompute
		}
	}
	return c
}

// addMemo adds the paper's plan.
func (w *path) addMemo() error {
	c := w.p.memo(w.f)
	if c == nil {
		return nil
	}
	s, err := w.build(c, 0)
	if errors.Is(err, errTooLong) {
		return nil
	}
	if err == nil {
		w.add(c, s, 0)
	}
	return err
}
