"""A bounded cache that loads a missing value once, however many tasks request it at the same time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from oncelog.cancelling import is_being_cancelled
from oncelog.serialization.errors import RegistryUnavailable, SchemaNotFound, SerializationError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedCache(Generic[K, V]):
    """A cache of the `size` most recently used values.

    A value is kept for `ttl_s` seconds; None means without expiry. A SchemaNotFound or SerializationError is kept for
    `failure_ttl_s` seconds, so that a thousand records with an unknown schema cause one request. Other errors are not
    kept.

    Several tasks that request one missing key wait for one load. The load continues if one of the tasks is cancelled.
    """

    def __init__(
        self,
        size: int,
        *,
        ttl_s: float | None = None,
        failure_ttl_s: float = 0.0,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._size = size
        self._ttl_s = ttl_s
        self._failure_ttl_s = failure_ttl_s
        self._now = _loop_time if now is None else now
        self._kept: OrderedDict[K, tuple[V | Exception, float | None]] = OrderedDict()
        """Key -> the value or error, and the loop time at which it expires; None means never."""
        self._loading: dict[K, asyncio.Task[V]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """Return the value of `key`; call `load` if the value is not cached. Raises the errors of `load`."""
        kept = self._kept.get(key)
        if kept is not None:
            value, expires = kept
            if expires is None or self._now() < expires:
                self._kept.move_to_end(key)
                if isinstance(value, Exception):
                    raise value.with_traceback(None)
                return value
            del self._kept[key]
        task = self._loading.get(key)
        if task is None:
            task = self._loading[key] = asyncio.ensure_future(self._load(key, load))
            task.add_done_callback(_retrieved)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and not is_being_cancelled():
                raise RegistryUnavailable("the client of the schema registry was closed") from None
            raise

    def put(self, key: K, value: V) -> None:
        """Store a value that is already known."""
        self._keep(key, value, self._ttl_s)

    async def close(self) -> None:
        """Cancel the running loads; the tasks that wait for them get RegistryUnavailable."""
        tasks = list(self._loading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _load(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        try:
            value = await load()
            self._keep(key, value, self._ttl_s)
            return value
        except (SchemaNotFound, SerializationError) as error:
            if self._failure_ttl_s:
                self._keep(key, error, self._failure_ttl_s)
            raise
        finally:
            del self._loading[key]

    def _keep(self, key: K, value: V | Exception, ttl_s: float | None) -> None:
        self._kept[key] = value, None if ttl_s is None else self._now() + ttl_s
        self._kept.move_to_end(key)
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)


def _retrieved(task: asyncio.Task[V]) -> None:
    """Read the task's error, so that asyncio does not report it if all waiting tasks were cancelled."""
    if not task.cancelled():
        task.exception()


def _loop_time() -> float:
    """Return the monotonic time of the running event loop, in seconds."""
    return asyncio.get_running_loop().time()
