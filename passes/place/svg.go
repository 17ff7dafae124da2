package place

import (
	"bufio"
	"fmt"
	"html"
	"io"
)

// size of the picture in its own units, and the margin for the labels
const (
	svgWidth  = 1200.0
	svgHeight = 700.0
	svgMargin = 60.0
)

// WriteSVG draws a placement: time across, address up, one box for each stretch
// in which a buffer owns its bytes. A line marks the lower bound.
func WriteSVG(w io.Writer, p *Problem, offsets []int64) error {
	if len(offsets) != len(p.Buffers) {
		return fmt.Errorf("place: %d offsets for %d buffers", len(offsets), len(p.Buffers))
	}
	first, last, top, any := 0, 1, int64(1), false
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if !b.owns() {
			continue
		}
		if !any {
			first, last, any = b.Start, b.End, true
		}
		first, last = min(first, b.Start), max(last, b.End)
		top = max(top, offsets[i]+b.Size)
	}
	out := bufio.NewWriter(w)
	// Wide problems span more steps than int can hold as a difference.
	x := func(step int) float64 {
		return svgMargin + (float64(step)-float64(first))/(float64(last)-float64(first))*(svgWidth-2*svgMargin)
	}
	y := func(at int64) float64 {
		return svgHeight - svgMargin - float64(at)/float64(top)*(svgHeight-2*svgMargin)
	}
	fmt.Fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"12\">\n", svgWidth, svgHeight)
	fmt.Fprintf(out, "<rect width=\"%g\" height=\"%g\" fill=\"white\"/>\n", svgWidth, svgHeight)
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if !b.owns() {
			continue
		}
		hue := mix64(uint64(i), 3) % 360
		fmt.Fprintf(out, "<g fill=\"hsl(%d,55%%,%d%%)\" stroke=\"#333\" stroke-width=\"0.2\"><title>%s: %d bytes at %d, live [%d,%d)</title>\n",
			hue, 62+mix64(uint64(i), 5)%16, html.EscapeString(b.ID), b.Size, offsets[i], b.Start, b.End)
		b.active(func(start, end int) {
			fmt.Fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>\n",
				x(start), y(offsets[i]+b.Size), x(end)-x(start), y(offsets[i])-y(offsets[i]+b.Size))
		})
		fmt.Fprintln(out, "</g>")
	}
	bound := LowerBound(p)
	fmt.Fprintf(out, "<path d=\"M%g %.2fH%g\" stroke=\"#c00\" stroke-dasharray=\"6 4\"/>\n", svgMargin, y(bound), svgWidth-svgMargin)
	fmt.Fprintf(out, "<text x=\"%g\" y=\"%.2f\" fill=\"#c00\">lower bound %d</text>\n", svgMargin+4, y(bound)-4, bound)
	fmt.Fprintf(out, "<text x=\"%g\" y=\"%g\">%d</text>\n", svgMargin, svgHeight-svgMargin+16, first)
	fmt.Fprintf(out, "<text x=\"%g\" y=\"%g\" text-anchor=\"end\">%d</text>\n", svgWidth-svgMargin, svgHeight-svgMargin+16, last)
	fmt.Fprintf(out, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">step</text>\n", svgWidth/2, svgHeight-svgMargin+16)
	fmt.Fprintf(out, "<text x=\"%g\" y=\"%g\">%d bytes, %.4f of the bound</text>\n", svgMargin, svgMargin-8, top, float64(top)/float64(max(bound, 1)))
	fmt.Fprintln(out, "</svg>")
	return out.Flush()
}
