"""The calls of KServe's inference clients, REST and gRPC, against a service whose application `digits` has the model
`mlp`. Prints one JSON object for each: what was called, and what came of it.

Argument: `host:port`."""

import asyncio
import json
import sys

import numpy
from kserve import InferInput, InferRequest, InferenceGRPCClient, InferenceRESTClient
from kserve.inference_client import RESTConfig

MODEL = "digits"


def expect(holds, what):
    if not holds:
        raise AssertionError(str(what))


def request(binary, **more):
    pixels = numpy.full((2, 64), 2, dtype=numpy.float32)
    tensor = InferInput(name="pixels", shape=[2, 64], datatype="FP32")
    tensor.set_data_from_numpy(pixels, binary_data=binary)
    return InferRequest(model_name=MODEL, infer_inputs=[tensor], request_id="seven", **more)


def check(response):
    expect(response.outputs[0].as_numpy().shape == (2, 10), response)
    expect(response.id == "seven", response)


def rest_calls(url):
    client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=60))

    async def live():
        expect(await client.is_server_live(url), "not live")

    async def ready():
        expect(await client.is_server_ready(url), "not ready")

    async def model_ready():
        expect(await client.is_model_ready(url, MODEL), "the model is not ready")

    async def infer_json():
        check(await client.infer(url, request(False), model_name=MODEL))

    async def infer_binary():
        check(await client.infer(url, request(True), model_name=MODEL))

    async def parameters():
        check(await client.infer(url, request(False, parameters={"slo_min_accuracy": 0.5}), model_name=MODEL))

    return "REST", [live, ready, model_ready, infer_json, infer_binary, parameters]


def grpc_calls(address):
    client = InferenceGRPCClient(address, timeout=60)

    async def live():
        expect(await client.is_server_live(), "not live")

    async def ready():
        expect(await client.is_server_ready(), "not ready")

    async def model_ready():
        expect(await client.is_model_ready(MODEL), "the model is not ready")

    async def infer_typed():
        check(await client.infer(request(False)))

    async def infer_raw():
        check(await client.infer(request(True)))

    async def parameters():
        check(await client.infer(request(False, parameters={"slo_policy": "best_effort"})))

    return "gRPC", [live, ready, model_ready, infer_typed, infer_raw, parameters]


async def main(address):
    for form, calls in (rest_calls(f"http://{address}"), grpc_calls(address)):
        for call in calls:
            failure = None
            try:
                await call()
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
            print(json.dumps({"call": call.__name__, "form": form, "failure": failure}), flush=True)


asyncio.run(main(sys.argv[1]))
