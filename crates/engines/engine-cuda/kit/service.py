"""The whole service on a GPU: registration, queries, load, and more models than its memory holds, as JSON lines.

The program `sextant` serves the processor and the GPU of this machine with everything in one process; models are those of
`models.py` beside this file. What is read off it: which variants a model gets and what they take, whether answers are
ONNX Runtime's, what closed and open loops of `sextant bench` are answered, and what loads cost while queries wait.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
# Largest difference from ONNX Runtime that an answer in fp32 may have, over its largest element. What the other
# precisions cost is measured by the registration, as accuracy.
TOLERANCE = 1e-3


def record(cell, metric, value, unit):
    line = {"experiment": "gpu", "part": "service", "cell": cell, "metric": metric, "value": value, "unit": unit}
    print(json.dumps(line), flush=True)


class Service:
    """A running `sextant serve`, until the block ends."""

    def __init__(self, options, folder, settings=()):
        self.program = str(options.sextant)
        words = [f"variants.effort={options.effort}", *settings]
        command = [self.program, "serve", "--listen", f"127.0.0.1:{options.port}", "--data-dir", str(folder / "data")]
        for word in words:
            command += ["--set", word]
        environment = dict(os.environ)
        if library := onnxruntime_library():
            environment.setdefault("ORT_DYLIB_PATH", library)
        with open(folder / "serve.log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment)
        self.url = f"http://127.0.0.1:{options.port}"

    def __enter__(self):
        began = time.monotonic()
        while time.monotonic() - began < 120:
            if self.process.poll() is not None:
                raise SystemExit(f"`sextant serve` ended with {self.process.returncode}: its log says why")
            with contextlib.suppress(OSError, ValueError):
                if self.get("/v2/health/ready", plain=True) is not None:
                    record("start", "ready", time.monotonic() - began, "s")
                    return self
            time.sleep(0.1)
        self.process.kill()
        raise SystemExit("`sextant serve` is not ready after two minutes")

    def __exit__(self, *_):
        began = time.monotonic()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        record("stop", "stopped", time.monotonic() - began, "s")

    def get(self, path, plain=False):
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            text = answer.read()
        return text if plain else json.loads(text)

    def post(self, path, body):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return json.loads(error.read())

    def run(self, *words, limit=600):
        """A command of `sextant`; its standard output, or None with the reason on standard error."""
        words = [str(word) for word in words]
        environment = dict(os.environ, SEXTANT_SERVER=self.url)
        try:
            done = subprocess.run(
                [self.program, *words], check=False, env=environment, capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            print(f"sextant {' '.join(words)}: not done after {limit} s", file=sys.stderr)
            return None
        if done.returncode:
            print(f"sextant {' '.join(words)}: {done.stdout[-600:]}{done.stderr[-1200:]}", file=sys.stderr)
            return None
        return done.stdout

    def variants(self, application):
        return self.get(f"/v1/variants?application={application}&limit=1000")["variants"]

    def bench(self, cell, application, *words, seconds):
        words = ["-a", application, *words, "--binary", "--duration", f"{seconds}s", "--json"]
        text = self.run("bench", *words, limit=seconds + 60)
        if text is None:
            record(cell, "failed", 1, "runs")
            return
        of_the_application = json.loads(text.splitlines()[0])
        record(cell, "load", of_the_application, "object")


def onnxruntime_library():
    """That of this Python's package, where it has one."""
    found = importlib.util.find_spec("onnxruntime")
    places = pathlib.Path(found.origin).parent.glob("capi/libonnxruntime.so.*") if found else ()
    return next(map(str, places), None)


def written(folder, names):
    """The models' files, made where they are missing."""
    subprocess.run([sys.executable, HERE / "models.py", folder, *names], check=True, stdout=sys.stderr)
    return {name: (folder / f"{name}.onnx", folder / f"{name}-validation.npz") for name in names}


def register(service, application, name, files, limit=150):
    model, validation = files
    began = time.monotonic()
    done = service.run(
        "register", "-a", application, "--name", name, "--model", model, "--validation", validation, limit=limit
    )
    record(f"{name} registration", "seconds", time.monotonic() - began, "s")
    if done is None:
        record(f"{name} registration", "failed", 1, "models")
    return done is not None


