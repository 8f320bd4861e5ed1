"""The model behind mosec.

    MODEL=mlp.onnx WAIT_MS=1 python mosec_server.py --address 127.0.0.1 --port 9000
"""

import numpy as np
from mosec import Server, Worker

from model import MAX_BATCH, Model, wait_s


class Peer(Worker):
    def __init__(self):
        super().__init__()
        self.model = Model()

    def forward(self, queries):
        scores = self.model.run(np.concatenate([self.model.rows(query) for query in queries]))
        return [self.model.answer(row[None]) for row in scores]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Peer, max_batch_size=MAX_BATCH, max_wait_time=int(1e3 * wait_s()))
    server.run()
