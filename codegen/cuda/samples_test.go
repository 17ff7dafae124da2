package cuda

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"testing"

	"memoc/ir"
)

// sampleGraph holds every sample of every operator with a kernel as a node of
// its own, in the sample's types and, where the operator takes them, in the
// given float types.
func sampleGraph(t *testing.T, types ...ir.DType) *ir.Graph {
	g := ir.NewGraph("samples", map[string]int{"": 24, ir.MsDomain: 1, ir.MemocDomain: 1, ir.TrainingDomain: 1})
	for _, op := range ir.Operators() {
		if op.Kernel.Make == nil {
			continue
		}
		for _, s := range op.Samples() {
			name := ir.FullOp(op.Domain, op.Name) + "/" + s.Name
			for _, d := range append([]ir.DType{ir.Double}, types...) {
				if m, ok := inType(op, s, d); ok {
					addSample(t, g, op, m, name+"/"+d.String())
				}
			}
		}
	}
	return g
}

// inType is the sample with its doubles as d; not ok if the operator does not
// take that type, or has nothing to change.
func inType(op *ir.Op, s ir.Sample, d ir.DType) (ir.Sample, bool) {
	if d == ir.Double {
		return s, true
	}
	s.In = slices.Clone(s.In)
	changed := false
	for i, x := range s.In {
		if slices.Contains(s.Absent, i) || x == nil || x.DType != ir.Double {
			continue
		}
		port := op.In[min(i, len(op.In)-1)]
		if set, ok := op.Types[port.Type]; !ok || !set.Has(d) {
			return s, false
		}
		s.In[i] = ir.FromFloats(d, x.Floats(), x.Dims...)
		changed = true
	}
	return s, changed
}

func addSample(t *testing.T, g *ir.Graph, op *ir.Op, s ir.Sample, name string) {
	version := s.Version
	if version == 0 {
		version = op.Since[len(op.Since)-1]
	}
	probe := ir.NewGraph("probe", g.Opsets)
	if n := appendSample(probe, op, s, name, version); n != nil {
		c, err := ir.NewNodeCtx(n)
		if err != nil {
			return
		}
		if _, err := op.Kernel.Make(c); err != nil {
			return // a form without a kernel says so
		}
		appendSample(g, op, s, name, version)
	}
}

// appendSample is nil where the node is no valid one in that type.
func appendSample(g *ir.Graph, op *ir.Op, s ir.Sample, name string, version int) *ir.Node {
	spec := ir.NodeSpec{Name: name, Domain: op.Domain, Op: op.Name, Version: version, Attrs: s.Attrs}
	for i, x := range s.In {
		if slices.Contains(s.Absent, i) || x == nil {
			spec.In = append(spec.In, nil)
			continue
		}
		spec.In = append(spec.In, g.AddInit(fmt.Sprintf("%s:in%d", name, i), ir.WeightOf(x)))
	}
	n := s.NumOut
	for i, p := range op.Out {
		if s.NumOut == 0 && !p.Optional {
			n = max(n, i+1)
		}
	}
	for i := range n {
		spec.Out = append(spec.Out, fmt.Sprintf("%s:out%d", name, i))
	}
	node := g.Append(spec)
	if err := ir.InferNode(g, node); err != nil {
		return nil
	}
	return node
}

// TestSamples runs the whole operator set through one emitted program in which
// every step sees and changes only what it declares, and compares loosely with
// the reference: the operators' own tests are the sharp ones.
func TestSamples(t *testing.T) {
	needCompiler(t)
	g := sampleGraph(t)
	exe := build(t, plan(t, allOutputs(g)))
	got, err := exe.Run(context.Background(), nil, RunOptions{Paranoid: true})
	if err != nil {
		t.Fatal(err)
	}
	compareSamples(t, g, got)
}

// TestSamplesEmulated runs the same through the CUDA side of the library, on a
// stand-in for CUDA whose blocks have real threads: a kernel that is right for
// one thread and wrong for many shows here.
func TestSamplesEmulated(t *testing.T) {
	needCompiler(t)
	g := sampleGraph(t)
	exe := buildEmulated(t, plan(t, allOutputs(g)))
	got, err := exe.Run(context.Background(), nil, RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	compareSamples(t, g, got)
}

func allOutputs(g *ir.Graph) *ir.Graph {
	for _, n := range g.Nodes {
		g.Outputs = append(g.Outputs, n.Out...)
	}
	return g
}

func compareSamples(t *testing.T, g *ir.Graph, got []Named) {
	t.Helper()
	byName := map[string]*ir.Tensor{}
	for _, x := range got {
		byName[x.Name] = x.Tensor
	}
	for _, n := range g.Nodes {
		var in []ir.Datum
		for _, v := range n.In {
			if v == nil {
				in = append(in, nil)
				continue
			}
			x, _ := v.Init.Tensor()
			in = append(in, x)
		}
		c := ir.NewEvalCtx(n, in)
		c.Random.Seed = ir.RandomKey(0, n.OriginName())
		want, err := ir.EvalNode(c)
		if err != nil {
			t.Errorf("%s: %v", n.Name, err)
			continue
		}
		for o, v := range n.Out {
			if w, ok := want[o].(*ir.Tensor); ok {
				if diff := differ(byName[v.Name], w); diff != "" {
					t.Errorf("%s, output %d: %s", n.Name, o, diff)
				}
			}
		}
	}
}

func differ(got, want *ir.Tensor) string {
	if got == nil || got.DType != want.DType || !slices.Equal(got.Dims, want.Dims) {
		return fmt.Sprintf("got %v, want a tensor of shape %v", got, want.Dims)
	}
	if !want.DType.IsFloat() {
		if !slices.Equal(got.Data, want.Data) {
			return fmt.Sprintf("got %v, want %v", got.Data, want.Data)
		}
		return ""
	}
	g, w := got.Floats(), want.Floats()
	for i := range w {
		if g[i] != w[i] && !(math.Abs(g[i]-w[i]) <= 1e-4*(1+math.Abs(w[i]))) && !(math.IsNaN(g[i]) && math.IsNaN(w[i])) {
			return fmt.Sprintf("element %d is %v, want %v", i, g[i], w[i])
		}
	}
	return ""
}

// TestSamplesNVCC compiles every kernel for the GPU, in double and in one half
// type: rules that only nvcc has, such as where an extended lambda may stand.
// It takes minutes.
func TestSamplesNVCC(t *testing.T) {
	nvccScript(t)
	compileWithNVCC(t, plan(t, sampleGraph(t, ir.BFloat16)), "MEMOC_CUDA_ARCHS=90")
}

func compileWithNVCC(t *testing.T, p *ir.Program, env ...string) {
	t.Helper()
	script := nvccScript(t)
	files, err := Emit(p)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := WriteDir(dir, files); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(script, dir)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if exit, ok := err.(*exec.ExitError); ok && exit.ExitCode() == 77 {
		t.Skip(string(out))
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, firstLines(out, 60))
	}
}
