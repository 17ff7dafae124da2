package plan

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
)

// checker replays a schedule tile by tile, with nothing of the planner's own:
// which tiles of which instance every buffer holds, what lies on the host, and
// when every entry runs.
type checker struct {
	p      *Problem
	s      *Schedule
	owner  []int                // by buffer: the instance whose value it holds
	wrote  []map[int]int        // by instance: tile to the entry that wrote it
	host   map[int]map[int]bool // by tensor: tiles on the host
	out    map[int]int          // by tensor: its copy out
	start  []int64
	end    []int64
	free   [3]int64
	stall  int64
	extra  int64
	ranged int // clones on a range
}

func (c *checker) tiles(from, to int) (int, int) {
	if to == 0 {
		return 0, max(c.p.Tiles(), 1)
	}
	return from, to
}

// size is the bytes of tiles of a tensor in a buffer of their own.
func (c *checker) size(t, from, to int) int64 {
	if to == 0 {
		return c.p.Tensors[t].Bytes
	}
	n := int64(0)
	for k := int64(from) * c.p.Tile; k < int64(to)*c.p.Tile && k < c.p.Tokens; k++ {
		n += c.p.Tensors[t].TokenBytes
	}
	for n%256 != 0 {
		n++
	}
	return n
}

// read checks that instance x holds tiles [from, to) when entry i starts, and
// returns when the last of their writers ends.
func (c *checker) read(i, x, from, to int) (int64, error) {
	in := &c.s.Instances[x]
	b := &c.s.Buffers[in.Buffer]
	if c.owner[in.Buffer] != x || i < b.First || i >= b.End || i >= in.End {
		return 0, fmt.Errorf("entry %d reads instance %d, which is not there", i, x)
	}
	ready := int64(0)
	lo, hi := c.tiles(from, to)
	for k := lo; k < hi; k++ {
		w, ok := c.wrote[x][k]
		if !ok {
			return 0, fmt.Errorf("entry %d reads tile %d of instance %d, which nobody wrote", i, k, x)
		}
		ready = max(ready, c.end[w])
	}
	return ready, nil
}

func (c *checker) write(i, x, from, to int) error {
	in := &c.s.Instances[x]
	b := &c.s.Buffers[in.Buffer]
	if i < b.First || i >= b.End || i < in.First || i >= in.End {
		return fmt.Errorf("entry %d writes instance %d outside its life", i, x)
	}
	if b.Bytes != c.size(in.Tensor, in.From, in.To) {
		return fmt.Errorf("instance %d lies in %d bytes", x, b.Bytes)
	}
	if c.owner[in.Buffer] != x {
		if len(c.wrote[x]) > 0 {
			return fmt.Errorf("instance %d lost its buffer before entry %d", x, i)
		}
		c.owner[in.Buffer] = x
	}
	lo, hi := c.tiles(from, to)
	for k := lo; k < hi; k++ {
		if _, twice := c.wrote[x][k]; twice {
			return fmt.Errorf("entry %d writes tile %d of instance %d again", i, k, x)
		}
		c.wrote[x][k] = i
	}
	return nil
}

// left is when all others have left the buffer of instance x, which entry i
// writes.
func (c *checker) left(i, x int) int64 {
	ready := int64(0)
	for j, e := range c.s.Entries[:i] {
		for _, y := range append(append([]int{}, e.In...), e.Out...) {
			if y != x && c.s.Instances[y].Buffer == c.s.Instances[x].Buffer && e.Lane() != c.s.Entries[i].Lane() {
				ready = max(ready, c.end[j])
			}
		}
	}
	return ready
}

// needs is what entry i reads of its input k.
func (c *checker) needs(e *Entry, k int) (from, to int) {
	if e.Kind == Run || e.Kind == Clone && (e.To == 0 || !c.p.Ops[e.Op].Range[k]) {
		return 0, 0
	}
	return e.From, e.To
}

