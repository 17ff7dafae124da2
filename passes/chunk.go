package passes

import (
	"fmt"
	"slices"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/passes/chunks"
	"memoc/passes/tokens"
)

var chunkPass = Pass{
	Name:  "chunk",
	Doc:   "Lets feed-forward layers run in as many chunks of tokens as asked for, forward and backward, so that their wide tensors exist a chunk at a time.",
	Stage: Grad,
	After: []Edge{
		{"grad", "forward and backward pass of a layer are unrolled together, and the gradients of weights are summed over the chunks"},
		{"cleanup", "what is unused would count as another reader of something wide"},
	},
	Optional: true,
	Run: func(c *Context) (Result, error) {
		if c.Options.MLPChunks < 2 {
			return Result{}, nil
		}
		found, err := c.chunk(c.Options.MLPChunks, 0)
		if err != nil {
			return Result{}, err
		}
		if found == 0 {
			c.warn(&diag.Diagnostic{ID: "chunk", Message: "no feed-forward layer was found that could run in chunks: a product with weights that widens every token, from which on everything works token by token until it is narrow again"})
		}
		return Result{Changed: found > 0, Stats: []ir.KV{stat("layers", found)}}, nil
	},
}

// chunkBytes is the size of a layer's wide tensors from which on the plan
// considers chunks: below, they are no matter.
const chunkBytes = 64 << 20

// regions lists the regions of the graph whose wide tensors are of at least that
// many bytes, and says why other products stay whole if asked to.
func (c *Context) regions(info *tokens.Info, least int64) []*chunks.Region {
	found, refused := chunks.Find(info, c.Graph)
	for _, r := range refused {
		if c.Options.Debug["chunk"].Level > 0 {
			c.Report(&diag.Diagnostic{ID: "chunk", Severity: diag.Note, Loc: r.Node.DiagLoc(),
				Message: fmt.Sprintf("the wide tensors from %s on stay whole: %s", r.Node, r.Why)})
		}
	}
	return slices.DeleteFunc(found, func(r *chunks.Region) bool { return r.Inner < least })
}

// chunk unrolls such regions, and returns their number.
func (c *Context) chunk(count int, least int64) (found int, err error) {
	regions := slices.DeleteFunc(c.regions(tokens.Find(c.Graph), least), func(*chunks.Region) bool { return !c.spend() })
	if len(regions) == 0 {
		return 0, nil
	}
	widest := int64(0)
	for _, r := range regions {
		widest = max(widest, r.Widest)
	}
	c.Metrics.Chunks, c.Metrics.ChunkedLayers, c.Metrics.ChunkedBytes = count, len(regions), widest
	return len(regions), chunks.Unroll(c.Graph, regions, count)
}
