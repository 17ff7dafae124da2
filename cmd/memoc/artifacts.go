package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"memoc/codegen/cuda"
	"memoc/codegen/dot"
	"memoc/codegen/onnxout"
	"memoc/ir/planfile"
	"memoc/passes"
)

// artifact is one file to write, by its path within the output folder.
type artifact struct {
	path  string
	write func(io.Writer) error
}

// emitters are what --emit may name, in the order in which they are written.
var emitters = []struct {
	name   string // of --emit
	entry  string // in the output folder
	render func(*passes.Context) ([]artifact, error)
}{
	{"model", "model.onnx", func(c *passes.Context) ([]artifact, error) {
		b, err := onnxout.Encode(c.Program, c.Model)
		return []artifact{{"model.onnx", bytesWriter(b)}}, err
	}},
	{"plan", "plan.json", func(c *passes.Context) ([]artifact, error) {
		b, err := planfile.FromProgram(c.Program).Encode()
		return []artifact{{"plan.json", bytesWriter(b)}}, err
	}},
	{"dot", "graph.dot", func(c *passes.Context) ([]artifact, error) {
		return []artifact{{"graph.dot", bytesWriter(dot.Render(c.Program))}}, nil
	}},
	{"cuda", "cuda", emitCUDA},
}

func emitCUDA(c *passes.Context) ([]artifact, error) {
	files, err := cuda.Emit(c.Program)
	if err != nil {
		return nil, fmt.Errorf("%w; the other artifacts can be written with --emit model,plan,dot", err)
	}
	var out []artifact
	for _, f := range files {
		out = append(out, artifact{filepath.Join("cuda", filepath.FromSlash(f.Path)), f.Write})
	}
	return out, nil
}

// parseEmit reads the list of --emit.
func parseEmit(list string) (map[string]bool, error) {
	var names []string
	for _, e := range emitters {
		names = append(names, e.name)
	}
	wanted := map[string]bool{}
	for _, name := range strings.Split(list, ",") {
		if !slices.Contains(names, name) {
			return nil, &usageError{fmt.Sprintf("--emit: nothing is called %q%s; use some of %s", name, didYouMean(name, names), strings.Join(names, ","))}
		}
		wanted[name] = true
	}
	return wanted, nil
}

// artifacts renders what a compilation writes; an error means that nothing
// will be.
func artifacts(c *passes.Context, wanted map[string]bool) ([]artifact, error) {
	var out []artifact
	for _, e := range emitters {
		if !wanted[e.name] {
			continue
		}
		files, err := e.render(c)
		if err != nil {
			return nil, err
		}
		out = append(out, files...)
	}
	return out, nil
}

func bytesWriter(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}

// writeArtifacts writes all files into a folder beside dir and moves them into
// place only when every one is complete. Artifacts of an earlier compilation are
// replaced, other files of dir stay. Nothing that was read is touched.
func writeArtifacts(c *passes.Context, dir string, wanted map[string]bool, read []string) error {
	if err := protect(c, dir, read); err != nil {
		return err
	}
	files, err := artifacts(c, wanted)
	if err != nil {
		return err
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	stage, err := os.MkdirTemp(parent, ".memoc-")
	if err != nil {
		return fmt.Errorf("cannot write into the folder %s: %w", parent, errors.Unwrap(err))
	}
	defer os.RemoveAll(stage)
	for _, f := range files {
		if err := writeFile(filepath.Join(stage, f.path), f.write); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, e := range emitters {
		to := filepath.Join(dir, e.entry)
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if !wanted[e.name] {
			continue
		}
		if err := os.Rename(filepath.Join(stage, e.entry), to); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = write(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
