"""Several brokers in this process, with metadata in memory: the cluster starts in a moment, without ZooKeeper and Java.

`MemoryCluster` runs in the event loop of its caller. `InProcessCluster` runs a `MemoryCluster` in a separate thread, so
that blocking clients can also use the cluster. Files are not synced to the disk (`unsynced_disk`). A single broker of
this cluster cannot be killed, and a fault at a fail point applies to all of its brokers. Tests that kill brokers or
inject such faults use `cluster.Cluster` instead.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from oncelog_broker.broker import Broker
from oncelog_broker.config.load import load_broker_config
from oncelog_broker.metadata.stores.in_memory import MemoryTree
from oncelog_testing.broker import LOOPBACK, QUICK_SETTINGS
from oncelog_testing.topics import create_topic
from oncelog_testing.unsynced_disk import UnsyncedDisk

__tracebackhide__ = True  # hides this module in the traceback of a failed test

T = TypeVar("T")

BROKERS: Final = 3
WHOLE_SECONDS: Final = 60.0
"""Seconds until all brokers must see each other and all replicas must be in sync."""
CALL_SECONDS: Final = 120.0
"""Seconds that a call waits until the brokers' thread has finished a start, a stop or a fault. After this time the call
raises TimeoutError.
"""
MAX_CONNECTIONS: Final = "200"
"""Limit on the connections of each broker, because the brokers share file descriptors with the test."""


class MemoryBroker:
    """One broker of a `MemoryCluster`. The broker keeps its port and its data over stop and start."""

    def __init__(self, tree: MemoryTree, number: int, settings: Mapping[str, str]) -> None:
        self._tree = tree
        self._settings = settings
        self._broker: Broker | None = None
        self.number = number
        self.port = 0
        """The port on which this broker listens; 0 before the first start."""

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address as `host:port`, for any client."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def broker(self) -> Broker:
        """The broker object while it runs; raises an error otherwise."""
        assert self._broker is not None, f"broker {self.number} does not run"
        return self._broker

    @property
    def is_running(self) -> bool:
        return self._broker is not None

    async def start(self) -> None:
        """Start the broker; returns when it serves. Raises the errors of `Broker.start`."""
        settings = {**self._settings, "listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}"}
        config = load_broker_config(None, {}, [f"{key}={value}" for key, value in settings.items()])
        broker = Broker(config, disk=UnsyncedDisk(), store=self._tree)
        await broker.start()
        self._broker, self.port = broker, broker.advertised[0].port

    async def stop(self, *, leaves: bool = True) -> None:
        """Stop the broker after a controlled shutdown. With `leaves` False, stop the broker without a controlled
        shutdown.
        """
        broker, self._broker = self._broker, None
        if broker is not None:
            if leaves:
                await broker.leave()
            await broker.stop()

    def end_session(self) -> None:
        """End the broker's session, as ZooKeeper does with a broker that was silent for too long: other brokers take
        over its leadership, and it registers again.
        """
        self._tree.end(self.broker.parts.storage.store.session_id)


class MemoryCluster:
    """Brokers numbered from 1, with three replicas of each partition. Call `start` and `stop`, or use `async with`."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, *, brokers: int = BROKERS) -> None:
        """`directory` gets the data; `settings`, by Kafka's keys, override the settings for tests."""
        self.tree = MemoryTree()
        """The metadata tree, with the sessions of the brokers."""
        ours = {**QUICK_SETTINGS, "max.connections": MAX_CONNECTIONS, **_replicated(brokers), **(settings or {})}
        self.brokers = {
            number: MemoryBroker(
                self.tree, number, {"node.id": str(number), "log.dirs": str(directory / str(number)), **ours}
            )
            for number in range(1, brokers + 1)
        }

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers as comma-separated `host:port`, for any client."""
        return ",".join(each.bootstrap_servers for each in self.brokers.values())

    @property
    def running(self) -> list[Broker]:
        """The running brokers, by number."""
        return [each.broker for each in self.brokers.values() if each.is_running]

    async def start(self) -> None:
        """Start all brokers that do not run. If a broker fails to start, the brokers that this call has started are
        stopped.
        """
        begun: list[MemoryBroker] = []
        try:
            for each in self.brokers.values():
                if not each.is_running:
                    await each.start()
                    begun.append(each)
            await self.until_whole()
        except BaseException:
            await asyncio.gather(*(each.stop(leaves=False) for each in begun))
            raise

    async def stop(self) -> None:
        """Stop all brokers simultaneously, without moving leaderships, because no broker would remain to take over."""
        await asyncio.gather(*(each.stop(leaves=False) for each in self.brokers.values()))

    async def until_whole(self) -> None:
        """Wait until all running brokers see each other, and all their replicas are in sync. Raises TimeoutError."""
        names = {each.node_id for each in self.running}
        async with asyncio.timeout(WHOLE_SECONDS):
            for each in self.running:
                await each.parts.membership.metadata.wait_for(
                    lambda image: (
                        image.brokers.keys() >= names
                        and all(
                            set(state.isr) >= names.intersection(state.replicas) and state.leader >= 0
                            for topic in image.topics.values()
                            for state in topic.partitions.values()
                        )
                    )
                )

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the number of the broker that leads the partition; -1 means that the partition has no leader, or that
        its leader is not known yet.
        """
        for broker in self.running:
            state = broker.parts.membership.metadata.image.partition(topic, partition)
            if state is not None and broker.parts.replication.replicas.led_partition(topic, partition) is not None:
                return broker.node_id
        return -1

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def _replicated(brokers: int) -> dict[str, str]:
    replicas = str(min(brokers, 3))
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(brokers, 2)),
        "min.insync.replicas": str(min(brokers, 2)),
    }


