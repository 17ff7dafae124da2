package passes

import (
	"memoc/ir"
	"memoc/ir/diag"
	"memoc/passes/cost"
	"memoc/passes/liveness"
	"memoc/passes/plan"
	"memoc/passes/tokens"
)

// Stage is the part of the pipeline a pass belongs to; stages come in this
// order.
type Stage uint8

// The stages.
const (
	Import Stage = iota
	Infer
	Simplify
	Grad
	Analyze
	Plan
	Place
)

// String names the stage.
func (s Stage) String() string {
	return [...]string{"import", "infer", "simplify", "grad", "analyze", "plan", "place"}[s]
}

// Edge says that a pass runs after another, and why.
type Edge struct{ Pass, Why string }

// Pass is one step of the pipeline, declared in one file.
type Pass struct {
	Name     string
	Doc      string
	Stage    Stage
	After    []Edge
	Optional bool // may be turned off with -d=<pass>/off
	Run      func(*Context) (Result, error)
}

// Result is what a pass did. Changed says whether the graph changed.
type Result struct {
	Changed bool
	Stats   []ir.KV
}

// Options is what a user asks of the compiler.
type Options struct {
	Train      bool
	Loss       string
	Wrt        []string // initializers to train; none: all that can be
	Dims       map[string]ir.Dim
	Strict     bool
	HeadBytes  int64 // size of scores from which a loss head works in chunks; 0: 64 MiB
	Budget     Budget
	MLPChunks  int   // chunks of tokens of feed-forward layers; 0: the plan decides, 1: none
	ChunkBytes int64 // size of a layer's wide tensors from which the plan considers chunks; 0: 64 MiB
	WhatIf     bool  // plan for every number of chunks, also those that cannot win at the budget
	HostBudget int64 // bytes; < 0: the profile's
	Policy     plan.Policy
	Device     *cost.Device
	Debug      Debug
	Seed       uint64
	Tile       int64 // tokens between the positions where tensors may be cut; 0: by the length of the sequence
	// Choose makes the plan instead of the search: for tests and for users who
	// know what they want. nil: search.
	Choose func(*plan.Problem) []plan.Choice
}

// Context is what the passes of one run share. A pass reads what earlier ones
// left and leaves its own; nothing here is global.
type Context struct {
	Model   *ir.Model
	Graph   *ir.Graph
	Options Options
	// Crossing is the values that cross between the halves of a split export.
	Crossing []*ir.Value

	Report   func(*diag.Diagnostic)          // warnings and notes; never nil in a pass
	Progress func(pass string, done float64) // may be nil

	Live     *liveness.Result
	Tokens   *tokens.Info
	Problem  *plan.Problem
	Origin   *origin
	Ladder   *plan.Ladder
	Schedule *plan.Schedule
	Program  *ir.Program
	Metrics  ir.Metrics
	Log      []ir.PassRecord

	considered []*Context // other numbers of chunks, each with its own graph and ladder
	ladders    []ladderOf // of every number of chunks that was considered
	placement  placement
	producers  []int // by problem tensor; nil until asked for

	limit int // rewrites left to the running pass (-d=<pass>/limit=n); < 0: no limit
}

// spend takes one rewrite from the running pass's limit and reports whether
// it may be made.
func (c *Context) spend() bool {
	if c.limit == 0 {
		return false
	}
	if c.limit > 0 {
		c.limit--
	}
	return true
}

func (c *Context) warn(d *diag.Diagnostic) {
	d.Severity = diag.Warning
	c.Report(d)
}
