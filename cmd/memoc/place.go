package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"memoc/ir"
	"memoc/passes"
	"memoc/passes/place"
	"memoc/passes/place/torchsnap"
)

var placeCommand = &command{
	name: "place",
	args: "FILE.csv|FILE.pkl [flags]",
	doc: "Place buffers with known lifetimes in one arena.\n" +
		"FILE is minimalloc's CSV (id,lower,upper,size; optional alignment, gaps, offset, hint) or a memory snapshot of PyTorch.\n" +
		"With --capacity it decides whether they fit, without one it lowers the height.",
	example: "memoc place testdata/place/small0.csv --capacity 1MiB -o placed.csv",
}

func init() { placeCommand.run = runPlace }

type placeFlags struct {
	capacity  int64
	timeLimit time.Duration
	closed    bool
	check     bool
	asJSON    bool
	out, svg  string
}

func runPlace(c *call) error {
	f := newFlags(c.cmd)
	var pf placeFlags
	f.Func("capacity", "decide whether the buffers fit into `SIZE` (default: lower the height)", func(s string) (err error) {
		pf.capacity, err = passes.ParseSize(s)
		return err
	})
	f.DurationVar(&pf.timeLimit, "time-limit", 0, "stop after `TIME` (30s); the answer may then differ from run to run")
	f.BoolVar(&pf.closed, "closed", false, "upper is the last step of a life, not the one after it")
	f.BoolVar(&pf.check, "check", false, "verify the offsets in the file instead of choosing them")
	f.BoolVar(&pf.asJSON, "json", false, "print the answer as JSON")
	f.StringVar(&pf.out, "o", "", "write the table with offsets to `FILE.csv`")
	f.StringVar(&pf.svg, "svg", "", "draw the placement into `FILE.svg`: time across, address up")
	args, err := f.parse(c, 1, 1)
	if err != nil {
		return ignoreDescribed(err)
	}
	file, err := os.Open(args[0])
	if err != nil {
		return unreadable(args[0], err)
	}
	defer file.Close()
	if strings.HasSuffix(args[0], ".pkl") || strings.HasSuffix(args[0], ".pickle") {
		return placeSnapshot(c, &pf, file, args[0])
	}
	table, err := place.ReadCSV(file, args[0], place.CSVOptions{Closed: pf.closed})
	if err != nil {
		return err
	}
	if pf.check {
		return checkPlacement(c, table, args[0])
	}
	p, err := table.Problem()
	if err != nil {
		return err
	}
	p.Capacity = pf.capacity
	sol, took, err := solve(c, &pf, p)
	if err != nil {
		return err
	}
	if err := writePlacement(&pf, p, sol); err != nil {
		return err
	}
	if pf.asJSON {
		err = json.NewEncoder(c.stdout).Encode(sol.Report(args[0], p))
	} else {
		printPlacement(c.stdout, args[0], p, sol, took)
	}
	if err != nil {
		return err
	}
	if sol.Status == place.Infeasible || sol.Status == place.Undecided {
		return errDifferent
	}
	return nil
}

// placeWork is the work a search from the command line may take: some ten
// seconds on a problem that is not solved at once.
const placeWork = 1 << 32

// solve runs the solver; Ctrl-C stops it with the best answer found.
func solve(c *call, pf *placeFlags, p *place.Problem) (*place.Solution, time.Duration, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	line := newProgress(c.stderr)
	defer line.done()
	start := time.Now()
	work := int64(placeWork)
	if pf.timeLimit > 0 {
		work = 0 // the clock is the limit
	}
	sol, err := place.Solve(ctx, p, place.Options{Work: work, TimeLimit: pf.timeLimit, Progress: func(pr place.Progress) {
		line.update(fmt.Sprintf("height %d, bound %d", pr.Height, pr.LowerBound), 0)
	}})
	return sol, time.Since(start), err
}

func checkPlacement(c *call, t *place.Table, name string) error {
	p, offsets, err := t.Placement()
	if err != nil {
		return err
	}
	if err := place.Check(p, offsets); err != nil {
		fmt.Fprintf(c.stdout, "%s: %v\n", name, err)
		return errDifferent
	}
	fmt.Fprintf(c.stdout, "%s: the offsets of %d buffers are sound\n", name, len(p.Buffers))
	return nil
}

func writePlacement(pf *placeFlags, p *place.Problem, sol *place.Solution) error {
	for path, render := range map[string]func(io.Writer) error{
		pf.out: func(w io.Writer) error { return place.WriteCSV(w, p, sol.Offsets) },
		pf.svg: func(w io.Writer) error { return place.WriteSVG(w, p, sol.Offsets) },
	} {
		if path == "" {
			continue
		}
		var b bytes.Buffer
		if err := render(&b); err != nil {
			return err
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func printPlacement(w io.Writer, name string, p *place.Problem, sol *place.Solution, took time.Duration) {
	fmt.Fprintf(w, "%s: %d buffers, %s\n", name, len(p.Buffers), sol.Status)
	fmt.Fprintf(w, "  height      %d (%s)\n", sol.Height, passes.FormatBytes(sol.Height))
	fmt.Fprintf(w, "  lower bound %d, gap %.4f%%\n", sol.LowerBound, 100*sol.Gap())
	if p.Capacity > 0 {
		fmt.Fprintf(w, "  capacity    %d\n", p.Capacity)
	}
	fmt.Fprintf(w, "  time        %v\n", took.Round(time.Millisecond))
	if !sol.Reproducible {
		fmt.Fprintln(w, "  stopped by the clock or by hand: another run may answer otherwise")
	}
	if len(sol.Conflict) > 0 {
		fmt.Fprintln(w, "  these cannot be placed together:")
		for _, i := range sol.Conflict {
			b := &p.Buffers[i]
			fmt.Fprintf(w, "    %s: %d bytes, steps [%d,%d)\n", b.ID, b.Size, b.Start, b.End)
		}
	}
}

// placeSnapshot compares what PyTorch's caching allocator reserved with what
// the same requests need when their lives are known.
func placeSnapshot(c *call, pf *placeFlags, r io.Reader, name string) error {
	s, err := torchsnap.Read(r, name)
	if err != nil {
		return err
	}
	var all []*place.Report
	for i := range s.Devices {
		d := &s.Devices[i]
		if len(d.Requests) == 0 {
			continue
		}
		p := d.Problem(false, ir.Align)
		p.Capacity = pf.capacity
		sol, took, err := solve(c, pf, p)
		if err != nil {
			return err
		}
		title := fmt.Sprintf("%s device %d", name, d.Index)
		if pf.asJSON {
			all = append(all, sol.Report(title, p))
			continue
		}
		printPlacement(c.stdout, title, p, sol, took)
		fmt.Fprintf(c.stdout, "  live peak   %d in the trace\n  reserved    %d by the caching allocator, %.4f times the planned height\n",
			d.LivePeak, d.ReservedPeak, ratio(d.ReservedPeak, sol.Height))
		if err := writePlacement(pf, p, sol); err != nil {
			return err
		}
	}
	if pf.asJSON {
		return json.NewEncoder(c.stdout).Encode(all)
	}
	return nil
}
