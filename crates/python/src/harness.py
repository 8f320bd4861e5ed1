"""Calls the functions of one file for the process that has started this one.

Standard input is a socket. A message is the length of its head in four bytes, little-endian, the head as JSON, and the
elements of the tensors that the head announces. The first message brings the file; each further one asks for a function
or calls it. Nothing of a call is kept but what the file keeps itself.
"""

import json
import os
import struct
import sys
import traceback
import types

import numpy

TYPES = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}

# Longest text of an error, characters.
MOST_TEXT = 1000


class Wrong(Exception):
    """A function gave something that its step does not say."""


def read(link, length):
    """The next bytes, in memory of their own."""
    held = numpy.empty(length, numpy.uint8)
    view, at = memoryview(held), 0
    while at < length:
        count = link.readinto(view[at:])
        if not count:
            sys.exit(0)
        at += count
    return held


def write(link, parts):
    """All of the parts, one after the other."""
    for part in parts:
        view = memoryview(part).cast("B") if len(part) else memoryview(b"")
        while len(view):
            view = view[link.write(view) :]


def receive(link):
    """The next head."""
    (length,) = struct.unpack("<I", read(link, 4).tobytes())
    return json.loads(read(link, length).tobytes())


def answer(link, head, parts=()):
    """Sends a head and what it announces."""
    text = json.dumps(head).encode()
    write(link, [struct.pack("<I", len(text)) + text, *parts])


def unpack(head, held, places):
    """The array of a tensor's elements: of numbers, or of objects that are bytes."""
    if head["datatype"] != "BYTES":
        return held.view(TYPES[head["datatype"]]).reshape(head["shape"])
    places = places.view("<u4")
    texts, first = held.tobytes(), int(places[0])
    array = numpy.empty(len(places) - 1, object)
    for at in range(len(array)):
        array[at] = texts[places[at] - first : places[at + 1] - first]
    return array.reshape(head["shape"])


def pack(spec, value):
    """The head of a tensor and its elements."""
    name, kind = spec["name"], spec["datatype"]
    if kind != "BYTES":
        array = numpy.asarray(value)
        if array.dtype == object or not numpy.can_cast(array.dtype, TYPES[kind], "same_kind"):
            raise Wrong(f"gave `{name}` as {array.dtype}, and says {kind}")
        array = numpy.ascontiguousarray(array, TYPES[kind]).reshape(array.shape)
        return {"bytes": array.nbytes, "shape": array.shape}, [array.reshape(-1)]
    array = value if isinstance(value, numpy.ndarray) else numpy.asarray(value, object)
    texts = [it.encode() if isinstance(it, str) else it for it in array.reshape(-1).tolist()]
    if not all(isinstance(it, bytes) for it in texts):
        raise Wrong(f"gave `{name}` with elements that are neither bytes nor str, and says BYTES")
    places = numpy.zeros(len(texts) + 1, "<u4")
    numpy.cumsum([len(it) for it in texts], out=places[1:])
    text = b"".join(texts)
    return {"bytes": len(text), "places": places.nbytes, "shape": array.shape}, [text, places]


def gave(specs, value):
    """What a function gave, in the order of the step."""
    if isinstance(value, dict):
        missing = [spec["name"] for spec in specs if spec["name"] not in value]
        if missing:
            raise Wrong(f"gave nothing for `{missing[0]}`")
        return [value[spec["name"]] for spec in specs]
    if len(specs) == 1 and not isinstance(value, tuple):
        return [value]
    if not isinstance(value, (tuple, list)) or len(value) != len(specs):
        count = len(value) if isinstance(value, (tuple, list)) else 1
        raise Wrong(f"gave {count} values, and says {len(specs)}")
    return list(value)


def last_words(error, path):
    """The last line of an exception, and where in the file it was raised."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines.append(error.lineno)
    text = traceback.format_exception_only(error)[-1].strip()[:MOST_TEXT]
    return f"{path}, line {lines[-1]}: {text}" if lines else text


def load(link, head):
    """The module of a file that follows, with those beside it."""
    source = read(link, head["bytes"]).tobytes()
    module = types.ModuleType("step")
    module.__file__ = head["path"]
    module.FILES = {path: read(link, length).tobytes() for path, length in head["files"]}
    exec(compile(source, head["path"], "exec", dont_inherit=True), module.__dict__)
    return module


def find(module, name):
    """A function of a module."""
    function = getattr(module, name, None)
    if not callable(function):
        raise Wrong(f"has no function `{name}`")
    return function


def arguments(link, heads):
    """The arrays of the tensors that follow. All are read before one is made, which may fail: the next message begins
    behind them."""
    sent = [(head, read(link, head["bytes"]), read(link, head["places"])) for head in heads]
    return {head["name"]: unpack(head, held, places) for head, held, places in sent}


def call(link, module, head):
    """Calls a function with the tensors that follow."""
    inputs = arguments(link, head["inputs"])
    values = gave(head["gives"], find(module, head["function"])(**inputs))
    packed = [pack(spec, value) for spec, value in zip(head["gives"], values)]
    return {"gave": {"outputs": [it for it, _ in packed]}}, [part for _, parts in packed for part in parts]


def main():
    """Answers messages until nobody sends any."""
    link = open(os.dup(0), "r+b", buffering=0)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    module, path = None, ""
    while True:
        (kind, head), = receive(link).items()
        path = head.get("path", path)
        try:
            parts = ()
            if kind == "load":
                module, reply = load(link, head), {"ready": {}}
            elif kind == "find":
                reply = {"ready": {} if find(module, head["function"]) else {}}
            else:
                reply, parts = call(link, module, head)
        except MemoryError:
            reply, parts = {"failed": {"kind": "memory", "text": "MemoryError"}}, ()
        except Wrong as error:
            reply, parts = {"failed": {"kind": "wrong", "text": str(error)[:MOST_TEXT]}}, ()
        except BaseException as error:
            reply, parts = {"failed": {"kind": "raised", "text": last_words(error, path)}}, ()
        answer(link, reply, parts)
        del reply, parts


main()
