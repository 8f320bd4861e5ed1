#!/bin/sh
# Runs the tests of Triton's client for Rust against the service at SEXTANT_SERVER. Needs git, protoc, cargo, the
# `sextant` command and a Python with `onnx`, PYTHON.
set -eu

SERVER=${SEXTANT_SERVER:-http://127.0.0.1:8080}
REVISION=58a44caa
FOLDER=$(mktemp -d)
trap 'rm -rf "$FOLDER"' EXIT

"${PYTHON:-python3}" - "$FOLDER" <<'END'
import sys

import numpy
import onnx
from onnx import TensorProto, helper


def save(name, kind, dtype, inputs, nodes, shape, record):
    """A model with a node for each output, and random records for it."""
    def tensors(names):
        return [helper.make_tensor_value_info(of, kind, shape) for of in names]

    nodes = [helper.make_node(operator, inputs, [output]) for operator, output in nodes]
    outputs = [output for node in nodes for output in node.output]
    graph = helper.make_graph(nodes, name, tensors(inputs), tensors(outputs))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, f"{sys.argv[1]}/{name}.onnx")
    random = numpy.random.default_rng(0)
    records = {of: random.integers(0, 9, (32, *record)).astype(dtype) for of in inputs}
    numpy.savez(f"{sys.argv[1]}/{name}", **records)


save("identity_fp32", TensorProto.FLOAT, "float32", ["INPUT0"], [("Identity", "OUTPUT0")], ["n"], (5,))
save("simple", TensorProto.INT32, "int32", ["INPUT0", "INPUT1"], [("Add", "OUTPUT0"), ("Sub", "OUTPUT1")], ["N", 16], (16,))
END

for name in identity_fp32 simple; do
    sextant --server "$SERVER" register --application "$name" --metric mae --name "$name" \
        --model "$FOLDER/$name.onnx" --validation "$FOLDER/$name.npz"
done

git clone --quiet "${CLIENT:-https://github.com/triton-inference-server/client}" "$FOLDER/client"
git -C "$FOLDER/client" checkout --quiet "$REVISION"
cd "$FOLDER/client/src/rust/triton-client"
TRITON_TEST_URL="$SERVER" cargo test
