"""Our own Python package against a service. Arguments: the service's address, the folder of the example."""

import asyncio
import io
import json
import os
import pickle
import selectors
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy
import sextant


def tries_again():
    """What is refused for now is asked again, so often and no more."""
    asked = []

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            refused = self.path == "/always" or len(asked) < 3
            document = {"code": "overloaded", "retry_after_ms": 1} if refused else {"state": "here"}
            content = json.dumps(document).encode()
            self.send_response(503 if refused else 200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Busy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = sextant.Client(f"http://127.0.0.1:{server.server_port}", retries=2)
    assert client.request("GET", "/later") == {"state": "here"} and len(asked) == 3
    asked.clear()
    try:
        client.request("GET", "/always")
        raise AssertionError("it was answered")
    except sextant.Error as error:
        assert error.code == "overloaded" and len(asked) == 3, asked
    server.shutdown()


class Connections:
    """A server that answers the first request of each connection with `answers`, one of them for each further request."""

    def __init__(self, first, *further):
        self.answers = [first, *further]
        #: What was asked: method and path, in the order of their coming.
        self.asked = []
        #: How many connections there were.
        self.count = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.count += 1
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def end(self):
        """Nobody is answered any more."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def answer(self, connection):
        with connection, connection.makefile("rb") as lines:
            for answer in self.answers:
                line = lines.readline()
                if not line:
                    return
                self.asked.append(line.decode().rpartition(" ")[0])
                length = 0
                while header := lines.readline().strip().lower():
                    if header.startswith(b"content-length:"):
                        length = int(header.partition(b":")[2])
                lines.read(length)
                if answer is None:
                    return
                content = json.dumps(answer(self)).encode()
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content))


def sends_a_key_of_a_file():
    """The end of a file's last line is no part of a key."""
    keys = []

    class Asking(BaseHTTPRequestHandler):
        def do_GET(self):
            keys.append(self.headers["authorization"])
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Asking)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for key in ("sxt_some\r\n", " "):
        sextant.Client(address, key=key).request("GET", "/v1/models")
    assert keys == ["Bearer sxt_some", None], keys
    server.shutdown()


def repeats_what_it_may():
    """What breaks off on a connection that was kept is sent again where it is not carried out twice."""
    answer = lambda server: {"asked": len(server.asked)}
    breaking = Connections(answer, None)
    client = sextant.Client(breaking.address)
    client.request("GET", "/v1/models")
    try:
        client.request("POST", "/v1/keys", {"name": "camera", "scopes": ["query"]})
        raise AssertionError("it was answered")
    except ConnectionError:
        pass
    assert breaking.asked == ["GET /v1/models", "POST /v1/keys"], breaking.asked
    breaking.asked.clear()
    client.request("GET", "/v1/models")
    client.request("POST", "/v1/jobs", {})
    assert breaking.asked == ["GET /v1/models", "POST /v1/jobs", "POST /v1/jobs"], breaking.asked

    # One that the service has closed meanwhile is no reason to break off.
    closing = Connections(answer)
    client = sextant.Client(closing.address)
    for path in ("/v1/keys", "/v1/keys"):
        client.request("POST", path, {})
        kept = client._local.connection.sock
        with selectors.DefaultSelector() as selector:
            selector.register(kept, selectors.EVENT_READ)
            assert selector.select(30), "it is not closed"
    assert closing.asked == ["POST /v1/keys"] * 2 and closing.count == 2, closing.asked

    # Nor is its end, when nobody answers any more.
    closing.end()
    try:
        client.request("GET", "/v1/models")
        raise AssertionError("it was answered")
    except sextant.Unreachable as error:
        assert closing.address in str(error), error


def shares_no_connection_with_a_child():
    """A process that was forked from one that has asked has connections of its own."""
    server = Connections(*[lambda _: {}] * 3)
    client = sextant.Client(server.address)
    client.request("GET", "/parent")
    child = os.fork()
    if child == 0:
        # Nothing of the parent is to be done by the child.
        code = 1
        try:
            client.request("GET", "/child")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    client.request("GET", "/parent")
    assert server.asked == ["GET /parent", "GET /child", "GET /parent"] and server.count == 2, server.asked


