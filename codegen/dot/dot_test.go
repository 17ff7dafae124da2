package dot

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"memoc/ir"
	"memoc/ir/handmade"
	_ "memoc/ir/ops"
)

// awkward are names that people's models hold: quotes, a line break, record
// syntax, a port's colons, blanks and letters beyond ASCII, escapes and
// entities.
var awkward = []string{
	"/model/layers.0/attn\"q\"\n{x}|<y>", "aten::mm", "example ż 大",
	`back\slash\N\G`, "<b>bold</b>", "a&amp;b", "&#65;", "100%", "", "node", "subgraph", "-", "a;b->c",
}

// chain is a Program of one Relu for each name; every third tensor is swapped.
func chain(names []string) *ir.Program {
	g := ir.NewGraph("chain", map[string]int{"": 17})
	p := &ir.Program{Name: "chain", Graph: g, Lanes: []ir.Lane{{Name: "compute"}, {Name: "device-to-host"}, {Name: "host-to-device"}}}
	v := g.AddInput("in \"put\"", ir.TensorOf(ir.Float, ir.Ints64(4)))
	for i, name := range names {
		n := g.Append(ir.NodeSpec{Name: name, Op: "Relu", In: []*ir.Value{v}, Out: []string{fmt.Sprintf("%s:%d", name, i)}})
		v = n.Out[0]
		kind := ir.Keep
		if i%3 == 2 {
			kind = ir.Swap
		}
		p.Decisions = append(p.Decisions, ir.Decision{Tensor: v.Name, Bytes: 16, Kind: kind, Reason: "a \"reason\"", Produce: name})
	}
	g.Outputs = []*ir.Value{v}
	return p
}

// draw has graphviz lay the drawing out. Layouts can take very long, so it has
// a limit.
func draw(t *testing.T, drawing []byte) []byte {
	t.Helper()
	tool, err := exec.LookPath("dot")
	if err != nil {
		t.Skip("no dot to draw with")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, "-Tsvg")
	cmd.Stdin = bytes.NewReader(drawing)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	svg, err := cmd.Output()
	if ctx.Err() != nil {
		t.Skip("dot takes too long on this machine")
	}
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("dot: %v\n%s", err, stderr.String())
	}
	return svg
}

// texts is the lines of text of every node in an SVG of graphviz.
func texts(t *testing.T, svg []byte) []string {
	t.Helper()
	var out []string
	inside := false
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := tok.(type) {
		case xml.StartElement:
			if inside = x.Name.Local == "text"; inside {
				out = append(out, "")
			}
		case xml.EndElement:
			inside = false
		case xml.CharData:
			if inside {
				// Graphviz writes no-break spaces for blanks.
				out[len(out)-1] += strings.ReplaceAll(string(x), "\u00a0", " ")
			}
		}
	}
}

func TestAwkwardNames(t *testing.T) {
	var names []string
	for _, n := range awkward {
		if n != "" { // a graph gives nameless nodes a name
			names = append(names, n)
		}
	}
	svg := draw(t, Render(chain(names)))
	got := texts(t, svg)
	for _, name := range names {
		for _, line := range strings.Split(name, "\n") {
			if !slices.Contains(got, line) {
				t.Errorf("no text of the drawing reads %q", line)
			}
		}
	}
	if t.Failed() {
		t.Logf("%q", got)
	}
}

// Names are labels, never identifiers: nodes called the same, or like DOT's
// keywords, stay apart.
func TestIdentifiers(t *testing.T) {
	arrow := regexp.MustCompile(`(?m)^\s*[a-z]+[0-9]+->[a-z]+[0-9]+\[`)
	text := string(Render(chain(awkward)))
	if n := len(arrow.FindAllString(text, -1)); n != len(awkward)+1 {
		t.Errorf("%d arrows for %d nodes and an output:\n%s", n, len(awkward), text)
	}
}

func TestLargeGraphIsReduced(t *testing.T) {
	names := make([]string, 3000)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i)
	}
	text := string(Render(chain(names)))
	if !strings.Contains(text, "2000 of 3000 operations are not drawn:") {
		t.Error("no note says how many operations are not drawn")
	}
	if n := strings.Count(text, `Relu"`); n != 1000 {
		t.Errorf("%d operations are drawn, want the 1000 whose tensors are swapped", n)
	}
	if text := string(Render(chain(names[:1500]))); strings.Contains(text, "not drawn") {
		t.Error("a graph of 1500 operations is reduced")
	}
}

// A large graph is drawn within the time that a person waits.
func TestLargeGraphDraws(t *testing.T) {
	if testing.Short() {
		t.Skip("lays out a thousand nodes")
	}
	names := make([]string, 3000)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i)
	}
	if svg := draw(t, Render(chain(names))); !bytes.Contains(svg, []byte("2000 of 3000 operations are not drawn")) {
		t.Error("the drawing has no note")
	}
}

func TestDeterministic(t *testing.T) {
	first := Render(chain(awkward))
	for range 20 {
		if !bytes.Equal(first, Render(chain(awkward))) {
			t.Fatal("two drawings of one program differ")
		}
	}
}

// Ranges of split tensors say where they lie, in bytes counted by hand; a token
// of one row has 256.
func TestSplitIsDrawn(t *testing.T) {
	for batch, want := range map[int64][]string{
		1: {`h.head\nSlice\nbytes [0,1280) of its buffer`, `h.tail\nMul\nbytes [1280,2048) of its buffer`, `h.whole\nConcat\nparts in place`},
		3: {`h.head\nSlice\n3 rows of 1280 bytes, 2048 apart, from 0 on`, `h.range\nSlice\npacks 3 rows of 768 bytes, 2048 apart, from 1280 on`,
			`lane host-to-device\n3 rows of 1280 bytes, 2048 apart, from 0 on`, `h.whole\nConcat\nparts in place`},
	} {
		c, err := handmade.Split(batch)
		if err != nil {
			t.Fatal(err)
		}
		text := string(Render(c.Program))
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("batch %d: nothing reads %s in\n%s", batch, w, text)
			}
		}
		// Dashed are the ranges and joins that move nothing.
		if n, want := strings.Count(text, `"filled,dashed"`), map[int64]int{1: 6, 3: 2}[batch]; n != want {
			t.Errorf("batch %d: %d nodes move nothing, want %d", batch, n, want)
		}
	}
}
