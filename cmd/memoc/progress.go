package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress shows on a terminal what takes longer than a second. On anything
// else it stays silent, so that logs hold no control characters.
type progress struct {
	w     io.Writer
	start time.Time
	shown bool
}

func newProgress(w io.Writer) *progress {
	p := &progress{start: time.Now()}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.w = w
		}
	}
	return p
}

// update says what is being done and how far it is, 0 to 1.
func (p *progress) update(what string, share float64) {
	if p.w == nil || time.Since(p.start) < time.Second {
		return
	}
	p.shown = true
	fmt.Fprintf(p.w, "\r\033[K%3.0f%% %s (%.0f s)", 100*share, what, time.Since(p.start).Seconds())
}

// note says what is being done where nobody knows how far it is.
func (p *progress) note(what string) {
	if p.w == nil || time.Since(p.start) < time.Second {
		return
	}
	p.shown = true
	fmt.Fprintf(p.w, "\r\033[K%s (%.0f s)", what, time.Since(p.start).Seconds())
}

// done removes the line.
func (p *progress) done() {
	if p.shown {
		fmt.Fprint(p.w, "\r\033[K")
	}
}
