package passes_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/passes"
	"memoc/passes/plan"
)

// tightest compiles a model under the smallest budget that has a plan.
func tightest(t testing.TB, make func() *ir.Model, s setup) *passes.Context {
	t.Helper()
	s.budget = "1"
	_, _, err := compile(t, make(), s)
	var inf *passes.Infeasible
	if !errors.As(err, &inf) {
		t.Fatalf("a budget of one byte gives %v", err)
	}
	s.budget = fmt.Sprint(inf.Smallest)
	return mustCompile(t, make(), s)
}

// plannedEqualsPlain compiles a model without a budget and at the tightest, and
// holds the planned steps against the plain graph bit for bit.
func plannedEqualsPlain(t testing.TB, make func() *ir.Model, s setup) *passes.Context {
	t.Helper()
	plain, _, err := compileUntil(t, make(), s, passes.Analyze)
	if err != nil {
		t.Fatal(err)
	}
	in, err := eval.RandomInputs(plain.Graph, 3)
	if err != nil {
		t.Fatal(err)
	}
	want, err := eval.Graph(plain.Graph, in, eval.Options{Step: 1})
	if err != nil {
		t.Fatal(err)
	}
	tight := tightest(t, make, s)
	for _, c := range []*passes.Context{mustCompile(t, make(), s), tight} {
		for order := range uint64(8) {
			if how := sameOutputs(c.Program, in, want, eval.Options{Order: order, Steps: 2}); how != "" {
				t.Fatalf("budget %d, order %d: %s\n%s", c.Metrics.Budget, order, how, ir.PrintGraph(c.Graph, ir.TextOptions{}))
			}
		}
	}
	return tight
}

func clones(p *ir.Program) (out []*ir.Node) {
	for _, s := range p.Steps {
		if s.Kind == ir.RunStep && strings.Contains(s.Node.Name, ".remat") {
			out = append(out, s.Node)
		}
	}
	return out
}

// movedOut is the bytes of every copy to the host by the name of its tensor.
func movedOut(p *ir.Program) map[string]int64 {
	out := map[string]int64{}
	for _, s := range p.Steps {
		if s.Kind == ir.CopyOutStep {
			out[s.Node.In[0].Name] += s.Reads[0].Size
		}
	}
	return out
}

func bufferOf(t testing.TB, c *passes.Context, name string) (*ir.Buffer, int) {
	t.Helper()
	for id, pl := range c.Program.Places {
		if pl.Buffer >= 0 && valueByID(c.Graph, id) == name {
			return &c.Program.Buffers[pl.Buffer], pl.Buffer
		}
	}
	t.Fatalf("no value is called %q", name)
	return nil, 0
}

func valueByID(g *ir.Graph, id int) string {
	for _, vs := range [][]*ir.Value{g.Inputs, g.Inits} {
		for _, v := range vs {
			if int(v.ID) == id {
				return v.Name
			}
		}
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v != nil && int(v.ID) == id {
				return v.Name
			}
		}
	}
	return ""
}

func TestB10NeverClonesStateOrChance(t *testing.T) {
	// The third output of each is a large value that comes and goes, so that the
	// first waits across the peak.
	const big = `g0 = RandomNormal <shape = [64,1024], seed = 1.0> () g1 = Tanh (g0) g2 = Mul (g1, g1) big = ReduceSum <keepdims = 0> (g2)`
	for name, src := range map[string]string{
		"batch statistics": `g (float[16,3,8,8] x) => (float l, float[3] rm, float[3] rv, float big)
			<float[3] s = {1,2,3}, float[3] b = {0,1,0}, float[3] m = {0,0,0}, float[3] v = {1,1,1}> {
			y, rm, rv = BatchNormalization <training_mode = 1> (x, s, b, m, v) r = Relu (y) ` + big + ` q = Mul (r, y) l = ReduceSum <keepdims = 0> (q) }`,
		"random": `g (float[64,64] x) => (float l, float big) <float[64,64] W = ["elided": ""]> {
			n = RandomNormalLike (x) a = Add (n, x) y = MatMul (a, x) ` + big + ` q = Mul (y, a) k = Mul (q, n) l = ReduceSum <keepdims = 0> (k) }`,
		"router": `g (float[64,16] x) => (float l, float big) <int64[1] one = {1}> {
			e = Softmax (x) top, at = TopK (e, one) ` + big + ` p = GatherElements <axis = 1> (x, at) q = Mul (p, top) l = ReduceSum <keepdims = 0> (q) }`,
		"unknown": `g (float[64,64] x) => (float l, float big) <float[64,64] o> {
			o = com.other.Odd (x) ` + big + ` q = Mul (o, o) l = ReduceSum <keepdims = 0> (q) }`,
	} {
		t.Run(name, func(t *testing.T) {
			make := func() *ir.Model {
				m := text(t, src)
				m.Opsets["com.other"], m.Graph.Opsets["com.other"] = 1, 1
				dropElided(m)
				return m
			}
			var c *passes.Context
			if name == "unknown" {
				c = tightest(t, make, setup{})
			} else {
				c = plannedEqualsPlain(t, make, setup{})
			}
			for _, n := range clones(c.Program) {
				switch n.Op {
				case "BatchNormalization", "RandomNormalLike", "RandomNormal", "TopK", "Odd":
					t.Errorf("%s was made again", n)
				}
			}
		})
	}
}

