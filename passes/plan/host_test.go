package plan

import "testing"

// More host memory never makes a plan slower, at any budget of device memory:
// small steps, on hosts that grow by about a tenth.
func TestMoreHostIsNeverSlower(t *testing.T) {
	for seed := range uint64(6) {
		p := step(seed, 16)
		var before []Rung
		for host := int64(300); host < 1500; host += host / 9 {
			p.HostBytes = host
			l := ladder(t, p, Auto)
			for _, r := range before {
				if b := best(l, r.Peak); b == nil || b.Time > r.Time {
					t.Errorf("seed %d: with %d bytes of host memory %d bytes take %d ns with less, now %+v", seed, host, r.Peak, r.Time, b)
				}
			}
			before = l.Pareto()
		}
	}
}