// form checks what kind of instances an entry may touch.
func (c *checker) form(i int, e *Entry) error {
	bad := func(what string) error { return fmt.Errorf("entry %d (%+v): %s", i, *e, what) }
	of := func(x int) *Instance { return &c.s.Instances[x] }
	own := func(x int) bool { return of(x).From == e.From && of(x).To == e.To }
	switch e.Kind {
	case Run, Clone:
		op := &c.p.Ops[e.Op]
		if e.Kind == Clone && !op.Clone || e.To > 0 && (op.Range == nil || e.Kind == Run) {
			return bad("may not run again, or not on a range")
		}
		for k, x := range e.In {
			whole := of(x).To == 0
			if of(x).Tensor != op.In[k] || !whole && (e.To == 0 || !op.Range[k] || !own(x)) ||
				whole && e.To > 0 && op.Range[k] && c.p.Tensors[op.In[k]].Rows != 1 {
				return bad("reads the wrong thing")
			}
		}
		for k, x := range e.Out {
			whole := of(x).To == 0
			if of(x).Tensor != op.Out[k] || !whole && !own(x) || whole && e.To > 0 && c.p.Tensors[op.Out[k]].Rows != 1 {
				return bad("makes the wrong thing")
			}
		}
	case Pack, Unpack:
		in, out := e.In[0], e.Out[0]
		if e.Kind == Unpack {
			in, out = out, in
		}
		if of(in).To != 0 || !own(out) || of(in).Tensor != of(out).Tensor || c.p.Tensors[of(in).Tensor].Rows < 2 {
			return bad("packs the wrong thing")
		}
	case CopyOut:
		if of(e.In[0]).To != 0 || e.From != 0 {
			return bad("copies out more than a head")
		}
	case CopyIn:
		if of(e.Out[0]).To != 0 || e.From != 0 {
			return bad("copies in more than a head")
		}
	}
	return nil
}

func (c *checker) duration(e *Entry) int64 {
	bytes := func(x int) int64 { return c.size(c.s.Instances[x].Tensor, e.From, e.To) }
	switch e.Kind {
	case CopyOut:
		return c.p.CopyLatency + int64(float64(bytes(e.In[0]))/c.p.OutRate)
	case CopyIn:
		return c.p.CopyLatency + int64(float64(bytes(e.Out[0]))/c.p.InRate)
	case Pack, Unpack:
		return c.p.PackLatency + int64(float64(bytes(e.In[0]))/c.p.PackRate)
	}
	op := &c.p.Ops[e.Op]
	if e.To == 0 {
		return op.Time
	}
	return op.TileTime + (op.Time-op.TileTime)*int64(e.To-e.From-1)/int64(c.p.Tiles()-1)
}

// entry replays entry i.
func (c *checker) entry(i int) error {
	e := &c.s.Entries[i]
	if err := c.form(i, e); err != nil {
		return err
	}
	lane := map[EntryKind]int{CopyOut: 1, CopyIn: 2}[e.Kind]
	ready := int64(0)
	for k, x := range e.In {
		from, to := c.needs(e, k)
		if in := &c.s.Instances[x]; in.To > 0 {
			from, to = in.From, in.To
		}
		t, err := c.read(i, x, from, to)
		if err != nil {
			return err
		}
		ready = max(ready, t)
	}
	if e.Wait >= 0 {
		ready = max(ready, c.end[e.Wait])
	}
	switch e.Kind {
	case CopyOut:
		t := c.s.Instances[e.In[0]].Tensor
		c.out[t], c.host[t] = i, map[int]bool{}
		lo, hi := c.tiles(e.From, e.To)
		for k := lo; k < hi; k++ {
			c.host[t][k] = true
		}
	case CopyIn:
		t := c.s.Instances[e.Out[0]].Tensor
		lo, hi := c.tiles(e.From, e.To)
		for k := lo; k < hi; k++ {
			if !c.host[t][k] {
				return fmt.Errorf("entry %d copies in tile %d of tensor %d, which is not on the host", i, k, t)
			}
		}
		ready = max(ready, c.end[c.out[t]])
	}
	for _, x := range e.Out {
		ready = max(ready, c.left(i, x))
		if err := c.write(i, x, e.From, e.To); err != nil {
			return err
		}
	}
	c.start[i] = max(ready, c.free[lane])
	c.end[i] = c.start[i] + c.duration(e)
	if lane == 0 {
		c.stall += c.start[i] - c.free[0]
		if e.Kind != Run {
			c.extra += c.end[i] - c.start[i]
		}
		if e.To > 0 && e.Kind == Clone {
			c.ranged++
		}
	}
	c.free[lane] = c.end[i]
	return nil
}