// dropElided removes initializers whose data was left out and nothing reads.
func dropElided(m *ir.Model) {
	m.Graph.Inits = slices.DeleteFunc(m.Graph.Inits, func(v *ir.Value) bool { return len(v.Uses()) == 0 })
}

func TestB13BuffersNotShared(t *testing.T) {
	make := func() *ir.Model {
		return text(t, `g (float[4,4] x, float[4,4] c) => (float[4,4] y1, float[4,4] y2, float[2,4] ta) {
			a, b = Split (x) ta = Tanh (a) y1 = Relu (x) y2 = Add (y1, c) }`)
	}
	plannedEqualsPlain(t, make, setup{})
	c := mustCompile(t, make(), setup{})
	a, ia := bufferOf(t, c, "a")
	b, ib := bufferOf(t, c, "b")
	split := slices.IndexFunc(c.Program.Steps, func(s ir.Step) bool { return s.Node.Op == "Split" })
	if b.First > split || b.End <= split || b.Size != 32 || ia == ib || a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size {
		t.Errorf("the result nobody reads has no bytes of its own while Split runs: %+v beside %+v", b, a)
	}
	_, y1 := bufferOf(t, c, "y1")
	_, y2 := bufferOf(t, c, "y2")
	_, x := bufferOf(t, c, "x")
	if y1 == y2 || y1 == x || y2 == x {
		t.Error("outputs share bytes with each other or with the input")
	}
	for _, s := range c.Program.Steps {
		for _, w := range s.Writes {
			if c.Program.Buffers[w.Buffer].Class == ir.Persistent {
				t.Errorf("%s writes into %s, which belongs to the caller", s.Node, c.Program.Buffers[w.Buffer].Name)
			}
		}
	}
}

func TestB14OverwrittenByTheLastReaderOnly(t *testing.T) {
	plannedEqualsPlain(t, func() *ir.Model {
		return text(t, `g (float[4,4] x) => (float[4,8] a, float[4,12] r) <float[8,4] W = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32}> {
			p = Relu (x) q = Neg (x) a = Concat <axis = 1> (p, q) d = MatMul (a, W) r = Concat <axis = 1> (a, d) }`)
	}, setup{})
	make := func() *ir.Model {
		return text(t, `g (float[64] x) => (float[64] y) { a = Relu (x) b = Sigmoid (a) c = Tanh (a) y = Add (b, c) }`)
	}
	plannedEqualsPlain(t, make, setup{})
	c := mustCompile(t, make(), setup{})
	_, a := bufferOf(t, c, "a")
	_, b := bufferOf(t, c, "b")
	_, d := bufferOf(t, c, "c")
	if a == b {
		t.Error("b overwrites a, which c still reads")
	}
	if a != d {
		t.Error("c is the last reader of a and could overwrite it")
	}
}

