package place

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"memoc/ir/mutate"
)

func TestReadCSV(t *testing.T) {
	const text = "size, Upper,hint,id,lower,gaps,alignment,offset\n4,3,,a,0,,,\n8,9,16,\"b,1\",2,3-5 6-7,32,64\n0,-1,-1,c,-4,,1,-1\n"
	table, err := ReadCSV(strings.NewReader(text), "x.csv", CSVOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := table.Problem()
	if err != nil {
		t.Fatal(err)
	}
	want := []Buffer{
		{ID: "a", Size: 4, Start: 0, End: 3},
		{ID: "b,1", Size: 8, Align: 32, Start: 2, End: 9, Gaps: []Interval{{3, 5}, {6, 7}}, Fixed: true, Offset: 64, HasHint: true, Hint: 16},
		{ID: "c", Size: 0, Align: 1, Start: -4, End: -1},
	}
	if !reflect.DeepEqual(p.Buffers, want) {
		t.Errorf("got  %+v\nwant %+v", p.Buffers, want)
	}
	closed, err := ReadCSV(strings.NewReader("id,lower,upper,size,gaps\na,0,3,4,1-1\n"), "x.csv", CSVOptions{Closed: true})
	if err != nil {
		t.Fatal(err)
	}
	if b := closed.Buffers[0]; b.End != 4 || b.Gaps[0] != (Interval{1, 2}) {
		t.Errorf("closed: %+v", b)
	}
}

func TestReadCSVErrors(t *testing.T) {
	const head = "id,lower,upper,size\n"
	for in, want := range map[string]string{
		"":                                            "x.csv:1: the file is empty; a header with id,lower,upper,size is needed",
		"id,lower,size\n":                             `x.csv:1: column "upper" is missing`,
		"id,id,lower,upper,size\n":                    `x.csv:1: column "id" occurs twice`,
		"id,lower,upper,size,aligment\n":              `x.csv:1: unknown column "aligment"; known are id, lower, upper, size, alignment, gaps, offset, hint`,
		head + "a,0,1,2\nb,0,1\n":                     "x.csv:3: column 1: wrong number of fields",
		head + "a,0,\"1\"x,2\n":                       "x.csv:2: column 7: extraneous or missing \" in quoted-field",
		head + "a,0,1,-2\n":                           "x.csv:2: size -2 is negative",
		head + "a,5,1,2\n":                            "x.csv:2: lifetime ends at 1, before its start 5",
		head + "a,0,1,2\n\na,3,4,5\n":                 `x.csv:4: id "a" is that of line 2`,
		head + "a,0,1,9223372036854775808\n":          `x.csv:2: size "9223372036854775808" does not fit into 64 bits`,
		head + "a,0,1,9223372036854775807\nb,0,1,1\n": "x.csv:3: the sum of all sizes passes 2^63",
		head + "a,0,1,2.5\n":                          `x.csv:2: size "2.5" is no whole number`,
		head + "a,0,,2\n":                             `x.csv:2: upper "" is no whole number`,
		head + ",0,1,2\n":                             "x.csv:2: the id is empty",
		"id,lower,upper,size,gaps\na,0,9,2,3\n":       `x.csv:2: gap "3" is not of the form 3-5`,
		"id,lower,upper,size,gaps\na,0,9,2,3-5 4-6\n": "x.csv:2: gap [4,6) is empty, out of order or outside the lifetime [0,9)",
		"id,lower,upper,size,offset\na,0,9,2,-7\n":    "x.csv:2: offset or hint is negative",
	} {
		_, err := ReadCSV(strings.NewReader(in), "x.csv", CSVOptions{})
		if err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", in, err, want)
		}
	}
}

