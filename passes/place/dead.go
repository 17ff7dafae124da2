package place

// deadSet remembers states of the search that failed, as hashes of 64 bits. It
// grows up to a fixed size and then forgets: a state that is forgotten is only
// searched again.
type deadSet struct {
	slots []uint64 // 0 is empty
	used  int
}

const (
	deadStart = 1 << 12
	deadLimit = 1 << 22 // slots, 32 MiB
	deadProbe = 8
)

func newDeadSet() *deadSet { return &deadSet{slots: make([]uint64, deadStart)} }

func (d *deadSet) has(key uint64) bool {
	for i := range uint64(deadProbe) {
		switch d.slots[(key+i)&uint64(len(d.slots)-1)] {
		case key:
			return true
		case 0:
			return false
		}
	}
	return false
}

func (d *deadSet) add(key uint64) {
	if d.used > len(d.slots)/2 && len(d.slots) < deadLimit {
		old := d.slots
		d.slots, d.used = make([]uint64, 2*len(old)), 0
		for _, k := range old {
			if k != 0 {
				d.add(k)
			}
		}
	}
	mask := uint64(len(d.slots) - 1)
	for i := range uint64(deadProbe) {
		if s := &d.slots[(key+i)&mask]; *s == 0 || *s == key {
			if *s == 0 {
				d.used++
			}
			*s = key
			return
		}
	}
	d.slots[key&mask] = key
}
