package main

import (
	"fmt"
	"io"

	"memoc/ir"
	"memoc/passes"
	"memoc/passes/liveness"
	"memoc/passes/tokens"
)

// layerInfo is a class of repeated layers.
type layerInfo struct {
	Count    int            `json:"count"`
	Nodes    int            `json:"nodes"` // of one layer
	First    string         `json:"first"` // first and last node of all layers
	Last     string         `json:"last"`
	Backward bool           `json:"backward"`
	Skeletal []skeletalInfo `json:"skeletal"` // of a layer in the middle: its input first
}

// skeletalInfo is a tensor that a layer's forward pass leaves for its backward.
type skeletalInfo struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Bytes int64   `json:"bytes"`
	Ratio float64 `json:"ratio"` // elements, in units of the layer input's
	// SameAs names the tensor of which this one is another layout.
	SameAs string `json:"same_as,omitempty"`
	// Tokens is absent where the tensor has no token axis.
	Tokens *tokenInfo `json:"tokens,omitempty"`
}

// tokenInfo is where the tokens lie in a tensor and whether it can be made by
// token.
type tokenInfo struct {
	Rows       int64 `json:"rows"`        // pieces in which a range of tokens lies
	TokenBytes int64 `json:"token_bytes"` // of one token, over all rows
	ByToken    bool  `json:"by_token"`    // whether the operator that makes it may run on a range of tokens
}

// String is empty for a tensor without token axis.
func (t *tokenInfo) String() string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf("%s, %d", map[bool]string{true: "by token", false: "whole"}[t.ByToken], t.Rows)
}

func tokenInfoOf(i *tokens.Info, s *liveness.Storage) *tokenInfo {
	rows, bytes, ok := i.Rows(s.Values...)
	if !ok {
		return nil
	}
	_, byToken := i.Range(s.Root.Def)
	return &tokenInfo{Rows: rows, TokenBytes: bytes, ByToken: byToken}
}

func layerInfos(live *liveness.Result) []layerInfo {
	out, axis := []layerInfo{}, tokens.Find(live.Graph)
	for _, c := range passes.Layers(live) {
		info := layerInfo{Count: c.Count, Nodes: c.Period, First: c.Nodes[0].String(), Last: c.Nodes[len(c.Nodes)-1].String(), Backward: c.Backward,
			Skeletal: []skeletalInfo{}}
		for k, s := range c.Skeletal {
			row := skeletalInfo{Name: s.Root.Name, Type: s.Root.Type.String(), Bytes: s.Bytes, Tokens: tokenInfoOf(axis, &s)}
			if c.Input != nil {
				if unit := elements(c.Input); unit > 0 {
					row.Ratio = float64(elements(s.Root)) / float64(unit)
				}
			}
			if same := c.SameAs[k]; same >= 0 {
				row.SameAs = c.Skeletal[same].Root.Name
			}
			info.Skeletal = append(info.Skeletal, row)
		}
		out = append(out, info)
	}
	return out
}

// elements is how many elements v has, 0 where that is not known.
func elements(v *ir.Value) int64 {
	n, ok := v.Type.Shape.NumElements()
	if !ok {
		return 0
	}
	i, _ := n.Int()
	return i
}

func printLayers(w io.Writer, ls []layerInfo) {
	for i, l := range ls {
		if i == 0 {
			fmt.Fprintln(w, "\nrepeated layers")
		}
		pass := "forward"
		if l.Backward {
			pass = "backward"
		}
		fmt.Fprintf(w, "  %d layers of %d nodes, %s: %s to %s\n", l.Count, l.Nodes, pass, l.First, l.Last)
		if len(l.Skeletal) == 0 {
			continue
		}
		fmt.Fprintln(w, "  what one of them leaves for the backward pass: in units of its input, whether it can be made by token,")
		fmt.Fprintln(w, "  and in how many pieces a range of tokens lies:")
		total := 0.0
		for _, s := range l.Skeletal {
			if s.SameAs != "" {
				fmt.Fprintf(w, "    %s\t%s\t%s\t(%s in another layout)\n", s.Name, s.Type, passes.FormatBytes(s.Bytes), s.SameAs)
				continue
			}
			fmt.Fprintf(w, "    %s\t%s\t%s\t%.4g\t%s\n", s.Name, s.Type, passes.FormatBytes(s.Bytes), s.Ratio, s.Tokens)
			total += s.Ratio
		}
		fmt.Fprintf(w, "    all\t\t\t%.4g\n", total)
	}
}
