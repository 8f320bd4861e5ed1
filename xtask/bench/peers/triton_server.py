"""The model behind NVIDIA Triton with its Python backend, as the package nvidia-pytriton carries it.

    MODEL=mlp.onnx WAIT_MS=0 [QUEUED_MS=6] python triton_server.py --port 9000

What has waited in Triton's queue for QUEUED_MS is refused; without it everything waits for as long as it takes.
"""

import argparse
import os

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import (
    DynamicBatcher,
    ModelConfig,
    QueuePolicy,
    Tensor,
    TimeoutAction,
)
from pytriton.triton import Triton, TritonConfig

from model import MAX_BATCH, Model, wait_s


def queue_policy():
    queued_ms = os.environ.get("QUEUED_MS")
    if queued_ms is None:
        return None
    return QueuePolicy(
        timeout_action=TimeoutAction.REJECT,
        default_timeout_microseconds=int(1e3 * float(queued_ms)),
    )


def serve(port):
    model = Model()

    @batch
    def infer(**inputs):
        return [model.run(inputs[model.input])]

    config = TritonConfig(
        http_address="127.0.0.1", http_port=port, allow_grpc=False, allow_metrics=False
    )
    with Triton(config=config) as triton:
        triton.bind(
            model_name="peer",
            infer_func=infer,
            inputs=[Tensor(name=model.input, dtype=np.float32, shape=model.shape)],
            outputs=[Tensor(name=model.output, dtype=np.float32, shape=(model.classes,))],
            config=ModelConfig(
                max_batch_size=MAX_BATCH,
                batcher=DynamicBatcher(
                    max_queue_delay_microseconds=int(1e6 * wait_s()),
                    default_queue_policy=queue_policy(),
                ),
            ),
            strict=True,
        )
        triton.serve()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    serve(parser.parse_args().port)
