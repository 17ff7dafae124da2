package place

// strategy picks sections and orders buffers; see strategies.
type strategy struct {
	pick  pickRule
	score scoreRule
	noise float64 // scores are multiplied by up to 1+noise
	seed  uint64
}

// pickRule says which section to branch on.
type pickRule int8

const (
	pickLowest  pickRule = iota // the lowest floor
	pickFewest                  // the fewest choices
	pickTrouble                 // the fewest choices per failure seen
)

// scoreRule says which candidate to try first.
type scoreRule int8

const (
	scoreSize scoreRule = iota
	scoreLife
	scoreArea
	scoreSmall
)

// choose picks the section to branch on.
func (x *exact) choose(lo, hi int32) int32 {
	pick := x.plan.pick
	least := never
	if x.in.crooked || x.in.gapped {
		pick = pickLowest // the others need flat floors to be exact
	}
	if pick == pickLowest {
		for t := lo; t < hi; t++ {
			if x.rest[t] > 0 {
				least = min(least, x.floor[t])
			}
		}
	}
	x.work -= 2 * int64(hi-lo)
	best, where := 0.0, int32(-1)
	wall := true // what is left of t is higher, or nothing is to place there
	for t := lo; t < hi; {
		f, e := x.floor[t], t+1
		if x.rest[t] == 0 {
			wall, t = true, e
			continue
		}
		for e < hi && x.floor[e] == f && x.rest[e] > 0 {
			e++
		}
		right := e == hi || x.rest[e] == 0 || x.floor[e] > f
		if wall && right && f <= least {
			if v, s := x.fewest(span{t, e}, pick); where < 0 || v < best {
				best, where = v, s
			}
		}
		wall = e < hi && x.rest[e] > 0 && x.floor[e] < f
		t = e
	}
	return where
}

// fewest rates the sections of a valley and returns the best; less is better.
func (x *exact) fewest(valley span, pick pickRule) (best float64, where int32) {
	run := x.run[valley.lo : valley.hi+1]
	clear(run)
	for s := valley.lo; s < valley.hi; s++ {
		for _, k := range x.enter[s] {
			if !x.done[k] && x.flat(k, valley) {
				run[s-valley.lo]++
				if e := x.in.life[k].hi; e <= valley.hi {
					run[e-valley.lo]--
				}
			}
		}
		x.work -= int64(len(x.enter[s]))
	}
	where = -1
	count := int32(0)
	for t := valley.lo; t < valley.hi; t++ {
		count += run[t-valley.lo]
		v := float64(count)
		if x.floor[t]+x.rest[t] < x.cap {
			v++
		}
		switch pick {
		case pickFewest:
			v += float64(x.floor[t]) / float64(x.cap+1)
		case pickTrouble:
			v /= 1 + x.weight[t]
		}
		if where < 0 || v < best {
			best, where = v, t
		}
	}
	return best, where
}

// order sorts candidates, the most promising first.
func (x *exact) order(cands []int32) {
	for i := range cands {
		for j := i; j > 0; j-- {
			a, b := cands[j-1], cands[j]
			if x.score(b) <= x.score(a) {
				break
			}
			cands[j-1], cands[j] = b, a
		}
	}
}

func (x *exact) score(k int32) float64 {
	in := x.in
	life := float64(in.life[k].hi - in.life[k].lo)
	size := float64(in.size[k])
	var v float64
	switch x.plan.score {
	case scoreSize:
		v = size
	case scoreLife:
		v = life + size/float64(x.cap)
	case scoreArea:
		v = size * life
	case scoreSmall:
		v = 1 / size
	}
	if x.plan.noise > 0 {
		v *= 1 + x.plan.noise*float64(mix64(uint64(k), x.plan.seed)>>11)/(1<<53)
	}
	return v
}
