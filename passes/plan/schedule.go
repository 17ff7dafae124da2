package plan

// Choice is what happens to a tensor in the gaps between its uses.
type Choice uint32

// The choices. Recompute of a tensor that nothing needs after a gap costs
// nothing: it is the default of every tensor that may be cloned.
const (
	Keep Choice = iota
	Swap
	Recompute
	// Split swaps the first tiles of the token axis and recomputes the rest: see
	// SplitAt.
	Split
	// Tight is a bit beside Swap or Recompute: the tensor leaves between any two
	// uses that are not of successive ops.
	Tight Choice = 4
	// Rolling is a bit beside any choice of a tensor that repeated layers have
	// in common: its instances lie in one buffer with those of the same tensor of
	// every second layer, for the whole step, and it is copied back as soon as
	// the layer two further on has left them.
	Rolling Choice = 8
)

// headShift is where the number of swapped tiles lies in a Choice.
const headShift = 8

// SplitAt is the Split whose first head tiles are swapped.
func SplitAt(head int) Choice { return Split | Choice(head)<<headShift }

// Head is the number of tiles that a Split swaps.
func (c Choice) Head() int { return int(c >> headShift) }

// Kind is the choice without its bits and the position of a split.
func (c Choice) Kind() Choice { return c & 3 }

// IsTight reports whether the tensor leaves in its near gaps too.
func (c Choice) IsTight() bool { return c&Tight != 0 }

// IsRolling reports whether the tensor shares its buffer along the layers.
func (c Choice) IsRolling() bool { return c&Rolling != 0 }

// EntryKind tells the forms of an Entry apart.
type EntryKind uint8

// The forms of an Entry.
const (
	Run     EntryKind = iota // the op itself
	Clone                    // the op once more
	CopyOut                  // instance to host
	CopyIn                   // host to a new instance
	Pack                     // a range of a whole instance to an instance of its own
	Unpack                   // such an instance to its range of a whole one
)

// Entry is one step of a Schedule, in issue order.
type Entry struct {
	Kind EntryKind
	Op   int   // Run, Clone
	In   []int // instances read: parallel to Op.In, or the one copied out
	Out  []int // instances made: parallel to Op.Out, or the one copied in
	// From and To bound the tiles that the entry reads and makes, half-open; To 0:
	// all of them. Several entries make a split instance part by part.
	From, To int
	// Wait is an entry of another lane that must have ended before this one
	// starts although no data flows between them; -1 for none.
	Wait int
}

// Instance is one stay of a tensor on the device. Lifetimes are half-open in
// entries. Instances that take over each other's bytes in place share a Buffer,
// and so do those of rolling tensors, one after the other.
type Instance struct {
	Tensor int
	Buffer int
	First  int // the first entry that writes it
	End    int
	// From and To bound the tiles it holds, half-open; To 0: all of them.
	From, To int
}

// Buffer is a device range with a half-open lifetime in entries.
type Buffer struct {
	Bytes      int64
	First, End int
	Instance   int // the one that opened it
}

// HostSlot is a host range from its copy out to the use of its last copy in.
type HostSlot struct {
	Tensor     int
	Head       int // tiles it holds; 0: all of them
	Bytes      int64
	First, End int // half-open, in entries
}

// Schedule is a Problem with every choice carried out.
type Schedule struct {
	Entries   []Entry
	Instances []Instance
	Buffers   []Buffer
	Host      []HostSlot
	Peak      int64 // largest sum of live device bytes, workspaces included
	PeakAt    int   // entry where it is first reached
	HostPeak  int64
	Time      int64 // nanoseconds, stalls included
	Stall     int64 // of the compute lane
	Extra     int64 // time of the clones, with packing
	Moved     int64 // bytes copied to the host

	peaks int   // computations in or before which Peak is reached
	floor int64 // with a limit: the peak if every copy took no time
	ints  []int // room for the lists of entries
	used  int   // of ints
	// By instance: the rolling buffer it lies in and who held that before it, -1
	// for none; nil where there are none.
	group, before []int
	// By instance: a copy out of it is under way when it is last read.
	copying []bool
}

// Duration is the predicted time of an entry.
func (s *Schedule) Duration(p *Problem, e *Entry) int64 {
	switch e.Kind {
	case CopyOut:
		return p.outTime(s.moved(p, e.In[0], e))
	case CopyIn:
		return p.inTime(s.moved(p, e.Out[0], e))
	case Pack, Unpack:
		return p.packTime(s.moved(p, e.In[0], e))
	}
	if e.To > 0 {
		return p.rangeTime(e.Op, e.To-e.From)
	}
	return p.Ops[e.Op].Time
}

// moved is the bytes that a copy or a packing e of instance x moves.
func (s *Schedule) moved(p *Problem, x int, e *Entry) int64 {
	return p.partBytes(s.Instances[x].Tensor, e.From, e.To)
}

// bytes is the device bytes of instance x.
func (s *Schedule) bytes(p *Problem, x int) int64 {
	in := &s.Instances[x]
	return p.partBytes(in.Tensor, in.From, in.To)
}

// Reads is the tiles of its input k that e reads, half-open; to 0: all that the
// instance holds.
func (p *Problem) Reads(e *Entry, k int) (from, to int) {
	if e.Kind == Clone && e.To > 0 && !p.Ops[e.Op].Range[k] {
		return 0, 0
	}
	return e.From, e.To
}

// Lane is where an entry runs: 0 compute, 1 out, 2 in.
func (e *Entry) Lane() int {
	switch e.Kind {
	case CopyOut:
		return 1
	case CopyIn:
		return 2
	}
	return 0
}
