package passes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"memoc/ir/diag"
)

// Debug is the -d flags: one option set per pass.
type Debug map[string]PassOptions

// PassOptions is what -d=<pass>/... may say of one pass.
type PassOptions struct {
	Off   bool
	Time  bool
	Dump  bool
	Level int // debug=n
	Limit int // limit=n: stop after n rewrites; -1: none
}

// debugForms are the options after the slash, as help prints them.
const debugForms = "off, time, dump, debug=n, limit=n"

// Set parses one -d value, "<pass>/<option>[,<option>…]"; the pass may be
// "all". Unknown names are errors with a suggestion.
func (d Debug) Set(s string) error {
	name, rest, ok := strings.Cut(s, "/")
	if !ok {
		return fmt.Errorf("-d=%s: write -d=<pass>/<option> with option one of %s", s, debugForms)
	}
	names := passNames()
	if name != "all" {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-d=%s: no pass is called %q%s", s, name, suggestion(name, names))
		}
		names = []string{name}
	}
	for _, opt := range strings.Split(rest, ",") {
		for _, n := range names {
			if err := d.apply(n, opt, name == "all"); err != nil {
				return fmt.Errorf("-d=%s: %w", s, err)
			}
		}
	}
	return nil
}

func (d Debug) apply(pass, opt string, all bool) error {
	o, ok := d[pass]
	if !ok {
		o.Limit = -1
	}
	key, val, hasVal := strings.Cut(opt, "=")
	n, err := strconv.Atoi(val)
	switch {
	case key == "off" && !hasVal:
		if p := passByName(pass); !p.Optional {
			if all {
				return nil
			}
			return fmt.Errorf("pass %q is required and cannot be turned off", pass)
		}
		o.Off = true
	case key == "time" && !hasVal:
		o.Time = true
	case key == "dump" && !hasVal:
		o.Dump = true
	case key == "debug" && err == nil:
		o.Level = n
	case key == "limit" && err == nil && n >= 0:
		o.Limit = n
	default:
		return fmt.Errorf("%q is no option of a pass%s; use one of %s", opt,
			suggestion(key, []string{"off", "time", "dump", "debug", "limit"}), debugForms)
	}
	d[pass] = o
	return nil
}

func suggestion(name string, among []string) string {
	if s := diag.Suggest(name, among); s != "" {
		return fmt.Sprintf("; did you mean %q?", s)
	}
	return ""
}
