// Package fit asks how long a sequence, or how large a batch, fits a device
// under each policy, and what it costs: memory, time, tokens a second and the
// share of the device's peak rate that does the model's work (MFU). Every answer
// is a plan, made and placed as compile makes it; nothing is written.
package fit

import (
	"errors"
	"sync"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/passes"
	"memoc/passes/cost"
	"memoc/passes/plan"
)

// Source makes the compilation of a model at one size of what varies, not run
// yet. Its Device and budgets are set here.
type Source func(size int64) (*passes.Context, error)

// Options is what is asked. Sizes of memory are those of one GPU.
type Options struct {
	Policies []plan.Policy
	Device   *cost.Device
	GPUs     int   // that share the model ideally: see cost.Device.Times
	Memory   int64 // device bytes that a plan and the optimizer may take
	Host     int64 // host bytes
	// OptimizerBytes is the optimizer's state in bytes for each parameter that
	// the graph does not hold: it is there always, and is read and written once a
	// step.
	OptimizerBytes float64
	At             []int64 // the sizes to look at; none: From, doubled until nothing fits, and the largest that fits
	From, Max      int64   // the smallest and the largest size looked at
	// Step is how near the largest size is found. 0: a 64th of it, but at least
	// From.
	Step     int64
	Progress func(p plan.Policy, size int64) // before each plan; may be nil
}

// Point is one policy at one size. Bytes and rates are those of one GPU.
type Point struct {
	Policy plan.Policy
	Size   int64
	Tokens int64 // of a step, on all GPUs together
	// Err says why there is no plan; nil where there is one.
	Err        error
	Needs      int64 // least bytes of memory that has a plan, where none fits; 0: unknown
	Peak       int64 // device bytes, optimizer included
	Persistent int64 // of them weights, inputs, constants and optimizer
	Optimizer  int64
	Host       int64
	Time       ir.Nanos // of a step with its update
	Stall      ir.Nanos // of it waiting for copies
	Extra      ir.Nanos // of it recomputation
	Rate       float64  // tokens a second
	MFU        float64  // by Work.Causal
	MFUFull    float64  // by Work.Full
}

// Curve is a policy's points by ascending size.
type Curve struct {
	Policy plan.Policy
	Points []Point
	// Largest is the position in Points of the largest size that fits, -1 if none
	// does. Open says that larger ones were not tried: Max was reached, or At
	// says what to look at.
	Largest int
	Open    bool
}

// Search looks at sizes under every policy. A model that cannot be planned at all
// at the first size is an error; one that a larger size breaks (a table of
// positions that ends) just ends there.
func Search(source Source, opt Options) ([]Curve, error) {
	s := &search{source: source, opt: opt, curves: make([]Curve, len(opt.Policies))}
	for i, p := range opt.Policies {
		s.curves[i] = Curve{Policy: p, Largest: -1, Open: true}
	}
	if err := s.series(); err != nil {
		return nil, err
	}
	if len(opt.At) == 0 {
		if err := s.refine(); err != nil {
			return nil, err
		}
	}
	return s.curves, nil
}

type search struct {
	source Source
	opt    Options
	curves []Curve
	mu     sync.Mutex // of Options.Progress
}

