package npz

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"memoc/ir"
	"memoc/ir/mutate"
)

func sample() *Archive {
	a := &Archive{}
	a.Add("f", ir.FromFloats(ir.Float, []float64{1, -2.5, 3, 4, 5, 6}, 2, 3))
	a.Add("in/h", ir.FromFloats(ir.Float16, []float64{0.5}))
	a.Add("b", ir.FromFloats(ir.BFloat16, []float64{1, 2}, 2))
	a.Add("bool", ir.FromInts(ir.Bool, []int64{0, 1, 1}, 3))
	a.Add("i", ir.FromInts(ir.Int64, []int64{-1, 1 << 40}, 2, 1))
	a.Add("empty", ir.NewTensor(ir.Double, 0, 4))
	a.Add("s", &ir.Tensor{DType: ir.String, Dims: []int64{2}, Strings: []string{"aé", "xyz"}})
	return a
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.npz")
	if err := Write(path, sample()); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sample(), got); d != "" {
		t.Error(d)
	}
}

// npyFile is version 1.0 of the format with that header.
func npyFile(head string, data ...byte) []byte {
	b := append([]byte(magic), 1, 0, byte(len(head)), byte(len(head)>>8))
	return append(append(b, head...), data...)
}

func TestReadForms(t *testing.T) {
	for _, c := range []struct {
		name, head string
		data       []byte
		want       *ir.Tensor
	}{
		{"big endian", "{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }", []byte{1, 2, 0xff, 0xfe}, ir.FromInts(ir.Int16, []int64{258, -2}, 2)},
		{"column-major", "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", []byte{1, 4, 2, 5, 3, 6}, ir.FromInts(ir.Uint8, []int64{1, 2, 3, 4, 5, 6}, 2, 3)},
		{"scalar", "{'descr': '<f8', 'fortran_order': False, 'shape': (), }", []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f}, ir.FromFloats(ir.Double, []float64{1})},
		{"Python 2 longs", "{\"descr\": \"|b1\", 'fortran_order': False, 'shape': (1L,)}", []byte{1}, ir.FromInts(ir.Bool, []int64{1}, 1)},
	} {
		got, err := ReadNPY(bytes.NewReader(npyFile(c.head, c.data...)), 0)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ head, want string }{
		{"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "pickle"},
		{"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "structured"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9), }", "overflows"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,), }", "limit"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "not understood"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "cut off"},
		{"{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (3,), }", "not read"},
		{"garbage", "not understood"},
	} {
		if _, err := ReadNPY(bytes.NewReader(npyFile(c.head, 1, 2)), 0); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.head, err, c.want)
		}
	}
}

// TestErrorNamesMember also holds a bomb: a member that deflates a thousand
// times smaller than it is.
func TestErrorNamesMember(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, _ := z.Create("bomb.npy")
	if err := WriteNPY(w, ir.NewTensor(ir.Uint8, 1<<22)); err != nil {
		t.Fatal(err)
	}
	z.Close()
	_, err := Decode(bytes.NewReader(b.Bytes()), int64(b.Len()), Limits{Bytes: 1 << 20})
	if err == nil || !strings.Contains(err.Error(), `"bomb.npy"`) || !strings.Contains(err.Error(), "limit") {
		t.Errorf("got %v", err)
	}
	if _, err := Read("nosuch.npz"); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}

func TestAs(t *testing.T) {
	x, err := As(ir.FromInts(ir.Uint16, []int64{0x3f80}, 1), ir.BFloat16)
	if err != nil || x.Floats()[0] != 1 {
		t.Errorf("%v %v", x, err)
	}
	x, err = As(ir.FromInts(ir.Uint8, []int64{0xff, 3, 0xf8}, 3), ir.Int4)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int64{-1, 3, -8}, x.Ints()); d != "" {
		t.Error(d)
	}
	if _, err := As(ir.FromInts(ir.Int32, []int64{1}, 1), ir.Float); err == nil {
		t.Error("int32 is read as float")
	}
}

func FuzzNPZ(f *testing.F) { mutate.Explore(f, archives(f), archiveHolds) }

func TestNPZMutated(t *testing.T) { mutate.Test(t, "FuzzNPZ", archives(t), 2000, archiveHolds) }

func archives(t testing.TB) [][]byte {
	b, err := Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	return [][]byte{b, b[:len(b)/2]}
}

// archiveHolds: what is read of an archive is written as one that is read.
func archiveHolds(b []byte) (accepted bool, wrong error) {
	a, err := Decode(bytes.NewReader(b), int64(len(b)), Limits{Bytes: 1 << 22, Members: 100})
	if err != nil {
		return false, nil
	}
	again, err := Marshal(a)
	if err == nil {
		_, err = Decode(bytes.NewReader(again), int64(len(again)), Limits{})
	}
	return true, err
}

func FuzzNPY(f *testing.F) { mutate.Explore(f, arrays(), arrayHolds) }

func TestNPYMutated(t *testing.T) { mutate.Test(t, "FuzzNPY", arrays(), 4000, arrayHolds) }

func arrays() [][]byte {
	return [][]byte{
		npyFile("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }", 1, 2, 3, 4, 5, 6, 7, 8),
		npyFile("{'descr': '<U2', 'fortran_order': False, 'shape': (1,), }", 1, 0, 0, 0, 5, 0, 0, 0),
	}
}

// arrayHolds: an array has as many bytes as its type says.
func arrayHolds(b []byte) (accepted bool, wrong error) {
	x, err := ReadNPY(bytes.NewReader(b), 1<<20)
	if err != nil {
		return false, nil
	}
	if x.DType != ir.String && int64(len(x.Data))*8 != x.Len()*int64(x.DType.Bits()) {
		return true, fmt.Errorf("%s holds %d bytes", x.Type(), len(x.Data))
	}
	return true, nil
}
