"""The model behind MLServer, with its adaptive batching.

    MODEL=mlp.onnx mlserver start FOLDER      # with the files that the benchmark writes
"""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from model import Model


class Peer(MLModel):
    async def load(self) -> bool:
        self.model = Model()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        rows = NumpyCodec.decode_input(payload.inputs[0])
        scores = self.model.run(rows)
        output = NumpyCodec.encode_output(self.model.output, scores)
        return InferenceResponse(model_name=self.name, outputs=[output])
