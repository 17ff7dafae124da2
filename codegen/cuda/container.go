package cuda

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"memoc/ir"
)

// Named is a tensor with the name of a graph input or output.
type Named struct {
	Name   string
	Tensor *ir.Tensor
}

// WriteTensors writes the format in which the driver reads inputs and writes
// outputs: little-endian, record after record: name length, name, element
// type, rank, dims, bytes, data.
func WriteTensors(w io.Writer, ts []Named) error {
	b := bufio.NewWriter(w)
	for _, t := range ts {
		var head []byte
		head = binary.LittleEndian.AppendUint32(head, uint32(len(t.Name)))
		head = append(head, t.Name...)
		head = binary.LittleEndian.AppendUint32(head, uint32(t.Tensor.DType))
		head = binary.LittleEndian.AppendUint32(head, uint32(len(t.Tensor.Dims)))
		for _, d := range t.Tensor.Dims {
			head = binary.LittleEndian.AppendUint64(head, uint64(d))
		}
		head = binary.LittleEndian.AppendUint64(head, uint64(len(t.Tensor.Data)))
		if _, err := b.Write(head); err != nil {
			return err
		}
		if _, err := b.Write(t.Tensor.Data); err != nil {
			return err
		}
	}
	return b.Flush()
}

// ReadTensors reads what WriteTensors or the driver wrote.
func ReadTensors(r io.Reader) ([]Named, error) {
	b := bufio.NewReader(r)
	var out []Named
	for {
		t, err := readTensor(b)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("record %d: %w", len(out), err)
		}
		out = append(out, t)
	}
}

const maxName = 1 << 20

func readTensor(r io.Reader) (Named, error) {
	var n uint32
	if err := binary.Read(r, binary.LittleEndian, &n); err != nil {
		return Named{}, err // io.EOF between records
	}
	if n > maxName {
		return Named{}, fmt.Errorf("a name of %d bytes", n)
	}
	name := make([]byte, n)
	var head [2]int32
	if err := readAll(r, name, &head); err != nil {
		return Named{}, err
	}
	if head[1] < 0 || head[1] > 64 || head[0] < 0 || head[0] > math.MaxUint8 || ir.DType(head[0]).Bits() == 0 {
		return Named{}, fmt.Errorf("%q has element type %d and rank %d", name, head[0], head[1])
	}
	dims, size := make([]int64, head[1]), int64(0)
	if err := readAll(r, dims, &size); err != nil {
		return Named{}, err
	}
	want, err := ir.TensorOf(ir.DType(head[0]), ir.Ints64(dims...)).Bytes()
	if err != nil || want != size || size < 0 {
		return Named{}, fmt.Errorf("%q has shape %v and %d bytes", name, dims, size)
	}
	data, err := io.ReadAll(io.LimitReader(r, size))
	if err == nil && int64(len(data)) < size {
		err = io.ErrUnexpectedEOF
	}
	return Named{string(name), &ir.Tensor{DType: ir.DType(head[0]), Dims: dims, Data: data}}, err
}

func readAll(r io.Reader, into ...any) error {
	for _, x := range into {
		if err := binary.Read(r, binary.LittleEndian, x); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}
