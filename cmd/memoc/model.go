package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"memoc/ir"
	"memoc/ir/models"
	"memoc/ir/onnx"
	"memoc/passes"
)

var modelCommand = &command{
	name:    "model",
	args:    "gpt|llama [flags] -o FILE",
	doc:     "Write a forward model with loss of any size; large weights are references to a file that planning does not need.",
	example: "memoc model gpt --preset 7b --seq 131072 -o gpt-7b.onnx",
}

func init() { modelCommand.run = runModel }

func runModel(c *call) error {
	f := newFlags(c.cmd)
	mf := f.model()
	inline := f.String("inline", "1MiB", "weights above this `SIZE` are absent external data")
	seed := f.Uint64("seed", 1, "seed of the weights: `N`")
	out := f.String("o", "", "write the model to `FILE`")
	args, err := f.parse(c, 1, 1)
	if err != nil {
		return ignoreDescribed(err)
	}
	if *out == "" {
		return &usageError{"-o FILE is needed"}
	}
	cfg, err := mf.config(args[0])
	if err != nil {
		return err
	}
	cfg.Seed = *seed
	if cfg.InlineLimit, err = passes.ParseSize(*inline); err != nil {
		return &usageError{"--inline: " + err.Error()}
	}
	m, err := models.Build(cfg)
	if err != nil {
		return &usageError{err.Error()}
	}
	return onnx.Save(*out, m)
}

// modelFlags are the sizes of a generated model.
type modelFlags struct {
	preset, dtype                                  string
	layers                                         int
	hidden, heads, kvHeads, ffn, vocab, seq, batch int64
}

// modelFlagNames are the flags that only generated models have.
var modelFlagNames = []string{"preset", "layers", "hidden", "heads", "kv-heads", "ffn", "vocab", "seq", "batch", "dtype"}

func (f *flags) model() *modelFlags {
	mf := &modelFlags{seq: 128}
	f.StringVar(&mf.preset, "preset", "", "a `SIZE` of the MEMO paper: 7b, 13b, 30b or 65b")
	f.IntVar(&mf.layers, "layers", 0, "transformer layers: `N` (default 4)")
	f.Int64Var(&mf.hidden, "hidden", 0, "hidden size: `N` (default 64)")
	f.Int64Var(&mf.heads, "heads", 0, "attention heads: `N` (default 4)")
	f.Int64Var(&mf.kvHeads, "kv-heads", 0, "heads of key and value, llama: `N` (default: heads)")
	f.Int64Var(&mf.ffn, "ffn", 0, "feed-forward width: `N` (default: 4 x hidden for gpt, 8/3 x hidden for llama)")
	f.Int64Var(&mf.vocab, "vocab", 0, "vocabulary: `N` (default 256)")
	f.count("seq", "tokens of a sequence: `N`, 8192 or 8K (default 128)", &mf.seq)
	f.Int64Var(&mf.batch, "batch", 1, "sequences: `N`")
	f.StringVar(&mf.dtype, "dtype", "", "`TYPE` of the weights: float, bfloat16, float16, double (default: float; bfloat16 for presets)")
	return mf
}

// config is the configuration that the flags give an architecture.
func (mf *modelFlags) config(arch string) (models.Config, error) {
	cfg, err := baseConfig(arch, mf.preset, mf.dtype)
	if err != nil {
		return cfg, err
	}
	cfg.Seq, cfg.Batch = mf.seq, mf.batch
	if mf.layers != 0 {
		cfg.Layers = mf.layers
	}
	for dst, v := range map[*int64]int64{&cfg.Hidden: mf.hidden, &cfg.Heads: mf.heads, &cfg.KVHeads: mf.kvHeads, &cfg.FFN: mf.ffn, &cfg.Vocab: mf.vocab} {
		if v != 0 {
			*dst = v
		}
	}
	return cfg, nil
}

// baseConfig is the configuration before sizes given one by one.
func baseConfig(arch, preset, dtype string) (models.Config, error) {
	cfg := models.Config{Layers: 4, Hidden: 64, Heads: 4, Vocab: 256, DType: ir.Float}
	if !slices.Contains(archs, arch) {
		return cfg, unknown("architecture", arch, archs)
	}
	if preset != "" {
		var ok bool
		if cfg, ok = models.Presets[strings.ToLower(preset)]; !ok {
			names := slices.SortedFunc(maps.Keys(models.Presets), func(a, b string) int {
				return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
			})
			return cfg, unknown("preset", preset, names)
		}
		cfg.DType = ir.BFloat16
	}
	if dtype != "" {
		d, ok := ir.ParseDType(dtype)
		if !ok || !slices.Contains(weightTypes, dtype) {
			return cfg, unknown("type of weights", dtype, weightTypes)
		}
		cfg.DType = d
	}
	cfg.Arch = arch
	return cfg, nil
}

var (
	archs       = []string{"gpt", "llama"}
	weightTypes = []string{"float", "bfloat16", "float16", "double"}
)

func unknown(what, name string, known []string) error {
	return &usageError{fmt.Sprintf("no %s is called %q%s; use one of %s", what, name, didYouMean(name, known), strings.Join(known, ", "))}
}
