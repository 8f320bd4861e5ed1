"""What every peer runs: the ONNX file that the variable MODEL names, in ONNX Runtime on one thread.

Queries and answers have the shape of the Open Inference Protocol.
"""

import os

import numpy as np
import onnxruntime

MAX_BATCH = 32


def wait_s():
    """How long the peer may wait for a batch to fill, seconds."""
    return float(os.environ.get("WAIT_MS", "0")) / 1e3


class Model:
    def __init__(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            os.environ["MODEL"], options, providers=["CPUExecutionProvider"]
        )
        (tensor,) = self.session.get_inputs()
        self.input, self.shape = tensor.name, tuple(tensor.shape[1:])
        (tensor,) = self.session.get_outputs()
        self.output, self.classes = tensor.name, tensor.shape[1]

    def rows(self, query):
        """The rows of a query, as an array of shape (rows, ...)."""
        data = np.array(query["inputs"][0]["data"], dtype=np.float32)
        return data.reshape(-1, *self.shape)

    def run(self, rows):
        """The scores of some rows, as an array of shape (rows, classes)."""
        (scores,) = self.session.run([self.output], {self.input: rows})
        return scores

    def answer(self, scores):
        """The answer to a query with these scores, an array of shape (rows, classes)."""
        return {
            "outputs": [
                {
                    "name": self.output,
                    "shape": list(scores.shape),
                    "datatype": "FP32",
                    "data": scores.ravel().tolist(),
                }
            ]
        }
