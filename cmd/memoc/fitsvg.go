package main

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
	"slices"

	"memoc/passes"
	"memoc/passes/fit"
)

// policyColours are those of the curves, in the order of the policies.
var policyColours = []string{"#2a6fb0", "#888888", "#d1711c", "#3a923a", "#b03060", "#7a5195", "#8c6d31"}

// svg plots utilization (MFU, masked pairs left out) over size, which is on a
// logarithmic scale. A curve ends at the largest size that fits.
func (r *fitResult) svg(w io.Writer) error {
	least, most, top := int64(math.MaxInt64), int64(0), 0.0
	for _, p := range r.bySize() {
		if p.Err == nil {
			least, most, top = min(least, p.Size), max(most, p.Size), max(top, p.MFU)
		}
	}
	top = math.Ceil(max(top, 0.001)*20) / 20 // whole steps of 5 %
	log := func(n int64) int64 { return int64(1e6 * math.Log2(float64(n))) }
	x := scale(log(least), log(most), curveMargin, curveWidth-curveMargin)
	y := scale(0, 1e6, curveHeight-curveMargin, curveMargin)
	px, py := func(n int64) float64 { return x(log(n)) }, func(share float64) float64 { return y(int64(1e6 * share / top)) }
	out := bufio.NewWriter(w)
	r.svgFrame(out, px, py, least, most, top)
	for i, c := range slices.Backward(r.curves) { // the first, auto, is drawn over the others
		colour := policyColours[i%len(policyColours)]
		fmt.Fprintf(out, "<text x=\"%g\" y=\"%g\" fill=\"%s\">%s</text>\n", curveMargin+100*float64(i), curveMargin-16, colour, c.Policy)
		svgCurve(out, c, colour, r.vary, px, py)
	}
	fmt.Fprintln(out, "</svg>")
	return out.Flush()
}

func (r *fitResult) svgFrame(out io.Writer, x func(int64) float64, y func(float64) float64, least, most int64, top float64) {
	fmt.Fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"12\">\n", curveWidth, curveHeight)
	fmt.Fprintf(out, "<rect width=\"%g\" height=\"%g\" fill=\"white\"/>\n", curveWidth, curveHeight)
	fmt.Fprintf(out, "<text x=\"%g\" y=\"30\" text-anchor=\"middle\" font-size=\"16\">%s on %d x %s: model FLOPs utilization over %s</text>\n",
		curveWidth/2, html.EscapeString(r.model), r.opt.GPUs, html.EscapeString(r.opt.Device.Description), r.vary)
	for i := range 5 {
		share := top * float64(i) / 4
		fmt.Fprintf(out, "<path d=\"M%g %.1fH%g\" stroke=\"#ddd\"/>\n", curveMargin, y(share), curveWidth-curveMargin)
		fmt.Fprintf(out, "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%.1f%%</text>\n", curveMargin-6, y(share)+4, 100*share)
	}
	for n := least; n <= most; n *= 2 {
		fmt.Fprintf(out, "<path d=\"M%.1f %gV%g\" stroke=\"#ddd\"/>\n", x(n), curveMargin, curveHeight-curveMargin)
		fmt.Fprintf(out, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%s</text>\n", x(n), curveHeight-curveMargin+18, count(n))
	}
}

func svgCurve(out io.Writer, c fit.Curve, colour, vary string, x func(int64) float64, y func(float64) float64) {
	path := ""
	for _, p := range c.Points {
		if p.Err != nil {
			continue
		}
		step := "L"
		if path == "" {
			step = "M"
		}
		path += fmt.Sprintf("%s%.1f %.1f", step, x(p.Size), y(p.MFU))
	}
	if path == "" {
		return
	}
	fmt.Fprintf(out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" d=\"%s\"/>\n", colour, path)
	for _, p := range c.Points {
		if p.Err == nil {
			fmt.Fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>%s, %s %d: MFU %.2f%%, %.1f tokens/s, peak %s, host %s</title></circle>\n",
				x(p.Size), y(p.MFU), colour, c.Policy, vary, p.Size, 100*p.MFU, p.Rate, passes.FormatBytes(p.Peak), passes.FormatBytes(p.Host))
		}
	}
}

// count is a number as axes show it: 8K, 1M.
func count(n int64) string {
	switch {
	case n%(1<<20) == 0:
		return fmt.Sprintf("%dM", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%dK", n>>10)
	}
	return fmt.Sprint(n)
}
