package place

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Table is a problem as a CSV file states it: a header that names the columns, in
// any order, and a row for each buffer.
//
//	id         name, unique in the file
//	lower      first step of the life
//	upper      step after the last one (the last one itself, with Closed)
//	size       bytes
//	alignment  optional; of the offset
//	gaps       optional; steps without bytes, as "3-5 9-12" (ends as for upper)
//	offset     optional; empty or -1 is none
//	hint       optional; empty or -1 is none
type Table struct {
	Buffers []Buffer // Fixed is false; see Problem and Placement

	// HasOffset says which buffers have an offset in the file, Offsets which.
	HasOffset []bool
	Offsets   []int64

	name  string
	lines []int
}

// CSVOptions says how to read.
type CSVOptions struct {
	Closed bool // upper is the last step of the life, not the one after it
}

// columns of a file; the first four are required.
var columns = []string{"id", "lower", "upper", "size", "alignment", "gaps", "offset", "hint"}

const requiredColumns = 4

// ReadCSV reads a table. Errors name the file and the line.
func ReadCSV(r io.Reader, name string, opt CSVOptions) (*Table, error) {
	t := &Table{name: name}
	in := csv.NewReader(r)
	in.TrimLeadingSpace = true
	header, err := in.Read()
	if err == io.EOF {
		return nil, fmt.Errorf("%s:1: the file is empty; a header with id,lower,upper,size is needed", name)
	}
	if err != nil {
		return nil, t.syntax(err)
	}
	where, err := t.header(header)
	if err != nil {
		return nil, err
	}
	ids := map[string]int{}
	sum := int64(0)
	for {
		row, err := in.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, t.syntax(err)
		}
		line, _ := in.FieldPos(0)
		rd := rowReader{row: row, where: where, closed: opt.Closed}
		b, at, has := rd.buffer()
		if rd.err == nil {
			rd.err = b.validate()
		}
		if rd.err == nil && sum > math.MaxInt64-b.Size {
			rd.err = errors.New("the sum of all sizes passes 2^63")
		}
		if first, ok := ids[b.ID]; ok && rd.err == nil {
			rd.err = fmt.Errorf("id %q is that of line %d", b.ID, first)
		}
		if rd.err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, line, rd.err)
		}
		ids[b.ID] = line
		sum += b.Size
		t.Buffers = append(t.Buffers, b)
		t.Offsets = append(t.Offsets, at)
		t.HasOffset = append(t.HasOffset, has)
		t.lines = append(t.lines, line)
	}
	return t, nil
}

func (t *Table) syntax(err error) error {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return fmt.Errorf("%s:%d: column %d: %w", t.name, p.Line, p.Column, p.Err)
	}
	return fmt.Errorf("%s: %w", t.name, err)
}

// header returns the field of each known column, or -1.
func (t *Table) header(row []string) ([]int, error) {
	where := make([]int, len(columns))
	for i := range where {
		where[i] = -1
	}
	for field, text := range row {
		text = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(text, "\ufeff")))
		found := false
		for i, c := range columns {
			if text != c {
				continue
			}
			if where[i] >= 0 {
				return nil, fmt.Errorf("%s:1: column %q occurs twice", t.name, text)
			}
			where[i], found = field, true
		}
		if !found {
			return nil, fmt.Errorf("%s:1: unknown column %q; known are %s", t.name, text, strings.Join(columns, ", "))
		}
	}
	for i := range requiredColumns {
		if where[i] < 0 {
			return nil, fmt.Errorf("%s:1: column %q is missing", t.name, columns[i])
		}
	}
	return where, nil
}

// rowReader takes a row apart and keeps the first error.
type rowReader struct {
	row    []string
	where  []int
	closed bool
	err    error
}

func (r *rowReader) text(column int) string {
	if at := r.where[column]; at >= 0 {
		return strings.TrimSpace(r.row[at])
	}
	return ""
}

