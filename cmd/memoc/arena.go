package main

import (
	"bufio"
	"fmt"
	"html"
	"io"

	"memoc/ir"
	"memoc/passes"
)

// fill is a kind of buffer in the drawing of the arena, in the order of the
// legend.
type fill struct{ text, colour string }

var (
	fillPersistent = fill{"weights, inputs, constants", "#c9c9c9"}
	fillOutput     = fill{"outputs", "#b9a6d9"}
	fillKeep       = fill{"kept for the backward pass", "#7fa8d9"}
	fillSwap       = fill{"copied to the host and back", "#6cbf78"}
	fillRemat      = fill{"recomputed", "#f0a848"}
	fillTransient  = fill{"everything else", "#ece3cf"}
	fills          = []fill{fillPersistent, fillOutput, fillKeep, fillSwap, fillRemat, fillTransient}
)

// bufferFills chooses each buffer's colour. A buffer may hold several tensors
// one after the other, in place: the one with the rarer fate decides.
func bufferFills(p *ir.Program) []fill {
	kinds := map[string]ir.DecisionKind{}
	for _, d := range p.Decisions {
		kinds[d.Tensor] = d.Kind
	}
	out := make([]fill, len(p.Buffers))
	for i, b := range p.Buffers {
		out[i] = map[ir.Class]fill{ir.Persistent: fillPersistent, ir.Output: fillOutput, ir.Skeletal: fillKeep}[b.Class]
		if out[i].text == "" {
			out[i] = fillTransient
		}
	}
	mark := func(buffer int, name string) {
		switch kind, decided := kinds[name]; {
		case buffer < 0 || !decided || p.Buffers[buffer].Class == ir.Persistent:
		case kind == ir.Swap:
			out[buffer] = fillSwap
		case kind == ir.Remat && out[buffer] != fillSwap:
			out[buffer] = fillRemat
		}
	}
	for i, b := range p.Buffers {
		mark(i, b.Name)
	}
	for _, n := range p.Graph.Nodes {
		for _, v := range n.Out {
			if v != nil {
				mark(p.Places[v.ID].Buffer, v.Name)
			}
		}
	}
	return out
}

// The drawing's size in its own units, and its margins.
const (
	arenaWidth, arenaHeight        = 1200.0, 700.0
	arenaLeft, arenaTop, arenaFoot = 20.0, 64.0, 30.0
)

// drawArena draws the device arena over the step as SVG: steps across,
// addresses up, a box for each buffer's life with its name as tooltip.
func drawArena(w io.Writer, p *ir.Program) error {
	a := p.Arenas[ir.DeviceArena]
	steps := max(len(p.Steps), 1)
	x := func(step int) float64 { return arenaLeft + float64(step)/float64(steps)*(arenaWidth-2*arenaLeft) }
	y := func(at int64) float64 {
		return arenaHeight - arenaFoot - float64(at)/float64(max(a.Size, 1))*(arenaHeight-arenaTop-arenaFoot)
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"14\">\n", arenaWidth, arenaHeight)
	fmt.Fprintf(out, "<rect width=\"%g\" height=\"%g\" fill=\"white\"/>\n", arenaWidth, arenaHeight)
	fmt.Fprintf(out, "<text x=\"%g\" y=\"20\">%s: device arena, %s (lower bound %s); %d steps across, addresses up</text>\n", arenaLeft,
		html.EscapeString(p.Name), passes.FormatBytes(a.Size), passes.FormatBytes(a.LowerBound), len(p.Steps))
	for i, f := range fills {
		at := arenaLeft + 196*float64(i)
		fmt.Fprintf(out, "<rect x=\"%g\" y=\"34\" width=\"14\" height=\"14\" fill=\"%s\" stroke=\"#333\" stroke-width=\"0.3\"/>", at, f.colour)
		fmt.Fprintf(out, "<text x=\"%g\" y=\"46\" font-size=\"12\">%s</text>\n", at+20, f.text)
	}
	colours := bufferFills(p)
	fmt.Fprintln(out, `<g stroke="#333" stroke-width="0.3">`)
	for i, b := range p.Buffers {
		if b.Arena != ir.DeviceArena || b.Size == 0 {
			continue
		}
		fmt.Fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"><title>%s: %d bytes at %d, steps [%d,%d)</title></rect>\n",
			x(b.First), y(b.Offset+b.Size), x(b.End)-x(b.First), y(b.Offset)-y(b.Offset+b.Size), colours[i].colour,
			html.EscapeString(b.Name), b.Size, b.Offset, b.First, b.End)
	}
	fmt.Fprintf(out, "</g>\n<text x=\"%g\" y=\"%g\">0</text>", arenaLeft, arenaHeight-10)
	fmt.Fprintf(out, "<text x=\"%g\" y=\"%g\" text-anchor=\"end\">step %d</text>\n</svg>\n", arenaWidth-arenaLeft, arenaHeight-10, len(p.Steps))
	return out.Flush()
}
