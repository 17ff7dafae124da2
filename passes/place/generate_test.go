package place

import (
	"fmt"
	"math/rand"
)

// trainingStep makes the buffers of one forward and backward pass over equal
// layers: in each layer a few that are kept for the backward pass and many that
// are short-lived, as an unplanned step of a transformer has them. A planned one
// has its kept buffers swapped out: they have gaps between the passes, split into
// two lives here as a planner does.
func trainingStep(layers int, planned bool) *Problem {
	const perPass = 90 // steps of one layer in one pass
	r := rand.New(rand.NewSource(int64(layers)))
	type kind struct {
		size, at, life int
		kept           bool
	}
	units := []int{1, 1, 1, 4, 4, 3, 12, 16}
	var kinds []kind
	for i := range perPass {
		k := kind{size: units[r.Intn(len(units))] << 20, at: i, life: 1 + r.Intn(6)}
		if r.Intn(4) == 0 {
			k.size = 4 * (1 + r.Intn(20000)) // statistics and masks
		}
		k.kept = i%6 == 0
		kinds = append(kinds, k)
	}
	p := &Problem{}
	end := 2*layers*perPass + 20
	add := func(name string, size, from, to int) {
		p.Buffers = append(p.Buffers, Buffer{ID: name, Size: int64(size), Align: 256, Start: from, End: min(to, end)})
	}
	for layer := range layers {
		forward := layer * perPass
		backward := (2*layers - 1 - layer) * perPass
		for i, k := range kinds {
			name := fmt.Sprintf("l%d.%d", layer, i)
			switch {
			case !k.kept:
				add(name, k.size, forward+k.at, forward+k.at+k.life)
			case planned && i%12 == 0 && layer < layers-2:
				add(name, k.size, forward+k.at, forward+perPass+k.at)
				add(name+".in", k.size, backward-perPass/2, backward+perPass-k.at)
			default:
				add(name, k.size, forward+k.at, backward+perPass-k.at)
			}
			add(name+".grad", k.size, backward+perPass-k.at-1, backward+perPass-k.at+k.life)
			if i%5 == 0 {
				add(name+".work", 3*k.size, backward+perPass-k.at-1, backward+perPass-k.at)
			}
		}
	}
	return p
}

// randomProblem makes n buffers of all sizes and mostly short lives.
func randomProblem(n int, seed int64) *Problem {
	r := rand.New(rand.NewSource(seed))
	p := &Problem{Buffers: make([]Buffer, n)}
	for i := range p.Buffers {
		start := r.Intn(n)
		life := 1 + int(r.ExpFloat64()*200)
		p.Buffers[i] = Buffer{ID: fmt.Sprint(i), Size: 1 + r.Int63n(1<<20), Align: 256, Start: start, End: min(start+life, n+1)}
	}
	return p
}

// wideProblem makes n buffers whose lives are any two points of time, so that a
// third of them live together.
func wideProblem(n int, seed int64) *Problem {
	r := rand.New(rand.NewSource(seed))
	p := &Problem{Buffers: make([]Buffer, n)}
	for i := range p.Buffers {
		a, b := r.Intn(n), r.Intn(n)
		p.Buffers[i] = Buffer{ID: fmt.Sprint(i), Size: 1 + r.Int63n(1<<20), Start: min(a, b), End: max(a, b) + 1}
	}
	return p
}

// perfectProblem cuts a rectangle of time and address into n boxes, so that a
// placement without a wasted byte exists. With loose, a few boxes are left out.
func perfectProblem(n int, seed int64, loose bool) *Problem {
	r := rand.New(rand.NewSource(seed))
	type box struct{ t0, t1, a0, a1 int }
	boxes := []box{{0, 4 * n, 0, 1 << 10}}
	for len(boxes) < n {
		// Cut one of the larger of a few boxes picked at random.
		pick := r.Intn(len(boxes))
		for range 3 {
			o := r.Intn(len(boxes))
			if a, b := boxes[o], boxes[pick]; (a.t1-a.t0)*(a.a1-a.a0) > (b.t1-b.t0)*(b.a1-b.a0) {
				pick = o
			}
		}
		b := boxes[pick]
		c := b
		if r.Intn(2) == 0 && b.t1-b.t0 > 1 {
			b.t1 = b.t0 + 1 + r.Intn(b.t1-b.t0-1)
			c.t0 = b.t1
		} else if b.a1-b.a0 > 1 {
			b.a1 = b.a0 + 1 + r.Intn(b.a1-b.a0-1)
			c.a0 = b.a1
		} else {
			continue
		}
		boxes[pick] = b
		boxes = append(boxes, c)
	}
	r.Shuffle(len(boxes), func(i, j int) { boxes[i], boxes[j] = boxes[j], boxes[i] })
	p := &Problem{}
	for i, b := range boxes {
		if loose && r.Intn(8) == 0 {
			continue
		}
		p.Buffers = append(p.Buffers, Buffer{ID: fmt.Sprint(i), Size: int64(b.a1-b.a0) << 10, Start: b.t0, End: b.t1})
	}
	return p
}