def described(service, application):
    """The variants with the largest batches as they were measured."""
    for variant in largest(service, application):
        record(
            variant["name"],
            "variant",
            {
                "engine": variant["engine"],
                "measured_on": variant.get("measured_on"),
                "accuracy": variant["accuracy"]["value"],
                "latency_ms": {point["batch"]: round(point["p50_ms"], 3) for point in variant["latency"]},
                "load_ms": round(variant["load_ms"], 2),
                "first_load_ms": variant.get("first_load_ms"),
                "cost_per_1k_usd": variant["cost_per_1k_usd"],
                "apart": variant.get("apart"),
                "dominated_by": variant.get("dominated_by"),
            },
            "object",
        )


def largest(service, application):
    """Of the variants that differ in their largest batch alone the one with the largest."""
    found = {}
    for variant in service.variants(application):
        kind = variant["name"].rsplit("-b", 1)[0]
        if kind not in found or variant["max_batch"] > found[kind]["max_batch"]:
            found[kind] = variant
    return list(found.values())


def agreement(service, application, files):
    """Answers of the GPU's variants beside ONNX Runtime's."""
    import numpy as np
    import onnxruntime

    model, validation = files
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    rows = np.load(validation)
    names = [input.name for input in session.get_inputs()]
    inputs = {name: rows[name][:3] for name in names}
    expected = session.run(["scores"], inputs)[0]
    tensors = [
        {"name": name, "shape": list(value.shape), "datatype": KINDS[value.dtype.name], "data": value.ravel().tolist()}
        for name, value in inputs.items()
    ]
    for variant in largest(service, application):
        if variant["engine"] != "cuda":
            continue
        answer = service.post("/v1/queries", {"variant": variant["name"], "inputs": tensors})
        if "outputs" not in answer:
            print(f"{variant['name']}: {json.dumps(answer)[:600]}", file=sys.stderr)
            record(variant["name"], "passed", 0, "cases")
            continue
        got = np.array(answer["outputs"][0]["data"], dtype=np.float64).reshape(expected.shape)
        difference = float(abs(got - expected).max() / abs(expected).max())
        record(variant["name"], "difference", difference, "share")
        if "-fp32-" in variant["name"]:
            record(variant["name"], "passed", int(difference <= TOLERANCE), "cases")


KINDS = {"float32": "FP32", "int64": "INT64"}


def loads_of(service, application, options, connections, rates, *words):
    """What closed and open loops are answered."""
    for count in connections:
        cell = f"{application}, {count} at a time"
        service.bench(cell, application, "-c", count, *words, seconds=options.seconds)
    for rate in rates:
        cell = f"{application}, {rate}/s within 25 ms"
        service.bench(cell, application, "-r", rate, "--latency-ms", 25, *words, seconds=options.seconds)


def workers(service):
    for worker in service.get("/v1/workers")["workers"]:
        record(worker["name"], "worker", worker, "object")


def gpu_alone(options, folder, files):
    """A GPU alone: what is made of each model, its answers, and loads."""
    with Service(options, folder, [f"worker.devices=cuda:{options.device}"]) as service:
        for name, inputs in files.items():
            if not register(service, name, name, inputs):
                continue
            described(service, name)
            agreement(service, name, inputs)
            connections, rates = ((1, 4), (20,)) if options.small else ((1, 16, 64, 256), (1000, 4000))
            loads_of(service, name, options, connections, rates, "--prefer", "latency")
        workers(service)


def processor_and_gpu(options, folder, files):
    """Both: who answers which targets, and for how much."""
    settings = [f"worker.devices=cpu,cuda:{options.device}", "variants.budget_s=25"]
    with Service(options, folder, settings) as service:
        for name, inputs in files.items():
            if not register(service, name, name, inputs):
                continue
            described(service, name)
            for latency in (5, 25, 250):
                for rate in (5,) if options.small else (20, 1000):
                    cell = f"{name} on either, {rate}/s within {latency} ms"
                    service.bench(cell, name, "-r", rate, "--latency-ms", latency, seconds=options.seconds)
        workers(service)


