package main

import (
	"fmt"
	"os"
	"path/filepath"

	"memoc/ir/diag"
	"memoc/passes"
)

// protect refuses an output folder in which writing the artifacts would replace
// what was read (a model, its external data), or a folder that memoc did not
// write.
func protect(c *passes.Context, dir string, read []string) error {
	refuse := func(path, what string) error {
		return &diag.Diagnostic{ID: "write-input", Severity: diag.Error, Loc: diag.Location{File: path},
			Message: what, Help: "write to another folder with -o"}
	}
	for _, path := range append(read[:len(read):len(read)], externalFiles(c, read)...) {
		for _, e := range emitters {
			if inside(path, filepath.Join(dir, e.entry)) {
				return refuse(path, fmt.Sprintf("this was read to compile the model and is never changed; %s would replace it", filepath.Join(dir, e.entry)))
			}
		}
	}
	cuda := filepath.Join(dir, "cuda")
	if entries, err := os.ReadDir(cuda); err == nil && len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(cuda, "memoc_step.h")); err != nil {
			return refuse(cuda, "the folder exists and holds something else than a program of memoc's")
		}
	}
	return nil
}

// externalFiles is the files of external data beside the models that were read.
func externalFiles(c *passes.Context, models []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, v := range c.Graph.Inits {
		if v.Init == nil || v.Init.External == nil || seen[v.Init.External.Location] {
			continue
		}
		seen[v.Init.External.Location] = true
		for _, m := range models {
			out = append(out, filepath.Join(filepath.Dir(m), filepath.FromSlash(v.Init.External.Location)))
		}
	}
	return out
}

// inside reports whether path is the file or folder at root, or lies in it.
func inside(path, root string) bool {
	r, err := os.Stat(root)
	if err != nil {
		return false
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return false
	}
	for {
		if p, err := os.Stat(path); err == nil && os.SameFile(p, r) {
			return true
		}
		up := filepath.Dir(path)
		if up == path {
			return false
		}
		path = up
	}
}
