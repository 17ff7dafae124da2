package cost

import (
	"strings"
	"testing"

	"memoc/ir"
)

// A GEMM [s,h]x[h,h] in bf16 is bound by arithmetic, a norm by memory: the
// figures are the roofline worked out by hand for the H200's data sheet.
func TestRoofline(t *testing.T) {
	d, err := LoadDevice("h200")
	if err != nil {
		t.Fatal(err)
	}
	gemm := ir.Cost{FLOPs: 2 * 8192 * 8192 * 8192, Read: 2 * 2 * 8192 * 8192, Write: 2 * 8192 * 8192, Unit: ir.Matrix, DType: ir.BFloat16}
	// 1.0995e12 FLOP / (989e12 * 0.8 FLOP/s) = 1.3897 ms, plus a launch of 3 us
	if got := d.Time(gemm); got < 1_391_000 || got > 1_394_000 {
		t.Errorf("GEMM takes %d ns, want about 1392600", got)
	}
	// 2 GB over 4800 GB/s * 0.85
	if got := d.Time(ir.Cost{Read: 1e9, Write: 1e9, DType: ir.BFloat16}); got < 493_000 || got > 494_000 {
		t.Errorf("moving 2 GB takes %d ns, want about 493196", got)
	}
	if got := d.Time(ir.Cost{Unit: ir.NoCompute}); got != 0 {
		t.Errorf("a view takes %d ns", got)
	}
}

func TestProfilesAreComplete(t *testing.T) {
	ds, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(Names(ds), " "); got != "a100 a800 h100 h200 rtx4090" {
		t.Errorf("devices %q", got)
	}
}

func TestBadProfiles(t *testing.T) {
	if _, err := LoadDevice("h300"); err == nil || !strings.Contains(err.Error(), "h100") {
		t.Errorf("unknown device: %v does not list the known ones", err)
	}
	for name, text := range map[string]string{
		"unknown field": `{"name":"x","speed":1}`,
		"no rates":      `{"name":"x","memory_bytes":1}`,
		"not JSON":      `name: x`,
	} {
		if _, err := parseDevice("x.json", []byte(text)); err == nil || !strings.Contains(err.Error(), "x.json") {
			t.Errorf("%s: error %v does not name the file", name, err)
		}
	}
}
