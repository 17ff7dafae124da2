package plan

import "fmt"

// maxTiles is the number of tiles that a Choice has room for.
const maxTiles = 1<<(32-headShift) - 1

// Tiles is the number of tiles of the token axis.
func (p *Problem) Tiles() int {
	if p.Tokens <= 0 || p.Tile <= 0 {
		return 0
	}
	return int((p.Tokens-1)/p.Tile + 1)
}

func (p *Problem) validateTokens() error {
	switch {
	case p.Tokens < 0 || p.Tokens > 0 && p.Tile <= 0:
		return fmt.Errorf("plan: %d tokens in tiles of %d", p.Tokens, p.Tile)
	case p.Tokens > 0 && (p.Tokens-1)/p.Tile >= maxTiles:
		return fmt.Errorf("plan: %d tokens are more than %d tiles of %d", p.Tokens, maxTiles, p.Tile)
	case p.PackRate < 0 || p.PackLatency < 0:
		return fmt.Errorf("plan: parts are packed at a rate of %v after %d ns", p.PackRate, p.PackLatency)
	}
	return nil
}

// validateRows checks the token axis of tensor t.
func (p *Problem) validateRows(t int) error {
	x := &p.Tensors[t]
	switch {
	case x.Role < 0 || x.Layer < 0 || (x.Role == 0) != (x.Layer == 0):
		return fmt.Errorf("plan: tensor %d has role %d in layer %d", t, x.Role, x.Layer)
	case x.Rows < 0 || x.TokenBytes < 0:
		return fmt.Errorf("plan: tensor %d has %d rows of %d bytes a token", t, x.Rows, x.TokenBytes)
	case x.Rows == 0 || p.Tokens == 0:
		return nil
	case x.TokenBytes > x.Bytes/p.Tokens:
		return fmt.Errorf("plan: tensor %d has %d bytes, fewer than %d tokens of %d", t, x.Bytes, p.Tokens, x.TokenBytes)
	case x.TokenBytes%x.Rows != 0:
		return fmt.Errorf("plan: tensor %d has %d bytes a token, which %d rows cannot share", t, x.TokenBytes, x.Rows)
	case x.Rows > 1 && p.PackRate == 0:
		return fmt.Errorf("plan: tensor %d lies in %d rows and there is no rate of packing", t, x.Rows)
	}
	return nil
}

// validateRange checks what op i says about running on a range of tokens.
func (p *Problem) validateRange(i int) error {
	op := &p.Ops[i]
	if op.Range == nil {
		return nil
	}
	if len(op.Range) != len(op.In) {
		return fmt.Errorf("plan: op %d reads %d tensors and has %d ranges", i, len(op.In), len(op.Range))
	}
	if op.TileTime < 0 || op.TileTime > op.Time {
		return fmt.Errorf("plan: op %d takes %d ns for a tile of the %d for all", i, op.TileTime, op.Time)
	}
	for k, t := range op.In {
		if op.Range[k] && p.Tensors[t].Rows == 0 {
			return fmt.Errorf("plan: op %d reads a range of tensor %d, which has no token axis", i, t)
		}
	}
	for _, t := range op.Out {
		if p.Tensors[t].Rows == 0 {
			return fmt.Errorf("plan: op %d makes ranges of tensor %d, which has no token axis", i, t)
		}
	}
	return nil
}

// ranges reports whether op i may be run again on a range of tokens.
func (p *Problem) ranges(i int) bool {
	return p.Ops[i].Clone && p.Ops[i].Range != nil && p.Tiles() > 1
}

// partBytes is the bytes of tiles [from, to) of tensor t in a buffer of their
// own or on the host, all of them where to is 0.
func (p *Problem) partBytes(t, from, to int) int64 {
	x := &p.Tensors[t]
	if to == 0 {
		return x.Bytes
	}
	tokens := min(int64(to)*p.Tile, p.Tokens) - int64(from)*p.Tile
	return (tokens*x.TokenBytes + align - 1) / align * align
}

// align is what the bytes of a part are a multiple of.
const align = 256

// rangeTime is the time of running op i on n tiles.
func (p *Problem) rangeTime(i, n int) int64 {
	op := &p.Ops[i]
	steps := int64(p.Tiles() - 1)
	if steps <= 0 {
		return op.Time
	}
	more, k := op.Time-op.TileTime, int64(n-1)
	return op.TileTime + more/steps*k + more%steps*k/steps
}

// packTime is the time of moving a part between its rows and its own buffer.
func (p *Problem) packTime(bytes int64) int64 {
	return p.PackLatency + int64(float64(bytes)/p.PackRate)
}
