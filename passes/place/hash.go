package place

// mix64 is a fixed bijection that spreads the bits of v; seed picks another one.
func mix64(v, seed uint64) uint64 {
	v += seed * 0x9e3779b97f4a7c15
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}
