"""The client, whom it asks, and what it answers."""

from __future__ import annotations

import http.client
import io
import json
import os
import selectors
import threading
import time
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy

from . import _tensors

_LENGTH = "inference-header-content-length"

# Rows that take more go in several requests: a service reads 32 MiB of what it refuses, and a client that is still sending when
# the connection closes sees no refusal. The rest is for what is said of the elements.
_MOST_BYTES = 31 << 20

# Requests that the service does not carry out twice, or that leave nothing behind.
_REPEATABLE_METHODS = ("GET", "HEAD", "PUT", "DELETE")
_REPEATABLE_POSTS = ("/v1/queries", "/v1/models", "/v1/registrations", "/v1/jobs", "/v1/feedback")


@runtime_checkable
class Frame(Protocol):
    """A data frame, as pandas has it."""

    def to_csv(self, *, index: bool) -> str: ...


@runtime_checkable
class Columns(Protocol):
    """A data frame of any library: named columns."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, column: str) -> Any: ...


class Error(Exception):
    """What the service refuses or cannot do: a problem document (RFC 9457)."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        #: The whole document.
        self.problem = dict(problem)
        #: The stable code, such as `target_infeasible`; its page is `/docs/errors/{code}`.
        self.code: str = self.problem.get("code", "")
        #: What happened and what to do.
        self.detail: str = self.problem.get("detail") or self.problem.get("title") or f"HTTP {status}"
        #: The variants that come closest to the targets, where nothing can meet them.
        self.closest: list[dict[str, Any]] = self.problem.get("closest") or []
        #: When to try again, seconds.
        self.retry_after_s: float | None = None
        if "retry_after_ms" in self.problem:
            self.retry_after_s = self.problem["retry_after_ms"] / 1e3
        super().__init__(f"{self.detail} ({self.code or status})")

    def __reduce__(self) -> tuple[Any, ...]:
        # As it was made: processes of a pool hand on what their calls raise.
        return type(self), (self.status, self.problem)


class Unreachable(ConnectionError):
    """No service answers at the client's address."""


class Answer(Mapping[str, numpy.ndarray]):
    """Outputs by name, and how they came about."""

    def __init__(self, document: Mapping[str, Any], outputs: Mapping[str, numpy.ndarray]) -> None:
        self._outputs = dict(outputs)
        #: The answer's document without the elements.
        self.document = dict(document)
        #: The model and the variant that answered.
        self.model: str = document["model"]
        self.variant: str = document["variant"]
        #: Whether every target was met.
        self.targets_met: bool = document["targets_met"]
        #: What the query cost, US dollars.
        self.cost_usd: float = document["cost_usd"]
        #: `queue_us`, `compute_us`, `total_us`, `batch_rows`.
        self.timings: dict[str, Any] = document["timings"]
        #: The most likely classes of each row, where they were asked for.
        self.classification: list[list[dict[str, Any]]] | None = document.get("classification")
        #: Why this variant was chosen, where that was asked for.
        self.explanation: dict[str, Any] | None = document.get("explanation")

    def row(self) -> Answer:
        """The same without the dimension that counts rows, of which there is one."""
        return Answer(self.document, {name: array[0] for name, array in self._outputs.items()})

    @classmethod
    def joined(cls, parts: list[Answer]) -> Answer:
        """The answers of parts of the rows as one."""
        document = dict(parts[0].document)
        document["targets_met"] = all(part.targets_met for part in parts)
        document["cost_usd"] = sum(part.cost_usd for part in parts)
        if parts[0].classification is not None:
            document["classification"] = [row for part in parts for row in part.classification or []]
        outputs = {name: numpy.concatenate([part[name] for part in parts]) for name in parts[0]}
        return cls(document, outputs)

    def __getitem__(self, name: str) -> numpy.ndarray:
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}{list(array.shape)}" for name, array in self._outputs.items())
        return f"<Answer of {self.variant}: {shapes}>"