// number reads a column; what is empty or absent is def, if that is allowed.
func (r *rowReader) number(column int, def int64) int64 {
	s := r.text(column)
	if s == "" && column >= requiredColumns {
		return def
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil && r.err == nil {
		reason := "is no whole number"
		if errors.Is(err, strconv.ErrRange) {
			reason = "does not fit into 64 bits"
		}
		r.err = fmt.Errorf("%s %q %s", columns[column], s, reason)
	}
	return v
}

func (r *rowReader) step(column int) int {
	v := r.number(column, 0)
	if int64(int(v)) != v && r.err == nil {
		r.err = fmt.Errorf("%s %d is too large", columns[column], v)
	}
	return int(v)
}

func (r *rowReader) end(v int) int {
	if !r.closed {
		return v
	}
	if v == math.MaxInt {
		if r.err == nil {
			r.err = fmt.Errorf("step %d is too large", v)
		}
		return v
	}
	return v + 1
}

func (r *rowReader) buffer() (b Buffer, offset int64, hasOffset bool) {
	b.ID = r.text(0)
	if b.ID == "" {
		r.err = errors.New("the id is empty")
	}
	b.Start, b.End = r.step(1), r.end(r.step(2))
	b.Size = r.number(3, 0)
	b.Align = r.number(4, 0)
	for _, g := range strings.Fields(r.text(5)) {
		b.Gaps = append(b.Gaps, r.gap(g))
	}
	offset = r.number(6, -1)
	b.Hint = r.number(7, -1)
	hasOffset, b.HasHint = offset != -1, b.Hint != -1
	if r.err == nil && (offset < -1 || b.Hint < -1) {
		r.err = errors.New("offset or hint is negative")
	}
	if !hasOffset {
		offset = 0
	}
	if !b.HasHint {
		b.Hint = 0
	}
	return b, offset, hasOffset
}

// gap reads "a-b"; both may be negative.
func (r *rowReader) gap(s string) Interval {
	if i := strings.LastIndexByte(s, '-'); i > 0 {
		if s[i-1] == '-' {
			i--
		}
		a, errA := strconv.Atoi(s[:i])
		b, errB := strconv.Atoi(s[i+1:])
		if errA == nil && errB == nil {
			return Interval{a, r.end(b)}
		}
	}
	if r.err == nil {
		r.err = fmt.Errorf("gap %q is not of the form 3-5", s)
	}
	return Interval{}
}

// Problem is what the table asks for: buffers with an offset are fixed there.
func (t *Table) Problem() (*Problem, error) {
	p := &Problem{Buffers: append([]Buffer(nil), t.Buffers...)}
	for i := range p.Buffers {
		if b := &p.Buffers[i]; t.HasOffset[i] {
			b.Fixed, b.Offset = true, t.Offsets[i]
			if err := b.validate(); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", t.name, t.lines[i], err)
			}
		}
	}
	return p, nil
}

// Placement is what the table claims: every buffer must have an offset. None is
// fixed in the problem, so that Check can judge them all.
func (t *Table) Placement() (*Problem, []int64, error) {
	for i, has := range t.HasOffset {
		if !has && t.Buffers[i].owns() {
			return nil, nil, fmt.Errorf("%s:%d: buffer %q has no offset", t.name, t.lines[i], t.Buffers[i].ID)
		}
	}
	return &Problem{Buffers: t.Buffers}, t.Offsets, nil
}

// WriteCSV writes buffers and, if offsets is not nil, where they are. Columns
// that no buffer needs are left out. Lifetimes are half-open.
func WriteCSV(w io.Writer, p *Problem, offsets []int64) error {
	use := make([]bool, len(columns))
	for i := range p.Buffers {
		b := &p.Buffers[i]
		use[4] = use[4] || b.Align > 1
		use[5] = use[5] || len(b.Gaps) > 0
		use[6] = use[6] || b.Fixed || offsets != nil
		use[7] = use[7] || b.HasHint
	}
	out := csv.NewWriter(w)
	row := func(field func(column int) string) error {
		var cells []string
		for c := range columns {
			if c < requiredColumns || use[c] {
				cells = append(cells, field(c))
			}
		}
		return out.Write(cells)
	}
	if err := row(func(c int) string { return columns[c] }); err != nil {
		return err
	}
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if err := row(func(c int) string { return b.cell(c, i, offsets) }); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// cell is the text of one column of buffer i.
func (b *Buffer) cell(column, i int, offsets []int64) string {
	number := func(v int64) string { return strconv.FormatInt(v, 10) }
	switch columns[column] {
	case "id":
		if b.ID == "" {
			return strconv.Itoa(i)
		}
		return b.ID
	case "lower":
		return strconv.Itoa(b.Start)
	case "upper":
		return strconv.Itoa(b.End)
	case "size":
		return number(b.Size)
	case "alignment":
		return number(max(b.Align, 1))
	case "gaps":
		var s []string
		for _, g := range b.Gaps {
			s = append(s, fmt.Sprintf("%d-%d", g.Start, g.End))
		}
		return strings.Join(s, " ")
	case "offset":
		if offsets != nil {
			return number(offsets[i])
		}
		if b.Fixed {
			return number(b.Offset)
		}
	case "hint":
		if b.HasHint {
			return number(b.Hint)
		}
	}
	return ""
}
