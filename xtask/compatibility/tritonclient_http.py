"""The calls of Triton's HTTP client, in JSON and with binary tensors, against a service whose application `digits` has
the model `mlp`. Prints one JSON object for each: what was called, and what came of it.

Argument: `host:port`."""

import json
import sys

import numpy
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException, shared_memory

MODEL = "digits"
PIXELS = "pixels"


def infer_input(rows, binary):
    tensor = triton.InferInput(PIXELS, [rows, 64], "FP32")
    tensor.set_data_from_numpy(numpy.full((rows, 64), 2, dtype=numpy.float32), binary_data=binary)
    return [tensor]


def wanted(name, binary, classes=0):
    return [triton.InferRequestedOutput(name, binary_data=binary, class_count=classes)]


def expect(holds, what):
    if not holds:
        raise AssertionError(str(what))


def calls(client, output):
    """Each call by its name: a function of whether tensors are binary."""

    def infer(binary):
        result = client.infer(
            MODEL,
            infer_input(2, binary),
            outputs=wanted(output, binary),
            request_id="seven",
            timeout=5_000_000,
        )
        expect(result.as_numpy(output).shape == (2, 10), result.get_response())
        expect(result.get_response()["id"] == "seven", result.get_response())

    def async_infer(binary):
        asked = [
            client.async_infer(MODEL, infer_input(1, binary), outputs=wanted(output, binary))
            for _ in range(8)
        ]
        for answer in asked:
            expect(answer.get_result().as_numpy(output).shape == (1, 10), answer)

    def classification(binary):
        result = client.infer(MODEL, infer_input(1, binary), outputs=wanted(output, binary, classes=3))
        best = result.as_numpy(output).ravel()
        expect(len(best) == 3 and best[0].count(b":" if isinstance(best[0], bytes) else ":") >= 1, best)

    def compressed(binary):
        for algorithm in ("gzip", "deflate"):
            result = client.infer(
                MODEL,
                infer_input(2, binary),
                outputs=wanted(output, binary),
                request_compression_algorithm=algorithm,
                response_compression_algorithm=algorithm,
            )
            expect(result.as_numpy(output).shape == (2, 10), algorithm)

    def metadata(_):
        described = client.get_model_metadata(MODEL)
        expect(described["inputs"][0]["name"] == PIXELS, described)
        expect(client.get_model_metadata(MODEL, "1") == described, described)
        expect(client.get_server_metadata()["name"] == "sextant", "the server's name")

    def health(_):
        expect(client.is_server_live() and client.is_server_ready(), "not ready")
        expect(client.is_model_ready(MODEL) and not client.is_model_ready("nobody"), "readiness of models")

    def refusals(binary):
        for model, rows in (("nobody", 1), (MODEL, 0)):
            try:
                client.infer(model, infer_input(rows, binary))
            except InferenceServerException as error:
                expect(error.message(), error)
            else:
                raise AssertionError(f"{model} with {rows} rows was answered")

    def config(_):
        expect(client.get_model_config(MODEL)["name"] == MODEL, "the model's configuration")

    def index(_):
        expect(client.get_model_repository_index(), "the index")

    def load_and_unload(_):
        client.load_model("mlp")
        client.unload_model("mlp")

    def statistics(_):
        expect("model_stats" in client.get_inference_statistics(MODEL), "statistics")

    def settings(_):
        expect(client.get_trace_settings()["trace_level"] == ["OFF"], "what is traced")
        client.update_log_settings({"log_verbose_level": 1})
        expect(client.get_log_settings()["log_verbose_level"] == 1, "what is logged")
        client.update_log_settings({"log_verbose_level": 0})

    def memory(binary):
        # One and the same variant answers both times.
        names = (entry["name"] for entry in client.get_model_repository_index())
        variant = next(name for name in names if name.startswith("mlp-ort-fp32"))
        pixels = numpy.full((1, 64), 2, dtype=numpy.float32)
        region = shared_memory.create_shared_memory_region("both", "/sextant-tritonclient-http", 1024)
        try:
            shared_memory.set_shared_memory_region(region, [pixels])
            client.register_system_shared_memory("both", "/sextant-tritonclient-http", 1024)
            expect(client.get_system_shared_memory_status()[0]["name"] == "both", "the region")
            tensor = triton.InferInput(PIXELS, [1, 64], "FP32")
            tensor.set_shared_memory("both", 256)
            answer = triton.InferRequestedOutput(output, binary_data=binary)
            answer.set_shared_memory("both", 40, offset=512)
            client.infer(variant, [tensor], outputs=[answer])
            there = shared_memory.get_contents_as_numpy(region, numpy.float32, [1, 10], offset=512)
            plain = client.infer(variant, infer_input(1, True)).as_numpy(output)
            expect(numpy.array_equal(there, plain), (there, plain))
            client.unregister_system_shared_memory("both")
            expect(client.get_system_shared_memory_status() == [], "the region is gone")
        finally:
            shared_memory.destroy_shared_memory_region(region)

    return [
        infer,
        async_infer,
        classification,
        compressed,
        metadata,
        health,
        refusals,
        config,
        index,
        load_and_unload,
        statistics,
        settings,
        memory,
    ]


def main(address):
    client = triton.InferenceServerClient(address, concurrency=8)
    output = client.get_model_metadata(MODEL)["outputs"][0]["name"]
    for binary in (False, True):
        for call in calls(client, output):
            failure = None
            try:
                call(binary)
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
            form = "binary" if binary else "JSON"
            print(json.dumps({"call": call.__name__, "form": form, "failure": failure}), flush=True)


main(sys.argv[1])
