// Package diag holds located messages with stable IDs. It knows nothing of
// graphs: a location is names and numbers.
package diag

import (
	"fmt"
	"strings"
)

// Severity orders messages.
type Severity uint8

// The severities.
const (
	Note Severity = iota
	Warning
	Error
)

// String is "note", "warning" or "error".
func (s Severity) String() string { return [...]string{"note", "warning", "error"}[s] }

// Location is the place a message is about; empty fields are not known.
type Location struct {
	File  string // model file
	Path  string // graph path
	Index int    // node index within Path, meaningful if Node is set
	Node  string // node name
	Op    string // "com.microsoft::Gelu"
	Opset int
	Value string // tensor name
}

// String prints the known fields, file first.
func (l Location) String() string {
	var parts []string
	if l.File != "" {
		parts = append(parts, l.File)
	}
	if l.Path != "" && l.Path != "graph" {
		parts = append(parts, l.Path)
	}
	if l.Op != "" {
		s := fmt.Sprintf("node %q (%s", l.Node, l.Op)
		if l.Opset > 0 {
			s += fmt.Sprintf("@%d", l.Opset)
		}
		parts = append(parts, s+")")
	}
	if l.Value != "" {
		parts = append(parts, fmt.Sprintf("tensor %q", l.Value))
	}
	return strings.Join(parts, ": ")
}

// Diagnostic is one message. It is an error value.
type Diagnostic struct {
	ID       string // stable, documented in docs/errors.md
	Severity Severity
	Message  string // what was found and what was expected
	Help     string // what to do, "" if there is nothing to say
	Loc      Location
}

// Error prints "place: message; help".
func (d *Diagnostic) Error() string {
	var b strings.Builder
	if l := d.Loc.String(); l != "" {
		b.WriteString(l + ": ")
	}
	b.WriteString(d.Message)
	if d.Help != "" {
		b.WriteString("; " + d.Help)
	}
	return b.String()
}