func TestB16AlignmentAndPadding(t *testing.T) {
	c := mustCompile(t, textAt(t, 21, `g (float[1] x, float[3] y) => (bool[1] b, float16[3] h, float[1] f, double[1] d, int4[3] i, float[262144] m) <int64[1] n = {262144}> {
		b = Cast <to = 9> (x) h = Cast <to = 10> (y) f = Neg (x) d = Cast <to = 11> (x) i = Cast <to = 22> (y) m = Expand (x, n) }`), setup{})
	sizes := map[string]int64{"b": 1, "h": 6, "f": 4, "d": 8, "i": 2, "m": 1 << 20, "x": 4, "y": 12}
	for name, want := range sizes {
		b, _ := bufferOf(t, c, name)
		if b.Size != want || b.Offset%256 != 0 {
			t.Errorf("%s takes %d bytes at %d, want %d at a multiple of 256", name, b.Size, b.Offset, want)
		}
	}
	// Six results and the two inputs, each padded; the shape is a constant.
	if want := int64(7*256 + 1<<20); c.Metrics.Peak != want && c.Metrics.Peak != want+256 {
		t.Errorf("the arena takes %d bytes, want %d (and 256 for the shape where it is kept)", c.Metrics.Peak, want)
	}
	if c.Program.Arenas[ir.DeviceArena].Align != 256 {
		t.Errorf("the arena is aligned to %d", c.Program.Arenas[ir.DeviceArena].Align)
	}
}

func TestB17ZeroSize(t *testing.T) {
	c := plannedEqualsPlain(t, func() *ir.Model {
		return text(t, `g (float[0,4] x, float[3,4] y) => (float[3,4] z, float[0,4] back)
			<int64[1] start = {-1}, int64[1] end = {-9223372036854775808}, int64[1] axis = {0}, int64[1] step = {-1}> {
			a = Relu (x) z = Concat <axis = 0> (a, y) back = Slice (a, start, end, axis, step) }`)
	}, setup{})
	a, _ := bufferOf(t, c, "a")
	if a.Size != 0 {
		t.Errorf("a takes %d bytes", a.Size)
	}
	for _, s := range c.Program.Steps {
		for _, x := range append(slices.Clone(s.Reads), s.Writes...) {
			if x.Size == 0 {
				t.Errorf("%s states an access of no bytes", s.Node)
			}
		}
		if s.Kind != ir.RunStep {
			t.Errorf("%s moves nothing", s.Node)
		}
	}
	// Nothing at all is a plan too.
	for _, src := range []string{
		`g (float[2] x) => (float[2] x) { }`,
		`g () => () { }`,
		`g (float[0] x) => (float[0] y) { y = Neg (x) }`,
		`g (float[0] x) => (float[0] y) { t = Neg (x) y = Reshape (t, s) s = Shape (x) }`,
	} {
		m, err := ir.Parse("case", "<ir_version: 8, opset_import: [\"\" : 17]>\n"+src)
		if err != nil {
			continue // the last one is not in order, which the text form refuses
		}
		c := mustCompile(t, m, setup{})
		if c.Metrics.Peak != c.Metrics.Persistent {
			t.Errorf("%s: peak %d, of which persistent %d", src, c.Metrics.Peak, c.Metrics.Persistent)
		}
	}
}

// Without a budget what follows from weights alone is made once where there is
// room for it within the unplanned peak, and again where there is none.
func TestNoBudgetTakesTheFasterPlan(t *testing.T) {
	for _, c := range []struct {
		rows   int
		wide   string // made between the two uses of the transposed weight
		clones int
	}{{4096, "", 0}, {4, "p = Expand (b, shape) q = Neg (p) r = ReduceSum <keepdims = 0> (q) s = Add (b, r) ", 1}} {
		last := "b"
		if c.wide != "" {
			last = "s"
		}
		m := text(t, fmt.Sprintf(`g (float[4,512] x, float[%d,512] z) => (float[%d,512] y, float[4,512] k)
			<float[512,512] W = ["elided": ""], int64[3] shape = {1024,4,512}> {
			v = Transpose <perm = [1,0]> (W) a = MatMul (x, v) a1 = Neg (a) a2 = Exp (a1) b = Neg (a2) %s
			k = Exp (%s) y = MatMul (z, v) }`, c.rows, c.rows, c.wide, last))
		p := mustCompile(t, m, setup{})
		clones := 0
		for _, s := range p.Schedule.Entries {
			if s.Kind == plan.Clone {
				clones++
			}
		}
		if clones != c.clones || p.Metrics.Peak > p.Metrics.PeakUnplanned || c.clones == 0 && p.Metrics.Time >= p.Metrics.UnplannedTime {
			t.Errorf("%d rows: %d operations run again, want %d; %d bytes of %d, %d ns of %d", c.rows, clones, c.clones,
				p.Metrics.Peak, p.Metrics.PeakUnplanned, p.Metrics.Time, p.Metrics.UnplannedTime)
		}
	}
}

