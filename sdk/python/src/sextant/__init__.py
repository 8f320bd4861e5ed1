"""A thin client of Sextant, the model-less inference service: NumPy arrays in, NumPy arrays out."""

from ._async import AsyncAddressee, AsyncClient
from ._client import Addressee, Answer, Client, Error, Unreachable
from ._tensors import DATA_TYPES

__all__ = [
    "DATA_TYPES",
    "Addressee",
    "Answer",
    "AsyncAddressee",
    "AsyncClient",
    "Client",
    "Error",
    "Unreachable",
]
