package diag

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Collector gathers messages of one run and prints them: equal ones once,
// errors first, then in the order of the model. The zero value is ready.
type Collector struct {
	// Limit is the number of messages of each severity that are printed; what
	// is left out is counted. 0 stands for 20, a negative number for no limit.
	Limit int

	list []*Diagnostic
}

const defaultLimit = 20

// Add takes a message; nil is ignored. It fits InferOptions.Report.
func (c *Collector) Add(d *Diagnostic) {
	if d != nil {
		c.list = append(c.list, d)
	}
}

// AddError takes an error: every Diagnostic that it joins or wraps, or else
// its text without a place.
func (c *Collector) AddError(err error) {
	if err == nil {
		return
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			c.AddError(e)
		}
		return
	}
	var d *Diagnostic
	if errors.As(err, &d) && d.Error() == err.Error() {
		c.Add(d)
		return
	}
	wrapped := &Diagnostic{ID: "error", Severity: Error, Message: err.Error()}
	if d != nil {
		wrapped.ID = d.ID
	}
	c.Add(wrapped)
}

// Len is the number of messages of a severity.
func (c *Collector) Len(s Severity) int {
	n := 0
	for _, d := range c.list {
		if d.Severity == s {
			n++
		}
	}
	return n
}

// Err is nil if no error was added, the only one if there is one, else the
// first with the count of the others.
func (c *Collector) Err() error {
	var first *Diagnostic
	n := 0
	for _, d := range c.Sorted() {
		if d.Severity == Error {
			if n++; first == nil {
				first = d
			}
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return first
	}
	return fmt.Errorf("%w (and %s)", first, count(n-1, "more error"))
}

// Sorted lists the messages, equal ones once: by falling severity, file,
// graph, node, tensor, ID and text. The order in which they were added does
// not matter.
func (c *Collector) Sorted() []*Diagnostic {
	out := slices.Clone(c.list)
	slices.SortStableFunc(out, compare)
	return slices.CompactFunc(out, func(a, b *Diagnostic) bool { return *a == *b })
}

func compare(a, b *Diagnostic) int {
	return cmp.Or(-cmp.Compare(a.Severity, b.Severity), strings.Compare(a.Loc.File, b.Loc.File),
		strings.Compare(a.Loc.Path, b.Loc.Path), cmp.Compare(a.Loc.Index, b.Loc.Index),
		strings.Compare(a.Loc.Node, b.Loc.Node), strings.Compare(a.Loc.Value, b.Loc.Value),
		strings.Compare(a.ID, b.ID), strings.Compare(a.Message, b.Message), strings.Compare(a.Help, b.Help),
		strings.Compare(a.Loc.Op, b.Loc.Op), cmp.Compare(a.Loc.Opset, b.Loc.Opset))
}

// limited is Sorted up to the limit, with what was left out by severity.
func (c *Collector) limited() (shown []*Diagnostic, hidden [Error + 1]int) {
	limit := c.Limit
	if limit == 0 {
		limit = defaultLimit
	}
	var n [Error + 1]int
	for _, d := range c.Sorted() {
		if n[d.Severity]++; limit < 0 || n[d.Severity] <= limit {
			shown = append(shown, d)
		} else {
			hidden[d.Severity]++
		}
	}
	return shown, hidden
}

// WriteText prints one line for each message and one for its help.
func (c *Collector) WriteText(w io.Writer) error {
	var b strings.Builder
	shown, hidden := c.limited()
	for _, d := range shown {
		fmt.Fprintf(&b, "%s: ", d.Severity)
		if l := d.Loc.String(); l != "" {
			b.WriteString(l + ": ")
		}
		fmt.Fprintf(&b, "%s [%s]\n", d.Message, d.ID)
		if d.Help != "" {
			fmt.Fprintf(&b, "  help: %s\n", d.Help)
		}
	}
	for s := int(Error); s >= int(Note); s-- {
		if hidden[s] > 0 {
			fmt.Fprintf(&b, "… and %s\n", count(hidden[s], "more "+Severity(s).String()))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// report is the JSON form: a stable schema for scripts.
type report struct {
	Diagnostics []*Diagnostic  `json:"diagnostics"`
	Hidden      map[string]int `json:"hidden,omitempty"` // by severity
}

// WriteJSON prints one JSON object: "diagnostics", each with "id", "severity",
// "message", and "help" and "location" where known; "hidden" counts what the
// limit left out.
func (c *Collector) WriteJSON(w io.Writer) error {
	shown, hidden := c.limited()
	r := report{Diagnostics: shown}
	if shown == nil {
		r.Diagnostics = []*Diagnostic{}
	}
	for s, n := range hidden {
		if n > 0 {
			if r.Hidden == nil {
				r.Hidden = map[string]int{}
			}
			r.Hidden[Severity(s).String()] = n
		}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

type jsonLocation struct {
	File  string `json:"file,omitempty"`
	Path  string `json:"path,omitempty"`
	Index *int   `json:"index,omitempty"`
	Node  string `json:"node,omitempty"`
	Op    string `json:"op,omitempty"`
	Opset int    `json:"opset,omitempty"`
	Value string `json:"tensor,omitempty"`
}

// MarshalJSON is the form that WriteJSON documents.
func (d *Diagnostic) MarshalJSON() ([]byte, error) {
	out := struct {
		ID       string        `json:"id"`
		Severity string        `json:"severity"`
		Message  string        `json:"message"`
		Help     string        `json:"help,omitempty"`
		Location *jsonLocation `json:"location,omitempty"`
	}{ID: d.ID, Severity: d.Severity.String(), Message: d.Message, Help: d.Help}
	if d.Loc != (Location{}) {
		l := &jsonLocation{File: d.Loc.File, Path: d.Loc.Path, Node: d.Loc.Node, Op: d.Loc.Op, Opset: d.Loc.Opset, Value: d.Loc.Value}
		if d.Loc.Node != "" {
			l.Index = &d.Loc.Index
		}
		out.Location = l
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(out)
	return []byte(b.String()), err
}
