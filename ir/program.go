package ir

// Bytes is a size or an address in bytes, Nanos a duration or a point in time
// in nanoseconds.
type (
	Bytes = int64
	Nanos = int64
)

// Align is the alignment of every buffer in bytes: what CUDA's own allocator
// gives, and enough for every vector load.
const Align Bytes = 256

// Padded is n rounded up to Align; zero stays zero: what has no bytes owns
// none.
func Padded(n Bytes) Bytes { return (n + Align - 1) / Align * Align }

// Program is a planned step: the rewritten graph, laid out as steps on lanes
// that read and write fixed byte ranges of arenas. It holds everything the
// emitters need; they never ask the passes.
//
// Steps are listed in issue order, which is a topological order of all lane
// and wait edges: a step waits only for earlier ones. Each lane runs its steps
// in that order. Offsets are chosen first; Waits then make every two
// overlapping accesses of which one writes ordered.
type Program struct {
	Name      string
	Graph     *Graph
	Arenas    []Arena
	Lanes     []Lane
	Buffers   []Buffer
	Places    []Place // by ValueID; Buffer -1 where the value has no bytes of its own
	Steps     []Step
	Decisions []Decision
	Metrics   Metrics
	Device    string       // name of the device profile
	Log       []PassRecord // what each pass did
}

// Indices of the arenas and lanes that every Program has today. More ranks,
// tiers or communication lanes are further entries.
const (
	DeviceArena = 0
	HostArena   = 1

	ComputeLane = 0
	OutLane     = 1 // device to host
	InLane      = 2 // host to device
)

// Arena is one allocation that buffers lie in.
type Arena struct {
	Name       string // "device", "host"
	Size       Bytes  // height of the placement, padding included
	Align      Bytes  // of the base and of every buffer's offset
	LowerBound Bytes  // largest sum of live bytes: no placement can be lower
	Budget     Bytes  // what was allowed; 0: no limit
}

// Lane is an in-order queue of a device: a CUDA stream.
type Lane struct{ Name string }

// Class is the role of a buffer in the step.
type Class uint8

// The classes of design: Persistent ones live across steps (weights, inputs,
// constants), Output ones to the end of the step, Skeletal ones from forward
// to backward, Transient ones within one of them.
const (
	Transient Class = iota // classes are ordered by how long they last
	Skeletal
	Output
	Persistent
	Scratch // workspace of one step
	HostSlot
)

// String names the class.
func (c Class) String() string {
	return [...]string{"transient", "skeletal", "output", "persistent", "workspace", "host-slot"}[c]
}

// Buffer is a fixed byte range of an arena with a lifetime in steps,
// half-open: alive for steps First <= s < End. A Persistent buffer is alive
// always.
type Buffer struct {
	Name   string // of the value that owns the storage
	Value  *Value // nil for workspaces
	Arena  int
	Offset Bytes
	Size   Bytes
	First  int
	End    int
	Class  Class
}

// Place is where a value's bytes are: a view shares its base's buffer. A part
// of a tensor along an axis that is not its outermost lies in Rows pieces of
// Size/Rows bytes, each Pitch bytes after the one before.
//
// A Slice without a step lies in its input's place; a Concat without a step is
// the place that its inputs are parts of. Neither moves a byte.
type Place struct {
	Buffer int
	Offset Bytes // of the first piece within the buffer
	Size   Bytes // of all pieces together
	Rows   int64 // 0 and 1: one piece
	Pitch  Bytes
}

// StepKind tells the forms of a step apart.
type StepKind uint8

// The forms of a step.
const (
	RunStep     StepKind = iota // execute Node on the compute lane
	CopyOutStep                 // Node is a SwapOut: device to host
	CopyInStep                  // Node is a SwapIn: host to device
)

// Step is one operation on a lane.
type Step struct {
	Kind      StepKind
	Lane      int
	Node      *Node
	Reads     []Access
	Writes    []Access
	Workspace int   // buffer of scratch memory, -1 if none
	Waits     []int // earlier steps of other lanes that must have ended
	Duration  Nanos // predicted
	Start     Nanos // predicted, waits included
	Stall     Nanos // time the lane stood still just before, waiting
}

// Access is a byte range of a buffer, or the pieces of one: see Place.
type Access = Place

// DecisionKind is what happens to a skeletal tensor between forward and
// backward.
type DecisionKind uint8

// The decisions.
const (
	Keep DecisionKind = iota
	Swap
	Remat
	SplitTokens
)

// String names the decision as the command line prints it.
func (k DecisionKind) String() string {
	return [...]string{"keep", "swap", "recompute", "split"}[k]
}

// Decision is the fate of one skeletal storage.
type Decision struct {
	Tensor  string
	Bytes   Bytes
	Kind    DecisionKind
	Reason  string
	Extra   Nanos  // compute added by recomputing it, or time its copies take
	Produce string // node that makes it

	// Head is the part of a split tensor that goes to the host; the rest is made
	// again.
	Head Bytes

	Type       string
	First, End int    // steps from its definition to its last use, half-open
	Binds      string // the limit that decided: see docs/plan.md
	Options    []Alternative
}

// Alternative is one way to treat a tensor, and what it costs beside the rest
// of the plan.
type Alternative struct {
	Kind     DecisionKind
	Possible bool
	Bytes    Bytes // held at the plan's peak
	Time     Nanos // of its copies both ways, or of making it again once
	Note     string
}

// Metrics is the summary of a plan; sizes in bytes, times in nanoseconds.
type Metrics struct {
	PeakExported  Bytes // liveness over the file's own order
	PeakUnplanned Bytes // after simplification, all kept, in-place done
	Persistent    Bytes
	OutputBytes   Bytes
	Budget        Bytes // 0: none given
	Peak          Bytes // height of the device arena
	LowerBound    Bytes
	FlatPeak      Bytes // of the placement of all buffers together; 0 where the layers do not repeat
	TwoLevelPeak  Bytes // of the placement with each layer class packed once; 0 likewise
	HostPeak      Bytes
	HostBudget    Bytes
	Time          Nanos
	Stall         Nanos
	ExtraCompute  Nanos
	UnplannedTime Nanos
	Chunks        int   // of tokens, in which feed-forward layers run; 0: they run whole
	ChunkedLayers int   // how many do
	ChunkedBytes  Bytes // of their widest tensor, all chunks together
}

// PassRecord is one pass's entry in the log.
type PassRecord struct {
	Pass    string
	Changed bool
	Stats   []KV
	Nanos   Nanos // wall clock; not part of any artifact
}