func TestB18DynamicDims(t *testing.T) {
	make := func() *ir.Model {
		return text(t, `g (float[N,64] x) => (float[N,64] y) <float[64,64] W = ["elided": ""]> { h = MatMul (x, W) y = Relu (h) }`)
	}
	_, _, err := compile(t, make(), setup{})
	if err == nil || !strings.Contains(err.Error(), `"x"`) || !strings.Contains(err.Error(), "N") || !strings.Contains(err.Error(), "--dim") {
		t.Errorf("the refusal does not name dim and tensor: %v", err)
	}
	c := mustCompile(t, make(), setup{dims: map[string]ir.Dim{"N": ir.N(8)}})
	// x and W, and h and y in one buffer of 8*64 floats.
	if want := int64(2048 + 64*64*4 + 2048); c.Metrics.Peak != want {
		t.Errorf("the peak is %d, want %d", c.Metrics.Peak, want)
	}
	_, _, err = compile(t, make(), setup{dims: map[string]ir.Dim{"M": ir.N(8)}})
	if err == nil || !strings.Contains(err.Error(), `"M"`) || !strings.Contains(err.Error(), "N") {
		t.Errorf("a dim that is not there: %v", err)
	}
}

// lossPeak is the head of a language model with a long sequence.
const lossPeak = `g (float16[1,8192,4096] h, int64[8192] labels) => (float loss) <float16[4096,128256] W = ["location": "w.bin", "offset": "0", "length": "1050673152"], int64[2] flat = {8192,128256}> {
	logits = MatMul (h, W) wide = Cast <to = 1> (logits) rows = Reshape (wide, flat)
	loss, log_prob = SoftmaxCrossEntropyLoss (rows, labels) }`

func TestB21LogitsPeak(t *testing.T) {
	c := mustCompile(t, text(t, lossPeak), setup{whole: true, train: "loss"})
	logits, _ := bufferOf(t, c, "logits")
	if logits.Size != 2101346304 {
		t.Errorf("the logits take %d bytes", logits.Size)
	}
	wide, _ := bufferOf(t, c, "wide")
	if wide.Size != 4202692608 {
		t.Errorf("the logits in float take %d bytes", wide.Size)
	}
	cast := slices.IndexFunc(c.Program.Steps, func(s ir.Step) bool { return s.Node.Op == "Cast" })
	if logits.End != cast+1 {
		t.Errorf("the half logits live for [%d,%d), their Cast is step %d", logits.First, logits.End, cast)
	}
	// Whatever the gradient needs of the logits, it keeps one tensor of their
	// size, not the probabilities beside them.
	most := 0
	for s := range c.Program.Steps {
		n := 0
		for _, b := range c.Program.Buffers {
			if b.Size == wide.Size && b.First <= s && s < b.End {
				n++
			}
		}
		most = max(most, n)
	}
	if most > 2 {
		t.Errorf("%d tensors of the size of the logits are alive at once", most)
	}
	_, _, err := compile(t, text(t, lossPeak), setup{whole: true, train: "loss", budget: "1"})
	var inf *passes.Infeasible
	if !errors.As(err, &inf) {
		t.Fatal(err)
	}
	if len(inf.Alive) == 0 || inf.Alive[0].Bytes != wide.Size {
		t.Errorf("what is alive at the peak does not begin with the logits: %+v", inf.Alive)
	}
}

// waits is a graph in which tensors of the given elements wait while something
// larger comes and goes; they are random, so that nothing can make them again.
func waits(elems ...int) string {
	var make, use, use2 strings.Builder
	outs := []string{"float big", "float sum", "float nsum"}
	for i, n := range elems {
		fmt.Fprintf(&make, "r%d = RandomNormal <shape = [%d], seed = %d.0> ()\n", i, n, i+1)
		fmt.Fprintf(&use, "u%d = ReduceSum <keepdims = 0> (r%d)\n", i, i)
		outs = append(outs, fmt.Sprintf("float u%d", i))
	}
	// Work for the copies to hide behind.
	make.WriteString("m0 = RandomNormal <shape = [4096,4096], seed = 77.0> ()\n")
	for i := range 24 {
		fmt.Fprintf(&make, "m%d = MatMul (m%d, m%d)\n", i+1, i, i)
		fmt.Fprintf(&use2, "n%d = MatMul (n%d, n%d)\n", i+1, i, i)
	}
	return fmt.Sprintf(`g () => (%s) { %s
		sum = ReduceSum <keepdims = 0> (m24)
		b0 = RandomNormal <shape = [%d], seed = 99.0> () b1 = Softmax (b0) b2 = Mul (b0, b1) big = ReduceSum <keepdims = 0> (b2)
		n0 = RandomNormal <shape = [4096,4096], seed = 78.0> () %s nsum = ReduceSum <keepdims = 0> (n24)
		%s }`, strings.Join(outs, ", "), make.String(), 2*slices.Max(elems), use2.String(), use.String())
}

