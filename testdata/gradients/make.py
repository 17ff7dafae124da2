"""Gradients of the models in testdata/models by an implementation that shares nothing with memoc.

Each node is computed by NumPy in double precision from the definition of its operator, and the package autograd
(https://github.com/HIPS/autograd) differentiates that. A few elements are compared with central differences on the way.

    pip install numpy onnx autograd
    python testdata/gradients/make.py        # from the repository's root

writes <model>.npz beside this file: in/<graph input>, loss, grad/<initializer>.
"""
import pathlib

import autograd
import autograd.numpy as np
import numpy
import onnx
from onnx import numpy_helper

HERE = pathlib.Path(__file__).parent


def erf(x):
    """Abramowitz and Stegun would be too coarse: the series of erf, exact to double precision for the values here."""
    total, term = x, x
    for n in range(1, 60):
        term = -term * x * x / n
        total = total + term / (2 * n + 1)
    return total * 2 / np.sqrt(np.pi)


def normalize(x, scale, bias, epsilon, center):
    if center:
        x = x - np.mean(x, axis=-1, keepdims=True)
    x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon)
    return x * scale + (0 if bias is None else bias)


def attention(q, k, v, a):
    """Batched multi-head attention [batch, seq, heads*size] with a causal mask and grouped keys."""
    assert a["is_causal"] == 1
    heads, groups = a["q_num_heads"], a["kv_num_heads"]
    split = lambda x, n: np.transpose(np.reshape(x, (x.shape[0], x.shape[1], n, -1)), (0, 2, 1, 3))
    q, k, v = split(q, heads), split(k, groups), split(v, groups)
    k, v = np.repeat(k, heads // groups, axis=1), np.repeat(v, heads // groups, axis=1)
    s = np.matmul(q, np.transpose(k, (0, 1, 3, 2))) / np.sqrt(q.shape[-1])
    s = np.where(numpy.tril(numpy.ones(s.shape[-2:], bool)), s, -1e300)
    p = np.exp(s - np.max(s, axis=-1, keepdims=True))
    p = p / np.sum(p, axis=-1, keepdims=True)
    y = np.transpose(np.matmul(p, v), (0, 2, 1, 3))
    return np.reshape(y, (y.shape[0], y.shape[1], -1))


def rotary(x, cos, sin, a):
    assert a.get("interleaved", 0) == 0
    h = np.reshape(x, (x.shape[0], x.shape[1], a["num_heads"], -1))
    half = h.shape[-1] // 2
    x1, x2, c, s = h[..., :half], h[..., half:], cos[:, :, None, :], sin[:, :, None, :]
    return np.reshape(np.concatenate([x1 * c - x2 * s, x1 * s + x2 * c], axis=-1), x.shape)


def loss(logits, labels, a):
    labels = numpy.asarray(labels)
    keep = labels != a["ignore_index"]
    m = np.max(logits, axis=-1, keepdims=True)
    logp = logits - m - np.log(np.sum(np.exp(logits - m), axis=-1, keepdims=True))
    picked = logp[numpy.arange(len(labels)), numpy.where(keep, labels, 0)]
    return -np.sum(picked * keep) / np.sum(keep)


def node(n, x, a):
    match n.op_type:
        case "Gather": return x[0][numpy.asarray(x[1])]
        case "MatMul": return np.matmul(x[0], x[1])
        case "Add": return x[0] + x[1]
        case "Mul": return x[0] * x[1]
        case "Sigmoid": return 1 / (1 + np.exp(-x[0]))
        case "Gelu": return x[0] / 2 * (1 + erf(x[0] / np.sqrt(2.0)))
        case "LayerNormalization": return normalize(x[0], x[1], x[2], a.get("epsilon", 1e-5), True)
        case "RMSNormalization": return normalize(x[0], x[1], None, a.get("epsilon", 1e-5), False)
        case "Attention": return attention(x[0], x[1], x[2], a)
        case "RotaryEmbedding": return rotary(x[0], x[1], x[2], a)
        case "Reshape": return np.reshape(x[0], tuple(int(d) for d in x[1]))
        case "Expand": return x[0] * numpy.ones([int(d) for d in x[1]])
        case "Range": return numpy.arange(int(x[0]), int(x[1]), int(x[2]))
        case "Cast": return x[0] * 1.0
        case "Cos": return np.cos(x[0])
        case "Sin": return np.sin(x[0])
        case "Constant": return numpy_helper.to_array(a["value"])
        case "SoftmaxCrossEntropyLoss": return loss(x[0], x[1], a)
    raise NotImplementedError(n.op_type)


def main(name):
    model = onnx.load(HERE.parent / "models" / f"{name}.onnx")
    g = model.graph
    attrs = [{a.name: onnx.helper.get_attribute_value(a) for a in n.attribute} for n in g.node]
    inits = {t.name: numpy_helper.to_array(t) for t in g.initializer}
    weights = {k: v.astype(numpy.float64) for k, v in inits.items() if v.dtype == numpy.float32 and v.ndim > 0}
    fixed = {k: v for k, v in inits.items() if k not in weights}
    rng = numpy.random.default_rng(7)
    shape = [d.dim_value for d in g.input[0].type.tensor_type.shape.dim]
    vocab = weights["embed.weight"].shape[0]
    inputs = {"tokens": rng.integers(0, vocab, shape), "labels": rng.integers(0, vocab, shape)}
    inputs["labels"][:, ::5] = -100

    def run(w):
        env = {"": None, **fixed, **inputs, **w}
        for n, a in zip(g.node, attrs):
            env[n.output[0]] = node(n, [env[i] for i in n.input], a)
        return env["loss"]

    value, grads = autograd.value_and_grad(run)(weights)
    for k in weights:  # central differences on three elements of each
        for i in rng.integers(0, weights[k].size, 3):
            at = numpy.unravel_index(i, weights[k].shape)
            ends = []
            for step in (1e-5, -1e-5):
                w = {**weights, k: weights[k].copy()}
                w[k][at] += step
                ends.append(run(w))
            d = (ends[0] - ends[1]) / 2e-5
            assert abs(d - grads[k][at]) < 1e-8 + 1e-5 * numpy.abs(grads[k]).max(), (k, at, d, grads[k][at])
    out = {f"in/{k}": v for k, v in inputs.items()} | {"loss": numpy.float32(value)}
    out |= {f"grad/{k}": v.astype(numpy.float32) for k, v in grads.items() if numpy.abs(v).max() > 0}
    numpy.savez_compressed(HERE / f"{name}.npz", **out)
    print(f"{name}: loss {value:.6f}, {len(grads)} gradients")


for name in ("gpt-tiny", "llama-tiny"):
    main(name)