class InProcessBroker:
    """One broker of an `InProcessCluster`. If a test stops this broker, the broker is started again at the end of the
    test.
    """

    def __init__(self, cluster: InProcessCluster, broker: MemoryBroker) -> None:
        self._cluster = cluster
        self._broker = broker

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address as `host:port`, for any client."""
        return self._broker.bootstrap_servers

    def __str__(self) -> str:
        return self.bootstrap_servers

    @property
    def is_running(self) -> bool:
        return self._broker.is_running

    def stop(self) -> None:
        """Stop the broker after a controlled shutdown."""
        self._cluster.call(self._broker.stop())

    def start(self) -> None:
        """Start the broker again, with its data and port."""
        self._cluster.call(self._broker.start())

    def end_session(self) -> None:
        """End the broker's session, as ZooKeeper does with a broker that was silent for too long: other brokers take
        over its leadership, and the broker registers again.
        """

        async def end() -> None:
            self._broker.end_session()

        self._cluster.call(end())


class InProcessCluster:
    """Three brokers that run in one separate thread of this process. Call `start` and `stop`, or use `with`; the
    fixture of the pytest plugin uses `with`.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        """`directory` gets the data; `settings`, by Kafka's keys, override the settings for tests."""
        self._cluster = MemoryCluster(directory, settings)
        self._brokers = {number: InProcessBroker(self, each) for number, each in self._cluster.brokers.items()}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers as comma-separated `host:port`, for any client."""
        return self._cluster.bootstrap_servers

    def __str__(self) -> str:
        return self.bootstrap_servers

    def __getitem__(self, number: int) -> InProcessBroker:
        """Return the broker with this number, counted from 1."""
        return self._brokers[number]

    def __iter__(self) -> Iterator[InProcessBroker]:
        return iter(self._brokers.values())

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic. Raises TopicAlreadyExists, InvalidTopic and other KafkaErrors."""
        create_topic(self.bootstrap_servers, name, partitions, configs)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the number of the broker that leads the partition; -1 means that none does now."""

        async def ask() -> int:
            return self._cluster.leader_of(topic, partition)

        return self.call(ask())

    def mend(self) -> None:
        """Start all stopped brokers; returns when all replicas are in sync. Raises TimeoutError."""
        self.call(self._cluster.start())

    def logged(self) -> list[tuple[str, str]]:
        """Return no lines, because pytest itself shows the log lines of brokers in this process."""
        return []

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the brokers' event loop. Returns the coroutine's result."""
        assert self._loop is not None, "the cluster does not run"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    def start(self) -> Self:
        """Start all brokers; returns when they serve. Raises the errors of `Broker.start`."""
        import uvloop

        self._loop = loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(loop,), name="oncelog-brokers", daemon=True)
        self._thread.start()
        try:
            self.call(self._cluster.start())
        except BaseException:
            self._end_thread()
            raise
        return self

    def stop(self) -> None:
        """Stop all brokers and their thread."""
        try:
            self.call(self._cluster.stop())
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
