"""Runs and quantises ONNX models with ONNX Runtime, for comparison with the Rust quantisers.

Reads a JSON list of steps from standard input and prints a JSON list of their results:

  {"do": "run", "model": PATH, "inputs": {NAME: {"shape": [..], "data": [..]}}}
      -> {"outputs": [{"name": .., "shape": [..], "data": [..]}, ..]}
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
    )
    return {}


def main():
    logging.disable(logging.WARNING)
    steps = {"run": run, "dynamic": dynamic, "static": static}
    results = [steps[step["do"]](step) for step in json.load(sys.stdin)]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