// busy is work that needs little memory, for copies to hide behind; its result
// is called name.
func busy(name string) string {
	out := fmt.Sprintf("%s_0 = RandomNormal <shape = [64], seed = 5.0> ()\n", name)
	for k := range 12 {
		out += fmt.Sprintf("%s_%d = Softmax (%s_%d)\n", name, k+1, name, k)
	}
	return out + fmt.Sprintf("%s = ReduceSum <keepdims = 0> (%s_12)\n", name, name)
}

func TestB24HostSlotsHaveLives(t *testing.T) {
	// Two tensors of one size, one after the other.
	one := func(i int) string {
		return fmt.Sprintf("r%d = RandomNormal <shape = [4096], seed = %d.0> ()\n", i, i) + busy(fmt.Sprintf("w%d", i)) +
			fmt.Sprintf("a%d = RandomNormal <shape = [16384], seed = 9.0> () b%d = Softmax (a%d) c%d = Mul (a%d, b%d) d%d = ReduceSum <keepdims = 0> (c%d)\n", i, i, i, i, i, i, i, i) +
			busy(fmt.Sprintf("v%d", i)) + fmt.Sprintf("u%d = ReduceSum <keepdims = 0> (r%d)\n", i, i)
	}
	c := plannedEqualsPlain(t, func() *ir.Model {
		return text(t, `g () => (float u1, float u2, float d1, float d2, float w1, float w2, float v1, float v2) { `+one(1)+one(2)+` }`)
	}, setup{asIs: true})
	if moved := movedOut(c.Program); moved["r1"] != 16384 || moved["r2"] != 16384 {
		t.Fatalf("moved out %v: the case shows too little", moved)
	}
	for _, s := range c.Program.Steps {
		if s.Kind == ir.RunStep {
			continue
		}
		for _, x := range append(slices.Clone(s.Reads), s.Writes...) {
			if b := c.Program.Buffers[x.Buffer]; b.Arena == ir.HostArena && (b.Class != ir.HostSlot || b.Size != 16384) {
				t.Errorf("host slot %+v", b)
			}
		}
	}
	if c.Metrics.HostPeak != 16384 && c.Metrics.HostPeak != 2*16384 {
		t.Errorf("host memory %d", c.Metrics.HostPeak)
	}
}

func TestB25HostArenaIsTheSumOfItsSlots(t *testing.T) {
	const MiB = 1 << 20
	c := tightest(t, func() *ir.Model { return text(t, waits(96*MiB/4, 36*MiB/4, 9*MiB/4)) }, setup{asIs: true})
	if c.Metrics.HostPeak != 141*MiB {
		t.Errorf("the host arena takes %d bytes, want 141 MiB", c.Metrics.HostPeak)
	}
	less := tightest(t, func() *ir.Model { return text(t, waits(96*MiB/4, 36*MiB/4, 9*MiB/4)) }, setup{asIs: true, host: 100 * MiB})
	if less.Metrics.HostPeak > 100*MiB || less.Metrics.Peak <= c.Metrics.Peak {
		t.Errorf("with 100 MiB of host memory: %d on the host, %d on the device (%d with more)", less.Metrics.HostPeak, less.Metrics.Peak, c.Metrics.Peak)
	}
	_, _, err := compile(t, text(t, waits(96*MiB/4, 36*MiB/4, 9*MiB/4)), setup{asIs: true, host: 100 * MiB, budget: fmt.Sprint(c.Metrics.Peak)})
	if err == nil || !strings.Contains(err.Error(), "100.00 MiB") {
		t.Errorf("the refusal does not say that host memory is short: %v", err)
	}
}

