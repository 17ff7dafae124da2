package cuda

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/mutate"
)

// TestZeroSize: tensors without elements own nothing, launch nothing and copy
// nothing, also as outputs.
func TestZeroSize(t *testing.T) {
	g := ir.NewGraph("empty", map[string]int{"": 17})
	x := g.AddInput("x", ir.TensorOf(ir.Float, ir.Ints64(0, 4)))
	y := g.AddInput("y", ir.TensorOf(ir.Float, ir.Ints64(3, 4)))
	b := ir.NewBuilder(ir.NewEdit(g))
	a := b.Op("Softmax", []*ir.Value{x})
	z := b.Op("Concat", []*ir.Value{a, y}, ir.IntAttr("axis", 0))
	b.Edit.Done()
	g.Outputs = []*ir.Value{z, a}
	p := plan(t, g)
	e := newEmitter(p)
	if err := e.collect(); err != nil {
		t.Fatal(err)
	}
	if r := e.rows[0]; r.launch >= 0 || len(r.ranges) > 0 {
		t.Errorf("an empty Softmax launches %d over %v", r.launch, r.ranges)
	}
	vals := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	out, err := build(t, p).Run(context.Background(), []Named{{"x", floats(nil, 0, 4)}, {"y", floats(vals, 3, 4)}}, RunOptions{Paranoid: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != 2 || out[1].Tensor.Len() != 0 || differ(out[0].Tensor, floats(vals, 3, 4)) != "" {
		t.Errorf("outputs %v", out)
	}
}

// TestRandomNumbers: the seed and the step number reach the kernels, and each
// step draws what package ir says.
func TestRandomNumbers(t *testing.T) {
	g := ir.NewGraph("random", map[string]int{"": 17})
	n := g.Append(ir.NodeSpec{Name: "draw", Op: "RandomUniform", Out: []string{"y"}, Attrs: []ir.Attr{ir.IntsAttr("shape", 2, 50)}})
	if err := ir.InferNode(g, n); err != nil {
		t.Fatal(err)
	}
	g.Outputs = n.Out
	exe := build(t, plan(t, g))
	for steps := 1; steps <= 3; steps++ {
		c := ir.NewEvalCtx(n, nil)
		c.Random = ir.RandomStream{Seed: ir.RandomKey(5, "draw"), Step: uint64(steps - 1)}
		want, err := ir.EvalNode(c)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exe.Run(context.Background(), nil, RunOptions{Steps: steps, Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		late, err := exe.Run(context.Background(), nil, RunOptions{FirstStep: uint64(steps - 1), Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(late[0].Tensor.Data, out[0].Tensor.Data) {
			t.Errorf("step %d differs when it comes first", steps)
		}
		if !bytes.Equal(out[0].Tensor.Data, want[0].(*ir.Tensor).Data) {
			t.Errorf("step %d: %v, want %v", steps, out[0].Tensor.Floats()[:4], want[0].(*ir.Tensor).Floats()[:4])
		}
	}
}

// TestExternalPath: a weight outside of the model's folder is refused before
// anything is written.
func TestExternalPath(t *testing.T) {
	for _, location := range []string{"../w.bin", "/etc/passwd", "a/../../w.bin"} {
		g := ir.NewGraph("g", map[string]int{"": 17})
		w := ir.TensorOf(ir.Float, ir.Ints64(3))
		x := g.AddInput("x", w)
		v := g.AddInit("w", &ir.Weight{Type: w, External: &ir.External{Location: location}})
		b := ir.NewBuilder(ir.NewEdit(g))
		g.Outputs = []*ir.Value{b.Add(x, v)}
		b.Edit.Done()
		if _, err := Emit(plan(t, g)); err == nil || !strings.Contains(err.Error(), "outside of the model's folder") {
			t.Errorf("%s: %v", location, err)
		}
	}
}

// TestExternalWeight: the driver reads an external weight where the model says.
func TestExternalWeight(t *testing.T) {
	g := ir.NewGraph("g", map[string]int{"": 17})
	w := ir.TensorOf(ir.Float, ir.Ints64(3))
	x := g.AddInput("x", w)
	v := g.AddInit("w", &ir.Weight{Type: w, External: &ir.External{Location: "data/w.bin", Offset: 8, Length: 12}})
	b := ir.NewBuilder(ir.NewEdit(g))
	g.Outputs = []*ir.Value{b.Add(x, v)}
	b.Edit.Done()
	exe := build(t, plan(t, g))
	dir := t.TempDir()
	in := []Named{{"x", floats([]float64{1, 2, 3}, 3)}}
	if _, err := exe.Run(context.Background(), in, RunOptions{ModelDir: dir}); err == nil || !strings.Contains(err.Error(), "data/w.bin, which holds weight 'w'") {
		t.Errorf("an absent file: %v", err)
	}
	data := append(make([]byte, 8), floats([]float64{10, 20, 30}, 3).Data...)
	write := File{Path: "data/w.bin", Write: textFile("", string(data)).Write}
	if err := WriteDir(dir, []File{write}); err != nil {
		t.Fatal(err)
	}
	out, err := exe.Run(context.Background(), in, RunOptions{ModelDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if diff := differ(out[0].Tensor, floats([]float64{11, 22, 33}, 3)); diff != "" {
		t.Error(diff)
	}
}

func TestContainer(t *testing.T) {
	want := []Named{{"a ż", floats([]float64{1, 2}, 2)}, {"", ir.NewTensor(ir.Int64, 0, 3)}, {"s", ir.FromInts(ir.Int8, []int64{-1})}}
	var b bytes.Buffer
	if err := WriteTensors(&b, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadTensors(bytes.NewReader(b.Bytes()))
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, %v", got, err)
	}
	for i := range want {
		if diff := differ(got[i].Tensor, want[i].Tensor); diff != "" || got[i].Name != want[i].Name {
			t.Errorf("%q: %s", got[i].Name, diff)
		}
	}
	for n := 1; n < b.Len(); n++ {
		if ts, err := ReadTensors(bytes.NewReader(b.Bytes()[:n])); err == nil && len(ts) == len(want) {
			t.Errorf("%d of %d bytes are read as everything", n, b.Len())
		}
	}
}

func FuzzReadTensors(f *testing.F) { mutate.Explore(f, containers(f), containerHolds) }

func TestReadTensorsMutated(t *testing.T) {
	mutate.Test(t, "FuzzReadTensors", containers(t), 4000, containerHolds)
}

func containers(t testing.TB) [][]byte {
	var b bytes.Buffer
	if err := WriteTensors(&b, []Named{{"x", floats([]float64{1, 2}, 2)}}); err != nil {
		t.Fatal(err)
	}
	return [][]byte{b.Bytes()}
}

// containerHolds: what is read is written byte for byte.
func containerHolds(b []byte) (accepted bool, wrong error) {
	ts, err := ReadTensors(bytes.NewReader(b))
	if err != nil {
		return false, nil
	}
	var again bytes.Buffer
	if err := WriteTensors(&again, ts); err != nil || !bytes.Equal(again.Bytes(), b) {
		return true, fmt.Errorf("written as other bytes than it was read from (%v)", err)
	}
	return true, nil
}
