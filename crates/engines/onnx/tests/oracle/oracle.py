"""Runs and quantises ONNX models with ONNX Runtime, for comparison with the Rust quantisers.

Reads a JSON list of steps from standard input and prints a JSON list of their results:

  {"do": "run", "model": PATH, "inputs": {NAME: {"shape": [..], "data": [..]}}}
      -> {"outputs": [{"name": .., "shape": [..], "data": [..]}, ..]}
  {"do": "fill", "out": PATH}  -> {}: writes a model in which every field of every message is set
  {"do": "same", "model": PATH, "other": PATH}  -> {"same": BOOL}
  {"do": "dynamic", "model": PATH, "out": PATH, "per_channel": BOOL}  -> {}
  {"do": "static", "model": PATH, "out": PATH, "inputs": .., "per_channel": BOOL}  -> {}
"""

import json
import logging
import sys

import numpy
import onnx
import onnxruntime
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)


def feeds(step):
    return {
        name: numpy.array(value["data"], dtype=numpy.float32).reshape(value["shape"])
        for name, value in step["inputs"].items()
    }


class OneBatch(CalibrationDataReader):
    def __init__(self, batch):
        self.batches = iter([batch])

    def get_next(self):
        return next(self.batches, None)


def run(step):
    onnx.checker.check_model(step["model"], full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(step["model"], options)
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, feeds(step))
    return {
        "outputs": [
            {"name": name, "shape": list(value.shape), "data": value.ravel().tolist()}
            for name, value in zip(names, values)
        ]
    }


def dynamic(step):
    quantize_dynamic(
        step["model"],
        step["out"],
        weight_type=QuantType.QInt8,
        per_channel=step["per_channel"],
        reduce_range=True,
    )
    return {}


def static(step):
    quantize_static(
        step["model"],
        step["out"],
        OneBatch(feeds(step)),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=step["per_channel"],
        reduce_range=True,
    )
    return {}


def filled(message, depth):
    """Sets every field of a message, and of messages in it down to a depth."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None:
            if depth == 0:
                continue
            part = getattr(message, field.name)
            filled(part.add() if field.is_repeated else part, depth - 1)
            if not field.is_repeated:
                part.SetInParent()
            continue
        value = {
            field.CPPTYPE_STRING: b"x" if field.type == field.TYPE_BYTES else "x",
            field.CPPTYPE_ENUM: 1,
            field.CPPTYPE_FLOAT: 0.5,
            field.CPPTYPE_DOUBLE: 0.5,
        }.get(field.cpp_type, 7)
        if field.is_repeated:
            getattr(message, field.name).extend([value, value])
        else:
            setattr(message, field.name, value)


def fill(step):
    """One field of each `oneof` remains: the last one set."""
    model = onnx.ModelProto()
    filled(model, 6)
    types = model.graph.input
    for name in ["tensor", "sequence", "map", "optional", "sparse_tensor", "opaque"]:
        kind = types.add().type
        filled(getattr(kind, name + "_type"), 4)
    with open(step["out"], "wb") as file:
        file.write(model.SerializeToString())
    return {}


def same(step):
    def read(path):
        with open(path, "rb") as file:
            return onnx.ModelProto.FromString(file.read())

    return {"same": read(step["model"]) == read(step["other"])}


def main():
    logging.disable(logging.WARNING)
    steps = {"run": run, "dynamic": dynamic, "static": static, "fill": fill, "same": same}
    results = [steps[step["do"]](step) for step in json.load(sys.stdin)]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
