package diag

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestSuggest(t *testing.T) {
	names := []string{"recompute", "swap", "liveness", "fold", "fuse", "fc.weight", "fc.bias", "off", "time", ""}
	for name, want := range map[string]string{
		"recomptue": "recompute", "Recompute": "recompute", "swp": "swap", "liveless": "liveness", "fould": "fold",
		"weight": "fc.weight", "onnx::fc.bias": "fc.bias", "of": "off", "xyz": "", "": "", "a": "", "zz": "", "swapping": "swap",
	} {
		if got := Suggest(name, names); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", name, got, want)
		}
	}
	got := Nearest("layer.1.weight", []string{"layer.2.weight", "layer.1.bias", "layer.10.weight", "layer.0.weight", "head", "layer.0.weight"}, 3)
	if want := []string{"layer.0.weight", "layer.10.weight", "layer.2.weight"}; !slices.Equal(got, want) {
		t.Errorf("Nearest gives %q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"abcd", "dcba", 3}} {
		if got := distance(c.a, c.b, 10); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
	if got := distance("abcdef", "uvwxyz", 2); got != 3 {
		t.Errorf("a large distance is %d, want limit+1", got)
	}
}

func messages() []*Diagnostic {
	at := func(i int) Location {
		return Location{File: "m.onnx", Path: "graph", Index: i, Node: fmt.Sprint("n", i), Op: "Add", Opset: 13}
	}
	return []*Diagnostic{
		{ID: "shape", Severity: Error, Message: "wrong <shape>", Help: "bind N", Loc: at(2)},
		{ID: "shape", Severity: Error, Message: "wrong", Loc: at(10)},
		{ID: "stale", Severity: Warning, Message: "stale", Loc: Location{File: "m.onnx", Value: "v"}},
		{ID: "sorted", Severity: Warning, Message: "nodes were sorted"},
		{ID: "hint", Severity: Note, Message: "a note"},
	}
}

const text = `error: m.onnx: node "n2" (Add@13): wrong <shape> [shape]
  help: bind N
error: m.onnx: node "n10" (Add@13): wrong [shape]
warning: nodes were sorted [sorted]
warning: m.onnx: tensor "v": stale [stale]
note: a note [hint]
`

// The order of adding and repetitions do not show.
func TestCollectorSorts(t *testing.T) {
	for seed := range uint64(20) {
		var c Collector
		ms := append(messages(), messages()[2])
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
		for _, m := range ms {
			c.Add(m)
		}
		c.Add(nil)
		var b strings.Builder
		if err := c.WriteText(&b); err != nil || b.String() != text {
			t.Fatalf("%v\n%s", err, b.String())
		}
		if err := c.Err(); err == nil || err.Error() != `m.onnx: node "n2" (Add@13): wrong <shape>; bind N (and 1 more error)` {
			t.Fatal(err)
		}
	}
}

func TestCollectorLimits(t *testing.T) {
	c := Collector{Limit: 1}
	for _, m := range messages() {
		c.Add(m)
	}
	var b strings.Builder
	if err := c.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.HasSuffix(got, "… and 1 more error\n… and 1 more warning\n") || strings.Count(got, "\n") != 6 {
		t.Errorf("got\n%s", got)
	}
	if c.Len(Error) != 2 || c.Len(Note) != 1 {
		t.Error("the counts are of all messages")
	}
}

func TestCollectorJSON(t *testing.T) {
	c := Collector{Limit: 1}
	for _, m := range messages() {
		c.Add(m)
	}
	var b strings.Builder
	if err := c.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Diagnostics []struct {
			ID, Severity, Message, Help string
			Location                    map[string]any
		}
		Hidden map[string]int
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	d := got.Diagnostics[0]
	if len(got.Diagnostics) != 3 || got.Hidden["error"] != 1 || d.Severity != "error" || d.Message != "wrong <shape>" || d.Help != "bind N" ||
		d.Location["node"] != "n2" || d.Location["index"] != 2.0 || got.Diagnostics[1].Location != nil {
		t.Errorf("got %s", b.String())
	}
	if strings.Contains(b.String(), `\u003c`) {
		t.Error("text is escaped for HTML")
	}
	b.Reset()
	if err := new(Collector).WriteJSON(&b); err != nil || !strings.Contains(b.String(), `"diagnostics": []`) {
		t.Errorf("an empty report is %s", b.String())
	}
}

func TestCollectorTakesErrors(t *testing.T) {
	var c Collector
	c.AddError(nil)
	if c.Err() != nil {
		t.Error("no error was added")
	}
	d := messages()[1]
	c.AddError(errors.Join(d, fmt.Errorf("pass fold: %w", d), errors.New("plain")))
	if c.Len(Error) != 3 {
		t.Errorf("%d errors", c.Len(Error))
	}
	ids := []string{}
	for _, m := range c.Sorted() {
		ids = append(ids, m.ID+" "+m.Message)
	}
	if got := strings.Join(ids, "; "); got != `error plain; shape pass fold: m.onnx: node "n10" (Add@13): wrong; shape wrong` {
		t.Errorf("got %s", got)
	}
	single := Collector{}
	single.AddError(d)
	if single.Err() != error(d) {
		t.Error("a single error is returned as it is")
	}
}