// What is written reads back, and its offsets pass the check.
func TestWriteCSV(t *testing.T) {
	p := &Problem{Buffers: []Buffer{
		{ID: "a", Size: 5, Align: 4, Start: 0, End: 9, Gaps: []Interval{{2, 4}}},
		{ID: "b", Size: 6, Start: 1, End: 5},
		{ID: "c", Size: 0, Start: 1, End: 5, HasHint: true, Hint: 3},
	}}
	s, err := Solve(context.Background(), p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := WriteCSV(&out, p, s.Offsets); err != nil {
		t.Fatal(err)
	}
	const want = "id,lower,upper,size,alignment,gaps,offset,hint\na,0,9,5,4,2-4,0,\nb,1,5,6,1,,5,\nc,1,5,0,1,,0,3\n"
	if out.String() != want {
		t.Errorf("got %s\nwant %s", out.String(), want)
	}
	table, err := ReadCSV(&out, "out.csv", CSVOptions{})
	if err != nil {
		t.Fatal(err)
	}
	q, offsets, err := table.Placement()
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(q, offsets); err != nil {
		t.Error(err)
	}
	offsets[1] = 3
	if err := Check(q, offsets); err == nil {
		t.Error("an overlap passes the check")
	}
}

func TestPlacementNeedsOffsets(t *testing.T) {
	table, err := ReadCSV(strings.NewReader("id,lower,upper,size,offset\na,0,1,2,0\nb,0,1,2,\n"), "x.csv", CSVOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := table.Placement(); err == nil || err.Error() != `x.csv:3: buffer "b" has no offset` {
		t.Error(err)
	}
}

func TestSVG(t *testing.T) {
	p := &Problem{Buffers: []Buffer{{ID: "<a>", Size: 4, Start: 0, End: 3, Gaps: []Interval{{1, 2}}}, {ID: "b", Size: 2, Start: 0, End: 1}}}
	var out bytes.Buffer
	if err := WriteSVG(&out, p, []int64{0, 4}); err != nil {
		t.Fatal(err)
	}
	svg := out.String()
	if strings.Count(svg, "<rect x=") != 3 || !strings.Contains(svg, "&lt;a&gt;: 4 bytes at 0") || !strings.Contains(svg, "lower bound 6") {
		t.Error(svg)
	}
	if err := WriteSVG(&out, p, nil); err == nil {
		t.Error("no offsets, no error")
	}
}

func TestReport(t *testing.T) {
	p := &Problem{Capacity: 5, Buffers: []Buffer{{ID: "a", Size: 4, Start: 0, End: 3}, {ID: "b", Size: 2, Start: 0, End: 1}}}
	s, err := Solve(context.Background(), p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s.Report("x", p))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"status":"infeasible"`, `"conflict":["a","b"]`, `"lower_bound":6`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s lacks %s", text, part)
		}
	}
}

func FuzzReadCSV(f *testing.F) { mutate.Explore(f, csvSeeds(), csvHolds) }

func TestReadCSVMutated(t *testing.T) { mutate.Test(t, "FuzzReadCSV", csvSeeds(), 3000, csvHolds) }

func csvSeeds() [][]byte {
	return [][]byte{
		[]byte("id,lower,upper,size\na,0,3,4\nb,1,2,3\n"),
		[]byte("id,lower,upper,size,alignment,gaps,offset,hint\na,0,9,5,4,2-4,0,\nb,1,5,6,1,,,7\n"),
		[]byte("id,lower,upper,size,gaps\na,-9,9,5,-4--2\n"),
	}
}

// csvHolds: a table is refused with the file's name, or what is placed by it
// is sound and written as a table that is read. Intervals are half-open and
// closed in turn.
func csvHolds(b []byte) (accepted bool, wrong error) {
	for _, closed := range []bool{false, true} {
		table, err := ReadCSV(bytes.NewReader(b), "fuzz.csv", CSVOptions{Closed: closed})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fuzz.csv:") {
				return false, fmt.Errorf("the error names no file: %w", err)
			}
			continue
		}
		accepted = true
		if wrong = tableHolds(table); wrong != nil {
			return true, wrong
		}
	}
	return accepted, nil
}

func tableHolds(table *Table) error {
	p, err := table.Problem()
	if err != nil {
		return nil
	}
	s, err := Solve(context.Background(), p, Options{Work: 100000})
	if err != nil {
		return nil // fixed buffers that overlap, or sizes out of range
	}
	if err := Check(p, s.Offsets); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := WriteCSV(&out, p, s.Offsets); err != nil {
		return err
	}
	again, err := ReadCSV(&out, "again.csv", CSVOptions{})
	if err == nil {
		_, _, err = again.Placement()
	}
	return err
}
