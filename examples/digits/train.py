"""Train the four digit classifiers and write them as ONNX, with the data sets beside them.

    python train.py                  # everything, into this folder (some minutes on two cores)
    python train.py --only mlp       # one model
    python train.py --out FOLDER     # somewhere else

The run is seeded: the split, the initial weights, the order of the batches and the distortions
all come from `--seed`. Two runs with the library versions of requirements.txt on the same kind of
CPU give the same files; another CPU may round differently in the last bits.

Every model takes `pixels` [N, 64] (8 x 8, row by row, intensities 0..16 as in the data set) and
returns `scores` [N, 10] (logits). The scaling of the pixels and the batch normalisation are folded
into the weights, so the files hold plain operators only: Gemm, MatMul, Conv, Relu, MaxPool, Add,
GlobalAveragePool, ReduceMean, Reshape, Flatten.

The large network looks at five views of each image (as it is, and moved by half a pixel in four
directions) and averages the scores. Moving an image is linear, so the views are a product with a
fixed matrix; five times the work buys the last errors.
"""

import argparse
import functools
import json
import pathlib
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax.scipy.ndimage import map_coordinates
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

CLASSES = 10
SIDE = 8
BRIGHTEST = 16.0
BATCH = 50
EPSILON = 1e-5
OPSET = 17
IR_VERSION = 8


@dataclass(frozen=True)
class Recipe:
    """An architecture, and how it is trained."""

    layers: tuple
    epochs: int
    rate: float
    decay: float
    distort: bool = False


# A layer is a tuple: its kind, then its sizes.
RECIPES = {
    "logistic": Recipe((("dense", 64, 10, False),), epochs=60, rate=0.01, decay=1e-2),
    "mlp": Recipe(
        (("dense", 64, 256, True), ("dense", 256, 256, True), ("dense", 256, 10, False)),
        epochs=60,
        rate=0.001,
        decay=1e-3,
    ),
    "cnn-small": Recipe(
        (
            ("image",),
            ("conv", 1, 16),
            ("conv", 16, 32),
            ("maxpool",),
            ("conv", 32, 32),
            ("flatten",),
            ("dense", 32 * 16, 10, False),
        ),
        epochs=40,
        rate=0.003,
        decay=1e-3,
    ),
    "cnn-large": Recipe(
        (
            ("views", 5),
            ("conv", 1, 96),
            ("residual", 96),
            ("residual", 96),
            ("maxpool",),
            ("conv", 96, 160),
            ("residual", 160),
            ("mean",),
            ("dense", 160, 10, False),
            ("vote", 5),
        ),
        epochs=40,
        rate=0.002,
        decay=1e-2,
        distort=True,
    ),
}


# --- data ------------------------------------------------------------------------------------


def split(seed):
    """1,000 images to train, 397 to validate, 400 to test, each with the classes in proportion."""
    digits = load_digits()
    pixels = np.ascontiguousarray(digits.data, dtype=np.float32)
    labels = np.ascontiguousarray(digits.target, dtype=np.int64)
    train_x, rest_x, train_y, rest_y = train_test_split(
        pixels, labels, train_size=1000, stratify=labels, random_state=seed
    )
    val_x, test_x, val_y, test_y = train_test_split(
        rest_x, rest_y, train_size=397, stratify=rest_y, random_state=seed
    )
    return {"train": (train_x, train_y), "validation": (val_x, val_y), "test": (test_x, test_y)}


def distorted(key, images):
    """Each image shifted by up to a pixel, turned by up to 12 degrees and scaled by up to 10 %."""

    def one(key, image):
        shift_key, angle_key, scale_key = jax.random.split(key, 3)
        shift = jax.random.uniform(shift_key, (2,), minval=-0.8, maxval=0.8)
        angle = jax.random.uniform(angle_key, minval=-0.21, maxval=0.21)
        scale = jax.random.uniform(scale_key, minval=0.9, maxval=1.1)
        middle = (SIDE - 1) / 2
        rows, columns = jnp.mgrid[0:SIDE, 0:SIDE] - middle
        sine, cosine = jnp.sin(angle) * scale, jnp.cos(angle) * scale
        where = [
            cosine * rows - sine * columns + middle + shift[0],
            sine * rows + cosine * columns + middle + shift[1],
        ]
        return map_coordinates(image, where, order=1)

    keys = jax.random.split(key, images.shape[0])
    turned = jax.vmap(one)(keys, images.reshape(-1, SIDE, SIDE))
    return turned.reshape(-1, SIDE * SIDE)


# --- the network -----------------------------------------------------------------------------