func TestB27OneTransferForOneStorage(t *testing.T) {
	c := plannedEqualsPlain(t, func() *ir.Model {
		return text(t, `g (float[4,6] x) => (float l1, float l2, float l3, float l4, float big, float w, float u) <int64[1] flat = {24}, int64[2] four = {4,1000}> {
		a = RandomNormal <shape = [4,6], seed = 1.0> () r = Reshape (a, flat)
		v = RandomNormal <shape = [1,1000], seed = 2.0> () e = Expand (v, four) e1 = Tanh (e) l4 = ReduceSum <keepdims = 0> (e1)
		`+busy("w")+`b0 = RandomNormal <shape = [65536], seed = 9.0> () b1 = Softmax (b0) b2 = Mul (b0, b1) big = ReduceSum <keepdims = 0> (b2)
		`+busy("u")+`ta = Tanh (a) l1 = ReduceSum <keepdims = 0> (ta) tr = Sigmoid (r) l2 = ReduceSum <keepdims = 0> (tr)
		te = Sigmoid (e) l3 = ReduceSum <keepdims = 0> (te) }`)
	}, setup{})
	moved := movedOut(c.Program)
	if moved["a"] != 96 || moved["r"] != 0 {
		t.Errorf("moved out %v, want 96 bytes of a once", moved)
	}
	if moved["e"] != 0 || moved["v"] != 0 && moved["v"] != 4000 {
		t.Errorf("moved out %v, want at most the 4,000 bytes that e is made of", moved)
	}
	for _, s := range c.Program.Steps {
		if s.Kind == ir.CopyOutStep && s.Node.In[0].Def == nil {
			t.Errorf("%q is a parameter or an input and was moved out", s.Node.In[0].Name)
		}
	}
}

func TestB41OutputsThatAreOtherThings(t *testing.T) {
	plannedEqualsPlain(t, func() *ir.Model {
		return text(t, `g (float[4] x) => (float[4] v, float[4] x, float[4] w, float[4] r) <float[4] w = {1,2,3,4}> {
			v = Relu (x) a = Add (v, w) b = Neg (a) r = Mul (b, x) }`)
	}, setup{})
	m := text(t, `g (float[4] x) => (float[4] v, float[4] w) { v = Relu (x) w = Neg (v) }`)
	m.Graph.Outputs = append(m.Graph.Outputs, m.Graph.Outputs[0]) // listed twice
	c := mustCompile(t, m, setup{})
	out, err := eval.Program(c.Program, map[string]ir.Datum{"x": tensor(ir.Float, []float64{-1, 2, -3, 4}, 4)}, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "v", floats(t, out["v"]), []float64{0, 2, 0, 4}, 0)
	near(t, "w", floats(t, out["w"]), []float64{0, -2, 0, -4}, 0)
	// A view of an input that is an output gets bytes of its own.
	c = mustCompile(t, text(t, `g (float[4] x) => (float[2,2] y, float[4] z) <int64[2] s = {2,2}> { y = Reshape (x, s) z = Identity (x) }`), setup{})
	_, x := bufferOf(t, c, "x")
	_, y := bufferOf(t, c, "y")
	_, z := bufferOf(t, c, "z")
	if x == y || x == z || y == z {
		t.Error("outputs lie in the caller's bytes or in each other's")
	}
}

func TestB42FoldingStaysSmall(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := mustCompile(t, text(t, `g (float[1] x) => (float l, int64[2] sizes) <int64[2] dims = {50000,50000}, float[1,1] one = {1}, int64[2] reps = {50000,50000}, int64[1] axes = {0}, int64[1] first = {1}> {
		c = ConstantOfShape (dims) y = Add (c, x) t = Tile (one, reps) e = Expand (one, dims) p = Add (y, t) q = Add (p, e)
		s = Shape (q) k = Gather (s, first) s2 = Mul (s, k) s3 = Add (s2, s) sizes = Cast <to = 7> (s3)
		l = ReduceSum <keepdims = 0> (q) }`), setup{})
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("compiling took %d bytes", used)
	}
	for _, n := range c.Graph.Nodes {
		switch n.Op {
		case "Shape", "Gather", "Mul":
			t.Errorf("%s computes shapes at run time", n)
		}
	}
	for _, v := range c.Graph.Inits {
		if b, _ := v.Type.Bytes(); b > 1<<16 {
			t.Errorf("%q of %d bytes was folded", v.Name, b)
		}
	}
	if c.Metrics.Peak < 2*10_000_000_000 {
		t.Errorf("the peak is %d: the case shows too little", c.Metrics.Peak)
	}
}
