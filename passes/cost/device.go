// Package cost turns what an operator does into time: a roofline over a device
// profile. It has one unit, the nanosecond.
package cost

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"memoc/ir"
	"memoc/ir/diag"
)

//go:embed devices/*.json
var builtin embed.FS

// Device is a profile: peak rates of a device and the shares of them that
// kernels sustain. Rates are decimal (1 GB = 1e9 bytes).
type Device struct {
	Name         string             `json:"name"`
	Description  string             `json:"device"`
	Source       string             `json:"source"`          // where the figures are from
	MemoryBytes  int64              `json:"memory_bytes"`    // of the card
	Reserved     int64              `json:"reserved_bytes"`  // CUDA context and libraries
	HostBytes    int64              `json:"host_bytes"`      // default host budget per device
	MatrixTFLOPS map[string]float64 `json:"matrix_tflops"`   // dense peak by element type
	VectorTFLOPS map[string]float64 `json:"vector_tflops"`   // peak by element type
	MemoryGBps   float64            `json:"memory_gbps"`     // peak
	OutGBps      float64            `json:"copy_out_gbps"`   // device to host, sustained
	InGBps       float64            `json:"copy_in_gbps"`    // host to device, sustained
	CopyLatency  int64              `json:"copy_latency_ns"` // per copy
	Launch       int64              `json:"launch_ns"`       // per kernel
	GemmShare    float64            `json:"gemm_share"`      // of MatrixTFLOPS
	AttnFwdShare float64            `json:"attention_forward_share"`
	AttnBwdShare float64            `json:"attention_backward_share"`
	MemoryShare  float64            `json:"memory_share"` // of MemoryGBps
}