// lives checks that what a copy reads or writes is left alone until it ends.
func (c *checker) lives() error {
	for i, e := range c.s.Entries {
		for j := i + 1; j < len(c.s.Entries); j++ {
			if e.Kind != CopyOut && e.Kind != CopyIn || c.s.Entries[j].Lane() != 0 || c.start[j] >= c.end[i] {
				continue
			}
			if e.Kind == CopyOut && c.s.Buffers[c.s.Instances[e.In[0]].Buffer].End <= j {
				return fmt.Errorf("entry %d runs while entry %d still copies from a buffer that is free", j, i)
			}
			if e.Kind == CopyIn {
				for _, h := range c.s.Host {
					if h.Tensor == c.s.Instances[e.Out[0]].Tensor && h.End <= j {
						return fmt.Errorf("entry %d runs while entry %d still copies from a slot that is free", j, i)
					}
				}
			}
		}
	}
	return nil
}

// check returns what is wrong with a schedule.
func check(p *Problem, s *Schedule) (*checker, error) {
	n := len(s.Entries)
	c := &checker{p: p, s: s, owner: filled(nil, len(s.Buffers), -1), wrote: make([]map[int]int, len(s.Instances)),
		host: map[int]map[int]bool{}, out: map[int]int{}, start: make([]int64, n), end: make([]int64, n)}
	for i := range c.wrote {
		c.wrote[i] = map[int]int{}
	}
	ran := 0
	for i := range s.Entries {
		if err := c.entry(i); err != nil {
			return c, err
		}
		if s.Entries[i].Kind == Run {
			if s.Entries[i].Op != ran {
				return c, fmt.Errorf("entry %d runs op %d in place of %d", i, s.Entries[i].Op, ran)
			}
			ran++
		}
	}
	if ran != len(p.Ops) {
		return c, fmt.Errorf("%d of %d ops run", ran, len(p.Ops))
	}
	for x, in := range s.Instances {
		if p.Tensors[in.Tensor].Output && in.End == n && c.owner[in.Buffer] != x {
			return c, fmt.Errorf("output %d was overwritten", in.Tensor)
		}
	}
	span := max(c.free[0], c.free[1], c.free[2])
	if s.Time != span || s.Stall != c.stall || s.Extra != c.extra {
		return c, fmt.Errorf("time %d, stall %d, extra %d; replayed %d, %d, %d", s.Time, s.Stall, s.Extra, span, c.stall, c.extra)
	}
	if err := c.lives(); err != nil {
		return c, err
	}
	return c, c.sums()
}

// sums checks the peaks and the bytes moved.
func (c *checker) sums() error {
	peak, hostPeak, moved := int64(0), int64(0), int64(0)
	for i, e := range c.s.Entries {
		device, host := int64(0), int64(0)
		for _, b := range c.s.Buffers {
			if b.First <= i && i < b.End {
				device += b.Bytes
			}
		}
		for _, h := range c.s.Host {
			if h.First <= i && i < h.End {
				host += h.Bytes
			}
		}
		switch e.Kind {
		case Run, Clone:
			device += c.p.Ops[e.Op].Workspace
		case CopyOut:
			moved += c.size(c.s.Instances[e.In[0]].Tensor, e.From, e.To)
		}
		peak, hostPeak = max(peak, device), max(hostPeak, host)
	}
	if c.s.Peak != peak || c.s.HostPeak != hostPeak || c.s.Moved != moved {
		return fmt.Errorf("peak %d, host %d, moved %d; summed %d, %d, %d", c.s.Peak, c.s.HostPeak, c.s.Moved, peak, hostPeak, moved)
	}
	return nil
}

// ranged is a random problem with a token axis: like random, with tensors in
// no row, one or several, and ops that run on ranges.
func ranged(seed uint64) *Problem {
	p := random(seed)
	rng := rand.New(rand.NewPCG(seed, 23))
	p.Tokens, p.Tile = 3+rng.Int64N(60), 1+rng.Int64N(9)
	p.PackRate, p.PackLatency = 1+rng.Float64(), rng.Int64N(4)
	for i := range p.Tensors {
		x := &p.Tensors[i]
		if x.Rows = []int64{0, 1, 1, 1, 2, 3}[rng.IntN(6)]; x.Rows > 0 {
			x.TokenBytes = x.Rows * rng.Int64N(40)
			x.Bytes = (max(p.Tokens*x.TokenBytes, x.Bytes) + 255) / 256 * 256
		}
	}
	layer := 1
	for i := range p.Tensors {
		if rng.IntN(6) == 0 {
			layer++
		}
		if rng.IntN(2) == 0 {
			p.Tensors[i].Role, p.Tensors[i].Layer = 1+rng.IntN(4), layer
		}
	}
	for i := range p.Ops {
		op := &p.Ops[i]
		for k := range op.InPlace {
			a, b := &p.Tensors[op.InPlace[k].In], &p.Tensors[op.InPlace[k].Out]
			*b = Tensor{Bytes: a.Bytes, Output: b.Output, Rows: a.Rows, TokenBytes: a.TokenBytes}
		}
		ok := rng.IntN(8) > 0
		for _, t := range op.Out {
			ok = ok && p.Tensors[t].Rows > 0
		}
		if !ok {
			continue
		}
		op.Range, op.TileTime = make([]bool, len(op.In)), rng.Int64N(op.Time+1)
		for k, t := range op.In {
			op.Range[k] = p.Tensors[t].Rows > 0 && rng.IntN(5) > 0
		}
	}
	return p
}