def initial(layers, key):
    """Weights (He initialisation) and the running statistics of the batch normalisation."""

    def normal(key, shape, fan_in):
        return jax.random.normal(key, shape) * jnp.sqrt(2.0 / fan_in)

    def conv(key, inputs, outputs):
        weights = {
            "w": normal(key, (3, 3, inputs, outputs), 9 * inputs),
            "scale": jnp.ones(outputs),
            "shift": jnp.zeros(outputs),
        }
        return weights, {"mean": jnp.zeros(outputs), "var": jnp.ones(outputs)}

    params, stats = [], []
    for layer, layer_key in zip(layers, jax.random.split(key, len(layers))):
        match layer:
            case ("dense", inputs, outputs, _):
                w = normal(layer_key, (inputs, outputs), inputs)
                params.append({"w": w, "b": jnp.zeros(outputs)})
                stats.append({})
            case ("conv", inputs, outputs):
                weights, running = conv(layer_key, inputs, outputs)
                params.append(weights)
                stats.append(running)
            case ("residual", channels):
                halves = [conv(k, channels, channels) for k in jax.random.split(layer_key)]
                params.append([weights for weights, _ in halves])
                stats.append([running for _, running in halves])
            case _:
                params.append({})
                stats.append({})
    return params, stats


VIEWS = ((0.0, 0.0), (0.5, 0.0), (-0.5, 0.0), (0.0, 0.5), (0.0, -0.5))


def views(count):
    """The first `count` views, shifted with linear interpolation, as a matrix [64, count * 64]."""
    grid = jnp.mgrid[0:SIDE, 0:SIDE].astype(jnp.float32)

    def moved(unit, shift):
        where = [grid[0] + shift[0], grid[1] + shift[1]]
        return map_coordinates(unit, where, order=1).reshape(-1)

    units = jnp.eye(SIDE * SIDE).reshape(-1, SIDE, SIDE)
    shifts = jnp.array(VIEWS[:count])
    every = jax.vmap(lambda unit: jax.vmap(lambda shift: moved(unit, shift))(shifts))(units)
    return every.reshape(SIDE * SIDE, -1)


def patches(x):
    """3 x 3 neighbourhoods with zero padding: [n, h, w, c] -> [n, h, w, 9c]."""
    height, width = x.shape[1:3]
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return jnp.concatenate(
        [x[:, r : r + height, c : c + width] for r in range(3) for c in range(3)], axis=-1
    )


def conv_norm(x, params, running, training):
    """Convolution and batch normalisation; returns the new running statistics too."""
    w = params["w"]
    y = patches(x) @ w.reshape(-1, w.shape[-1])
    if training:
        mean, var = y.mean((0, 1, 2)), y.var((0, 1, 2))
        running = jax.tree.map(
            lambda old, new: 0.95 * old + 0.05 * new, running, {"mean": mean, "var": var}
        )
    else:
        mean, var = running["mean"], running["var"]
    y = (y - mean) * jax.lax.rsqrt(var + EPSILON)
    return y * params["scale"] + params["shift"], running


def forward(layers, params, stats, pixels, training):
    x = pixels / BRIGHTEST
    new_stats = []
    for layer, p, s in zip(layers, params, stats):
        match layer:
            case ("image",):
                x = x.reshape(-1, SIDE, SIDE, 1)
            case ("views", count):
                # Trained on single (distorted) images: the views are for answering only.
                x = x if training else x @ views(count)
                x = x.reshape(-1, SIDE, SIDE, 1)
            case ("vote", count):
                x = x if training else x.reshape(-1, count, CLASSES).mean(1)
            case ("dense", _, _, relu):
                x = x @ p["w"] + p["b"]
                x = jax.nn.relu(x) if relu else x
            case ("conv", _, _):
                x, s = conv_norm(x, p, s, training)
                x = jax.nn.relu(x)
            case ("residual", _):
                y, first = conv_norm(x, p[0], s[0], training)
                y, second = conv_norm(jax.nn.relu(y), p[1], s[1], training)
                x, s = jax.nn.relu(x + y), [first, second]
            case ("maxpool",):
                n, h, w, c = x.shape
                x = x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))
            case ("mean",):
                x = x.mean((1, 2))
            case ("flatten",):
                # Channel first, as the exported file flattens.
                x = x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)
        new_stats.append(s)
    return x, new_stats


# --- training --------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames=("layers", "decay", "distort"))
def step(layers, decay, distort, state, batch, rate):
    """One step of Adam with decoupled weight decay (AdamW) on one batch."""
    params, stats, moments, count, key = state
    pixels, labels = batch
    key, distort_key = jax.random.split(key)
    if distort:
        pixels = distorted(distort_key, pixels)

    def loss(params):
        scores, new_stats = forward(layers, params, stats, pixels, training=True)
        log_p = jax.nn.log_softmax(scores)
        return -jnp.take_along_axis(log_p, labels[:, None], 1).mean(), new_stats

    (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(params)
    count += 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], grads)
    scale = jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)

    def update(p, m, v):
        shrink = rate * decay * p if p.ndim > 1 else 0.0
        return p - rate * scale * m / (jnp.sqrt(v) + 1e-8) - shrink

    params = jax.tree.map(update, params, first, second)
    return (params, stats, (first, second), count, key), value


