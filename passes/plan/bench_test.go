package plan

import "testing"

// The training step of a GPT with 7 billion parameters at a million tokens.
func BenchmarkSearch(b *testing.B) {
	p := gpt7b(1<<20).problem(12, 256*gib)
	for b.Loop() {
		if _, err := p.Search(Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	p := gpt7b(1<<20).problem(12, 256*gib)
	f, room := p.facts(), &scratch{}
	c := p.memo(f)
	for b.Loop() {
		s, err := p.build(f, c, 0, room)
		if err != nil {
			b.Fatal(err)
		}
		room.free(s)
	}
}
