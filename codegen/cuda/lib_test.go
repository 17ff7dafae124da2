package cuda

import (
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

// nvccScript names a script that compiles an emitted project in a folder; the
// test is skipped where none is given.
func nvccScript(t *testing.T) string {
	script := os.Getenv("MEMOC_NVCC")
	if script == "" {
		t.Skip("MEMOC_NVCC is not set (see .ci/nvcc.sh)")
	}
	return script
}

// TestNVCC compiles a program with copies and waits for two GPU generations.
func TestNVCC(t *testing.T) {
	nvccScript(t)
	compileWithNVCC(t, swapProgram(t))
}
