package cuda

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestLibrary compiles the C++ tests of the runtime without a warning and runs
// them.
func TestLibrary(t *testing.T) {
	needCompiler(t)
	dir := t.TempDir()
	for _, name := range []string{"kernel_test", "gemm_test", "sched_test"} {
		t.Run(name, func(t *testing.T) {
			exe := filepath.Join(dir, name)
			args := append([]string{}, hostFlags...)
			args = append(args, "-Wall", "-Wextra", "-Werror", "-Ilib", "-Itestdata", "testdata/"+name+".cpp",
				"lib/memoc/runtime_host.cpp", "lib/memoc/gemm_host.cpp", "lib/memoc/matmul.cpp", "-o", exe)
			if out, err := exec.Command("g++", args...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if out, err := exec.Command(exe).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// TestNVCC compiles an emitted project for two GPU generations where the
// compiler is at hand: MEMOC_NVCC names a script that does it in a folder.
func TestNVCC(t *testing.T) {
	script := os.Getenv("MEMOC_NVCC")
	if script == "" {
		t.Skip("MEMOC_NVCC is not set (see .ci/nvcc.sh)")
	}
	g, _ := swapGraph()
	files, err := Emit(plan(t, g))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := WriteDir(dir, files); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(script, dir).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 77 {
		t.Skip(string(out))
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
