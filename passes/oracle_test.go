package passes

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/eval"
	_ "memoc/ir/ops"
	"memoc/passes/cost"
	"memoc/passes/plan"
)

// oracleText is a chain of layers: x, then Tanh(x W) + x again and again.
func oracleText(layers int) string {
	var inits, nodes strings.Builder
	for i := range layers {
		fmt.Fprintf(&inits, "float[16,16] w%d = [\"elided\": \"\"],", i)
		fmt.Fprintf(&nodes, "m%d = MatMul (h%d, w%d) t%d = Tanh (m%d) s%d = Softmax (t%d) h%d = Add (s%d, h%d)\n", i, i, i, i, i, i, i, i+1, i, i)
	}
	return fmt.Sprintf(`<ir_version: 8, opset_import: ["" : 17]> g (float[32,16] x) => (float loss)
<%s float[1] unused = {0}> { h0 = Identity (x) %s p = Mul (h%d, h%d) loss = ReduceMean <keepdims = 0> (p) }`, inits.String(), nodes.String(), layers, layers)
}

func oracleContext(t *testing.T, budget string) *Context {
	t.Helper()
	m, err := ir.Parse("oracle", oracleText(4))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range m.Graph.Inits {
		w := ir.NewTensor(ir.Float, 16, 16)
		for i, d := 0, ir.View[float32](w); i < len(d); i++ {
			d[i] = float32((i*7+k*3)%11)*0.1 - 0.5
		}
		if v.Name != "unused" {
			v.Init = ir.WeightOf(w)
		}
	}
	b, err := ParseBudget(budget)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := cost.LoadDevice("h100")
	if err != nil {
		t.Fatal(err)
	}
	return &Context{Model: m, Graph: m.Graph, Report: func(*diag.Diagnostic) {},
		Options: Options{Train: true, Loss: "loss", Budget: b, HostBudget: -1, Device: dev}}
}

// The planned step equals the unplanned one bit for bit, in many orders of the
// lanes and in two successive steps; and without any one of its waits there is
// an order in which it does not.
func TestPlannedEqualsUnplanned(t *testing.T) {
	base := oracleContext(t, "100%")
	if err := (&Runner{}).RunUntil(base, Analyze); err != nil {
		t.Fatal(err)
	}
	in, err := eval.RandomInputs(base.Graph, 1)
	if err != nil {
		t.Fatal(err)
	}
	want, err := eval.Graph(base.Graph, in, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	copies, clones := 0, 0
	for _, budget := range []string{"100%", "80%", "60%", "split"} {
		c := oracleContext(t, "100%")
		if budget == "split" {
			c.Options.Budget, c.Options.Choose = Budget{}, splitEverything
		} else {
			c = oracleContext(t, budget)
		}
		if err := (&Runner{}).Run(c); err != nil {
			t.Fatalf("%s: %v", budget, err)
		}
		if at, err := orderedTime(c, &c.placement); err != nil || at != c.Metrics.Time {
			t.Errorf("%s: chosen for %d ns (%v), takes %d", budget, at, err, c.Metrics.Time)
		}
		for _, s := range c.Program.Steps {
			switch {
			case s.Kind != ir.RunStep:
				copies++
			case strings.Contains(s.Node.Name, ".remat"):
				clones++
			}
		}
		for order := range uint64(20) {
			if how := differs(c.Program, in, want, order); how != "" {
				t.Fatalf("%s, order %d: %s", budget, order, how)
			}
		}
		everyWaitIsNeeded(t, budget, c, in, want)
	}
	if copies == 0 || clones == 0 {
		t.Errorf("%d copies and %d clones: the case shows too little", copies, clones)
	}
}

// splitEverything cuts every tensor that waits in the middle of its tokens.
func splitEverything(p *plan.Problem) []plan.Choice {
	choice := p.Initial()
	for t := range choice {
		if choice[t] == plan.Keep && p.Splittable(t) {
			choice[t] = plan.SplitAt(p.Tiles() / 2)
		}
	}
	return choice
}

// everyWaitIsNeeded leaves out every wait but those that the schedule asks for
// to keep within its limit: these hold back copies until there is room.
func everyWaitIsNeeded(t *testing.T, budget string, c *Context, in, want map[string]ir.Datum) {
	p := c.Program
	for i := range p.Steps {
		s := &p.Steps[i]
		for k, wait := range s.Waits {
			if wait == c.Schedule.Entries[i].Wait {
				continue
			}
			all := s.Waits
			s.Waits = append(append([]int{}, all[:k]...), all[k+1:]...)
			shows := false
			for order := uint64(1); order < 1000 && !shows; order++ {
				shows = differs(p, in, want, order) != ""
			}
			if !shows {
				t.Errorf("%s: no order shows that step %d (%s) lacks its wait for step %d", budget, i, s.Node.Name, wait)
			}
			s.Waits = all
		}
	}
}

// differs runs the program twice in a row and says how its outputs differ.
func differs(p *ir.Program, in, want map[string]ir.Datum, order uint64) string {
	out, err := eval.Program(p, in, eval.Options{Order: order, Steps: 2})
	if err != nil {
		return err.Error()
	}
	for name, d := range want {
		if got, ok := out[name].(*ir.Tensor); !ok || !bytes.Equal(got.Data, d.(*ir.Tensor).Data) {
			return "output " + name
		}
	}
	return ""
}
