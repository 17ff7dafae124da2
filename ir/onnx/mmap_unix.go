//go:build unix

package onnx

import (
	"os"
	"syscall"
)

// mapFile maps size bytes of f. The mapping lives as long as the process:
// weights refer to it.
func mapFile(f *os.File, size int64) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_PRIVATE)
}
