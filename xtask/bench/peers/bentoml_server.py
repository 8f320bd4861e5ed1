"""The model behind BentoML, which reads arrays and no tensors with a name.

    MODEL=mlp.onnx bentoml serve bentoml_server:Peer --host 127.0.0.1 --port 9000
"""

import bentoml
import numpy as np

from model import MAX_BATCH, Model


@bentoml.service(workers=1, logging={"access": {"enabled": False}})
class Peer:
    def __init__(self):
        self.model = Model()

    @bentoml.api(batchable=True, max_batch_size=MAX_BATCH, max_latency_ms=1000)
    def predict(self, rows: np.ndarray) -> np.ndarray:
        return self.model.run(np.asarray(rows, dtype=np.float32))
