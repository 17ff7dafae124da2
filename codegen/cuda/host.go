package cuda

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
)

// hostFlags build for the host runtime. Contraction is off so that the bits do
// not depend on the machine's instructions.
var hostFlags = []string{"-std=c++17", "-O2", "-ffp-contract=off", "-DMEMOC_HOST=1"}

// HostProgram is an emitted project built for the CPU.
type HostProgram struct {
	Dir string // the project
	Exe string
}

// BuildHost compiles the project in dir with g++ (or $CXX) for the CPU, into
// the file exe ("": "step" in dir). The parts that are the same for every
// program are compiled once and kept in the user's cache directory.
func BuildHost(ctx context.Context, dir, exe string) (*HostProgram, error) {
	cxx := os.Getenv("CXX")
	if cxx == "" {
		cxx = "g++"
	}
	if _, err := exec.LookPath(cxx); err != nil {
		return nil, fmt.Errorf("the host program needs a C++17 compiler: %w", err)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	sources, err := hostSources(dir)
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "memoc-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	objects := make([]string, len(sources))
	errs := make([]error, len(sources))
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, src := range sources {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			objects[i], errs[i] = compile(ctx, cxx, dir, src, work)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	if exe == "" {
		exe = filepath.Join(dir, "step")
	}
	return &HostProgram{dir, exe}, runTool(ctx, dir, cxx, append(objects, "-o", exe)...)
}

func hostSources(dir string) ([]string, error) {
	lib, err := filepath.Glob(filepath.Join(dir, "memoc", "*.cpp"))
	if err != nil {
		return nil, err
	}
	sort.Strings(lib)
	return append([]string{filepath.Join(dir, "step.cu"), filepath.Join(dir, "main.cpp")}, lib...), nil
}

// compile makes one object file. All but step.cu depends on nothing of the
// program, so its object is shared through the cache.
func compile(ctx context.Context, cxx, dir, src, work string) (string, error) {
	args := append(append([]string{}, hostFlags...), "-I.", "-x", "c++", "-c", src, "-o")
	object := filepath.Join(work, filepath.Base(src)+".o")
	if filepath.Base(src) == "step.cu" {
		return object, runTool(ctx, dir, cxx, append(args, object)...)
	}
	cached, err := cachePath(cxx, dir, src)
	if err != nil { // no cache directory: build in place
		return object, runTool(ctx, dir, cxx, append(args, object)...)
	}
	if _, err := os.Stat(cached); err == nil {
		return cached, nil
	}
	if err := runTool(ctx, dir, cxx, append(args, object)...); err != nil {
		return "", err
	}
	return object, install(object, cached)
}

// install puts a file in the cache at once, so that no other process sees a
// part of it.
func install(object, cached string) error {
	data, err := os.ReadFile(object)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(cached), "new-")
	if err != nil {
		return nil // the cache is only a help
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), cached)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return nil
}

// cachePath is named by everything the object depends on.
func cachePath(cxx, dir, src string) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	version, err := exec.Command(cxx, "-dumpfullversion", "-dumpmachine").Output()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, cxx, string(version), hostFlags)
	headers, _ := filepath.Glob(filepath.Join(dir, "memoc", "*.h"))
	sort.Strings(headers)
	for _, path := range append(headers, filepath.Join(dir, "memoc_step.h"), src) {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, filepath.Base(path), len(data))
		h.Write(data)
	}
	cache := filepath.Join(base, "memoc", "host")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	return filepath.Join(cache, hex.EncodeToString(h.Sum(nil)[:16])+".o"), nil
}

func runTool(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, firstLines(out, 20))
	}
	return nil
}

func firstLines(out []byte, n int) string {
	lines := strings.SplitAfterN(string(out), "\n", n+1)
	if len(lines) > n {
		lines[n] = "…\n"
	}
	return strings.Join(lines, "")
}

// RunOptions are the driver's flags.
type RunOptions struct {
	Steps     int    // 0: one
	Seed      uint64 // of the step's random numbers
	FirstStep uint64 // number of the first step
	Schedule  uint64 // seed of the order in which lanes run
	Schedules int    // more than 1: that many orders, whose outputs must be equal byte for byte
	Paranoid  bool   // each step sees and changes only the bytes it declared
	ModelDir  string // where external data lies
	Graph     bool   // CUDA: launch the step as a CUDA graph
}

// Run runs the program and returns its outputs.
func (h *HostProgram) Run(ctx context.Context, inputs []Named, o RunOptions) ([]Named, error) {
	work, err := os.MkdirTemp("", "memoc-run-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	in, out := filepath.Join(work, "in"), filepath.Join(work, "out")
	var buf bytes.Buffer
	if err := WriteTensors(&buf, inputs); err != nil {
		return nil, err
	}
	if err := os.WriteFile(in, buf.Bytes(), 0o644); err != nil {
		return nil, err
	}
	args := []string{"--inputs", in, "--outputs", out, "--weights", filepath.Join(h.Dir, "weights.bin"),
		"--steps", fmt.Sprint(max(o.Steps, 1)), "--seed", fmt.Sprint(o.Seed), "--schedule", fmt.Sprint(o.Schedule),
		"--schedules", fmt.Sprint(max(o.Schedules, 1))}
	if o.FirstStep != 0 {
		args = append(args, "--first-step", fmt.Sprint(o.FirstStep))
	}
	if o.Paranoid {
		args = append(args, "--paranoid")
	}
	if o.Graph {
		args = append(args, "--graph")
	}
	if o.ModelDir != "" {
		dir, err := filepath.Abs(o.ModelDir)
		if err != nil {
			return nil, err
		}
		args = append(args, "--model-dir", dir)
	}
	if err := runTool(ctx, work, h.Exe, args...); err != nil {
		return nil, err
	}
	f, err := os.Open(out)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadTensors(f)
}

// WriteDir writes a project's files below dir.
func WriteDir(dir string, files []File) error {
	for _, f := range files {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		w, err := os.Create(path)
		if err != nil {
			return err
		}
		err = f.Write(w)
		if cerr := w.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}