// series looks at the sizes given, or at From and its doubles, under every
// policy; one whose last size did not fit is not asked about larger ones.
func (s *search) series() error {
	sizes := s.opt.At
	if len(sizes) == 0 {
		for n := s.opt.From; n <= s.opt.Max; n *= 2 {
			sizes = append(sizes, n)
		}
	}
	for k, size := range sizes {
		var open []*Curve
		for i := range s.curves {
			if c := &s.curves[i]; c.Open {
				open = append(open, c)
			}
		}
		if len(open) == 0 {
			return nil
		}
		m, refused := s.prepare(size)
		if refused != nil && (k == 0 || isFault(refused)) {
			return refused
		}
		err := s.each(open, func(c *Curve) error {
			p, err := s.try(m, refused, c.Policy, size)
			c.add(p)
			c.Open = p.Err == nil || len(s.opt.At) > 0
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Curve) add(p Point) {
	at := len(c.Points)
	for at > 0 && c.Points[at-1].Size > p.Size {
		at--
	}
	c.Points = append(c.Points, Point{})
	copy(c.Points[at+1:], c.Points[at:])
	c.Points[at] = p
	c.Largest = -1
	for i := range c.Points {
		if c.Points[i].Err == nil {
			c.Largest = i
		}
	}
}

// refine halves the distance between the largest size that fits and the
// smallest that does not.
func (s *search) refine() error {
	var closed []*Curve
	for i := range s.curves {
		if c := &s.curves[i]; c.Largest >= 0 && !c.Open {
			closed = append(closed, c)
		}
	}
	return s.each(closed, func(c *Curve) error {
		fits, over := c.Points[c.Largest], c.Points[c.Largest+1]
		step := s.opt.Step
		if step == 0 {
			step = max(fits.Size/64, s.opt.From)
		}
		for over.Size-fits.Size > step {
			size := fits.Size + (over.Size-fits.Size)/2/step*step
			if size == fits.Size {
				size += step
			}
			m, refused := s.prepare(size)
			if refused != nil && isFault(refused) {
				return refused
			}
			p, err := s.try(m, refused, c.Policy, size)
			switch {
			case err != nil:
				return err
			case p.Err == nil:
				fits = p
			default:
				over = p
			}
		}
		if c.Points[c.Largest].Size != fits.Size {
			c.add(fits)
		}
		return nil
	})
}

// each runs f for several curves at once and returns the first one's error.
func (s *search) each(curves []*Curve, f func(*Curve) error) error {
	errs := make([]error, len(curves))
	var wg sync.WaitGroup
	for i, c := range curves {
		wg.Go(func() { errs[i] = f(c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// model is what all policies share at one size.
type model struct {
	ctx    *passes.Context
	work   *Work
	tokens int64
	optim  int64    // bytes of the optimizer, all GPUs together
	update ir.Nanos // time of the optimizer's update
}

func (s *search) prepare(size int64) (*model, error) {
	ctx, err := s.source(size)
	if err != nil {
		return nil, err
	}
	n := int64(s.opt.GPUs)
	dev := s.opt.Device.Times(s.opt.GPUs)
	ctx.Options.Device, ctx.Options.HostBudget = dev, n*s.opt.Host
	if err := (&passes.Runner{}).RunUntil(ctx, passes.Plan); err != nil {
		return nil, err
	}
	m := &model{ctx: ctx, tokens: tokensOf(ctx.Graph)}
	if m.work, err = WorkOf(ctx.Graph); err != nil {
		return nil, err
	}
	m.optim = int64(s.opt.OptimizerBytes * float64(m.work.Params))
	if m.optim > 0 {
		moved := m.optim + m.work.ParamBytes // states read with the gradients, written with the weights
		m.update = dev.Time(ir.Cost{Read: moved, Write: moved, DType: ir.Float})
	}
	return m, nil
}

// isFault tells memoc's own fault from a model that a size does not suit.
func isFault(err error) bool {
	var d *diag.Diagnostic
	return errors.As(err, &d) && d.ID == "internal"
}

// try plans one policy at one size; refused is why there is no model at that
// size. That no plan fits is a point, not an error.
func (s *search) try(m *model, refused error, policy plan.Policy, size int64) (Point, error) {
	p := Point{Policy: policy, Size: size, Err: refused}
	if refused != nil {
		return p, nil
	}
	s.report(policy, size)
	n := int64(s.opt.GPUs)
	p.Tokens, p.Optimizer = m.tokens, perGPU(m.optim, n)
	p.Persistent = perGPU(m.optim+m.ctx.Metrics.Persistent, n)
	t, err := m.ctx.Try(policy, passes.Budget{Bytes: max(n*s.opt.Memory-m.optim, 1)})
	if full := (*passes.Infeasible)(nil); errors.As(err, &full) {
		p.Err = err
		if full.Smallest > 0 {
			p.Needs = perGPU(full.Smallest+m.optim, n)
		}
		return p, nil
	}
	if err != nil {
		return p, err
	}
	p.Peak, p.Host = perGPU(t.Peak+m.optim, n), perGPU(t.HostPeak, n)
	p.Time, p.Stall, p.Extra = t.Time+m.update, t.Stall, t.Extra
	if p.Time > 0 {
		causal, full := m.work.least(m.ctx.Options.Device)
		p.Rate = float64(p.Tokens) / float64(n) / (float64(p.Time) / 1e9)
		p.MFU, p.MFUFull = causal/float64(p.Time), full/float64(p.Time)
	}
	return p, nil
}

// perGPU is a share of bytes, rounded up.
func perGPU(bytes, gpus int64) int64 { return (bytes + gpus - 1) / gpus }

func (s *search) report(p plan.Policy, size int64) {
	if s.opt.Progress == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opt.Progress(p, size)
}

// tokensOf is the tokens of a step: the elements of the largest input of
// integers (token numbers, labels), or else the first extent of the first input.
func tokensOf(g *ir.Graph) int64 {
	most := int64(0)
	for _, v := range g.Inputs {
		if dims, ok := v.Type.Shape.Static(); ok && len(dims) > 0 && (v.Type.DType == ir.Int64 || v.Type.DType == ir.Int32) {
			most = max(most, ir.Elems(dims))
		}
	}
	if most == 0 && len(g.Inputs) > 0 {
		if dims, ok := g.Inputs[0].Type.Shape.Static(); ok && len(dims) > 0 {
			most = dims[0]
		}
	}
	return most
}
