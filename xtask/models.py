"""Write models of well-known shapes with seeded weights, for performance work.

    python models.py target/models                 # all
    python models.py target/models resnet18 mlp    # some

Beside each `<name>.onnx` lies `<name>-validation.npz`: random inputs, labelled with what the
network itself answers in fp32. "Accuracy" on it is therefore agreement with the original, which is
1.0 unless a rewriting of the graph changes answers. Weights are random but for `resnet18_textures`, whose last layer is
fitted to tell ten textures, with which its rows are labelled. Files that are there are left alone.
"""

import argparse
import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

SEED = 20
OPSET = 17
IR_VERSION = 8


class Graph:
    """Collects nodes and weights; methods that compute return the name of their result."""

    def __init__(self, name, inputs):
        self.name, self.inputs = name, inputs
        self.nodes, self.weights = [], []
        self.random = np.random.default_rng(SEED)
        self.properties = {}
        # Draws rows and their labels, where the network does not label them itself.
        self.labelled = None

    def weight(self, values, dtype=np.float32):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def normal(self, shape, fan_in, gain=2.0):
        deviation = (gain / fan_in) ** 0.5
        return self.weight(self.random.standard_normal(shape, dtype=np.float32) * deviation)

    def bias(self, size):
        return self.weight(self.random.standard_normal(size, dtype=np.float32) * 0.01)

    def node(self, kind, *inputs, output=None, **attributes):
        output = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=output, **attributes))
        return output

    def relu(self, x):
        return self.node("Relu", x)

    def dense(self, x, inputs, outputs, output=None):
        return self.node(
            "Gemm", x, self.normal((inputs, outputs), inputs), self.bias(outputs), output=output
        )

    def conv(self, x, inputs, outputs, size, stride=1, group=1, gain=2.0):
        fan_in = inputs // group * size * size
        weight = self.normal((outputs, inputs // group, size, size), fan_in, gain)
        return self.node(
            "Conv",
            x,
            weight,
            self.bias(outputs),
            kernel_shape=[size, size],
            strides=[stride, stride],
            pads=[size // 2] * 4,
            group=group,
        )

    def pooled(self, x):
        return self.node("Flatten", self.node("GlobalAveragePool", x), axis=1)

    def model(self, outputs):
        inputs = [
            helper.make_tensor_value_info(name, kind, ["N", *shape])
            for name, (kind, shape, _) in self.inputs.items()
        ]
        scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", outputs])
        graph = helper.make_graph(self.nodes, self.name, inputs, [scores], self.weights)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="sextant-xtask-models",
        )
        helper.set_model_props(model, self.properties)
        return model


# --- inputs: element type, shape without the batch, how to draw them ----------------------------


def floats(*shape):
    return (TensorProto.FLOAT, shape, lambda r, n: r.standard_normal((n, *shape), dtype=np.float32))


def integers(limit, *shape):
    return (TensorProto.INT64, shape, lambda r, n: r.integers(0, limit, (n, *shape)))


def ones(*shape):
    return (TensorProto.INT64, shape, lambda r, n: np.ones((n, *shape), dtype=np.int64))


def texts(inputs, tokens):
    """The same inputs with sequences of any length; validation rows have this many tokens."""
    return {name: (kind, ("tokens",), make) for name, (kind, _, make) in inputs(tokens).items()}


# --- architectures -------------------------------------------------------------------------------


def mlp():
    """64-256-256-10: the smallest thing that is worth serving; transport decides."""
    g = Graph("mlp", {"pixels": floats(64)})
    x = g.relu(g.dense("pixels", 64, 256))
    x = g.relu(g.dense(x, 256, 256))
    g.dense(x, 256, 10, output="scores")
    return g, 10, 512


def chain():
    """64-256-64: its answer is as wide as its input, so that it can be every step of a pipeline."""
    g = Graph("chain", {"values": floats(64)})
    g.dense(g.relu(g.dense("values", 64, 256)), 256, 64, output="scores")
    return g, 64, 512


def emulated():
    """The same with a profile for the engine `emulated`: 4 ms a row and 6 ms a batch."""
    g, outputs, rows = mlp()
    g.properties = {"sextant.alpha_ms": "4", "sextant.beta_ms": "6", "sextant.load_ms": "100"}
    return g, outputs, rows


def wide(elements):
    """As cheap a model as takes so many bytes a query: what a way for tensors costs shows."""

    def architecture():
        g = Graph(f"wide{elements}", {"values": floats(elements)})
        g.dense("values", elements, 2, output="scores")
        return g, 2, 64

    architecture.__name__ = f"wide{elements}"
    return architecture


def words():
    """Counts two words in texts of any length: what strings take shows."""

    def drawn(random, rows):
        return random.choice(["yes", "no", ""], (rows, 4))

    g = Graph("words", {"words": (TensorProto.STRING, ("words",), drawn)})
    counts = g.node(
        "TfIdfVectorizer",
        "words",
        mode="TF",
        min_gram_length=1,
        max_gram_length=1,
        max_skip_count=0,
        ngram_counts=[0],
        ngram_indexes=[0, 1],
        pool_strings=["yes", "no"],
    )
    g.dense(counts, 2, 2, output="scores")
    return g, 2, 64


def broad():
    """An answer of four megabytes to one number."""
    g = Graph("broad", {"value": floats(1)})
    g.dense("value", 1, 1_000_000, output="scores")
    return g, 1_000_000, 8


def stem(g):
    x = g.relu(g.conv("image", 3, 64, 7, stride=2))
    return g.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


def shortcut(g, x, inputs, outputs, stride):
    if inputs == outputs and stride == 1:
        return x
    return g.conv(x, inputs, outputs, 1, stride, gain=1.0)


def resnet18():
    return residual("resnet18", 224)


def resnet18_small():
    return residual("resnet18_small", 64)


def residual(name, size):
    g = body(name, {"image": floats(3, size, size)})
    g.dense(g.pooled(g.last), 512, 1000, output="scores")
    return g, 1000, 32


TEXTURES = 10


def textures(random, rows, size):
    """Images of ten textures, gratings of five directions and two widths with noise, and which each one is."""
    kinds = random.integers(0, TEXTURES, rows)
    angles = np.pi * (kinds % 5 + random.uniform(-0.2, 0.2, rows)) / 5
    widths = np.where(kinds < 5, 8, 20) * random.uniform(0.9, 1.1, rows)
    y, x = np.mgrid[:size, :size]
    along = np.multiply.outer(np.cos(angles), x) + np.multiply.outer(np.sin(angles), y)
    phases = random.uniform(0, 2 * np.pi, rows)
    waves = np.sin(2 * np.pi * along / widths[:, None, None] + phases[:, None, None])
    noise = random.standard_normal((rows, 3, size, size), dtype=np.float32)
    return (waves[:, None] + 0.5 * noise).astype(np.float32), kinds


def resnet18_textures():
    """The last layer is fitted by ridge regression: random features tell textures, and answers are not nearly tied."""
    size, rows = 224, 400
    draw = np.random.default_rng(SEED + 2)
    images, kinds = textures(draw, rows, size)
    g = body("resnet18_textures", {"image": floats(3, size, size)})
    g.node("Identity", g.pooled(g.last), output="scores")
    features = answers(g.model(512).SerializeToString(), {"image": images})
    g.nodes.pop()
    mean, deviation = features.mean(axis=0), features.std(axis=0) + 1e-6
    scaled = (features - mean) / deviation
    wanted = np.eye(TEXTURES)[kinds] - 1 / TEXTURES
    fitted = np.linalg.solve(scaled.T @ scaled + 10 * np.eye(512), scaled.T @ wanted)
    weights = fitted / deviation[:, None]
    g.node("Gemm", g.nodes[-1].output[0], g.weight(weights), g.weight(-mean @ weights), output="scores")
    g.labelled = lambda random, rows: textures(random, rows, size)
    return g, TEXTURES, 64


def body(name, inputs):
    """Everything of a ResNet-18 before the pooling; `last` is its result."""
    g = Graph(name, inputs)
    x, inputs = stem(g), 64
    for stage, channels in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            y = g.relu(g.conv(x, inputs, channels, 3, stride))
            y = g.conv(y, channels, channels, 3, gain=0.2)
            x = g.relu(g.node("Add", y, shortcut(g, x, inputs, channels, stride)))
            inputs = channels
    g.last = x
    return g


def resnet50():
    g = Graph("resnet50", {"image": floats(3, 224, 224)})
    x, inputs = stem(g), 64
    for stage, (channels, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            y = g.relu(g.conv(x, inputs, channels, 1))
            y = g.relu(g.conv(y, channels, channels, 3, stride))
            y = g.conv(y, channels, 4 * channels, 1, gain=0.2)
            x = g.relu(g.node("Add", y, shortcut(g, x, inputs, 4 * channels, stride)))
            inputs = 4 * channels
    g.dense(g.pooled(x), 2048, 1000, output="scores")
    return g, 1000, 32


def mobilenet():
    """The inverted residuals of MobileNetV2 at width 1.0."""
    g = Graph("mobilenet", {"image": floats(3, 224, 224)})

    def clipped(x):
        return g.node("Clip", x, g.weight(0.0), g.weight(6.0))

    x, inputs = clipped(g.conv("image", 3, 32, 3, stride=2)), 32
    plan = (  # expansion, channels, blocks, stride of the first
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expansion, channels, blocks, first_stride in plan:
        for block in range(blocks):
            stride, inner = (first_stride if block == 0 else 1), inputs * expansion
            y = clipped(g.conv(x, inputs, inner, 1)) if expansion > 1 else x
            y = clipped(g.conv(y, inner, inner, 3, stride, group=inner))
            y = g.conv(y, inner, channels, 1, gain=1.0)
            x = g.node("Add", x, y) if stride == 1 and inputs == channels else y
            inputs = channels
    x = clipped(g.conv(x, inputs, 1280, 1))
    g.dense(g.pooled(x), 1280, 1000, output="scores")
    return g, 1000, 32


def bert():
    """An encoder of six layers, width 384, sequences of 128 tokens, two classes."""
    return transformer("bert", 30522, 128, None)


def encoder():
    """The same for sequences of up to 512 tokens and with a smaller vocabulary; validation rows have
    16."""
    return transformer("encoder", 4096, 16, 512)


def transformer(name, words, tokens, most):
    layers, width, heads, inner = 6, 384, 12, 1536
    inputs = lambda tokens: {"input_ids": integers(words, tokens), "attention_mask": ones(tokens)}
    g = Graph(name, texts(inputs, tokens) if most else inputs(tokens))

    def norm(x):
        scale, shift = g.weight(np.ones(width)), g.weight(np.zeros(width))
        return g.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-12)

    def linear(x, inputs, outputs):
        y = g.node("MatMul", x, g.normal((inputs, outputs), inputs, gain=1.0))
        return g.node("Add", y, g.bias(outputs))

    def split(x, perm):
        shape = g.weight([0, -1, heads, width // heads], np.int64)
        return g.node("Transpose", g.node("Reshape", x, shape), perm=perm)

    def gelu(x):
        half = g.node("Erf", g.node("Div", x, g.weight(2.0**0.5)))
        return g.node("Mul", g.node("Mul", x, g.weight(0.5)), g.node("Add", half, g.weight(1.0)))

    mask = g.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    mask = g.node("Mul", g.node("Sub", g.weight(1.0), mask), g.weight(-10000.0))
    mask = g.node("Unsqueeze", mask, g.weight([1, 2], np.int64))
    x = g.node("Gather", g.normal((words, width), 1, gain=1.0), "input_ids", axis=0)
    places = g.normal((1, most or tokens, width), 1, gain=1.0)
    if most:
        length = g.node("Gather", g.node("Shape", "input_ids"), g.weight([1], np.int64), axis=0)
        zero, one = g.weight([0], np.int64), g.weight([1], np.int64)
        places = g.node("Slice", places, zero, length, one)
    x = norm(g.node("Add", x, places))
    for _ in range(layers):
        query = split(linear(x, width, width), [0, 2, 1, 3])
        key = split(linear(x, width, width), [0, 2, 3, 1])
        value = split(linear(x, width, width), [0, 2, 1, 3])
        scores = g.node("Mul", g.node("MatMul", query, key), g.weight((width / heads) ** -0.5))
        mixed = g.node("MatMul", g.node("Softmax", g.node("Add", scores, mask), axis=-1), value)
        mixed = g.node("Transpose", mixed, perm=[0, 2, 1, 3])
        mixed = g.node("Reshape", mixed, g.weight([0, -1, width], np.int64))
        x = norm(g.node("Add", x, linear(mixed, width, width)))
        x = norm(g.node("Add", x, linear(gelu(linear(x, width, inner)), inner, width)))
    first = g.node("Gather", x, g.weight(0, np.int64), axis=1)
    pooled = g.node("Tanh", g.dense(first, width, width))
    g.dense(pooled, width, 2, output="scores")
    return g, 2, 64


def stack(name, layers):
    g = Graph(name, {"features": floats(4096)})
    x = "features"
    for _ in range(layers):
        x = g.relu(g.dense(x, 4096, 4096))
    g.dense(x, 4096, 10, output="scores")
    return g, 10, 64


def large():
    """Fifteen dense layers of 4096: 1 GB of weights, in a file beside the model."""
    return stack("large", 15)


def huge():
    """Forty-five of them: 3 GB, more than a file of its own may have."""
    return stack("huge", 45)


WIDE = [wide(elements) for elements in (256, 4096, 16384, 153600)]
ARCHITECTURES = {
    f.__name__: f for f in (
        mlp, chain, emulated, resnet18, resnet18_small, resnet18_textures, resnet50, mobilenet, bert, encoder, large, huge, words, broad, *WIDE
    )
}

# Their weights lie in files of their own.
BESIDE = ["large", "huge"]


def save(model, path):
    beside = path.stem in BESIDE
    location = f"{path.stem}.onnx.data"
    if beside:
        (path.parent / location).unlink(missing_ok=True)
    onnx.save(model, path, save_as_external_data=beside, location=location)
    # By its path: a model of more than 2 GB can be checked in no other way.
    onnx.checker.check_model(path, full_check=not beside)


def answers(model, inputs):
    """Of a file, or of one in memory."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    rows = len(next(iter(inputs.values())))
    parts = [slice(start, start + 16) for start in range(0, rows, 16)]
    return np.concatenate(
        [session.run(["scores"], {k: v[part] for k, v in inputs.items()})[0] for part in parts]
    )


def write(name, folder):
    path, validation = folder / f"{name}.onnx", folder / f"{name}-validation.npz"
    if path.exists() and validation.exists():
        print(f"{path}: there")
        return
    graph, outputs, rows = ARCHITECTURES[name]()
    draw = np.random.default_rng(SEED + 1)
    if graph.labelled:
        images, labels = graph.labelled(draw, rows)
        save(graph.model(outputs), path)
        right = (answers(str(path), {"image": images}).argmax(axis=1) == labels).mean()
        np.savez(validation, image=images, labels=labels.astype(np.int64))
        print(f"{path}: {rows} validation rows, of which it tells {right:.2f}")
        return
    inputs = {key: make(draw, rows) for key, (_, _, make) in graph.inputs.items()}
    # A deep random network prefers the same class for every input. Taking the average score out
    # of the last bias (the last weight) makes its answers differ.
    save(graph.model(outputs), path)
    average = answers(path, inputs).mean(axis=0)
    bias = numpy_helper.to_array(graph.weights[-1]) - average
    graph.weights[-1] = numpy_helper.from_array(bias, graph.weights[-1].name)
    save(graph.model(outputs), path)
    labels = answers(path, inputs).argmax(axis=1).astype(np.int64)
    np.savez(validation, **inputs, labels=labels)
    files = folder.glob(f"{name}.onnx*")
    size, kinds = sum(file.stat().st_size for file in files) / 1e6, len(set(labels.tolist()))
    print(f"{path}: {size:.1f} MB, {rows} validation rows with {kinds} different labels")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(ARCHITECTURES))
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(ARCHITECTURES))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(ARCHITECTURES)}")
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.names or ARCHITECTURES:
        write(name, args.folder)


if __name__ == "__main__":
    main()
