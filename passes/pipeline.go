package passes

import (
	"fmt"
	"slices"
)

// Pipeline is the passes in the order they run: the table of contents of the
// compiler. The After edges of each pass are checked against it at start-up.
var Pipeline = []*Pass{
	&inlinePass,
	&inferPass,
	&exportedPass,
	&branchPass,
	&sequencePass,
	&foldPass,
	&attentionPass,
	&lossHeadPass,
	&gradPass,
	&cleanupPass,
	&chunkPass,
	&livenessPass,
	&costPass,
	&schedulePass,
	&planPass,
	&rewritePass,
	&placePass,
	&orderPass,
	&checkPass,
}

func init() {
	if err := checkPipeline(Pipeline); err != nil {
		panic("BUG: " + err.Error())
	}
}

// checkPipeline holds the order against the passes' own edges and stages.
func checkPipeline(list []*Pass) error {
	at := map[string]int{}
	for i, p := range list {
		if _, twice := at[p.Name]; twice {
			return fmt.Errorf("pass %q is in the pipeline twice", p.Name)
		}
		at[p.Name] = i
	}
	for i, p := range list {
		for _, e := range p.After {
			j, ok := at[e.Pass]
			switch {
			case !ok:
				return fmt.Errorf("pass %q runs after %q, which is not in the pipeline", p.Name, e.Pass)
			case j >= i:
				return fmt.Errorf("pass %q must run after %q: %s", p.Name, e.Pass, e.Why)
			case e.Why == "":
				return fmt.Errorf("the edge from %q to %q has no reason", e.Pass, p.Name)
			}
		}
		if i > 0 && p.Stage < list[i-1].Stage {
			return fmt.Errorf("pass %q of stage %s stands after %q of stage %s", p.Name, p.Stage, list[i-1].Name, list[i-1].Stage)
		}
	}
	return nil
}

func passNames() []string {
	var names []string
	for _, p := range Pipeline {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

func passByName(name string) *Pass {
	for _, p := range Pipeline {
		if p.Name == name {
			return p
		}
	}
	return nil
}
