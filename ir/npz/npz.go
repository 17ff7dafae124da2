// Package npz reads and writes NumPy's .npy and .npz files as ir tensors. It
// knows nothing of graphs.
//
// What NumPy has no type for it stores as bytes without meaning ("<V2" for
// bfloat16); As gives them their meaning back. Pickled objects are refused.
package npz

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"memoc/ir"
)

// Archive is the content of an .npz file: arrays by name (without ".npy"), in
// the order of the file.
type Archive struct {
	Names   []string
	Tensors map[string]*ir.Tensor
}

// Add appends an array, or replaces the one of that name.
func (a *Archive) Add(name string, t *ir.Tensor) {
	if a.Tensors == nil {
		a.Tensors = map[string]*ir.Tensor{}
	}
	if a.Tensors[name] == nil {
		a.Names = append(a.Names, name)
	}
	a.Tensors[name] = t
}

// Get is the array of that name, nil if there is none.
func (a *Archive) Get(name string) *ir.Tensor { return a.Tensors[name] }

// Limits bound what an archive may unpack to, so that a small hostile file
// cannot exhaust memory. The zero value means 16 GiB and 100,000 members.
type Limits struct {
	Bytes   int64
	Members int
}

func (l Limits) orDefault() Limits {
	if l.Bytes == 0 {
		l.Bytes = 16 << 30
	}
	if l.Members == 0 {
		l.Members = 100_000
	}
	return l
}

// Read reads the .npz file at path.
func Read(path string) (*Archive, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	a, err := Decode(f, info.Size(), Limits{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// Decode reads an .npz archive of size bytes.
func Decode(r io.ReaderAt, size int64, lim Limits) (*Archive, error) {
	lim = lim.orDefault()
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("no .npz file: %w", err)
	}
	if len(z.File) > lim.Members {
		return nil, fmt.Errorf("the archive has %d members, more than %d", len(z.File), lim.Members)
	}
	a := &Archive{Tensors: map[string]*ir.Tensor{}}
	left := lim.Bytes
	for _, f := range z.File {
		name, ok := strings.CutSuffix(f.Name, ".npy")
		if !ok {
			continue
		}
		if a.Tensors[name] != nil {
			return nil, fmt.Errorf("member %q is there twice", f.Name)
		}
		t, used, err := member(f, left)
		if err != nil {
			return nil, fmt.Errorf("member %q: %w", f.Name, err)
		}
		left -= used
		a.Add(name, t)
	}
	return a, nil
}

func member(f *zip.File, left int64) (*ir.Tensor, int64, error) {
	r, err := f.Open()
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	t, used, err := readNPY(r, left)
	if err != nil {
		return nil, 0, err
	}
	// Reading to the end checks the checksum.
	switch n, err := io.CopyN(io.Discard, r, 1); {
	case n > 0:
		return nil, 0, errors.New("there are bytes after the array")
	case err != io.EOF:
		return nil, 0, err
	}
	return t, used, nil
}

// Write writes the archive to path: whole or not at all.
func Write(path string, a *Archive) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".npz-*")
	if err != nil {
		return unwritable(path, err)
	}
	defer os.Remove(f.Name())
	err = Encode(f, a)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

// unwritable names the file that was asked for, not the temporary one.
func unwritable(path string, err error) error {
	if e := (*os.PathError)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return fmt.Errorf("cannot write %s: %w", path, err)
}

// Encode writes the archive, members stored as NumPy's savez does.
func Encode(w io.Writer, a *Archive) error {
	z := zip.NewWriter(w)
	for _, name := range a.Names {
		m, err := z.CreateHeader(&zip.FileHeader{Name: name + ".npy", Method: zip.Store})
		if err == nil {
			err = WriteNPY(m, a.Tensors[name])
		}
		if err != nil {
			return fmt.Errorf("member %q: %w", name, err)
		}
	}
	return z.Close()
}

// Marshal is Encode into memory.
func Marshal(a *Archive) ([]byte, error) {
	var b bytes.Buffer
	err := Encode(&b, a)
	return b.Bytes(), err
}
