//go:build unix

package place

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// benchCase is one row of the tables in docs/placement.md.
type benchCase struct {
	name     string
	file     string // below shared/placement, or empty
	make     func() *Problem
	capacity int64
	work     int64
}

const benchCapacity = 1 << 20

func benchCases() []benchCase {
	var c []benchCase
	for _, n := range []string{"A", "C", "D", "G", "I", "J", "K"} {
		c = append(c, benchCase{name: n + "/capacity", file: n + ".1048576.csv", capacity: benchCapacity, work: 1 << 33})
	}
	for _, n := range []string{"A", "C", "D", "G", "I", "J", "K"} {
		c = append(c, benchCase{name: n + "/minimise", file: n + ".1048576.csv", work: 1 << 33})
	}
	c = append(c,
		benchCase{name: "iopddl_G_1", file: "iopddl_G_1.csv"},
		benchCase{name: "resnet50", file: "somas_tensors_resnet50.csv"},
		benchCase{name: "pangu_2.6B", file: "somas_tensors_pangu_2.6B.csv"},
		benchCase{name: "random/1000", make: func() *Problem { return randomProblem(1000, 1) }},
		benchCase{name: "random/10000", make: func() *Problem { return randomProblem(10000, 1) }},
		benchCase{name: "random/100000", make: func() *Problem { return randomProblem(100000, 1) }},
		benchCase{name: "wide/1000", make: func() *Problem { return wideProblem(1000, 1) }},
		benchCase{name: "wide/10000", make: func() *Problem { return wideProblem(10000, 1) }},
		benchCase{name: "wide/100000", make: func() *Problem { return wideProblem(100000, 1) }},
		benchCase{name: "step/4", make: func() *Problem { return trainingStep(4, false) }},
		benchCase{name: "step/32", make: func() *Problem { return trainingStep(32, false) }},
		benchCase{name: "step/126", make: func() *Problem { return trainingStep(126, false) }},
		benchCase{name: "planned/4", make: func() *Problem { return trainingStep(4, true) }},
		benchCase{name: "planned/32", make: func() *Problem { return trainingStep(32, true) }},
		benchCase{name: "planned/126", make: func() *Problem { return trainingStep(126, true) }},
	)
	return c
}

// shared opens an instance that lives beside the repository, or skips.
func shared(t testing.TB, name string) *Problem {
	t.Helper()
	f, err := os.Open(filepath.Join("../../../shared/placement", name))
	if os.IsNotExist(err) {
		t.Skip("the instances are not here")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := ReadCSV(f, name, CSVOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := table.Problem()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (c *benchCase) problem(t testing.TB) *Problem {
	if c.file == "" {
		return c.make()
	}
	p := shared(t, c.file)
	p.Capacity = c.capacity
	return p
}

// cpu is the processor time of this process: on a machine that others use too,
// it says more than the clock does.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPlace prints, for each problem, the processor time of a whole Solve,
// the height over the lower bound, and the processor time until the first answer
// and its height.
func BenchmarkPlace(b *testing.B) {
	for _, c := range benchCases() {
		b.Run(c.name, func(b *testing.B) {
			p := c.problem(b)
			var spent, first, best time.Duration
			var firstGap float64
			var s *Solution
			for b.Loop() {
				start := cpu()
				seen := false
				var err error
				s, err = Solve(context.Background(), p, Options{Work: c.work, Progress: func(g Progress) {
					best = cpu() - start
					if !seen {
						seen, first, firstGap = true, best, float64(g.Height)/float64(g.LowerBound)
					}
				}})
				if err != nil {
					b.Fatal(err)
				}
				spent += cpu() - start
			}
			q := *p
			if s.Status == Undecided || s.Status == Infeasible {
				q.Capacity = 0
			}
			if len(p.Buffers) < 50000 {
				if err := Check(&q, s.Offsets); err != nil {
					b.Fatal(err)
				}
			}
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(spent)/float64(b.N), "cpu-ms")
			b.ReportMetric(float64(s.Height)/float64(s.LowerBound), "height/LB")
			b.ReportMetric(ms(best), "best-ms")
			b.ReportMetric(ms(first), "first-ms")
			b.ReportMetric(firstGap, "first/LB")
			b.Logf("%s: height %d, bound %d, %v, work %d", c.name, s.Height, s.LowerBound, s.Status, s.Work)
		})
	}
}
