"""The client for programs that run an event loop."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ._client import Addressee, Answer, Client, Columns

_T = TypeVar("_T")


class AsyncAddressee:
    """An application, a model or a variant."""

    def __init__(self, client: AsyncClient, addressee: Addressee) -> None:
        self._client, self._addressee = client, addressee
        self.kind, self.name = addressee.kind, addressee.name

    async def query(self, inputs: Mapping[str, Any] | Columns | None = None, **options: Any) -> Answer:
        """`Addressee.query`, with the same arguments."""
        return await self._client._run(self._addressee.query, inputs, **options)

    async def job(self, input: str, output: str, **options: Any) -> dict[str, Any]:
        """`Addressee.job`, with the same arguments."""
        return await self._client._run(self._addressee.job, input, output, **options)

    async def signature(self) -> dict[str, Any]:
        """`Addressee.signature`."""
        return await self._client._run(self._addressee.signature)


class AsyncClient:
    """A service, for callers that run an event loop. Its methods are those of `Client`, to be awaited.

    Up to `connections` requests are under way at a time, each on a connection and a thread of its own; more wait for one
    of them. A cancelled call returns at once; the service answers its request all the same.
    """

    def __init__(
        self,
        address: str | None = None,
        key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 3,
        connections: int = 32,
    ) -> None:
        self._client = Client(address, key, timeout_s, retries)
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="sextant")

    def application(self, name: str) -> AsyncAddressee:
        """Any variant of any model of an application."""
        return AsyncAddressee(self, self._client.application(name))

    def model(self, name: str) -> AsyncAddressee:
        """Any variant of a model."""
        return AsyncAddressee(self, self._client.model(name))

    def variant(self, name: str) -> AsyncAddressee:
        """One variant and no other."""
        return AsyncAddressee(self, self._client.variant(name))

    async def register(self, application: str, name: str, **options: Any) -> dict[str, Any]:
        """`Client.register`, with the same arguments."""
        return await self._run(self._client.register, application, name, **options)

    async def ensure_application(self, name: str, metric: str = "top1") -> dict[str, Any]:
        """`Client.ensure_application`."""
        return await self._run(self._client.ensure_application, name, metric)

    async def wait(self, job: str, timeout_s: float | None = None) -> dict[str, Any]:
        """`Client.wait`."""
        return await self._run(self._client.wait, job, timeout_s)

    async def put(self, path: str, source: str | os.PathLike[str] | bytes) -> dict[str, Any]:
        """`Client.put`."""
        return await self._run(self._client.put, path, source)

    async def get(self, path: str) -> bytes:
        """`Client.get`."""
        return await self._run(self._client.get, path)

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """`Client.request`."""
        return await self._run(self._client.request, method, path, body)

    async def close(self) -> None:
        """Waits for the requests that are under way, drops those that are not, and closes all connections."""
        shutdown = functools.partial(self._threads.shutdown, cancel_futures=True)
        await asyncio.get_running_loop().run_in_executor(None, shutdown)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, call: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        bound = functools.partial(call, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._threads, bound)
