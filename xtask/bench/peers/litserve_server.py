"""The model behind LitServe.

    MODEL=mlp.onnx WAIT_MS=1 python litserve_server.py --port 9000
"""

import argparse

import litserve
import numpy as np

from model import MAX_BATCH, Model, wait_s


class Peer(litserve.LitAPI):
    def setup(self, device):
        self.model = Model()

    def decode_request(self, request):
        return self.model.rows(request)

    def batch(self, inputs):
        return np.concatenate(inputs)

    def predict(self, rows):
        return self.model.run(rows)

    def unbatch(self, scores):
        return [row[None] for row in scores]

    def encode_response(self, scores):
        return self.model.answer(scores)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    api = Peer(max_batch_size=MAX_BATCH, batch_timeout=wait_s())
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(
        host="127.0.0.1",
        port=port,
        num_api_servers=1,
        generate_client_file=False,
        log_level="warning",
        access_log=False,
    )
