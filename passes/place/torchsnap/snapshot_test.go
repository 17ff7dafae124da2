package torchsnap

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"memoc/ir/mutate"
	"memoc/passes/place"
)

// Nothing here is generated; the flag lets go test ./... -update run.
var _ = flag.Bool("update", false, "ignored")

func open(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Open(filepath.Join("../../../../shared/placement/torch", name))
	if os.IsNotExist(err) {
		t.Skip("the snapshots are not here")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Figures that were found with Python's own pickle.
func TestRealSnapshots(t *testing.T) {
	if testing.Short() {
		t.Skip("reads megabytes")
	}
	type device struct {
		events, requests, freed, before int
		live, reserved, reservedBefore  int64
	}
	plain := device{9700, 3216, 3216, 0, 471498368, 551550976, 0}
	for name, want := range map[string][]device{
		"resnet_adam.pkl":            {plain},
		"resnet_adam_expandable.pkl": {{8092, 2899, 2574, 320, 503000496, 530579456, 113246208}},
	} {
		s, err := Read(open(t, name), name)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			d := s.Devices[i]
			got := device{d.Events, len(d.Requests), d.Freed, len(d.Before), d.LivePeak, d.ReservedPeak, d.ReservedBefore}
			if got != w {
				t.Errorf("%s, device %d: %+v, want %+v", name, i, got, w)
			}
			checkPlan(t, &d)
		}
		for _, d := range s.Devices[len(want):] {
			if d.Events != 0 || len(d.Requests) != 0 {
				t.Errorf("%s: device %d should be idle", name, d.Index)
			}
		}
	}
}

// The plan reaches the peak of live bytes, rounded to the alignment.
func checkPlan(t *testing.T, d *Device) {
	t.Helper()
	p := d.Problem(false, 512)
	s, err := place.Solve(context.Background(), p, place.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := place.Check(p, s.Offsets); err != nil {
		t.Fatal(err)
	}
	t.Logf("device %d: live %d, reserved %d, planned %d (bound %d, %v)", d.Index, d.LivePeak, d.ReservedPeak, s.Height, s.LowerBound, s.Status)
	if s.Status != place.Optimal || s.Height > d.ReservedPeak {
		t.Errorf("planned %d, bound %d, reserved %d", s.Height, s.LowerBound, d.ReservedPeak)
	}
}

func TestRefusesCode(t *testing.T) {
	for _, evil := range []string{
		"cos\nsystem\n(S'true'\ntR.",
		"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
		"\x80\x02cbuiltins\neval\nq\x00X\x01\x00\x00\x001\x85q\x01Rq\x02.",
		"(S'true'\nios\nsystem\n.",
	} {
		_, err := Read(strings.NewReader(evil), "evil.pkl")
		if err == nil || !strings.Contains(err.Error(), "not run") || !strings.HasPrefix(err.Error(), "evil.pkl: byte ") {
			t.Errorf("%q: %v", evil, err)
		}
	}
}

func TestBadPickles(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "x.pkl: byte 0: the pickle is cut off: no STOP",
		"\x80\x04":                "x.pkl: byte 2: the pickle is cut off: no STOP",
		"\x80\x09.":               "x.pkl: byte 0: opcode '\\u0080': pickle protocol 9 is unknown",
		"\x8c\xffab":              "x.pkl: byte 0: opcode '\\u008c': the pickle is cut off: 253 bytes are missing",
		"K\x01.":                  "x.pkl: the pickle holds a number, not a dict with segments and device_traces",
		"}.":                      "x.pkl: device_traces is a None or absent value, not a list",
		"e.":                      "x.pkl: byte 0: opcode 'e': there is no mark on the stack",
		"h\x07.":                  "x.pkl: byte 0: opcode 'h': nothing is stored as number 7",
		"}K\x01K\x02\x86K\x03s.":  "x.pkl: byte 8: opcode 's': a key of type torchsnap.tuple is not supported",
		"}(\x8c\x01aK\x01K\x02u.": "x.pkl: byte 9: opcode 'u': a key has no value",
		"\x8a\x0a1234567890.":     "x.pkl: byte 0: opcode '\\u008a': a number of 10 bytes is too large",
		"}\x8c\x0ddevice_traces]s\x8c\x08segments](}es.": "x.pkl: segments[0]: device is a None or absent value, not a number",
	} {
		_, err := Read(strings.NewReader(in), "x.pkl")
		if err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", in, err, want)
		}
	}
}

// A snapshot cut off anywhere is an error, never a panic.
func TestTruncated(t *testing.T) {
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(open(t, "resnet_adam.pkl")); err != nil {
		t.Fatal(err)
	}
	data := buf.Bytes()
	for _, n := range []int{0, 1, 100, 12345, len(data) / 2, len(data) - 1} {
		if _, err := Read(bytes.NewReader(data[:n]), "cut.pkl"); err == nil || !strings.Contains(err.Error(), "cut off") {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func FuzzRead(f *testing.F) { mutate.Explore(f, pickles(), snapshotHolds) }

func TestReadMutated(t *testing.T) { mutate.Test(t, "FuzzRead", pickles(), 4000, snapshotHolds) }

func pickles() [][]byte {
	return [][]byte{
		[]byte("}\x8c\x0ddevice_traces](](}(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x10ueees\x8c\x08segments]s."),
		[]byte("\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00}\x94(K\x01N\x88\x89u."),
		[]byte("(lp0\nI01\naL5L\naF1.5\nag0\na."),
	}
}

// snapshotHolds: what is read of a snapshot can be placed.
func snapshotHolds(b []byte) (accepted bool, wrong error) {
	s, err := Read(bytes.NewReader(b), "fuzz")
	if err != nil {
		return false, nil
	}
	for _, d := range s.Devices {
		p := d.Problem(true, 1)
		if err := p.Validate(); err != nil {
			continue // sums beyond the range
		}
		sol, err := place.Solve(context.Background(), p, place.Options{Work: 10000})
		if err == nil {
			err = place.Check(p, sol.Offsets)
		}
		if err != nil {
			return true, err
		}
	}
	return true, nil
}
