#!/usr/bin/env python3
"""A runtime to copy: an Open Inference Protocol server in Python's standard library.

Sextant starts it (`command`) or finds it (`url`) and runs its models as it runs any other. To
serve a model of your own, subclass `Model`, say what goes in and comes out, compute in `run`, and
name it in `MODELS`. The HTTP part speaks JSON and the binary tensor extension, and can load and
unload models on request (`--repository`).

    python3 server.py --port 9000
    curl http://127.0.0.1:9000/v2/models/double

A tensor is a `Tensor`: a datatype of the protocol, a shape, and a flat list of Python values in
row-major order: numbers, booleans, or `bytes` for BYTES.
"""

import argparse
import array
import json
import math
import operator
import os
import struct
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY_BYTES = 256 << 20
HEADER_LENGTH = "Inference-Header-Content-Length"

# Type codes of `array` for the types that it has; the others are read one by one.
ARRAYS = {
    "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q",
    "FP32": "f", "FP64": "d",
}
SIZES = {"BOOL": 1, "FP16": 2, "BF16": 2}
SIZES.update({name: array.array(code).itemsize for name, code in ARRAYS.items()})


class BadRequest(Exception):
    """What the client sent cannot be answered; becomes a 400 with this text."""


@dataclass
class Tensor:
    """A value: `values` is flat and in row-major order."""

    name: str
    datatype: str
    shape: list
    values: list


@dataclass
class Spec:
    """What a model takes or gives; -1 in the shape is any size."""

    name: str
    datatype: str
    shape: list

    def accepts(self, tensor):
        return (
            tensor.datatype == self.datatype
            and len(tensor.shape) == len(self.shape)
            and all(want in (-1, have) for want, have in zip(self.shape, tensor.shape))
        )

    def describe(self):
        return {"name": self.name, "datatype": self.datatype, "shape": self.shape}


# --- models ---------------------------------------------------------------------------------------


class Model:
    """Subclass this. `load` may take its time, `run` may be called by several threads at once."""

    inputs = []
    outputs = []

    def load(self):
        """Reads weights. Raise `BadRequest` for what cannot be loaded."""

    def run(self, inputs):
        """Takes a dictionary of `Tensor` by name, returns a list of `Tensor`."""
        raise NotImplementedError


class Double(Model):
    """Twice the input, of any shape with two dimensions."""

    inputs = [Spec("input", "FP32", [-1, -1])]
    outputs = [Spec("output", "FP32", [-1, -1])]

    def run(self, inputs):
        given = inputs["input"]
        return [Tensor("output", "FP32", given.shape, [2 * value for value in given.values])]


class Identity(Model):
    """Five values of any type, handed through."""

    def __init__(self, datatype):
        self.inputs = [Spec("input", datatype, [-1, 5])]
        self.outputs = [Spec("output", datatype, [-1, 5])]

    def run(self, inputs):
        given = inputs["input"]
        return [Tensor("output", given.datatype, given.shape, given.values)]


def weights(count, seed, scale):
    """Numbers in -scale..scale that look random: a multiplicative hash of their place."""
    return [
        (((at + 1) * 2654435761 + seed * 40503) % 2**32 / 2**32 * 2 - 1) * scale
        for at in range(count)
    ]


class Dense(Model):
    """Fully connected layers 32 -> 64 -> 64 -> 10 with ReLU between them."""

    widths = [32, 64, 64, 10]
    inputs = [Spec("input", "FP32", [-1, 32])]
    outputs = [Spec("output", "FP32", [-1, 10])]

    def load(self):
        self.layers = []
        for layer, (rows, columns) in enumerate(zip(self.widths, self.widths[1:])):
            flat = weights(rows * columns, layer, math.sqrt(3 / rows))
            matrix = [flat[column * rows : (column + 1) * rows] for column in range(columns)]
            self.layers.append((matrix, weights(columns, layer + 100, 0.4)))

    def run(self, inputs):
        given = inputs["input"]
        values = []
        for start in range(0, len(given.values), self.widths[0]):
            row = given.values[start : start + self.widths[0]]
            for depth, (matrix, bias) in enumerate(self.layers):
                row = [
                    sum(map(operator.mul, row, column), add)
                    for column, add in zip(matrix, bias)
                ]
                if depth + 1 < len(self.layers):
                    row = [max(value, 0.0) for value in row]
            values.extend(row)
        return [Tensor("output", "FP32", [given.shape[0], self.widths[-1]], values)]


class Convolution(Model):
    """Four 3x3 kernels over an 8x8 image, ReLU, and the mean of each channel."""

    inputs = [Spec("image", "FP32", [-1, 1, 8, 8])]
    outputs = [Spec("means", "FP32", [-1, 4])]

    def load(self):
        flat = weights(4 * 9, 7, 1.0)
        self.kernels = [flat[at * 9 : at * 9 + 9] for at in range(4)]

    def run(self, inputs):
        given = inputs["image"]
        values = []
        for start in range(0, len(given.values), 64):
            image = given.values[start : start + 64]
            windows = [
                [image[(y + dy) * 8 + x + dx] for dy in range(3) for dx in range(3)]
                for y in range(6)
                for x in range(6)
            ]
            for kernel in self.kernels:
                sums = (sum(map(operator.mul, window, kernel)) for window in windows)
                values.append(sum(max(value, 0.0) for value in sums) / len(windows))
        return [Tensor("means", "FP32", [given.shape[0], 4], values)]


