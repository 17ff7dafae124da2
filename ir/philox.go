package ir

import "hash/fnv"

// Philox is the counter-based generator Philox4x32-10 (Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four random words
// of key and counter alone. Emitted kernels hold its twin, so a node draws the
// same numbers planned, unplanned, emitted and repeated.
func Philox(key [2]uint32, ctr [4]uint32) [4]uint32 {
	const m0, m1, w0, w1 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85
	for range 10 {
		p0 := uint64(m0) * uint64(ctr[0])
		p1 := uint64(m1) * uint64(ctr[2])
		ctr = [4]uint32{
			uint32(p1>>32) ^ ctr[1] ^ key[0], uint32(p1),
			uint32(p0>>32) ^ ctr[3] ^ key[1], uint32(p0),
		}
		key[0] += w0
		key[1] += w1
	}
	return ctr
}

// RandomStream is the random numbers of one node in one step.
type RandomStream struct {
	Seed uint64 // RandomKey of the run's seed and the node's original name
	Step uint64
}

// RandomKey mixes the run's seed with the name of the node that draws; clones
// and rewritten graphs pass the original's name.
func RandomKey(seed uint64, originName string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(originName))
	return seed ^ h.Sum64()
}

// Words is the four random words of element index i.
func (r RandomStream) Words(i uint64) [4]uint32 {
	return Philox([2]uint32{uint32(r.Seed), uint32(r.Seed >> 32)},
		[4]uint32{uint32(i), uint32(i >> 32), uint32(r.Step), uint32(r.Step >> 32)})
}

// Uniform is a float32 in [0,1) for element i, with 24 random bits.
func (r RandomStream) Uniform(i uint64) float32 {
	return float32(r.Words(i)[0]>>8) * (1.0 / (1 << 24))
}
