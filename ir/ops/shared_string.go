package ops

import "memoc/ir"

const (
	noStringKernel = "strings do not live on a device"
	noStringGrad   = "strings have no derivative"
)

// texts is a string tensor.
func texts(dims []int64, s ...string) *ir.Tensor {
	return &ir.Tensor{DType: ir.String, Dims: dims, Strings: s}
}

// stringCost counts nothing: strings have no size.
func stringCost(c *ir.CostCtx) ir.Cost {
	read, write := c.Traffic()
	return ir.Cost{Read: read, Write: write, DType: ir.Uint8}
}

var stringSet = ir.SetOf(ir.String)
