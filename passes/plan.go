package passes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/passes/place"
	"memoc/passes/plan"
)

var planPass = Pass{
	Name:  "plan",
	Doc:   "Chooses for every skeletal tensor whether to keep, swap or recompute it, or to split it along the tokens between the last two: the fastest plan of the ladder whose placement fits the budget.",
	Stage: Plan,
	After: []Edge{
		{"cost", "decisions weigh time against bytes"},
		{"schedule", "lifetimes follow from the order"},
		{"liveness", "candidates are storages that wait between forward and backward"},
	},
	Run: runPlan,
}

// runPlan without a budget keeps everything, and what follows from weights alone
// is made again, as in the unplanned peak that shares are taken of; unless a rung
// is faster within that peak.
func runPlan(c *Context) (Result, error) {
	if c.Options.Choose != nil {
		return runChosen(c)
	}
	ladder, err := c.Problem.Search(plan.Options{Policy: c.Options.Policy})
	if err != nil {
		return Result{}, err
	}
	c.Ladder = ladder
	c.Metrics.HostBudget = c.hostBudget()
	budget := c.Options.Budget.Limit(c.Metrics.Persistent+c.Metrics.OutputBytes, c.Metrics.PeakUnplanned)
	c.Metrics.Budget = budget
	if budget == 0 {
		return c.unbounded()
	}
	time, tried, err := c.fastest(budget)
	if err != nil {
		return Result{}, err
	}
	chunked := false
	if c.mayChunk() {
		if chunked, err = c.chooseChunks(budget, time); err != nil {
			return Result{}, err
		}
	}
	if c.Schedule == nil {
		return Result{}, infeasible(c, budget)
	}
	stats, err := c.compareTwoLevel()
	stats = append(stats, stat("rungs", len(c.Ladder.Rungs)), stat("placed", tried))
	if chunked {
		stats = append(stats, stat("chunks", c.Metrics.Chunks))
	}
	return Result{Changed: chunked, Stats: stats}, err
}

// unbounded is the plan without a budget.
func (c *Context) unbounded() (Result, error) {
	initial, err := placed(c, c.Problem.Initial(), 0)
	if err != nil {
		return Result{}, err
	}
	slow, err := orderedTime(c, &initial)
	if err != nil {
		return Result{}, err
	}
	time, tried, err := c.fastest(max(c.Metrics.PeakUnplanned, initial.height))
	if err != nil {
		return Result{}, err
	}
	if time < 0 || time >= slow {
		c.placement, c.Schedule = initial, initial.schedule
	}
	stats, err := c.compareTwoLevel()
	return Result{Stats: append(stats, stat("rungs", len(c.Ladder.Rungs)), stat("placed", tried))}, err
}

// runChosen carries out the choices of Options.Choose.
func runChosen(c *Context) (Result, error) {
	c.Ladder = &plan.Ladder{}
	c.Metrics.HostBudget = c.hostBudget()
	budget := c.Options.Budget.Limit(c.Metrics.Persistent+c.Metrics.OutputBytes, c.Metrics.PeakUnplanned)
	c.Metrics.Budget = budget
	p, err := placed(c, c.Options.Choose(c.Problem), 0)
	if err != nil {
		return Result{}, err
	}
	if budget > 0 && p.height > budget || p.host.Height > c.hostBudget() {
		return Result{}, &Infeasible{Budget: budget, Smallest: p.height, Host: c.hostBudget(), Persistent: c.Metrics.Persistent, Alive: alive(c, p.schedule)}
	}
	c.placement, c.Schedule = p, p.schedule
	stats, err := c.compareTwoLevel()
	return Result{Stats: stats}, err
}

// fastest places the rungs of the ladder that may fit the budget and takes the
// one that is fastest with the waits its offsets ask for. The search knows no
// offsets: a rung is never faster than it took it to be, so that those it took
// to be slower than one in hand need no look. A larger budget lets more rungs
// in, and is therefore never slower. Placing is bounded by a count of buffers
// that no model has needed. best is the time of that plan, < 0 if none fits.
func (c *Context) fastest(budget int64) (best ir.Nanos, tried int, err error) {
	best = -1
	left := fastestWork
	for _, r := range c.Ladder.Rungs {
		if best >= 0 && (r.Time >= best || left <= 0) {
			break
		}
		if c.Metrics.Persistent+r.Peak > budget || r.HostPeak > c.hostBudget() {
			continue
		}
		p, err := placed(c, r.Choice, r.Limit)
		if err != nil {
			return best, tried, err
		}
		tried++
		if p.height > budget || p.host.Height > c.hostBudget() {
			continue
		}
		t, err := orderedTime(c, &p)
		if err != nil {
			return best, tried, err
		}
		left -= len(p.schedule.Buffers)
		if best < 0 || t < best {
			best, c.Schedule, c.placement = t, p.schedule, p
		}
	}
	return best, tried, nil
}

