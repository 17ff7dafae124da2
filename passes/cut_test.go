package passes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"memoc/ir/onnx"
	"memoc/passes/cost"
)

func analyzed(t *testing.T, path string, tile int64) *Context {
	t.Helper()
	m, _, err := onnx.Load(path, onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := cost.LoadDevice("h100")
	if err != nil {
		t.Fatal(err)
	}
	c := &Context{Model: m, Graph: m.Graph, Options: Options{Train: true, Loss: "loss", Device: dev, HostBudget: -1, Tile: tile}}
	if err := (&Runner{}).RunUntil(c, Plan); err != nil {
		t.Fatal(err)
	}
	return c
}

// The problem of a GPT says of every tensor in which layer it is and what it is
// there, which ones a layer reads from the one before, and what attention made.
func TestRoles(t *testing.T) {
	c := analyzed(t, "../testdata/models/gpt-tiny.onnx", 0)
	var inputs, attention []string
	byRole := map[int][]string{}
	for i, s := range c.Origin.storage {
		x, name := &c.Problem.Tensors[i], c.Live.Storages[s].Root.Name
		if x.Input {
			inputs = append(inputs, name)
		}
		if x.Attention {
			attention = append(attention, name)
		}
		if x.Role > 0 && !x.Input { // inputs have the name of the layer that makes them
			layer, rest, _ := strings.Cut(name, ".")
			if want := fmt.Sprintf("layer%d", x.Layer-1); layer != want {
				t.Errorf("%q is said to be of layer %d", name, x.Layer)
			}
			byRole[x.Role] = append(byRole[x.Role], rest)
		}
	}
	if want := []string{"embed", "layer0.ffn_residual", "layer1.ffn_residual", "layer2.ffn_residual"}; !slices.Equal(inputs, want) {
		t.Errorf("layers read %q, want %q", inputs, want)
	}
	if len(attention) != 4 || !strings.HasPrefix(attention[2], "layer2.attn/") {
		t.Errorf("attention makes %q", attention)
	}
	for role, names := range byRole {
		if slices.Sort(names); len(names) != 4 || names[0] != names[3] && !strings.Contains(names[0], "_out0") {
			t.Errorf("role %d is that of %q", role, names)
		}
	}
	if len(byRole) < 20 {
		t.Errorf("%d roles: the case shows too little", len(byRole))
	}
}

// Tensors may be cut every 128 tokens, in short sequences at eight positions,
// or as the user says.
func TestTiles(t *testing.T) {
	for _, k := range []struct {
		tile, want int64
		tiles      int
	}{{0, 8, 8}, {16, 16, 4}, {60, 60, 2}} {
		p := analyzed(t, "../testdata/models/gpt-tiny.onnx", k.tile).Problem
		if p.Tokens != 64 || p.Tile != k.want || p.Tiles() != k.tiles {
			t.Errorf("asked for %d: %d tokens in %d tiles of %d", k.tile, p.Tokens, p.Tiles(), p.Tile)
		}
	}
}
