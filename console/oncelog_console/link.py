"""The admin client that all pages share, which is opened when needed and again after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from time import monotonic
from typing import Any, Generic, TypeVar

from oncelog import Producer
from oncelog.admin import Admin
from oncelog.errors import ClientClosed
from oncelog_console.limits import CALL_TIMEOUT_MS, PAGE_SECONDS, SHARED_SECONDS

T = TypeVar("T")

CLIENT_ID = "oncelog-console"


class Link:
    """Opens clients of a cluster, until `close` is called. After that it opens none, because a page that is still
    waiting must not open connections as a user who has logged out.
    """

    def __init__(self, bootstrap: str, settings: Mapping[str, Any]) -> None:
        self.bootstrap = bootstrap
        defaults: dict[str, Any] = {
            "client_id": CLIENT_ID,
            "default_api_timeout_ms": CALL_TIMEOUT_MS,
            "request_timeout_ms": CALL_TIMEOUT_MS,
            "socket_connection_setup_timeout_ms": CALL_TIMEOUT_MS,
        }
        self._settings = defaults | dict(settings)
        self._admin: Admin | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False

    def new_admin(self) -> Admin:
        """Return an admin client with its own connections, for long waits: a broker responds to the requests of a
        connection in order. Raises ConfigError or ClientClosed.
        """
        self._check_open()
        return Admin(self.bootstrap, **self._settings)

    def new_producer(self) -> Producer:
        """Return a producer for one record. Raises ConfigError or ClientClosed."""
        self._check_open()
        settings = {name: value for name, value in self._settings.items() if name != "default_api_timeout_ms"}
        most = self._settings["default_api_timeout_ms"]
        return Producer(
            self.bootstrap, **settings | {"max_block_ms": most, "delivery_timeout_ms": most, "linger_ms": 0}
        )

    async def admin(self) -> Admin:
        """Return the shared admin client. Raises ClientClosed, or KafkaError if no broker can be reached."""
        async with self._starting:
            self._check_open()
            if self._admin is None:
                admin = self.new_admin()
                await admin.start()
                if self._is_closed:
                    await admin.close()
                self._check_open()
                self._admin = admin
            return self._admin

    async def close(self) -> None:
        self._is_closed = True
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the session is over: log in again")


class Shared(Generic[T]):
    """Shares a value that many pages need: the value is loaded once, within PAGE_SECONDS, and used by all pages for
    SHARED_SECONDS.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._loaded: dict[Hashable, tuple[float, asyncio.Task[T]]] = {}
        self._running: set[asyncio.Task[T]] = set()

    async def get(self, key: Hashable, load: Callable[[], Awaitable[T]]) -> T:
        """If `load` fails, all waiting callers get its exception, or TimeoutError."""
        now = self._clock()
        self._loaded = {k: (until, task) for k, (until, task) in self._loaded.items() if until > now or not task.done()}
        if key not in self._loaded:
            task = asyncio.ensure_future(_awaited(load))
            self._running.add(task)
            task.add_done_callback(self._ended)
            self._loaded[key] = (now + SHARED_SECONDS, task)
        return await asyncio.shield(self._loaded[key][1])

    def forget(self) -> None:
        """Drop the shared values, after a change."""
        self._loaded = {}

    async def close(self) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            # Read the exception of the load, because asyncio would otherwise log it as never retrieved if no page waits
            # any more.
            task.exception()


async def _awaited(load: Callable[[], Awaitable[T]]) -> T:
    """Run the load with its own time limit, because the page that has started the load may have stopped waiting while
    other pages still wait.
    """
    async with asyncio.timeout(PAGE_SECONDS):
        return await load()