// fastestWork is the buffers to be placed in search of a plan that its offsets
// slow down less.
const fastestWork = 1 << 19

// placement is a choice carried out and placed.
type placement struct {
	choice   []plan.Choice
	schedule *plan.Schedule
	device   *place.Solution // of the moving buffers, above the persistent ones
	host     *place.Solution
	height   int64 // of the device arena at most, persistent bytes included
}

// compareTwoLevel places the chosen schedule with one packing for each layer
// class as well, and keeps the lower of the two placements if it asks for no
// longer waits.
func (c *Context) compareTwoLevel() ([]ir.KV, error) {
	two, err := twoLevel(c, c.Schedule, deviceProblem(c, c.Schedule))
	if err != nil || two == nil {
		return nil, err
	}
	c.Metrics.FlatPeak = c.placement.height
	c.Metrics.TwoLevelPeak = c.placement.height - c.placement.device.Height + two.Height
	lower := c.placement
	lower.device, lower.height = two, c.Metrics.TwoLevelPeak
	flatTime, err := orderedTime(c, &c.placement)
	if err != nil {
		return nil, err
	}
	time, err := orderedTime(c, &lower)
	if err == nil && two.Height < c.placement.device.Height && time <= flatTime {
		c.placement = lower
	}
	return nil, err
}

// placeWork bounds the search for one placement: a plan may need several, and
// almost always the first answer is the bound.
const placeWork = 1 << 27

func placed(c *Context, choice []plan.Choice, limit int64) (placement, error) {
	s, err := c.Problem.BuildWithin(choice, limit)
	if err != nil {
		return placement{}, err
	}
	device, err := place.Solve(context.Background(), deviceProblem(c, s), place.Options{Work: placeWork})
	if err != nil {
		return placement{}, err
	}
	host, err := place.Solve(context.Background(), hostProblem(s), place.Options{Work: placeWork})
	if err != nil {
		return placement{}, err
	}
	return placement{choice, s, device, host, c.Metrics.Persistent + cutConstants(c, s) + device.Height}, nil
}

// deviceProblem states the placement of a schedule's moving buffers: those of
// its instances first, then one per workspace. Persistent buffers lie below
// them and are no part of it.
func deviceProblem(c *Context, s *plan.Schedule) *place.Problem {
	p := &place.Problem{}
	for i, b := range s.Buffers {
		p.Buffers = append(p.Buffers, place.Buffer{ID: fmt.Sprint(i), Size: b.Bytes, Align: ir.Align, Start: b.First, End: b.End})
	}
	for i, e := range s.Entries {
		if w := workspace(c, &e); w > 0 {
			p.Buffers = append(p.Buffers, place.Buffer{ID: fmt.Sprintf("w%d", i), Size: w, Align: ir.Align, Start: i, End: i + 1})
		}
	}
	return p
}

// hostProblem states the placement of a schedule's host slots.
func hostProblem(s *plan.Schedule) *place.Problem {
	p := &place.Problem{}
	for i, h := range s.Host {
		p.Buffers = append(p.Buffers, place.Buffer{ID: fmt.Sprint(i), Size: h.Bytes, Align: ir.Align, Start: h.First, End: h.End})
	}
	return p
}

func workspace(c *Context, e *plan.Entry) int64 {
	if e.Op < 0 {
		return 0
	}
	return c.Problem.Ops[e.Op].Workspace
}

// infeasible is the error of a budget that no plan fits, in whatever number of
// chunks: it names the smallest that works and what is alive at that plan's
// peak.
func infeasible(c *Context, budget int64) error {
	out, err := leastOf(c, budget)
	for _, v := range c.considered {
		if err != nil {
			return err
		}
		var other *Infeasible
		if other, err = leastOf(v, budget); err == nil && other.Smallest >= 0 && (out.Smallest < 0 || other.Smallest < out.Smallest) {
			out = other
		}
	}
	if err != nil {
		return err
	}
	return out
}