def many_models(options, folder):
    """More models than a GPU has pages for: queries of a model that is out wait for its load."""
    count, width, pages, rate = (4, 64, 2, 2) if options.small else (16, 2048, 28, 40)
    files = networks(folder / "many", count, width)
    settings = [f"worker.devices=cuda:{options.device}", f"worker.cuda.pages={pages}"]
    if options.small:
        settings.append("worker.cuda.page_bytes=65536")
    with Service(options, folder, settings) as service:
        names = [name for name, inputs in files.items() if register(service, name, name, inputs)]
        words = []
        for name in names:
            words += ["-a", f"{name}:rate={rate},latency_ms=100"]
        text = service.run(
            "bench", *words, "--binary", "--duration", f"{2 * options.seconds}s", "--json", limit=2 * options.seconds + 60
        )
        for line in (text or "").splitlines():
            load = json.loads(line)
            record(f"{len(names)} models, {load.get('application') or 'all'}", "load", load, "object")
        if text is None:
            record("many models", "failed", 1, "runs")
        metrics = service.get("/metrics", plain=True).decode()
        for line in metrics.splitlines():
            if line.startswith(("sextant_loads_total", "sextant_load_", "sextant_worker_loads")) and "bucket" not in line:
                record("many models", "metric", line, "text")


def networks(folder, count, width):
    """Networks of three dense layers of one width, each with weights of its own."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    folder.mkdir(exist_ok=True)
    files = {}
    for seed in range(count):
        random = np.random.default_rng(seed)
        nodes, weights, last = [], [], "features"
        for layer in range(4):
            outputs = width if layer < 3 else 10
            values = random.standard_normal((width, outputs), dtype=np.float32) * (2 / width) ** 0.5
            weights.append(numpy_helper.from_array(values, f"w{layer}"))
            nodes.append(helper.make_node("MatMul", [last, f"w{layer}"], [f"p{layer}" if layer < 3 else "scores"]))
            if layer < 3:
                nodes.append(helper.make_node("Relu", [f"p{layer}"], [f"r{layer}"]))
                last = f"r{layer}"
        value = lambda name, size: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size])
        graph = helper.make_graph(nodes, "dense", [value("features", width)], [value("scores", 10)], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        name = f"dense{seed}"
        path, validation = folder / f"{name}.onnx", folder / f"{name}.npz"
        onnx.save(model, path)
        rows = random.standard_normal((64, width), dtype=np.float32)
        x = rows
        for layer in range(4):
            x = x @ numpy_helper.to_array(weights[layer])
            x = np.maximum(x, 0) if layer < 3 else x
        np.savez(validation, features=rows, labels=x.argmax(axis=1).astype(np.int64))
        files[name] = (path, validation)
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sextant", type=pathlib.Path, default=HERE / "sextant")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--port", type=int, default=18080)
    parser.add_argument("--small", action="store_true", help="small networks and little time, for emulated devices")
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--seconds", type=int, default=4, help="of each load")
    parser.add_argument("--parts", default="alone,many,either", help="some of these, separated by commas")
    parser.add_argument("--files", type=pathlib.Path, help="folder in which the models are kept")
    options = parser.parse_args()
    names, either = (["mlp"], ["mlp"]) if options.small else (["bert", "resnet50"], ["resnet18_textures"])
    parts = {
        "alone": lambda folder, files: gpu_alone(options, folder, {name: files[name] for name in names}),
        "either": lambda folder, files: processor_and_gpu(options, folder, {name: files[name] for name in either}),
        "many": lambda folder, _: many_models(options, folder),
    }
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        try:
            files = written(options.files or work, {*names, *either})
            for name in options.parts.split(","):
                folder = work / name
                folder.mkdir()
                parts[name](folder, files)
        finally:
            for log in sorted(work.glob("*/serve.log")):
                print(f"--- {log.parent.name}/serve.log", file=sys.stderr)
                print(log.read_text(errors="replace")[-6000:], file=sys.stderr)


if __name__ == "__main__":
    main()