// randomChoices is one choice for every tensor, splits among them.
func randomChoices(p *Problem, rng *rand.Rand) []Choice {
	c := make([]Choice, len(p.Tensors))
	one := 1 + rng.IntN(max(p.Tiles(), 1)) // often the same head: chains of ranges
	for t := range c {
		c[t] = Choice(rng.IntN(3))
		if p.Splittable(t) && rng.IntN(3) > 0 {
			c[t] = SplitAt(one)
			if rng.IntN(3) == 0 {
				c[t] = SplitAt(rng.IntN(p.Tiles() + 1))
			}
		}
		if rng.IntN(10) == 0 {
			c[t] |= Tight
		}
		if rng.IntN(2) == 0 {
			c[t] |= Rolling
		}
	}
	return c
}

func TestSplitSchedulesAreSound(t *testing.T) {
	clones, packs, joins, rolled := 0, 0, 0, 0
	for seed := range uint64(1500) {
		p := ranged(seed)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		c := randomChoices(p, rand.New(rand.NewPCG(seed, 29)))
		s, err := p.Build(c)
		if err != nil {
			if err != errTooLong {
				t.Fatalf("seed %d: %v", seed, err)
			}
			continue
		}
		k, err := check(p, s)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		clones += k.ranged
		for x, in := range s.Instances {
			if s.rolling(x) >= 0 && s.before[x] >= 0 && s.Instances[s.before[x]].Tensor != in.Tensor {
				rolled++
			}
		}
		for _, e := range s.Entries {
			if e.Kind == Pack || e.Kind == Unpack {
				packs++
			}
			if e.Kind == CopyIn && e.To > 0 {
				joins++
			}
		}
	}
	if t.Logf("%d clones on ranges, %d packs and unpacks, %d heads copied in, %d buffers handed on", clones, packs, joins, rolled); min(clones, packs, joins) < 500 || rolled < 300 {
		t.Error("too few of them to tell anything")
	}
}

// At its ends a split is a whole swap or a whole recomputation, and between
// them the more tiles are swapped the more bytes move.
func TestSplitsBetweenRecomputeAndSwap(t *testing.T) {
	for seed := range uint64(50) {
		p := ranged(seed)
		rng := rand.New(rand.NewPCG(seed, 31))
		base := make([]Choice, len(p.Tensors))
		for i := range base {
			base[i] = Choice(rng.IntN(3))
		}
		for x := range base {
			if !p.Splittable(x) {
				continue
			}
			c := append([]Choice{}, base...)
			build := func(k Choice) *Schedule {
				c[x] = k
				s, _ := p.Build(c)
				return s
			}
			if !reflect.DeepEqual(build(SplitAt(p.Tiles())), build(Swap)) || !reflect.DeepEqual(build(SplitAt(0)), build(Recompute)) {
				t.Fatalf("seed %d, tensor %d: a split of all or nothing is not a swap or recomputation", seed, x)
			}
			last := int64(-1)
			for head := 0; head <= p.Tiles(); head++ {
				if s := build(SplitAt(head)); s != nil {
					if s.Moved < last {
						t.Fatalf("seed %d, tensor %d: a head of %d tiles moves less than a shorter one", seed, x, head)
					}
					last = s.Moved
				}
			}
		}
	}
}