// leastOf is the error as c's own ladder has it.
func leastOf(c *Context, budget int64) (*Infeasible, error) {
	rungs := slices.DeleteFunc(slices.Clone(c.Ladder.Rungs), func(r plan.Rung) bool { return r.HostPeak > c.hostBudget() })
	slices.SortStableFunc(rungs, func(a, b plan.Rung) int { return compare(a.Peak, b.Peak) })
	least := int64(-1)
	var at *plan.Schedule
	for _, r := range rungs {
		if least >= 0 && c.Metrics.Persistent+r.Peak >= least {
			break // its placement is no lower than its peak
		}
		p, err := placed(c, r.Choice, r.Limit)
		if err != nil {
			return nil, err
		}
		if p.host.Height <= c.hostBudget() && (least < 0 || p.height < least) {
			least, at = p.height, p.schedule
		}
	}
	return &Infeasible{Budget: budget, Smallest: least, Chunks: c.Metrics.Chunks, Host: c.hostBudget(), Policy: c.Options.Policy, Persistent: c.Metrics.Persistent, Alive: alive(c, at)}, nil
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Infeasible is the error of a budget below every plan.
type Infeasible struct {
	Budget     int64
	Smallest   int64 // bytes of the smallest budget that has a plan
	Chunks     int   // in which that plan runs feed-forward layers; 0: whole
	Host       int64 // bytes of host memory that plans could use
	Policy     plan.Policy
	Persistent int64
	Alive      []AliveTensor // at the peak of that plan, largest first
}

// AliveTensor is a tensor alive at a peak.
type AliveTensor struct {
	Name  string
	Type  string
	Bytes int64
	Class ir.Class
}

// Error says what was asked, what works, and what is in the way.
func (e *Infeasible) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no plan%s fits a budget of %s; the smallest that works with %s of host memory is %s (--budget %d)%s, of which %s are weights, inputs and constants; alive at its peak:",
		ofPolicy(e.Policy), FormatBytes(e.Budget), FormatBytes(e.Host), FormatBytes(e.Smallest), e.Smallest, inChunks(e.Chunks), FormatBytes(e.Persistent))
	for i, t := range e.Alive {
		if i == 8 {
			fmt.Fprintf(&b, "\n  and %d more", len(e.Alive)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %-12s %s %s (%s)", FormatBytes(t.Bytes), t.Name, t.Type, t.Class)
	}
	return b.String()
}

// ofPolicy names the policy that left means out: another may fit.
func ofPolicy(p plan.Policy) string {
	if p == plan.Auto {
		return ""
	}
	return fmt.Sprintf(" of the policy %s", p)
}

func inChunks(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" with feed-forward layers in %d chunks", n)
}

// Diagnostic is the error as a located message.
func (e *Infeasible) Diagnostic() *diag.Diagnostic {
	return &diag.Diagnostic{ID: "infeasible", Severity: diag.Error, Message: e.Error()}
}

// alive lists the tensors alive at a schedule's peak, largest first.
func alive(c *Context, s *plan.Schedule) []AliveTensor {
	if s == nil {
		return nil
	}
	var out []AliveTensor
	for _, in := range s.Instances {
		if in.First <= s.PeakAt && s.PeakAt < in.End {
			st := &c.Live.Storages[c.Origin.storage[in.Tensor]]
			v := st.Known(c.Live.Graph)
			out = append(out, AliveTensor{v.Name, v.Type.String(), st.Bytes, st.Class})
		}
	}
	if len(s.Entries) > 0 {
		e := &s.Entries[s.PeakAt]
		if w := workspace(c, e); w > 0 {
			out = append(out, AliveTensor{c.Origin.node[e.Op].Name, "scratch memory", w, ir.Scratch})
		}
	}
	slices.SortStableFunc(out, func(a, b AliveTensor) int { return compare(b.Bytes, a.Bytes) })
	return out
}

// FormatBytes prints a size in GiB, MiB, KiB or bytes.
func FormatBytes(n int64) string {
	switch x := float64(n); {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", x/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.2f MiB", x/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.2f KiB", x/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
