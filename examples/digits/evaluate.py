"""Measure the top-1 accuracy of an ONNX file on a data set, independently of Sextant.

    python evaluate.py cnn-large.onnx validation.npz
    {"model": "cnn-large.onnx", "set": "validation.npz", "rows": 397, "correct": 395, "accuracy": ..}

ONNX Runtime on one thread, batches of 32 in file order, the last one shorter: as Sextant does it,
so that the two numbers must be equal, not merely close.
"""

import argparse
import json
import pathlib

import numpy as np
import onnxruntime

BATCH = 32


def session(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def correct_rows(model, pixels, labels):
    (input_,) = model.get_inputs()
    count = 0
    for start in range(0, len(labels), BATCH):
        rows = slice(start, start + BATCH)
        (scores,) = model.run(["scores"], {input_.name: pixels[rows]})
        count += int((scores.argmax(axis=1) == labels[rows]).sum())
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("set", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with np.load(args.set) as arrays:
        pixels, labels = arrays["pixels"], arrays["labels"]
    correct = correct_rows(session(args.model, args.threads), pixels, labels)
    print(
        json.dumps(
            {
                "model": args.model.name,
                "set": args.set.name,
                "rows": len(labels),
                "correct": correct,
                "accuracy": correct / len(labels),
            }
        )
    )


if __name__ == "__main__":
    main()