class Addressee:
    """An application, a model or a variant."""

    def __init__(self, client: Client, kind: str, name: str) -> None:
        self._client, self.kind, self.name = client, kind, name
        self._signature: dict[str, Any] | None = None

    def query(
        self,
        inputs: Mapping[str, Any] | Columns | None = None,
        *,
        latency_ms: float | None = None,
        min_accuracy: float | None = None,
        max_error: float | None = None,
        min_relative_accuracy: float | None = None,
        max_cost_per_1k_usd: float | None = None,
        prefer: str | None = None,
        preset: str | None = None,
        classification: int | None = None,
        best_effort: bool = False,
        explain: bool = False,
        **arrays: Any,
    ) -> Answer:
        """Asks for an answer to these inputs within these targets; what is left out is that of the
        application's preset of this name, then its default.

        An array without the batch dimension is one row; its outputs have none either. A data frame is a row in each of its
        rows: a column belongs to the input of its name, `NAME.0`, `NAME.1` and so on are the elements of an input that has
        several, and all columns are those of the only input where none has its name. Rows that are too many for one request are
        sent in several; the answer is of all of them, and its document that of the first. Raises `Error` where the service
        refuses.
        """
        if isinstance(inputs, Columns):
            inputs = self._columns(inputs)
        given = {name: numpy.asarray(array) for name, array in {**(inputs or {}), **arrays}.items()}
        ranks = self._ranks()
        is_row = bool(ranks) and all(
            array.ndim == ranks[name] - 1 for name, array in given.items() if name in ranks
        )
        if is_row:
            given = {name: array[numpy.newaxis] if name in ranks else array for name, array in given.items()}
        targets = {
            "latency_ms": latency_ms,
            "min_accuracy": min_accuracy,
            "max_error": max_error,
            "min_relative_accuracy": min_relative_accuracy,
            "max_cost_per_1k_usd": max_cost_per_1k_usd,
            "prefer": prefer,
        }
        body: dict[str, Any] = {
            self.kind: self.name,
            "targets": {name: value for name, value in targets.items() if value is not None},
            "binary_outputs": True,
        }
        if preset is not None:
            body["preset"] = preset
        if classification is not None:
            body["classification"] = classification
        if best_effort:
            body["on_infeasible"] = "best_effort"
        if explain:
            body["explain"] = True
        answer = self._ask(body, given, ranks)
        return answer.row() if is_row else answer

    def _ask(self, body: dict[str, Any], given: dict[str, numpy.ndarray], ranks: dict[str, int]) -> Answer:
        """Asks for all rows, or, where these are too many for one request, for each half."""
        rows = {len(array) for name, array in given.items() if name in ranks and array.ndim}
        may_be_cut = len(rows) == 1 and max(rows) >= 2
        if not may_be_cut or sum(map(_tensors.size, given.values())) <= _MOST_BYTES:
            try:
                return self._ask_once(body, given)
            except Error as error:
                if error.code != "too_large" or not may_be_cut:
                    raise
        middle = max(rows) // 2
        halves = [
            {name: array[part] if name in ranks else array for name, array in given.items()}
            for part in (slice(None, middle), slice(middle, None))
        ]
        return Answer.joined([self._ask(body, half, ranks) for half in halves])

    def _ask_once(self, body: dict[str, Any], given: dict[str, numpy.ndarray]) -> Answer:
        tensors, tail = [], []
        for name, array in given.items():
            data_type, content = _tensors.encode(array)
            parameters = {"binary_data_size": len(content)}
            tensors.append(
                {"name": name, "shape": list(array.shape), "datatype": data_type, "parameters": parameters}
            )
            tail.append(content)
        head = json.dumps(body | {"inputs": tensors}).encode()
        headers = {"content-type": "application/octet-stream", _LENGTH: str(len(head))}
        answered, content = self._client._send("POST", "/v1/queries", b"".join([head, *tail]), headers)
        length = int(answered.get(_LENGTH) or len(content))
        document = json.loads(content[:length])
        outputs, rest = {}, memoryview(content)[length:]
        for output in document.pop("outputs"):
            size = output["parameters"]["binary_data_size"]
            outputs[output["name"]] = _tensors.decode(output["datatype"], output["shape"], rest[:size])
            rest = rest[size:]
        return Answer(document, outputs)

    def _columns(self, frame: Columns) -> dict[str, numpy.ndarray]:
        """The inputs that the columns of a data frame are."""
        specs = self.signature().get("inputs") or []
        found: dict[str, numpy.ndarray] = {}
        for spec in specs:
            own = _elements(frame, spec["name"])
            if own or len(specs) == 1:
                columns = [numpy.asarray(frame[label]) for label in own or frame.columns]
                shape = [length if length >= 0 else -1 for length in spec["shape"][1:]]
                rows = numpy.stack(columns, axis=1)
                found[spec["name"]] = rows.reshape(len(rows), *shape) if shape.count(-1) < 2 else rows
        return found

    def job(
        self,
        input: str,
        output: str,
        *,
        targets: Mapping[str, float] | None = None,
        preset: str | None = None,
        webhook: str | None = None,
        wait: bool = True,
    ) -> dict[str, Any]:
        """Has the records of a file of the artefact store answered into another one, on spare capacity; the job's document.

        `targets` are those of a query, such as `{"min_accuracy": 0.95}`, without `latency_ms`. Waits for the job's end
        unless `wait` is false. Raises `Error` where the job fails.
        """
        body: dict[str, Any] = {self.kind: self.name, "input": input, "output": output}
        chosen = {"targets": targets, "preset": preset, "webhook": webhook}
        body |= {name: value for name, value in chosen.items() if value is not None}
        document = self._client.request("POST", "/v1/jobs", body)
        return self._client.wait(document["id"]) if wait else document

    def signature(self) -> dict[str, Any]:
        """Inputs and outputs, and whether there is a batch dimension: `inputs`, `outputs`, `batched`."""
        if self._signature is None:
            application = self.name
            if self.kind != "application":
                path = f"/v1/{self.kind}s/{_quoted(self.name)}"
                application = self._client.request("GET", path)["application"]
            document = self._client.request("GET", f"/v1/applications/{_quoted(application)}")
            # An application without models has none yet.
            self._signature = document.get("signature")
        return self._signature or {}

    def _ranks(self) -> dict[str, int]:
        """The number of dimensions of each input, where the first counts rows."""
        signature = self.signature()
        if not signature.get("batched"):
            return {}
        return {spec["name"]: len(spec["shape"]) for spec in signature["inputs"]}


