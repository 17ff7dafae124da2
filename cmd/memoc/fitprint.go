package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"memoc/passes"
	"memoc/passes/fit"
)

// fitResult is what fit found, ready to be written.
type fitResult struct {
	model, vary string
	opt         fit.Options
	curves      []fit.Curve
}

// nothing is the error of a model that no policy fits at any size: it says what
// the smallest would need. nil where something fits.
func (r *fitResult) nothing() error {
	var best *fit.Point
	for _, c := range r.curves {
		if c.Largest >= 0 {
			return nil
		}
		if p := &c.Points[0]; best == nil || p.Needs > 0 && (best.Needs == 0 || p.Needs < best.Needs) {
			best = p
		}
	}
	var full *passes.Infeasible
	if !errors.As(best.Err, &full) {
		return best.Err
	}
	size := passes.FormatBytes
	var b strings.Builder
	fmt.Fprintf(&b, "nothing fits at %s %d, the smallest looked at, in %s of device and %s of host memory", r.vary, best.Size, size(r.opt.Memory), size(r.opt.Host))
	if best.Needs > 0 {
		fmt.Fprintf(&b, ": %s would do (policy %s), of which %s are weights, inputs and constants", size(best.Needs), best.Policy, size(best.Persistent-best.Optimizer))
	}
	if best.Optimizer > 0 {
		fmt.Fprintf(&b, " and %s the optimizer's state (--optimizer-bytes-per-param)", size(best.Optimizer))
	}
	for i, t := range full.Alive {
		if i == 0 {
			b.WriteString("; alive at its peak")
			if r.opt.GPUs > 1 {
				fmt.Fprintf(&b, ", on %d GPUs together", r.opt.GPUs)
			}
		}
		if i == 8 {
			fmt.Fprintf(&b, "\n  and %d more", len(full.Alive)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %-12s %s %s (%s)", size(t.Bytes), t.Name, t.Type, t.Class)
	}
	return &nothingFits{b.String(), full}
}

// nothingFits is an Infeasible in the words of fit.
type nothingFits struct {
	text  string
	cause *passes.Infeasible
}

func (e *nothingFits) Error() string { return e.text }
func (e *nothingFits) Unwrap() error { return e.cause }

func (r *fitResult) print(w io.Writer) error {
	r.head(w)
	if len(r.opt.At) == 0 {
		fmt.Fprintf(w, "\n%s\n", map[string]string{"seq": "longest sequence that fits", "batch": "largest batch that fits"}[r.vary])
		if err := r.table(w, r.largest()); err != nil {
			return err
		}
		fmt.Fprintln(w, "\nevery size looked at")
	} else {
		fmt.Fprintln(w)
	}
	return r.table(w, r.bySize())
}

func (r *fitResult) head(w io.Writer) {
	d, size := r.opt.Device, passes.FormatBytes
	if r.opt.GPUs == 1 {
		fmt.Fprintf(w, "%s on %s\n", r.model, d.Description)
	} else {
		fmt.Fprintf(w, "%s on %d x %s, ideally shared; bytes and tokens/s are those of one GPU\n", r.model, r.opt.GPUs, d.Description)
	}
	fmt.Fprintf(w, "  device memory  %s", size(r.opt.Memory))
	if p := r.first(); p.Optimizer > 0 {
		fmt.Fprintf(w, ", of which %s are the optimizer's state (%v bytes a parameter)", size(p.Optimizer), r.opt.OptimizerBytes)
	}
	fmt.Fprintf(w, "\n  host memory    %s\n", size(r.opt.Host))
}

// first is a point of a model that could be planned.
func (r *fitResult) first() fit.Point { return r.curves[0].Points[0] }

// largest is the largest size of each policy that has one, and the first of
// each other.
func (r *fitResult) largest() []fit.Point {
	var out []fit.Point
	for _, c := range r.curves {
		out = append(out, c.Points[max(c.Largest, 0)])
	}
	return out
}

// bySize is all points, sizes ascending, policies as given.
func (r *fitResult) bySize() []fit.Point {
	var out []fit.Point
	for _, c := range r.curves {
		out = append(out, c.Points...)
	}
	slices.SortStableFunc(out, func(a, b fit.Point) int { return int(a.Size - b.Size) })
	return out
}

func (r *fitResult) table(out io.Writer, points []fit.Point) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\tpolicy\tpeak\thost\tstep time\tstalled\trecomputed\ttokens/s\tMFU\tMFU full\t\n", r.vary)
	size := passes.FormatBytes
	for _, p := range points {
		if p.Err != nil {
			fmt.Fprintf(w, "%d\t%s\t%s\t\t\t\t\t\t\t\t\n", p.Size, p.Policy, r.why(&p))
			continue
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f\t%.2f%%\t%.2f%%\t\n", p.Size, p.Policy, size(p.Peak), size(p.Host), duration(p.Time),
			duration(p.Stall), duration(p.Extra), p.Rate, 100*p.MFU, 100*p.MFUFull)
	}
	return w.Flush()
}

// why says in a few words what keeps a point from fitting.
func (r *fitResult) why(p *fit.Point) string {
	switch {
	case p.Needs > 0:
		return "needs " + passes.FormatBytes(p.Needs)
	case errors.As(p.Err, new(*passes.Infeasible)):
		return "no plan"
	}
	return "no model"
}

func (r *fitResult) csv(w io.Writer) error {
	fmt.Fprintf(w, "policy,%s,fits,tokens,peak_bytes,persistent_bytes,optimizer_bytes,host_bytes,time_ns,stall_ns,extra_compute_ns,tokens_per_s,mfu,mfu_full,needs_bytes\n", r.vary)
	for _, p := range r.bySize() {
		_, err := fmt.Fprintf(w, "%s,%d,%v,%d,%d,%d,%d,%d,%d,%d,%d,%.6g,%.6f,%.6f,%d\n", p.Policy, p.Size, p.Err == nil, p.Tokens, p.Peak, p.Persistent, p.Optimizer,
			p.Host, p.Time, p.Stall, p.Extra, p.Rate, p.MFU, p.MFUFull, p.Needs)
		if err != nil {
			return err
		}
	}
	return nil
}

// fitPoint is a point as JSON.
type fitPoint struct {
	Size       int64   `json:"size"`
	Fits       bool    `json:"fits"`
	Tokens     int64   `json:"tokens"`
	Peak       int64   `json:"peak"`
	Persistent int64   `json:"persistent"`
	Optimizer  int64   `json:"optimizer"`
	Host       int64   `json:"host"`
	Time       int64   `json:"time_ns"`
	Stall      int64   `json:"stall_ns"`
	Extra      int64   `json:"extra_compute_ns"`
	Rate       float64 `json:"tokens_per_s"`
	MFU        float64 `json:"mfu"`
	MFUFull    float64 `json:"mfu_full"`
	Needs      int64   `json:"needs,omitempty"`
	Why        string  `json:"why,omitempty"`
}

type fitCurve struct {
	Policy  string     `json:"policy"`
	Largest int64      `json:"largest"` // 0: nothing fits
	Open    bool       `json:"open"`
	Points  []fitPoint `json:"points"`
}

func (r *fitResult) json(w io.Writer) error {
	var curves []fitCurve
	for _, c := range r.curves {
		out := fitCurve{Policy: c.Policy.String(), Open: c.Open}
		if c.Largest >= 0 {
			out.Largest = c.Points[c.Largest].Size
		}
		for _, p := range c.Points {
			f := fitPoint{p.Size, p.Err == nil, p.Tokens, p.Peak, p.Persistent, p.Optimizer, p.Host, p.Time, p.Stall, p.Extra, p.Rate, p.MFU, p.MFUFull, p.Needs, ""}
			if p.Err != nil {
				f.Why, _, _ = strings.Cut(p.Err.Error(), "; alive at its peak")
			}
			out.Points = append(out.Points, f)
		}
		curves = append(curves, out)
	}
	return json.NewEncoder(w).Encode(struct {
		Model  string     `json:"model"`
		Vary   string     `json:"vary"`
		Device string     `json:"device"`
		GPUs   int        `json:"gpus"`
		Memory int64      `json:"memory"`
		Host   int64      `json:"host"`
		Curves []fitCurve `json:"curves"`
	}{r.model, r.vary, r.opt.Device.Name, r.opt.GPUs, r.opt.Memory, r.opt.Host, curves})
}