def train(name, recipe, data, seed):
    pixels, labels = data
    key = jax.random.key(seed)
    init_key, key = jax.random.split(key)
    params, stats = initial(recipe.layers, init_key)
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = (params, stats, (zeros, zeros), 0, key)
    order = np.random.default_rng(seed)
    for epoch in range(recipe.epochs):
        rate = recipe.rate * 0.5 * (1 + np.cos(np.pi * epoch / recipe.epochs))
        total = 0.0
        for rows in order.permutation(len(labels)).reshape(-1, BATCH):
            batch = (pixels[rows], labels[rows])
            state, value = step(recipe.layers, recipe.decay, recipe.distort, state, batch, rate)
            total += float(value)
        if (epoch + 1) % 5 == 0:
            print(f"{name}: epoch {epoch + 1}/{recipe.epochs} loss {total * BATCH / len(labels):.4f}", flush=True)
    return state[0], state[1]


# --- export ----------------------------------------------------------------------------------


class Graph:
    """Collects nodes and weights; every method returns the name of the tensor it produces."""

    def __init__(self, name):
        self.name, self.nodes, self.weights = name, [], []

    def weight(self, name, values, dtype=np.float32):
        array = np.ascontiguousarray(values, dtype=dtype)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind, inputs, output, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def dense(self, x, output, params, gain):
        w = self.weight(f"{output}.weight", np.asarray(params["w"]) * gain)
        b = self.weight(f"{output}.bias", params["b"])
        return self.node("Gemm", [x, w, b], output)

    def conv(self, x, output, params, running, gain):
        """Fold the normalisation: w * scale / sqrt(var + e), shift - mean * scale / sqrt(var + e)."""
        factor = np.asarray(params["scale"]) / np.sqrt(np.asarray(running["var"]) + EPSILON)
        folded = np.asarray(params["w"]) * factor * gain
        bias = np.asarray(params["shift"]) - np.asarray(running["mean"]) * factor
        w = self.weight(f"{output}.weight", folded.transpose(3, 2, 0, 1))
        b = self.weight(f"{output}.bias", bias)
        return self.node("Conv", [x, w, b], output, kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    def proto(self, opset, ir_version):
        sizes = [("pixels", SIDE * SIDE), ("scores", CLASSES)]
        inputs, outputs = (
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size])]
            for name, size in sizes
        )
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, self.weights)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=ir_version,
            producer_name="sextant-examples-digits",
        )
        onnx.checker.check_model(model, full_check=True)
        return model


def export(name, layers, params, stats):
    graph, x = Graph(name), "pixels"
    gain = 1.0 / BRIGHTEST  # goes into the first layer that has weights
    for number, (layer, p, s) in enumerate(zip(layers, params, stats)):
        last = number == len(layers) - 1
        label = f"{layer[0]}{number}"
        match layer:
            case ("image",):
                shape = graph.weight("image.shape", [-1, 1, SIDE, SIDE], np.int64)
                x = graph.node("Reshape", [x, shape], label)
            case ("views", count):
                matrix = graph.weight(f"{label}.weight", views(count) * gain)
                shape = graph.weight("image.shape", [-1, 1, SIDE, SIDE], np.int64)
                x = graph.node("MatMul", [x, matrix], f"{label}.rows")
                x = graph.node("Reshape", [x, shape], label)
                gain = 1.0
            case ("vote", count):
                shape = graph.weight("views.shape", [-1, count, CLASSES], np.int64)
                x = graph.node("Reshape", [x, shape], label)
                x = graph.node("ReduceMean", [x], "scores", axes=[1], keepdims=0)
            case ("dense", _, _, relu):
                x = graph.dense(x, "scores" if last else label, p, gain)
                x = graph.node("Relu", [x], f"{label}.relu") if relu else x
                gain = 1.0
            case ("conv", _, _):
                x = graph.conv(x, label, p, s, gain)
                x = graph.node("Relu", [x], f"{label}.relu")
                gain = 1.0
            case ("residual", _):
                y = graph.conv(x, f"{label}.a", p[0], s[0], gain)
                y = graph.node("Relu", [y], f"{label}.a.relu")
                y = graph.conv(y, f"{label}.b", p[1], s[1], gain)
                y = graph.node("Add", [x, y], f"{label}.sum")
                x = graph.node("Relu", [y], f"{label}.relu")
            case ("maxpool",):
                x = graph.node("MaxPool", [x], label, kernel_shape=[2, 2], strides=[2, 2])
            case ("mean",):
                x = graph.node("GlobalAveragePool", [x], label)
                x = graph.node("Flatten", [x], f"{label}.flat", axis=1)
            case ("flatten",):
                x = graph.node("Flatten", [x], label, axis=1)
    return graph.proto(OPSET, IR_VERSION)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("--only", choices=list(RECIPES), action="append")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    sets = split(args.seed)
    for name in ("validation", "test"):
        pixels, labels = sets[name]
        np.savez(args.out / f"{name}.npz", pixels=pixels, labels=labels)
    for name in args.only or RECIPES:
        recipe = RECIPES[name]
        params, stats = train(name, recipe, sets["train"], args.seed)
        onnx.save(export(name, recipe.layers, params, stats), args.out / f"{name}.onnx")
        report = {"model": name}
        for held_out in ("validation", "test"):
            pixels, labels = sets[held_out]
            scores, _ = forward(recipe.layers, params, stats, pixels, training=False)
            report[held_out] = round(float((scores.argmax(1) == labels).mean()), 4)
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
