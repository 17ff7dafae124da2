package passes

import (
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"memoc/ir"
	"memoc/ir/diag"
)

// Runner runs the pipeline over a Context.
type Runner struct {
	Dump func(index int, pass string, g *ir.Graph) error // for -d=<pass>/dump
	Out  io.Writer                                       // for -d=<pass>/time
	// Reproduce is the command that runs the same compilation, for the report
	// of a panic.
	Reproduce string
}

// Run carries c through the pipeline. The graph is verified after every pass;
// a panic in a pass becomes an error that names pass and model.
func (r *Runner) Run(c *Context) error { return r.RunUntil(c, Place+1) }

// RunUntil is Run of the stages before the given one.
func (r *Runner) RunUntil(c *Context, stage Stage) error {
	if c.Report == nil {
		c.Report = func(*diag.Diagnostic) {}
	}
	for i, p := range Pipeline {
		if p.Stage >= stage {
			break
		}
		opt, set := c.Options.Debug[p.Name]
		if !set {
			opt.Limit = -1
		}
		if opt.Off {
			continue
		}
		c.limit = opt.Limit
		if c.Progress != nil {
			c.Progress(p.Name, float64(i)/float64(len(Pipeline)))
		}
		start := time.Now()
		res, err := r.runOne(p, c)
		if err != nil {
			return err
		}
		took := time.Since(start)
		c.Log = append(c.Log, ir.PassRecord{Pass: p.Name, Changed: res.Changed, Stats: res.Stats, Nanos: took.Nanoseconds()})
		if opt.Time && r.Out != nil {
			fmt.Fprintf(r.Out, "%-10s %12v  %s\n", p.Name, took, statsLine(res.Stats))
		}
		if res.Changed {
			verify := ir.Verify
			if p.Stage < Infer {
				verify = ir.VerifyStructure // types are not there yet
			}
			if err := verify(c.Graph); err != nil {
				return &diag.Diagnostic{ID: "internal", Severity: diag.Error,
					Message: fmt.Sprintf("BUG: the graph is broken after pass %q: %v", p.Name, err), Help: r.reproduce()}
			}
		}
		if opt.Dump && r.Dump != nil {
			if err := r.Dump(i, p.Name, c.Graph); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Runner) runOne(p *Pass, c *Context) (res Result, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = &diag.Diagnostic{ID: "internal", Severity: diag.Error,
				Message: fmt.Sprintf("BUG: pass %q panicked on %s: %v\n%s", p.Name, c.Model.Path, x, debug.Stack()), Help: r.reproduce()}
		}
	}()
	return p.Run(c)
}

func (r *Runner) reproduce() string {
	if r.Reproduce == "" {
		return ""
	}
	return "please report it with: " + r.Reproduce
}

func statsLine(stats []ir.KV) string {
	s := ""
	for _, kv := range stats {
		s += kv.Key + "=" + kv.Value + " "
	}
	return s
}

func stat(key string, n int) ir.KV { return ir.KV{Key: key, Value: fmt.Sprint(n)} }
