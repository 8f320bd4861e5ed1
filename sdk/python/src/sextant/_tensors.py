"""Tensors on the wire: elements as they lie in memory, little-endian, behind the JSON."""

from __future__ import annotations

import struct
from typing import Any

import numpy

#: Element types of the protocol and what they are in NumPy. `BF16` needs the package ml_dtypes.
DATA_TYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "BF16": "bfloat16",
    "FP32": "float32",
    "FP64": "float64",
}

# Kinds of arrays that travel as text.
_TEXT = "OSU"

_NAMES = {numpy_name: name for name, numpy_name in DATA_TYPES.items()}


def size(array: numpy.ndarray) -> int:
    """Bytes that the elements of an array take."""
    if array.dtype.kind in _TEXT:
        return sum(4 + len(_text(element)) for element in array.ravel())
    return array.nbytes


def encode(array: numpy.ndarray) -> tuple[str, bytes]:
    """The data type and the elements of an array."""
    if array.dtype.kind in _TEXT:
        texts = (_text(element) for element in array.ravel())
        return "BYTES", b"".join(struct.pack("<I", len(text)) + text for text in texts)
    name = _NAMES.get(array.dtype.name)
    if name is None:
        raise TypeError(f"no model takes elements of type {array.dtype}: use one of {', '.join(_NAMES)}, or text")
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return name, numpy.ascontiguousarray(little).tobytes()


def decode(data_type: str, shape: list[int], content: memoryview) -> numpy.ndarray:
    """An array from its elements."""
    if data_type == "BYTES":
        texts: list[Any] = []
        at = 0
        while at < len(content):
            (length,) = struct.unpack_from("<I", content, at)
            texts.append(bytes(content[at + 4 : at + 4 + length]).decode(errors="replace"))
            at += 4 + length
        array = numpy.empty(len(texts), dtype=object)
        array[:] = texts
        return array.reshape(shape)
    if data_type == "BF16":
        try:
            import ml_dtypes
        except ImportError:
            # The upper half of a float32.
            wide = numpy.frombuffer(content, "<u2").astype("<u4") << 16
            return wide.view("<f4").reshape(shape)
        return numpy.frombuffer(content, ml_dtypes.bfloat16).reshape(shape)
    dtype = numpy.dtype(DATA_TYPES[data_type]).newbyteorder("<")
    return numpy.frombuffer(content, dtype).reshape(shape)


def _text(element: Any) -> bytes:
    return element if isinstance(element, bytes) else str(element).encode()
