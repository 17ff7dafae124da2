"""Holds what memoc writes against the ONNX checker and ONNX Runtime.

For every model: compile it under a budget, check the rewritten file with
onnx.checker (full), run original and rewritten files in ONNX Runtime with
graph optimisation off (with it on, that runtime merges clones back), and
compare outputs. A forward model that was trained by memoc is compared in what
both files have (the loss), and in all outputs with memoc's own interpreter.

usage: oracle.py MEMOC MODEL[,flag...] ...
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort

RTOL, ATOL = 1e-4, 1e-6  # of the largest expected element: float sums in another order


def session(path):
    so = ort.SessionOptions()
    so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    so.log_severity_level = 3
    return ort.InferenceSession(path, so, providers=["CPUExecutionProvider"])


def memoc(binary, *args):
    done = subprocess.run([binary, *args], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"memoc {' '.join(args)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def inputs_of(s, archive):
    if archive:
        z = np.load(archive)
        pick = {k.removeprefix("in/"): z[k] for k in z}
        return {i.name: pick[i.name] for i in s.get_inputs()}
    rng = np.random.default_rng(7)
    feed = {}
    for i in s.get_inputs():
        shape = [d if isinstance(d, int) else 2 for d in i.shape]
        if "int" in i.type:
            feed[i.name] = rng.integers(0, 16, shape).astype(np.int64 if "64" in i.type else np.int32)
        elif "bool" in i.type:
            feed[i.name] = np.zeros(shape, bool)
        else:
            feed[i.name] = rng.standard_normal(shape).astype(np.float32 if i.type == "tensor(float)" else np.float64)
    return feed


def compare(what, got, want):
    for name, w in want.items():
        if name not in got:
            raise AssertionError(f"{what}: output {name!r} is missing")
        g, w = np.asarray(got[name], np.float64), np.asarray(w, np.float64)
        if g.shape != w.shape:
            raise AssertionError(f"{what}: {name!r} has shape {g.shape}, expected {w.shape}")
        if not w.size:
            continue
        both_nan = np.isnan(g) & np.isnan(w)
        diff = np.where(both_nan | (g == w), 0, np.abs(g - w))
        finite = np.abs(w[np.isfinite(w)])
        limit = RTOL * (finite.max() if finite.size else 0) + ATOL
        if not diff.max() <= limit:
            raise AssertionError(f"{what}: {name!r} differs by {diff.max():g}, allowed {limit:g}")


def run(s, feed):
    return dict(zip([o.name for o in s.get_outputs()], s.run(None, feed)))


def one(binary, model, flags):
    archive = os.path.join(os.path.dirname(model), "case.npz")
    archive = archive if os.path.exists(archive) else None
    with tempfile.TemporaryDirectory() as d:
        table = json.loads(memoc(binary, "compile", model, *flags, "--json", "--emit", "model,plan", "-o", d))
        written = os.path.join(d, "model.onnx")
        onnx.checker.check_model(onnx.load(written, load_external_data=False), full_check=True)
        original, rewritten = session(model), session(written)
        feed = inputs_of(original, archive)
        want, got = run(original, feed), run(rewritten, feed)
        common = {k: v for k, v in want.items() if k in got}
        if not common:
            raise AssertionError("the rewritten model has none of the original's outputs")
        compare("rewritten against original", got, common)
        np.savez(os.path.join(d, "in.npz"), **feed)
        memoc(binary, "run", d, "--inputs", os.path.join(d, "in.npz"), "--save", os.path.join(d, "out.npz"))
        compare("memoc against ONNX Runtime", np.load(os.path.join(d, "out.npz")), got)
    swapped, again, split = (table["decisions"][k]["tensors"] for k in ("swap", "recompute", "split"))
    if "--tile" in flags and not split:
        raise AssertionError("nothing is split: the case shows nothing of it")
    print(f"ok {model} {' '.join(flags)}: {len(got)} outputs, {swapped} swapped, {again} recomputed, {split} split")


def main():
    binary, failed = sys.argv[1], 0
    for spec in sys.argv[2:]:
        model, *flags = spec.split(",")
        try:
            one(binary, model, flags)
        except Exception as e:  # every model is tried; the exit status tells
            failed += 1
            print(f"FAILED {spec}: {e}")
    print(f"{len(sys.argv) - 2 - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