class Client:
    """A service. May be shared by threads, and by processes that are forked.

    What the service refuses for now, saying when to try again (it is overloaded, a limit is reached, a variant is being
    loaded), is tried again then, up to `retries` times and for `timeout_s` in all.
    """

    def __init__(
        self,
        address: str | None = None,
        key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 3,
    ) -> None:
        address = address or os.environ.get("SEXTANT_SERVER") or "http://127.0.0.1:8080"
        self._url = urllib.parse.urlsplit(address)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ValueError(f"`{address}` is not the address of a service: it must be `http://host:port`")
        # As a file has it, with the end of its line: in a header that would be refused, and the refusal show the key.
        self._key = (key or os.environ.get("SEXTANT_API_KEY") or "").strip()
        self._timeout_s = timeout_s
        self._retries = retries
        self._local = threading.local()

    def application(self, name: str) -> Addressee:
        """Any variant of any model of an application."""
        return Addressee(self, "application", name)

    def model(self, name: str) -> Addressee:
        """Any variant of a model."""
        return Addressee(self, "model", name)

    def variant(self, name: str) -> Addressee:
        """One variant and no other."""
        return Addressee(self, "variant", name)

    def register(
        self,
        application: str,
        name: str,
        *,
        model: str | os.PathLike[str] | bytes,
        validation: str | os.PathLike[str] | bytes | Mapping[str, Any] | Frame,
        metric: str = "top1",
        data: list[str | os.PathLike[str]] | None = None,
        outputs: list[str] | None = None,
        classes: list[str] | None = None,
        input_names: Mapping[str, str] | None = None,
        output_names: Mapping[str, str] | None = None,
        labels: bool = True,
        mask: str | None = None,
        pad: Mapping[str, float] | None = None,
        wait: bool = True,
    ) -> dict[str, Any]:
        """Registers a model and waits until its variants are measured; the job's document.

        `model` is an ONNX file, `validation` a file, the arrays of the inputs with `labels`, or a data frame with a column
        `label`. The application is created where it is missing. `input_names` and `output_names` say what inputs and
        outputs are called in place of their names in the file. With `labels=False` the set has none: the agreement of each
        variant with the file is
        measured, which is no accuracy. Raises `Error` where the registration fails.
        """
        self.ensure_application(application, metric)
        if isinstance(validation, Mapping):
            packed = io.BytesIO()
            numpy.savez(packed, **{key: _saved(array) for key, array in validation.items()})
            validation = packed.getvalue()
        elif isinstance(validation, Frame):
            validation = validation.to_csv(index=False).encode()
        fields: list[tuple[str, str | None, bytes]] = [
            ("name", None, name.encode()),
            ("application", None, application.encode()),
            ("model", "model.onnx", _content(model)),
            ("validation", "validation", _content(validation)),
        ]
        fields += [("data", Path(file).name, _content(file)) for file in data or []]
        fields += [("output", None, output.encode()) for output in outputs or []]
        if classes is not None:
            fields.append(("classes", None, "\n".join(classes).encode()))
        fields += [("input_name", None, f"{old}={new}".encode()) for old, new in (input_names or {}).items()]
        fields += [("output_name", None, f"{old}={new}".encode()) for old, new in (output_names or {}).items()]
        if not labels:
            fields.append(("labels", None, b"none"))
        if mask is not None:
            fields.append(("mask", None, mask.encode()))
        fields += [("pad", None, f"{key}={value}".encode()) for key, value in (pad or {}).items()]
        kind, body = _form(fields)
        _, content = self._send("POST", "/v1/models", body, {"content-type": kind})
        job = json.loads(content)["job"]
        return self.wait(job) if wait else self.request("GET", f"/v1/jobs/{_quoted(job)}")

    def ensure_application(self, name: str, metric: str = "top1") -> dict[str, Any]:
        """An application, created where it is missing."""
        try:
            return self.request("GET", f"/v1/applications/{_quoted(name)}")
        except Error as error:
            if error.code != "application_not_found":
                raise
        return self.request("POST", "/v1/applications", {"name": name, "metric": metric})

    def wait(self, job: str, timeout_s: float | None = None) -> dict[str, Any]:
        """A job's document when it has come to its end. Raises `Error` where it failed, `TimeoutError` where it has
        not ended in time."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = 20.0 if until is None else max(0.0, min(20.0, until - time.monotonic()))
            wait_ms = int(1e3 * min(left_s, self._timeout_s / 2))
            document = self.request("GET", f"/v1/jobs/{_quoted(job)}?wait_ms={wait_ms}")
            if document["state"] == "succeeded":
                return document
            if document["state"] in ("failed", "cancelled"):
                failure = document.get("error") or {}
                detail = failure.get("message") or f"job `{job}` was cancelled"
                raise Error(200, {"code": failure.get("code", document["state"]), "detail": detail})
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"job `{job}` is at `{document['step']}`")

    def put(self, path: str, source: str | os.PathLike[str] | bytes) -> dict[str, Any]:
        """Stores a file, or bytes, in the artefact store; the artefact's document."""
        headers = {"content-type": "application/octet-stream"}
        _, answer = self._send("PUT", f"/v1/artefacts/{_quoted_path(path)}", _content(source), headers)
        return json.loads(answer)

    def get(self, path: str) -> bytes:
        """The content of a file of the artefact store."""
        return self._send("GET", f"/v1/artefacts/{_quoted_path(path)}", None, {})[1]

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Any request with JSON in and out, such as `request("GET", "/v1/models")`."""
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        _, answer = self._send(method, path, content, headers)
        return json.loads(answer) if answer else None

    def close(self) -> None:
        """Closes the connection of this thread."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPMessage, bytes]:
        sent = dict(headers)
        if self._key:
            sent["authorization"] = f"Bearer {self._key}"
        if method == "POST":
            # What is sent again, because its connection broke, is not carried out again.
            sent["idempotency-key"] = uuid.uuid4().hex
        may_repeat = _may_repeat(method, path)
        path = self._url.path.rstrip("/") + path
        until = time.monotonic() + self._timeout_s
        for left in range(self._retries, -1, -1):
            status, answered, content = self._exchange_anew(method, path, body, sent, may_repeat)
            if status < 400:
                return answered, content
            error = Error(status, _problem(content))
            wait_s = error.retry_after_s
            if wait_s is None or left == 0 or time.monotonic() + wait_s > until:
                raise error
            time.sleep(wait_s)
        raise AssertionError("the last attempt returns or raises")

    def _exchange_anew(
        self, method: str, path: str, body: bytes | None, sent: Mapping[str, str], may_repeat: bool
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """An exchange; once more over a new connection where a kept one breaks and the request may be repeated."""
        kept = self._kept()
        try:
            return self._exchange(kept or self._connect(), method, path, body, sent)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            # The service may have closed it just now, or have begun to carry the request out.
            self.close()
            if kept is None or not may_repeat:
                raise
        except BaseException:
            # What is left of an answer must not be taken for the next one.
            self.close()
            raise
        try:
            return self._exchange(self._connect(), method, path, body, sent)
        except BaseException:
            self.close()
            raise

    def _kept(self) -> http.client.HTTPConnection | None:
        """The open connection of this thread. One that the service has closed is none, nor is that of the process that this
        one was forked from: the two would read each other's answers."""
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is not None and (self._local.process != os.getpid() or _has_ended(connection)):
            self.close()
            return None
        return connection

    def _connect(self) -> http.client.HTTPConnection:
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        kind = kinds[self._url.scheme]
        connection = kind(self._url.hostname, self._url.port, timeout=self._timeout_s)
        try:
            connection.connect()
        except OSError as error:
            address = self._url.geturl()
            raise Unreachable(f"`{address}` cannot be reached: {error}") from error
        self._local.connection, self._local.process = connection, os.getpid()
        return connection

    @staticmethod
    def _exchange(
        connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return response.status, response.headers, response.read()


def _may_repeat(method: str, path: str) -> bool:
    """Whether a request may be sent again when it is not known what became of it."""
    return method in _REPEATABLE_METHODS or (method == "POST" and path in _REPEATABLE_POSTS)


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    """Whether the service has closed a connection: while nothing is asked, there is nothing else to read."""
    if connection.sock is None:
        return True
    with selectors.DefaultSelector() as selector:
        selector.register(connection.sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def _elements(frame: Columns, name: str) -> list[Any]:
    """The labels of the columns that are elements of an input: the one of its name, or `NAME.0`, `NAME.1` by their numbers."""
    whole = [label for label in frame.columns if str(label) == name]
    if whole:
        return whole
    numbered = [(str(label).rpartition("."), label) for label in frame.columns]
    own = sorted((int(at), label) for (head, _, at), label in numbered if head == name and at.isdecimal())
    numbers = [at for at, _ in own]
    if numbers != list(range(len(own))):
        raise ValueError(f"the columns of `{name}` are numbered {numbers}, not 0 to {len(own) - 1}")
    return [label for _, label in own]


def _saved(values: Any) -> numpy.ndarray:
    """An array as it goes into an archive: objects that are text, as a data frame has them, as text. NumPy would pickle them."""
    array = numpy.asarray(values)
    if array.dtype.kind != "O" or not all(isinstance(element, str) for element in array.ravel()):
        return array
    return numpy.array([text.encode() for text in array.ravel()], "S").reshape(array.shape)


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _quoted_path(path: str) -> str:
    return urllib.parse.quote(path, safe="/")


def _content(source: str | os.PathLike[str] | bytes) -> bytes:
    return source if isinstance(source, bytes) else Path(source).read_bytes()


def _form(fields: list[tuple[str, str | None, bytes]]) -> tuple[str, bytes]:
    """The content type and the body of a form."""
    edge = uuid.uuid4().hex
    parts = []
    for name, file, content in fields:
        named = "" if file is None else f'; filename="{_escaped(file)}"'
        parts.append(f'--{edge}\r\ncontent-disposition: form-data; name="{name}"{named}\r\n\r\n'.encode())
        parts += [content, b"\r\n"]
    parts.append(f"--{edge}--\r\n".encode())
    return f"multipart/form-data; boundary={edge}", b"".join(parts)


def _escaped(text: str) -> str:
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _problem(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    return {"detail": content[:200].decode(errors="replace")}
