"""The same model behind mosec: JSON in the same shape, ONNX Runtime on one thread, batches of 32.

    MODEL=mlp.onnx WAIT_MS=2 python mosec_server.py --address 127.0.0.1 --port 9000
"""

import os

import numpy as np
import onnxruntime
from mosec import Server, Worker


class Model(Worker):
    def __init__(self):
        super().__init__()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            os.environ["MODEL"], options, providers=["CPUExecutionProvider"]
        )
        self.input = self.session.get_inputs()[0].name

    def forward(self, data):
        rows = np.array([query["inputs"][0]["data"] for query in data], dtype=np.float32)
        (scores,) = self.session.run(["scores"], {self.input: rows})
        return [
            {"outputs": [{"name": "scores", "shape": [1, 10], "datatype": "FP32", "data": row}]}
            for row in scores.tolist()
        ]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Model, max_batch_size=32, max_wait_time=int(os.environ["WAIT_MS"]))
    server.run()
