"""The calls of Triton's gRPC client against a service whose application `digits` has the model `mlp`. Prints one JSON
object for each: what was called, and what came of it.

Argument: `host:port`."""

import json
import queue
import sys

import numpy
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException, shared_memory

MODEL = "digits"
PIXELS = "pixels"


def infer_input(rows):
    tensor = triton.InferInput(PIXELS, [rows, 64], "FP32")
    tensor.set_data_from_numpy(numpy.full((rows, 64), 2, dtype=numpy.float32))
    return [tensor]


def wanted(name, classes=0):
    return [triton.InferRequestedOutput(name, class_count=classes)]


def expect(holds, what):
    if not holds:
        raise AssertionError(str(what))


def calls(client, output):
    """Each call by its name."""

    def infer():
        result = client.infer(
            MODEL,
            infer_input(2),
            outputs=wanted(output),
            request_id="seven",
            timeout=5_000_000,
            priority=1,
            parameters={"slo_policy": "best_effort"},
            client_timeout=60,
        )
        expect(result.as_numpy(output).shape == (2, 10), result.get_response())
        expect(result.get_response().id == "seven", result.get_response())

    def async_infer():
        answers = queue.Queue()
        for _ in range(8):
            client.async_infer(
                MODEL, infer_input(1), lambda result, error: answers.put((result, error)), outputs=wanted(output)
            )
        for _ in range(8):
            result, error = answers.get(timeout=60)
            expect(error is None, error)
            expect(result.as_numpy(output).shape == (1, 10), result.get_response())

    def stream_infer():
        answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(8):
            name = "nobody" if number == 5 else MODEL
            client.async_stream_infer(name, infer_input(1), request_id=str(number))
        for number in range(8):
            result, error = answers.get(timeout=60)
            if number == 5:
                expect("model_not_found" in error.message(), error)
                continue
            expect(error is None, error)
            expect(result.get_response().id == str(number), result.get_response())
        client.stop_stream()

    def classification():
        best = client.infer(MODEL, infer_input(1), outputs=wanted(output, classes=3)).as_numpy(output).ravel()
        expect(len(best) == 3 and best[0].count(b":") >= 1, best)

    def compressed():
        for algorithm in ("gzip", "deflate"):
            result = client.infer(MODEL, infer_input(2), outputs=wanted(output), compression_algorithm=algorithm)
            expect(result.as_numpy(output).shape == (2, 10), algorithm)

    def metadata():
        described = client.get_model_metadata(MODEL)
        expect(described.inputs[0].name == PIXELS, described)
        expect(client.get_model_metadata(MODEL, "1") == described, described)
        expect(client.get_server_metadata().name == "sextant", "the server's name")

    def health():
        expect(client.is_server_live() and client.is_server_ready(), "not ready")
        expect(client.is_model_ready(MODEL) and not client.is_model_ready("nobody"), "readiness of models")

    def refusals():
        for model, rows, status in (("nobody", 1, "NOT_FOUND"), (MODEL, 0, "INVALID_ARGUMENT")):
            try:
                client.infer(model, infer_input(rows))
            except InferenceServerException as error:
                expect(status in str(error.status()) and error.message(), error)
            else:
                raise AssertionError(f"{model} with {rows} rows was answered")

    def config():
        expect(client.get_model_config(MODEL).config.name == MODEL, "the model's configuration")

    def index():
        expect(len(client.get_model_repository_index().models) > 0, "the index")

    def load_and_unload():
        client.load_model("mlp")
        client.unload_model("mlp")

    def statistics():
        expect(client.get_inference_statistics(MODEL).model_stats[0].name == MODEL, "statistics")

    def settings():
        expect(client.get_trace_settings().settings["trace_level"].value == ["OFF"], "what is traced")
        client.update_log_settings({"log_verbose_level": 1})
        expect(client.get_log_settings().settings["log_verbose_level"].uint32_param == 1, "what is logged")
        client.update_log_settings({"log_verbose_level": 0})

    def memory():
        # One and the same variant answers both times.
        names = (entry.name for entry in client.get_model_repository_index().models)
        variant = next(name for name in names if name.startswith("mlp-ort-fp32"))
        pixels = numpy.full((1, 64), 2, dtype=numpy.float32)
        region = shared_memory.create_shared_memory_region("both", "/sextant-tritonclient-grpc", 1024)
        try:
            shared_memory.set_shared_memory_region(region, [pixels])
            client.register_system_shared_memory("both", "/sextant-tritonclient-grpc", 1024)
            expect("both" in client.get_system_shared_memory_status().regions, "the region")
            tensor = triton.InferInput(PIXELS, [1, 64], "FP32")
            tensor.set_shared_memory("both", 256)
            answer = triton.InferRequestedOutput(output)
            answer.set_shared_memory("both", 40, offset=512)
            client.infer(variant, [tensor], outputs=[answer])
            there = shared_memory.get_contents_as_numpy(region, numpy.float32, [1, 10], offset=512)
            plain = client.infer(variant, infer_input(1)).as_numpy(output)
            expect(numpy.array_equal(there, plain), (there, plain))
            client.unregister_system_shared_memory("both")
            expect("both" not in client.get_system_shared_memory_status().regions, "the region is gone")
        finally:
            shared_memory.destroy_shared_memory_region(region)

    return [
        infer,
        async_infer,
        stream_infer,
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
    client = triton.InferenceServerClient(address)
    output = client.get_model_metadata(MODEL).outputs[0].name
    for call in calls(client, output):
        failure = None
        try:
            call()
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        print(json.dumps({"call": call.__name__, "form": "gRPC", "failure": failure}), flush=True)


main(sys.argv[1])