def saves_text_as_text():
    """Texts are objects in a data frame, and text in an archive."""
    sent = []

    class Taking(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer()

        def do_POST(self):
            sent.append(self.rfile.read(int(self.headers["content-length"])))
            self.answer()

        def answer(self):
            content = json.dumps({"job": "some"}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Taking)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = sextant.Client(f"http://127.0.0.1:{server.server_port}")
    texts = numpy.array([["rue"], ["café"]], dtype=object)
    labels = numpy.array([0, 1])
    client.register("any", "m", model=b"", validation={"text": texts, "labels": labels}, wait=False)
    (body,) = sent
    archive = numpy.load(io.BytesIO(body[body.index(b"PK") :]), allow_pickle=False)
    assert archive["text"].tolist() == [["rue".encode()], ["café".encode()]], archive["text"]
    assert archive["labels"].dtype == labels.dtype and archive["labels"].tolist() == [0, 1]
    server.shutdown()


def splits_rows():
    """What is too large for one request is sent in several."""
    asked = []

    class Small(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(200, {"signature": {"batched": True, "inputs": [{"name": "x", "shape": [-1, 2]}]}}, b"")

        def do_POST(self):
            size = int(self.headers["content-length"])
            if size > 32 << 20:
                # A service does not read that to its end.
                return asked.append("too much")
            content = self.rfile.read(size)
            length = int(self.headers["inference-header-content-length"])
            (given,) = json.loads(content[:length])["inputs"]
            asked.append(given["shape"][0])
            if given["shape"][0] > 3:
                return self.answer(413, {"code": "too_large"}, b"")
            output = {"name": "y", "datatype": "FP32", "shape": given["shape"], "parameters": given["parameters"]}
            document = {"model": "m", "variant": "v", "targets_met": True, "cost_usd": 0.5, "timings": {}, "outputs": [output]}
            return self.answer(200, document, content[length:])

        def answer(self, status, document, tail):
            head = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(head + tail)))
            self.send_header("inference-header-content-length", str(len(head)))
            self.end_headers()
            self.wfile.write(head + tail)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Small)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rows = numpy.arange(20, dtype="float32").reshape(10, 2)
    client = sextant.Client(f"http://127.0.0.1:{server.server_port}")
    answer = client.application("any").query(x=rows)
    assert (answer["y"] == rows).all() and asked == [10, 5, 2, 3, 5, 2, 3], asked
    assert answer.cost_usd == 2.0, answer.document
    asked.clear()
    large = numpy.ones((10, 1 << 20), dtype="float32")
    answer = client.application("any").query(x=large)
    assert (answer["y"] == large).all() and asked == [5, 2, 3, 5, 2, 3], asked
    server.shutdown()


async def awaited(address, images, labels):
    """The same methods in an event loop, more of them at a time than there are connections."""
    async with sextant.AsyncClient(address, connections=4) as client:
        digits = client.application("digits")
        (output,) = [spec["name"] for spec in (await digits.signature())["outputs"]]
        answers = await asyncio.gather(*[digits.query(pixels=image) for image in images])
        shown = [int(answer[output].argmax()) for answer in answers]
        assert (numpy.array(shown) == labels).mean() >= 0.9, shown
        try:
            await digits.query(pixels=images[0], min_accuracy=1)
            raise AssertionError("it was answered")
        except sextant.Error as error:
            assert error.code == "target_infeasible", error
        models = await client.request("GET", "/v1/models")
        assert models["models"], models
    try:
        await client.request("GET", "/v1/models")
        raise AssertionError("a closed client asked")
    except RuntimeError:
        pass


