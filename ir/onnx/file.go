package onnx

import (
	"fmt"
	"io"
	"math"
	"os"
)

// mapThreshold is the size from which a file is mapped. Smaller ones are read:
// that is as fast, and a copy cannot change under us.
const mapThreshold = 4 << 20

// contents is the bytes of a file, mapped where that pays and is possible.
func contents(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a folder", f.Name())
	}
	size := info.Size()
	if info.Mode().IsRegular() && size >= mapThreshold && size <= math.MaxInt {
		if b, err := mapFile(f, size); err == nil {
			return b, nil
		}
	}
	return io.ReadAll(f)
}
