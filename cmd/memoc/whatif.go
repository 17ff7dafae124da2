package main

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"text/tabwriter"

	"memoc/passes"
)

// whatIfFlags ask for the trade-off between budget and step time.
type whatIfFlags struct {
	print bool
	svg   string
}

func (f *flags) whatIf() *whatIfFlags {
	w := &whatIfFlags{}
	f.BoolVar(&w.print, "what-if", false, "print the trade-off between budget and predicted step time")
	f.StringVar(&w.svg, "what-if-svg", "", "draw that trade-off into `FILE.svg`")
	return w
}

func printCurve(out io.Writer, c *passes.Context) error {
	curve := c.WhatIf()
	fmt.Fprintf(out, "\nwhat other budgets would give (%d plans that no other beats in both memory and time)\n", len(curve))
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "budget\tshare\thost\tstep time\tslower\textra compute\tstalled\t")
	least := curve[0].Time
	for _, r := range curve {
		share := 100 * float64(r.Budget) / float64(curve[0].Budget)
		fmt.Fprintf(w, "%s\t%.1f%%\t%s\t%s\t%.2f%%\t%s\t%s\t\n", passes.FormatBytes(r.Budget), share, passes.FormatBytes(r.HostPeak),
			duration(r.Time), 100*float64(r.Time-least)/float64(max(least, 1)), duration(r.Extra), duration(r.Stall))
	}
	return w.Flush()
}

// size of the plot in its own units, and the margin for labels
const (
	curveWidth  = 900.0
	curveHeight = 520.0
	curveMargin = 80.0
)

// drawCurve plots the trade-off: budget across, step time up. Between two plans
// the time of the smaller holds, hence the steps.
func drawCurve(w io.Writer, c *passes.Context) error {
	curve := c.WhatIf()
	last := curve[len(curve)-1]
	x := scale(last.Budget, curve[0].Budget, curveMargin, curveWidth-curveMargin)
	y := scale(curve[0].Time, last.Time, curveHeight-curveMargin, curveMargin)
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"12\">\n", curveWidth, curveHeight)
	fmt.Fprintf(out, "<rect width=\"%g\" height=\"%g\" fill=\"white\"/>\n", curveWidth, curveHeight)
	fmt.Fprintf(out, "<text x=\"%g\" y=\"30\" text-anchor=\"middle\" font-size=\"16\">%s: step time against device memory</text>\n",
		curveWidth/2, html.EscapeString(c.Program.Name))
	for i := range 5 {
		b := last.Budget + (curve[0].Budget-last.Budget)*int64(i)/4
		t := curve[0].Time + (last.Time-curve[0].Time)*int64(i)/4
		fmt.Fprintf(out, "<path d=\"M%.1f %gV%g M%g %.1fH%g\" stroke=\"#ddd\"/>\n", x(b), curveMargin, curveHeight-curveMargin, curveMargin, y(t), curveWidth-curveMargin)
		fmt.Fprintf(out, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%s</text>\n", x(b), curveHeight-curveMargin+18, passes.FormatBytes(b))
		fmt.Fprintf(out, "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", curveMargin-6, y(t)+4, duration(t))
	}
	fmt.Fprintf(out, "<path fill=\"none\" stroke=\"#2a6fb0\" stroke-width=\"1.5\" d=\"M%.1f %.1f", x(curve[0].Budget), y(curve[0].Time))
	for _, r := range curve[1:] {
		fmt.Fprintf(out, "V%.1fH%.1f", y(r.Time), x(r.Budget))
	}
	fmt.Fprintln(out, "\"/>")
	for _, r := range curve {
		fmt.Fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"#2a6fb0\"><title>%s: %s, %s on the host</title></circle>\n",
			x(r.Budget), y(r.Time), passes.FormatBytes(r.Budget), duration(r.Time), passes.FormatBytes(r.HostPeak))
	}
	if m := &c.Program.Metrics; m.Budget > 0 {
		at := min(max(m.Budget, last.Budget), curve[0].Budget)
		fmt.Fprintf(out, "<path d=\"M%.1f %gV%g\" stroke=\"#c00\" stroke-dasharray=\"6 4\"/>\n", x(at), curveMargin, curveHeight-curveMargin)
		fmt.Fprintf(out, "<text x=\"%.1f\" y=\"%g\" fill=\"#c00\">budget %s</text>\n", x(at)+4, curveMargin+12, passes.FormatBytes(m.Budget))
	}
	fmt.Fprintln(out, "</svg>")
	return out.Flush()
}

// scale maps [from, to] to [a, b]; an empty range maps to the middle.
func scale(from, to int64, a, b float64) func(int64) float64 {
	return func(v int64) float64 {
		if from == to {
			return (a + b) / 2
		}
		return a + (b-a)*float64(v-from)/float64(to-from)
	}
}