def main(address, folder):
    client = sextant.Client(address)
    validation, test = numpy.load(folder / "validation.npz"), numpy.load(folder / "test.npz")
    job = client.register(
        "digits",
        "mlp",
        model=folder / "mlp.onnx",
        validation={"pixels": validation["pixels"], "labels": validation["labels"]},
        classes=[str(digit) for digit in range(10)],
    )
    assert job["state"] == "succeeded", job
    images, labels = test["pixels"], test["labels"]
    digits = client.application("digits")
    (output,) = [spec["name"] for spec in digits.signature()["outputs"]]

    together = digits.query(pixels=images[:4], latency_ms=5000, min_accuracy=0.9, classification=1)
    assert together[output].shape == (4, 10) and together[output].dtype == numpy.float32
    assert together.targets_met and together.model == "mlp", together
    names = [row[0]["name"] for row in together.classification]
    assert names == [str(digit) for digit in together[output].argmax(axis=1)]

    # One row in, one row out; other types and orders of elements are brought to the model's.
    one = digits.query(pixels=images[0])
    assert one[output].shape == (10,), one
    for array in (images[0].astype("float64"), images[0].astype(">f4"), images[0].tolist()):
        again = client.variant(one.variant).query(pixels=array)
        assert numpy.allclose(again[output], one[output], atol=1e-6)
    whole = numpy.asfortranarray(images[:2])
    assert numpy.allclose(client.model("mlp").query({"pixels": whole})[output][0], one[output], atol=0.1)

    def fails(code, ask):
        try:
            ask()
        except sextant.Error as error:
            assert error.code == code, error
            again = pickle.loads(pickle.dumps(error))
            assert (again.status, again.problem, str(again)) == (error.status, error.problem, str(error))
            return error
        raise AssertionError(f"{code} was answered")

    client.request("PATCH", "/v1/applications/digits", {"presets": {"calm": {"latency_ms": 5000}}})
    assert digits.query(pixels=images[0], preset="calm").targets_met
    fails("invalid_target", lambda: digits.query(pixels=images[0], preset="hasty"))

    refused = fails("target_infeasible", lambda: digits.query(pixels=images[0], min_accuracy=1))
    assert refused.status == 422 and refused.closest, refused
    nearest = digits.query(pixels=images[0], min_accuracy=1, best_effort=True, explain=True)
    assert not nearest.targets_met and nearest.explanation["reason"]
    fails("application_not_found", lambda: client.application("nobody").query(pixels=images[0]))
    fails("invalid_tensor", lambda: digits.query(pixel=images[:1]))
    fails("invalid_model", lambda: client.register("digits", "none", model=b"none", validation=folder / "validation.npz"))
    assert [model["name"] for model in client.request("GET", "/v1/models")["models"]] == ["mlp", "none"]

    # A job over a file.
    lines = [json.dumps({"inputs": {"pixels": image.tolist()}}) for image in images[:20]]
    client.put("in/some images.jsonl", "\n".join(lines).encode())
    job = digits.job("in/some images.jsonl", "out/answers.jsonl", targets={"min_accuracy": 0.9})
    assert job["state"] == "succeeded", job
    answers = [json.loads(line) for line in client.get("out/answers.jsonl").splitlines()]
    assert len(answers) == 20 and all("outputs" in answer for answer in answers), answers[0]
    fails("artefact_not_found", lambda: client.get("out/none.jsonl"))

    # A data frame, as pandas has it.
    class Frame:
        def __init__(self, names, columns=None):
            self.names, self.columns = names, columns or names

        def __getitem__(self, name):
            return images[:20, self.names.index(name)]

        def to_csv(self, *, index):
            assert not index
            rows = zip(validation["pixels"], validation["labels"])
            lines = [",".join(map(str, [*row, label])) for row, label in rows]
            return "\n".join([",".join([*self.columns, "label"]), *lines, ""])

    named = Frame([f"pixels.{place}" for place in range(64)])
    job = client.register("digits", "logistic", model=folder / "logistic.onnx", validation=named)
    assert job["state"] == "succeeded", job
    asked = client.variant(one.variant)
    expected = asked.query(pixels=images[:20])[output]
    for frame in (
        named,
        # Columns as a sorted index has them: `pixels.0`, `pixels.1`, `pixels.10`.
        Frame(named.names, sorted(named.names)),
        Frame([f"column {place}" for place in range(64)]),
        # Columns of an array.
        Frame(list(range(64))),
    ):
        assert numpy.allclose(asked.query(frame)[output], expected, atol=1e-6), frame.columns
    try:
        asked.query(Frame(named.names[:63] + ["pixels.64"]))
        raise AssertionError("a column is missing")
    except ValueError as error:
        assert "`pixels`" in str(error), error

    # More rows than any batch holds, and than a service takes in one request.
    many = numpy.concatenate([images] * 3)
    assert numpy.allclose(asked.query(pixels=many)[output], numpy.concatenate([asked.query(pixels=images)[output]] * 3), atol=1e-5)

    tries_again()
    saves_text_as_text()
    sends_a_key_of_a_file()
    repeats_what_it_may()
    shares_no_connection_with_a_child()
    splits_rows()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    try:
        sextant.Client(nobody).request("GET", "/v1/models")
        raise AssertionError("somebody answered")
    except sextant.Unreachable as error:
        assert nobody in str(error), error

    asyncio.run(awaited(address, images[:64], labels[:64]))

    # Threads share a client.
    shown = [None] * 64

    def ask(first):
        for index in range(first, 64, 8):
            shown[index] = int(digits.query(pixels=images[index])[output].argmax())

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert (numpy.array(shown) == labels[:64]).mean() >= 0.9, shown


main(sys.argv[1], Path(sys.argv[2]))
