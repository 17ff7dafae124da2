package place

// Techniques switches the parts of the search on and off. Any combination gives
// valid answers and true proofs; they differ in speed. DefaultTechniques has the
// ones that pay, which is all of them.
type Techniques struct {
	// Orders tries first fit in several orders; without it, in one.
	Orders bool
	// Promote repeats first fit with the buffers that most often stood too high
	// in front.
	Promote bool
	// Exact runs the complete search, where it is small enough to be of use.
	Exact bool
	// Restarts runs many short complete searches by different rules, instead of
	// a single long one.
	Restarts bool
	// Ladder, when minimising, asks for heights between the bound and the best one
	// too, and not only for the bound and the next lower height.
	Ladder bool

	// The parts of the complete search.

	// Split solves stretches of time that no buffer crosses one by one.
	Split bool
	// Memory keeps states that failed, and does not search them again.
	Memory bool
	// Twins places buffers that are just alike in one order only.
	Twins bool
	// Support lets a buffer lie on another one or on the ground, never in the air.
	Support bool
}

// DefaultTechniques is what a nil Options.Techniques means.
func DefaultTechniques() Techniques {
	return Techniques{Orders: true, Promote: true, Exact: true, Restarts: true, Ladder: true,
		Split: true, Memory: true, Twins: true, Support: true}
}
