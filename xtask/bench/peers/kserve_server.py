"""The model behind KServe's model server, which batches nothing by itself.

    MODEL=mlp.onnx python kserve_server.py --port 9000
"""

import argparse
import logging

import kserve
from kserve import InferOutput, InferRequest, InferResponse

from model import Model


class Peer(kserve.Model):
    def __init__(self):
        super().__init__("peer")
        self.model = Model()
        self.ready = True

    async def predict(self, payload: InferRequest, headers=None, response_headers=None):
        scores = self.model.run(payload.inputs[0].as_numpy())
        output = InferOutput(self.model.output, list(scores.shape), "FP32")
        output.set_data_from_numpy(scores, binary_data=False)
        return InferResponse(payload.id or "query", "peer", [output])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    # A line for each query would be measured, too.
    logging.disable(logging.INFO)
    server = kserve.ModelServer(http_port=port, workers=1, enable_grpc=False)
    server.start([Peer()])
