package cuda

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"memoc/ir"
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

// emulated are the flags and sources that build the CUDA side of the library
// on the stand-in for CUDA.
func emulated(lib string) []string {
	return []string{"-std=c++17", "-O0", "-ffp-contract=off", "-DMEMOC_BLOCK=64", "-DMEMOC_MAX_PITCH=4096", "-Wall", "-Werror", "-Itestdata/fakecuda", "-Itestdata", "-I" + lib, "-x", "c++",
		"testdata/fakecuda/fakecuda.cpp", lib + "/memoc/runtime_cuda.cu", lib + "/memoc/gemm_cuda.cu", lib + "/memoc/matmul.cpp"}
}

// TestLibraryEmulated runs what can be tested of the CUDA side without a GPU.
func TestLibraryEmulated(t *testing.T) {
	needCompiler(t)
	dir := t.TempDir()
	for _, name := range []string{"cuda_test", "gemm_test"} {
		t.Run(name, func(t *testing.T) {
			exe := filepath.Join(dir, name)
			args := append(emulated("lib"), "testdata/"+name+".cpp", "-o", exe)
			if out, err := exec.Command("g++", args...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, firstLines(out, 40))
			}
			if out, err := exec.Command(exe).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// buildEmulated builds an emitted project on the stand-in for CUDA.
func buildEmulated(t *testing.T, p *ir.Program) *HostProgram {
	t.Helper()
	files, err := Emit(p)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := WriteDir(dir, files); err != nil {
		t.Fatal(err)
	}
	h := &HostProgram{Dir: dir, Exe: filepath.Join(dir, "step")}
	args := append(emulated(dir), dir+"/step.cu", dir+"/main.cpp", dir+"/memoc/program.cpp", "-o", h.Exe)
	if out, err := exec.Command("g++", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, firstLines(out, 40))
	}
	return h
}

// TestGraphLaunch runs a program with copies on the CUDA side, as it is and
// captured, and holds it against the host runtime.
func TestGraphLaunch(t *testing.T) {
	needCompiler(t)
	p := swapProgram(t)
	in := []Named{{"in", floats([]float64{1, 2, 3, 4, 5, 6}, 2, 3)}}
	want, err := build(t, p).Run(context.Background(), in, RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	exe := buildEmulated(t, p)
	for _, o := range []RunOptions{{}, {Steps: 4}, {Steps: 4, Graph: true}} {
		got, err := exe.Run(context.Background(), in, o)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if diff := differ(got[i].Tensor, want[i].Tensor); diff != "" {
				t.Errorf("%+v: output %s: %s", o, want[i].Name, diff)
			}
		}
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

// TestNVCC compiles a program with copies, ranges and waits for two GPU
// generations.
func TestNVCC(t *testing.T) {
	nvccScript(t)
	compileWithNVCC(t, swapProgram(t))
	c, _, _ := splitCase(t, 3)
	compileWithNVCC(t, c.Program)
}