// Devices lists the built-in profiles, sorted by name.
func Devices() ([]*Device, error) {
	files, err := fs.ReadDir(builtin, "devices")
	if err != nil {
		return nil, err
	}
	var out []*Device
	for _, f := range files {
		data, err := builtin.ReadFile(path.Join("devices", f.Name()))
		if err != nil {
			return nil, err
		}
		d, err := parseDevice(f.Name(), data)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// LoadDevice finds a built-in profile by name, or reads a profile from a
// .json file.
func LoadDevice(name string) (*Device, error) {
	if strings.HasSuffix(name, ".json") {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, &diag.Diagnostic{ID: "device", Severity: diag.Error, Message: fmt.Sprintf("cannot read the device profile: %v", err)}
		}
		return parseDevice(name, data)
	}
	all, err := Devices()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range all {
		if d.Name == strings.ToLower(name) {
			return d, nil
		}
		names = append(names, d.Name)
	}
	return nil, &diag.Diagnostic{ID: "device", Severity: diag.Error,
		Message: fmt.Sprintf("no device profile is called %q", name),
		Help:    "use one of " + strings.Join(names, ", ") + ", or the path of a .json profile"}
}

// Times is n devices as one: n times the rates, the memory, the host memory and
// what the system takes of both. This is ideal tensor parallelism, in which
// every operation is cut into n equal parts and communication is free.
func (d *Device) Times(n int) *Device {
	x, f := *d, float64(n)
	x.MemoryBytes, x.Reserved, x.HostBytes = d.MemoryBytes*int64(n), d.Reserved*int64(n), d.HostBytes*int64(n)
	x.MatrixTFLOPS, x.VectorTFLOPS = scaled(d.MatrixTFLOPS, f), scaled(d.VectorTFLOPS, f)
	x.MemoryGBps, x.OutGBps, x.InGBps = d.MemoryGBps*f, d.OutGBps*f, d.InGBps*f
	return &x
}

func scaled(rates map[string]float64, f float64) map[string]float64 {
	out := make(map[string]float64, len(rates))
	for t, r := range rates {
		out[t] = r * f
	}
	return out
}

func parseDevice(file string, data []byte) (*Device, error) {
	var d Device
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.DisallowUnknownFields()
	err := dec.Decode(&d)
	if err == nil {
		err = d.validate()
	}
	if err != nil {
		return nil, &diag.Diagnostic{ID: "device", Severity: diag.Error, Loc: diag.Location{File: file},
			Message: fmt.Sprintf("device profile: %v", err)}
	}
	return &d, nil
}

func (d *Device) validate() error {
	for name, x := range map[string]float64{"memory_gbps": d.MemoryGBps, "copy_out_gbps": d.OutGBps, "copy_in_gbps": d.InGBps,
		"gemm_share": d.GemmShare, "attention_forward_share": d.AttnFwdShare, "attention_backward_share": d.AttnBwdShare,
		"memory_share": d.MemoryShare} {
		if !(x > 0) {
			return fmt.Errorf("%s must be positive, is %v", name, x)
		}
	}
	for what, rates := range map[string]map[string]float64{"matrix_tflops": d.MatrixTFLOPS, "vector_tflops": d.VectorTFLOPS} {
		if !(rates["float"] > 0) {
			return fmt.Errorf("%s needs a positive rate for float", what)
		}
		for t, r := range rates {
			if _, ok := ir.ParseDType(t); !ok || !(r > 0) {
				return fmt.Errorf("%s: %q with rate %v is no rate of an element type", what, t, r)
			}
		}
	}
	if d.Name == "" || d.MemoryBytes <= 0 || d.HostBytes < 0 || d.CopyLatency < 0 || d.Launch < 0 || d.Reserved < 0 {
		return errors.New("name, memory_bytes and non-negative times are needed")
	}
	return nil
}

// rate is the peak for an element type in FLOP per nanosecond; types without
// one use that of float.
func rate(tflops map[string]float64, t ir.DType) float64 {
	if r, ok := tflops[t.String()]; ok {
		return r * 1e3
	}
	return tflops["float"] * 1e3
}

// Time is the roofline: the launch plus the longer of arithmetic and memory
// traffic, in nanoseconds.
func (d *Device) Time(c ir.Cost) ir.Nanos {
	if c.Unit == ir.NoCompute {
		return 0
	}
	var flops float64 // per nanosecond
	switch c.Unit {
	case ir.Matrix:
		flops = rate(d.MatrixTFLOPS, c.DType) * d.GemmShare
	case ir.AttnFwd:
		flops = rate(d.MatrixTFLOPS, c.DType) * d.AttnFwdShare
	case ir.AttnBwd:
		flops = rate(d.MatrixTFLOPS, c.DType) * d.AttnBwdShare
	default:
		flops = rate(d.VectorTFLOPS, c.DType)
	}
	arith := float64(c.FLOPs) / flops
	memory := (float64(c.Read) + float64(c.Write)) / (d.MemoryGBps * d.MemoryShare)
	return d.Launch + ir.Nanos(max(arith, memory))
}

// Node is the predicted time and workspace of one node.
func (d *Device) Node(n *ir.Node) (t ir.Nanos, workspace ir.Bytes, err error) {
	c, err := OfNode(n)
	if err != nil {
		return 0, 0, err
	}
	return d.Time(c), c.Workspace, nil
}

// OfNode is what one node does. Operators memoc does not know are taken to read
// and write their operands once.
func OfNode(n *ir.Node) (ir.Cost, error) {
	c, err := ir.NewNodeCtx(n)
	if err != nil {
		return ir.Cost{}, err
	}
	var cost ir.Cost
	if n.Decl != nil {
		cost = n.Decl.Cost(c)
	} else {
		cost.Read, cost.Write = c.Traffic()
	}
	if cost.FLOPs < 0 || cost.Forward < 0 || cost.Dense < 0 || cost.Read < 0 || cost.Write < 0 || cost.Workspace < 0 {
		return ir.Cost{}, n.Errorf("cost", "BUG: the cost %+v overflows or is negative", cost)
	}
	return cost, nil
}

// Peak is the rate of matrix products in a type, in FLOP per nanosecond, that
// the vendor states.
func (d *Device) Peak(t ir.DType) float64 { return rate(d.MatrixTFLOPS, t) }

// Names lists the names of devices, sorted.
func Names(ds []*Device) []string {
	var out []string
	for _, d := range ds {
		out = append(out, d.Name)
	}
	slices.Sort(out)
	return out
}
