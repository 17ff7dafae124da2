package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

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

// artifacts renders everything a compilation writes; an error means that
// nothing will be.
func artifacts(c *passes.Context) ([]artifact, error) {
	var out []artifact
	model, err := onnxout.Encode(c.Program, c.Model)
	if err != nil {
		return nil, err
	}
	plan, err := planfile.FromProgram(c.Program).Encode()
	if err != nil {
		return nil, err
	}
	out = append(out, artifact{"model.onnx", bytesWriter(model)}, artifact{"plan.json", bytesWriter(plan)},
		artifact{"graph.dot", bytesWriter(dot.Render(c.Program))})
	files, err := cuda.Emit(c.Program)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		out = append(out, artifact{filepath.Join("cuda", filepath.FromSlash(f.Path)), f.Write})
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
// place only when every one is complete. Files of dir that are not ours stay.
func writeArtifacts(c *passes.Context, dir string) error {
	files, err := artifacts(c)
	if err != nil {
		return err
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	stage, err := os.MkdirTemp(parent, ".memoc-")
	if err != nil {
		return err
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
	for _, name := range []string{"model.onnx", "plan.json", "graph.dot", "cuda"} {
		to := filepath.Join(dir, name)
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(stage, name), to); err != nil {
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
