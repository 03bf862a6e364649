"""Which metadata store a broker has: ZooKeeper's where `zookeeper.connect` is set, its supervisor's if it is one of
several workers, else a file of its own.

A broker alone pays nothing for the other: kazoo is imported where it is used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from oncelog_broker.config import zookeeper_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.identity.note import StoreKind
from oncelog_broker.metadata.stores.embedded import EmbeddedStore
from oncelog_broker.metadata.stores.store import MetadataStore
from oncelog_broker.metadata.stores.zookeeper.access import MakeContext, ZooKeeperAccess, configured_access
from oncelog_broker.runtime.clock import Clock

METADATA_FILE: Final = "metadata.db"
"""The embedded store, in the first log directory unless it lies in another one. The name is not a topic-partition, so
Kafka's tools pass it over."""

_log = logging.getLogger(__name__)


class StoreOpening(Protocol):
    """How a starting broker opens its metadata store. `MemoryTree` is one, too."""

    @property
    def kind(self) -> StoreKind:
        """The kind of store, as noted in the data directories."""

    def place(self, home: str) -> str:
        """Return the place of the store as messages name it, a path or a connect string. `home`: the directory with
        the embedded store."""

    async def open(self, home: str, clock: Clock) -> MetadataStore:
        """Open the store. StoreFileError, StoreUnavailable, InvalidConfig: with a message for people."""


class EmbeddedOpening:
    """Opens the file in the data directory."""

    kind = StoreKind.EMBEDDED

    def place(self, home: str) -> str:
        return os.path.join(home, METADATA_FILE)

    async def open(self, home: str, clock: Clock) -> MetadataStore:
        return EmbeddedStore.open(Path(self.place(home)))


class SupervisedOpening:
    """Begins a session in the store that the supervisor of this worker serves."""

    kind = StoreKind.SUPERVISED

    def __init__(self, descriptor: int, place: str, on_gone: Callable[[], None]) -> None:
        """`descriptor`: the file descriptor of the connection to the supervisor. `place`: the path of its store, for
        messages. `on_gone`: called when the supervisor has ended."""
        self._descriptor = descriptor
        self._place = place
        self._on_gone = on_gone

    def place(self, home: str) -> str:
        return self._place

    async def open(self, home: str, clock: Clock) -> MetadataStore:
        import socket

        from oncelog_broker.metadata.stores.supervised.supervised_store import SupervisedStore

        return await SupervisedStore.open(socket.socket(fileno=self._descriptor), clock, self._on_gone)


class ZooKeeperOpening:
    """Begins a session with the servers that `zookeeper.connect` names."""

    kind = StoreKind.ZOOKEEPER

    def __init__(self, config: BrokerConfig, connect: str, access: ZooKeeperAccess) -> None:
        self._config = config
        self._connect = connect
        self._access = access

    def place(self, home: str) -> str:
        return self._connect

    async def open(self, home: str, clock: Clock) -> MetadataStore:
        from oncelog_broker.metadata.stores.zookeeper.zookeeper_store import ZooKeeperStore

        if self._access.identity is not None and self._access.tls is None:
            _log.warning(
                "the broker's password for ZooKeeper can be read on the line", extra={"servers": self._connect}
            )
        timeout_ms = self._config[keys.ZOOKEEPER_SESSION_TIMEOUT_MS]
        connection_timeout_ms = self._config[keys.ZOOKEEPER_CONNECTION_TIMEOUT_MS] or timeout_ms
        try:
            return await ZooKeeperStore.open(
                self._connect,
                session_timeout=timeout_ms / 1000,
                connection_timeout=connection_timeout_ms / 1000,
                clock=clock,
                access=self._access,
            )
        except ValueError as error:
            raise InvalidConfig(str(error)) from error


def configured_opening(config: BrokerConfig, tls: MakeContext | None = None) -> StoreOpening:
    """The opening of the store that `config` names. `tls`: for connections to ZooKeeper. InvalidConfig."""
    connect = config[keys.ZOOKEEPER_CONNECT]
    return EmbeddedOpening() if connect is None else ZooKeeperOpening(config, connect, configured_access(config, tls))


def described_store(config: BrokerConfig) -> str:
    """Describe the metadata store, for the log line that says that the broker is ready."""
    connect = config[keys.ZOOKEEPER_CONNECT]
    return "embedded metadata" if connect is None else f"metadata in ZooKeeper at {connect}"
