"""Objects that a Python worker of Spark keeps between calls: an event loop in its own thread, and connections.

Spark forks workers and may give any task to any worker. Each process therefore creates these objects at first use, and
they are only caches: no result depends on them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from oncelog import Admin
from oncelog_pipeline.opening import opened
from oncelog_pipeline.options import client_settings
from oncelog_pipeline.options.sink_options import SinkOptions
from oncelog_pipeline.options.source_options import SourceOptions
from oncelog_pipeline.sink.cluster import KafkaCluster
from oncelog_pipeline.source.kept_consumers import KeptConsumers

T = TypeVar("T")
S = TypeVar("S", KafkaCluster, Admin)


class Connections:
    """Holds the event loop and the clients of this process."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._opening = asyncio.Lock()
        self._open: dict[str, Any] = {}
        self.consumers = KeptConsumers()
        threading.Thread(target=self._loop.run_forever, name="oncelog", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop and wait for its result. Raises the errors of `work`; cancels the coroutine
        if this thread is interrupted.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    async def cluster(self, options: SinkOptions) -> KafkaCluster:
        """Return the cluster to which a sink with these options writes. Raises KafkaError."""
        make = partial(
            KafkaCluster,
            options.bootstrap_servers,
            task_timeout_ms=options.task_timeout_ms,
            state_topic=options.state_topic,
            settings=options.settings,
            producer_settings=options.producer_settings,
            patience_seconds=options.patience_seconds,
        )
        return await self._kept(repr(("cluster", options)), make, options.patience_seconds)

    async def admin(self, options: SourceOptions) -> Admin:
        """Return the admin client for a source with these options. Raises KafkaError."""
        settings = client_settings.common(options.settings)
        make = partial(Admin, options.bootstrap_servers, **settings)
        key = repr(("admin", options.bootstrap_servers, settings))
        return await self._kept(key, make, options.poll_timeout_ms / 1000)

    async def separate_admin(self, options: SourceOptions) -> Admin:
        """Return an admin client with its own connections, for requests to which brokers respond late. The caller must
        close this client. Raises KafkaError."""
        admin = Admin(options.bootstrap_servers, **client_settings.common(options.settings))
        try:
            await admin.start()
        except BaseException:
            await admin.close()
            raise
        return admin

    async def _kept(self, key: str, make: Callable[[], S], seconds: float) -> S:
        """Return the cached client of this key, or create it; `seconds` is how long to retry if no broker can be
        reached.
        """
        async with self._opening:
            found: S | None = self._open.get(key)
            if found is None:
                found = self._open[key] = await opened(make, seconds)
            return found


_connections: Connections | None = None


def connections() -> Connections:
    """Return the connections of this process. A forked worker creates its own connections."""
    global _connections
    if _connections is None or _connections.process_id != os.getpid():
        _connections = Connections()
    return _connections