class Digits(Model):
    """Ten scores for an 8x8 image of a digit: a linear model read from a JSON file.

    The file has `weights`, 64 lists of 10 numbers, and `bias`, 10 numbers.
    """

    inputs = [Spec("pixels", "FP32", [-1, 64])]
    outputs = [Spec("scores", "FP32", [-1, 10])]

    def __init__(self, path):
        self.path = path

    def load(self):
        try:
            with open(self.path, encoding="utf-8") as file:
                stored = json.load(file)
            self.columns = list(zip(*stored["weights"]))
            self.bias = stored["bias"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadRequest(f"the weights in `{self.path}` cannot be read: {error}") from error

    def run(self, inputs):
        given = inputs["pixels"]
        values = []
        for start in range(0, len(given.values), 64):
            row = given.values[start : start + 64]
            pairs = zip(self.columns, self.bias)
            values.extend(sum(map(operator.mul, row, column), add) for column, add in pairs)
        return [Tensor("scores", "FP32", [given.shape[0], 10], values)]


MODELS = {"double": Double, "dense": Dense, "convolution": Convolution}
for _datatype in [*ARRAYS, *SIZES, "BYTES"]:
    MODELS[f"identity-{_datatype.lower()}"] = lambda datatype=_datatype: Identity(datatype)


# --- tensors on the wire --------------------------------------------------------------------------


def half_to_float(bits):
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def float_to_half(value):
    return struct.unpack("<H", struct.pack("<e", value))[0]


def bfloat_to_float(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def float_to_bfloat(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 & 0xFFFF


def from_bytes(datatype, data):
    """The elements of a tensor in the binary extension: little-endian, row-major."""
    if datatype == "BYTES":
        values, at = [], 0
        while at < len(data):
            (length,) = struct.unpack_from("<I", data, at)
            values.append(data[at + 4 : at + 4 + length])
            at += 4 + length
        return values
    if datatype == "BOOL":
        return [byte != 0 for byte in data]
    if datatype in ("FP16", "BF16"):
        convert = half_to_float if datatype == "FP16" else bfloat_to_float
        return [convert(bits) for bits in array_of("H", data)]
    if datatype not in ARRAYS:
        raise BadRequest(f"datatype `{datatype}` is unknown")
    return array_of(ARRAYS[datatype], data).tolist()


def array_of(code, data):
    values = array.array(code)
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def to_bytes(datatype, values):
    """The inverse of `from_bytes`."""
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(value)) + value for value in values)
    if datatype == "BOOL":
        return bytes(bool(value) for value in values)
    if datatype in ("FP16", "BF16"):
        convert = float_to_half if datatype == "FP16" else float_to_bfloat
        packed = array.array("H", map(convert, values))
    else:
        packed = array.array(ARRAYS[datatype], values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def flatten(data):
    if not isinstance(data, list):
        return [data]
    return [value for item in data for value in flatten(item)]


def read_request(body, json_bytes):
    """A request's inputs by name, and which of the outputs are wanted in binary."""
    request = json.loads(body[:json_bytes])
    inputs, at = {}, json_bytes
    for entry in request["inputs"]:
        datatype, shape = entry["datatype"], entry["shape"]
        size = entry.get("parameters", {}).get("binary_data_size")
        if size is None:
            values = flatten(entry["data"])
            if datatype == "BYTES":
                values = [value.encode("utf-8") for value in values]
        else:
            values = from_bytes(datatype, body[at : at + size])
            at += size
        if len(values) != math.prod(shape):
            raise BadRequest(f"input `{entry['name']}` has {len(values)} elements for {shape}")
        inputs[entry["name"]] = Tensor(entry["name"], datatype, shape, values)
    default = request.get("parameters", {}).get("binary_data_output", False)
    wanted = {
        output["name"]: output.get("parameters", {}).get("binary_data", default)
        for output in request.get("outputs", [])
    }
    return inputs, wanted, default


def write_response(name, outputs, wanted, default):
    """JSON and what follows it; `None` for the JSON's length where nothing does."""
    described, tail = [], []
    for output in outputs:
        if wanted and output.name not in wanted:
            continue
        entry = {"name": output.name, "datatype": output.datatype, "shape": output.shape}
        if wanted.get(output.name, default):
            data = to_bytes(output.datatype, output.values)
            entry["parameters"] = {"binary_data_size": len(data)}
            tail.append(data)
        elif output.datatype == "BYTES":
            entry["data"] = [value.decode("utf-8") for value in output.values]
        else:
            entry["data"] = output.values
        described.append(entry)
    head = json.dumps({"model_name": name, "outputs": described}).encode("utf-8")
    return head + b"".join(tail), len(head) if tail else None


# --- the server -----------------------------------------------------------------------------------


class Repository:
    """The models that there are and those that are loaded."""

    def __init__(self, models, explicit):
        self.makers = models
        self.explicit = explicit
        self.loaded = {}
        self.lock = threading.Lock()

    def load(self, name):
        with self.lock:
            if name not in self.makers:
                raise BadRequest(f"there is no model `{name}`")
            if name not in self.loaded:
                model = self.makers[name]()
                model.load()
                self.loaded[name] = model
            return self.loaded[name]

    def unload(self, name):
        with self.lock:
            self.loaded.pop(name, None)

    def model(self, name):
        if not self.explicit:
            return self.load(name)
        model = self.loaded.get(name)
        if model is None:
            raise BadRequest(f"model `{name}` is not loaded")
        return model


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body leave together: nobody waits for an acknowledgement between them.
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self):
        self.answer(self.get)

    def do_POST(self):
        self.answer(self.post)

    def answer(self, respond):
        try:
            status, body, json_bytes = respond()
        except BadRequest as error:
            status, body, json_bytes = 400, failure(error), None
        except (KeyError, TypeError, ValueError, struct.error, OverflowError) as error:
            status, body, json_bytes = 400, failure(f"{type(error).__name__}: {error}"), None
        except Exception as error:  # A model's own fault must not end the server.
            self.log_error("%s", error)
            status, body, json_bytes = 500, failure(f"{type(error).__name__}: {error}"), None
        self.send_response(status)
        kind = "application/json" if json_bytes is None else "application/octet-stream"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if json_bytes is not None:
            self.send_header(HEADER_LENGTH, str(json_bytes))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def get(self):
        path = self.path.strip("/").split("/")
        if path == ["v2"]:
            extensions = ["model_repository"] if self.server.repository.explicit else []
            if self.server.binary:
                extensions.append("binary_tensor_data")
            return success({"name": "example", "version": "1", "extensions": extensions})
        if path[:2] == ["v2", "health"]:
            return success({path[-1]: True})
        if path[:2] == ["v2", "models"] and len(path) > 2:
            name, rest = model_path(path)
            model = self.server.repository.model(name)
            if rest == ["ready"]:
                return success({"name": name, "ready": True})
            if not rest:
                return success({
                    "name": name,
                    "versions": ["1"],
                    "platform": "python",
                    "inputs": [spec.describe() for spec in model.inputs],
                    "outputs": [spec.describe() for spec in model.outputs],
                })
        return 404, failure(f"there is no `{self.path}`"), None

    def post(self):
        body = self.read_body()
        path = self.path.strip("/").split("/")
        if path[:3] == ["v2", "repository", "models"] and len(path) == 5:
            verbs = {"load": self.server.repository.load, "unload": self.server.repository.unload}
            if path[4] in verbs:
                verbs[path[4]](path[3])
                return success({})
        if path[:2] == ["v2", "models"] and len(path) > 2:
            name, rest = model_path(path)
            if rest == ["infer"]:
                return self.infer(name, body)
        return 404, failure(f"there is no `{self.path}`"), None

    def infer(self, name, body):
        model = self.server.repository.model(name)
        length = int(self.headers.get(HEADER_LENGTH, len(body)))
        inputs, wanted, default = read_request(body, length)
        for spec in model.inputs:
            if spec.name not in inputs or not spec.accepts(inputs[spec.name]):
                raise BadRequest(f"input `{spec.name}` must be {spec.datatype} {spec.shape}")
        response, json_bytes = write_response(name, model.run(inputs), wanted, default)
        return 200, response, json_bytes

    def read_body(self):
        length = int(self.headers.get("Content-Length", 0))
        if not 0 <= length <= MAX_BODY_BYTES:
            self.close_connection = True
            raise BadRequest(f"a body of {length} bytes is too large")
        return self.rfile.read(length)

    def log_request(self, code="-", size="-"):
        """One line for each request would be too much."""


def model_path(path):
    """The name of the model, and what follows it and its version."""
    rest = path[3:]
    if rest[:1] == ["versions"]:
        rest = rest[2:]
    return path[2], rest


def success(document):
    return 200, json.dumps(document).encode("utf-8"), None


def failure(text):
    return json.dumps({"error": str(text)}).encode("utf-8")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def end_with_parent():
    """Sextant holds the other end of standard input: it closes when Sextant is no more."""
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)


def main(models=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--repository", action="store_true", help="load models on request only")
    parser.add_argument("--no-binary", action="store_true", help="take tensors as JSON only")
    parser.add_argument("--digits", metavar="FILE", help="weights of the model `digits`")
    parser.add_argument(
        "--end-with-parent", action="store_true", help="end when standard input closes"
    )
    arguments = parser.parse_args()
    models = dict(models or MODELS)
    if arguments.digits:
        models["digits"] = lambda: Digits(arguments.digits)
    if arguments.end_with_parent:
        threading.Thread(target=end_with_parent, daemon=True).start()
    server = Server((arguments.host, arguments.port), Handler)
    server.repository = Repository(models, arguments.repository)
    server.binary = not arguments.no_binary
    print(f"listening on {arguments.host}:{arguments.port}", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