// in -> a -> b -> many small steps -> a reader of b. Of the 4 tiles of b
// three are swapped.
func tiny(rows int64) (*Problem, []Choice) {
	p := &Problem{OutRate: 1, InRate: 2, CopyLatency: 5, HostBytes: 1 << 40, Tokens: 4, Tile: 1, PackRate: 4, PackLatency: 1}
	add := func(bytes, time int64, in ...int) int {
		p.Tensors = append(p.Tensors, Tensor{Bytes: bytes})
		p.Ops = append(p.Ops, Op{Time: time, In: in, Out: []int{len(p.Tensors) - 1}})
		return len(p.Tensors) - 1
	}
	a := add(2048, 10)
	b := add(1024, 100, a)
	x := add(256, 10, a, b)
	for range 10 {
		x = add(256, 300, x)
	}
	p.Tensors[add(256, 10, x, b)].Output = true
	p.Tensors[a].Rows, p.Tensors[a].TokenBytes = 1, 512
	p.Tensors[b].Rows, p.Tensors[b].TokenBytes = rows, 256
	p.Ops[a].Clone, p.Ops[a].Range, p.Ops[a].TileTime = true, []bool{}, 7
	p.Ops[b].Clone, p.Ops[b].Range, p.Ops[b].TileTime = true, []bool{true}, 40
	c := make([]Choice, len(p.Tensors))
	c[a], c[b] = Recompute, SplitAt(3)
	return p, c
}

func TestSplitByHand(t *testing.T) {
	p, c := tiny(1)
	s, err := p.Build(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := check(p, s); err != nil {
		t.Fatal(err)
	}
	// One tile of a and of b is made again; three tiles of b are moved. The
	// widest point is where b, a and the first small tensor are all there.
	if s.Extra != 7+40 || s.Moved != 768 || s.HostPeak != 768 || s.Stall != 0 || s.Time != 10+100+10+3000+10+7+40 || s.Peak != 1024+2048+256 {
		t.Errorf("extra %d, moved %d, host %d, stall %d, time %d, peak %d", s.Extra, s.Moved, s.HostPeak, s.Stall, s.Time, s.Peak)
	}
	// Behind the forward pass: b whole, the part of a, the last small tensor.
	last := int64(0)
	for i, e := range s.Entries {
		if e.Kind == Clone {
			last = max(last, s.profile(p, &scratch{})[i])
		}
	}
	if last != 1024+512+256 {
		t.Errorf("%d bytes are alive while the tail is made, want b, a tile of a and the step's own", last)
	}
	// In two rows the tail is made in a buffer of its own and moved from there.
	p, c = tiny(2)
	if s, err = p.Build(c); err != nil {
		t.Fatal(err)
	}
	if _, err := check(p, s); err != nil {
		t.Fatal(err)
	}
	if s.Extra != 7+40+1+256/4 || s.Moved != 768 {
		t.Errorf("extra %d, moved %d", s.Extra, s.Moved)
	}
}

// What cannot be split is refused, and so are token ranges that do not add up.
func TestBadSplitsAreRefused(t *testing.T) {
	p, c := tiny(1)
	c[3] = SplitAt(2)
	if _, err := p.Build(c); err == nil {
		t.Error("a tensor without a token axis was split")
	}
	c[3], c[1] = Keep, SplitAt(5)
	if _, err := p.Build(c); err == nil {
		t.Error("a tensor of four tiles was split at the fifth")
	}
	if _, err := p.Build(c[1:]); err == nil {
		t.Error("a choice is missing")
	}
	for what, spoil := range map[string]func(p *Problem){
		"no tile":                 func(p *Problem) { p.Tile = 0 },
		"negative tokens":         func(p *Problem) { p.Tokens = -1 },
		"too many tiles":          func(p *Problem) { p.Tokens = 1 << 40 },
		"more tokens than bytes":  func(p *Problem) { p.Tensors[1].TokenBytes = 257 },
		"rows share no token":     func(p *Problem) { p.Tensors[1].Rows = 3 },
		"negative rows":           func(p *Problem) { p.Tensors[1].Rows = -1 },
		"no rate of packing":      func(p *Problem) { p.Tensors[1].Rows, p.PackRate = 2, 0 },
		"ranges beside inputs":    func(p *Problem) { p.Ops[1].Range = nil; p.Ops[1].Range = []bool{true, true} },
		"a tile dearer than all":  func(p *Problem) { p.Ops[1].TileTime = 101 },
		"a range of no axis":      func(p *Problem) { p.Tensors[0].Rows = 0; p.Ops[0].Range = nil },
		"makes ranges of no axis": func(p *Problem) { p.Tensors[1].Rows = 0 },
		"a role in no layer":      func(p *Problem) { p.Tensors[1].Role = 1 },
	} {
		p, _ := tiny(1)
		if spoil(p); p.Validate() == nil {
			t.Errorf("%s: valid", what)
		}
	}
}
